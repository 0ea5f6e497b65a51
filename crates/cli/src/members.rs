//! `skein members`: replicas come, go and are replaced while the cluster serves.
//!
//! Each request is repeated at a node of this machine, which passes it on to the leader, until it is done ([`skein_replica::members`]). So neither a new leader nor a lost
//! answer ends it. The limit is on the time in which nothing gets on: a replica that is taken in may need an image that takes longer to come.
//!
//! Exit codes: 0 done; 2 refused, or not done in time; 3 no such cluster.

use std::thread::sleep;
use std::time::{Duration, Instant};

use skein_node::status::{MemberReport, MembersStatus};
use skein_replica::members::{Answer, Has, Request, Step, Wanted};

use crate::admin::{self, AdminError};
use crate::args::{MembersArgs, MembersTask};
use crate::failure::Failure;
use crate::instance::{self, NodeFiles, State};
use crate::output;
use crate::status::state_of;

/// How long a node may take to answer, which may ask the leader.
const LIMIT: Duration = Duration::from_secs(3);
/// The pause between two requests.
const AGAIN: Duration = Duration::from_millis(200);
/// How long a replica that has not come in may take to be withdrawn.
const WITHDRAWN_WITHIN: Duration = Duration::from_secs(30);

/// Does the task; answers the exit code.
pub fn members(args: &MembersArgs) -> Result<u8, Failure> {
    let instance = instance::find(args.how.name.as_deref())?;
    let state = state_of(&instance)?;
    let limit = Duration::from_secs(args.how.timeout);
    let (wanted, done) = match args.task.as_ref().unwrap_or(&MembersTask::Ls) {
        MembersTask::Ls => return ls(&state, args.how.json),
        MembersTask::Add { place: (id, at), kind } => {
            let wanted = Wanted::Add { id: *id, address: at.to_string(), kind: *kind };
            (wanted, format!("replica {id} at {at} is a member and votes"))
        }
        MembersTask::Remove { id } => {
            (Wanted::Remove { id: *id }, format!("replica {id} is no member any more"))
        }
        MembersTask::Replace { old, place: (id, at), kind } => {
            let wanted =
                Wanted::Replace { old: *old, id: *id, address: at.to_string(), kind: *kind };
            (
                wanted,
                format!(
                    "replica {id} at {at} votes instead of replica {old}, which is no member any more"
                ),
            )
        }
        MembersTask::Transfer { id } => {
            (Wanted::Transfer { to: *id }, format!("replica {id} leads"))
        }
    };
    let mut asker =
        Asker { state: &state, said: String::new(), accepted: false, json: args.how.json };
    match asker.until(&wanted, limit)? {
        End::Done => {}
        End::Late(line) => asker.withdraw(&wanted, &line)?,
    }
    if args.how.json {
        println!("{}", serde_json::json!({ "done": done }));
    } else {
        println!("skein: {}: {done}", state.name);
    }
    Ok(0)
}

fn failure(state: &State, why: impl std::fmt::Display, fix: &str) -> Failure {
    Failure::new(format!("cluster {}", state.name), why, fix)
}

/// The answer of the first node of this machine that gives one.
fn ask_any<T>(
    state: &State,
    ask: impl Fn(&NodeFiles) -> Result<T, AdminError>,
) -> Result<T, AdminError> {
    let mut result = None;
    for node in &state.nodes {
        match ask(node) {
            Ok(answer) => return Ok(answer),
            Err(error) => result = result.or(Some(error)),
        }
    }
    Err(result.unwrap_or(AdminError::Silent))
}

fn ls(state: &State, json: bool) -> Result<u8, Failure> {
    let listed = ask_any(state, |node| {
        let body = admin::get(&node.admin, "/members", LIMIT)?;
        serde_json::from_slice::<MembersStatus>(&body)
            .map_err(|error| AdminError::Wrong(error.to_string()))
    });
    let listed = listed.map_err(|error| failure(state, error, "see 'skein status'"))?;
    let text = if json { output::json(&listed) } else { table(&state.name, &listed) };
    output::print(&text);
    Ok(0)
}

