//! Replicas of `skein node`s come, go and are replaced while clients write: no acknowledged write is lost, and all replicas are equal afterwards.

mod common;

use std::fs;
use std::time::Instant;

use common::cluster::{Cluster, free_port, wait_for_or};
use common::load::Load;
use common::nodes::{CLUSTER_ID, Nodes, wait_redis};
use common::resp::{Redis, Reply};
use common::{PATIENCE, Place, assert_line};

#[test]
fn one_grows_to_three_all_are_replaced_it_grows_to_five_and_shrinks_under_load() {
    let mut nodes = Nodes::new();
    nodes.begin(1, "found", &[1]);
    wait_redis(nodes.ports[0]);
    let load = Load::start(3, nodes.clients(), || {});
    let args = |words: [&str; 2], place: String| [words[0].to_owned(), words[1].to_owned(), place];
    let add = |nodes: &Nodes, by: u64, id: u64| {
        let place = format!("{id}={}", nodes.address(id));
        let said = nodes.does(by, &args(["members", "add"], place).each_ref().map(String::as_str));
        assert!(
            said.contains(&format!("replica {id} at")) && said.contains("is a member and votes"),
            "{said}"
        );
    };
    for id in 2..=3 {
        nodes.begin(id, "join", &[1]);
        add(&nodes, 1, id);
    }
    nodes.wait_members(&[1, 2, 3]);
    let three = wait_redis(nodes.ports[0]).ask(&[b"PING"]);
    assert!(three.is_ok(), "clients are served meanwhile");

    // A host is lost: another one takes its place, with an empty directory and another address.
    nodes.kill(2);
    nodes.begin(4, "join", &[1, 3]);
    let place = format!("4={}", nodes.address(4));
    let said = nodes.does(3, &["members", "replace", "2", &place]);
    assert!(said.contains("votes instead of replica 2"), "{said}");
    nodes.wait_members(&[1, 3, 4]);
    // The replaced one comes back and learns that it is no member.
    nodes.start(2);
    nodes.wait_removed(2);

    // The leader goes, by a command on another host, or its own.
    let mut leader = nodes.leader(&[1, 3, 4]);
    if leader == 4 {
        nodes.does(4, &["members", "transfer", "1"]);
        leader = 1;
    }
    nodes.begin(5, "join", &[1, 3, 4]);
    let place = format!("5={}", nodes.address(5));
    nodes.does(leader, &["members", "replace", &leader.to_string(), &place]);
    nodes.wait_removed(leader);
    let rest: Vec<u64> = [1, 3, 4, 5].into_iter().filter(|id| *id != leader).collect();
    nodes.wait_members(&rest);
    // And the last of the first three.
    let founder = rest[0];
    nodes.begin(6, "join", &rest);
    let place = format!("6={}", nodes.address(6));
    nodes.does(5, &["members", "replace", &founder.to_string(), &place]);
    nodes.wait_removed(founder);
    let rest = [4, 5, 6];
    nodes.wait_members(&rest);
    // Restarted, with a configuration that is out of date, they know each other.
    nodes.kill(5);
    nodes.start(5);
    load.pause();
    nodes.wait_equal(&rest);
    nodes.compare_all(5, &rest);
    load.resume();

    // Five, of which two may be lost.
    for id in 7..=8 {
        nodes.begin(id, "join", &rest);
        add(&nodes, 4, id);
    }
    let five = [4, 5, 6, 7, 8];
    nodes.wait_members(&five);
    load.pause();
    nodes.wait_equal(&five);
    load.resume();
    let lost: Vec<u64> = [7, 8, 4].into_iter().filter(|id| *id != nodes.leader(&five)).collect();
    lost[..2].iter().for_each(|id| nodes.kill(*id));
    let left: Vec<u64> = five.into_iter().filter(|id| !lost[..2].contains(id)).collect();
    let alive = wait_redis(nodes.ports[left[0] as usize - 1]).ask(&[b"PING"]);
    assert!(alive.is_ok(), "clients are served by three of five");
    lost[..2].iter().for_each(|id| nodes.start(*id));
    load.pause();
    nodes.wait_equal(&five);
    nodes.compare_all(lost[0], &five);
    load.resume();
    for id in [7, 8] {
        nodes.does(5, &["members", "remove", &id.to_string()]);
        nodes.wait_removed(id);
    }
    nodes.wait_members(&rest);
    let leader = nodes.leader(&rest);
    let heir = rest.iter().copied().find(|id| *id != leader).unwrap();
    nodes.does(leader, &["members", "transfer", &heir.to_string()]);
    assert_eq!(nodes.leader(&rest), heir);
    // Down to one: the leader is removed last but one.
    let last = rest.iter().copied().find(|id| *id != heir).unwrap();
    let other = rest.iter().copied().find(|id| ![heir, last].contains(id)).unwrap();
    nodes.does(last, &["members", "remove", &other.to_string()]);
    nodes.wait_removed(other);
    let mut both = [last, heir];
    both.sort_unstable();
    nodes.wait_members(&both);
    load.pause();
    nodes.wait_equal(&both);
    nodes.compare_all(last, &both);
    load.resume();
    nodes.does(last, &["members", "remove", &heir.to_string()]);
    nodes.wait_removed(heir);
    nodes.wait_members(&[last]);
    nodes.check(load, last);
    let refused = nodes.skein(last, &["members", "remove", &last.to_string()]);
    assert_line(&refused, 2, &[&format!("replica {last} is the last one")]);
}

