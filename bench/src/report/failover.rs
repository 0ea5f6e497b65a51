//! The cost of a failover under full load: a table.

use super::text::{table, wide};
use crate::about;
use crate::failover::{self, Failovers};
use crate::servers::Server;
use skein_testkit::Outcome;

/// The section of `docs/performance.md`; empty without measurements.
pub fn section() -> Outcome<String> {
    let stored: Option<Failovers> = about::read(&failover::stored())?;
    Ok(stored.map(|found| text(&found)).unwrap_or_default())
}

fn text(found: &Failovers) -> String {
    let about = &found.about;
    let head = ["", "kills", "behind, ms", "an answer before, ms", "outage, ms"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for server in Server::ALL {
        let kills = found.kills.iter().filter(|kill| kill.server == *server).count();
        if kills > 0 {
            rows.push(vec![
                server.name().to_owned(),
                kills.to_string(),
                wide(found.spread(*server, |kill| kill.behind_ms), 0),
                wide(found.spread(*server, |kill| kill.before_ms), 1),
                wide(found.spread(*server, |kill| kill.outage_ms), 1),
            ]);
        }
    }
    format!(
        "## Failover under full load\n\n\
         `{}`, {} at commit {}: three replicas with fsync and the crowd of each server's own table; clients that lose their connections come\n\
         back at once. *Behind*: how far the server of the follower that is closest was behind the leader's right before `kill -9` of the leader's node (`lag_ms`).\n\
         *An answer before*: how long a new connection waited for its first answer. *Outage*: the same, from the kill on. It is at most\n\
         what the followers may be behind (`max_lag_ms`, 1 s) and an election, and a server's own time to answer.\n\n{}\n",
        about.command,
        about.day(),
        about.commit,
        table(&rows),
    )
}
