//! The arguments of `skein upgrade`.

use std::ffi::OsString;

use clap::Args;

use super::{check_env_name, parse_env, parse_name};

/// Arguments of `skein upgrade`.
#[derive(Args, Clone, Debug)]
pub struct UpgradeArgs {
    /// The cluster; may be left out when exactly one runs
    #[arg(long, value_parser = parse_name)]
    pub name: Option<String>,
    /// Set a variable of the server's environment, or remove it (NAME alone); may be given again. The others stay as they are
    #[arg(long, value_name = "NAME[=VALUE]", value_parser = parse_variable)]
    pub env: Vec<(String, Option<String>)>,
    /// Take over what this host has by now in place of the files that the server has used: configuration, libraries, the program
    /// ('skein base diff' lists them). The other replicas get these files from here
    #[arg(long)]
    pub files: bool,
    /// Run the servers with this host's Skein (its libskein.so) from now on: after a new version was installed on all hosts. Part of --files
    #[arg(long)]
    pub skein: bool,
    /// How the servers are asked to end, by name or number
    #[arg(long, value_name = "SIGNAL", default_value = "TERM", value_parser = crate::signals::parse)]
    pub signal: u8,
    /// How many seconds the servers may take to end, and the new ones to listen where they did
    #[arg(long, value_name = "SECONDS", default_value_t = 60,
          value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub wait: u64,
    /// The result as JSON
    #[arg(long)]
    pub json: bool,
    /// New arguments for the same program, in place of all old ones: everything that follows
    #[arg(long, value_name = "ARG", num_args = 0.., allow_hyphen_values = true,
          conflicts_with = "program")]
    pub args: Option<Vec<OsString>>,
    /// Another program with its arguments, after `--`
    #[arg(value_name = "PROGRAM", last = true)]
    pub program: Vec<OsString>,
}

/// A variable, and its value, if it is to have one.
fn parse_variable(text: &str) -> Result<(String, Option<String>), String> {
    if text.contains('=') {
        return parse_env(text).map(|(name, value)| (name, Some(value)));
    }
    check_env_name(text)?;
    Ok((text.to_owned(), None))
}
