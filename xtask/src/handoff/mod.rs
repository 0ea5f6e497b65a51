//! The cost of letting another thread run: the figures behind decisions 6 and 7.
//!
//! Three ways, each as nanoseconds from one thread's giving up the turn to the other's having it:
//! a futex between two kernel threads on one core, the same on two cores, and a switch of stack
//! and FS base by one kernel thread. Medians of several rounds, taken in turns, so that a change of
//! the machine's speed affects all three. Then the same between two processes of a server, under the runtime as it is built.

mod context;
mod processes;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use processes::{By, Tokens};

use skein_testkit::{Failure, Outcome};

/// Options.
#[derive(clap::Args)]
pub struct Options {
    /// Hand-offs a round through the kernel; the switch does 100 times as many
    #[arg(long, default_value_t = 20_000)]
    handoffs: u32,
    /// Rounds; the median counts
    #[arg(long, default_value_t = 5)]
    rounds: u32,
}

/// Prints the figures.
pub fn run(options: &Options) -> Outcome {
    let (handoffs, rounds) = (options.handoffs.max(2), options.rounds.max(1));
    let cores = cores()?;
    let mut same = Vec::new();
    let mut other = Vec::new();
    let mut switch = Vec::new();
    let (mut by_pipe, mut by_futex) = (Vec::new(), Vec::new());
    let tokens = Tokens::prepare()?;
    for _ in 0..rounds {
        same.push(futex_ns([cores[0], cores[0]], handoffs)?);
        if cores.len() > 1 {
            other.push(futex_ns([cores[0], cores[1]], handoffs)?);
        }
        if context::supported() {
            let count = handoffs.saturating_mul(100);
            switch.push(per_handoff_ns(context::ping_pong(count), count));
        }
        if let Some(tokens) = &tokens {
            by_pipe.push(tokens.handover_ns(By::Pipe, handoffs)?);
            by_futex.push(tokens.handover_ns(By::Futex, handoffs)?);
        }
    }
    print("futex, two kernel threads on one core", same);
    print("futex, two kernel threads on two cores", other);
    print("one kernel thread switching stack and FS base", switch);
    print("two processes of a server, by a pipe", by_pipe);
    print("two processes of a server, by a futex", by_futex);
    Ok(())
}

fn print(what: &str, mut rounds_ns: Vec<f64>) {
    rounds_ns.sort_by(f64::total_cmp);
    match rounds_ns.get(rounds_ns.len() / 2) {
        Some(median_ns) => println!("{what:<48} {median_ns:>9.1} ns a hand-off"),
        None => println!("{what:<48} cannot be measured on this machine"),
    }
}

fn per_handoff_ns(took: Duration, handoffs: u32) -> f64 {
    took.as_secs_f64() * 1e9 / f64::from(handoffs)
}

fn cores() -> Outcome<Vec<usize>> {
    let allowed = sched_getaffinity(Pid::from_raw(0))
        .map_err(|error| Failure::of("cannot read which cores may be used", error))?;
    Ok((0..CpuSet::count()).filter(|core| allowed.is_set(*core).unwrap_or(false)).collect())
}

/// Two threads, one on each of `cores`, hand a turn to and fro.
fn futex_ns(cores: [usize; 2], handoffs: u32) -> Outcome<f64> {
    let turn = Arc::new(AtomicU32::new(0));
    let rounds = handoffs / 2;
    let threads = cores.map(|core| (core, Arc::clone(&turn)));
    let [first, second] = [0, 1].map(|me: u32| {
        let (core, turn) = threads[me as usize].clone();
        std::thread::spawn(move || -> nix::Result<Duration> {
            let mut set = CpuSet::new();
            set.set(core)?;
            sched_setaffinity(Pid::from_raw(0), &set)?;
            let mut start = Instant::now();
            for round in 0..rounds {
                if round == rounds / 10 {
                    // The rounds before warm up: both threads exist and are where they belong.
                    start = Instant::now();
                }
                while turn.load(Ordering::Acquire) != me {
                    futex_wait(&turn, 1 - me);
                }
                turn.store(1 - me, Ordering::Release);
                futex_wake(&turn);
            }
            Ok(start.elapsed())
        })
    });
    let took = first.join().map_err(|_| Failure("a measuring thread broke".to_owned()))?;
    let _ = second.join();
    let took = took.map_err(|error| Failure::of("cannot bind a thread to a core", error))?;
    Ok(per_handoff_ns(took, 2 * (rounds - rounds / 10)))
}

fn futex_wait(word: &AtomicU32, value: u32) {
    let no_timeout = std::ptr::null::<libc::timespec>();
    // SAFETY: `word` is a live, aligned u32 for the whole call; the kernel only reads it, and a
    // spurious return is allowed: the caller looks again.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
            value,
            no_timeout,
        );
    }
}

fn futex_wake(word: &AtomicU32) {
    // SAFETY: the kernel uses the address only to find waiters; it neither reads nor writes there.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
            1,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_three_ways_hand_the_turn_on() {
        run(&Options { handoffs: 200, rounds: 1 }).expect("measured");
    }
}