/// Files of an upgrade reach replicas whose configurations name none that has them.
#[test]
fn an_upgrade_reaches_members_that_no_configuration_names() {
    let mut nodes = Nodes::new();
    nodes.keep_data();
    nodes.begin(1, "found", &[1]);
    wait_redis(nodes.ports[0]).set("key", "value").unwrap();
    for id in 2..=3 {
        nodes.begin(id, "join", &[1]);
        nodes.does(1, &["members", "add", &format!("{id}={}", nodes.address(id))]);
    }
    let all = [1, 2, 3];
    nodes.wait_members(&all);
    nodes.wait_equal(&all);
    let program = nodes.place.path("redis").join("other-server");
    fs::copy("/usr/bin/redis-server", &program).unwrap();
    let args = nodes.hosts.setup.server[1..].to_vec();
    let mut words = vec!["upgrade", "--", program.to_str().unwrap()];
    words.extend(args.iter().map(String::as_str));
    let said = nodes.does(3, &words);
    assert!(said.contains("edition 2 is up"), "{said}");
    nodes.wait_equal(&all);
    let kept = wait_redis(nodes.ports[0]).get("key").unwrap();
    assert_eq!(kept.as_deref(), Some(&b"value"[..]));
    nodes.compare_all(3, &all);
}

#[test]
fn what_would_do_harm_is_refused_and_one_that_does_not_come_is_withdrawn() {
    let mut nodes = Nodes::three();
    nodes.wait_members(&[1, 2, 3]);
    let leader = nodes.leader(&[1, 2, 3]);
    // By a follower: it asks the leader.
    let asked = leader % 3 + 1;
    let (second, fourth) = (nodes.address(2), nodes.address(4));
    let refuse = |nodes: &Nodes, args: &[&str], why: &str| {
        let args: Vec<&str> = ["members"].iter().chain(args).copied().collect();
        assert_line(&nodes.skein(asked, &args), 2, &["cluster grows", why]);
    };
    refuse(&nodes, &["add", &format!("2={fourth}")], "replica 2 is a member already");
    refuse(&nodes, &["add", &format!("4={second}")], "replica 2 is at this address already");
    refuse(&nodes, &["remove", "9"], "replica 9 is not a member");
    refuse(&nodes, &["replace", "9", &format!("4={fourth}")], "replica 9 is not a member");
    refuse(&nodes, &["replace", "2", &format!("3={fourth}")], "replica 3 is a member already");
    refuse(&nodes, &["transfer", "9"], "replica 9 is not a member with a vote");
    assert_line(&nodes.skein(asked, &["members", "add", "4"]), 2, &["ID=ADDRESS"]);
    // Nobody is at that address.
    refuse(
        &nodes,
        &["add", &format!("4={fourth}"), "--timeout", "1"],
        "not done within 1 s: the leader has not heard of replica 4 yet",
    );
    nodes.wait_members(&[1, 2, 3]);
    // What joins must know the cluster, and a member.
    let config = nodes.config(4, &[]);
    let join = ["join", "--config", config.to_str().unwrap()];
    assert_line(&nodes.skein(4, &join), 2, &["`peers` names this replica only"]);
    let config = nodes.config(4, &[1]);
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, text.replace(&format!("cluster_id = \"{CLUSTER_ID}\"\n"), "")).unwrap();
    assert_line(&nodes.skein(4, &join), 2, &["must know the id of the cluster"]);
    let used = nodes.place.path("skein-1.toml");
    let output = nodes.skein(1, &["join", "--config", used.to_str().unwrap()]);
    assert_line(&output, 2, &["holds a log already"]);
    // With one of three down, no other may go.
    let down = asked % 3 + 1;
    let down = if down == leader { down % 3 + 1 } else { down };
    nodes.kill(down);
    wait_for_or(
        "the leader to miss it",
        || nodes.evidence(),
        || {
            let faults = nodes.status(leader)["replicas"][0]["faults"].to_string();
            faults.contains(&format!("silent_{down}")).then_some(())
        },
    );
    for id in [leader, asked] {
        refuse(&nodes, &["remove", &id.to_string()], "only 1 of 2 replicas would be connected");
    }
    nodes.does(asked, &["members", "remove", &down.to_string()]);
    let mut rest = [leader, asked];
    rest.sort_unstable();
    nodes.wait_members(&rest);
    nodes.wait_equal(&rest);
    nodes.compare_all(asked, &rest);
}

