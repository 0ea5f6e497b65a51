//! `skein verify`: whether the replicas' servers have equal memory, and where it differs.

mod common;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::thread;

use common::cluster::{Cluster, free_port};
use common::own::{self, Lines};
use common::planted::{Planted, found, mapped, variable, verify};
use common::real::{ANSWER, Real};
use common::{Place, wait_for};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

#[test]
fn a_byte_that_differs_is_found_and_named() {
    let cluster = Cluster::start(&[]);
    let status = cluster.wait_ready();
    assert_eq!(cluster.count(), 1);
    // A follower may not have executed the request yet.
    assert_eq!(verify(&cluster, &[]).1, Some(0));
    let pid = Cluster::replica(&status, 2)["server_pid"].as_i64().unwrap();
    let program = cluster.place.path("echo_threads");
    let base = mapped(pid, program.to_str().unwrap());
    // One byte in a variable, one in a page that may never have been written.
    let in_variable = base + variable(&program, "requests") + 1;
    let on_stack = mapped(pid, "[stack]") + 0x123;
    {
        let planted = [in_variable, on_stack].map(|address| Planted::at(pid, address));
        let (report, code) = verify(&cluster, &[]);
        assert_eq!(code, Some(1), "{report:#}");
        assert_eq!(report["verdict"], "differ");
        for planted in &planted {
            let told = planted.told(&report).unwrap_or_else(|| panic!("not told: {report:#}"));
            assert_eq!((&told["kind"], &told["pid"]), (&"bytes".into(), &2.into()));
            assert!(told["command"].as_str().unwrap().contains("echo_threads"), "{told}");
            assert_eq!(told["len"], 1, "{told}");
            let (old, new) = (format!("{:02x}", planted.old), format!("{:02x}", planted.new));
            assert_eq!(told["values"], serde_json::json!([old, new, old]), "{told}");
        }
        let of_variable = planted[0].told(&report).unwrap();
        assert_eq!(of_variable["symbol"], "requests+0x1");
        let object = format!("echo_threads+{:#x}", in_variable - base);
        assert_eq!(of_variable["object"], object);
        let mapping = of_variable["mapping"].as_str().unwrap();
        assert_eq!(mapping, format!("{} rw-p", program.display()));
        let offset = of_variable["offset"].as_str().unwrap().strip_prefix("0x").unwrap();
        assert!(u64::from_str_radix(offset, 16).unwrap() < 0x2000, "{of_variable}");
        assert_eq!(planted[1].told(&report).unwrap()["mapping"], "[stack] rw-p");

        // The same for a reader.
        let output = cluster.place.run(&["verify", "--name", "t"]);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(1), "{text}\n{}", cluster.evidence());
        assert!(text.contains("the replicas' memory differs"), "{text}");
        assert!(text.contains("requests+0x1\n"), "{text}");
    }
    let (report, _) = verify(&cluster, &[]);
    for address in [in_variable, on_stack] {
        let told = report["differences"].as_array().unwrap().iter();
        let address = format!("{address:#x}");
        assert!(!told.clone().any(|told| told["address"] == *address), "{report:#}");
    }
    // It served all the time.
    assert_eq!(cluster.count(), 2);
}

#[test]
fn all_are_compared_at_one_entry() {
    let cluster = Cluster::start(&[]);
    cluster.wait_ready();
    let (report, _) = verify(&cluster, &[]);
    let replicas = report["replicas"].as_array().unwrap();
    assert_eq!(replicas.len(), 3);
    for replica in replicas {
        assert_eq!(replica["processes"], 1, "{report:#}");
        assert_eq!(replica["mappings"], replicas[0]["mappings"], "{report:#}");
        assert_eq!(replica["index"], replicas[0]["index"], "{report:#}");
    }
    // The runtime's data about the server are equal.
    let differences = report["differences"].as_array().unwrap();
    assert!(!differences.iter().any(|told| told["pid"].is_null()), "{report:#}");
}

/// The body of a good answer of a node's admin interface.
fn asked(cluster: &Cluster, id: u64, request: &str) -> Option<Vec<u8>> {
    let path = cluster.place.path(&format!("run/t/node-{id}.sock"));
    let mut stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(ANSWER)).unwrap();
    write!(stream, "{request} HTTP/1.0\r\nHost: skein\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let body = answer.windows(4).position(|end| end == b"\r\n\r\n").unwrap() + 4;
    (&answer[9..12] == b"200").then(|| answer.split_off(body))
}

/// The same of all nodes at one time.
fn all_asked(cluster: &Cluster, request: &str) -> Option<Vec<Vec<u8>>> {
    thread::scope(|scope| {
        let ask = |id| scope.spawn(move || asked(cluster, id, request));
        let all: Vec<_> = (1..=3).map(ask).collect();
        all.into_iter().map(|answer| answer.join().unwrap()).collect()
    })
}