fn table(name: &str, listed: &MembersStatus) -> String {
    let leader = listed.leader.map_or("none".into(), |id| format!("replica {id}"));
    let mut text = format!("{name}: cluster_id {}; leader {leader}\n\n", listed.cluster_id);
    if listed.members.is_empty() {
        return text
            + "This replica has joined, and is to be taken in: 'skein members add' on a host of a member.\n";
    }
    text.push_str(&format!("{:<8} {:<8} {:<24} {}\n", "REPLICA", "KIND", "ADDRESS", "VOTE"));
    for member in &listed.members {
        let MemberReport { id, address, kind, votes, learns, replaces } = member;
        let vote = match (votes, learns, replaces) {
            (true, false, _) => "yes".to_owned(),
            (true, true, _) => "lost with its log; it is filled".to_owned(),
            (false, _, None) => "not yet: it is filled".to_owned(),
            (false, _, Some(old)) => {
                format!("not yet: it is filled, and takes that of replica {old}")
            }
        };
        let address = if address.is_empty() { "unknown" } else { address };
        text.push_str(&format!("{id:<8} {:<8} {address:<24} {vote}\n", kind.name()));
    }
    text
}

enum End {
    Done,
    /// Not in time: why, with the last answer.
    Late(String),
}

/// How long a change may get on no further.
struct Limit {
    limit: Duration,
    until: Instant,
    /// The most that it had of the log. Two leaders in turn may say different things, of which one knows less.
    entry: Option<u64>,
    /// What it had last of an image,
    had: u64,
    /// the most that it had of one, and how often it has begun one anew, since the log came on.
    most: u64,
    anew: u32,
    /// Something came after the beginning.
    moved: bool,
}

/// A replica may begin so often with an image anew, as that is forgotten by now, or another replica leads: one whose disk is too small begins for ever.
const ANEW: u32 = 8;

impl Limit {
    fn new(limit: Duration, now: Instant) -> Self {
        Self { limit, until: now + limit, entry: None, had: 0, moved: false, most: 0, anew: 0 }
    }

    /// A replica that is taken in has this by now; nothing is known of it in the answer of an earlier version, and before it is reached.
    fn hear(&mut self, has: Option<Has>, now: Instant) {
        let Some(has) = has else { return };
        let log = self.entry.is_none_or(|entry| has.entry > entry);
        if log {
            self.entry = Some(has.entry);
            (self.most, self.anew) = (0, 0);
        }
        let had = std::mem::replace(&mut self.had, has.image_kib);
        self.anew += u32::from(has.image_kib < had);
        let image = has.image_kib > if self.anew > ANEW { self.most } else { had };
        self.most = self.most.max(has.image_kib);
        if log || image {
            (self.until, self.moved) = (now + self.limit, true);
        }
    }

    /// Why it is over, if it is.
    fn over(&self, line: &str, now: Instant) -> Option<String> {
        let what = if self.moved { "nothing more has come" } else { "not done" };
        (now > self.until).then(|| format!("{what} within {} s: {line}", self.limit.as_secs()))
    }
}

struct Asker<'a> {
    state: &'a State,
    /// The last line of progress.
    said: String,
    /// The leader has taken the request up.
    accepted: bool,
    json: bool,
}

