//! Three `skein node`s with one configuration form a cluster on three hosts (network namespaces): one is killed, one is
//! cut off, clients are served on, and all replicas end up the same.
//!
//! Only root can make network namespaces; without it the test says so and passes (`docs/limitations.md`).

mod common;

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use common::cluster::ask_once;
use common::machine::{Machine, NAME, PORT, SERVER_PORT};
use common::{Place, guest_server};
use serde_json::{Value, json};

/// The leader that the given hosts agree on.
#[track_caller]
fn known_leader(machine: &Machine, ids: &[u64]) -> u64 {
    machine.wait("a leader that all know", || {
        let known: Vec<u64> =
            ids.iter().filter_map(|id| machine.status(*id)["leader"].as_u64()).collect();
        let all = known.len() == ids.len() && known.windows(2).all(|two| two[0] == two[1]);
        (all && ids.contains(&known[0])).then(|| known[0])
    })
}

/// A connection from the network to a host, on which one request was answered.
#[track_caller]
fn connected(machine: &Machine, id: u64) -> BufReader<TcpStream> {
    machine.wait(&format!("a connection to host {id}"), || {
        machine.hosts.middle.enter(|| {
            let mut stream = TcpStream::connect(format!("10.77.0.{id}:{PORT}")).ok()?;
            stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            stream.write_all(b"x\n").ok()?;
            let mut stream = BufReader::new(stream);
            let mut answer = String::new();
            stream.read_line(&mut answer).ok().filter(|read| *read > 0).map(|_| stream)
        })
    })
}

/// A normal end would make half an answer look complete.
#[track_caller]
fn assert_reset(machine: &Machine, mut stream: BufReader<TcpStream>) {
    let end = stream.read(&mut [0; 1]);
    let reset = end.as_ref().is_err_and(|error| error.kind() == ErrorKind::ConnectionReset);
    assert!(reset, "{end:?}\n{}", machine.evidence());
}

/// What `skein status --json` says on a host of all replicas, when it exits with this code.
#[track_caller]
fn wait_seen(machine: &Machine, host: u64, code: i32) -> Value {
    machine.wait(&format!("the cluster's state at host {host} to be {code}"), || {
        let output = machine.skein(host, &["status", "--json"]);
        (output.status.code() == Some(code))
            .then(|| serde_json::from_slice(&output.stdout).unwrap_or_default())
    })
}

/// The replicas' states, by id.
fn states(seen: &Value) -> Vec<&str> {
    let all = seen["replicas"].as_array().unwrap();
    all.iter().map(|replica| replica["state"].as_str().unwrap()).collect()
}

fn all_but(id: u64) -> Vec<u64> {
    (1..=3).filter(|other| *other != id).collect()
}

#[test]
fn three_hosts() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: only root can make network namespaces");
        return;
    }
    let place = Place::new();
    let server = guest_server(&place, "echo_threads").to_str().unwrap().to_string();
    let mut machine = Machine::new(place, &[server, SERVER_PORT.to_string()]);
    machine.found();
    (1..=3).for_each(|id| machine.start(id));
    (1..=3).for_each(|id| machine.wait_running(id));
    let leader = known_leader(&machine, &[1, 2, 3]);
    assert_eq!(machine.count(leader), 1);
    let follower = all_but(leader)[0];
    assert_eq!(
        machine.count(follower),
        2,
        "a follower passes its clients on\n{}",
        machine.evidence()
    );

    for host in 1..=3 {
        let seen = wait_seen(&machine, host, 0);
        assert_eq!(seen["leader"], leader, "{seen:#}");
        assert_eq!(states(&seen), ["running"; 3], "{seen:#}");
        assert_eq!(seen["elsewhere"], json!(all_but(host)), "{seen:#}");
    }

    // The leader's host dies.
    let held = [leader, follower].map(|id| connected(&machine, id));
    machine.kill(leader);
    held.into_iter().for_each(|stream| assert_reset(&machine, stream));
    let others = all_but(leader);
    assert!(machine.count(others[0]) > 2 && machine.count(others[1]) > 3);
    let second = known_leader(&machine, &others);
    for host in others {
        let seen = wait_seen(&machine, host, 1);
        assert_eq!(seen["leader"], second, "{seen:#}");
        let lost = &seen["replicas"][leader as usize - 1];
        let address = format!("10.77.0.{leader}:7100");
        assert_eq!((&lost["state"], &lost["address"]), (&json!("unreachable"), &json!(address)));
        let why = lost["faults"][0]["why"].as_str().unwrap_or_default();
        assert!(why.contains(&format!("its node at {address} cannot be asked")), "{seen:#}");
    }
    machine.start(leader);
    machine.wait_running(leader);

    // The new leader's cable is pulled: it must not answer, the others must.
    let others = all_but(second);
    let held = [others[0], others[1]].map(|id| connected(&machine, id));
    machine.hosts.cable(second, "down");
    let third = known_leader(&machine, &others);
    assert_ne!(third, second);
    held.into_iter().for_each(|stream| assert_reset(&machine, stream));
    let before = machine.count(third);
    let alone = machine.hosts.host(second).enter(|| ask_once(("127.0.0.1", PORT), "x"));
    assert_eq!(alone, None, "cut off it can commit nothing");
    assert_eq!(wait_seen(&machine, second, 2)["leader"], Value::Null);
    let seen = wait_seen(&machine, third, 1);
    assert_eq!(seen["leader"], third, "{seen:#}");
    assert_eq!(states(&seen)[second as usize - 1], "unreachable", "{seen:#}");
    machine.hosts.cable(second, "up");
    machine.wait("the cut off host to follow", || {
        (known_leader(&machine, &[1, 2, 3]) != second).then_some(())
    });
    machine.wait_running(second);
    assert!(machine.count(second) > before);

    machine.wait("all replicas to be the same", || {
        let rows: Vec<Value> =
            (1..=3).map(|id| machine.status(id)["replicas"][0].clone()).collect();
        let same = |key: &str| rows.iter().all(|row| row[key] == rows[0][key]);
        (same("digest_index") && same("digest") && same("applied_index")).then_some(())
    });
    let table = String::from_utf8(machine.skein(1, &["status", "--here"]).stdout).unwrap();
    assert!(table.contains("2 more replicas are on other hosts"), "{table}");
    let logs = String::from_utf8(machine.skein(1, &["logs"]).stdout).unwrap();
    assert!(logs.contains("node 1 | "), "{logs}");

    machine.stop();
}

