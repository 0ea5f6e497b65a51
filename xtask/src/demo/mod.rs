//! The demonstration: a leader dies under load and no acknowledged write is lost.
//!
//! Runs `skein run` with three replicas of redis-server, writes, kills the leader's node with
//! SIGKILL while a client keeps writing, reads everything back and prints the time without
//! acknowledged writes. Every claim that it prints is checked; a claim that fails ends it with 1.
//!
//! Invariants: it needs no input, ends by itself (every wait has a deadline) and leaves nothing:
//! data lie in a temporary directory, and before it says so it looks for the processes it saw.
//! Threads: the story is told by the main thread; one thread writes, one passes on what `skein
//! run` prints. A crash of the demonstration itself can leave the cluster: `skein stop` ends it.

mod writer;

use std::net::SocketAddr;
use std::path::Path;
use std::time::Instant;

use nix::sys::signal::{Signal, kill};

use self::writer::{Acknowledged, Writer};
use crate::interrupt::Interrupt;
use skein_testkit::cluster::status::Status;
use skein_testkit::cluster::{Cluster, Server};
use skein_testkit::resp::Redis;
use skein_testkit::{Failure, Outcome};

/// Keys written before anything goes wrong.
const KEYS_BEFORE: u64 = 1_000;

/// Acknowledged writes to wait for after the kill, and again under the new leader.
const KEYS_AFTER: u64 = 500;

/// Options.
#[derive(clap::Args)]
pub struct Options {
    /// How many replicas: odd, from 3
    #[arg(long, default_value_t = 3)]
    replicas: u64,
}

/// Runs the whole demonstration; an error is a claim that did not hold.
pub fn run(options: &Options) -> Outcome {
    if options.replicas < 3 || options.replicas.is_multiple_of(2) {
        return Err(Failure(format!(
            "--replicas {}: a majority must outlive the leader, use an odd number from 3",
            options.replicas
        )));
    }
    let interrupt = Interrupt::catch()?;
    let service = free_address()?;
    let port = service.port().to_string();
    let command = ["redis-server", "--port", &port, "--save", ""].map(str::to_owned);
    say(&format!("skein run --replicas {} -- {}", options.replicas, quoted(&command)));
    let server = Server { options: &[], command: &command };
    let mut cluster = Cluster::start("demo", options.replicas, Path::new("."), &server)?;
    let told = tell(&interrupt, &mut cluster, service);
    let stopped = cluster.stop();
    told?;
    stopped?;
    say("stopped; no process of it and no data are left. That was all.");
    Ok(())
}

fn tell(interrupt: &Interrupt, cluster: &mut Cluster, service: SocketAddr) -> Outcome {
    let start = Instant::now();
    let status = interrupt.wait("the service to be ready", || cluster.healthy())?;
    say(&format!("ready after {} ms, one address for all: {service}", start.elapsed().as_millis()));
    show(&status);

    say(&format!("writing {KEYS_BEFORE} keys"));
    let mut writer = Writer::start(service);
    await_writes(interrupt, cluster, &writer, KEYS_BEFORE)?;
    let leader = status.leader()?;
    say(&format!(
        "kill -9 {}: the node of replica {}, the leader, while the client goes on writing",
        leader.node_pid, leader.id
    ));
    let killed = Instant::now();
    kill(leader.pid()?, Signal::SIGKILL)
        .map_err(|error| Failure::of("cannot kill the leader", error))?;
    // First only the client's own answers: asking for the status would take time from the failover.
    await_writes(interrupt, cluster, &writer, writer.acknowledged() + KEYS_AFTER)?;
    let next = interrupt.wait("another leader", || cluster.led_by_other_than(leader.id))?;
    await_writes(interrupt, cluster, &writer, writer.acknowledged() + KEYS_AFTER)?;
    let acknowledged = writer.finish()?;

    let outage = acknowledged.longest_gap_after(killed);
    say(&format!("outage seen by the client: {} ms without an answer", outage.as_millis()));
    say(&format!("replica {} leads now, term {}", next.leader()?.id, next.term));
    read_back(service, &acknowledged)?;

    let whole = interrupt.wait("the killed replica to come back", || cluster.healthy())?;
    say(&format!("replica {} was restarted and has caught up from the log", leader.id));
    show(&whole);
    let digest = interrupt.wait("equal digests", || cluster.equal_digests())?;
    say(&format!("all {} replicas have sent the same bytes: digest {digest}", whole.count()));
    Ok(())
}

fn await_writes(
    interrupt: &Interrupt,
    cluster: &mut Cluster,
    writer: &Writer,
    count: u64,
) -> Outcome {
    interrupt.wait("writes to be acknowledged", || {
        cluster.check()?;
        writer.check()?;
        Ok((writer.acknowledged() >= count).then_some(()))
    })
}

fn read_back(service: SocketAddr, acknowledged: &Acknowledged) -> Outcome {
    let mut client = Redis::connect_to(service, writer::ANSWER_MAX)
        .map_err(|error| Failure::of("cannot connect to read back", error))?;
    let count = acknowledged.count();
    for number in 0..count {
        let (key, value) = writer::pair(number);
        let found = client.get(&key).map_err(|error| Failure::of("cannot read back", error))?;
        if found.as_deref() != Some(value.as_bytes()) {
            return Err(Failure(format!("acknowledged write lost: {key} is not {value}")));
        }
    }
    say(&format!("{count} of {count} acknowledged writes read back, each with its value"));
    Ok(())
}

/// A free port. Another process may take it before the cluster does: then the cluster says so.
fn free_address() -> Outcome<SocketAddr> {
    skein_testkit::free_address().map_err(|error| Failure::of("no free port on 127.0.0.1", error))
}

fn quoted(words: &[String]) -> String {
    let quote = |word: &String| if word.is_empty() { "\"\"".to_owned() } else { word.clone() };
    words.iter().map(quote).collect::<Vec<_>>().join(" ")
}

fn say(line: &str) {
    println!("demo   | {line}");
}

fn show(status: &Status) {
    for line in status.lines() {
        say(&line);
    }
}
