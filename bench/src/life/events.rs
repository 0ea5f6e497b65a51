//! What happens to a cluster in its life.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::Event;
use super::clients::Clients;
use super::cluster::{Cluster, await_some};
use crate::process::{self, Kept};
use crate::servers::redis;
use crate::wire::{Client, Exchange, free_address};
use skein_testkit::cluster::status::{Replica, Status};
use skein_testkit::{Failure, Outcome, memory};

/// The leader's node killed, and a follower's image: what papers show, too.
pub const LEADER_KILLED: &str = "the leader's node killed";
pub const IMAGE_TAKEN: &str = "an image of a follower";

/// Whether answers around such an event are kept: something is lost, or papers show the same.
pub fn is_kept(what: &str) -> bool {
    what == IMAGE_TAKEN || ["killed", "lost"].iter().any(|word| what.contains(word))
}

const ANSWER_MAX: Duration = Duration::from_secs(30);

/// A kind of events.
pub struct Kind {
    what: &'static str,
    /// Whether it needs logs on the disk: members change, or no node is left.
    pub needs_disk: bool,
    does: fn(&At<'_>) -> Outcome,
}

/// The cluster when an event comes.
struct At<'a> {
    cluster: &'a Cluster,
    status: Status,
    clients: &'a Clients<'a>,
}

const fn kind(what: &'static str, does: fn(&At<'_>) -> Outcome) -> Kind {
    Kind { what, needs_disk: false, does }
}

const fn on_disk(what: &'static str, does: fn(&At<'_>) -> Outcome) -> Kind {
    Kind { what, needs_disk: true, does }
}

/// All, in their order.
pub const KINDS: &[Kind] = &[
    kind(IMAGE_TAKEN, image),
    kind("a follower's node killed", |at| at.end(at.follower()?.node_pid)),
    kind("a follower's server killed", |at| at.end(at.follower()?.server_pid)),
    kind(LEADER_KILLED, |at| at.end(at.status.leader()?.node_pid)),
    kind("leadership transferred", |at| at.hand_over().map(drop)),
    kind("a follower's disk lost, and filled anew", |at| at.cluster.lose_disk(at.follower()?.id)),
    kind("the leader's server killed", |at| at.end(at.status.leader()?.server_pid)),
    kind("a byte of memory flipped, and repaired", flip),
    on_disk("a follower's host lost, and replaced", |at| at.replace_lost(at.follower()?.id)),
    kind("upgraded to another environment", environment),
    kind("written files exported, and read", export),
    on_disk("grown to five replicas", grow),
    on_disk("two followers' nodes of five killed", kill_two),
    on_disk("shrunk to three replicas, without the oldest", shrink),
    kind("a host's file edited, without effect", edit),
    kind("the edited file taken over", take_over),
    kind("another Skein on each host in turn", renew),
    kind("the servers given that Skein", new_runtime),
    on_disk("the leader's host lost, and replaced", |at| at.replace_lost(at.status.leader()?.id)),
    kind("upgraded to another program", program),
    on_disk("a passive replica instead of an active one, and back", passive),
    on_disk("all nodes killed at once", kill_all),
    on_disk("a witness, the other follower's node killed, and back", witness),
    on_disk("a standby, its leader's node killed, and back", standby),
    kind("all images read", read_images),
    kind("all compared", |at| at.cluster.verify().map(drop)),
];

/// Does one, waits until all replicas are in step, and checks that the cluster is what it should be.
pub fn one(kind: &Kind, clients: &Clients<'_>, begun: Instant) -> Outcome<Event> {
    let cluster = clients.cluster;
    let status = cluster.whole()?;
    let start = Instant::now();
    clients.silence();
    let at = At { cluster, status, clients };
    let done = (kind.does)(&at).and_then(|()| cluster.whole());
    let took = start.elapsed();
    let silent = clients.silence();
    done.and_then(|_| cluster.check()).map_err(|failure| Failure::of(kind.what, failure))?;
    Ok(Event {
        what: kind.what.to_owned(),
        at_s: (start - begun).as_secs_f64(),
        took_s: took.as_secs_f64(),
        silent_ms: silent.as_secs_f64() * 1e3,
        quiet_ms: None,
        answers: None,
    })
}