/// Bytes of all hashes of all pages, as an earlier version of the command asks for them.
fn list_of_all(cluster: &Cluster) -> Option<usize> {
    let held = all_asked(cluster, "POST /hold");
    let index = |text| String::from_utf8(text).unwrap().trim().parse::<u64>().unwrap();
    let told = held.and_then(|held| {
        let index = held.into_iter().map(index).max().unwrap();
        all_asked(cluster, &format!("GET /memory/{index}"))
    });
    all_asked(cluster, "POST /go-on")?;
    told.map(|all| all.iter().map(Vec::len).sum())
}

/// What nodes and the command say to each other, in bytes: to earlier versions of the command all hashes, now those of what differs.
#[test]
fn replicas_tell_in_proportion_to_what_differs() {
    const MIB: usize = 256;
    let (place, port) = (Place::new(), free_port());
    let server = own::compiled(&place, "filled.c").to_str().unwrap().to_owned();
    let real = Real::serve(place, port, &[], vec![server, MIB.to_string(), port.to_string()]);
    let cluster = &real.cluster;
    assert_eq!(Lines::connect(port, ANSWER).unwrap().ask("count").unwrap(), "1");
    real.wait_agreed();

    let list = wait_for("all hashes of all", || list_of_all(cluster));
    let exchanged = |verdict: &str| {
        let (report, _) = verify(cluster, &[]);
        assert_eq!(report["verdict"], verdict, "{report:#}");
        let replicas = report["replicas"].as_array().unwrap();
        let pages = replicas.iter().map(|replica| replica["pages"].as_u64().unwrap());
        assert!(pages.min().unwrap() >= (MIB as u64) << 8, "{report:#}");
        let bytes = replicas.iter().map(|replica| replica["exchanged_bytes"].as_u64().unwrap());
        (bytes.sum::<u64>() as usize, report)
    };
    let (equal, _) = exchanged("agree");
    let status = cluster.wait_status(0);
    let pid = Cluster::replica(&status, 2)["server_pid"].as_i64().unwrap();
    // The first word; those of pages that are half of the memory away.
    let first = found(pid, &0x9e37_79b9_7f4a_7c15u64.to_le_bytes());
    let memory = *first.iter().find(|at| at.is_multiple_of(4096)).unwrap();
    let one_page = Planted::at(pid, memory + 5);
    let (one, report) = exchanged("differ");
    assert_eq!(report["differing_pages"], 1, "{report:#}");
    assert!(one_page.told(&report).is_some(), "{report:#}");
    let far = memory + ((MIB as u64) << 19);
    let other_page = Planted::at(pid, far + 9);
    let (two, report) = exchanged("differ");
    assert_eq!(report["differing_pages"], 2, "{report:#}");
    assert!([&one_page, &other_page].iter().all(|page| page.told(&report).is_some()), "{report:#}");
    println!(
        "three replicas of {MIB} MiB: {list} bytes as one list; {equal} bytes where all are equal, {one} with one page that differs, {two} with two"
    );
    assert!(equal * 100 < list && two * 10 < list, "{list} {equal} {one} {two}");
    assert!(two - one <= one - equal, "{list} {equal} {one} {two}");
    let (report, code) = verify(cluster, &["--repair"]);
    assert_eq!((code, &report["verdict"]), (Some(0), &"repaired".into()), "{report:#}");
    [one_page, other_page].into_iter().for_each(Planted::was_repaired);
    real.end();
}

#[test]
fn a_node_that_does_not_answer_makes_it_unknown() {
    let cluster = Cluster::start(&[]);
    let status = cluster.wait_ready();
    let leader = Cluster::leader(&status).0;
    let other = (1..=3).find(|id| *id != leader).unwrap();
    let node = Cluster::replica(&status, other)["node_pid"].as_i64().unwrap() as i32;
    kill(Pid::from_raw(node), Signal::SIGSTOP).unwrap();
    let output = cluster.place.run(&["verify", "--name", "t"]);
    kill(Pid::from_raw(node), Signal::SIGCONT).unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("the replicas cannot be compared now"), "{text}");
    assert!(text.contains(&format!("replica {other}  it does not answer")), "{text}");
    // The others continued meanwhile, and the comparison works again.
    assert!(cluster.count() > 0);
    wait_for("an answer of all", || (verify(&cluster, &[]).1 != Some(2)).then_some(()));
}

#[test]
fn one_replica_is_compared_with_nothing() {
    let cluster = Cluster::start(&["--replicas", "1"]);
    cluster.wait_ready();
    let output = cluster.place.run(&["verify", "--name", "t"]);
    common::assert_line(&output, 2, &["cluster t", "nothing to compare with"]);
}

#[test]
fn without_a_cluster_it_says_so() {
    let output = Place::new().run(&["verify", "--name", "t"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&output.stderr).contains("skein: cluster t: "));
}
