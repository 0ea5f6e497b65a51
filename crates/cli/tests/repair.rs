//! `skein verify --repair`: servers that differ are made equal, and clients notice nothing.

mod common;

use std::collections::BTreeSet;
use std::fs::{self, File, Permissions};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use common::cluster::{Cluster, free_port, wait_for_or};
use common::http::Http;
use common::own::{self, Lines};
use common::planted::{Planted, found, found_in_arena, mapped, variable, verify};
use common::real::{ANSWER, Real};
use common::resp::{Redis, Reply};
use common::story::{PATIENCE_OF_A_CLIENT, under_load};
use common::{Place, wait_for, web};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, Whence, lseek};
use serde_json::Value;

/// Finds a difference and repairs it; answers the report, which says what was done.
#[track_caller]
fn found_and_repaired(cluster: &Cluster) -> Value {
    let (report, code) = verify(cluster, &[]);
    assert_eq!((code, &report["verdict"]), (Some(1), &"differ".into()), "{report:#}");
    let (report, code) = verify(cluster, &["--repair"]);
    let verdict = &report["verdict"];
    assert_eq!(
        (code, verdict),
        (Some(0), &"repaired".into()),
        "{report:#}\n{}",
        cluster.evidence()
    );
    let (after, code) = verify(cluster, &[]);
    assert_eq!((code, &after["verdict"]), (Some(0), &"agree".into()), "{after:#}");
    report
}

/// The same of one replica; answers what was done about it, too.
#[track_caller]
fn repair(cluster: &Cluster, id: u64) -> (Value, Value) {
    let report = found_and_repaired(cluster);
    let repairs = report["repairs"].as_array().unwrap();
    assert_eq!((repairs.len(), &repairs[0]["id"]), (1, &id.into()), "{report:#}");
    let repair = repairs[0].clone();
    (report, repair)
}

/// The leader and a follower.
fn roles(status: &Value) -> [u64; 2] {
    let leader = Cluster::leader(status).0;
    [(1..=3).find(|id| *id != leader).unwrap(), leader]
}

fn pid(status: &Value, id: u64, of: &str) -> i64 {
    Cluster::replica(status, id)[of].as_i64().unwrap()
}

/// Counts on a redis without a pause while `work` runs.
fn served<T>(port: u16, work: impl FnOnce() -> T) -> T {
    let mut client = Redis::connect(port, ANSWER).unwrap();
    let next = move || match client.ask(&["INCR", "count"]).unwrap() {
        Reply::Int(number) => number,
        other => panic!("no number: {other:?}"),
    };
    counted(next, work)
}

