//! Where the time goes: a table of parts for each sampled server.

use std::collections::BTreeSet;

use super::text::{number, table};
use crate::about;
use crate::profile::{self, Profile, Profiles};
use crate::servers::Server;
use skein_testkit::Outcome;

/// The section of `docs/performance.md`; empty without measurements.
pub fn section() -> Outcome<String> {
    let stored: Option<Profiles> = about::read(&profile::stored())?;
    Ok(stored.map(|profiles| text(&profiles)).unwrap_or_default())
}

fn text(profiles: &Profiles) -> String {
    let about = &profiles.about;
    let mut text = format!(
        "## Where the leader's time goes\n\n\
         `{}`, {} at commit {}: SET by 50 connections; microseconds of CPU time a request on its way, by where samples of\n\
         `cpu-clock` found the leader's node and its server. The kernel's part is that of the system call; what a packet does on\n\
         the other side of loopback counts for the sender.\n\n",
        about.command,
        about.day(),
        about.commit,
    );
    for server in Server::ALL {
        let own: Vec<&Profile> =
            profiles.profiles.iter().filter(|at| at.server == *server).collect();
        if own.is_empty() {
            continue;
        }
        let mut head = vec![server.name().to_owned()];
        head.extend(own.iter().map(|profile| profile.target.name().to_owned()));
        let mut rows = vec![head];
        let parts: BTreeSet<&str> =
            own.iter().flat_map(|profile| profile.parts.keys().map(String::as_str)).collect();
        for part in parts {
            let mut row = vec![part.to_owned()];
            row.extend(own.iter().map(|profile| number(profile.part_us(part), 2)));
            rows.push(row);
        }
        let mut sum = vec!["together".to_owned()];
        sum.extend(own.iter().map(|profile| number(profile.cpu_us, 2)));
        rows.push(sum);
        text.push_str(&table(&rows));
        text.push('\n');
    }
    text
}
