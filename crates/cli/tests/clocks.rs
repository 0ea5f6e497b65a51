//! Wrong wall clocks, while a server sleeps and reads the time.

mod common;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use common::cluster::{Cluster, free_port};
use common::own::{Lines, compiled};
use common::preloaded::Preloaded;
use common::{PATIENCE, Place, wait_for};
use nix::sys::signal::Signal;
use serde_json::Value;

const YEAR_S: i64 = 365 * 24 * 3600;
/// Further deviation of a reading: a server's clock is ahead of the leader's by some milliseconds.
const READING: f64 = 0.02;

struct Sleeper {
    cluster: Cluster,
    clocks: Preloaded,
    server: PathBuf,
}

/// A reading of the server, and the two moments around it.
#[derive(Clone, Copy, Debug)]
struct Reading {
    ticks: u64,
    /// Seconds.
    time: f64,
    asked: Instant,
    answered: Instant,
}

impl Sleeper {
    #[track_caller]
    fn start() -> Self {
        let place = Place::new();
        let server = compiled(&place, "sleeper.c");
        let clocks = Preloaded::new(&place);
        let port = free_port();
        let mut command = Self::command(&place, &clocks, port, &server);
        let cluster = Cluster::spawn(place, port, &mut command);
        cluster.wait_ready();
        Self { cluster, clocks, server }
    }

    fn command(place: &Place, clocks: &Preloaded, port: u16, server: &PathBuf) -> Command {
        let mut command = place.skein_with_runtime();
        command.args(["run", "--name", "t", "--data", &place.data(), "--"]);
        command.arg(server).arg(port.to_string());
        clocks.attach(&mut command);
        command
    }

    fn node(&self, id: u64) -> i32 {
        let (status, _) = self.cluster.status();
        Cluster::replica(&status, id)["node_pid"].as_i64().unwrap() as i32
    }

    fn leader(&self) -> u64 {
        let leader = || self.cluster.status().0["leader"].as_u64();
        wait_for("a leader", leader)
    }

    #[track_caller]
    fn read(&self) -> Reading {
        wait_for("an answer", || {
            let asked = Instant::now();
            let mut lines = Lines::connect(self.cluster.port, Duration::from_secs(5)).ok()?;
            let answer = lines.ask("now").ok()?;
            let mut numbers = answer.split(' ').map(|word| word.parse::<u64>().unwrap());
            let (ticks, time) = (numbers.next()?, numbers.next()? as f64 / 1e9);
            Some(Reading { ticks, time, asked, answered: Instant::now() })
        })
    }

    /// The server sleeps and wakes up, and its clock runs within its bounds. No leader changes meanwhile.
    #[track_caller]
    fn goes_on(&self, what: &str) -> Reading {
        let first = self.read();
        let limit = Instant::now() + PATIENCE;
        loop {
            let now = self.read();
            let least = (now.asked - first.answered).as_secs_f64();
            let most = (now.answered - first.asked).as_secs_f64();
            let moved = now.time - first.time;
            assert!(moved > 0.95 * least - READING, "{what}: {moved} s passed in {least} s");
            assert!(moved < 1.05 * most + READING, "{what}: {moved} s passed in {most} s");
            if now.ticks >= first.ticks + 15 {
                return now;
            }
            assert!(Instant::now() < limit, "{what}: the server sleeps on: {first:?}, {now:?}");
        }
    }

    /// Waits until a replica's row in `skein status --json` is as `wanted`.
    #[track_caller]
    fn wait_row(&self, what: &str, id: u64, wanted: impl Fn(&Value) -> bool) {
        wait_for(what, || {
            let (status, _) = self.cluster.status();
            status["replicas"].is_array().then_some(())?;
            wanted(Cluster::replica(&status, id)).then_some(())
        });
    }

    #[track_caller]
    fn wait_off(&self, id: u64, seconds: i64) {
        self.wait_row("the clock to be named", id, |row| {
            let ms = row["clock_offset_ms"].as_i64().unwrap_or_default();
            (ms - seconds * 1000).abs() < 60_000 && (ms == 0) == (seconds == 0)
        });
    }

    /// Hands leadership over until this replica has it.
    #[track_caller]
    fn lead(&self, id: u64) {
        wait_for("it to lead", || {
            let leader = self.leader();
            if leader == id {
                let row = self.cluster.status().1;
                return matches!(row, Some(0 | 1)).then_some(());
            }
            let socket = self.cluster.place.path(&format!("run/t/node-{leader}.sock"));
            let mut admin = UnixStream::connect(socket).ok()?;
            admin.write_all(format!("POST /transfer/{id} HTTP/1.0\r\n\r\n").as_bytes()).ok()?;
            let _ = admin.read_to_end(&mut Vec::new());
            std::thread::sleep(Duration::from_millis(100));
            None
        });
    }
}

