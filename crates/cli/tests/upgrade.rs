//! `skein upgrade`: another program, arguments, environment or newer files of the host, and the data stay; what does not come up is undone.

mod common;

use std::fs;
use std::path::PathBuf;
use std::process::Output;
use std::time::Duration;

use common::cluster::{Cluster, free_port, wait_for_or};
use common::real::Real;
use common::{Place, assert_line, resp};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// redis that saves its data when it ends, with a configuration of the test.
struct Redis {
    real: Real,
    dir: PathBuf,
}

impl Redis {
    fn start() -> Self {
        Self::start_with(&[])
    }

    fn start_with(options: &[&str]) -> Self {
        let (place, port) = (Place::new(), free_port());
        let dir = place.path("redis");
        fs::create_dir(&dir).unwrap();
        let text = format!("port {port}\nsave 3600 1\nmaxmemory 11mb\ndir {}\n", dir.display());
        fs::write(dir.join("redis.conf"), text).unwrap();
        let conf = dir.join("redis.conf").to_str().unwrap().to_owned();
        let server = vec!["/usr/bin/redis-server".to_owned(), conf];
        let redis = Self { real: Real::serve(place, port, options, server), dir };
        for n in 0..50 {
            assert!(redis.ask(&["SET", &format!("key{n}"), &format!("value{n}")]).contains("OK"));
        }
        redis
    }

    fn conf(&self) -> String {
        self.dir.join("redis.conf").to_str().unwrap().to_owned()
    }

    fn upgrade(&self, args: &[&str]) -> Output {
        self.real.cluster.place.run(&[&["upgrade", "--name", "t"], args].concat())
    }