/// As docs/operating.md says: nothing is lost of what `skein run` had on one host.
#[test]
fn what_skein_run_has_on_one_host_grows_to_three() {
    let mut nodes = Nodes::new();
    let port = free_port();
    let publish = format!("127.0.0.1:{port}:6379");
    let options = ["--publish", &publish];
    let server: Vec<&str> = nodes.hosts.setup.server.iter().map(String::as_str).collect();
    let mut alone = Cluster::start_in(Place::new(), port, &options, &server);
    alone.wait_ready();
    let mut client = wait_redis(port);
    for key in 0..100 {
        client.set(&format!("key:{key}"), &key.to_string()).unwrap();
    }
    drop(client);
    let mut command = alone.place.skein();
    command.current_dir(alone.place.dir.path());
    command.args(["checkpoint", "export", "moved.image", "--name", "t"]);
    let done = command.output().unwrap();
    assert!(done.status.success(), "{done:?}\n{}", alone.evidence());
    let stopped = alone.place.run(&["stop", "--name", "t"]);
    assert!(stopped.status.success(), "{stopped:?}");
    assert_eq!(alone.wait_end(), Some(0), "{}", alone.evidence());
    let image = nodes.place.path("moved.image");
    fs::copy(alone.place.path("moved.image"), &image).unwrap();
    // The server is given what it was given.
    let written = fs::read_to_string(alone.place.path("data/node-1/node.toml")).unwrap();
    let had: toml::Table = written.parse().unwrap();
    let others = ["output", "program", "args"];
    let given = had["server"].as_table().unwrap().iter();
    let given = given.filter(|(key, _)| !others.contains(&key.as_str()));
    let lines = given.map(|(key, value)| format!("{key} = {value}\n"));
    nodes.hosts.setup.server_lines = lines.collect::<String>() + "[tuning]\n";
    nodes.hosts.setup.server_lines += &toml::to_string(&had["tuning"]).unwrap();
    drop(alone);

    // Who founds a cluster need not give it an id; who joins is told it.
    nodes.hosts.setup.cluster_id = None;
    let config = nodes.config(1, &[1]);
    let words =
        ["found", "--config", config.to_str().unwrap(), "--import", image.to_str().unwrap()];
    nodes.does(1, &words);
    nodes.start(1);
    let load = Load::start(3, nodes.clients(), || {});
    nodes.wait_members(&[1]);
    let shown = nodes.does(1, &["members"]);
    let cluster_id = shown.split_once("cluster_id ").and_then(|(_, id)| id.split_once(';'));
    nodes.hosts.setup.cluster_id = cluster_id.map(|(id, _)| id.to_owned());
    for id in 2..=3 {
        nodes.begin(id, "join", &[1]);
        nodes.does(1, &["members", "add", &format!("{id}={}", nodes.address(id))]);
    }
    let all = [1, 2, 3];
    nodes.wait_members(&all);
    load.pause();
    nodes.wait_equal(&all);
    load.resume();
    nodes.kill(1);
    let mut client = wait_redis(nodes.ports[1]);
    for key in 0..100 {
        let found = client.say(&format!("GET key:{key}"));
        assert_eq!(found, Reply::Bulk(key.to_string().into_bytes()), "{}", nodes.evidence());
    }
    nodes.start(1);
    nodes.check(load, 3);
    nodes.compare_all(2, &all);
}

