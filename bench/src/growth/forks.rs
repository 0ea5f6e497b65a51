//! Images of a leader whose server writes so much meanwhile that it forks, by the data's size.
//!
//! What is written between the last look at the running server and its standstill is more than it stands for (decisions 38 and 44).

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use nix::errno::Errno;
use nix::libc;
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, fork};

use super::images::{
    ANSWER_MAX, NEW, PAGES, STOOD, TOOK, Taken, filled, follower, keys, medians, taken,
};
use super::{Figure, Recorder, Topic, curve};
use crate::servers::redis;
use crate::stats::Spread;
use crate::target::await_some;
use crate::wire::Client;
use skein_testkit::{Failure, Outcome};

pub const TOPIC: Topic = Topic {
    name: "forks",
    title: "Images by fork",
    x: "MiB of data",
    figures: &[STOOD, STOOD_MAX, ALONE, FORKED, PAGES, TOOK, NEW],
    measure,
    reading: "Fsync, one replica; `skein checkpoint create` while eight clients write to one value of each page, 512 pages a request, one page after the other. What the server has yet to execute\n\
         before it stands is more than it stands for (1,024 pages), so it forks. Of five images by fork, behind the first two: medians, and the most.\n\
         Beside it what the kernel takes for a fork of a process with as much memory in single pages, and nothing else to do: without Skein, the median of five.",
};

const STOOD_MAX: Figure = Figure { key: "stood_max_ms", label: "most", digits: 1, plotted: false };
const ALONE: Figure = Figure {
    key: "fork_ms",
    label: "ms for the fork of as much memory, without Skein",
    digits: 1,
    plotted: false,
};
const FORKED: Figure =
    Figure { key: "forked", label: "of the images by fork, %", digits: 0, plotted: false };

const SERVER: redis::Redis = redis::Redis { more: &["--enable-debug-command", "yes"] };
const MIB: [u64; 3] = [64, 256, 512];
const FIRST_IMAGES: usize = 2;
/// So many by fork are wanted,
const IMAGES: usize = 5;
/// of so many at most.
const IMAGES_MAX: usize = 20;
const VALUES_IN_A_PAGE: u64 = 4;
/// The server has always to write to about so many times as many pages before it can stand.
const CLIENTS: u64 = 8;
/// Pages that a request writes to.
const PAGES_AT_ONCE: u64 = 512;
const MIB_BYTES: usize = 1 << 20;
const PAGE_BYTES: usize = 4 << 10;
/// Requests until the load is under way.
const UNDER_WAY: u64 = 20;

fn measure(recorder: &mut Recorder) -> Outcome {
    for size in MIB {
        let point = || one(size);
        if !recorder.point(&curve("redis", "1 replica, written meanwhile"), size as f64, point) {
            break;
        }
    }
    Ok(())
}