impl Asker<'_> {
    fn until(&mut self, wanted: &Wanted, limit: Duration) -> Result<End, Failure> {
        let (mut first, mut agrees) = (true, false);
        let mut limit = Limit::new(limit, Instant::now());
        loop {
            let request = Request { wanted: wanted.clone(), first };
            let json = serde_json::to_string(&request).expect("a plain struct is valid JSON");
            let answer = ask_any(self.state, |node| {
                let body = admin::post_json(&node.admin, "/members", &json, LIMIT)?;
                serde_json::from_slice::<Answer>(&body)
                    .map_err(|error| AdminError::Wrong(error.to_string()))
            });
            match answer {
                Ok(Answer { step: Step::Done, .. }) => return Ok(End::Done),
                Ok(Answer { step: Step::Refused, line, .. }) => {
                    return Err(failure(self.state, line, ""));
                }
                Ok(Answer { step: Step::Later, line, .. }) => self.say(&line),
                Ok(Answer { step: step @ (Step::Goes | Step::Agrees), line, has }) => {
                    limit.hear(has, Instant::now());
                    (first, agrees) = (false, step == Step::Agrees);
                    self.accepted = true;
                    self.say(&line);
                }
                // It was the one to go, and knows it.
                Err(AdminError::Absent(_)) if agrees && self.is_of_here(wanted) => {
                    return Ok(End::Done);
                }
                Err(error) => {
                    // What was asked without an answer may have been accepted.
                    first = first && matches!(error, AdminError::Absent(_));
                    self.say(&format!("the node of this machine: {error}"));
                }
            }
            if let Some(why) = limit.over(&self.said, Instant::now()) {
                return Ok(End::Late(why));
            }
            sleep(AGAIN);
        }
    }

    /// Whether the only node of this machine is to go.
    fn is_of_here(&self, wanted: &Wanted) -> bool {
        let going = match wanted {
            Wanted::Remove { id } | Wanted::Replace { old: id, .. } => *id,
            _ => return false,
        };
        self.state.nodes.iter().all(|node| node.id == going)
    }

    fn say(&mut self, line: &str) {
        // How much of the log it has changes all the time.
        let known =
            |said: &str, line: &str| match (said.split_once(" of "), line.split_once(" of ")) {
                (Some((a, _)), Some((b, _))) => {
                    a.split(" up to ").next() == b.split(" up to ").next()
                }
                _ => said == line,
            };
        if !known(&self.said, line) && !self.json {
            println!("skein: {}: {line}", self.state.name);
        }
        line.clone_into(&mut self.said);
    }

    /// A replica has not come in in time.
    fn withdraw(&mut self, wanted: &Wanted, why: &str) -> Result<(), Failure> {
        let (Wanted::Add { id, .. } | Wanted::Replace { id, .. }) = wanted else {
            return Err(failure(self.state, why, "see 'skein members' and 'skein status'"));
        };
        let gone = self.until(&Wanted::Withdraw { id: *id }, WITHDRAWN_WITHIN);
        match gone {
            Ok(End::Done) => {
                let fix = format!(
                    "replica {id} was withdrawn again; see that its node runs and reaches the members, then ask again"
                );
                Err(failure(self.state, why, &fix))
            }
            Ok(End::Late(_)) => {
                let fix = format!(
                    "it could not be withdrawn either: 'skein members remove {id}' when a leader answers"
                );
                Err(failure(self.state, why, &fix))
            }
            Err(refused) if self.accepted && refused.why.contains("with a vote by now") => Ok(()),
            Err(refused) => Err(refused),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skein_replica::config::Kind;

    #[test]
    fn the_limit_counts_from_what_came_last() {
        let begun = Instant::now();
        let at = |s: u64| begun + Duration::from_secs(s);
        let has = |entry, image_kib| Some(Has { entry, image_kib });
        let mut limit = Limit::new(Duration::from_secs(10), begun);
        limit.hear(None, at(9));
        assert_eq!(limit.over("x", at(10)), None);
        assert_eq!(limit.over("x", at(11)).unwrap(), "not done within 10 s: x");
        // It is reached, fetches an image, then another one from its beginning, and gets the log; nothing new in between.
        for (s, now) in [(9, has(0, 0)), (18, has(0, 7)), (27, has(0, 9))] {
            limit.hear(now, at(s));
            limit.hear(now, at(s + 5));
            limit.hear(None, at(s + 5));
            assert_eq!(limit.over("x", at(s + 10)), None);
            let why = limit.over("x", at(s + 11)).unwrap();
            assert_eq!(why, "nothing more has come within 10 s: x");
        }
        limit.hear(has(0, 2), at(36));
        assert!(limit.over("x", at(38)).is_some(), "less is not more");
        limit.hear(has(0, 3), at(37));
        assert_eq!(limit.over("x", at(47)), None);
        limit.hear(has(5, 0), at(46));
        assert_eq!(limit.over("x", at(56)), None);
        // What comes again and again is nothing more in the end.
        for s in (50..250).step_by(5) {
            limit.hear(has(5, 8), at(s));
            limit.hear(has(5, 0), at(s + 2));
        }
        assert!(limit.over("x", at(250)).is_some());
        limit.hear(has(5, 9), at(260));
        assert_eq!(limit.over("x", at(270)), None);
        // Nor is what two leaders say in turn, one of which has not reached it.
        for s in (270..400).step_by(4) {
            limit.hear(has(0, 0), at(s));
            limit.hear(has(5, 0), at(s + 2));
        }
        assert!(limit.over("x", at(400)).is_some());
        limit.hear(has(6, 0), at(400));
        assert_eq!(limit.over("x", at(410)), None);
    }

    #[test]
    fn members_are_listed_with_what_they_wait_for() {
        let member = |id, votes, learns, replaces| MemberReport {
            id,
            kind: if id == 2 { Kind::Passive } else { Kind::Active },
            address: format!("10.0.0.{id}:7100"),
            votes,
            learns,
            replaces,
        };
        let listed = MembersStatus {
            cluster_id: "ab".into(),
            leader: Some(1),
            members: vec![
                member(1, true, false, None),
                member(2, true, true, None),
                member(4, false, true, Some(3)),
            ],
        };
        assert_eq!(
            table("t", &listed),
            "t: cluster_id ab; leader replica 1\n\n\
             REPLICA  KIND     ADDRESS                  VOTE\n\
             1        active   10.0.0.1:7100            yes\n\
             2        passive  10.0.0.2:7100            lost with its log; it is filled\n\
             4        active   10.0.0.4:7100            not yet: it is filled, and takes that of replica 3\n"
        );
    }
}