/// A new host needs Skein and nothing else, whatever its replica does: the program comes from the others.
#[test]
fn hosts_without_the_program_join_and_take_over() {
    let mut nodes = Nodes::new();
    let program = nodes.place.path("own-redis");
    fs::copy("/usr/bin/redis-server", &program).unwrap();
    nodes.hosts.setup.server[0] = program.to_str().unwrap().to_owned();
    nodes.begin(1, "found", &[1]);
    wait_redis(nodes.ports[0]).set("key", "value").unwrap();
    let data = nodes.hosts.data(1);
    let pinned = || {
        let listed = nodes.does(1, &["base", "ls", "--data", data.to_str().unwrap()]);
        listed.contains("/own-redis\n").then_some(())
    };
    wait_for_or("the program to be pinned", || nodes.evidence(), pinned);
    fs::remove_file(&program).unwrap();
    for (id, kind) in [(2, "active"), (3, "passive"), (4, "witness")] {
        nodes.begin(id, "join", &[1]);
        let place = format!("{id}={}", nodes.address(id));
        nodes.does(1, &["members", "add", &place, "--kind", kind]);
    }
    nodes.wait_members(&[1, 2, 3, 4]);
    nodes.wait_equal(&[1, 2]);
    nodes.compare_all(4, &[1, 2]);
    nodes.does(1, &["members", "remove", "1"]);
    nodes.wait_removed(1);
    nodes.wait_members(&[2, 3, 4]);
    // The passive one begins a server.
    nodes.kill(2);
    let mut client = wait_redis(nodes.ports[2]);
    assert_eq!(client.say("GET key"), Reply::Bulk(b"value".to_vec()), "{}", nodes.evidence());
    nodes.start(2);
    client.set("other", "value").unwrap();
    drop(client);
    nodes.wait_members(&[2, 3, 4]);
}

