//! The arguments of `skein members` and `skein join`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use skein_node::config::{Address, Kind};

use super::parse_name;

/// Arguments of `skein join`.
#[derive(Args, Debug)]
pub struct JoinArgs {
    /// The node's configuration (see docs/skein.toml): its own id and address in `peers`, with those of members
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
}

/// Arguments of `skein members`.
#[derive(Args, Clone, Debug)]
pub struct MembersArgs {
    /// The task [default: ls].
    #[command(subcommand)]
    pub task: Option<MembersTask>,
    /// Where and how long.
    #[command(flatten)]
    pub how: HowArgs,
}

/// Options of all tasks.
#[derive(Args, Clone, Debug)]
pub struct HowArgs {
    /// The cluster; may be left out when exactly one runs
    #[arg(long, global = true, value_parser = parse_name)]
    pub name: Option<String>,
    /// Machine-readable
    #[arg(long, global = true)]
    pub json: bool,
    /// How long a change may get on no further; a replica of which nothing more has come by then is withdrawn again [s]
    #[arg(long, global = true, value_name = "S", default_value_t = 300,
          value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub timeout: u64,
}

/// A task about the members.
#[derive(Clone, Debug, Subcommand)]
pub enum MembersTask {
    /// Show the members, and the cluster's id
    Ls,
    /// Take a replica in: 'skein join' and 'skein node' on its host first, or within the time limit
    Add {
        /// The replica and where its node listens for the others
        #[arg(value_name = "ID=ADDRESS", value_parser = parse_place)]
        place: (u64, Address),
        /// What it does: active (runs a server), passive (runs one only while it leads) or witness (only votes)
        #[arg(long, value_name = "KIND", default_value_t = Kind::Active)]
        kind: Kind,
    },
    /// Take a replica out: its node ends
    Remove {
        /// The replica
        #[arg(value_name = "ID", value_parser = clap::value_parser!(u64).range(1..=65535))]
        id: u64,
    },
    /// Take a replica in instead of another, whose host or disk is lost or is to go
    Replace {
        /// The replica to go
        #[arg(value_name = "OLD", value_parser = clap::value_parser!(u64).range(1..=65535))]
        old: u64,
        /// The replica to come, with an id of its own, and where its node listens for the others
        #[arg(value_name = "NEW=ADDRESS", value_parser = parse_place)]
        place: (u64, Address),
        /// What it does: active, passive or witness [default: as OLD]
        #[arg(long, value_name = "KIND")]
        kind: Option<Kind>,
    },
    /// Make a replica lead
    Transfer {
        /// The replica
        #[arg(value_name = "ID", value_parser = clap::value_parser!(u64).range(1..=65535))]
        id: u64,
    },
}

/// `4=10.0.0.4:7100`, or the path of a unix socket behind the sign.
fn parse_place(text: &str) -> Result<(u64, Address), String> {
    let (id, address) =
        text.split_once('=').ok_or("must be ID=ADDRESS:PORT, as 4=10.0.0.4:7100")?;
    let id = id.parse().ok().filter(|id| (1..=65535).contains(id));
    let id = id.ok_or("the id before '=' is from 1 to 65535")?;
    Ok((id, address.parse().map_err(str::to_owned)?))
}
