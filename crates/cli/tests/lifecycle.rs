//! A cluster's life from one command: started, asked, its leader killed, stopped, continued; and that nothing is left
//! of it, however it ends.

mod common;

use std::fs;
use std::process::Command;

use common::cluster::{Cluster, ask_once, free_port};
use common::{Place, assert_line, guest_server, processes_naming, wait_for};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn from_run_to_stop() {
    let mut cluster = Cluster::start(&[]);
    let status = cluster.wait_ready();
    cluster.wait_said("ready at 127.0.0.1:");
    assert_eq!(cluster.count(), 1);
    assert_eq!(cluster.count(), 2);

    assert_eq!(status["name"], "t");
    assert_eq!((&status["mode"], &status["schedule"]), (&"order".into(), &"serial".into()));
    assert_eq!(status["service"][0], format!("127.0.0.1:{}", cluster.port));
    assert_eq!(status["replicas"].as_array().unwrap().len(), 3);
    for row in status["replicas"].as_array().unwrap() {
        assert_eq!(row["state"], "running", "{row}");
    }

    let shown = cluster.place.run(&["status"]);
    assert_eq!(shown.status.code(), Some(0));
    assert!(text(&shown.stdout).contains("t: healthy"), "{}", text(&shown.stdout));

    let logs = cluster.place.run(&["logs"]);
    let lines = text(&logs.stdout);
    assert!(
        ["node 1 | ", "node 2 | ", "node 3 | "].iter().all(|word| lines.contains(word)),
        "{lines}"
    );
    assert_in_order(&lines);
    assert!(lines.contains(" run | skein: t: ready at 127.0.0.1:"), "{lines}");
    assert!(lines.contains(" | server_started generation=1 pid="), "for people: {lines}");
    let json = text(&cluster.place.run(&["logs", "--json"]).stdout);
    let events: Vec<serde_json::Value> =
        json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(events.iter().any(|e| e["source"] == "node 3" && e["event"] == "server_started"));
    let one = text(&cluster.place.run(&["logs", "--replica", "2"]).stdout);
    assert!(one.contains("node 2 | ") && !one.contains("node 1 | "), "{one}");
    assert_line(&cluster.place.run(&["logs", "--replica", "9"]), 2, &["replica 9", "skein status"]);

    let again = cluster.place.skein_with_runtime();
    let again = { again }.args(["run", "--name", "t", "--", "/bin/true"]).output().unwrap();
    assert_line(&again, 125, &["runs already", &cluster.pid().to_string(), "skein stop --name t"]);
    let data = cluster.place.data();
    let other = cluster.place.skein_with_runtime();
    let other = { other }.args(["run", "--name", "u", "--data", &data, "--", "/bin/true"]).output();
    assert_line(&other.unwrap(), 125, &[&data, &format!("process {} uses it", cluster.pid())]);

    let stopped = cluster.place.run(&["stop"]);
    assert_eq!(stopped.status.code(), Some(0), "{}", text(&stopped.stderr));
    assert_eq!(cluster.wait_end(), Some(0));
    cluster.assert_nothing_left();
    assert_eq!(cluster.status().1, Some(3));
    // The events can be read afterwards, too.
    let after = cluster.place.run(&["logs", "--data", &cluster.place.data()]);
    let after = text(&after.stdout);
    assert!(after.contains("node 1 | ") && after.contains("run | skein: t: stopped"), "{after}");
    assert_in_order(&after);
    let nowhere = cluster.place.path("run");
    let output = cluster.place.run(&["logs", "--data", nowhere.to_str().unwrap()]);
    assert_line(&output, 2, &["holds no logs", "data directory"]);
}

#[test]
fn ctrl_c_leaves_nothing() {
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let mut cluster = Cluster::start(&[]);
        cluster.wait_said("ready");
        cluster.signal(signal);
        assert_eq!(cluster.wait_end(), Some(0));
        cluster.assert_nothing_left();
    }
}