fn one(size: u64) -> Outcome<Vec<(&'static str, f64)>> {
    let (cluster, _client) = filled(&SERVER, 1, size)?;
    let replica = follower(&cluster)?;
    let (mut forked, mut others) = (Vec::new(), 0);
    let load = Load {
        service: cluster.service,
        values: keys(size),
        ended: AtomicBool::new(false),
        answered: AtomicU64::new(0),
    };
    std::thread::scope(|scope| {
        let load = &load;
        let clients = (0..CLIENTS).map(|number| scope.spawn(move || load.write(number)));
        let clients: Vec<_> = clients.collect();
        let images = load.is_under_way().and_then(|()| {
            for number in 0..FIRST_IMAGES + IMAGES_MAX {
                let taken = taken(&cluster, replica, &mut || Ok(()))?;
                match taken.forked {
                    _ if number < FIRST_IMAGES => {}
                    true => forked.push(taken),
                    false => others += 1,
                }
                if forked.len() >= IMAGES {
                    break;
                }
            }
            Ok(())
        });
        load.ended.store(true, Ordering::Relaxed);
        let clients = clients
            .into_iter()
            .map(|client| client.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        clients.collect::<Outcome<Vec<()>>>().and(images)
    })?;
    if forked.len() < IMAGES {
        let say = format!("of {IMAGES_MAX} images {} are by fork", forked.len());
        return Err(Failure(say));
    }
    let most = forked.iter().map(|taken: &Taken| taken.stood_ms).fold(0.0, f64::max);
    let all = forked.len() + others;
    let mut values = medians(&forked);
    values.extend([(STOOD_MAX.key, most), (FORKED.key, 100.0 * forked.len() as f64 / all as f64)]);
    values.push((ALONE.key, alone(size)?));
    Ok(values)
}

/// Milliseconds that a fork takes by itself: of this process, with so many MiB more, in single pages.
fn alone(mib: u64) -> Outcome<f64> {
    let bytes = mib as usize * MIB_BYTES;
    let mut memory: Vec<u8> = Vec::with_capacity(bytes);
    let begin = memory.as_mut_ptr().map_addr(|at| at.next_multiple_of(PAGE_BYTES));
    // SAFETY: this changes no content. The first page may begin before the memory, and is left out, and so is the last one.
    let single = unsafe { libc::madvise(begin.cast(), bytes - PAGE_BYTES, libc::MADV_NOHUGEPAGE) };
    Errno::result(single).map_err(|error| Failure::of("memory in single pages", error))?;
    memory.resize(bytes, 1);
    let times: Outcome<Vec<f64>> = (0..IMAGES).map(|_| forked()).collect();
    drop(memory);
    Ok(Spread::of(times?).map_or(0.0, |spread| spread.median))
}

/// Milliseconds until this process has forked.
fn forked() -> Outcome<f64> {
    let begun = Instant::now();
    // SAFETY: the child calls nothing but `_exit`.
    match unsafe { fork() }.map_err(|error| Failure::of("a fork", error))? {
        // SAFETY: it ends the child without running anything of it.
        ForkResult::Child => unsafe { libc::_exit(0) },
        ForkResult::Parent { child } => {
            let took = begun.elapsed();
            waitpid(child, None).map_err(|error| Failure::of("the child of a fork", error))?;
            Ok(took.as_secs_f64() * 1e3)
        }
    }
}

/// Clients that write to one value of each page, again and again.
struct Load {
    service: SocketAddr,
    values: u64,
    ended: AtomicBool,
    answered: AtomicU64,
}

impl Load {
    fn is_under_way(&self) -> Outcome {
        await_some("the load", || {
            let begun = self.answered.load(Ordering::Relaxed) >= UNDER_WAY;
            Ok((begun || self.ended.load(Ordering::Relaxed)).then_some(()))
        })
    }

    fn write(&self, number: u64) -> Outcome {
        let written = self.write_until_ended(number);
        self.ended.store(true, Ordering::Relaxed);
        written.map_err(|error| Failure::of("redis' client", error))
    }

    /// Each begins elsewhere.
    fn write_until_ended(&self, number: u64) -> io::Result<()> {
        let script = "for i=0,ARGV[2]-1 do local n=(ARGV[1]+i*ARGV[3])%ARGV[4] \
                      redis.call('SETRANGE','filled:'..string.format('%d',n),0,ARGV[5]) end return 1";
        let mut client = Client::connect(self.service, ANSWER_MAX)?;
        let mut from = self.values / CLIENTS * number;
        let fixed = [PAGES_AT_ONCE, VALUES_IN_A_PAGE, self.values].map(|value| value.to_string());
        let [pages, apart, values] = fixed.each_ref().map(String::as_str);
        while !self.ended.load(Ordering::Relaxed) {
            let round = self.answered.fetch_add(1, Ordering::Relaxed).to_string();
            let begin = from.to_string();
            let words = ["EVAL", script, "0", &begin, pages, apart, values, &round];
            client.exchange(&redis::command(&words, ":1"))?;
            from = (from + PAGES_AT_ONCE * VALUES_IN_A_PAGE) % self.values;
        }
        Ok(())
    }
}
