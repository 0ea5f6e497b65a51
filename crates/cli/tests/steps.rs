//! Nodes that are killed at each step of their work on images: while one is written, gets its names, replaces older ones, lets the log forget; while one is sent and received; while a
//! server continues from one; and servers that are killed meanwhile. After each the cluster goes on under load, the replica is in step again and like the others, and nothing is left of the interrupted work.

mod common;

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Stdio;

use common::cluster::{Cluster, free_port, wait_for_or};
use common::load::Load;
use common::nodes::Nodes;
use common::real::{ANSWER, Random, Real};
use common::resp::{Redis, Reply};
use common::{Place, processes_naming, wait_for};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use skein_testkit::steps::Steps;

/// Steps of taking an image, until it has replaced older ones: the step, and at which of them.
const TAKING: [(&str, u64); 18] = [
    // The pack of new pages.
    ("after open /images/pack-", 1),
    ("after write /images/pack-", 1),
    ("after sync /images/pack-", 1),
    ("before rename /images/pack-", 1),
    ("after rename /images/pack-", 1),
    // The image that names it.
    ("after open /images/image-", 1),
    ("after write /images/image-", 1),
    ("before rename .unconfirmed", 1),
    ("after rename .unconfirmed", 1),
    // It counts.
    ("before rename /images/image-", 2),
    ("after rename /images/image-", 2),
    // The log begins behind the older one, and forgets.
    ("after open /log/", 1),
    ("before unlink /log/", 1),
    ("after unlink /log/", 1),
    // The oldest one goes, and packs that nobody needs.
    ("before unlink /images/image-", 1),
    ("after unlink /images/image-", 1),
    ("after rename .part", 1),
    ("before unlink .part", 1),
];

/// Steps of receiving one.
const RECEIVING: [(&str, u64); 7] = [
    ("after open .incoming", 1),
    ("after write .incoming", 1),
    ("after write .incoming", 3),
    ("before rename /images/pack-", 1),
    ("after rename /images/pack-", 1),
    ("before rename /images/image-", 1),
    ("after rename /images/image-", 1),
];

/// Steps of sending one.
const SENDING: [(&str, u64); 2] = [("before read /images/", 1), ("after read /images/pack-", 2)];

/// Steps of a server's start from one.
const RESTORING: [(&str, u64); 5] = [
    ("before write skein-restore", 1),
    ("after write skein-restore", 1),
    // The server's own memory.
    ("before put /mem", 1),
    ("after put /mem", 1),
    ("after put /mem", 10),
];

/// Steps of the log while members change: records of the change, of an election behind a loss, of requests.
const CHANGING: [(&str, u64); 9] = [
    ("before put /log/", 1),
    ("after put /log/", 1),
    ("after sync /log/", 1),
    ("before put /log/", 2),
    ("after put /log/", 2),
    ("after sync /log/", 3),
    ("before put /log/", 4),
    ("after put /log/", 5),
    ("after sync /log/", 6),
];

/// A redis with an append-only file under load, whose nodes can be killed at their steps.
struct Stage {
    real: Real,
    steps: Steps,
    load: Load,
    /// Several replicas have servers, to be compared.
    compares: bool,
}

impl Stage {
    fn new(options: &[&str]) -> Self {
        let (place, port) = (Place::new(), free_port());
        let dir = place.path("redis");
        fs::create_dir(&dir).unwrap();
        let steps = Steps::new(place.dir.path()).unwrap_or_else(|failure| panic!("{failure}"));
        let mut run = place.skein_with_runtime();
        run.args(["run", "--name", "t", "--data", &place.data()]).args(options);
        run.args(["--", "/usr/bin/redis-server", "--port", &port.to_string(), "--dir"]).arg(&dir);
        run.args(["--appendonly", "yes", "--save", ""]);
        steps.attach(&mut run, "node");
        let real = Real::around(Cluster::spawn(place, port, &mut run));
        real.cluster.wait_ready();
        let at: SocketAddr = ([127, 0, 0, 1], port).into();
        Self { real, steps, load: Load::start(3, vec![at], || {}), compares: options.is_empty() }
    }

