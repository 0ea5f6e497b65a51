//! The reports of [`Watch`](super::Watch) about the lives of three nodes.

use super::*;
use skein_node::ReplicaStatus;

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn status(id: u64, role: &str, term: u64) -> NodeStatus {
    let leads = role == "leader";
    NodeStatus {
        term,
        serving: leads,
        service: if leads { vec!["127.0.0.1:6379".into()] } else { vec![] },
        replica: ReplicaStatus {
            id,
            role: role.into(),
            state: ReplicaState::Running,
            applied_index: 7,
            ..ReplicaStatus::default()
        },
        ..NodeStatus::default()
    }
}

/// Three nodes, the first leads, all run; at 100 ms.
fn ready() -> Watch {
    let mut watch = Watch::new(1..=3);
    (1..=3).for_each(|id| watch.started(ms(0), id));
    assert!(watch.answered(ms(50), 2, status(2, "follower", 1)).is_empty());
    assert!(watch.answered(ms(60), 3, status(3, "follower", 1)).is_empty());
    assert_eq!(watch.pace(), Pace::Hurry);
    let acts = watch.answered(ms(100), 1, status(1, "leader", 1));
    let said =
        [Act::Say("node 1 leads (term 1)".into()), Act::Ready("ready at 127.0.0.1:6379".into())];
    assert_eq!(acts, said);
    assert_eq!(watch.pace(), Pace::Calm);
    watch
}