/// Runs a command on a host, which must succeed.
#[track_caller]
fn does(machine: &Machine, id: u64, args: &[&str]) -> String {
    let output = machine.skein(id, args);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}\n{}", machine.evidence());
    String::from_utf8(output.stdout).unwrap()
}

/// What the server says to a client of this host.
#[track_caller]
fn assert_says(machine: &Machine, id: u64, expected: &str) {
    machine.wait(&format!("'{expected}' at host {id}"), || {
        let said =
            machine.hosts.middle.enter(|| ask_once((format!("10.77.0.{id}").as_str(), PORT), "?"));
        (said.as_deref() == Some(expected)).then_some(())
    });
}

/// A host with a server, one with images only and one with the log only: each of them takes clients, and an operator's commands.
#[test]
fn each_host_of_standby_takes_clients_and_commands() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: only root can make network namespaces");
        return;
    }
    let place = Place::new();
    let server = guest_server(&place, "signal_count").to_str().unwrap().to_string();
    let mut machine = Machine::new(place, &[server, SERVER_PORT.to_string()]);
    machine.mode = "standby";
    machine.found();
    (1..=3).for_each(|id| machine.start(id));
    machine.wait_running(1);
    // The passive one may have led at first: a command that is under way when it hands over may have been carried out or not.
    machine.wait("the active replica to lead", || {
        (known_leader(&machine, &[1, 2, 3]) == 1).then_some(())
    });
    (1..=3).for_each(|id| assert_says(&machine, id, "0 0"));
    for id in [3, 2] {
        does(&machine, id, &["signal", "--name", NAME, "SIGUSR1"]);
    }
    (1..=3).for_each(|id| assert_says(&machine, id, "2 0"));
    let said = does(&machine, 3, &["upgrade", "--name", NAME, "--env", "WHO=me"]);
    assert!(said.contains("edition 2 is up"), "{said}");
    (1..=3).for_each(|id| assert_says(&machine, id, "0 0"));
    let said = does(&machine, 2, &["upgrade", "--name", NAME, "--env", "WHO=you"]);
    assert!(said.contains("edition 3 is up"), "{said}");
    machine.wait("all hosts to know the edition", || {
        let number = |id| machine.status(id)["replicas"][0]["edition"]["number"].clone();
        (1..=3).all(|id| number(id) == 3).then_some(())
    });
    does(&machine, 3, &["signal", "--name", NAME, "SIGHUP"]);

    // The host with the server is lost.
    machine.kill(1);
    machine.wait("replica 2 to lead", || (machine.status(3)["leader"] == 2).then_some(()));
    [3, 2].into_iter().for_each(|id| assert_says(&machine, id, "0 1"));
    does(&machine, 3, &["signal", "--name", NAME, "SIGHUP"]);
    machine.start(1);
    machine.wait_running(1);
    machine.wait("replica 1 to lead", || (machine.status(3)["leader"] == 1).then_some(()));
    (1..=3).for_each(|id| assert_says(&machine, id, "0 2"));

    // A host that has lost everything, and whose configuration names what the server is now, comes back.
    machine.kill(2);
    machine.variable = Some(("WHO", "you"));
    machine.lose(2);
    machine.start(2);
    machine.wait("replica 2 to be taken in", || {
        let row = machine.status(2)["replicas"][0].clone();
        (row["state"] == "passive" && row["role"] == "follower" && row["edition"]["number"] == 3)
            .then_some(())
    });
    assert_says(&machine, 2, "0 2");
    machine.stop();
}