impl At<'_> {
    fn followers(&self) -> Outcome<Vec<&Replica>> {
        let leader = self.status.leader()?.id;
        Ok(self.status.replicas().iter().filter(|replica| replica.id != leader).collect())
    }

    fn follower(&self) -> Outcome<&Replica> {
        let all = self.followers()?;
        all.first().copied().ok_or_else(|| Failure("the cluster has no follower".to_owned()))
    }

    /// Kills a process, and waits until the status knows of it no more.
    fn end(&self, pid: i32) -> Outcome {
        self.kill(pid)?;
        await_some("the killed process to be gone", || {
            let status = self.cluster.whole()?;
            Ok(status.pids().all(|other| other != pid).then_some(()))
        })
    }

    fn kill(&self, pid: i32) -> Outcome {
        if pid <= 1 {
            return Err(Failure("skein status has no process to end".to_owned()));
        }
        let killed = kill(Pid::from_raw(pid), Signal::SIGKILL);
        killed.map_err(|error| Failure::of("cannot kill", error))
    }

    /// The leader hands over to a follower, whose id is answered.
    fn hand_over(&self) -> Outcome<u64> {
        let status = self.cluster.whole()?;
        let leader = status.leader()?.id;
        let heir = status.replicas().iter().map(|replica| replica.id).find(|id| *id != leader);
        let heir = heir.ok_or_else(|| Failure("the cluster has no follower".to_owned()))?;
        self.cluster.on(leader, &["members", "transfer", &heir.to_string()])?;
        Ok(heir)
    }

    /// A host is lost for good, and another one with another id, address and an empty directory comes.
    fn replace_lost(&self, lost: u64) -> Outcome {
        self.cluster.crash(lost)?;
        self.replace(lost, "active")?;
        self.cluster.change(None, Some(lost))
    }

    /// Another replica takes the place of one, which stays on its host; its id is answered.
    fn replace(&self, old: u64, kind: &str) -> Outcome<u64> {
        let (new, place) = self.cluster.join(&[old])?;
        let at = self.other_than(old)?;
        self.cluster.on(at, &["members", "replace", &old.to_string(), &place, "--kind", kind])?;
        self.cluster.change(Some(new), None)?;
        Ok(new)
    }

    /// The same, until the one that comes does what its kind does, and the other one's host is gone.
    fn exchange(&self, old: u64, kind: &str) -> Outcome<u64> {
        let new = self.replace(old, kind)?;
        self.cluster.change(None, Some(old))?;
        match kind {
            "active" => self.cluster.whole().map(drop)?,
            resting => self.cluster.rests(new, resting)?,
        }
        Ok(new)
    }

    /// A member that is not this one.
    fn other_than(&self, id: u64) -> Outcome<u64> {
        let other = self.cluster.members().into_iter().find(|other| *other != id);
        other.ok_or_else(|| Failure("the cluster has one replica".to_owned()))
    }
}

fn image(at: &At<'_>) -> Outcome {
    at.cluster.on(at.follower()?.id, &["checkpoint", "create"]).map(drop)
}

/// Each time another value.
fn environment(at: &At<'_>) -> Outcome {
    let variable = format!("SERVER_BEFORE={}", at.status.leader()?.server_pid);
    at.cluster.upgrade(at.follower()?.id, &["--env", &variable])?;
    at.cluster.has_variable(at.status.leader()?.server_pid);
    Ok(())
}

/// All that count, among them a new one, or one that came after it.
fn read_images(at: &At<'_>) -> Outcome {
    let id = at.follower()?.id;
    let json = |what: &str| -> Outcome<Value> {
        let said = at.cluster.on(id, &["checkpoint", what, "--json"])?;
        serde_json::from_str(&said).map_err(|error| Failure::of(what, error))
    };
    let taken = json("create")?["index"].as_u64();
    await_some("the image to count", || {
        let listed = json("ls")?;
        let mut images = listed[0]["images"].as_array().into_iter().flatten();
        let counts = |image: &Value| image["confirmed"] == true && image["index"].as_u64() >= taken;
        Ok(images.any(counts).then_some(()))
    })?;
    let said = at.cluster.skein(&["checkpoint", "verify"])?;
    let own = format!("replica {id}: entry ");
    let whole = said.lines().filter_map(|line| line.strip_prefix(&own)?.strip_suffix(": whole"));
    if whole.filter_map(|entry| entry.parse().ok()).any(|entry: u64| Some(entry) >= taken) {
        return Ok(());
    }
    Err(Failure(format!("replica {id} has taken an image, which was not read: {said}")))
}

