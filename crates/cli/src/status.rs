//! `skein status`: asks every node of the cluster and joins the answers. Those of other hosts are asked through one of this host, which knows the members.
//!
//! Exit codes: 0 all replicas run, nothing ails them, and a leader serves; 1 a majority does; 2 no leader, or no majority; 3 no such cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::Serialize;
use skein_node::edition::Spec;
use skein_node::status::TrappedPlace;
use skein_node::{NodeStatus, ReplicaState, ReplicaStatus};
use skein_replica::health::Fault;
use skein_replica::majority;
use skein_replica::status::LevelStatus;

use crate::admin::Asked;
use crate::args::StatusArgs;
use crate::failure::{EXIT_USAGE, Failure};
use crate::instance::{self, Instance, NodeFiles, State};
use crate::output;
use crate::standstill;

/// How long a node may take to answer before it counts as down.
const LIMIT: Duration = Duration::from_secs(1);

/// Virtual time that is less than 1 s off is not worth a line.
const TIME_OFF_MS: i64 = 1000;

/// All is well.
const HEALTHY: u8 = 0;
/// It serves, but not with all replicas, or one has a fault.
const DEGRADED: u8 = 1;
/// It does not serve.
const NO_QUORUM: u8 = 2;

/// A cluster's state, as `--json` prints it.
#[derive(Debug, Serialize)]
pub struct ClusterStatus {
    name: String,
    mode: String,
    schedule: String,
    service: Vec<String>,
    leader: Option<u64>,
    term: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    levels: Option<LevelStatus>,
    replicas: Vec<ReplicaStatus>,
    /// Those of other hosts.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    elsewhere: BTreeSet<u64>,
}

/// What is known of a replica's node.
#[derive(Debug)]
struct Told {
    id: u64,
    address: String,
    is_here: bool,
    /// What it says itself, or why it says nothing.
    answer: Result<NodeStatus, String>,
}

/// Prints the state; answers the exit code.
pub fn status(args: &StatusArgs) -> Result<u8, Failure> {
    let instance = instance::find(args.name.as_deref())?;
    let state = state_of(&instance)?;
    let told = ask_all(&state.nodes, args.here);
    let of = replicas(&state, &told);
    let (cluster, code) = join(&state, told);
    let text = if args.json {
        output::json(&cluster)
    } else {
        let calls = if args.calls { calls(&cluster) } else { String::new() };
        table(&cluster, of, code) + &calls
    };
    output::print(&text);
    Ok(code)
}

/// The description of a running cluster.
pub fn state_of(instance: &Instance) -> Result<State, Failure> {
    instance.state.clone().ok_or_else(|| {
        Failure::new(
            format!("cluster {}", instance.name()),
            "it is just being started",
            "ask again in a moment",
        )
        .with_code(EXIT_USAGE)
    })
}

/// Asks all nodes; those of this host alone if that `is_enough`.
fn ask_all(here: &[NodeFiles], is_enough: bool) -> Vec<Told> {
    let ask = |nodes: &[Asked]| standstill::ask_all(nodes, |node| node.status(LIMIT));
    let own: Vec<Asked> = here.iter().map(Asked::here).collect();
    let answers = ask(&own);
    let others = if is_enough { Vec::new() } else { standstill::elsewhere(here, &answers) };
    let (members, nodes): (Vec<_>, Vec<_>) = others.into_iter().unzip();
    let told = |is_here| {
        move |((id, address), answer): ((u64, String), _)| Told { id, address, is_here, answer }
    };
    let own = here.iter().map(|node| (node.id, node.address.clone()));
    let others = members.into_iter().map(|member| (member.id, member.address));
    let others = others.zip(ask(&nodes)).map(told(false));
    let mut all: Vec<Told> = own.zip(answers).map(told(true)).chain(others).collect();
    all.sort_by_key(|told| told.id);
    all
}

/// So many replicas has the cluster, as its log says, or at first its configuration.
fn replicas(state: &State, told: &[Told]) -> usize {
    let statuses = told.iter().flat_map(|told| &told.answer);
    let known = statuses.max_by_key(|status| status.replica.commit_index);
    match known.map_or(0, |status| status.members.len()) {
        0 => state.replicas,
        known => known,
    }
}

