//! The `skein` command: `run`, `found`, `node`, `rejoin`, `join`, `members`, `check`, `replay`, `status`, `files`, `verify`, `checkpoint`, `base`, `logs`, `signal`, `upgrade`, `stop`.
//!
//! Owns the tasks of a whole cluster on one machine: names, directories, published sockets, the node processes. The
//! work of one replica is in `skein-node`. Start at [`args`] for the options, and at the module of a command's name for its
//! work. A crash of `skein run` takes its nodes with it (the kernel kills them), never their logs.

mod admin;
mod allocator;
mod args;
mod base;
mod check;
mod checkpoint;
mod cluster;
mod config;
mod end;
mod export;
mod failure;
mod files;
mod images;
mod instance;
mod logs;
mod members;
mod node;
mod operations;
mod output;
mod paths;
mod publish;
mod rejoin;
mod replay;
mod run;
mod signal;
mod signals;
mod standstill;
mod status;
mod stop;
mod upgrade;
mod verify;
mod words;

use std::ffi::OsString;
use std::process::ExitCode;

use args::Command;
use failure::{EXIT_USAGE, Failure};

fn main() -> ExitCode {
    allocator::bound();
    let words: Vec<OsString> = std::env::args_os().collect();
    ExitCode::from(dispatch(&words))
}

fn dispatch(words: &[OsString]) -> u8 {
    let cli = match args::parse(words) {
        Ok(cli) => cli,
        Err((text, 0)) => {
            print!("{text}");
            return 0;
        }
        Err((text, code)) => {
            eprintln!("{text}");
            return code;
        }
    };
    let result = match &cli.command {
        Command::Run(args) => Ok(run::run(args, words, 2)),
        Command::Found(args) => rejoin::found(args),
        Command::Node(args) => node::node(args),
        Command::Rejoin(args) => rejoin::rejoin(args),
        Command::Join(args) => rejoin::join(args),
        Command::Members(args) => members::members(args),
        Command::Check(args) => check::check(args),
        Command::Replay(args) => replay::replay(args),
        Command::Status(args) => status::status(args),
        Command::Files(args) => files::files(args),
        Command::Verify(args) => verify::verify(args),
        Command::Checkpoint(args) => checkpoint::checkpoint(args, words),
        Command::Base(args) => base::base(args),
        Command::Logs(args) => logs::logs(args),
        Command::Signal(args) => signal::signal(args),
        Command::Upgrade(args) => upgrade::upgrade(args),
        Command::Stop(args) => stop::stop(args),
    };
    result.unwrap_or_else(|failure: Failure| {
        eprintln!("{failure}");
        failure.code.unwrap_or(EXIT_USAGE)
    })
}
