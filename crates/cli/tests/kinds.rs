//! Active and passive replicas and witnesses of a real server: leaders die under load again and again, no acknowledged write is lost, and leadership comes
//! back to the active replica.
//!
//! `SKEIN_KILLS=200` kills so often instead of [`KILLS`] times; the outages are printed with `--nocapture`.

mod common;

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use common::assert_line;
use common::cluster::{Cluster, free_port, wait_for_or};
use common::load::Load;
use common::postgres::Postgres;
use common::real::{ANSWER, Real};
use common::resp::{Redis, Reply};
use common::story::{Books, PATIENCE_OF_A_CLIENT, under_load};
use common::web::{assert_uploads, nginx_with, pages_and_uploads, tree, uploads};
use common::{Place, postgres_server, wait_for};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

const KILLS: usize = 20;
const CLIENTS: usize = 4;
/// An image so often.
const IMAGE_EVERY: usize = 5;

fn start(options: &[&str]) -> (Real, Load) {
    let real = Real::redis(options, &["--save", ""]);
    let at: SocketAddr = ([127, 0, 0, 1], real.port()).into();
    (real, Load::start(CLIENTS, vec![at], || {}))
}

fn end(pid: &Value) {
    kill(Pid::from_raw(pid.as_i64().unwrap() as i32), Signal::SIGKILL).unwrap();
}

/// Waits until a replica leads and serves, and all are well; answers the status.
#[track_caller]
fn wait_led_by(real: &Real, wanted: u64) -> Value {
    let what = format!("replica {wanted} to lead, and all to be well");
    let evidence = || format!("{}\n{:#}", real.cluster.evidence(), real.cluster.status().0);
    wait_for_or(&what, evidence, || {
        let (status, code) = real.cluster.status();
        (code == Some(0) && status["leader"] == wanted).then_some(status)
    })
}

/// Waits until replica 1 leads, and the server of replica 2 has ended, which may have led before.
#[track_caller]
fn wait_to_rest(real: &Real) -> Value {
    wait_for("replica 2 to rest", || {
        let status = wait_led_by(real, 1);
        (Cluster::replica(&status, 2)["state"] == "passive").then_some(status)
    })
}

/// Waits until clients are answered again, and answers how long they were not.
fn outage(real: &Real, load: &Load, since: Instant) -> Duration {
    // Answers that were on their way may still arrive.
    let served = || {
        let (status, _) = real.cluster.status();
        (load.last_answer() > since + Duration::from_millis(50) && status["leader"].is_u64())
            .then_some(())
    };
    wait_for_or("an answer", || real.cluster.evidence(), served);
    load.outage_since(since)
}

/// Every acknowledged word is there, in each client's list.
fn assert_kept(real: &Real, books: &[Books]) {
    let mut redis = wait_for("a connection", || Redis::connect(real.port(), ANSWER).ok());
    let mut kept = 0;
    for (client, books) in books.iter().enumerate() {
        let list = redis.ask(&["LRANGE", &Load::key(client), "0", "-1"]).unwrap();
        let Reply::Array(list) = list else { panic!("{list:?}") };
        let found: Vec<String> = list.iter().map(Reply::text).collect();
        books.assert_found(&found);
        kept += books.kept.len();
    }
    println!("{kept} acknowledged writes, all there");
}

fn image(real: &Real, replica: u64) {
    let replica = replica.to_string();
    let words = ["checkpoint", "create", "--json", "--name", "t", "--replica", &replica];
    let output = real.cluster.place.run(&words);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    // An idle moment may have no newer entry.
    assert!(output.status.success() || said.contains("already"), "{said}");
    let taken = String::from_utf8_lossy(&output.stdout);
    print!("{taken}");
}

/// The entry of a replica's newest image.
fn newest(status: &Value, replica: u64) -> u64 {
    Cluster::replica(status, replica)["images"]["index"].as_u64().unwrap()
}

