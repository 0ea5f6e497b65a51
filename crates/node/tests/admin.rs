//! The admin interface: its users, and its answers.

mod common;

use common::{Cluster, free_address, wait_for};
use skein_node::NodeStatus;
use skein_node::config::DurabilityMode::Memory;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

fn exchange(mut stream: impl Read + Write, request: &str) -> (String, String) {
    stream.write_all(format!("{request} HTTP/1.0\r\nHost: skein\r\n\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").expect("HTTP");
    (head.lines().next().unwrap().to_owned(), body.to_owned())
}

fn ask(socket: &Path, request: &str) -> (String, String) {
    exchange(UnixStream::connect(socket).unwrap(), request)
}

#[test]
fn status_and_metrics_are_served_to_the_owner_only() {
    let at = free_address();
    let mut cluster = Cluster::with(1, Memory, |c| c.metrics = Some(at));
    assert_eq!(cluster.client().ask("set a 1"), "ok");
    let socket = cluster.configs[0].admin_path();
    assert_eq!(std::fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o600);
    let (head, body) = ask(&socket, "GET /status");
    assert!(head.contains("200"), "{head}");
    let status: NodeStatus = serde_json::from_str(&body).unwrap();
    assert_eq!((status.name.as_str(), status.leader, status.replica.id), ("test", Some(1), 1));
    assert_eq!(status.service, [cluster.service[0].to_string()]);
    let (head, body) = exchange(TcpStream::connect(at).unwrap(), "GET /metrics");
    assert!(head.contains("200"), "{head}");
    for line in [
        "skein_leader 1\n",
        "skein_connections ",
        "skein_commit_latency_seconds_bucket{",
        "skein_bubbles_total ",
    ] {
        assert!(body.contains(line), "{line} is missing in\n{body}");
    }
    assert!(
        exchange(TcpStream::connect(at).unwrap(), "POST /stop").0.contains("404"),
        "not over the network"
    );
    assert!(ask(&socket, "POST /transfer/x").0.contains("400"));
    assert!(ask(&socket, "POST /transfer").0.contains("409"), "there is nobody else");
    assert!(ask(&socket, "POST /stop").0.contains("202"));
    cluster.ended(1).unwrap();
    assert!(!socket.exists());
}

#[test]
fn leadership_can_be_handed_over() {
    let cluster = Cluster::new(3, Memory);
    let leader = cluster.leader();
    let to = (1..=3).find(|id| *id != leader).unwrap();
    let mut client = cluster.client();
    assert_eq!(client.ask("set a 1"), "ok");
    let socket = cluster.configs[leader as usize - 1].admin_path();
    let (head, _) = ask(&socket, &format!("POST /transfer/{to}"));
    assert!(head.contains("200"), "{head}");
    wait_for("the new leader", || (cluster.leader() == to).then_some(()));
    assert_eq!(cluster.client().ask("get a"), "1");
}
