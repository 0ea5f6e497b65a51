//! The arguments of `skein checkpoint`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{RunArgs, parse_name};

/// Arguments of `skein checkpoint`.
#[derive(Args, Clone, Debug)]
pub struct CheckpointArgs {
    /// The task.
    #[command(subcommand)]
    pub task: CheckpointTask,
}

/// A task about images of the server.
#[derive(Clone, Debug, Subcommand)]
pub enum CheckpointTask {
    /// Take an image of the server now: on a follower, whose server stands for a moment; clients do not wait for that
    Create(CreateArgs),
    /// Show the images of the replicas on this machine
    Ls(LsArgs),
    /// Remove an image; refused where a replica could not start without it
    Rm(RmArgs),
    /// Read all images completely (exit: 0 all are whole, 1 some are not, 2 cannot tell, 3 not running)
    Verify(LsArgs),
    /// Take an image that has all that was acknowledged, and copy it into a new file, with which a cluster begins: 'skein checkpoint import FILE'
    Export(ExportArgs),
    /// Begin a new cluster with the file of an export, on this host: its server goes on from there. As 'skein run --import FILE', with the same options
    Import(Box<ImportArgs>),
}

/// Arguments of `skein checkpoint create`.
#[derive(Args, Clone, Debug)]
pub struct CreateArgs {
    /// The replica that takes it [default: a follower]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub replica: Option<u64>,
    /// The cluster; may be left out when exactly one runs
    #[arg(long, value_parser = parse_name)]
    pub name: Option<String>,
    /// Machine-readable
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `skein checkpoint ls` and `skein checkpoint verify`.
#[derive(Args, Clone, Debug)]
pub struct LsArgs {
    /// The cluster; may be left out when exactly one runs
    #[arg(long, value_parser = parse_name)]
    pub name: Option<String>,
    /// Machine-readable
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `skein checkpoint rm`.
#[derive(Args, Clone, Debug)]
pub struct RmArgs {
    /// The image's entry, as `skein checkpoint ls` shows it
    #[arg(value_name = "ENTRY", value_parser = clap::value_parser!(u64).range(1..))]
    pub entry: u64,
    /// Only the one of this replica [default: all replicas of this machine]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub replica: Option<u64>,
    /// The cluster; may be left out when exactly one runs
    #[arg(long, value_parser = parse_name)]
    pub name: Option<String>,
}

/// Arguments of `skein checkpoint import`.
#[derive(Args, Clone, Debug)]
#[command(mut_arg("import", |arg| arg.hide(true)))]
pub struct ImportArgs {
    /// What 'skein checkpoint export' wrote
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// How the cluster runs.
    #[command(flatten)]
    pub run: RunArgs,
}

/// Arguments of `skein checkpoint export`.
#[derive(Args, Clone, Debug)]
pub struct ExportArgs {
    /// The file to be made
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Take none: copy the newest that there is and that counts, which lacks what came later; for a host that is cut off, or has passive replicas only
    #[arg(long)]
    pub kept: bool,
    /// The replica whose image it is [default: a follower; with --kept the one with the newest]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub replica: Option<u64>,
    /// The cluster; may be left out when exactly one runs
    #[arg(long, value_parser = parse_name)]
    pub name: Option<String>,
}