/// What was exported is read by a redis alone: it has all that was acknowledged before, and nothing that nobody asked for.
fn export(at: &At<'_>) -> Outcome {
    let (dir, least) = (at.cluster.path("export"), at.clients.acknowledged());
    let to = dir.to_string_lossy();
    at.cluster.on(at.follower()?.id, &["files", "--export", &to])?;
    let most = at.clients.attempted();
    let redis = at.cluster.redis();
    let written = dir.join(redis.strip_prefix("/").unwrap_or(&redis));
    let service = free_address()?;
    let mut command = Command::new("redis-server");
    command.args(["--port", &service.port().to_string(), "--save", "", "--appendonly", "yes"]);
    let alone = Kept::start(command.arg("--dir").arg(&written))?;
    let found = await_some("redis to read what was exported", || {
        let Ok(mut client) = Client::connect(service, ANSWER_MAX) else { return Ok(None) };
        let counted = client.exchange(&redis::command(&["INCRBY", "count", "0"], ":"));
        Ok(counted.ok().and_then(|()| super::clients::number(client.got()).ok()))
    })?;
    drop(alone);
    fs::remove_dir_all(&dir).map_err(|error| Failure::of(dir.display(), error))?;
    if (least..=most).contains(&found) {
        return Ok(());
    }
    Err(Failure(format!("the exported files count to {found}; right are {least} to {most}")))
}

fn grow(at: &At<'_>) -> Outcome {
    for _ in 0..2 {
        let (new, place) = at.cluster.join(&[])?;
        at.cluster.on(at.follower()?.id, &["members", "add", &place])?;
        at.cluster.change(Some(new), None)?;
    }
    Ok(())
}

fn kill_two(at: &At<'_>) -> Outcome {
    let pids: Vec<i32> = at.followers()?.iter().take(2).map(|replica| replica.node_pid).collect();
    pids.iter().try_for_each(|pid| at.kill(*pid))?;
    await_some("the killed processes to be gone", || {
        let status = at.cluster.whole()?;
        Ok(status.pids().all(|pid| !pids.contains(&pid)).then_some(()))
    })
}

/// The leader may be one of them.
fn shrink(at: &At<'_>) -> Outcome {
    let mut all = at.cluster.members();
    all.sort_unstable();
    let stays = *all.last().unwrap_or(&0);
    for oldest in &all[..2] {
        at.cluster.on(stays, &["members", "remove", &oldest.to_string()])?;
        at.cluster.change(None, Some(*oldest))?;
    }
    Ok(())
}

/// A server that begins anew meanwhile has the file as it was.
fn edit(at: &At<'_>) -> Outcome {
    at.cluster.edit()?;
    let follower = at.follower()?;
    at.end(follower.server_pid)?;
    let differs = at.cluster.base_diff(follower.id)?;
    let conf = at.cluster.redis().join("redis.conf");
    if differs.contains(&*conf.to_string_lossy()) {
        return Ok(());
    }
    Err(Failure(format!("skein base diff does not name {}: {differs}", conf.display())))
}

fn take_over(at: &At<'_>) -> Outcome {
    let setting = at.cluster.edit()?;
    let report = at.cluster.upgrade(at.follower()?.id, &["--files"])?;
    at.cluster.has_setting(setting);
    let conf = at.cluster.redis().join("redis.conf");
    if report["files"]
        .as_array()
        .is_some_and(|all| all.iter().any(|file| *file == *conf.to_string_lossy()))
    {
        return Ok(());
    }
    Err(Failure::of("skein upgrade --files has not taken over redis.conf", report))
}

/// The leader's host is the last one, and it hands over before.
fn renew(at: &At<'_>) -> Outcome {
    let skein = at.cluster.another_skein()?;
    let leader = at.status.leader()?.id;
    let mut order = at.cluster.members();
    order.sort_by_key(|id| *id == leader);
    for id in order {
        if at.cluster.whole()?.leader()?.id == id {
            at.hand_over()?;
        }
        at.cluster.renew(id, &skein)?;
        at.cluster.whole()?;
    }
    at.cluster.has_only(skein)
}

