//! How long a client is without an answer when the leader is killed.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};

use super::servers::{Server, redis};
use super::target::Cluster;
use super::wire::{Client, free_address};
use skein_testkit::{Failure, Outcome};

/// Acknowledged writes before a kill.
const WRITES_BEFORE: u32 = 200;

/// Between two tries of the client.
const RETRY_AFTER: Duration = Duration::from_millis(1);

/// The client gives up a try after this long, and connects again.
const ANSWER_MAX: Duration = Duration::from_millis(50);

/// After this long the service counts as lost.
const OUTAGE_MAX: Duration = Duration::from_secs(20);

/// Kills the leader of three durable replicas of redis `kills` times; each outage in milliseconds.
///
/// Each is the time from the last acknowledgement on the old connection to the first on a new one.
pub fn measure(kills: u32, until: Instant) -> Outcome<Vec<f64>> {
    of(&Cluster::start(Server::Redis, free_address()?, 3, "fsync")?, kills, until)
}

/// The same on a running cluster.
pub fn of(cluster: &Cluster, kills: u32, until: Instant) -> Outcome<Vec<f64>> {
    let mut outages_ms = Vec::new();
    for _ in 0..kills {
        if Instant::now() > until {
            break;
        }
        // Every replica is back, so that each kill finds the cluster in the same state.
        let leader = cluster.whole()?.leader()?.pid()?;
        let outage = one(cluster.service, || {
            kill(leader, Signal::SIGKILL)
                .map_err(|error| Failure::of("cannot kill the leader", error))
        })?;
        outages_ms.push(outage.as_secs_f64() * 1e3);
    }
    Ok(outages_ms)
}

fn one(service: SocketAddr, mut kill: impl FnMut() -> Outcome) -> Outcome<Duration> {
    let mut client = None;
    let mut last = write_until_answered(service, &mut client, Instant::now())?;
    for _ in 0..WRITES_BEFORE {
        last = write_until_answered(service, &mut client, last)?;
    }
    kill()?;
    // Answers may still be on their way: the outage begins when the connection breaks.
    while let Some(connected) = &mut client {
        match connected.exchange(&redis::set(1)) {
            Ok(()) => last = Instant::now(),
            Err(_) => client = None,
        }
    }
    Ok(write_until_answered(service, &mut client, last)?.duration_since(last))
}

/// Writes until a write is acknowledged, on new connections if need be; answers the time of the acknowledgement.
fn write_until_answered(
    service: SocketAddr,
    client: &mut Option<Client>,
    since: Instant,
) -> Outcome<Instant> {
    loop {
        let connected = match client {
            Some(connected) => Ok(connected),
            None => Client::connect(service, ANSWER_MAX).map(|new| client.insert(new)),
        };
        match connected.and_then(|connected| connected.exchange(&redis::set(1))) {
            Ok(()) => return Ok(Instant::now()),
            Err(error) if since.elapsed() > OUTAGE_MAX => {
                return Err(Failure::of("no answer for 20 s after the kill", error));
            }
            Err(_) => {
                *client = None;
                std::thread::sleep(RETRY_AFTER);
            }
        }
    }
}