/// Asks a server for the next number without a pause while `work` runs: none is lost, none comes twice, no connection breaks.
fn counted<T>(mut next: impl FnMut() -> i64 + Send, work: impl FnOnce() -> T) -> T {
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let count = scope.spawn(|| {
            let mut last = next();
            while !ended.load(Ordering::Relaxed) {
                let now = next();
                assert_eq!(last + 1, now);
                last = now;
            }
        });
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        ended.store(true, Ordering::Relaxed);
        count.join().unwrap();
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

#[test]
fn bytes_in_a_heap_are_repaired_while_clients_go_on() {
    let real = Real::redis(&[], &["--save", ""]);
    let mut client = Redis::connect(real.port(), ANSWER).unwrap();
    let value = "a value that no other place has ".repeat(40);
    client.set("marker", &value).unwrap();
    real.wait_agreed();
    let status = real.cluster.wait_status(0);
    for id in roles(&status) {
        let pid = pid(&status, id, "server_pid");
        let places = found(pid, value.as_bytes());
        assert!(!places.is_empty(), "the value is in its memory");
        let planted: Vec<_> = places.iter().map(|at| Planted::at(pid, at + 100)).collect();
        let (report, repair) = served(real.port(), || repair(&real.cluster, id));
        let told = planted[0].told(&report).unwrap_or_else(|| panic!("not told: {report:#}"));
        assert!(told["command"].as_str().unwrap().contains("redis-server"), "{told}");
        assert_ne!(told["mapping"], "", "{told}");
        assert_eq!((&repair["pieces"], &repair["rebuilt"]), (&0.into(), &Value::Null));
        assert!(repair["pages"].as_u64().unwrap() >= 1, "{repair}");
        planted.into_iter().for_each(Planted::was_repaired);
        let now = real.cluster.wait_status(0);
        assert_eq!(self::pid(&now, id, "server_pid"), pid, "it is the same server");
        assert_eq!(Cluster::leader(&now).0, Cluster::leader(&status).0);
        assert_eq!(client.get("marker").unwrap().unwrap(), value.as_bytes());
    }
    real.end();
}

/// A passive replica has images of the others'. What differed may be in them: they go when there is a later one, also when its node was killed since.
#[test]
fn a_passive_replica_does_not_keep_images_of_what_differed() {
    let settings = ["checkpoint.log_entries=200", "checkpoint.keep=10"];
    let [entries, keep] = settings.map(|setting| ["--set", setting]);
    let options = [&["--replica-kind", "3=passive"][..], &entries, &keep].concat();
    let real = Real::redis(&options, &["--save", ""]);
    let mut client = Redis::connect(real.port(), ANSWER).unwrap();
    let value = "a value that no other place has ".repeat(40);
    client.set("marker", &value).unwrap();
    let mut written = 0;
    let mut has = |what: &str, is: &dyn Fn(u64) -> bool| {
        let there = || {
            written += 1;
            // Connections end where leadership moves.
            if client.set(&format!("key-{written}"), "value").is_err() {
                client = Redis::connect(real.port(), ANSWER).ok()?;
            }
            let images = real.images(3).filter(|_| written % 50 == 0)?;
            let all: Vec<u64> = images.iter().filter_map(|image| image["index"].as_u64()).collect();
            (!all.is_empty() && all.iter().all(|index| is(*index))).then_some(all)
        };
        wait_for_or(what, || real.cluster.evidence(), there)
    };
    let former = has("the passive replica to have an image", &|_| true);
    let status = real.cluster.wait_status(0);
    let other = (1..=2).find(|id| *id != Cluster::leader(&status).0).unwrap();
    let server = pid(&status, other, "server_pid");
    let at = found(server, value.as_bytes())[0] + 100;
    let planted = Planted::at(server, at);
    let (report, _) = repair(&real.cluster, other);
    planted.was_repaired();
    let index = report["replicas"][0]["index"].as_u64().unwrap();
    assert!(former.iter().all(|image| *image <= index), "{report:#}");
    let noted = real.cluster.place.path("data/node-3/images/doubted");
    let noted = || fs::read_to_string(&noted).ok().filter(|text| *text == format!("{index}\n"));
    wait_for_or("it to note that", || real.cluster.evidence(), noted);
    let node = i32::try_from(pid(&status, 3, "node_pid")).unwrap();
    kill(Pid::from_raw(node), Signal::SIGKILL).unwrap();
    has("all of its images to be later ones", &|image| image >= index);
    real.stop();
}

#[test]
fn variables_and_stacks_are_repaired() {
    let cluster = Cluster::start(&[]);
    let status = cluster.wait_ready();
    assert_eq!(cluster.count(), 1);
    let program = cluster.place.path("echo_threads");
    for (id, count) in roles(&status).into_iter().zip(2..) {
        // A follower may not have executed the request yet.
        assert_eq!(verify(&cluster, &[]).1, Some(0));
        let pid = pid(&status, id, "server_pid");
        let base = mapped(pid, program.to_str().unwrap());
        let in_variable = base + variable(&program, "requests") + 1;
        let on_stack = mapped(pid, "[stack]") + 0x123;
        let planted = [in_variable, on_stack].map(|address| Planted::at(pid, address));
        let (report, repair) = repair(&cluster, id);
        let told = planted[0].told(&report).unwrap();
        assert_eq!(told["symbol"], "requests+0x1", "{told}");
        assert_eq!(repair["pages"], 2, "{report:#}");
        planted.into_iter().for_each(Planted::was_repaired);
        assert_eq!(cluster.count(), count, "the answer is right");
    }
    let said = cluster.said();
    assert!(!said.contains("diverged"), "{said}");
}

/// No debugger writes here: a data race ends otherwise on each replica (`tests/servers/raced.c` says how), and clients' answers do not tell.
#[test]
fn a_race_is_found_named_and_repaired_while_clients_go_on() {
    let real = own::start("raced.c", &[]);
    let (port, cluster) = (real.port(), &real.cluster);
    let mut lines = Lines::connect(port, ANSWER).unwrap();
    let mut number = |line| lines.ask(line).unwrap().parse::<i64>().unwrap();
    assert_eq!(number("count"), 1);
    assert_eq!(verify(cluster, &[]).1, Some(0));
    let status = cluster.wait_status(0);
    let leader = Cluster::leader(&status).0;
    let followers: Vec<u64> = (1..=3).filter(|id| *id != leader).collect();
    for n in 2..=3 {
        assert_eq!(number("race"), n);
        // Outputs are equal, and stay it.
        real.wait_agreed();
    }
    let mut lines = Lines::connect(port, ANSWER).unwrap();
    let next = move || lines.ask("count").unwrap().parse().unwrap();
    let report = counted(next, || found_and_repaired(cluster));
    let all = report["differences"].as_array().unwrap();
    let named = |told: &&Value| {
        told["symbol"].as_str().is_some_and(|name| name.split('+').next() == Some("raced_for"))
    };
    let told = all.iter().find(named).unwrap_or_else(|| panic!("not named: {report:#}"));
    assert_eq!(told["kind"], "bytes", "{told}");
    assert!(told["command"].as_str().unwrap().contains("raced"), "{told}");
    assert!(told["mapping"].as_str().unwrap().contains("/raced"), "{told}");
    // No two of these are the same, so the one whose answers clients have seen counts.
    let values: BTreeSet<&str> =
        told["values"].as_array().unwrap().iter().map(|value| value.as_str().unwrap()).collect();
    assert_eq!(values.len(), 3, "{told}");
    let repairs = report["repairs"].as_array().unwrap();
    let repaired: Vec<_> = repairs.iter().map(|repair| repair["id"].as_u64().unwrap()).collect();
    assert_eq!(repaired, followers, "{report:#}");
    for repair in repairs {
        assert_eq!((&repair["from"], &repair["rebuilt"]), (&leader.into(), &Value::Null));
    }
    let now = cluster.wait_status(0);
    for id in 1..=3 {
        assert_eq!(pid(&now, id, "server_pid"), pid(&status, id, "server_pid"), "the same server");
    }
    real.end();
}

#[test]
fn a_worker_of_nginx_is_repaired() {
    let (place, port) = (Place::new(), free_port());
    web::tree(&place);
    let www = place.path("www");
    let www = www.to_str().unwrap();
    let real =
        web::nginx(place, port, &format!("server {{ listen 127.0.0.1:{port}; root {www}; }}"));
    let page = |number: u64| {
        let mut http = Http::connect(port, ANSWER).unwrap();
        http.get(&format!("/{number}.txt")).unwrap().text()
    };
    assert_eq!(page(1), web::page(1));
    let status = real.cluster.wait_status(0);
    let id = roles(&status)[0];
    let master = pid(&status, id, "server_pid");
    // All processes of a server are in one namespace; workers were made last.
    let namespace = |pid: i64| fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
    let all = fs::read_dir("/proc").unwrap().flatten();
    let all = all.filter_map(|entry| entry.file_name().to_str()?.parse::<i64>().ok());
    let worker = all.filter(|pid| namespace(*pid) == namespace(master)).max().unwrap();
    assert_ne!(worker, master);
    let of_master = mapped(master, "[heap]") + 0x2001;
    let of_worker = mapped(worker, "[heap]") + 0x3001;
    let planted = [Planted::at(master, of_master), Planted::at(worker, of_worker)];
    let (report, done) = repair(&real.cluster, id);
    let told = planted.each_ref().map(|planted| planted.told(&report).unwrap());
    assert_ne!(told[0]["pid"], told[1]["pid"], "{report:#}");
    assert!(told[1]["mapping"].as_str().unwrap().starts_with("[heap]"), "{report:#}");
    assert_eq!((&done["pages"], &done["rebuilt"]), (&2.into(), &Value::Null), "{done}");
    planted.into_iter().for_each(Planted::was_repaired);
    assert_eq!(page(2), web::page(2));
    real.end();
}

#[test]
fn the_arena_is_repaired_while_clients_go_on() {
    let cluster = Cluster::start(&[]);
    let status = cluster.wait_ready();
    for id in roles(&status) {
        let mut lines = Lines::connect(cluster.port, ANSWER).unwrap();
        let mut next = move || {
            let answer = lines.ask("x").unwrap();
            answer.split(' ').next().unwrap().parse().unwrap()
        };
        // Its thread is there.
        next();
        assert_eq!(verify(&cluster, &[]).1, Some(0));
        // A thread's name, and whatever else has it.
        let (arena, places) = found_in_arena(pid(&status, id, "node_pid"), b"echo_threads\0");
        assert!(!places.is_empty(), "the thread has a name");
        for at in &places {
            arena.write_all_at(b"E", *at).unwrap();
        }
        let (report, done) = counted(next, || repair(&cluster, id));
        let all = report["differences"].as_array().unwrap();
        let named = |told: &&Value| {
            let symbol = told["symbol"].as_str();
            told["pid"].is_null() && symbol.is_some_and(|name| name.contains("Thread"))
        };
        assert!(all.iter().any(|told| named(&told)), "{report:#}");
        assert_eq!(done["rebuilt"], Value::Null, "{done}");
        for at in &places {
            let mut byte = [0];
            arena.read_exact_at(&mut byte, *at).unwrap();
            assert_eq!(byte, *b"e", "at {at:#x}");
        }
        let now = cluster.wait_status(0);
        assert_eq!(pid(&now, id, "server_pid"), pid(&status, id, "server_pid"), "the same server");
        assert_eq!(Cluster::leader(&now).0, Cluster::leader(&status).0);
    }
}

#[test]
fn a_file_is_repaired_by_pieces_and_its_attributes_by_a_new_server() {
    let place = Place::new();
    let dir = place.path("redis");
    fs::create_dir(&dir).unwrap();
    let dir = dir.to_str().unwrap().to_owned();
    let port = free_port();
    let words = ["/usr/bin/redis-server", "--port", &port.to_string(), "--dir", &dir, "--save", ""];
    let more = ["--appendonly", "yes", "--appendfsync", "no"];
    let server = words.iter().chain(&more).map(ToString::to_string).collect();
    let real = Real::serve(place, port, &[], server);
    let mut client = Redis::connect(port, ANSWER).unwrap();
    for n in 0..40 {
        client.set(&format!("key-{n}"), &"x".repeat(5000)).unwrap();
    }
    real.wait_agreed();
    let status = real.cluster.wait_status(0);
    // What it appends its data to: the largest one in a replica's directory of it.
    let appended = |id| {
        let server = pid(&real.cluster.wait_status(0), id, "server_pid");
        let root = format!("/proc/{server}/root{dir}/appendonlydir");
        let file = fs::read_dir(&root).unwrap().flatten().map(|entry| entry.path());
        file.max_by_key(|path| fs::metadata(path).unwrap().len()).unwrap()
    };

    // One byte in the middle.
    for id in roles(&status) {
        let file = appended(id);
        let contents = fs::read(&file).unwrap();
        assert!(contents.len() > 150_000, "{} bytes", contents.len());
        let opened = fs::File::options().read(true).write(true).open(&file).unwrap();
        opened.write_all_at(b"!", 100_000).unwrap();
        let (report, done) = served(port, || repair(&real.cluster, id));
        let told = &report["differences"][0];
        assert_eq!(told["kind"], "file", "{report:#}");
        assert!(told["mapping"].as_str().unwrap().starts_with(&dir), "{report:#}");
        assert_eq!((&done["pieces"], &done["rebuilt"]), (&1.into(), &Value::Null), "{done}");
        assert_eq!(fs::read(&file).unwrap()[..contents.len()], contents);
        let now = real.cluster.wait_status(0);
        assert_eq!(pid(&now, id, "server_pid"), pid(&status, id, "server_pid"), "the same server");
        assert_eq!(Cluster::leader(&now).0, Cluster::leader(&status).0);
    }

    // Its mode: that is no content. The new server continues from an image that is older than the last time when all were found equal.
    let id = roles(&status)[0];
    let index = real.image_that_counts(id, || {
        client.set("key", "value").unwrap();
    });
    let (report, code) = verify(&real.cluster, &[]);
    assert_eq!((code, &report["verdict"]), (Some(0), &"agree".into()), "{report:#}");
    fs::set_permissions(appended(id), Permissions::from_mode(0o600)).unwrap();
    let (_, done) = served(port, || repair(&real.cluster, id));
    assert!(done["rebuilt"].is_string(), "{done}");
    let now = real.cluster.wait_status(0);
    assert_ne!(pid(&now, id, "server_pid"), pid(&status, id, "server_pid"), "another server");
    assert_eq!(real.restored(id), Some(index), "{}", real.cluster.evidence());
    real.wait_files_agreed();

    // The leader's, too: it hands over, and clients connect again.
    let (leader, _) = Cluster::leader(&now);
    fs::set_permissions(appended(leader), Permissions::from_mode(0o600)).unwrap();
    let connect = || Redis::connect(port, PATIENCE_OF_A_CLIENT);
    let set = |client: &mut Redis, word: &str| client.set(word, "value");
    let books = under_load(&real, 2, 50, connect, set, || {
        let (_, done) = repair(&real.cluster, leader);
        assert!(done["rebuilt"].is_string(), "{done}");
    });
    let after = real.cluster.wait_status(0);
    assert_ne!(pid(&after, leader, "server_pid"), pid(&now, leader, "server_pid"), "another one");
    let mut client = wait_for("a connection", || Redis::connect(port, ANSWER).ok());
    for word in books.kept {
        assert_eq!(client.get(&word).unwrap().unwrap(), b"value", "{word}");
    }
    real.wait_files_agreed();
}

/// A descriptor of a process, and this process's own of the same open file.
fn opened(pid: i64, file: &str) -> (i32, File) {
    let all = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    let is_it = |path: &std::path::PathBuf| {
        fs::read_link(path).is_ok_and(|name| name.to_str().is_some_and(|name| name.ends_with(file)))
    };
    let found = all.map(|entry| entry.path()).find(is_it).expect("it has it open");
    let fd: i32 = found.file_name().unwrap().to_str().unwrap().parse().unwrap();
    // SAFETY: numbers only; what is answered is nobody else's.
    let file = unsafe {
        let process = libc::syscall(libc::SYS_pidfd_open, pid, 0);
        assert!(process >= 0, "{}", std::io::Error::last_os_error());
        let process = File::from_raw_fd(process as i32);
        let file = libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), fd, 0);
        assert!(file >= 0, "{}", std::io::Error::last_os_error());
        File::from_raw_fd(file as i32)
    };
    (fd, file)
}

