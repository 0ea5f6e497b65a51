//! The nodes' settings that have defaults, as `skein run` was told: by options of their own, or by `--set`.

use serde::de::DeserializeOwned;
use skein_node::config::{CheckpointConfig, ConfigError, LogFiles, Tuning};

use crate::args::{RunArgs, Setting};
use crate::failure::Failure;

/// What sections of a node's configuration have.
pub struct Settings {
    pub checkpoint: CheckpointConfig,
    pub logs: LogFiles,
    pub tuning: Tuning,
}

impl Settings {
    /// As these arguments say.
    pub fn of(args: &RunArgs) -> Result<Self, Failure> {
        let settings = Self {
            checkpoint: section(&args.set, "checkpoint")?,
            logs: section(&args.set, "logs")?,
            tuning: tuning(args)?,
        };
        let checked = settings.checkpoint.check().and_then(|()| settings.tuning.check());
        let checked = checked.and_then(|()| settings.logs.check());
        checked.and_then(|()| in_range(&settings.tuning)).map_err(|ConfigError { key, why }| {
            Failure::new(format!("--set {key}"), why, "docs/skein.toml explains every key")
        })?;
        Ok(settings)
    }
}

/// What options of their own would refuse, `--set` does, too.
fn in_range(tuning: &Tuning) -> Result<(), ConfigError> {
    let bounded = [
        ("tuning.quantum", tuning.quantum.into()),
        ("tuning.nclock", tuning.nclock.into()),
        ("tuning.wtimeout_us", tuning.wtimeout_us),
    ];
    match bounded.into_iter().find(|(_, value)| !(1..=1_000_000).contains(value)) {
        Some((key, _)) => Err(ConfigError { key, why: "must be from 1 to 1000000".into() }),
        None => Ok(()),
    }
}

fn section<T: DeserializeOwned>(set: &[Setting], name: &str) -> Result<T, Failure> {
    let mut table = toml::Table::new();
    for Setting { key, value, .. } in set.iter().filter(|one| one.section == name) {
        table.insert(key.clone(), value.clone());
    }
    table.try_into().map_err(|error: toml::de::Error| {
        Failure::new(
            format!("--set {name}"),
            error.message(),
            format!("docs/skein.toml explains every key of [{name}]"),
        )
    })
}

fn tuning(args: &RunArgs) -> Result<Tuning, Failure> {
    let given = &args.tuning;
    let mut tuning: Tuning = section(&args.set, "tuning")?;
    if let Some(ms) = given.election_timeout_ms {
        tuning.election_timeout_ms = ms;
        let is_set = |one: &Setting| one.section == "tuning" && one.key == "heartbeat_ms";
        if !args.set.iter().any(is_set) {
            tuning.heartbeat_ms = tuning.heartbeat_ms.min(ms / 5);
        }
    }
    if let Some(us) = given.wtimeout_us {
        tuning.wtimeout_us = us;
    }
    if let Some(operations) = given.quantum {
        tuning.quantum = operations;
    }
    if let Some(turns) = given.nclock {
        tuning.nclock = turns;
    }
    if let Some(mib) = given.arena_mib {
        tuning.arena_heap_bytes = (mib as usize) << 20;
    }
    if let Some(connections) = given.max_connections {
        tuning.max_connections = connections as usize;
    }
    if let Some(entries) = given.max_in_flight_entries {
        tuning.max_in_flight_entries = entries as usize;
    }
    Ok(tuning)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use clap::Parser;

    fn of(options: &[&str]) -> Result<Settings, Failure> {
        let words = ["skein", "run"].iter().chain(options).chain(&["--", "x"]);
        let Command::Run(args) = Cli::try_parse_from(words).unwrap().command else {
            unreachable!()
        };
        Settings::of(&args)
    }

    #[test]
    fn what_is_set_counts_and_an_option_of_its_own_counts_more() {
        let set =
            ["--set", "checkpoint.keep=3", "--set", "tuning.nclock=7", "--set", "tuning.quantum=9"];
        let settings = of(&[&set[..], &["--nclock", "8"]].concat()).unwrap();
        assert_eq!(
            settings.checkpoint,
            CheckpointConfig { keep: 3, ..CheckpointConfig::default() }
        );
        assert_eq!(settings.tuning, Tuning { nclock: 8, quantum: 9, ..Tuning::default() });
        assert_eq!(settings.logs, LogFiles::default());
    }

    #[test]
    fn what_fits_nothing_is_named_before_anything_is_touched() {
        for set in
            ["checkpoint.keep=0", "tuning.nclock=0", "tuning.quantum=2000000", "logs.file_bytes=1"]
        {
            let error = of(&["--set", set]).err().unwrap().to_string();
            assert!(error.contains("--set ") && error.contains("must be"), "{error}");
        }
        let beats = ["--set", "tuning.heartbeat_ms=100", "--election-timeout-ms", "300"];
        assert_eq!(of(&beats).unwrap().tuning.heartbeat_ms, 100);
        assert!(of(&["--set", "tuning.heartbeat_ms=100"]).is_err(), "an election comes too early");
    }

    #[test]
    fn what_is_no_key_or_no_value_of_its_kind_is_named() {
        for (set, why) in [
            ("checkpoint.kept=3", "unknown field `kept`"),
            ("checkpoint.keep=true", "invalid type: boolean"),
            ("tuning.nclock=-1", "invalid value: integer `-1`"),
        ] {
            let error = of(&["--set", set]).err().unwrap().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
