//! Too little memory while an image is taken, received, merged or restored: the image fails by name, or the node or its server dies and comes back; clients are served on, what they
//! were told is kept, and the next image works.

mod common;

use std::fs;

use common::cluster::{Cluster, wait_for_or};
use common::limits::{Group, limit_address_space};
use common::load::Load;
use common::real::{ANSWER, Random, Real};
use common::resp::{Redis, Reply};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

const MIB: u64 = 1 << 20;
/// What the server holds, of which the first image needs a copy.
const VALUES: u64 = 48;
/// What a node has left for it.
const LEFT_BYTES: u64 = 24 * MIB;
const CLIENTS: usize = 3;

/// redis with much data, and clients that push words without a pause.
fn loaded() -> (Real, Load) {
    fill_and_load(Real::redis(&[], &["--save", ""]))
}

fn fill_and_load(real: Real) -> (Real, Load) {
    fill(&real);
    let load = Load::start(CLIENTS, vec![([127, 0, 0, 1], real.port()).into()], || {});
    (real, load)
}

/// Gives the server other data.
fn fill(real: &Real) {
    let mut redis = Redis::connect(real.port(), ANSWER).unwrap();
    let mut random = Random::new(7);
    for key in 0..VALUES {
        let value = random.bytes(MIB as usize);
        redis.ask(&[b"SET", format!("key-{key}").as_bytes(), &value]).unwrap();
    }
}

/// What clients were told is there, once each.
fn check(real: &Real, load: Load) {
    let books = load.end();
    let mut redis = Redis::connect(real.port(), ANSWER).unwrap();
    for (client, books) in books.iter().enumerate() {
        let key = Load::key(client);
        let Reply::Array(found) = redis.ask(&["LRANGE", &key, "0", "-1"]).unwrap() else {
            panic!("no list of client {client}")
        };
        let found: Vec<String> = found.iter().map(Reply::text).collect();
        assert!(!found.is_empty());
        books.assert_found(&found);
    }
}