fn new_runtime(at: &At<'_>) -> Outcome {
    at.cluster.upgrade(at.follower()?.id, &["--skein"])?;
    at.cluster.has_new_runtime();
    Ok(())
}

/// The two programs are the same, at different paths.
fn program(at: &At<'_>) -> Outcome {
    let [now, other] = at.cluster.programs();
    if !other.exists() {
        fs::copy(&now, &other).map_err(|error| Failure::of(other.display(), error))?;
    }
    let conf = at.cluster.redis().join("redis.conf");
    let words = ["--", &other.to_string_lossy(), &conf.to_string_lossy()];
    at.cluster.upgrade(at.follower()?.id, &words)?;
    at.cluster.has_program(other);
    Ok(())
}

fn passive(at: &At<'_>) -> Outcome {
    let passive = at.exchange(at.follower()?.id, "passive")?;
    at.exchange(passive, "active").map(drop)
}

/// No process of any node or server is left before the first node is started again.
fn kill_all(at: &At<'_>) -> Outcome {
    let all = process::trees(at.status.pids());
    at.cluster.crash_all()?;
    await_some("all nodes and servers to be gone", || {
        Ok((!all.iter().any(|pid| process::lives(*pid))).then_some(()))
    })?;
    let least = at.clients.acknowledged();
    at.cluster.come_back(&at.cluster.members())?;
    at.cluster.whole()?;
    at.clients.counted(least)
}

/// Two actives and a witness go on without one of the actives.
fn witness(at: &At<'_>) -> Outcome {
    let witness = at.exchange(at.follower()?.id, "witness")?;
    let leader = at.cluster.whole()?.leader()?.id;
    let mut others = at.cluster.members().into_iter().filter(|id| ![leader, witness].contains(id));
    let other = others.next().ok_or_else(|| Failure("no other follower".to_owned()))?;
    at.cluster.crash(other)?;
    at.clients.go_on()?;
    at.cluster.come_back(&[other])?;
    at.cluster.whole()?;
    at.exchange(witness, "active").map(drop)
}

/// One active, one passive, one witness: the passive one leads while the active one is away, and rests again when that is back.
fn standby(at: &At<'_>) -> Outcome {
    let active = at.status.leader()?.id;
    let followers: Vec<u64> = at.followers()?.iter().map(|replica| replica.id).collect();
    let [first, second] = followers[..] else {
        return Err(Failure(format!("there are other followers than two: {followers:?}")));
    };
    let passive = at.exchange(first, "passive")?;
    let witness = at.exchange(second, "witness")?;
    at.cluster.has_files(passive)?;
    at.cluster.crash(active)?;
    at.cluster.leads(passive)?;
    at.clients.go_on()?;
    at.cluster.come_back(&[active])?;
    at.cluster.whole()?;
    at.cluster.rests(passive, "passive")?;
    at.exchange(passive, "active")?;
    at.exchange(witness, "active").map(drop)
}

fn flip(at: &At<'_>) -> Outcome {
    let value = "a value that no other place has ".repeat(8);
    let length = value.len();
    let set = format!("*3\r\n$3\r\nSET\r\n$6\r\nmarker\r\n${length}\r\n{value}\r\n");
    let set = at.cluster.client()?.exchange(&Exchange::line(set, "+OK"));
    set.map_err(|error| Failure::of("redis' client", error))?;
    let pid = at.follower()?.server_pid;
    let place = await_some("the value in a follower's memory", || {
        let found = memory::found(pid.into(), value.as_bytes());
        Ok(found.map_err(|error| Failure::of("a server's memory", error))?.first().copied())
    })?;
    let memory = OpenOptions::new().write(true).open(format!("/proc/{pid}/mem"));
    let written = memory.and_then(|memory| memory.write_all_at(b"A", place));
    written.map_err(|error| Failure::of("a server's memory", error))?;
    at.cluster.skein(&["verify", "--repair"])?;
    at.cluster.skein(&["verify"]).map(drop)
}