/// Files of an upgrade that its log knows nothing of are at a passive replica before nobody else is left who has them.
#[test]
fn a_passive_replica_filled_behind_an_upgrade_takes_over() {
    let mut nodes = Nodes::new();
    nodes.keep_data();
    nodes.begin(1, "found", &[1]);
    wait_redis(nodes.ports[0]).set("key", "value").unwrap();
    let program = nodes.place.path("redis").join("other-server");
    fs::copy("/usr/bin/redis-server", &program).unwrap();
    let mut words = vec!["upgrade".to_owned(), "--".to_owned()];
    words.push(program.to_str().unwrap().to_owned());
    words.extend_from_slice(&nodes.hosts.setup.server[1..]);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let said = nodes.does(1, &words);
    assert!(said.contains("edition 2 is up"), "{said}");
    for (id, kind) in [(2, "passive"), (3, "witness")] {
        nodes.begin(id, "join", &[1]);
        let place = format!("{id}={}", nodes.address(id));
        nodes.does(1, &["members", "add", &place, "--kind", kind]);
    }
    nodes.wait_members(&[1, 2, 3]);
    // The passive one's disk is lost, and the log begins behind the older of two images, which know what kind it is.
    nodes.kill(2);
    let data = nodes.hosts.data(2);
    fs::remove_dir_all(&data).unwrap();
    let logs = [1, 2].map(|id| nodes.hosts.log(id));
    let newest = |log, what: &str| {
        let text = fs::read_to_string(log).unwrap_or_default();
        let line = text.lines().rfind(|line| line.contains(what))?;
        serde_json::from_str::<serde_json::Value>(line).unwrap()["index"].as_u64()
    };
    let mut images = Vec::new();
    for n in 0..3 {
        wait_redis(nodes.ports[0]).set("other", &n.to_string()).unwrap();
        nodes.does(1, &["checkpoint", "create"]);
        images.push(newest(&logs[0], "\"image_taken\"").unwrap());
    }
    let forgot =
        || newest(&logs[0], "\"log_forgot\"").filter(|index| *index >= images[0]).map(drop);
    wait_for_or("the upgrade to be forgotten", || nodes.evidence(), forgot);
    nodes.begin(2, "rejoin", &[1, 3]);
    let votes = || {
        let replica = nodes.status(2)["replicas"][0].clone();
        (replica["state"] == "passive" && replica["role"] == "follower").then_some(())
    };
    wait_for_or("the passive replica to be in step", || nodes.evidence(), votes);
    let listed = || nodes.skein(2, &["base", "ls", "--data", data.to_str().unwrap()]).stdout;
    let has_it = || String::from_utf8_lossy(&listed()).contains("/other-server\n").then_some(());
    wait_for_or("the upgrade's files", || nodes.evidence(), has_it);
    assert!(newest(&logs[1], "\"log_reset\"") >= Some(images[0]), "{}", nodes.evidence());
    // Once it has a newer image, its vote is agreed on, too.
    wait_redis(nodes.ports[0]).set("other", "3").unwrap();
    nodes.does(1, &["checkpoint", "create"]);
    let last = newest(&logs[0], "\"image_taken\"");
    let came = || (newest(&logs[1], "\"image_received\"") >= last).then_some(());
    wait_for_or("the newest image to be fetched", || nodes.evidence(), came);
    fs::remove_file(&program).unwrap();
    nodes.kill(1);
    let answers = || Redis::connect(nodes.ports[1], PATIENCE).ok()?.get("key").ok()?;
    let kept = wait_for_or("the passive replica to serve", || nodes.evidence(), answers);
    assert_eq!(kept, b"value", "{}", nodes.evidence());
    nodes.start(1);
    nodes.wait_members(&[1, 2, 3]);
}

/// An image that comes as fast as is allowed needs longer than the limit, which counts from the last part of it.
#[test]
fn one_whose_image_takes_long_is_not_withdrawn_while_it_comes() {
    const LIMIT_S: u64 = 6;
    const RATE: u64 = 1 << 20;
    let mut nodes = Nodes::new();
    nodes.hosts.setup.checkpoint = format!("log_entries = 300\nfetch_bytes_per_s = {RATE}");
    nodes.begin(1, "found", &[1]);
    let mut client = wait_redis(nodes.ports[0]);
    // Nothing packs it.
    let mut word = 88_172_645_463_325_252_u64;
    for n in 0..(LIMIT_S + 4) {
        let words = std::iter::from_fn(|| {
            word ^= word << 13;
            word ^= word >> 7;
            word ^= word << 17;
            Some(word.to_le_bytes())
        });
        let value: Vec<u8> = words.take(RATE as usize / 8).flatten().collect();
        assert!(client.ask(&[b"SET", format!("key:{n}").as_bytes(), value.as_slice()]).is_ok());
    }
    let own = |key: &str| nodes.status(1)["replicas"][0][key].as_u64().unwrap_or_default();
    wait_for_or(
        "a log that begins behind an image",
        || nodes.evidence(),
        || {
            nodes.does(1, &["checkpoint", "create"]);
            client.set("other", "value").unwrap();
            (own("first_entry") > 1).then_some(())
        },
    );
    nodes.begin(2, "join", &[1]);
    let runs = || nodes.skein(2, &["members"]).status.success().then_some(());
    wait_for_or("the node to run", || nodes.evidence(), runs);
    let place = format!("2={}", nodes.address(2));
    let limit = LIMIT_S.to_string();
    let said = nodes.does(1, &["members", "add", &place, "--timeout", &limit]);
    assert!(said.contains("is a member and votes"), "{said}");
    let text = fs::read_to_string(nodes.hosts.log(2)).unwrap();
    let received = text.lines().find(|line| line.contains("\"image_received\"")).unwrap();
    let received: serde_json::Value = serde_json::from_str(received).unwrap();
    assert!(received["bytes"].as_u64().unwrap() > (LIMIT_S + 2) * RATE, "{received}");
    nodes.wait_members(&[1, 2]);
}

