//! The arguments of `skein base`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::parse_name;

/// Arguments of `skein base`.
#[derive(Args, Clone, Debug)]
pub struct BaseArgs {
    /// The task.
    #[command(subcommand)]
    pub task: BaseTask,
}

/// A task about the pinned files of a replica.
#[derive(Clone, Debug, Subcommand)]
pub enum BaseTask {
    /// Show what is pinned: path, kind, size, and the digest of contents or the target of a link (exit: 0 shown, 2 cannot tell)
    Ls(BaseListArgs),
    /// Show what is pinned and what the host has by now, where that differs (exit: 0 nothing differs, 1 something does, 2 cannot tell)
    Diff(BaseListArgs),
}

/// Arguments of both tasks.
#[derive(Args, Clone, Debug)]
pub struct BaseListArgs {
    /// The cluster; may be left out when exactly one runs
    #[arg(long, value_parser = parse_name)]
    pub name: Option<String>,
    /// The data directory of a cluster or of a node, running or not
    #[arg(long, value_name = "DIR", conflicts_with = "name")]
    pub data: Option<PathBuf>,
    /// This replica's [default: the first one of this machine that has a base]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub replica: Option<u64>,
    /// As a JSON list
    #[arg(long)]
    pub json: bool,
}