fn join(state: &State, told: Vec<Told>) -> (ClusterStatus, u8) {
    let all = || told.iter().flat_map(|told| &told.answer);
    let here = || told.iter().filter(|told| told.is_here).flat_map(|told| &told.answer);
    let leads = |status: &&NodeStatus| status.replica.role == "leader";
    let leader = all().filter(leads).max_by_key(|status| status.term);
    // Nobody may have asked it: then others know it by its id.
    let known = all().max_by_key(|status| status.term);
    let leader_id = match leader {
        Some(leader) => Some(leader.replica.id),
        None => known
            .and_then(|status| status.leader)
            .filter(|id| told.iter().all(|told| told.id != *id || !told.is_here)),
    };
    let nodes = state.nodes.len();
    let all_here = nodes == replicas(state, &told);
    let well = |told: &Told| {
        let status = told.answer.as_ref().ok();
        status.is_some_and(|s| s.replica.state.is_well() && s.replica.faults.is_empty())
    };
    let code = if leader_id.is_none() || (all_here && here().count() < majority(nodes)) {
        NO_QUORUM
    } else if told.iter().all(well) {
        HEALTHY
    } else {
        DEGRADED
    };
    let best_here = here().max_by_key(|status| (leads(status), status.term));
    let cluster = ClusterStatus {
        name: state.name.clone(),
        mode: state.mode.clone(),
        schedule: state.schedule.clone(),
        service: best_here.map(|status| status.service.clone()).unwrap_or_default(),
        leader: leader_id,
        term: known.map_or(0, |status| status.term),
        levels: leader.and_then(|status| status.levels.clone()),
        elsewhere: told.iter().filter(|told| !told.is_here).map(|told| told.id).collect(),
        replicas: told.into_iter().map(Told::replica).collect(),
    };
    (cluster, code)
}

impl Told {
    fn replica(self) -> ReplicaStatus {
        let (state, faults) = match self.answer {
            Ok(status) => return status.replica,
            Err(_) if self.is_here => (ReplicaState::Down, Vec::new()),
            // It may well run.
            Err(why) => (ReplicaState::Unreachable, vec![Fault::new("unreachable", why)]),
        };
        let (id, address, role) = (self.id, self.address, "unknown".into());
        ReplicaStatus { id, role, state, address, faults, ..ReplicaStatus::default() }
    }
}