/// Whichever of them is lost, and stays away, the other two go on: so the witness votes.
#[test]
fn two_actives_and_a_witness_go_on_without_any_one() {
    let mut nodes = Nodes::new();
    nodes.begin(1, "found", &[1]);
    wait_redis(nodes.ports[0]).set("key", "value").unwrap();
    for (id, kind) in [(2, "active"), (3, "witness")] {
        nodes.begin(id, "join", &[1]);
        let place = format!("{id}={}", nodes.address(id));
        nodes.does(1, &["members", "add", &place, "--kind", kind]);
    }
    let all = [1, 2, 3];
    nodes.wait_members(&all);
    nodes.wait_equal(&[1, 2]);
    for lost in [3, 1, 2] {
        nodes.kill(lost);
        let there = if lost == 1 { 2 } else { 1 };
        let port = nodes.ports[there - 1];
        for n in 0..100 {
            let write = || wait_redis(port).set(&format!("{lost}-{n}"), "value").ok();
            wait_for_or("a write", || nodes.evidence(), write);
        }
        nodes.start(lost);
        nodes.wait_members(&all);
        nodes.wait_equal(&[1, 2]);
    }
    let counted = wait_redis(nodes.ports[1]).say("DBSIZE");
    assert_eq!(counted, Reply::Int(301), "{}", nodes.evidence());
    nodes.compare_all(3, &[1, 2]);
}

/// What it knows has passed: the entries behind its last are forgotten, a member is another one, and the server has other arguments.
#[test]
fn a_replica_that_was_away_for_long_comes_back() {
    let mut nodes = Nodes::new();
    nodes.keep_data();
    for id in 1..=3 {
        nodes.begin(id, "found", &[1, 2, 3]);
    }
    nodes.wait_members(&[1, 2, 3]);
    wait_redis(nodes.ports[0]).set("first", "value").unwrap();
    nodes.wait_equal(&[1, 2, 3]);
    let last = nodes.own(3, "commit_index");
    nodes.kill(3);
    nodes.write_until_forgotten(&[1, 2], last);
    let args = nodes.hosts.setup.server[1..].to_vec();
    let mut words = vec!["upgrade", "--args"];
    words.extend(args.iter().map(String::as_str));
    let said = nodes.does(1, &[&words[..], &["--maxmemory", "77mb"]].concat());
    assert!(said.contains("edition 2 is up"), "{said}");
    nodes.begin(4, "join", &[1]);
    nodes.does(1, &["members", "replace", "2", &format!("4={}", nodes.address(4))]);
    nodes.wait_removed(2);
    nodes.start(3);
    let all = [1, 3, 4];
    nodes.wait_members(&all);
    nodes.wait_equal(&all);
    nodes.compare_all(3, &all);
    let log = fs::read_to_string(nodes.hosts.log(3)).unwrap();
    assert!(log.contains("\"event\":\"image_received\""), "{}", nodes.evidence());
    // It serves alone with the new one.
    nodes.kill(1);
    let mut client = wait_redis(nodes.ports[2]);
    for key in ["first", "key:1"] {
        assert_eq!(client.get(key).unwrap().as_deref(), Some(&b"value"[..]), "{key}");
    }
    let most = client.say("CONFIG GET maxmemory");
    assert!(format!("{most:?}").contains(&format!("{:?}", b"80740352")), "{most:?}");
}