fn texts(acts: &[Act]) -> String {
    let text = |act: &Act| match act {
        Act::Say(text) | Act::Ready(text) => text.clone(),
        Act::Kill(id) => format!("KILL {id}"),
        Act::Fail(what, why, fix) => format!("{what}: {why}; {fix}"),
    };
    acts.iter().map(text).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_leaders_death_is_measured_and_its_return_told() {
    let mut watch = ready();
    watch.died(ms(1000), 1);
    assert_eq!(watch.pace(), Pace::Hurry);
    assert!(watch.answered(ms(1010), 3, status(3, "follower", 1)).is_empty());
    let mut elected = status(2, "leader", 2);
    elected.serving = false;
    assert!(watch.answered(ms(1020), 2, elected).is_empty());
    let acts = watch.answered(ms(1043), 2, status(2, "leader", 2));
    assert_eq!(texts(&acts), "node 2 leads (term 2); there was no service for 43 ms");
    watch.started(ms(1100), 1);
    let mut back = status(1, "follower", 2);
    back.replica.state = ReplicaState::CatchingUp;
    assert!(watch.answered(ms(1200), 1, back).is_empty());
    let acts = watch.answered(ms(1400), 1, status(1, "follower", 2));
    assert_eq!(texts(&acts), "node 1 caught up with entry 7 after 300 ms");
    assert!(watch.answered(ms(1500), 1, status(1, "follower", 2)).is_empty());
}

#[test]
fn a_stopped_leader_is_named_then_killed() {
    let mut watch = ready();
    let acts = watch.answered(ms(600), 2, status(2, "leader", 2));
    assert!(texts(&acts).contains("instead of node 1"), "{acts:?}");
    let _ = watch.answered(ms(2500), 2, status(2, "leader", 2));
    let _ = watch.answered(ms(2500), 3, status(3, "follower", 2));
    assert!(watch.tick(ms(2600), true).is_empty(), "nobody has asked it anything");
    watch.unanswered(ms(90), 1);
    assert!(watch.tick(ms(2600), true).is_empty(), "it has answered since");
    watch.unanswered(ms(600), 1);
    watch.unanswered(ms(2600), 1);
    let acts = watch.tick(ms(2600), true);
    assert!(texts(&acts).contains("node 1 does not answer for 2 s; node 2 leads"), "{acts:?}");
    assert!(watch.tick(ms(2700), true).is_empty());
    let _ = watch.answered(ms(10_000), 2, status(2, "leader", 2));
    let _ = watch.answered(ms(10_000), 3, status(3, "follower", 2));
    assert!(watch.tick(ms(10_600), false).is_empty(), "only with --restart yes");
    assert!(watch.tick(ms(10_600), true).contains(&Act::Kill(1)));
    assert!(watch.tick(ms(10_700), true).is_empty(), "once");
}

#[test]
fn a_majority_that_lost_its_memory_is_noticed() {
    let mut watch = ready();
    watch.died(ms(200), 1);
    assert!(!watch.lost_majority());
    watch.started(ms(300), 1);
    assert!(!watch.lost_majority());
    let mut back = status(1, "learner", 1);
    back.replica.state = ReplicaState::CatchingUp;
    let _ = watch.answered(ms(400), 1, back);
    watch.died(ms(500), 2);
    assert!(watch.lost_majority(), "one is dead, one not in step yet");
    assert_eq!(watch.not_in_step(), [1]);
    let _ = watch.answered(ms(510), 1, status(1, "follower", 1));
    assert!(!watch.lost_majority(), "asked again, it has caught up");
    let mut watch = ready();
    watch.died(ms(200), 1);
    watch.started(ms(300), 1);
    let _ = watch.answered(ms(400), 1, status(1, "follower", 1));
    watch.died(ms(500), 2);
    assert!(!watch.lost_majority());
}

#[test]
fn a_follower_that_hangs_is_named_only() {
    let mut watch = ready();
    for at in (1000..12_000).step_by(1000) {
        let _ = watch.answered(ms(at), 1, status(1, "leader", 1));
        let _ = watch.answered(ms(at), 2, status(2, "follower", 1));
        watch.unanswered(ms(at - 500), 3);
        assert!(!watch.tick(ms(at), true).contains(&Act::Kill(3)));
    }
    let acts = watch.answered(ms(12_000), 3, status(3, "follower", 1));
    assert_eq!(texts(&acts), "node 3 answers again");
}

#[test]
fn what_all_replicas_note_is_said_once() {
    let mut watch = ready();
    let noted = |id| NodeStatus {
        notes: vec!["call_refused: io_uring_setup".into()],
        ..status(id, "follower", 1)
    };
    assert_eq!(
        texts(&watch.answered(ms(200), 2, noted(2))),
        "the server's call io_uring_setup is not supported and was answered with an error"
    );
    assert!(watch.answered(ms(210), 3, noted(3)).is_empty());
    assert!(watch.answered(ms(220), 2, noted(2)).is_empty());
}

#[test]
fn divergence_and_a_servers_lonely_end_are_told() {
    let mut watch = ready();
    let state = |state| {
        let mut status = status(3, "follower", 1);
        status.replica.state = state;
        status
    };
    let acts = watch.answered(ms(200), 3, state(ReplicaState::Diverged));
    assert!(texts(&acts).contains("node 3 diverged"), "{acts:?}");
    let note = "the server's output differed from the others' at entry 9".to_string();
    let noted = NodeStatus { notes: vec![note], ..state(ReplicaState::Diverged) };
    assert!(texts(&watch.answered(ms(210), 3, noted)).starts_with("node 3 diverged: the server's"));
    assert!(watch.answered(ms(300), 3, state(ReplicaState::CatchingUp)).is_empty());
    let acts = watch.answered(ms(400), 3, state(ReplicaState::Running));
    assert_eq!(texts(&acts), "node 3 caught up with entry 7 after 200 ms");
    assert!(watch.answered(ms(500), 3, state(ReplicaState::CatchingUp)).is_empty());
    let mut again = state(ReplicaState::CatchingUp);
    again.replica.server_pid = 9;
    assert!(texts(&watch.answered(ms(600), 3, again)).contains("rebuilt"));
    let acts = watch.answered(ms(900), 3, state(ReplicaState::Running));
    assert_eq!(texts(&acts), "node 3 caught up with entry 7 after 300 ms");
}

#[test]
fn a_straggler_or_a_server_that_never_listens_does_not_block_for_ever() {
    let mut watch = Watch::new(1..=3);
    (1..=3).for_each(|id| watch.started(ms(0), id));
    let _ = watch.answered(ms(100), 1, status(1, "leader", 1));
    let _ = watch.answered(ms(100), 2, status(2, "follower", 1));
    assert!(watch.tick(ms(1_000), true).is_empty());
    let acts = watch.answered(ms(10_100), 1, status(1, "leader", 1));
    assert_eq!(texts(&acts), "ready at 127.0.0.1:6379, but replica 3 not yet running");
    assert_eq!(watch.pace(), Pace::Calm);

    let mut watch = Watch::new(1..=1);
    watch.started(ms(0), 1);
    let mut mute = status(1, "leader", 1);
    mute.serving = false;
    assert!(watch.answered(ms(100), 1, mute.clone()).is_empty());
    let acts = watch.answered(ms(10_100), 1, mute);
    assert_eq!(texts(&acts), "running, but the server listens nowhere yet");
}

#[test]
fn a_server_that_listens_where_nothing_is_published_is_told_of_and_given_up() {
    let mut watch = Watch::new(1..=1);
    watch.started(ms(0), 1);
    watch.unnamed(6400, "--publish 127.0.0.1:6401:6400".into());
    let mut mute = status(1, "leader", 1);
    mute.service.clear();
    assert_eq!(texts(&watch.answered(ms(100), 1, mute.clone())), "node 1 leads (term 1)");
    assert_eq!(
        texts(&watch.answered(ms(2_100), 1, mute.clone())),
        "the server listens at port 6400: no --publish names that, so no client can reach it; \
         --publish 127.0.0.1:6401:6400 would"
    );
    assert!(watch.answered(ms(29_000), 1, mute.clone()).is_empty(), "once");
    // It is still opening ports: the named one may come.
    watch.unnamed(6500, "--publish 127.0.0.1:6401:6500".into());
    assert!(watch.answered(ms(30_100), 1, mute.clone()).is_empty());
    assert!(watch.answered(ms(60_000), 1, mute.clone()).is_empty());
    // It is still using files for the first time; timers and digests are no sign of that.
    mute.replica.counts.fact_entries = 9;
    assert!(watch.answered(ms(60_090), 1, mute.clone()).is_empty());
    mute.replica.counts.proposed_entries = 20;
    mute.replica.counts.clock_entries = 10;
    assert!(watch.answered(ms(90_000), 1, mute.clone()).is_empty());
    assert!(
        texts(&watch.answered(ms(90_100), 1, mute))
            .ends_with("; publish port 6400 with --publish 127.0.0.1:6401:6400")
    );
}

#[test]
fn what_ails_a_node_is_said_once_and_so_is_its_end() {
    use skein_replica::health::Fault;
    let mut watch = ready();
    let mut ailing = status(2, "follower", 1);
    ailing.replica.faults = vec![Fault::new("silent_3", "replica 3 has not been heard of")];
    assert!(watch.answered(ms(200), 2, ailing.clone()).is_empty(), "its end is said elsewhere");
    ailing.replica.faults.push(Fault::new("disk_hangs", "its disk hangs for 1 s"));
    assert_eq!(
        texts(&watch.answered(ms(300), 2, ailing.clone())),
        "node 2: its disk hangs for 1 s"
    );
    ailing.replica.faults[1].why = "its disk hangs for 2 s".into();
    assert!(watch.answered(ms(400), 2, ailing.clone()).is_empty());
    ailing.replica.faults.pop();
    assert_eq!(texts(&watch.answered(ms(500), 2, ailing)), "node 2 is well again");
    assert!(watch.answered(ms(600), 2, status(2, "follower", 1)).is_empty());
}

#[test]
fn nodes_that_nobody_uses_are_asked_seldom() {
    let mut watch = ready();
    let idle = |id, role| NodeStatus { idle: true, ..status(id, role, 1) };
    let _ = watch.answered(ms(200), 1, idle(1, "leader"));
    let _ = watch.answered(ms(200), 2, idle(2, "follower"));
    assert_eq!(watch.pace(), Pace::Calm, "one is not idle");
    let _ = watch.answered(ms(200), 3, idle(3, "follower"));
    assert_eq!(watch.pace(), Pace::Idle);
    watch.unanswered(ms(5200), 2);
    assert_eq!(watch.pace(), Pace::Calm, "one owes an answer");
    let mut behind = idle(2, "follower");
    behind.replica.state = ReplicaState::CatchingUp;
    let _ = watch.answered(ms(5300), 2, behind);
    assert_eq!(watch.pace(), Pace::Calm, "one is not in step");
    let _ = watch.answered(ms(6300), 2, idle(2, "follower"));
    assert_eq!(watch.pace(), Pace::Idle);
    watch.died(ms(7000), 3);
    assert_eq!(watch.pace(), Pace::Calm);
    watch.died(ms(7000), 1);
    assert_eq!(watch.pace(), Pace::Hurry);
}

#[test]
fn a_server_that_is_another_by_the_next_answer_has_ended() {
    let mut watch = ready();
    let with = |pid, number| {
        let mut status = status(2, "follower", 1);
        (status.replica.server_pid, status.replica.edition.number) = (pid, number);
        status
    };
    assert!(watch.answered(ms(200), 2, with(70, 1)).is_empty());
    assert!(watch.answered(ms(300), 2, with(70, 1)).is_empty());
    assert!(texts(&watch.answered(ms(400), 2, with(71, 1))).contains("ended and is rebuilt"));
    assert!(watch.answered(ms(500), 2, with(72, 2)).is_empty(), "an upgrade");
}