    fn row(&self, id: u64) -> Value {
        Cluster::replica(&self.real.cluster.wait_status(0), id).clone()
    }

    fn node(&self, id: u64) -> Pid {
        Pid::from_raw(self.row(id)["node_pid"].as_i64().unwrap() as i32)
    }

    /// A replica is asked for an image; it may have a reason not to take one, or be killed meanwhile.
    fn image(&self, id: u64) {
        let id = id.to_string();
        self.real.cluster.place.run(&["checkpoint", "create", "--name", "t", "--replica", &id]);
    }

    /// Acts again and again until a process has been killed at this step.
    fn die(&self, id: u64, (step, count): (&str, u64), act: impl Fn()) {
        let node = self.node(id);
        self.steps.kill_at(node.as_raw(), step, count).unwrap_or_else(|error| panic!("{error}"));
        self.wait_dead(node, step, act);
    }

    fn wait_dead(&self, node: Pid, step: &str, act: impl Fn()) {
        wait_for_or(
            &format!("a node to come to the step '{step}'"),
            || self.real.cluster.evidence(),
            || {
                act();
                kill(node, None::<Signal>).is_err().then_some(())
            },
        );
    }

    /// All replicas are well again and alike, and this one has nothing of what it was doing.
    fn settle(&self, id: u64, step: &str) {
        if self.compares {
            self.real.cluster.wait_status(0);
        } else {
            // The passive replica leads meanwhile, and hands back, which ends connections.
            wait_for_or(
                &format!("the active replica to lead again after '{step}'"),
                || self.real.cluster.evidence(),
                || {
                    let (status, code) = self.real.cluster.status();
                    (code == Some(0) && status["leader"] == 1).then_some(())
                },
            );
        }
        let dir = self.real.cluster.place.path(&format!("data/node-{id}/images"));
        let left = || -> Vec<String> {
            let names = fs::read_dir(&dir).into_iter().flatten().flatten();
            let names = names.map(|entry| entry.file_name().into_string().unwrap());
            names.filter(|name| name.contains(".part") || name.contains(".incoming")).collect()
        };
        wait_for_or(
            &format!("nothing to be left of '{step}'"),
            || format!("{:?}\n{}", left(), self.real.cluster.evidence()),
            || left().is_empty().then_some(()),
        );
        if self.compares {
            self.load.pause();
            self.real.wait_agreed();
            self.real.wait_files_agreed();
            self.real.wait_memory_agreed();
            self.load.resume();
        }
        println!("replica {id} killed {step}: in step again, nothing left");
    }

    /// What clients were told is there.
    fn end(self) {
        let books = self.load.end();
        let mut redis = Redis::connect(self.real.port(), ANSWER).unwrap();
        for (client, books) in books.iter().enumerate() {
            let list = redis.ask(&["LRANGE", &Load::key(client), "0", "-1"]).unwrap();
            let Reply::Array(list) = list else { panic!("{list:?}") };
            books.assert_found(&list.iter().map(Reply::text).collect::<Vec<_>>());
        }
        drop(redis);
        if self.compares {
            self.real.end();
        } else {
            self.real.stop();
        }
    }
}

#[test]
fn a_node_killed_at_each_step_of_an_image_leaves_nothing_and_goes_on() {
    let stage = Stage::new(&[]);
    let mut id = 1;
    for step in TAKING {
        // Followers and leaders in turn.
        id = id % 3 + 1;
        stage.die(id, step, || stage.image(id));
        stage.settle(id, step.0);
    }
    for (step, count) in RESTORING {
        id = id % 3 + 1;
        wait_for_or(
            "an image",
            || stage.real.cluster.evidence(),
            || {
                stage.image(id);
                (stage.row(id)["images"]["index"].as_u64()? > 0).then_some(())
            },
        );
        let node = stage.node(id);
        stage.steps.kill_next_at(step, count).unwrap_or_else(|error| panic!("{error}"));
        let died = format!("node {id} died");
        let deaths = || stage.real.cluster.said().matches(&died).count();
        let before = deaths();
        kill(node, Signal::SIGKILL).unwrap();
        wait_for_or(
            &format!("its next node to come to the step '{step}'"),
            || stage.real.cluster.evidence(),
            || (deaths() == before + 2).then_some(()),
        );
        stage.settle(id, step);
    }
    stage.end();
}

