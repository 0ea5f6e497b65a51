//! An upgrade of the server: its base is made here, the others get it, then the log says it.

use super::{Shared, ask, ask_long, others};
use crate::base::stage::{Change, Staged};
use crate::base::{Base, fetch};
use crate::config::{Isolation, NodeConfig};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use skein_replica::majority;
use skein_replica::replica::Command;
use skein_replica::replica::upgrade::Wanted;
use skein_replica::status::NodeStatus;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The others must have the files within this time.
const STAGED_WITHIN: Duration = Duration::from_secs(120);
/// The log must take the first step within this time.
const AGREED_WITHIN: Duration = Duration::from_secs(10);

/// A request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Question {
    /// What is to be changed.
    pub change: Change,
    /// How long the servers may take to end, and the new ones to come up.
    pub wait_ms: u64,
    /// The signal that asks them to end.
    pub signal: u8,
}

/// The answer: the upgrade is under way, or there was nothing to change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Begun {
    /// The number of the edition to come, and the entry that asks the servers to end.
    pub edition: Option<(u64, u64)>,
    /// The command of the edition, or the current one.
    pub command: String,
    /// The paths that were taken over from the host.
    pub files: Vec<String>,
}

fn refuse(why: impl std::fmt::Display) -> Response {
    (StatusCode::CONFLICT, format!("{why}\n")).into_response()
}

pub(super) async fn begin(
    State(shared): State<Shared>,
    Json(question): Json<Question>,
) -> Result<Json<Begun>, Response> {
    if !(1..=64).contains(&question.signal) {
        let why = "signals are numbered from 1 to 64\n";
        return Err((StatusCode::BAD_REQUEST, why).into_response());
    }
    let base = shared.about.base.clone();
    let base = base.ok_or_else(|| refuse("this node keeps no base of its host's files"))?;
    let status = ask(&shared.mailbox, Command::Status).await?;
    let leads = status.replica.role == "leader";
    if leads && !status.serving || status.leader.is_none() {
        return Err((StatusCode::MISDIRECTED_REQUEST, "no replica serves\n").into_response());
    }
    let (about, from) = (status.replica.edition.about.clone(), status.replica.edition.number);
    let change = question.change;
    let staged = tokio::task::spawn_blocking(move || stage(&base, &about, &change, &status));
    let staged = staged.await.map_err(refuse)?.map_err(refuse)?;
    let Some(Staged { spec, files }) = staged.new else {
        return Ok(Json(Begun { edition: None, command: staged.line, files: Vec::new() }));
    };
    let (about, wait) = (spec.encode(), Duration::from_millis(question.wait_ms));
    let wanted = Wanted { about, wait, signal: question.signal, from };
    let ask = |reply| Command::Upgrade(wanted, reply);
    match ask_long(&shared.mailbox, AGREED_WITHIN, ask).await? {
        Ok((index, number)) => {
            let edition = Some((number, index));
            Ok(Json(Begun { edition, command: staged.line, files }))
        }
        Err(why) => Err(refuse(why)),
    }
}

struct Made {
    new: Option<Staged>,
    line: String,
}

/// Makes the base here, then has the others get it.
fn stage(
    base: &Arc<Base>,
    about: &str,
    change: &Change,
    status: &NodeStatus,
) -> Result<Made, String> {
    let config = base.node().ok_or("this node keeps no base of its host's files")?;
    if config.server.isolation == Isolation::None {
        return Err("its servers write into the host's files: the next one begins with them, after 'skein stop'".into());
    }
    if let Some((number, _)) = under_way(status) {
        return Err(format!("the upgrade to edition {number} is under way"));
    }
    let new = base.stage(about, change).map_err(|error| error.to_string())?;
    let line = match &new {
        Some(staged) => staged.spec.command.line(),
        None => base.command_of(about).map_err(|error| error.to_string())?.line(),
    };
    if let Some(staged) = &new {
        stage_elsewhere(config, staged, status)?;
    }
    Ok(Made { new, line })
}

fn under_way(status: &NodeStatus) -> Option<&(u64, skein_replica::editions::Outcome)> {
    use skein_replica::editions::Outcome::{Ending, Starting};
    let upgrades = &status.replica.edition.upgrades;
    upgrades.iter().find(|(_, outcome)| matches!(outcome, Ending | Starting))
}

fn stage_elsewhere(
    config: &NodeConfig,
    staged: &Staged,
    status: &NodeStatus,
) -> Result<(), String> {
    let others = others(config, status);
    let (all, mut have) = (others.len() + 1, 1);
    let until = Instant::now() + STAGED_WITHIN;
    for (id, address) in others {
        // One that is away gets them when it is back.
        let has = fetch::stage_at(config, &address, staged.spec.base, until)
            .map_err(|why| format!("replica {id} cannot have the new files: {why}"))?;
        have += usize::from(has);
    }
    if have < majority(all) {
        return Err(format!(
            "only {have} of {all} replicas can be reached, and have the new files: start the others first"
        ));
    }
    Ok(())
}