/// What only the kernel has: a server from an image has all of it again, and what is changed from outside, as by an image that lacks it, is told and not left so.
#[test]
fn what_the_kernel_has_of_processes_is_compared() {
    let (place, port) = (Place::new(), free_port());
    let server = own::compiled(&place, "opened.c").to_str().unwrap().to_owned();
    let dir = place.path("files");
    fs::create_dir(&dir).unwrap();
    let dir = dir.to_str().unwrap().to_owned();
    let real = Real::serve(place, port, &[], vec![server, dir.clone(), port.to_string()]);
    let cluster = &real.cluster;
    let count = || Lines::connect(port, ANSWER).ok()?.ask("count").ok()?.parse::<u64>().ok();
    let (report, code) = verify(cluster, &[]);
    assert_eq!((code, &report["verdict"]), (Some(0), &"agree".into()), "{report:#}");
    let told = report["replicas"].as_array().unwrap().iter();
    assert!(told.into_iter().all(|replica| replica["tells_state"] == true), "{report:#}");
    real.continue_a_follower_from_an_image(|| {
        wait_for_or("an answer", || cluster.evidence(), count);
    });

    // Servers that are rebuilt have the same, though their nodes have others by then.
    let slack = || Lines::connect(port, ANSWER).ok()?.ask("slack").ok();
    assert_eq!(wait_for_or("its timer slack", || cluster.evidence(), slack), "50000");
    real.wait_agreed();

    let status = cluster.wait_status(0);
    let [follower, leader] = roles(&status);
    let position = |pid| {
        let (fd, file) = opened(pid, "/removed (deleted)");
        assert_eq!(lseek(&file, 0, Whence::SeekCur), Ok(3));
        lseek(&file, 5, Whence::SeekSet).unwrap();
        let [old, new] =
            [3, 5].map(|at| format!("a removed file, position {at}, 7 bytes, flags 02"));
        (fd, old, new)
    };
    let flags = |pid| {
        let (fd, file) = opened(pid, "/whole");
        // SAFETY: numbers only.
        let done = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, libc::O_APPEND) };
        assert_eq!(done, 0);
        let value = |flags| {
            format!("{dir}/whole, position 3, flags 0{flags}, lock FLOCK ADVISORY WRITE 0 EOF")
        };
        (fd, value("2"), value("2002"))
    };
    let change: [&dyn Fn(i64) -> (i32, String, String); 2] = [&position, &flags];
    for (id, change) in [follower, leader].into_iter().zip(change) {
        let former = pid(&cluster.wait_status(0), id, "server_pid");
        let (fd, old, new) = change(former);
        let output = cluster.place.run(&["verify", "--name", "t"]);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(1), "{text}\n{}", cluster.evidence());
        let line = format!(")  descriptor {fd}\n");
        assert!(text.contains(&line) && text.contains(&format!("{id}: {new}\n")), "{text}");

        let (report, done) = repair(cluster, id);
        let all = report["differences"].as_array().unwrap().iter();
        let of_first = all.filter(|told| told["pid"] == 2).collect::<Vec<_>>();
        let [told] = of_first[..] else { panic!("{report:#}") };
        assert_eq!(told["kind"], "state", "{report:#}");
        assert_eq!(told["mapping"], format!("descriptor {fd}"), "{report:#}");
        let values = (1..=3).map(|n| if n == id { &new } else { &old });
        assert_eq!(told["values"], Value::from_iter(values.cloned()), "{report:#}");
        let why = done["rebuilt"].as_str().unwrap_or_default();
        assert!(why.contains(&format!("its descriptor {fd} of process 2 ")), "{report:#}");
        let now = pid(&cluster.wait_status(0), id, "server_pid");
        assert_ne!(now, former, "another server");
    }
    wait_for_or("an answer", || cluster.evidence(), count);
    real.wait_memory_agreed();
}
