//! The `skein` command: `run`, `node`, `status`, `logs`, `stop`.
//!
//! Owns what concerns a whole cluster on one machine: names, directories, published sockets, the node processes. What
//! one replica does is `skein-node`'s. Start at [`args`] for what can be asked, and at the module of that name for how it
//! is done. A crash of `skein run` takes its nodes with it (the kernel kills them), never their logs.

mod admin;
mod args;
mod cluster;
mod config;
mod failure;
mod instance;
mod paths;
mod publish;

fn main() {
    let args: Vec<_> = std::env::args_os().collect();
    let _ = args::parse(&args);
}