#[test]
fn a_node_killed_at_each_step_of_a_transfer_has_the_image_in_the_end() {
    let stage = Stage::new(&["--mode", "standby"]);
    let newest = |id| stage.row(id)["images"]["index"].as_u64().unwrap_or_default();
    let sides = RECEIVING.map(|step| (2, step)).into_iter().chain(SENDING.map(|step| (1, step)));
    for (id, step) in sides {
        stage.die(id, step, || stage.image(1));
        stage.real.cluster.wait_status(0);
        stage.image(1);
        wait_for_or(
            &format!("the passive replica to have the newest image after '{}'", step.0),
            || stage.real.cluster.evidence(),
            || {
                let ours = newest(1);
                (ours > 0 && newest(2) >= ours).then_some(())
            },
        );
        stage.settle(id, step.0);
    }
    stage.end();
}

/// What is seen from outside of a server that continues from an image, from its beginning to its end.
#[derive(Clone, Copy, Debug)]
enum Moment {
    /// Its process is there, and makes its sandbox. When it ends so early its node does, too.
    Sandbox,
    /// It executes the server's program.
    Program,
    /// So many bytes of its append-only file are.
    Files(u64),
    /// So many bytes of its memory are.
    Memory(u64),
    /// All of its pages are.
    Unpacked,
}

/// A server's own process: the one in its namespace that is not init, which is its node's child.
fn server_of(node: Pid) -> Option<Pid> {
    let parents = |(pid, _): &(i32, String)| -> Option<(i32, i32)> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        Some((*pid, stat.rsplit(") ").next()?.split(' ').nth(1)?.parse().ok()?))
    };
    let all: Vec<_> = processes_naming("").iter().filter_map(parents).collect();
    let init = all.iter().find(|(_, parent)| *parent == node.as_raw())?.0;
    all.iter().find(|(_, parent)| *parent == init).map(|(pid, _)| Pid::from_raw(*pid))
}

