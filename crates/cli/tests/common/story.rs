//! The common story of each server's test: many clients ask at once, the leader dies meanwhile, the clients connect again and continue, all
//! replicas reach one digest, and every acknowledged request is found.

use std::collections::HashSet;
use std::io;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::cluster::{Cluster, wait_for_or};
use super::real::{Real, at_once};

/// A client leaves a connection that does not answer for this long, and asks on another one: the outcome of its request is unknown.
pub const PATIENCE_OF_A_CLIENT: Duration = Duration::from_secs(3);

/// A client's memory of its requests.
#[derive(Default)]
pub struct Books {
    /// Acknowledged.
    pub kept: Vec<String>,
    /// Not acknowledged: it may have happened.
    pub doubtful: Vec<String>,
}

impl Books {
    /// Asserts that `found` has every acknowledged word once, and no word of anybody else.
    #[track_caller]
    pub fn assert_found(&self, found: &[String]) {
        let mut sorted: Vec<&str> = found.iter().map(String::as_str).collect();
        sorted.sort_unstable();
        let twice = sorted.windows(2).find(|pair| pair[0] == pair[1]);
        assert_eq!(twice, None, "is there twice");
        for key in &self.kept {
            assert!(sorted.binary_search(&key.as_str()).is_ok(), "{key} was acknowledged, is lost");
        }
        let known: HashSet<&String> = self.kept.iter().chain(&self.doubtful).collect();
        for key in found {
            assert!(known.contains(key), "nobody asked for {key}");
        }
    }
}

/// Clients that ask while `blow` happens: `connect` makes a client, `ask` makes one request with a word of its own in it and
/// answers `Ok` only when it was acknowledged; it panics when the answer is wrong. The blow falls after `wanted` answers, the
/// clients end after `wanted` more.
#[track_caller]
pub fn under_load<C>(
    real: &Real,
    clients: usize,
    wanted: u64,
    connect: impl Fn() -> io::Result<C> + Sync,
    ask: impl Fn(&mut C, &str) -> io::Result<()> + Sync,
    blow: impl FnOnce(),
) -> Books {
    let (ended, answers) = (AtomicBool::new(false), AtomicU64::new(0));
    let began = Instant::now();
    let work = |me: usize| {
        let mut books = Books::default();
        let mut client = None;
        while !ended.load(Ordering::Relaxed) {
            let Some(connected) = &mut client else {
                client = connect().ok();
                if client.is_none() {
                    // Refused: like real clients, not at once again.
                    std::thread::sleep(Duration::from_millis(5));
                }
                continue;
            };
            let key = format!("{me}-{}", books.kept.len() + books.doubtful.len());
            if ask(connected, &key).is_ok() {
                books.kept.push(key);
                answers.fetch_add(1, Ordering::Relaxed);
            } else {
                books.doubtful.push(key);
                client = None;
            }
        }
        books
    };
    let all = std::thread::scope(|scope| {
        let all = scope.spawn(|| at_once(clients, work));
        // Also ends the clients when this fails.
        let end = End(&ended);
        let wait_more = || {
            let until = answers.load(Ordering::Relaxed) + wanted;
            wait_for_or(
                &format!("{wanted} answers under load"),
                || real.cluster.evidence(),
                || {
                    let enough = answers.load(Ordering::Relaxed) >= until;
                    (enough || all.is_finished()).then_some(())
                },
            );
        };
        wait_more();
        blow();
        wait_more();
        drop(end);
        all.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    let mut books = Books::default();
    for one in all {
        books.kept.extend(one.kept);
        books.doubtful.extend(one.doubtful);
    }
    println!(
        "{} answers, {} in doubt, in {:.1} s",
        books.kept.len(),
        books.doubtful.len(),
        began.elapsed().as_secs_f64()
    );
    books
}

struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// `kill -9` of the leader's node.
#[track_caller]
pub fn kill_leader(real: &Real) {
    let status = real.cluster.wait_status(0);
    let (id, pid) = Cluster::leader(&status);
    println!("node {id}, the leader, is killed");
    kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
}

/// [`under_load`] while the leader is killed; afterwards all replicas, the killed one, too, have one digest.
#[track_caller]
pub fn leader_dies_under_load<C>(
    real: &Real,
    clients: usize,
    wanted: u64,
    connect: impl Fn() -> io::Result<C> + Sync,
    ask: impl Fn(&mut C, &str) -> io::Result<()> + Sync,
) -> Books {
    let books = under_load(real, clients, wanted, connect, ask, || kill_leader(real));
    let (index, digest) = real.wait_agreed();
    println!("all replicas have digest {digest} at {index}");
    books
}

/// Runs a server's usual client to its end; answers what it printed. It must succeed within a minute.
#[track_caller]
pub fn tool(program: &str, args: &[&str]) -> String {
    let (text, code) = tool_with_code(program, args);
    assert_eq!(code, Some(0), "{program} {args:?}:\n{text}");
    text
}

/// [`tool`] for one that also ends with other codes.
#[track_caller]
pub fn tool_with_code(program: &str, args: &[&str]) -> (String, Option<i32>) {
    let mut command = Command::new("timeout");
    command.args(["-k", "5", "60", program]).args(args);
    command.env("LC_ALL", "C.UTF-8").stdin(Stdio::null());
    let output = command.output().unwrap();
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    assert_ne!(output.status.code(), Some(127), "{program} is missing; run scripts/setup.sh test");
    (text, output.status.code())
}