#[test]
fn ctrl_c_while_starting_leaves_nothing() {
    let mut cluster = Cluster::start(&[]);
    cluster.wait_said("starting 3 replicas");
    cluster.signal(Signal::SIGINT);
    assert_eq!(cluster.wait_end(), Some(0));
    cluster.assert_nothing_left();
}

#[test]
fn a_killed_run_takes_all_with_it() {
    let mut cluster = Cluster::start(&[]);
    let status = cluster.wait_ready();
    let server = status["replicas"][0]["server_pid"].as_i64().unwrap();
    assert!(fs::exists(format!("/proc/{server}")).unwrap());
    cluster.signal(Signal::SIGKILL);
    assert_eq!(cluster.wait_end(), None);
    let dir = cluster.place.dir.path().to_str().unwrap().to_string();
    wait_for("its processes to be gone", || processes_naming(&dir).is_empty().then_some(()));
    assert_eq!(cluster.status().1, Some(3), "its name is free");
    assert_eq!(cluster.place.run(&["stop", "--name", "t"]).status.code(), Some(3));
    assert_eq!(fs::read_dir(cluster.place.path("run")).unwrap().count(), 0, "swept");
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(&dir));
}

#[test]
fn a_killed_leader_is_replaced_and_comes_back() {
    let mut cluster = Cluster::start(&[]);
    let status = cluster.wait_ready();
    let before = cluster.count();
    let (leader, pid) = Cluster::leader(&status);
    kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    assert!(cluster.count() > before, "what was counted is kept");
    cluster.wait_said(&format!("node {leader} died (killed by SIGKILL)"));
    cluster.wait_said("there was no service for");
    cluster.wait_said(&format!("node {leader} caught up"));
    let status = cluster.wait_status(0);
    assert_ne!(Cluster::leader(&status).0, leader);
    assert_ne!(Cluster::replica(&status, leader)["node_pid"], pid);
    cluster.signal(Signal::SIGINT);
    assert_eq!(cluster.wait_end(), Some(0));
    cluster.assert_nothing_left();
}

#[test]
fn without_restart_a_killed_node_stays_away() {
    let mut cluster = Cluster::start(&["--restart", "no"]);
    let status = cluster.wait_ready();
    let (leader, pid) = Cluster::leader(&status);
    kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    let status = cluster.wait_status(1);
    assert_eq!(Cluster::replica(&status, leader)["state"], "down");
    let (second, pid) = Cluster::leader(&status);
    assert_ne!(second, leader);
    kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    cluster.wait_status(2);
    cluster.signal(Signal::SIGINT);
    assert_eq!(cluster.wait_end(), Some(0));
    cluster.assert_nothing_left();
}

#[test]
fn a_log_in_memory_survives_one_node_and_says_when_it_is_gone() {
    let mut cluster = Cluster::start(&["--durability", "memory"]);
    let status = cluster.wait_ready();
    let before = cluster.count();
    let (leader, pid) = Cluster::leader(&status);
    kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    assert!(cluster.count() > before);
    cluster.wait_said(&format!("node {leader} caught up"));
    let status = cluster.wait_status(0);
    for id in [1, 2] {
        let pid = Cluster::replica(&status, id)["node_pid"].as_i64().unwrap();
        // It may have been killed with the other one's cluster already.
        let _ = kill(Pid::from_raw(pid as i32), Signal::SIGKILL);
    }
    assert_eq!(cluster.wait_end(), Some(125));
    assert!(cluster.said().contains("a majority died"), "{}", cluster.said());
    cluster.assert_nothing_left();
}

#[test]
fn one_replica_without_a_disk_says_that_it_starts_empty() {
    let mut cluster = Cluster::start(&["--durability", "memory", "--replicas", "1"]);
    let status = cluster.wait_ready();
    assert_eq!((cluster.count(), cluster.count()), (1, 2));
    kill(Pid::from_raw(Cluster::leader(&status).1), Signal::SIGKILL).unwrap();
    cluster.wait_said("it starts empty");
    assert_eq!(cluster.count(), 1);
    cluster.signal(Signal::SIGINT);
    assert_eq!(cluster.wait_end(), Some(0));
    cluster.assert_nothing_left();
}

