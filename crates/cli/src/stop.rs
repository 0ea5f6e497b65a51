//! `skein stop`: asks the process that runs a cluster to stop it in order, and waits until it has.
//!
//! Bounded: processes that do not stop in order are killed. 0 when the cluster has stopped, in order or not; 3 when none runs.

use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::args::StopArgs;
use crate::failure::Failure;
use crate::instance::{self, Instance};
use crate::paths;
use crate::run::STOP_LIMIT;

/// The longest time of a stop in order: followers, leader, and their remains.
const IN_ORDER: Duration = Duration::from_secs(2 * STOP_LIMIT.as_secs() + 5);
/// The longest time of the kernel to end killed processes.
const AFTER_KILL: Duration = Duration::from_secs(5);

/// Stops the cluster; answers the exit code.
pub fn stop(args: &StopArgs) -> Result<u8, Failure> {
    let instance = instance::find(args.name.as_deref()).inspect_err(|_| {
        // A killed cluster leaves its runtime directory.
        if let Some(name) = &args.name {
            instance::sweep(&paths::runtime_root().join(name));
        }
    })?;
    let name = instance.name();
    let fail = |why: String| {
        Failure::new(format!("cluster {name}"), why, format!("see process {}", instance.pid))
    };
    if instance.pid <= 1 {
        return Err(fail("it does not say which process runs it".into()));
    }
    let pid = Pid::from_raw(instance.pid);
    if let Err(errno) = kill(pid, Signal::SIGTERM)
        && instance.runs()
    {
        return Err(fail(format!("it cannot be told to stop: {}", errno.desc())));
    }
    // A cluster whose `run` was itself stopped (SIGSTOP) hears no other signal.
    let _ = kill(pid, Signal::SIGCONT);
    if ended(&instance, IN_ORDER) {
        println!("skein: {name}: stopped{}", elsewhere(&instance));
        return Ok(0);
    }
    // The nodes go with it: the kernel kills them when their parent dies.
    let _ = kill(pid, Signal::SIGKILL);
    if !ended(&instance, AFTER_KILL) {
        return Err(fail("it was killed and still runs".into()));
    }
    instance::sweep(&instance.dir);
    let rest = elsewhere(&instance);
    println!("skein: {name}: killed, it did not stop within {} s{rest}", IN_ORDER.as_secs());
    Ok(0)
}

/// The cluster's processes on other machines, for the end of a line.
fn elsewhere(instance: &Instance) -> String {
    let Some(state) = &instance.state else { return String::new() };
    match state.replicas.saturating_sub(state.nodes.len()) {
        0 => String::new(),
        1 => " on this machine; 1 more replica is on another: stop it there".into(),
        more => format!(" on this machine; {more} more replicas are on others: stop them there"),
    }
}

fn ended(instance: &Instance, limit: Duration) -> bool {
    let limit = Instant::now() + limit;
    while instance.runs() {
        if Instant::now() > limit {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    true
}
