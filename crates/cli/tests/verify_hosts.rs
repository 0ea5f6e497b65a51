//! `skein verify` and `skein files` on one of three hosts (network namespaces): servers of all hosts are compared, and repaired over the network.
//!
//! Only root can make network namespaces; without it the tests say so and pass (`docs/limitations.md`).

mod common;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use common::machine::{Machine, NAME, SERVER_PORT};
use common::planted::{Planted, mapped, variable};
use common::{Place, guest_server};
use serde_json::{Value, json};

fn started() -> Option<Machine> {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: only root can make network namespaces");
        return None;
    }
    let place = Place::new();
    let server = guest_server(&place, "echo_threads").to_str().unwrap().to_string();
    let mut machine = Machine::new(place, &[server, SERVER_PORT.to_string()]);
    machine.found();
    (1..=3).for_each(|id| machine.start(id));
    (1..=3).for_each(|id| machine.wait_running(id));
    Some(machine)
}

/// What a command says as JSON on a host.
fn told(machine: &Machine, id: u64, args: &[&str]) -> (Value, Option<i32>) {
    let output = machine.skein(id, &[args, &["--name", NAME, "--json"]].concat());
    (serde_json::from_slice(&output.stdout).unwrap_or_default(), output.status.code())
}

/// Waits until a comparison on this host can be made; the report, and the exit code.
#[track_caller]
fn compared(machine: &Machine, id: u64, args: &[&str]) -> (Value, Option<i32>) {
    machine.wait(&format!("{args:?} on host {id} to compare all"), || {
        let (report, code) = told(machine, id, args);
        (code != Some(2)).then_some((report, code))
    })
}

/// Asks the admin interface of a host's node; the status, a number of HTTP, and the rest.
fn asked(machine: &Machine, id: u64, request: &str) -> (u16, String) {
    let path = machine.data(id).join("admin.sock");
    let mut stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    write!(stream, "{request} HTTP/1.0\r\nHost: skein\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    (answer.split(' ').nth(1).unwrap().parse().unwrap(), answer)
}

#[test]
fn servers_of_other_hosts_are_compared_and_repaired() {
    let Some(mut machine) = started() else { return };
    assert_eq!(machine.count(1), 1);
    for host in 1..=3 {
        let (report, code) = compared(&machine, host, &["verify"]);
        assert_eq!((code, &report["verdict"]), (Some(0), &json!("agree")), "{report:#}");
        let ids: Vec<&Value> =
            report["replicas"].as_array().unwrap().iter().map(|row| &row["id"]).collect();
        assert_eq!(ids, [1, 2, 3], "{report:#}");
    }
    let (files, code) = compared(&machine, 2, &["files"]);
    assert_eq!((code, files["replicas"].as_array().unwrap().len()), (Some(0), 3), "{files:#}");

    // A byte of another host's server.
    let program = machine.place.path("echo_threads");
    for (host, other) in [(1, 3), (3, 2)] {
        let pid = machine.status(other)["replicas"][0]["server_pid"].as_i64().unwrap();
        let address = mapped(pid, program.to_str().unwrap()) + variable(&program, "requests") + 2;
        let planted = Planted::at(pid, address);
        let (report, code) = compared(&machine, host, &["verify"]);
        assert_eq!((code, &report["verdict"]), (Some(1), &json!("differ")), "{report:#}");
        let place = planted.told(&report).unwrap_or_else(|| panic!("not told: {report:#}"));
        assert_eq!(place["symbol"], "requests+0x2", "{place}");
        let (report, code) = compared(&machine, host, &["verify", "--repair"]);
        assert_eq!((code, &report["verdict"]), (Some(0), &json!("repaired")), "{report:#}");
        assert_eq!(report["repairs"][0]["id"], other, "{report:#}");
        let (report, code) = compared(&machine, host, &["verify"]);
        assert_eq!((code, &report["verdict"]), (Some(0), &json!("agree")), "{report:#}");
        planted.was_repaired();
    }
    assert!(machine.count(2) > 1);

    // One that is away makes it unknown, and is named.
    machine.kill(3);
    let output = machine.skein(1, &["verify", "--name", NAME]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("replica 3  its node at 10.77.0.3:7100 cannot be asked"), "{text}");
    let (files, code) = told(&machine, 1, &["files"]);
    assert_eq!(code, Some(2), "{files:#}");
    let listed = |n: usize| files["replicas"][n]["index"].is_u64();
    assert_eq!([0, 1, 2].map(listed), [true, true, false], "{files:#}");
    machine.start(3);
    machine.wait_running(3);
    let (report, code) = compared(&machine, 1, &["verify"]);
    assert_eq!((code, &report["verdict"]), (Some(0), &json!("agree")), "{report:#}");
    machine.stop();
}

#[test]
fn members_may_neither_stop_nor_change_each_other() {
    let Some(mut machine) = started() else { return };
    let (status, answer) = asked(&machine, 1, "GET /at/2/status");
    assert_eq!(status, 200, "{answer}");
    assert!(answer.contains(r#""id":2"#), "{answer}");
    for request in
        ["POST /at/2/stop", "POST /at/2/members", "GET /at/2/metrics", "POST /at/2/at/3/status"]
    {
        let (status, answer) = asked(&machine, 1, request);
        assert_eq!(status, 404, "{request}: {answer}");
    }
    for id in [1, 9] {
        let (status, answer) = asked(&machine, 1, &format!("GET /at/{id}/status"));
        assert_eq!(status, 409, "{answer}");
        assert!(answer.contains(&format!("replica {id} is no other member")), "{answer}");
    }
    machine.wait_running(2);
    machine.stop();
}