#[test]
fn a_wrong_clock_neither_stops_the_server_nor_makes_it_jump() {
    let sleeper = Sleeper::start();
    let (node, set) = (|id| sleeper.node(id), |pid, off| sleeper.clocks.set_clock(pid, off));
    let leader = sleeper.leader();
    let other = leader % 3 + 1;
    sleeper.goes_on("all is well");
    // The leader's clock is wrong, then right again.
    for off in [YEAR_S, -YEAR_S] {
        set(node(leader), off);
        sleeper.goes_on("the leader's clock is a year off");
        sleeper.wait_off(leader, off);
        sleeper.goes_on("and everybody knows");
        set(node(leader), 0);
        sleeper.wait_off(leader, 0);
        sleeper.goes_on("it is right again");
    }
    sleeper.clocks.step_each_second(node(leader), Duration::from_secs(3));
    sleeper.goes_on("the leader's clock steps each second");
    set(node(leader), 0);
    // A replica with a wrong clock leads.
    for off in [YEAR_S, -YEAR_S] {
        let before = sleeper.read();
        set(node(other), off);
        sleeper.wait_off(other, off);
        sleeper.lead(other);
        let after = sleeper.goes_on("a leader's clock is a year off");
        let (passed, most) =
            (after.time - before.time, (after.answered - before.asked).as_secs_f64());
        assert!(passed > 0.0 && passed < 1.05 * most + 1.0, "{passed} s passed in {most} s");
        sleeper.lead(leader);
        sleeper.goes_on("the other one leads again");
        set(node(other), 0);
        sleeper.wait_off(other, 0);
    }
    sleeper.cluster.signal(Signal::SIGTERM);
}

#[test]
fn when_all_clocks_are_set_virtual_time_follows_at_the_next_term() {
    let mut sleeper = Sleeper::start();
    let set_all = |sleeper: &Sleeper, off| {
        (1..=3).for_each(|id| sleeper.clocks.set_clock(sleeper.node(id), off))
    };
    let leader = sleeper.leader();
    let before = sleeper.goes_on("all is well");
    set_all(&sleeper, YEAR_S);
    sleeper.wait_row("to be told that virtual time is behind", leader, |row| {
        row["time_behind_ms"].as_i64().is_some_and(|ms| ms > (YEAR_S - 3600) * 1000)
    });
    let later = sleeper.goes_on("all clocks are set a year forward");
    assert!(later.time - before.time < 3600.0, "a step of a clock is no step of virtual time");
    let text = sleeper.cluster.place.run(&["status", "--name", "t"]).stdout;
    let text = String::from_utf8_lossy(&text).into_owned();
    assert!(text.contains("s behind the replicas' clocks: it goes 5 % faster"), "{text}");
    sleeper.lead(leader % 3 + 1);
    let present = sleeper.goes_on("another one leads");
    assert!(present.time - later.time > (YEAR_S - 3600) as f64, "{later:?}, {present:?}");
    // Time never goes back: not under a new leader, nor after a start with other clocks on an old log.
    set_all(&sleeper, 0);
    sleeper.lead(leader);
    assert!(sleeper.goes_on("all are set back").time > present.time);
    sleeper.cluster.signal(Signal::SIGTERM);
    sleeper.cluster.wait_end();
    let place = std::mem::replace(&mut sleeper.cluster.place, Place::new());
    let port = sleeper.cluster.port;
    let mut command = Sleeper::command(&place, &sleeper.clocks, port, &sleeper.server);
    sleeper.cluster = Cluster::spawn(place, port, &mut command);
    sleeper.cluster.wait_ready();
    assert!(sleeper.goes_on("after a restart with right clocks").time > present.time);
    sleeper.cluster.signal(Signal::SIGTERM);
}

#[test]
fn a_server_that_looks_at_its_clock_all_the_time_sees_it_keep_pace() {
    let sleeper = Sleeper::start();
    let mut lines = Lines::connect(sleeper.cluster.port, PATIENCE).unwrap();
    let first = sleeper.read();
    for _ in 0..100 {
        lines.ask("look").unwrap();
    }
    let last = sleeper.read();
    let (passed, most) = (last.time - first.time, (last.answered - first.asked).as_secs_f64());
    println!("{passed:.3} s of its own in {most:.3} s");
    assert!(passed < 1.05 * most + READING, "{passed} s passed in {most} s");
    sleeper.cluster.signal(Signal::SIGTERM);
}
