//! `skein verify`: whether the replicas' servers have equal memory, and where it differs.

mod common;

use common::Place;
use common::cluster::Cluster;
use common::planted::{Planted, mapped, variable, verify};
use common::wait_for;
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
        assert_eq!(output.status.code(), Some(1));
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