#[test]
fn a_stopped_leader_is_named_and_killed() {
    let mut cluster = Cluster::start(&[]);
    let status = cluster.wait_ready();
    let (leader, pid) = Cluster::leader(&status);
    kill(Pid::from_raw(pid), Signal::SIGSTOP).unwrap();
    cluster.wait_said(&format!("node {leader} does not answer for 2 s"));
    cluster.wait_said("it is killed");
    cluster.wait_said(&format!("node {leader} caught up"));
    cluster.signal(Signal::SIGINT);
    assert_eq!(cluster.wait_end(), Some(0));
    cluster.assert_nothing_left();
}

#[test]
fn goes_on_from_its_log() {
    let mut cluster = Cluster::start(&[]);
    cluster.wait_ready();
    let before = cluster.count();
    cluster.signal(Signal::SIGTERM);
    assert_eq!(cluster.wait_end(), Some(0));
    let port = cluster.port.to_string();
    let server = cluster.place.path("echo_threads");
    let server = server.to_str().unwrap().to_string();
    let place = std::mem::replace(&mut cluster.place, Place::new());
    let mut cluster = Cluster::start_in(place, cluster.port, &[], &[&server, &port]);
    assert_eq!(cluster.count(), before + 1);
    assert!(cluster.said().contains("continues from its log"));
    cluster.signal(Signal::SIGTERM);
    assert_eq!(cluster.wait_end(), Some(0));

    let data = cluster.place.data();
    let refused = |options: &[&str], server: &[&str], words: &[&str]| {
        let mut command = cluster.place.skein_with_runtime();
        command.current_dir(cluster.place.dir.path()).args(["run", "--name", "t", "--data", &data]);
        let output = command.args(options).arg("--").args(server).output().unwrap();
        assert_line(&output, 125, words);
    };
    refused(&[], &[&server, "1"], &["arguments", &port]);
    refused(&[], &["/bin/sleep", "1"], &["its log was made by", "echo_threads"]);
    refused(&["--replicas", "5"], &[&server, &port], &["has 3 replicas", "--replicas 3"]);
    refused(&["--env", "A=b"], &[&server, &port], &["environment"]);
    refused(&["--durability", "memory"], &[&server, &port], &["on disk", "--durability fsync"]);
    refused(&["--quantum", "7"], &[&server, &port], &["quantum"]);
    fs::OpenOptions::new()
        .append(true)
        .open(&server)
        .and_then(|mut file| std::io::Write::write_all(&mut file, b"x"))
        .unwrap();
    // The program that the log was made with is kept beside it.
    let place = std::mem::replace(&mut cluster.place, Place::new());
    let mut cluster = Cluster::start_in(place, cluster.port, &[], &[&server, &port]);
    assert_eq!(cluster.count(), before + 2);
    cluster.signal(Signal::SIGTERM);
    assert_eq!(cluster.wait_end(), Some(0));
    cluster.assert_nothing_left();
}

#[test]
fn detached() {
    let place = Place::new();
    let port = free_port();
    let server = guest_server(&place, "echo_threads");
    let data = place.data();
    let mut command = place.skein_with_runtime();
    command.args(["run", "--detach", "--name", "t", "--data", &data, "--"]);
    let output = command.arg(&server).arg(port.to_string()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains(&format!("ready at 127.0.0.1:{port}")));
    assert_eq!(place.run(&["status"]).status.code(), Some(0));
    assert_eq!(ask_once(("127.0.0.1", port), "x").as_deref(), Some("1 x"));
    let followed = place.skein().args(["logs", "-f"]).stdout(std::process::Stdio::piped()).spawn();
    assert_eq!(place.run(&["stop", "--name", "t"]).status.code(), Some(0));
    let followed = followed.unwrap().wait_with_output().unwrap();
    assert!(followed.status.success() && text(&followed.stdout).contains("node 1 | "));
    let dir = place.dir.path().to_str().unwrap();
    assert!(processes_naming(dir).is_empty(), "{:?}", processes_naming(dir));
    assert_eq!(fs::read_dir(place.path("run")).unwrap().count(), 0);
}