    /// An upgrade that succeeds; answers its report.
    #[track_caller]
    fn does(&self, args: &[&str]) -> Value {
        let output = self.upgrade(&[&["--json"], args].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{said}\n{}", self.real.cluster.evidence());
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(report["outcome"], "kept", "{report}");
        report
    }

    #[track_caller]
    fn ask(&self, words: &[&str]) -> String {
        let (port, cluster) = (self.real.port(), &self.real.cluster);
        let ask = || {
            let mut client = resp::Redis::connect(port, Duration::from_secs(2)).ok()?;
            client.ask(words).ok().map(|reply| reply.text())
        };
        wait_for_or("redis' answer", || cluster.evidence(), ask)
    }

    #[track_caller]
    fn assert_all_there(&self, maxmemory: &str) {
        for n in 0..50 {
            assert!(self.ask(&["GET", &format!("key{n}")]).contains(&format!("value{n}")), "{n}");
        }
        let said = self.ask(&["CONFIG", "GET", "maxmemory"]);
        assert!(said.contains(maxmemory), "{said}");
    }

    /// Waits until all replicas are of this edition, run, and agree.
    #[track_caller]
    fn wait_edition(&self, number: u64) {
        let cluster = &self.real.cluster;
        let all = || {
            let (status, _) = cluster.status();
            let rows = status["replicas"].as_array()?.clone();
            rows.iter().all(|row| row["edition"]["number"] == number).then_some(())
        };
        wait_for_or("the edition", || format!("{}{:?}", cluster.evidence(), cluster.status()), all);
        self.real.wait_agreed();
    }
}

/// The servers are down while what they leave is read.
#[test]
fn what_images_have_of_the_files_is_not_read_again() {
    const VALUES: u64 = 24;
    let value = |n: u64| format!("{n:08}").repeat(128 << 10);
    let (place, port) = (Place::new(), free_port());
    let dir = place.path("redis");
    fs::create_dir(&dir).unwrap();
    let text = format!("port {port}\nappendonly yes\nsave \"\"\ndir {}\n", dir.display());
    fs::write(dir.join("redis.conf"), text).unwrap();
    let conf = dir.join("redis.conf").to_str().unwrap().to_owned();
    let server = vec!["/usr/bin/redis-server".to_owned(), conf.clone()];
    let redis = Redis { real: Real::serve(place, port, &[], server), dir };
    for n in 0..VALUES {
        assert!(redis.ask(&["SET", &format!("key{n}"), &value(n)]).contains("OK"));
    }
    redis.does(&["--args", &conf, "--maxmemory", "99mb"]);
    redis.wait_edition(2);
    for n in 0..VALUES {
        assert!(redis.ask(&["GET", &format!("key{n}")]) == value(n), "key{n}");
    }
    for id in 1..=3 {
        let log = redis.real.cluster.place.path(&format!("data/node-{id}/node.log"));
        let log = fs::read_to_string(log).unwrap();
        let kept = log.lines().find(|line| line.contains(r#""event":"files_kept""#));
        let kept: Value = serde_json::from_str(kept.unwrap_or_else(|| panic!("{log}"))).unwrap();
        let [bytes, read] = ["bytes", "read"].map(|word| kept[word].as_u64().unwrap());
        assert!(bytes > VALUES << 20 && read < bytes / 2, "{kept}");
    }
    let verified = redis.real.cluster.place.run(&["verify", "--name", "t"]);
    assert_eq!(verified.status.code(), Some(0), "{verified:?}");
}

#[test]
fn arguments_environment_and_program_change_and_the_data_stay() {
    let mut redis = Redis::start();
    let report = redis.does(&["--args", &redis.conf(), "--maxmemory", "12mb"]);
    assert_eq!(report["edition"], 2);
    redis.assert_all_there("12582912");
    redis.wait_edition(2);
    // Another program, and a variable.
    let program = redis.dir.join("other-server");
    fs::copy("/usr/bin/redis-server", &program).unwrap();
    let program = program.to_str().unwrap().to_owned();
    let report = redis.does(&["--env", "WHO=me", "--", &program, &redis.conf()]);
    assert_eq!(
        (report["edition"].as_u64(), report["command"].as_str()),
        (Some(3), Some(&*format!("{program} {}", redis.conf())))
    );
    redis.assert_all_there("11534336");
    redis.wait_edition(3);
    let (status, _) = redis.real.cluster.status();
    let about = status["replicas"][0]["edition"]["about"].as_str().unwrap();
    assert!(about.contains("WHO"), "{about}");
    redis.does(&["--env", "WHO"]);
    redis.wait_edition(4);
    let (status, _) = redis.real.cluster.status();
    let about = status["replicas"][0]["edition"]["about"].as_str().unwrap();
    assert!(!about.contains("WHO"), "{about}");
    let output = redis.upgrade(&["--env", "WHO"]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("nothing to change"));
    assert_eq!(output.status.code(), Some(0));
    // The host needs neither program any more; the first command is known.
    fs::remove_file(&program).unwrap();
    redis.real.kill_all_and_run_again();
    redis.real.cluster.wait_ready();
    redis.real.cluster.wait_said("its command is '");
    redis.wait_edition(4);
    redis.assert_all_there("11534336");
    // One that it never had is refused.
    redis.real.cluster.signal(Signal::SIGINT);
    redis.real.cluster.wait_end();
    let place = &redis.real.cluster.place;
    let data = place.data();
    let run = place.run(&[
        "run",
        "--name",
        "t",
        "--data",
        &data,
        "--",
        "/usr/bin/redis-server",
        "--port",
        "1",
    ]);
    assert_line(&run, 125, &["since the upgrade", "skein upgrade"]);
}

#[test]
fn a_server_that_does_not_come_up_is_undone() {
    let redis = Redis::start();
    let output = redis.upgrade(&["--args", &redis.conf(), "--no-such-setting", "1"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}\n{}", redis.real.cluster.evidence());
    assert!(said.contains("as before") && said.contains("exit status 1"), "{said}");
    redis.assert_all_there("11534336");
    // Another port is another service.
    let port = free_port().to_string();
    let output = redis.upgrade(&["--wait", "3", "--args", &redis.conf(), "--port", &port]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("did not listen on port"), "{said}");
    assert_eq!(output.status.code(), Some(1));
    redis.assert_all_there("11534336");
    // One that does not end goes on.
    let output = redis.upgrade(&["--wait", "1", "--signal", "CONT", "--env", "A=1"]);
    assert_line(&output, 1, &["did not end within 1 s", "--signal"]);
    redis.assert_all_there("11534336");
    // What cannot run is refused before anything happens.
    assert_line(&redis.upgrade(&["--", "/no/such/program"]), 2, &["/no/such/program"]);
    redis.wait_edition(5);
    redis.does(&["--env", "A=1"]);
    redis.assert_all_there("11534336");
}

#[test]
fn files_of_the_host_are_taken_over() {
    let redis = Redis::start();
    let text = fs::read_to_string(redis.conf()).unwrap().replace("11mb", "13mb");
    fs::write(redis.conf(), text).unwrap();
    let report = redis.does(&["--files"]);
    let files = report["files"].as_array().unwrap();
    assert!(files.iter().any(|path| *path == *redis.conf()), "{report}");
    redis.assert_all_there("13631488");
    redis.wait_edition(2);
}

#[test]
fn bases_that_nothing_needs_go_while_the_node_runs() {
    // Images only where the test asks for one.
    let mut redis = Redis::start_with(&["--set", "checkpoint.enabled=false"]);
    let place = &redis.real.cluster.place;
    let (dir, log) = (place.path("data/node-1/base"), place.path("data/node-1/node.log"));
    let data = place.data();
    // The contents of the configuration that the current edition's servers see.
    let conf = |redis: &Redis| {
        let words = ["base", "ls", "--data", &data, "--replica", "1"];
        let text = redis.real.cluster.place.run(&words).stdout;
        let text = String::from_utf8(text).unwrap();
        let row = text.lines().find(|line| line.ends_with("/redis.conf"));
        let digest = row.and_then(|row| row.split_whitespace().nth(2));
        digest.unwrap_or_else(|| panic!("{text}")).to_owned()
    };
    let mut contents = Vec::new();
    for (edition, megabytes) in [(2, "12mb"), (3, "13mb")] {
        let text = fs::read_to_string(redis.conf()).unwrap();
        let (before, _) = text.split_once("maxmemory").unwrap();
        let text = format!("{before}maxmemory {megabytes}\ndir {}\n", redis.dir.display());
        fs::write(redis.conf(), text).unwrap();
        redis.does(&["--files"]);
        redis.wait_edition(edition);
        contents.push(conf(&redis));
    }
    let bases = || {
        let names = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name());
        names.filter(|name| name.to_string_lossy().starts_with("index-")).count()
    };
    let has = |digest: &str| dir.join("objects").join(digest).exists();
    assert!(bases() == 2 && contents.iter().all(|digest| has(digest)));
    // The log forgets both upgrades behind two images, when their servers were compared.
    let image = || {
        redis.ask(&["INCR", "image"]);
        redis.real.wait_agreed();
        let words = ["checkpoint", "create", "--json", "--name", "t", "--replica", "1"];
        let output = redis.real.cluster.place.run(&words);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}\n{}", redis.real.cluster.evidence());
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        wait_for_or(
            "the image to count",
            || redis.real.cluster.evidence(),
            || {
                redis.ask(&["INCR", "image"]);
                redis.real.wait_agreed();
                let (status, _) = redis.real.cluster.status();
                (Cluster::replica(&status, 1)["images"]["index"] == report["index"]).then_some(())
            },
        );
        report["index"].as_u64().unwrap()
    };
    let (first, _) = (image(), image());
    let forgot = format!("\"index\":{first}");
    wait_for_or(
        "the log to forget",
        || redis.real.cluster.evidence(),
        || {
            let text = fs::read_to_string(&log).unwrap();
            text.lines()
                .any(|line| line.contains("log_forgot") && line.contains(&forgot))
                .then_some(())
        },
    );
    // That is on disk with the log's next write.
    wait_for_or(
        "one base, without the other's configuration",
        || redis.real.cluster.evidence(),
        || {
            redis.ask(&["INCR", "image"]);
            (bases() == 1 && !has(&contents[0])).then_some(())
        },
    );
    assert!(has(&contents[1]));
    redis.assert_all_there(&(13 << 20).to_string());
    redis.real.kill_all_and_run_again();
    redis.wait_edition(3);
    redis.assert_all_there(&(13 << 20).to_string());
    assert_eq!(bases(), 1);
}

#[test]
fn a_replica_that_dies_on_the_way_follows() {
    let mut redis = Redis::start();
    let moments = ["\"step\":\"Asked\"", "\"server_ended\"", "\"step\":\"Begun"];
    for (at, moment) in moments.into_iter().enumerate() {
        let status = redis.real.cluster.wait_status(0);
        let (leader, _) = Cluster::leader(&status);
        // The leader, too.
        let victim = if at == 1 { leader } else { leader % 3 + 1 };
        let pid = Cluster::replica(&status, victim)["node_pid"].as_i64().unwrap() as i32;
        let log = redis.real.cluster.place.path(&format!("data/node-{victim}/node.log"));
        let count = |text: &str| text.matches(moment).count();
        let before = count(&fs::read_to_string(&log).unwrap());
        let megabytes = format!("{}mb", 20 + at);
        std::thread::scope(|scope| {
            let upgraded =
                scope.spawn(|| redis.does(&["--args", &redis.conf(), "--maxmemory", &megabytes]));
            let is_there = || (count(&fs::read_to_string(&log).unwrap()) > before).then_some(());
            wait_for_or(moment, || redis.real.cluster.evidence(), is_there);
            kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
            upgraded.join().unwrap();
        });
        redis.assert_all_there(&((20 + at) << 20).to_string());
        redis.wait_edition(2 + at as u64);
    }
    redis.real.kill_all_and_run_again();
    redis.wait_edition(4);
    redis.assert_all_there(&(22 << 20).to_string());
}
