//! `skein signal`: sends a signal to the server through the log, so that every replica gets it at the same point.
//!
//! Asks the leader, or a node here that passes it on, and returns when that one's server has executed the entry. If the leader is lost meanwhile, the signal may or may not have
//! arrived: the command says so and does not try again, because a signal that is sent twice may do its work twice.

use std::time::{Duration, Instant};

use crate::admin::{self, AdminError};
use crate::args::SignalArgs;
use crate::failure::Failure;
use crate::instance::{self, NodeFiles, State};
use crate::run::poll;
use crate::status::state_of;

/// How long a node may take to answer.
const LIMIT: Duration = Duration::from_secs(2);
/// How long to look for a leader, and then for its server to get the signal.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(10);

/// Sends the signal; answers the exit code.
pub fn signal(args: &SignalArgs) -> Result<u8, Failure> {
    let instance = instance::find(args.name.as_deref())?;
    let state = state_of(&instance)?;
    let fail = |why: String, fix: &str| Failure::new(format!("cluster {}", state.name), why, fix);
    let limit = Instant::now() + PATIENCE;
    let (node, term, index) = loop {
        if let Some((node, term)) = asked(&state) {
            match admin::post(&node.admin, &format!("/signal/{}", args.signal), LIMIT) {
                Ok(index) => {
                    let index: u64 = String::from_utf8_lossy(&index).trim().parse().unwrap_or(0);
                    break (node, term, index);
                }
                // It leads no more, or does not serve yet: the signal was not sent.
                Err(AdminError::Refused(_) | AdminError::Wrong(_) | AdminError::Absent(_)) => {}
                Err(error @ (AdminError::Silent | AdminError::Ended)) => {
                    let why = format!(
                        "replica {}: {error}: the signal may have been sent or not",
                        node.id
                    );
                    return Err(fail(why, "look at the server before you send it again"));
                }
            }
        }
        if Instant::now() > limit {
            return Err(fail("no leader serves".into(), "see 'skein status'"));
        }
        std::thread::sleep(PAUSE);
    };
    let limit = Instant::now() + PATIENCE;
    loop {
        let status = poll::status(&node.admin, LIMIT);
        if let Some(status) = &status
            && status.term == term
            && status.replica.applied_index >= index
        {
            return Ok(0);
        }
        let lost = status.is_some_and(|status| status.term != term);
        if lost || Instant::now() > limit {
            return Err(fail(
                format!(
                    "the leader that replica {} knew was lost: the signal may have been sent or not",
                    node.id
                ),
                "look at the server before you send it again",
            ));
        }
        std::thread::sleep(PAUSE);
    }
}

/// Whom to ask, and its term: the node here that leads; where the leader is on another machine, one that knows it.
pub(crate) fn asked(state: &State) -> Option<(&NodeFiles, u64)> {
    let known = state.nodes.iter().filter_map(|node| {
        let status = poll::status(&node.admin, LIMIT)?;
        let leads = status.replica.role == "leader";
        status.leader.is_some().then_some((leads, node, status.term))
    });
    let (leads, node, term) = known.max_by_key(|(leads, ..)| *leads)?;
    (leads || state.nodes.len() < state.replicas).then_some((node, term))
}