#[test]
fn standby_loses_its_leader_again_and_again_and_no_write() {
    let kills = std::env::var("SKEIN_KILLS").map_or(KILLS, |n| n.parse().unwrap());
    let (real, load) = start(&["--mode", "standby"]);
    // Replica 2 may have led first.
    let status = wait_to_rest(&real);
    assert_eq!(status["mode"], "standby");
    for (id, kind, state) in
        [(1, "active", "running"), (2, "passive", "passive"), (3, "witness", "witness")]
    {
        let row = Cluster::replica(&status, id);
        assert_eq!((&row["kind"], &row["state"]), (&kind.into(), &state.into()));
        assert_eq!(row["server_pid"] == 0, id != 1, "only the leader's server runs");
    }
    let mut outages = Vec::new();
    for n in 0..kills {
        let status = wait_led_by(&real, 1);
        if n % IMAGE_EVERY == 0 {
            image(&real, 1);
            let evidence = || format!("{}\n{:#}", real.cluster.evidence(), real.cluster.status().0);
            wait_for_or("the passive replica to have the image", evidence, || {
                let (status, _) = real.cluster.status();
                let (ours, theirs) = (newest(&status, 1), newest(&status, 2));
                (ours > 0 && ours == theirs).then_some(())
            });
        }
        let active = Cluster::replica(&status, 1);
        let began = Instant::now();
        // Its server alone, or its node.
        end(&active[if n % 4 == 3 { "server_pid" } else { "node_pid" }]);
        outages.push(outage(&real, &load, began));
        println!("loss {n}: no answer for {} ms", outages[outages.len() - 1].as_millis());
        if n % 5 == 4 {
            // The next leader, too, as soon as it is one.
            let leader = wait_for("a leader", || {
                let (status, _) = real.cluster.status();
                status["leader"]
                    .as_u64()
                    .map(|id| Cluster::replica(&status, id)["node_pid"].clone())
            });
            let began = Instant::now();
            if leader.as_i64().is_some_and(|pid| pid > 1) {
                end(&leader);
                outages.push(outage(&real, &load, began));
            }
        }
    }
    wait_to_rest(&real);
    let books = load.end();
    assert_kept(&real, &books);
    outages.sort_unstable();
    let at = |share: usize| outages[(outages.len() - 1) * share / 100].as_millis();
    println!(
        "{} losses of a leader under load, all recovered: no answer for {} ms (median), {} ms (90 %), {} ms at most",
        outages.len(),
        at(50),
        at(90),
        at(100)
    );
    let log = fs::read_to_string(real.cluster.place.path("data/node-2/node.log")).unwrap();
    assert!(log.contains(r#""event":"restoring""#), "it continued from images");
    let said = real.cluster.said();
    assert!(!said.contains("diverged"), "{said}");
}

/// No image is taken but those that are asked for.
const STANDBY: [&str; 4] = ["--mode", "standby", "--set", "checkpoint.enabled=false"];
/// So often the leader of a server of many processes is lost.
const LOSSES: usize = 2;

/// How often a replica's server has begun from an image.
fn restorings(real: &Real, replica: u64) -> usize {
    let log = real.cluster.place.path(&format!("data/node-{replica}/node.log"));
    fs::read_to_string(log).unwrap().matches(r#""event":"restoring""#).count()
}

/// Under load: an image of a server with so many processes, which the passive replica has soon, and the death of its leader's node, as soon as there is more than the image has. The passive replica goes on from
/// its image and its log, until the other one, passive meanwhile, has done so, too; again and again.
#[track_caller]
fn processes_are_taken_over(real: &Real, processes: u64) {
    let evidence = || format!("{}\n{:#}", real.cluster.evidence(), real.cluster.status().0);
    for loss in 0..LOSSES {
        wait_to_rest(real);
        let entry = real.take_image(1)["index"].clone();
        let image = wait_for("its images", || real.images(1)?.pop());
        assert_eq!(image["index"], entry, "{image}");
        println!("loss {loss}: the image has {} processes", image["processes"]);
        assert!(image["processes"].as_u64() >= Some(processes), "{image}");
        wait_for_or("the passive replica to have the image, and more", evidence, || {
            let (status, _) = real.cluster.status();
            let executed = Cluster::replica(&status, 1)["applied_index"].as_u64()?;
            (entry == newest(&status, 2) && executed > entry.as_u64()? + 20).then_some(())
        });
        let status = wait_to_rest(real);
        let rested = restorings(real, 2);
        end(&Cluster::replica(&status, 1)["node_pid"]);
        wait_for_or("the passive replica to take over", evidence, || {
            (restorings(real, 2) > rested).then_some(())
        });
        assert_eq!(real.restored(2).as_ref(), Some(&entry), "{}", evidence());
        real.cluster.wait_said("node 1 died");
        wait_to_rest(real);
        // The one that was lost as well.
        assert_eq!(real.restored(1), Some(entry), "{}", evidence());
    }
    let said = real.cluster.said();
    assert!(!said.contains("diverged"), "{said}");
}

#[test]
fn processes_of_postgresql_are_taken_over_from_an_image_and_the_log() {
    let real = postgres_server::start_with(&STANDBY, &[]);
    let connect = |patience| Postgres::connect(real.port(), patience);
    wait_to_rest(&real);
    let mut sql = wait_for("a connection", || connect(ANSWER).ok());
    sql.query(
        "CREATE TABLE kept (word TEXT PRIMARY KEY, made TIMESTAMPTZ DEFAULT clock_timestamp());
         CREATE TABLE count (all_words BIGINT); INSERT INTO count VALUES (0)",
    )
    .unwrap();
    let insert = |sql: &mut Postgres, word: &str| {
        sql.query("BEGIN")?;
        sql.query(&format!("INSERT INTO kept (word) VALUES ('{word}')"))?;
        sql.query("UPDATE count SET all_words = all_words + 1")?;
        sql.query("COMMIT").map(drop)
    };
    // Its first process and five that it always has; clients have one each.
    let blow = || processes_are_taken_over(&real, 6);
    let books = under_load(&real, CLIENTS, 100, || connect(PATIENCE_OF_A_CLIENT), insert, blow);
    let mut sql = wait_for("a connection", || connect(ANSWER).ok());
    let words = sql.column("SELECT word FROM kept").unwrap();
    books.assert_found(&words);
    let count = sql.column("SELECT all_words FROM count").unwrap();
    assert_eq!(count, [words.len().to_string()], "transactions are whole");
    // Its index has all rows.
    sql.query("CREATE EXTENSION amcheck; SELECT bt_index_check('kept_pkey', true)").unwrap();
    // It would go on without a process that was not restored well.
    let log = |id| real.cluster.place.path(&format!("data/node-{id}/server.log"));
    let printed = [1, 2].map(|id| fs::read_to_string(log(id)).unwrap()).concat();
    assert!(printed.contains("ready to accept") && !printed.contains("by signal"), "{printed}");
    real.stop();
}

#[test]
fn workers_of_nginx_are_taken_over_from_an_image_and_the_log() {
    let (place, port) = (Place::new(), free_port());
    tree(&place);
    let servers = pages_and_uploads(&place, port);
    let real = nginx_with(&STANDBY, place, port, &servers);
    // Its first process and two workers.
    let books = uploads(&real, || processes_are_taken_over(&real, 3));
    assert_uploads(&real, &books);
    real.stop();
}

/// redis that saves its data when it ends, of which one replica has a server at a time, under load.
fn start_saving() -> (Real, Load, PathBuf) {
    let (place, port) = (Place::new(), free_port());
    let dir = place.path("redis");
    fs::create_dir(&dir).unwrap();
    let text = format!("port {port}\nsave 3600 1\nmaxmemory 64mb\ndir {}\n", dir.display());
    let conf = dir.join("redis.conf");
    fs::write(&conf, text).unwrap();
    let server = vec!["/usr/bin/redis-server".to_owned(), conf.to_str().unwrap().to_owned()];
    let real = Real::serve(place, port, &["--mode", "standby"], server);
    let at: SocketAddr = ([127, 0, 0, 1], port).into();
    (real, Load::start(CLIENTS, vec![at], || {}), conf)
}

/// Upgrades, and kills a leader of these when its node's log has a new line with `moment`.
#[track_caller]
fn upgrade(real: &Real, words: &[&str], kill_at: Option<(u64, &str)>) {
    let leader = kill_at.map(|(leader, moment)| {
        let log = real.cluster.place.path(&format!("data/node-{leader}/node.log"));
        let count = move || fs::read_to_string(&log).unwrap().matches(moment).count();
        let before = count();
        (leader, move || count() > before)
    });
    let run = || {
        real.cluster
            .place
            .run(&[&["upgrade", "--name", "t", "--json", "--wait", "30"], words].concat())
    };
    let output = std::thread::scope(|scope| {
        let upgraded = scope.spawn(run);
        if let Some((leader, has_come)) = &leader {
            let (status, _) = real.cluster.status();
            let pid = Cluster::replica(&status, *leader)["node_pid"].clone();
            wait_for_or("the moment", || real.cluster.evidence(), || has_come().then_some(()));
            end(&pid);
        }
        upgraded.join().unwrap()
    });
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}\n{}", real.cluster.evidence());
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["outcome"], "kept", "{report}");
}

#[test]
fn an_upgrade_of_standby_under_load_loses_no_write_when_leaders_die() {
    let (real, load, conf) = start_saving();
    let conf = conf.to_str().unwrap();
    wait_led_by(&real, 1);
    // Its arguments; the only server is lost, and the passive replica's takes its place.
    upgrade(&real, &["--args", conf, "--maxmemory", "65mb"], None);
    wait_led_by(&real, 1);
    upgrade(&real, &["--args", conf, "--maxmemory", "66mb"], Some((1, "\"server_ended\"")));
    wait_led_by(&real, 1);
    // Another program, and the leader dies when its new server has begun.
    let program = Path::new(conf).with_file_name("other-server");
    fs::copy("/usr/bin/redis-server", &program).unwrap();
    let program = program.to_str().unwrap();
    upgrade(&real, &["--", program, conf, "--maxmemory", "67mb"], Some((1, "\"step\":\"Begun")));
    fs::remove_file(program).unwrap();
    let status = wait_led_by(&real, 1);
    for id in 1..=3 {
        assert_eq!(Cluster::replica(&status, id)["edition"]["number"], 4, "{status:#}");
    }
    let began = Instant::now();
    end(&Cluster::replica(&status, 1)["node_pid"]);
    outage(&real, &load, began);
    wait_led_by(&real, 1);
    let books = load.end();
    assert_kept(&real, &books);
    let mut redis = Redis::connect(real.port(), ANSWER).unwrap();
    let said = redis.ask(&["CONFIG", "GET", "maxmemory"]).unwrap().text();
    assert!(said.contains(&(67 << 20).to_string()), "{said}");
    let said = real.cluster.said();
    assert!(!said.contains("diverged"), "{said}");
}

#[test]
fn two_actives_and_a_witness_survive_each_single_loss() {
    let (real, load) = start(&["--replica-kind", "3=witness"]);
    for lost in [3, 1, 2, 3, 1, 2] {
        let status = real.cluster.wait_status(0);
        let began = Instant::now();
        end(&Cluster::replica(&status, lost)["node_pid"]);
        let took = outage(&real, &load, began);
        println!("replica {lost} lost: no answer for {} ms", took.as_millis());
        let status = real.cluster.wait_status(0);
        assert_ne!(status["leader"], 3, "a witness does not lead");
    }
    let books = load.end();
    assert_kept(&real, &books);
    let status = real.cluster.wait_status(0);
    let digest = |id| Cluster::replica(&status, id)["digest_index"].as_u64().unwrap();
    assert!(digest(1) > 0 && digest(2) > 0 && digest(3) == 0, "{status:#}");
    let _ = real.wait_files_agreed();
    real.wait_memory_agreed();
}

#[test]
fn a_server_that_its_input_ends_ends_the_cluster() {
    let mut real = Real::redis(&["--mode", "standby"], &["--save", ""]);
    wait_led_by(&real, 1);
    let mut redis = Redis::connect(real.port(), ANSWER).unwrap();
    redis.push(&["SHUTDOWN"]);
    redis.flush().unwrap();
    assert_eq!(real.cluster.wait_end(), Some(0), "{}", real.cluster.evidence());
}

#[test]
fn what_a_kind_cannot_do_is_refused_by_name() {
    let (real, load) = start(&["--mode", "standby"]);
    wait_led_by(&real, 1);
    let run = |words: &[&str]| real.cluster.place.run(&[words, &["--name", "t"]].concat());
    let passive = run(&["checkpoint", "create", "--replica", "2"]);
    assert_line(&passive, 2, &["replica 2", "it is passive"]);
    let witness = run(&["checkpoint", "create", "--replica", "3"]);
    assert_line(&witness, 2, &["replica 3", "it is a witness"]);
    let transfer = run(&["members", "transfer", "3"]);
    assert_line(&transfer, 2, &["replica 3 is a witness"]);
    let verify = run(&["verify"]);
    assert_line(&verify, 2, &["fewer than two", "have a server"]);
    assert_eq!(run(&["files"]).status.code(), Some(0), "the one server's files are shown");
    drop(load);
}

#[test]
fn kinds_that_cannot_serve_are_refused_at_start() {
    let place = Place::new();
    let refused = |options: &[&str], words: &[&str]| {
        let data = place.data();
        let run = [&["run", "--name", "t", "--data", &data], options].concat();
        let output = place.skein_with_runtime().args(run).args(["--", "/bin/true"]).output();
        assert_line(&output.unwrap(), 125, words);
    };
    let kind = "--replica-kind";
    refused(&[kind, "1=passive,2=passive,3=witness"], &["no replica would be active"]);
    refused(&[kind, "2=witness", kind, "3=witness"], &["only 1 would be active or passive"]);
    refused(&[kind, "4=passive"], &["there are 3 replicas"]);
    refused(&[kind, "2=passive,2=witness"], &["another kind"]);
    refused(&["--mode", "standby", "--replicas", "5"], &["--replicas 5", "one active replica"]);
    refused(&["--mode", "standby", kind, "2=witness"], &["--replica-kind", "one active replica"]);
    refused(&["--mode", "sync"], &["no such mode"]);
}