/// Its restore is killed at moments from its beginning to its end: a fresh one continues from the image, with all files and all memory, and the others serve on.
#[test]
fn a_server_killed_while_it_continues_from_an_image_continues_anew() {
    const BYTES: u64 = 24 << 20;
    let stage = Stage::new(&[]);
    let mut client = Redis::connect(stage.real.port(), ANSWER).unwrap();
    let mut random = Random::new(5);
    for number in 0..BYTES >> 20 {
        let value = random.bytes(1 << 20);
        client.ask(&[b"SET", format!("value-{number}").as_bytes(), &value]).unwrap();
    }
    drop(client);
    let status = stage.real.cluster.wait_status(0);
    let id = Cluster::leader(&status).0 % 3 + 1;
    stage.real.image_that_counts(id, || ());
    let log = stage.real.cluster.place.path(&format!("data/node-{id}/node.log"));
    let files = stage.real.cluster.place.path("redis/appendonlydir/appendonly.aof.1.incr.aof");
    let has = |name: &str| -> usize {
        fs::read_to_string(&log).unwrap().matches(&format!(r#""event":"{name}""#)).count()
    };
    let moments = [
        Moment::Sandbox,
        Moment::Program,
        Moment::Files(BYTES / 2),
        Moment::Memory(BYTES / 2),
        Moment::Unpacked,
    ];
    for moment in moments {
        let is_there = |server: Pid, unpacked: usize| match moment {
            Moment::Sandbox => true,
            Moment::Program => {
                let line = fs::read_to_string(format!("/proc/{server}/cmdline"));
                line.is_ok_and(|line| line.starts_with("/usr/bin/redis-server"))
            }
            Moment::Unpacked => has("unpacked") > unpacked,
            Moment::Files(bytes) => {
                let seen = files.strip_prefix("/").unwrap();
                let seen = PathBuf::from(format!("/proc/{server}/root")).join(seen);
                fs::metadata(seen).is_ok_and(|about| about.len() >= bytes)
            }
            Moment::Memory(bytes) => {
                let status = fs::read_to_string(format!("/proc/{server}/status"));
                let status = status.unwrap_or_default();
                let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
                let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
                kib.is_some_and(|kib| kib << 10 >= bytes)
            }
        };
        // A busy machine may look too late.
        let killed = || {
            stage.real.cluster.wait_status(0);
            let node = stage.node(id);
            let running = server_of(node).expect("a server runs");
            let [unpacked, caught_up, restored] = ["unpacked", "caught_up", "restoring"].map(has);
            kill(running, Signal::SIGKILL).unwrap();
            let next = || server_of(node).filter(|server| *server != running);
            let server = wait_for("its next server", next);
            while !is_there(server, unpacked) {
                if has("caught_up") > caught_up || kill(server, None::<Signal>).is_err() {
                    return None;
                }
            }
            let done = has("caught_up") > caught_up;
            (kill(server, Signal::SIGKILL).is_ok() && !done).then_some(restored)
        };
        let restored =
            wait_for_or(&format!("{moment:?}"), || stage.real.cluster.evidence(), killed);
        stage.real.cluster.wait_status(0);
        // The one that was killed, and the one that is there now.
        let anew = has("restoring") >= restored + 2;
        assert!(anew, "{moment:?}\n{}", stage.real.cluster.evidence());
        println!("killed at {moment:?}: in step again");
    }
    stage.settle(id, "in its server's restore");
    stage.end();
}

/// Whether a node knows of a member, with a vote or without.
fn knows(nodes: &Nodes, at: u64, id: u64) -> bool {
    let listed = nodes.skein(at, &["members", "--json"]).stdout;
    let listed: Value = serde_json::from_slice(&listed).unwrap_or_default();
    let mut members = listed["members"].as_array().into_iter().flatten();
    members.any(|member| member["id"] == id)
}

/// `skein members` of a node while another one is killed, which comes back; asked again until it is done.
fn change(nodes: &mut Nodes, at: u64, words: &[&str], victim: u64, begun: impl Fn(&Nodes) -> bool) {
    let words = [&["members"], words, &["--timeout", "10"]].concat();
    let mut command = nodes.command(at, &words);
    let mut asked = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let under_way = || (begun(nodes) || asked.try_wait().unwrap().is_some()).then_some(());
    wait_for("the change to begin", under_way);
    nodes.kill(victim);
    nodes.start(victim);
    // It is done, or its leader is gone: both are fine.
    asked.wait().unwrap();
}

#[test]
fn members_come_and_go_while_a_new_one_and_leaders_are_killed() {
    let mut nodes = Nodes::three();
    let load = Load::start(3, nodes.clients(), || {});
    for (new, kills_new) in [(4, true), (5, false)] {
        nodes.wait_members(&[1, 2, 3]);
        nodes.begin(new, "join", &[1, 2, 3]);
        let leader = nodes.leader(&[1, 2, 3]);
        let other = leader % 3 + 1;
        let place = format!("{new}={}", nodes.address(new));
        let victim = if kills_new { new } else { leader };
        let begun = |nodes: &Nodes| knows(nodes, other, new);
        change(&mut nodes, other, &["add", &place], victim, begun);
        let all = [1, 2, 3, new];
        change_until(&nodes, other, &["add", &place], |nodes| nodes.members(other) == all);
        nodes.wait_members(&all);
        load.pause();
        nodes.wait_equal(&all);
        load.resume();

        let leader = nodes.leader(&all);
        let (victim, other) = match leader == new {
            true => (1, 2),
            false => (leader, leader % 3 + 1),
        };
        change(&mut nodes, other, &["remove", &new.to_string()], victim, |_| true);
        let founders = |nodes: &Nodes| nodes.members(other) == [1, 2, 3];
        change_until(&nodes, other, &["remove", &new.to_string()], founders);
        nodes.wait_removed(new);
        load.pause();
        nodes.wait_equal(&[1, 2, 3]);
        load.resume();
    }
    nodes.check(load, 1);
}

/// Asks until it is so; a command that fails says why, and is given again.
#[track_caller]
fn change_until(nodes: &Nodes, at: u64, words: &[&str], is_done: impl Fn(&Nodes) -> bool) {
    let words = [&["members"], words, &["--timeout", "10"]].concat();
    wait_for_or(
        &words.join(" "),
        || nodes.evidence(),
        || {
            is_done(nodes).then_some(()).or_else(|| {
                nodes.skein(at, &words);
                None
            })
        },
    );
}

/// A change of members, in which this node is killed at a step; it comes back.
#[track_caller]
fn killed_in(nodes: &mut Nodes, at: u64, words: &[&str], victim: u64, step: (&str, u64)) {
    let mut node = nodes.hosts.take(victim).unwrap();
    let steps = nodes.hosts.steps.as_ref().unwrap();
    // One that was just started has to load the library.
    wait_for("a node's steps", || steps.kill_at(node.id() as i32, step.0, step.1).ok());
    let words = [&["members"], words, &["--timeout", "10"]].concat();
    let ask = || {
        let mut command = nodes.command(at, &words);
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    };
    let mut asked = ask();
    let what = format!("replica {victim} to come to the step '{}', {} times", step.0, step.1);
    wait_for_or(
        &what,
        || nodes.evidence(),
        || {
            if let Some(status) = asked.try_wait().unwrap() {
                // The last of them may be other records'.
                let port = nodes.ports[at as usize - 1];
                let _ = Redis::connect(port, ANSWER).map(|mut redis| redis.set("other", "value"));
                if !status.success() {
                    asked = ask();
                }
            }
            node.try_wait().unwrap()
        },
    );
    nodes.start(victim);
    asked.wait().unwrap();
}

#[test]
fn members_come_and_go_while_a_node_is_killed_at_each_step_of_its_log() {
    let mut nodes = Nodes::new();
    nodes.hosts.steps = Some(Steps::new(nodes.place.dir.path()).unwrap());
    (1..=3).for_each(|id| nodes.begin(id, "found", &[1, 2, 3]));
    let load = Load::start(3, nodes.clients(), || {});
    nodes.wait_members(&[1, 2, 3]);
    let founders = |nodes: &Nodes, at: u64| nodes.members(at) == [1, 2, 3];
    for (n, step) in CHANGING.into_iter().enumerate() {
        let new = 4 + n as u64;
        let leader = nodes.leader(&[1, 2, 3]);
        let other = leader % 3 + 1;
        nodes.begin(new, "join", &[1, 2, 3]);
        let place = format!("{new}={}", nodes.address(new));
        // Quiet: its steps are those of the change.
        load.pause();
        let (all, add) = ([1, 2, 3, new], ["add", &place]);
        let victim = [leader, new, leader % 3 + 1][n % 3];
        let asked = if victim == other { leader } else { other };
        killed_in(&mut nodes, asked, &add, victim, step);
        change_until(&nodes, asked, &add, |nodes| nodes.members(asked) == all);
        nodes.wait_members(&all);
        nodes.wait_equal(&all);

        let id = new.to_string();
        let leader = nodes.leader(&all);
        let victim = (1..=3).find(|id| (*id == leader) == (n % 2 == 0)).unwrap_or(1);
        let asked = victim % 3 + 1;
        killed_in(&mut nodes, asked, &["remove", &id], victim, step);
        change_until(&nodes, asked, &["remove", &id], |nodes| founders(nodes, asked));
        nodes.wait_removed(new);
        nodes.wait_members(&[1, 2, 3]);
        nodes.wait_equal(&[1, 2, 3]);
        load.resume();
        println!(
            "killed at the step '{}', {} times, of each change: members as asked",
            step.0, step.1
        );
    }
    nodes.check(load, 1);
}