/// `skein checkpoint create` on a replica: what it says, if it has an image; or why not.
fn create(real: &Real, id: u64) -> Result<Value, String> {
    let id = id.to_string();
    let words = ["checkpoint", "create", "--name", "t", "--json", "--replica", &id];
    let output = real.cluster.place.run(&words);
    match output.status.success() {
        true => Ok(serde_json::from_slice(&output.stdout).unwrap()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

fn wait_created(real: &Real, id: u64) -> Value {
    // A server that is behind does not stand at once.
    wait_for_or("an image", || real.cluster.evidence(), || create(real, id).ok())
}

fn node_pid(real: &Real, id: u64) -> i32 {
    let status = real.cluster.wait_status(0);
    Cluster::replica(&status, id)["node_pid"].as_i64().unwrap() as i32
}

/// Its node is killed, and its server continues from the image.
fn continue_from_it(real: &Real, id: u64) {
    let evidence = || real.cluster.evidence();
    let counts = || {
        let words = ["checkpoint", "ls", "--name", "t", "--json"];
        let listed: Value = serde_json::from_slice(&real.cluster.place.run(&words).stdout).ok()?;
        let row = listed.as_array()?.iter().find(|row| row["replica"] == id)?.clone();
        let is_confirmed = |image: &Value| image["confirmed"] == true;
        row["images"].as_array()?.iter().any(is_confirmed).then_some(())
    };
    wait_for_or("the image to count", evidence, counts);
    kill(Pid::from_raw(node_pid(real, id)), Signal::SIGKILL).unwrap();
    let restores = || {
        let log = real.cluster.place.path(&format!("data/node-{id}/node.log"));
        let log = fs::read_to_string(log).unwrap();
        log.contains(r#""event":"restoring""#).then_some(())
    };
    wait_for_or("it to continue from the image", evidence, restores);
    real.cluster.wait_status(0);
}

fn a_follower(real: &Real) -> u64 {
    Cluster::leader(&real.cluster.wait_status(0)).0 % 3 + 1
}

/// Its address space ends.
#[test]
fn an_image_for_which_there_is_no_memory_fails_by_name_and_the_next_one_works() {
    let (real, load) = loaded();
    let id = a_follower(&real);
    let node = node_pid(&real, id);
    limit_address_space(node, Some(LEFT_BYTES));
    for _ in 0..2 {
        // A server that is behind does not stand at once.
        let refused = || create(&real, id).unwrap_err();
        let named = |said: String| said.contains("Cannot allocate memory").then_some(said);
        let said = wait_for_or("a refusal", || real.cluster.evidence(), || named(refused()));
        let line = format!("replica {id}: memory for an image: Cannot allocate memory");
        assert!(said.contains(&line) && said.lines().count() == 1, "{said}");
    }
    assert_eq!(node_pid(&real, id), node, "{}", real.cluster.evidence());
    limit_address_space(node, None);
    wait_created(&real, id);
    continue_from_it(&real, id);
    check(&real, load);
    real.end();
}

/// The kernel ends a node that wants more.
#[test]
fn a_node_that_ends_for_want_of_memory_comes_back_and_the_next_image_works() {
    let (real, load) = loaded();
    let id = a_follower(&real);
    let node = node_pid(&real, id);
    let Some(group) = Group::of_memory(node, LEFT_BYTES) else {
        println!("skipped: control groups cannot be written");
        return;
    };
    let ended = |said: String| said.contains("its node ended before it answered").then_some(said);
    let attempt = || ended(create(&real, id).unwrap_err());
    let said = wait_for_or("its end", || real.cluster.evidence(), attempt);
    assert!(said.contains(&format!("replica {id}: ")) && said.lines().count() == 1, "{said}");
    real.cluster.wait_said(&format!("node {id} died (killed by SIGKILL)"));
    assert_ne!(node_pid(&real, id), node);
    drop(group);
    wait_created(&real, id);
    continue_from_it(&real, id);
    check(&real, load);
    real.end();
}

/// A node that starts again, and the server that continues from an image there, have less memory than the server needs: the node ends again and again, which is said in one line each time; the
/// others serve on. When there is memory the replica is in step.
#[test]
fn a_server_for_whose_image_there_is_no_memory_comes_back_when_there_is() {
    let (real, load) = loaded();
    let id = a_follower(&real);
    real.image_that_counts(id, || ());
    // What is started from now on is in it, too.
    let Some(group) = Group::of_memory(real.cluster.pid(), LEFT_BYTES) else {
        println!("skipped: control groups cannot be written");
        return;
    };
    let line = format!("skein: t: node {id} died (killed by SIGKILL)");
    let ends = || real.cluster.said().lines().filter(|said| *said == line).count();
    kill(Pid::from_raw(node_pid(&real, id)), Signal::SIGKILL).unwrap();
    // The first one is the test's.
    wait_for_or(
        "ends for want of memory",
        || real.cluster.evidence(),
        || (ends() >= 3).then_some(()),
    );
    let answered = load.last_answer();
    let serves = || (load.last_answer() > answered).then_some(());
    wait_for_or("an answer of the others", || real.cluster.evidence(), serves);
    let (status, code) = real.cluster.status();
    assert_ne!(code, Some(0), "{status:#}");
    group.raise_memory(1 << 30);
    real.cluster.wait_status(0);
    assert!(real.restored(id).is_some(), "{}", real.cluster.evidence());
    check(&real, load);
    real.end();
    drop(group);
}

/// An image is received through little memory, however large it is; a server that continues from it there has too little, and its node ends: what it was is there all the same.
#[test]
fn a_passive_replica_receives_an_image_with_little_memory_and_loses_nothing_with_too_little() {
    const LITTLE_BYTES: u64 = 16 * MIB;
    let real = Real::redis(&["--mode", "standby"], &["--save", ""]);
    let leads = || {
        let (status, code) = real.cluster.status();
        (code == Some(0) && status["leader"] == 1).then_some(status)
    };
    let status = wait_for_or("replica 1 to lead", || real.cluster.evidence(), leads);
    fill(&real);
    let load = Load::start(CLIENTS, vec![([127, 0, 0, 1], real.port()).into()], || {});
    let node = |status: &Value, id| Cluster::replica(status, id)["node_pid"].as_i64().unwrap();
    let (active, passive) = (node(&status, 1), node(&status, 2));
    let Some(_group) = Group::of_memory(passive as i32, LITTLE_BYTES) else {
        println!("skipped: control groups cannot be written");
        return;
    };
    let entry = real.take_image(1)["index"].clone();
    let has_it = || real.images(2)?.iter().any(|image| image["index"] == entry).then_some(());
    wait_for_or("the passive replica to have it", || real.cluster.evidence(), has_it);
    assert_eq!(i64::from(node_pid(&real, 2)), passive, "{}", real.cluster.evidence());
    kill(Pid::from_raw(active as i32), Signal::SIGKILL).unwrap();
    real.cluster.wait_said("node 1 died (killed by SIGKILL)");
    real.cluster.wait_said("node 2 died (killed by SIGKILL)");
    wait_for_or("replica 1 to lead", || real.cluster.evidence(), leads);
    check(&real, load);
    real.stop();
}

/// Where nobody tells which pages it has written, nothing is read before it stands.
#[test]
fn a_server_that_cannot_fork_for_an_image_is_read_while_it_stands_and_forks_for_the_next() {
    let (real, load) = fill_and_load(Real::redis_with_pages_compared());
    let id = a_follower(&real);
    let status = real.cluster.wait_status(0);
    let server = Cluster::replica(&status, id)["server_pid"].as_i64().unwrap() as i32;
    let threads = fs::read_dir(format!("/proc/{server}/task")).unwrap().count() as u64;
    let Some(group) = Group::of_processes(server, threads) else {
        println!("skipped: control groups cannot be written");
        return;
    };
    let image = wait_created(&real, id);
    assert_eq!(image["how"], "standstill", "{}", real.cluster.evidence());
    let log = fs::read_to_string(real.cluster.place.path(&format!("data/node-{id}/node.log")));
    let why = r#""event":"image_without_fork""#;
    assert!(log.unwrap().contains(why), "{}", real.cluster.evidence());
    fs::write(group.path().join("pids.max"), "max").unwrap();
    fill(&real);
    assert_eq!(wait_created(&real, id)["how"], "fork", "{}", real.cluster.evidence());
    check(&real, load);
    real.end();
}