/// Images and the rest of the logs are enough, and nothing acknowledged is lost, while images are taken and logs forget.
#[test]
fn all_replicas_are_killed_at_once_again_and_again() {
    const ALL: [u64; 3] = [1, 2, 3];
    let mut nodes = Nodes::three();
    let load = Load::start(3, nodes.clients(), || {});
    let mut forgotten = [1; 3];
    for _ in 0..4 {
        let first = |id: u64| nodes.status(id)["replicas"][0]["first_entry"].as_u64();
        let forgets = || {
            let now = ALL.map(|id| first(id).unwrap_or_default());
            let all = now.iter().zip(forgotten).all(|(now, before)| *now > before);
            all.then_some(now)
        };
        forgotten = wait_for_or("all logs to forget", || nodes.evidence(), forgets);
        ALL.into_iter().for_each(|id| nodes.kill(id));
        let killed = Instant::now();
        ALL.into_iter().for_each(|id| nodes.start(id));
        let answered = || (load.last_answer() > killed).then_some(());
        wait_for_or("an answer", || nodes.evidence(), answered);
    }
    load.pause();
    nodes.wait_equal(&ALL);
    for id in ALL {
        let log = fs::read_to_string(nodes.hosts.log(id)).unwrap();
        let restored = log.matches("\"event\":\"restoring\"").count();
        assert!(restored >= 4, "node {id}: {restored} restored\n{}", nodes.evidence());
    }
    load.resume();
    nodes.check(load, 1);
    nodes.compare_all(1, &ALL);
}

/// All ways to change members, to others than 1, 2 and 3.
const CHANGES: [&[&str]; 3] =
    [&["add", "4=127.0.0.1:7100"], &["remove", "3"], &["replace", "3", "4=127.0.0.1:7100"]];

/// The nodes of `skein run` stay as many as they are, wherever their logs are; leadership moves.
#[test]
fn skein_run_keeps_its_replicas() {
    for options in [&[][..], &["--durability", "memory"]] {
        let mut cluster = common::cluster::Cluster::start(options);
        cluster.wait_ready();
        let status = cluster.wait_status(0);
        let run =
            |words: &[&str]| cluster.place.run(&[&["members"], words, &["--name", "t"]].concat());
        for change in CHANGES {
            let why = "'skein run' keeps the number of its replicas";
            assert_line(&run(change), 2, &["cluster t", why]);
        }
        let listed = String::from_utf8_lossy(&run(&[]).stdout).into_owned();
        assert_eq!(listed.lines().filter(|line| line.ends_with(" yes")).count(), 3, "{listed}");
        let next = status["leader"].as_u64().unwrap() % 3 + 1;
        assert!(run(&["transfer", &next.to_string()]).status.success(), "{}", cluster.evidence());
        assert_eq!(cluster.wait_status(0)["leader"], next, "{}", cluster.evidence());
        cluster.wait_memory_agreed();
        cluster.signal(nix::sys::signal::Signal::SIGINT);
        assert_eq!(cluster.wait_end(), Some(0), "{}", cluster.evidence());
    }
}

#[test]
fn clients_of_a_follower_that_continues_from_an_image_are_served() {
    let mut nodes = Nodes::new();
    for id in 1..=3 {
        nodes.begin(id, "found", &[1, 2, 3]);
    }
    let mut redis = wait_redis(nodes.ports[0]);
    let leader = nodes.leader(&[1, 2, 3]);
    let follower = leader % 3 + 1;
    let mut written = 0;
    wait_for_or(
        "an image of the follower that its log begins behind",
        || nodes.evidence(),
        || {
            written += 1;
            // On a busy host another one may lead meanwhile: then connections end.
            if redis.set("key", &written.to_string()).is_err() {
                redis = wait_redis(nodes.ports[0]);
                return None;
            }
            let replica = nodes.status(follower)["replicas"][0].clone();
            (replica["first_entry"].as_u64()? > 1).then_some(())
        },
    );
    nodes.kill(follower);
    nodes.start(follower);
    let log = nodes.place.path(&format!("node-{follower}.log"));
    let restores = || fs::read_to_string(&log).unwrap().contains(r#""event":"restoring""#);
    wait_for_or("the restore", || nodes.evidence(), || restores().then_some(()));
    let mut redis = wait_redis(nodes.ports[follower as usize - 1]);
    assert_eq!(redis.say("GET key").text(), written.to_string());
    nodes.compare_all(follower, &[1, 2, 3]);
}