fn table(cluster: &ClusterStatus, of: usize, code: u8) -> String {
    let health = match code {
        HEALTHY => "healthy",
        DEGRADED => "degraded",
        _ => "no quorum",
    };
    let leader = cluster.leader.map_or("none".into(), |id| format!("node {id}"));
    let service =
        if cluster.service.is_empty() { "none yet".into() } else { cluster.service.join(", ") };
    let mut text = format!(
        "{}: {health}; mode {}, schedule {}; service at {service}; leader {leader}, term {}\n\n",
        cluster.name, cluster.mode, cluster.schedule, cluster.term
    );
    let head = [
        "REPLICA", "ROLE", "STATE", "ADDRESS", "NODE", "SERVER", "TERM", "COMMIT", "APPLIED",
        "LAG", "DIGEST",
    ];
    let mut rows = vec![head.map(String::from)];
    rows.extend(cluster.replicas.iter().map(|one| row(one, cluster.elsewhere.contains(&one.id))));
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    for row in &rows {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    let ailing = cluster.replicas.iter().flat_map(|replica| {
        replica.faults.iter().map(|fault| format!("replica {}: {}\n", replica.id, fault.why))
    });
    let ailing: String = ailing.collect();
    if !ailing.is_empty() {
        text.push_str(&format!("\n{ailing}"));
    }
    text.push_str(&edition(cluster));
    text.push_str(&versions(cluster));
    text.push_str(&levels(cluster));
    text.push_str(&compared(cluster));
    text.push_str(&clocks(cluster));
    let here = cluster.replicas.len();
    if here < of {
        text.push_str(&format!("\n{} more replicas are on other hosts.\n", of - here));
    }
    text
}

/// What the servers are since an upgrade.
fn edition(cluster: &ClusterStatus) -> String {
    let newest = cluster.replicas.iter().max_by_key(|replica| replica.edition.number);
    let Some(edition) = newest.map(|replica| &replica.edition).filter(|one| one.number > 1) else {
        return String::new();
    };
    let command = match Spec::decode(&edition.about) {
        Ok(spec) => spec.command.line(),
        Err(_) => "as the cluster was founded".into(),
    };
    format!(
        "\nEdition {} of the server, since entry {}: {command}\n",
        edition.number, edition.since
    )
}

/// What a new version of Skein leaves to be done.
fn versions(cluster: &ClusterStatus) -> String {
    let known = |replica: &&ReplicaStatus| !replica.skein.is_empty();
    let mut by_version: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for replica in cluster.replicas.iter().filter(known) {
        by_version.entry(&replica.skein).or_default().push(replica.id.to_string());
    }
    if by_version.len() > 1 {
        let nodes: Vec<String> = by_version
            .iter()
            .map(|(version, ids)| format!("{version} on {}", ids.join(", ")))
            .collect();
        return format!("\nReplicas have different versions of Skein: {}.\n", nodes.join("; "));
    }
    if cluster.replicas.iter().any(|replica| replica.other_runtime) {
        return "\nThe server runs with the libskein.so of another Skein than is installed: 'skein upgrade --skein' takes that over, and restarts the server on its files.\n".into();
    }
    String::new()
}

/// Which replicas keep the others from using what a newer version can.
fn levels(cluster: &ClusterStatus) -> String {
    let Some(LevelStatus { agreed, newest, waits_for }) = &cluster.levels else {
        return String::new();
    };
    let ids: Vec<String> = waits_for.iter().map(u64::to_string).collect();
    format!(
        "\nReplicas speak to each other as an earlier Skein does (level {agreed} of {newest}), as these have an older version or are not connected: {}.\n",
        ids.join(", ")
    )
}

/// The agreement of the digests: those in the table are of different moments while there is work.
fn compared(cluster: &ClusterStatus) -> String {
    let last = cluster.replicas.iter().max_by_key(|replica| replica.compared_index);
    match last.map(|replica| (replica.compared_index, replica.compared_same)) {
        None | Some((0, _)) => String::new(),
        Some((index, true)) => format!("\nThe digests are the same up to entry {index}.\n"),
        Some((index, false)) => {
            format!("\nThe digests were not the same at entry {index}: see 'skein logs'.\n")
        }
    }
}

/// A line for virtual time while it is far from the replicas' clocks.
fn clocks(cluster: &ClusterStatus) -> String {
    let behind = cluster.replicas.iter().find_map(|replica| replica.time_behind_ms);
    let Some(behind) = behind.filter(|ms| ms.abs() >= TIME_OFF_MS) else { return String::new() };
    let (side, rate) =
        if behind > 0 { ("behind", "5 % faster") } else { ("ahead of", "5 % slower") };
    let seconds = behind.unsigned_abs() as f64 / 1e3;
    format!(
        "\nVirtual time is {seconds:.1} s {side} the replicas' clocks: it goes {rate}, until it agrees with them.\n"
    )
}

/// Calls that went around the interposed functions: through the safety net, and from patched places.
fn calls(cluster: &ClusterStatus) -> String {
    let trapped = counts(cluster, "TRAPPED CALL", |replica| &replica.trapped_calls);
    let patched = counts(cluster, "PATCHED CALL", |replica| &replica.patched_calls);
    if trapped.is_empty() && patched.is_empty() {
        return "\nNo call came through the safety net.\n".into();
    }
    trapped + &patched + &places(cluster)
}

/// Their calling places, the most frequent first, one column a replica; nothing where they are unknown.
fn places(cluster: &ClusterStatus) -> String {
    let mut known: Vec<&TrappedPlace> = Vec::new();
    for place in cluster.replicas.iter().flat_map(|replica| &replica.trapped_places) {
        match known.iter_mut().find(|other| other.place == place.place) {
            Some(other) if other.traps < place.traps => *other = place,
            Some(_) => {}
            None => known.push(place),
        }
    }
    if known.is_empty() {
        return String::new();
    }
    known.sort_by(|a, b| b.traps.cmp(&a.traps).then_with(|| a.place.cmp(&b.place)));
    let width = known.iter().map(|place| place.place.len()).max().unwrap_or(0);
    let mut text = format!("\n{:<width$}  {:<20}  {:<7}", "TRAPPED AT", "CALL", "STATE");
    for replica in &cluster.replicas {
        text.push_str(&format!("  {:>10}", format!("REPLICA {}", replica.id)));
    }
    for at in known {
        text.push_str(&format!("\n{:<width$}  {:<20}  {:<7}", at.place, at.call, at.state));
        for replica in &cluster.replicas {
            let here = replica.trapped_places.iter().find(|place| place.place == at.place);
            text.push_str(&format!("  {:>10}", here.map_or(0, |place| place.traps)));
        }
    }
    text + "\n"
}

/// One line a call, most frequent first, one column a replica; nothing where there are none.
fn counts(
    cluster: &ClusterStatus,
    head: &str,
    of: impl Fn(&ReplicaStatus) -> &BTreeMap<String, u64>,
) -> String {
    let mut names: Vec<(&String, u64)> = Vec::new();
    for (name, count) in cluster.replicas.iter().flat_map(&of) {
        match names.iter_mut().find(|(known, _)| *known == name) {
            Some((_, most)) => *most = (*most).max(*count),
            None => names.push((name, *count)),
        }
    }
    if names.is_empty() {
        return String::new();
    }
    names.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
    let mut text = format!("\n{head:<20}");
    for replica in &cluster.replicas {
        text.push_str(&format!("  {:>10}", format!("REPLICA {}", replica.id)));
    }
    for (name, _) in names {
        text.push_str(&format!("\n{name:<20}"));
        for replica in &cluster.replicas {
            text.push_str(&format!("  {:>10}", of(replica).get(name).unwrap_or(&0)));
        }
    }
    text + "\n"
}

/// Entries, and the time where it is long enough to matter.
fn lag(replica: &ReplicaStatus) -> String {
    match replica.lag_ms {
        0..100 => replica.lag_entries.to_string(),
        ms => format!("{} ({:.1} s)", replica.lag_entries, ms as f64 / 1e3),
    }
}

fn row(replica: &ReplicaStatus, is_elsewhere: bool) -> [String; 11] {
    if matches!(replica.state, ReplicaState::Down | ReplicaState::Unreachable) {
        let mut row = ["-"; 11].map(String::from);
        row[0] = replica.id.to_string();
        row[2] = replica.state.name().into();
        row[3].clone_from(&replica.address);
        return row;
    }
    // Here another process may have that number.
    let pid = |pid: u32| if pid == 0 || is_elsewhere { "-".into() } else { pid.to_string() };
    [
        replica.id.to_string(),
        replica.role.clone(),
        replica.state.name().into(),
        replica.address.clone(),
        pid(replica.node_pid),
        pid(replica.server_pid),
        replica.term.to_string(),
        replica.commit_index.to_string(),
        replica.applied_index.to_string(),
        lag(replica),
        format!("{}@{}", replica.digest, replica.digest_index),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(here: u64, replicas: usize) -> State {
        let node = |id| NodeFiles {
            id,
            address: format!("127.0.0.1:{id}"),
            admin: "".into(),
            log: "".into(),
            output: "".into(),
            data: "".into(),
        };
        State {
            name: "a".into(),
            pid: 1,
            mode: "order".into(),
            schedule: "serial".into(),
            replicas,
            nodes: (1..=here).map(node).collect(),
        }
    }

    /// What these say, as the nodes of this host.
    fn told(answers: Vec<Option<NodeStatus>>) -> Vec<Told> {
        let told = |(id, answer): (u64, Option<NodeStatus>)| Told {
            id,
            address: format!("127.0.0.1:{id}"),
            is_here: true,
            answer: answer.ok_or_else(|| "it does not answer".into()),
        };
        (1..).zip(answers).map(told).collect()
    }

    fn joined(here: u64, replicas: usize, answers: Vec<Option<NodeStatus>>) -> (ClusterStatus, u8) {
        join(&state(here, replicas), told(answers))
    }

    fn answer(id: u64, role: &str, state: ReplicaState) -> Option<NodeStatus> {
        Some(NodeStatus {
            term: 4,
            leader: Some(2),
            service: vec!["127.0.0.1:6379".into()],
            replica: ReplicaStatus { id, role: role.into(), state, ..ReplicaStatus::default() },
            ..NodeStatus::default()
        })
    }

    #[test]
    fn codes() {
        use ReplicaState::{CatchingUp, Running};
        let lead = || answer(2, "leader", Running);
        let follow = |id| answer(id, "follower", Running);
        let ailing = |id| {
            let mut ailing = follow(id)?;
            ailing.replica.faults.push(Fault::new("disk_hangs", "its disk hangs"));
            Some(ailing)
        };
        for (answers, code, leader) in [
            (vec![follow(1), lead(), follow(3)], HEALTHY, Some(2)),
            (vec![None, lead(), follow(3)], DEGRADED, Some(2)),
            (vec![ailing(1), lead(), follow(3)], DEGRADED, Some(2)),
            (vec![answer(1, "follower", CatchingUp), lead(), follow(3)], DEGRADED, Some(2)),
            (vec![None, lead(), None], NO_QUORUM, Some(2)),
            (vec![follow(1), None, follow(3)], NO_QUORUM, None),
            (vec![None, None, None], NO_QUORUM, None),
        ] {
            let (cluster, got) = joined(3, 3, answers);
            assert_eq!((got, cluster.leader), (code, leader), "{cluster:?}");
            assert_eq!(cluster.replicas.len(), 3);
        }
        let (cluster, code) = joined(1, 3, vec![follow(1)]);
        assert_eq!((code, cluster.leader), (HEALTHY, Some(2)), "the leader is elsewhere");
    }

    #[test]
    fn replicas_of_other_hosts_are_among_them() {
        let lead = || answer(2, "leader", ReplicaState::Running);
        let follow = |id| answer(id, "follower", ReplicaState::Running);
        // At host 1 of three: what it hears of the others.
        let seen = |second: Option<NodeStatus>, third: Option<NodeStatus>| {
            let mut all = told(vec![follow(1), second, third]);
            all.iter_mut().skip(1).for_each(|told| told.is_here = false);
            join(&state(1, 3), all)
        };
        let (cluster, code) = seen(lead(), follow(3));
        assert_eq!((code, cluster.leader, cluster.replicas.len()), (HEALTHY, Some(2), 3));
        let text = table(&cluster, 3, code);
        assert!(!text.contains("other hosts"), "{text}");

        let (cluster, code) = seen(lead(), None);
        assert_eq!((code, cluster.leader), (DEGRADED, Some(2)));
        let text = table(&cluster, 3, code);
        let row: Vec<&str> = text.lines().nth(5).unwrap().split_whitespace().collect();
        assert_eq!(row[..4], ["3", "-", "unreachable", "127.0.0.1:3"], "{text}");
        assert!(text.contains("replica 3: it does not answer"), "{text}");

        // The others have a majority, as far as this host's replica knows.
        let (cluster, code) = seen(None, None);
        assert_eq!((code, cluster.leader), (DEGRADED, Some(2)));
        let mut alone = follow(1);
        alone.as_mut().unwrap().leader = None;
        let mut all = told(vec![alone, None, None]);
        all.iter_mut().skip(1).for_each(|told| told.is_here = false);
        assert_eq!(join(&state(1, 3), all).1, NO_QUORUM);
    }

    #[test]
    fn json_has_the_fields_that_are_promised() {
        let (cluster, _) = joined(2, 2, vec![None, answer(2, "leader", ReplicaState::Running)]);
        let json = serde_json::to_value(&cluster).unwrap();
        let keys = |value: &serde_json::Value| {
            let mut keys: Vec<String> = value.as_object().unwrap().keys().cloned().collect();
            keys.sort();
            keys.join(" ")
        };
        assert_eq!(keys(&json), "leader mode name replicas schedule service term");
        assert_eq!(
            keys(&json["replicas"][0]),
            "address applied_index clock_offset_ms commit_index compared_index compared_same counts digest digest_index edition faults first_entry \
             id images kind lag_entries lag_ms node_pid other_runtime patched_calls role server_pid skein state term time_behind_ms trapped_calls trapped_places"
        );
        assert_eq!(json["replicas"][0]["state"], "down");
    }

    #[test]
    fn a_level_is_shown_while_a_replica_holds_it_back() {
        let mut two = answer(2, "leader", ReplicaState::Running).unwrap();
        two.levels = Some(LevelStatus { agreed: 1, newest: 2, waits_for: vec![1, 3] });
        let (cluster, code) = joined(1, 1, vec![Some(two.clone())]);
        let json = serde_json::to_value(&cluster).unwrap();
        assert_eq!(json["levels"]["waits_for"], serde_json::json!([1, 3]));
        assert!(table(&cluster, 1, code).contains(
            "(level 1 of 2), as these have an older version or are not connected: 1, 3.\n"
        ));
        two.levels = None;
        let (cluster, code) = joined(1, 1, vec![Some(two)]);
        assert!(!table(&cluster, 1, code).contains("level"));
    }

    #[test]
    fn trapped_calls_are_listed_by_how_often() {
        let mut two = answer(2, "leader", ReplicaState::Running).unwrap();
        assert!(calls(&joined(1, 1, vec![Some(two.clone())]).0).contains("No call"));
        two.replica.trapped_calls = [("brk".into(), 1), ("uname".into(), 7)].into();
        let mut one = answer(1, "follower", ReplicaState::Running).unwrap();
        one.replica.trapped_calls = [("uname".into(), 6)].into();
        let text = calls(&joined(2, 2, vec![Some(one), Some(two)]).0);
        let words: Vec<Vec<&str>> = text.lines().map(|l| l.split_whitespace().collect()).collect();
        assert_eq!(words[2], ["uname", "6", "7"]);
        assert_eq!(words[3], ["brk", "0", "1"]);
        assert!(!text.contains("PATCHED"));
    }

    #[test]
    fn patched_calls_are_listed_by_themselves() {
        let mut one = answer(1, "leader", ReplicaState::Running).unwrap();
        one.replica.patched_calls = [("rdtsc".into(), 5)].into();
        let text = calls(&joined(1, 1, vec![Some(one.clone())]).0);
        let words: Vec<Vec<&str>> = text.lines().map(|l| l.split_whitespace().collect()).collect();
        assert_eq!(words, [&[][..], &["PATCHED", "CALL", "REPLICA", "1"], &["rdtsc", "5"]]);
        one.replica.trapped_calls = [("rdtsc".into(), 64)].into();
        let text = calls(&joined(1, 1, vec![Some(one)]).0);
        assert!(text.find("TRAPPED") < text.find("PATCHED"), "{text}");
    }

    #[test]
    fn places_are_listed_with_what_came_from_them() {
        let place = |at: &str, traps, state: &str| TrappedPlace {
            place: at.into(),
            call: "clone".into(),
            traps,
            state: state.into(),
        };
        let mut one = answer(1, "leader", ReplicaState::Running).unwrap();
        one.replica.trapped_calls = [("clone".into(), 12)].into();
        one.replica.trapped_places = vec![place("libc.so.6+0x10", 11, "patched")];
        let mut two = answer(2, "follower", ReplicaState::Running).unwrap();
        two.replica.trapped_places =
            vec![place("libc.so.6+0x10", 9, "counted"), place("a+0x2", 10, "stays")];
        let text = calls(&joined(2, 2, vec![Some(one), Some(two)]).0);
        let words: Vec<Vec<&str>> = text.lines().map(|l| l.split_whitespace().collect()).collect();
        let rows = [
            ["libc.so.6+0x10", "clone", "patched", "11", "9"],
            ["a+0x2", "clone", "stays", "0", "10"],
        ];
        assert_eq!(words[words.len() - 2..], rows);
    }

    #[test]
    fn digests_of_different_moments_are_explained() {
        let mut one = answer(1, "leader", ReplicaState::Running).unwrap();
        let (cluster, code) = joined(1, 1, vec![Some(one.clone())]);
        assert!(!table(&cluster, 1, code).contains("digests"));
        (one.replica.compared_index, one.replica.compared_same) = (9, true);
        let (cluster, code) = joined(1, 1, vec![Some(one.clone())]);
        assert!(table(&cluster, 1, code).contains("the same up to entry 9."));
        one.replica.compared_same = false;
        let (cluster, code) = joined(1, 1, vec![Some(one)]);
        assert!(table(&cluster, 1, code).contains("not the same at entry 9:"));
    }

    #[test]
    fn the_table_lines_up() {
        let (cluster, code) = joined(2, 3, vec![None, answer(2, "leader", ReplicaState::Running)]);
        let text = table(&cluster, 3, code);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[2].find("STATE"), lines[3].find("down"));
        assert_eq!(lines[2].find("STATE"), lines[4].find("running"));
        assert!(text.contains("1 more"), "{text}");
    }
}
