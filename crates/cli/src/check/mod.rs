//! `skein check`: does a program run under Skein?
//!
//! Runs it twice in its sandbox from one log ([`trial`]), with a client command ([`drive`]) if there is one, and reports the
//! result ([`judge`], [`findings`]) to a person ([`report`]) or as JSON.
//!
//! Crash: everything lives in files without names, in processes that end with this one, or in a group that a guard ends.

pub mod capture;
mod cpu;
mod drive;
mod findings;
mod judge;
mod report;
mod trial;

use std::ffi::OsStr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use skein_node::config::{Isolation, LayerPlace, ServerConfig};

use crate::args::CheckArgs;
use crate::failure::{EXIT_USAGE, Failure};
use crate::output;
use crate::run::setup;

use trial::{Bench, Fault};

/// Exit code when a signal ended the check: as a shell says Ctrl-C.
const EXIT_INTERRUPTED: u8 = 130;

/// Checks a program; answers the exit code.
pub fn check(args: &CheckArgs) -> Result<u8, Failure> {
    let (program, rest) = args.program.split_first().expect("clap requires a program");
    let server = ServerConfig {
        program: setup::text(program)?,
        args: rest
            .iter()
            .map(|word: &std::ffi::OsString| setup::text(OsStr::new(word)))
            .collect::<Result<_, _>>()?,
        env: setup::server_env(&args.env, args.interface.as_deref()),
        cwd: std::env::current_dir().map_err(|error| {
            Failure::new("working directory", error, "change to a directory that exists")
        })?,
        output: None,
        isolation: Isolation::default(),
        layer: LayerPlace::default(),
    };
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, interrupted.clone())
            .map_err(|error| Failure::new("watch for signals", error, ""))?;
    }
    let bench = Bench { args, server, interrupted };
    let findings = match bench.run() {
        Ok(trial) => judge::judge(args, &trial),
        Err(Fault::Program(reason)) => judge::not_started(args, reason),
        Err(Fault::Node(error)) => {
            return Err(Failure::new("check", error, "").with_code(EXIT_USAGE));
        }
        Err(Fault::Interrupted) => {
            let why = "it was interrupted";
            return Err(Failure::new("check", why, "").with_code(EXIT_INTERRUPTED));
        }
    };
    let text = match args.json {
        true => output::json(&findings),
        false => report::report(&findings, args.verbose),
    };
    output::print(&text);
    Ok(findings.exit_code)
}
