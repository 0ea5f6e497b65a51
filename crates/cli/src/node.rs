//! `skein node`: one replica in this process, as its configuration file says.
//!
//! Started by a user (or a service manager) it claims the cluster's name on this host, so that `status`, `logs` and `stop`
//! find it. Started by `skein run` (`--end FILE`) it leaves that to its parent, and writes the reason of its end into that file.
//!
//! Threads: the main thread becomes the node's reactor; one thread waits for signals and asks it to end.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use skein_node::config::LogFiles;
use skein_node::rolling::Rolling;
use skein_node::server::program::ProgramLauncher;
use skein_node::{ExitReason, Node, NodeConfig, NodeError};

use crate::args::{self, NodeArgs};
use crate::config;
use crate::end::End;
use crate::failure::{EXIT_SKEIN, EXIT_USAGE, Failure};
use crate::instance::{Claim, NodeFiles, State};

/// Runs the replica; answers the exit code.
pub fn node(args: &NodeArgs) -> Result<u8, Failure> {
    // The directory will hold the cluster's key and clients' bytes.
    skein_sandbox::hide_memory();
    let mut config = config::read(&args.config)?;
    config.corrupt_digest_at = corruption(config.id);
    args::parse_name(&config.name)
        .map_err(|why| config::refuse(&args.config, "name", &format!("name: {why}")))?;
    let claim = match args.end {
        Some(_) => None,
        None => Some(claim(&config)?),
    };
    start_log(config.log_file.as_ref(), config.logs)?;
    let name = config.name.clone();
    let end = match run(config) {
        Ok(ExitReason::Stopped) => End::Stopped,
        Ok(reason @ ExitReason::Removed) => End::Removed { code: reason.code() },
        Ok(reason @ ExitReason::ServerEnded { index, status }) => {
            End::Server { code: reason.code(), how: format!("{} after entry {index}", how(status)) }
        }
        Err(error) => End::Failed { line: error.to_string(), code: error.exit_code() },
    };
    drop(claim);
    if let Some(path) = &args.end {
        end.write(path);
    }
    match end {
        End::Stopped => Ok(0),
        End::Server { code, how } => {
            tracing::info!(event = "ended", how);
            Ok(code)
        }
        End::Removed { code } => {
            let why = "an operator removed this replica from the cluster";
            let fix = "'skein join' in an empty data directory lets it come back";
            Err(Failure::new(format!("node {name}"), why, fix).with_code(code))
        }
        End::Failed { line, code } => {
            tracing::error!(event = "failed", error = line);
            let code = if code == EXIT_SKEIN { EXIT_USAGE } else { code };
            Err(Failure::new(format!("node {name}"), line, "").with_code(code))
        }
    }
}

fn run(config: NodeConfig) -> Result<ExitReason, NodeError> {
    let launcher = ProgramLauncher::of_node(&config)?;
    let node = Node::new(config, Arc::new(launcher))?;
    let mailbox = node.mailbox();
    let watch = || -> io::Result<()> {
        let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP])?;
        std::thread::Builder::new().name("signals".into()).spawn(move || {
            for _ in signals.forever() {
                mailbox.stop();
            }
        })?;
        Ok(())
    };
    watch().map_err(|error| NodeError::System { what: "watch for signals", error })?;
    node.serve()
}

/// Takes the cluster's name on this host and publishes this replica's addresses.
fn claim(config: &NodeConfig) -> Result<Claim, Failure> {
    let claim = Claim::take(&config.name)?;
    let address = config.listen_address().map(|address| address.to_string());
    claim.announce(&State {
        name: config.name.clone(),
        pid: std::process::id() as i32,
        mode: config.mode.name().into(),
        schedule: "serial".into(),
        replicas: config.peers.len(),
        nodes: vec![NodeFiles {
            id: config.id,
            address: address.unwrap_or_default(),
            admin: absolute(config.admin_path()),
            log: config.log_file.clone().map(absolute).unwrap_or_default(),
            output: absolute(config.output_path()),
            data: absolute(config.data_dir.clone()),
        }],
    })?;
    Ok(claim)
}

/// For tests of a divergence: `SKEIN_TEST_CORRUPT_DIGEST_AT=REPLICA:INDEX` makes that replica's digest wrong.
pub fn corruption(id: u64) -> Option<u64> {
    let wanted = std::env::var("SKEIN_TEST_CORRUPT_DIGEST_AT").ok()?;
    let (replica, index) = wanted.split_once(':')?;
    (replica.parse() == Ok(id)).then(|| index.parse().ok()).flatten()
}

fn absolute(path: PathBuf) -> PathBuf {
    std::path::absolute(&path).unwrap_or(path)
}

/// Events as JSON lines with the time (UTC); `SKEIN_LOG` sets the lowest level, default `info`.
fn start_log(file: Option<&PathBuf>, bounds: LogFiles) -> Result<(), Failure> {
    let filter = tracing_subscriber::EnvFilter::try_from_env("SKEIN_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    // A line that does not fit on a full disk is lost, and nothing else.
    let lines = tracing_subscriber::fmt().json().flatten_event(true).log_internal_errors(false);
    let lines = lines.with_env_filter(filter);
    match file {
        None => lines.with_writer(io::stderr).init(),
        Some(path) => {
            let file = Rolling::open(path, bounds).map_err(|error| {
                Failure::new(format!("log_file {}", path.display()), error, "choose another place")
            })?;
            lines.with_writer(Mutex::new(file)).init();
        }
    }
    Ok(())
}

/// A wait status in words.
fn how(status: i32) -> String {
    match status & 0x7f {
        0 => format!("exit status {}", status >> 8 & 0xff),
        number => match nix::sys::signal::Signal::try_from(number) {
            Ok(signal) => format!("killed by {}", signal.as_str()),
            Err(_) => format!("killed by signal {number}"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::how;

    #[test]
    fn wait_statuses_in_words() {
        assert_eq!(how(3 << 8), "exit status 3");
        assert_eq!(how(11), "killed by SIGSEGV");
        assert_eq!(how(6 | 0x80), "killed by SIGABRT");
    }
}