/// Lines with a time are sorted by it.
fn assert_in_order(lines: &str) {
    let times: Vec<&str> = lines.lines().filter_map(|line| line.get(..23)).collect();
    let times: Vec<&&str> = times.iter().filter(|time| time.starts_with("20")).collect();
    assert!(times.len() > 10 && times.is_sorted(), "{lines}");
}

#[test]
fn a_detached_start_that_fails_says_so() {
    let place = Place::new();
    let args = ["run", "--detach", "--data", &place.data(), "--", "no-such-program"];
    assert_line(&place.run(&args), 127, &["no-such-program"]);
}

#[test]
fn passes_on_the_servers_status() {
    let place = Place::new();
    for (body, code, words) in
        [("return 3;", 3, "exit status 3"), ("raise(11); return 0;", 139, "killed by SIGSEGV")]
    {
        let source = format!("#include <signal.h>\nint main(void) {{ {body} }}\n");
        place.file("end.c", &source, 0o644);
        let program = place.path("end");
        let made = Command::new("cc").arg("-o").arg(&program).arg(place.path("end.c")).status();
        assert!(made.unwrap().success());
        for replicas in ["1", "3"] {
            let data = place.path(&format!("data-{code}-{replicas}"));
            let mut command = place.skein_with_runtime();
            command.args(["run", "--replicas", replicas, "--data", data.to_str().unwrap(), "--"]);
            let output = command.arg(&program).output().unwrap();
            let said = text(&output.stderr);
            assert_eq!(output.status.code(), Some(code), "{said}");
            assert!(said.contains(words), "{said}");
        }
    }
}

#[test]
fn a_fifo_of_the_host_is_the_servers_own() {
    let place = Place::new();
    let fifo = place.path("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    // A reader in the background and a writer, whose opens wait for each other.
    let script = r#"cat "$1" > /dev/null & exec 3> "$1"; echo hi >&3; exec 3>&-; wait; exit 7"#;
    let mut command = place.skein_with_runtime();
    command.args(["run", "--data", &place.data(), "--", "/bin/sh", "-c", script, "sh"]);
    let output = command.arg(&fifo).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(7), "{said}");
    let named = format!("{} is a FIFO of the host", fifo.display());
    let log = |node| std::fs::read_to_string(place.path(&format!("data/node-{node}/node.log")));
    let logs: Vec<String> = (1..=3).map(|node| log(node).unwrap()).collect();
    assert!(logs.iter().any(|log| log.contains(&named)), "{logs:?}");
}

#[test]
fn a_taken_port_ends_it_all() {
    let place = Place::new();
    let port = free_port();
    let _taken = std::net::TcpListener::bind(("127.0.0.1", port)).unwrap();
    let server = guest_server(&place, "echo_threads");
    let mut command = place.skein_with_runtime();
    command.args(["run", "--data", &place.data(), "--"]).arg(&server).arg(port.to_string());
    let output = command.output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{said}");
    let last = said.lines().last().unwrap();
    assert!(last.contains(&format!("publish 127.0.0.1:{port}: Address already in use")), "{said}");
    assert!(last.contains(&format!("--publish HOST:PORT:{port}")), "{said}");
    let dir = place.dir.path().to_str().unwrap();
    assert!(processes_naming(dir).is_empty(), "{:?}", processes_naming(dir));
}

#[test]
fn published_elsewhere() {
    let place = Place::new();
    let (inside, outside) = (free_port(), free_port());
    let server = guest_server(&place, "echo_threads");
    let publish = format!("127.0.0.1:{outside}:{inside}");
    let options = ["--publish", &publish, "--replicas", "1", "--durability", "memory"];
    let server = [server.to_str().unwrap(), &inside.to_string()];
    let mut cluster = Cluster::start_in(place, outside, &options, &server);
    assert_eq!(cluster.count(), 1);
    assert!(ask_once(("127.0.0.1", inside), "x").is_none(), "only where it was told to be");
    cluster.signal(Signal::SIGINT);
    assert_eq!(cluster.wait_end(), Some(0));
    cluster.assert_nothing_left();
}
