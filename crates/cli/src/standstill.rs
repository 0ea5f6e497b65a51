//! Holds all servers of a cluster at one entry while they are compared.
//!
//! A server that has timers never rests for long, and one that has got an entry may still be at work. So all are held for a moment, go on to one
//! entry, and stand there. If that fails (a node does not answer, a replica is far behind), it is tried again until patience ends.

use std::thread;
use std::time::{Duration, Instant};

use crate::admin::{AdminError, Asked};
use crate::instance::NodeFiles;
use skein_node::NodeStatus;
use skein_node::status::MemberReport;

/// The longest time of a node to answer that it holds its server.
const LIMIT_TO_HOLD: Duration = Duration::from_secs(3);
/// How long replicas that cannot be compared are asked again.
const PATIENCE: Duration = Duration::from_secs(10);
/// The pause between two questions.
const PAUSE: Duration = Duration::from_millis(100);

/// A node's answer, or the reason for none.
pub type Answer<T> = Result<T, String>;

/// The nodes whose replicas have a server, or may have one: not those of a witness, nor of a passive replica that does not lead.
///
/// Those of other hosts are among them: a node of this host that answers knows the members.
pub fn with_servers(here: &[NodeFiles]) -> Vec<Asked> {
    by_servers(here).0
}

/// The same, and the others that vote.
pub fn by_servers(here: &[NodeFiles]) -> (Vec<Asked>, Vec<Asked>) {
    let mut nodes: Vec<Asked> = here.iter().map(Asked::here).collect();
    let told = ask_all(&nodes, |node| node.status(LIMIT_TO_HOLD));
    let elsewhere = elsewhere(here, &told).into_iter();
    nodes.extend(elsewhere.filter(|(member, _)| member.votes).map(|(_, node)| node));
    nodes.sort_by_key(|node| node.id);
    let told = ask_all(&nodes, |node| node.status(LIMIT_TO_HOLD));
    let has_none = |told: &Answer<NodeStatus>| {
        told.as_ref().is_ok_and(|status| status.replica.has_no_server())
    };
    let all = nodes.into_iter().zip(told);
    let (others, with): (Vec<_>, Vec<_>) = all.partition(|(_, told)| has_none(told));
    let looked = |(mut node, told): (Asked, Answer<NodeStatus>)| {
        node.has_trees = told.is_ok_and(|status| status.has_trees);
        node
    };
    (with.into_iter().map(looked).collect(), others.into_iter().map(|(node, _)| node).collect())
}

/// The members on other hosts, and their nodes, if a node of this host has `told` of them.
pub fn elsewhere(here: &[NodeFiles], told: &[Answer<NodeStatus>]) -> Vec<(MemberReport, Asked)> {
    let knows = |(_, told): &(&NodeFiles, &Answer<NodeStatus>)| {
        told.as_ref().is_ok_and(|status| !status.members.is_empty())
    };
    let Some((node, Ok(status))) = here.iter().zip(told).find(knows) else { return Vec::new() };
    let is_elsewhere = |member: &&MemberReport| here.iter().all(|node| node.id != member.id);
    let members = status.members.iter().filter(is_elsewhere);
    members.map(|member| (member.clone(), Asked::through(node, member.id))).collect()
}

/// Tries `compare` until its result is not `unclear`, or patience ends.
pub fn patiently<T>(mut compare: impl FnMut() -> T, unclear: impl Fn(&T) -> bool) -> T {
    let begun = Instant::now();
    loop {
        let result = compare();
        if !unclear(&result) || begun.elapsed() > PATIENCE {
            return result;
        }
        thread::sleep(PAUSE);
    }
}

/// Holds all servers and asks each, by `ask`, for its data at the entry of the foremost server.
pub fn at_one_entry<T: Send>(
    nodes: &[Asked],
    ask: impl Fn(&Asked, u64) -> Result<T, AdminError> + Sync,
) -> Vec<Answer<T>> {
    let held = ask_all(nodes, |node| {
        let index = node.post("/hold", LIMIT_TO_HOLD)?;
        let index = String::from_utf8_lossy(&index).trim().parse::<u64>();
        index.map_err(|error| AdminError::Wrong(error.to_string()))
    });
    let foremost = held.iter().flatten().max();
    if let Some(foremost) = foremost.filter(|_| held.iter().all(Result::is_ok)) {
        return ask_all(nodes, |node| ask(node, *foremost));
    }
    // Servers that were held must not wait for the others.
    go_on(nodes);
    let other = || "its server was not compared: another replica gave no answer".into();
    held.into_iter().map(|answer| answer.and_then(|_| Err(other()))).collect()
}

/// Lets all servers go on.
pub fn go_on(nodes: &[Asked]) {
    ask_all(nodes, |node| node.post("/go-on", LIMIT_TO_HOLD));
}

/// Asks all nodes at the same time.
pub fn ask_all<T: Send>(
    nodes: &[Asked],
    ask: impl Fn(&Asked) -> Result<T, AdminError> + Sync,
) -> Vec<Answer<T>> {
    let ask = |node| ask(node).map_err(|error| error.to_string());
    thread::scope(|scope| {
        let ask = &ask;
        let asked: Vec<_> = nodes.iter().map(|node| scope.spawn(move || ask(node))).collect();
        let lost = |_| Err("the question was lost".into());
        asked.into_iter().map(|answer| answer.join().unwrap_or_else(lost)).collect()
    })
}

/// A line for a reader: what a replica `has` at an entry, or why that is unknown.
pub fn line(replica: u64, index: Option<u64>, problem: Option<&str>, has: &str) -> String {
    match index {
        Some(index) => format!("replica {replica}  entry {index}  {has}\n"),
        None => format!("replica {replica}  {}\n", problem.unwrap_or_default()),
    }
}

/// The verdict of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// All are equal.
    Agree,
    /// They differed, and are equal now.
    Repaired,
    /// They differ.
    Differ,
    /// Unknown for now.
    Incomparable,
}

impl Verdict {
    /// The exit code.
    pub const fn code(self) -> u8 {
        match self {
            Self::Agree | Self::Repaired => 0,
            Self::Differ => 1,
            Self::Incomparable => 2,
        }
    }
}
