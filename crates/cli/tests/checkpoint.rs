//! Images of a real server: replicas continue from them after their nodes were killed, a damaged one is set aside, and `skein checkpoint` shows, checks,
//! copies and removes them.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use common::cluster::{Cluster, free_port, wait_for_or};
use common::load::Load;
use common::nodes::{Nodes, wait_redis};
use common::own::{self, Lines};
use common::real::{ANSWER, Random, Real};
use common::resp::{Redis, Reply};
use common::story::under_load;
use common::{Place, assert_line, wait_for};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// Requests on one connection: each is an entry of its own.
fn work(real: &Real, requests: usize, random: &mut Random) {
    let mut client = Redis::connect(real.port(), ANSWER).unwrap();
    for _ in 0..requests {
        let (key, len) = (format!("key:{}", random.below(300)), random.below(400) as usize);
        client.ask(&[b"APPEND", key.as_bytes(), &random.bytes(len)]).unwrap();
    }
}

/// redis with an append-only file: the server's files are a part of its images.
fn with_files() -> Real {
    let (place, port) = (Place::new(), free_port());
    let dir = place.path("redis");
    fs::create_dir(&dir).unwrap();
    let (port_word, dir) = (port.to_string(), dir.to_str().unwrap().to_owned());
    let words = ["/usr/bin/redis-server", "--port", &port_word, "--dir", &dir];
    let words = words.into_iter().chain(["--appendonly", "yes", "--save", ""]);
    let server = words.map(ToString::to_string).collect();
    Real::serve(place, port, &[], server)
}

fn size(real: &Real) -> Reply {
    let mut client = wait_for("a connection", || Redis::connect(real.port(), ANSWER).ok());
    client.say("DBSIZE")
}

/// `skein checkpoint TASK --name t`: its exit code and output.
fn checkpoint(real: &Real, words: &[&str]) -> (Option<i32>, String) {
    let words = [&["checkpoint"], words, &["--name", "t"]].concat();
    let output = real.cluster.place.run(&words);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    (output.status.code(), said + &String::from_utf8_lossy(&output.stderr))
}

/// The images of a replica, oldest first.
fn images(real: &Real, replica: u64) -> Vec<Value> {
    let (code, said) = checkpoint(real, &["ls", "--json"]);
    assert_eq!(code, Some(0), "{said}");
    let all: Value = serde_json::from_str(&said).unwrap();
    let row = all.as_array().unwrap().iter().find(|row| row["replica"] == replica).unwrap();
    row["images"].as_array().unwrap().clone()
}

/// Takes an image on a replica, and works until the servers were compared behind it; answers its entry.
fn take(real: &Real, replica: u64, random: &mut Random) -> u64 {
    take_pages(real, replica, random).0
}

/// The same; and how many pages were copied for it.
fn take_pages(real: &Real, replica: u64, random: &mut Random) -> (u64, u64) {
    let (code, said) = checkpoint(real, &["create", "--replica", &replica.to_string()]);
    assert_eq!(code, Some(0), "{said}\n{}", real.cluster.evidence());
    assert!(said.contains(&format!("replica {replica} has an image of entry ")), "{said}");
    let entry = said.split("of entry ").nth(1).and_then(|rest| rest.split(':').next()).unwrap();
    let entry: u64 = entry.parse().unwrap();
    let pages =
        said.split(" pages copied").next().and_then(|begin| begin.rsplit(' ').next()).unwrap();
    let pages: u64 = pages.replace(',', "").parse().unwrap();
    let counts = || {
        work(real, 50, random);
        let image = images(real, replica).into_iter().find(|image| image["index"] == entry)?;
        (image["confirmed"] == true).then_some(())
    };
    wait_for_or("the image to count", || real.cluster.evidence(), counts);
    (entry, pages)
}

fn image(real: &Real, replica: u64, entry: u64) -> PathBuf {
    real.cluster.place.path(&format!("data/node-{replica}/images/image-{entry}"))
}

/// A follower, and its node's process.
fn follower(real: &Real) -> (u64, Pid) {
    let status = real.cluster.wait_status(0);
    let rows = status["replicas"].as_array().unwrap();
    let row = rows.iter().find(|row| row["role"] == "follower").unwrap();
    (row["id"].as_u64().unwrap(), Pid::from_raw(row["node_pid"].as_i64().unwrap() as i32))
}

/// The parts of glibc's heap in a process, besides the first one: each has 64 MiB of addresses, of which it may not use the last ones yet.
fn heap_parts(pid: Pid) -> usize {
    const PART: u64 = 64 << 20;
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let number = |text: &str| u64::from_str_radix(text, 16).unwrap();
    let ends = maps.lines().filter_map(|line| {
        let (range, rest) = line.split_once(' ')?;
        let (from, to) = range.split_once('-')?;
        Some((number(from), number(to), rest.split(' ').next()?))
    });
    let ends: Vec<_> = ends.collect();
    let is_part = |pair: &&[(u64, u64, &str)]| {
        let [(from, end, "rw-p"), (next, to, "---p")] = pair else { return false };
        from.is_multiple_of(PART) && end == next && *to == from + PART
    };
    ends.windows(2).filter(is_part).count()
}

#[test]
fn killed_replicas_continue_from_their_newest_whole_image() {
    let mut real = with_files();
    let mut random = Random::new(7);
    work(&real, 500, &mut random);
    let (replica, node) = follower(&real);
    let first = take(&real, replica, &mut random);
    assert!(real.events(replica, "restoring").is_empty());
    // It has more threads than that: their memory comes from few parts, or each kept its share of an image.
    let parts = heap_parts(node);
    assert!((1..4).contains(&parts), "{parts} parts");

    // Its node alone.
    kill(node, Signal::SIGKILL).unwrap();
    real.cluster.wait_said(&format!("node {replica} died"));
    work(&real, 200, &mut random);
    real.cluster.wait_status(0);
    real.wait_agreed();
    let restored: Vec<_> = real.events(replica, "restoring");
    assert_eq!(restored.len(), 1, "{}", real.cluster.evidence());
    assert_eq!(restored[0]["index"], first);
    // Its pages came to where they belong, and by no file between.
    let unpacked = real.events(replica, "unpacked");
    let into: Vec<_> = unpacked.iter().map(|event| event["into"].as_str()).collect();
    assert_eq!(into, [Some("memory")], "{}", real.cluster.evidence());
    assert!(real.events(replica, "server_ended").is_empty(), "{}", real.cluster.evidence());
    real.wait_files_agreed();
    real.wait_memory_agreed();

    // All nodes; the other replicas have no image, and begin with the log.
    let before = size(&real);
    real.kill_all_and_run_again();
    real.cluster.wait_ready();
    assert_eq!(size(&real), before);
    real.wait_agreed();
    assert_eq!(real.events(replica, "restoring").len(), 2, "{}", real.cluster.evidence());

    // A damaged one: the one before it counts.
    let second = take(&real, replica, &mut random);
    assert_eq!(checkpoint(&real, &["verify"]).0, Some(0));
    let path = image(&real, replica, second);
    let mut bytes = fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&path, bytes).unwrap();
    let (code, said) = checkpoint(&real, &["verify"]);
    assert!(code == Some(1) && said.contains("the image is damaged"), "{code:?} {said}");
    let before = size(&real);
    real.kill_all_and_run_again();
    real.cluster.wait_ready();
    assert_eq!(size(&real), before);
    assert!(path.with_extension("damaged").exists() && !path.exists());
    let restored = real.events(replica, "restoring");
    assert_eq!(restored.last().unwrap()["index"], first, "{}", real.cluster.evidence());
    assert_eq!(real.events(replica, "image_unusable").len(), 1);
    real.end();
}

/// Where the kernel does not tell which pages were written, all are read and compared: an image has what changed then, too.
#[test]
fn pages_are_compared_where_the_kernel_does_not_tell_which_were_written() {
    let real = Real::redis_with_pages_compared();
    let mut random = Random::new(9);
    work(&real, 2000, &mut random);
    let (replica, node) = follower(&real);
    let (_, all) = take_pages(&real, replica, &mut random);
    let (second, few) = take_pages(&real, replica, &mut random);
    assert!(few < all / 2, "{few} of {all} pages");
    assert_eq!(real.events(replica, "pages_compared").len(), 2, "{}", real.cluster.evidence());
    kill(node, Signal::SIGKILL).unwrap();
    real.cluster.wait_said(&format!("node {replica} died"));
    work(&real, 200, &mut random);
    real.cluster.wait_status(0);
    real.wait_agreed();
    let restored = real.events(replica, "restoring");
    assert_eq!(restored.last().unwrap()["index"], second, "{}", real.cluster.evidence());
    real.wait_memory_agreed();
}

/// Its clients wait for as little as possible: the server stands until what is left is read, for its first image, too; most was read while it went on, or its copies are read. A restart
/// continues from one with all that was acknowledged.
#[test]
fn a_lone_replicas_server_forks_or_stands_for_images_under_load() {
    let mut real = Real::redis(&["--replicas", "1"], &["--save", ""]);
    let mut random = Random::new(9);
    work(&real, 300, &mut random);
    let at: SocketAddr = ([127, 0, 0, 1], real.port()).into();
    let load = Load::start(3, vec![at], || {});
    let mut last = 0;
    let mut ways = Vec::new();
    for round in 0..6 {
        // The next one has an entry of its own.
        work(&real, 20, &mut random);
        if round % 5 == 0 {
            let fill =
                "for i=1,40000 do redis.call('SET','much:'..i,string.rep('x',1000)) end return 1";
            let mut redis = wait_for("a connection", || Redis::connect(real.port(), ANSWER).ok());
            assert_eq!(redis.ask(&["EVAL", fill, "0"]).unwrap(), Reply::Int(1));
        }
        let (code, said) = checkpoint(&real, &["create", "--json"]);
        assert_eq!(code, Some(0), "{said}\n{}", real.cluster.evidence());
        let image: Value = serde_json::from_str(&said).unwrap();
        ways.push(image["how"].as_str().unwrap().to_owned());
        last = image["index"].as_u64().unwrap();
        // Of 10,000 pages that were filled.
        let read = image["pages"].as_u64().unwrap();
        assert!(read < 5_000, "{read} pages were left to read\n{}", real.cluster.evidence());
    }
    let books = load.end();
    assert!(ways.iter().any(|way| way == "standstill"), "{ways:?}");
    // Neither copies nor their ends are seen of the server.
    assert!(real.events(1, "server_ended").is_empty(), "{}", real.cluster.evidence());
    let size_before = size(&real);
    real.kill_all_and_run_again();
    real.cluster.wait_ready();
    assert_eq!(size(&real), size_before);
    let restored = real.events(1, "restoring");
    assert_eq!(restored.last().unwrap()["index"], last, "{}", real.cluster.evidence());
    let mut redis = wait_for("a connection", || Redis::connect(real.port(), ANSWER).ok());
    for (client, books) in books.iter().enumerate() {
        let list = redis.ask(&["LRANGE", &Load::key(client), "0", "-1"]).unwrap();
        let Reply::Array(list) = list else { panic!("{list:?}") };
        books.assert_found(&list.iter().map(Reply::text).collect::<Vec<_>>());
    }
    real.end();
}

/// A client rewrites more than pre-copy reads: memory in mappings below 1 MiB, which it leaves out, and other memory again while it is read. The server forks for each image, without what the kernel tells to be as in
/// the image before. That needs `PAGEMAP_SCAN` (Linux 6.7).
#[test]
fn a_server_forks_for_images_where_the_kernel_tells_what_was_written() {
    const IMAGES: usize = 4;
    /// As in `servers/rewrites.c`.
    const REWRITTEN: usize = 8192;
    const ROW: usize = 16;
    const ALL: usize = 10_240;
    const PASSES: usize = 4;
    const TURNS: usize = 64;
    let (place, port) = (Place::new(), free_port());
    let server = own::compiled(&place, "rewrites.c");
    let start = |place: Place| {
        let mut command = place.skein_with_runtime();
        command.env("SKEIN_LOG", "debug").args(["run", "--name", "t", "--replicas", "1"]);
        command.args(["--data", &place.data(), "--"]).arg(&server).arg(port.to_string());
        let real = Real::around(Cluster::spawn(place, port, &mut command));
        real.cluster.wait_ready();
        real
    };
    let real = start(place);
    let answers = AtomicU64::new(0);
    let connect = || Lines::connect(port, ANSWER);
    let number = |word: &str| word.split('-').nth(1).unwrap().to_owned();
    let write = |lines: &mut Lines, word: &str| {
        let number = number(word);
        assert_eq!(lines.ask(&format!("write {number}"))?, number);
        answers.fetch_add(1, Ordering::Relaxed);
        Ok(())
    };
    let mut last = Value::Null;
    let take = || {
        let (mut forks, mut taken) = (0, Vec::new());
        while forks < IMAGES {
            // Something is new in each, whatever else has an entry.
            let wanted = answers.load(Ordering::Relaxed) + 2;
            let has_more = || (answers.load(Ordering::Relaxed) >= wanted).then_some(());
            wait_for_or("answers", || real.cluster.evidence(), has_more);
            last = real.take_image(1);
            taken.push(last.clone());
            forks += usize::from(last["how"] == "fork");
            // A copy that a busy machine does not make at once is named.
            let others = real.events(1, "image_without_fork").len();
            assert_eq!(forks + others, taken.len(), "{taken:?}\n{}", real.cluster.evidence());
            assert!(taken.len() < 3 * IMAGES, "{taken:?}");
        }
    };
    let books = under_load(&real, 1, 10, connect, write, take);
    assert_eq!(books.doubtful, [""; 0]);
    // Memory that stays as it is, but for the first image, which has no other before it.
    let others = real.events(1, "image_without_fork").len();
    let written = real.events(1, "image_written");
    let copies_all = |image: &&Value| image["spared"].as_u64() < Some((ALL - REWRITTEN) as u64);
    assert!(written[1..].iter().filter(copies_all).count() <= others, "{written:?}");

    let mut pages: Vec<u64> = (0..ALL as u64).collect();
    for word in &books.kept {
        let number: u64 = number(word).parse().unwrap();
        for (page, word) in (0..REWRITTEN).zip(&mut pages) {
            let has_turn = page * 7 % TURNS == number as usize % TURNS;
            let times = if (page / ROW).is_multiple_of(2) { PASSES } else { usize::from(has_turn) };
            (0..times).for_each(|_| *word = word.wrapping_mul(31).wrapping_add(number));
        }
    }
    let words = pages.iter().flat_map(|word| [*word; 512]);
    let sum = words.fold(0_u64, |sum, word| sum.wrapping_mul(31).wrapping_add(word));
    let sum = format!("{sum:016x}");
    assert_eq!(connect().unwrap().ask("sum").unwrap(), sum);
    let Real { mut cluster, .. } = real;
    cluster.kill_all();
    let real = start(cluster.into_place());
    let restored = real.events(1, "restoring");
    assert_eq!(restored.last().unwrap()["index"], last["index"], "{}", real.cluster.evidence());
    let mut lines = wait_for("a connection", || connect().ok());
    assert_eq!(lines.ask("sum").unwrap(), sum);
    assert!(real.events(1, "server_ended").is_empty(), "{}", real.cluster.evidence());
    real.end();
}

#[test]
fn a_cluster_whose_logs_are_cut_short_continues_and_fills_a_lost_replica() {
    let mut real = Real::redis(&[], &["--save", ""]);
    let mut random = Random::new(9);
    let mut entries = [0; 2];
    for entry in &mut entries {
        work(&real, 200, &mut random);
        for replica in 1..=3 {
            *entry = take(&real, replica, &mut random);
        }
    }
    for replica in 1..=3 {
        let forgot = || (!real.events(replica, "log_forgot").is_empty()).then_some(());
        wait_for_or("the log to be cut short", || real.cluster.evidence(), forgot);
    }
    let before = size(&real);
    real.kill_all_and_run_again();
    real.cluster.wait_ready();
    assert_eq!(size(&real), before);
    for replica in 1..=3 {
        assert_eq!(real.events(replica, "restoring").len(), 1, "{}", real.cluster.evidence());
    }
    work(&real, 100, &mut random);
    real.wait_agreed();
    real.wait_memory_agreed();

    // The newest image of the last replica is before the last entries, so its log runs again from there.
    real.cluster.signal(Signal::SIGTERM);
    assert_eq!(real.cluster.wait_end(), Some(0), "{}", real.cluster.evidence());
    let dir = real.cluster.place.path("data/node-3");
    let replay = |more: &[&str]| {
        let mut command = real.cluster.place.skein_with_runtime();
        let output = command.arg("replay").arg(&dir).args(more).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        (output.status.code(), said + &String::from_utf8_lossy(&output.stderr))
    };
    let (code, said) = replay(&[]);
    let begins = format!("begins  as it was after entry {}, from the image there", entries[1]);
    assert!(code == Some(0) && said.contains(&begins), "{code:?} {said}");
    let (code, said) = replay(&["--at", "2"]);
    assert!(code == Some(2) && said.contains("no image in"), "{code:?} {said}");

    // The others no longer have the log's beginning.
    fs::remove_dir_all(&dir).unwrap();
    real.run_again();
    real.cluster.wait_said("holds no log");
    let output = real.cluster.place.run(&["rejoin", "--name", "t", "--replica", "3"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    real.cluster.wait_status(0);
    assert_eq!(real.events(3, "image_received").len(), 1, "{}", real.cluster.evidence());
    work(&real, 100, &mut random);
    real.end();
}

/// Where no other replica has an image for three times as long as they should, a leader takes one itself, and the next ones, too: its log would grow for ever.
#[test]
fn a_leader_takes_images_when_no_follower_can() {
    let often = ["--set", "checkpoint.interval_s=1", "--set", "checkpoint.leader_intervals=0"];
    let real = Real::redis(&often, &["--save", ""]);
    let leader = Cluster::leader(&real.cluster.wait_status(0)).0;
    for id in (1..=3).filter(|id| *id != leader) {
        let dir = real.cluster.place.path(&format!("data/node-{id}/images"));
        // No directory can be made there; one that was is not written to any more.
        let closed = || {
            let _ = fs::remove_dir_all(&dir);
            fs::write(&dir, "closed").ok()
        };
        wait_for("the images of a follower to be closed", closed);
    }
    let mut random = Random::new(11);
    let taken = || {
        work(&real, 20, &mut random);
        (real.events(leader, "image_taken").len() >= 3).then_some(())
    };
    wait_for_or("images of the leader", || real.cluster.evidence(), taken);
    assert_eq!(Cluster::leader(&real.cluster.wait_status(0)).0, leader);
    real.end();
}

#[test]
fn images_are_shown_copied_and_removed() {
    let real = Real::redis(&[], &["--save", ""]);
    let mut random = Random::new(8);
    work(&real, 100, &mut random);
    let (replica, _) = follower(&real);
    let entry = take(&real, replica, &mut random);
    let (code, said) = checkpoint(&real, &["ls"]);
    assert!(code == Some(0) && said.contains("counts") && said.contains("none"), "{said}");
    let (code, said) = checkpoint(&real, &["verify"]);
    assert!(code == Some(0) && said.contains(&format!("entry {entry}: whole")), "{said}");

    let copy = real.cluster.place.path("copy");
    let to = copy.to_str().unwrap();
    let (code, said) = checkpoint(&real, &["export", "--kept", to]);
    assert!(code == Some(0) && said.contains(to), "{said}");
    // It stands alone: what is in packs beside the image is in it, and what the server has used of its host.
    let [archive, own] =
        [copy.clone(), image(&real, replica, entry)].map(|path| fs::read(path).unwrap());
    let magic = b"skeinimg";
    let at = archive.windows(magic.len()).rposition(|bytes| bytes == magic).unwrap();
    assert!(archive[257..].starts_with(b"ustar") && own.starts_with(magic));
    assert!(archive.len() - at > 2 * own.len(), "{} bytes", archive.len() - at);
    let program = b"/usr/bin/redis-server";
    assert!(archive[..at].windows(program.len()).any(|bytes| bytes == program));
    let (code, said) = checkpoint(&real, &["export", to]);
    assert!(code == Some(2) && said.contains("there is such a file"), "{said}");

    let (code, said) = checkpoint(&real, &["rm", "999999999"]);
    assert!(code == Some(2) && said.contains("there is no image of entry 999999999"), "{said}");
    let (code, said) = checkpoint(&real, &["rm", &entry.to_string()]);
    assert_eq!(code, Some(0), "{said}");
    let dir = image(&real, replica, entry).parent().unwrap().to_owned();
    let is_empty = || fs::read_dir(&dir).unwrap().next().is_none();
    wait_for("the file and its pages to go", || is_empty().then_some(()));
    assert!(images(&real, replica).is_empty());
    let (code, said) = checkpoint(&real, &["export", "--kept", &format!("{to}.2")]);
    assert!(code == Some(2) && said.contains("no replica here has an image"), "{said}");
    let (code, said) = checkpoint(&real, &["create", "--replica", "9"]);
    assert!(code == Some(2) && said.contains("replica 9 is not on this machine"), "{said}");

    // From the third one on at the latest it is known what was written since the one before.
    let [(_, first), _, (_, third)] = [(); 3].map(|()| take_pages(&real, replica, &mut random));
    assert!(0 < third && third < first / 2, "{first} pages, then {third}");
    real.end();
}

/// Of a server that does nothing by itself: its servers are compared some time after a request.
#[test]
fn an_entry_has_one_image_which_stays() {
    let (place, port) = (Place::new(), free_port());
    let server = own::compiled(&place, "dice.c");
    let server = [server.to_str().unwrap(), "2", &port.to_string()];
    let cluster = Cluster::start_in(place, port, &["--replicas", "3"], &server);
    cluster.wait_ready();
    let mut client = Lines::connect(port, ANSWER).unwrap();
    let run = |words: &[&str]| {
        let words = [&["checkpoint"], words, &["--name", "t", "--json"]].concat();
        cluster.place.run(&words)
    };
    let json =
        |words: &[&str]| -> Option<Value> { serde_json::from_slice(&run(words).stdout).ok() };
    let create = ["create", "--replica", "2"];
    let twice = || {
        assert_eq!(client.ask("0").unwrap(), "done");
        let first = json(&create)?["index"].as_u64()?;
        let again = String::from_utf8(run(&create).stderr).unwrap();
        again.contains(&format!("there is an image of entry {first} already")).then_some(first)
    };
    let entry = wait_for_or("a second one to be refused", || cluster.evidence(), twice);
    let counts = || {
        let all = json(&["ls"])?;
        let row = all.as_array()?.iter().find(|row| row["replica"] == 2)?.clone();
        let mut images = row["images"].as_array()?.clone().into_iter();
        images.find(|image| image["index"] == entry && image["confirmed"] == true)
    };
    wait_for_or("the image to count", || cluster.evidence(), counts);
    let file = cluster.place.path(&format!("data/node-2/images/image-{entry}"));
    assert!(file.exists(), "{}", cluster.evidence());
}

/// The leader knows what was acknowledged, wherever it is. Where none is known an export may lack some of that.
#[test]
fn an_export_has_what_the_leader_of_another_host_has_acknowledged() {
    const ALL: [u64; 3] = [1, 2, 3];
    let mut nodes = Nodes::three();
    let leader = nodes.leader(&ALL);
    let here = ALL.into_iter().find(|id| *id != leader).unwrap();
    wait_redis(nodes.ports[leader as usize - 1]).set("marker", "value").unwrap();
    let status = nodes.status(leader);
    let row = status["replicas"].as_array().unwrap().iter().find(|row| row["id"] == leader);
    let least = row.unwrap()["commit_index"].as_u64().unwrap();
    let [first, second] = ["first", "second"].map(|name| nodes.place.path(name));
    let said = nodes.does(here, &["checkpoint", "export", first.to_str().unwrap()]);
    let entry = said.split("the image of entry ").nth(1).and_then(|rest| rest.split(' ').next());
    assert!(entry.unwrap().parse::<u64>().unwrap() >= least && least > 0, "{least}: {said}");

    ALL.into_iter().filter(|id| *id != here).for_each(|id| nodes.kill(id));
    wait_for("no leader", || nodes.status(here)["leader"].is_null().then_some(()));
    let second = second.to_str().unwrap();
    let refused = nodes.skein(here, &["checkpoint", "export", second]);
    assert_line(&refused, 2, &["it knows of no leader", "nothing was written"]);
    nodes.does(here, &["checkpoint", "export", "--kept", second]);
}

#[test]
fn without_a_cluster_there_is_nothing_to_ask() {
    let place = Place::new();
    for task in [&["create"][..], &["ls"], &["verify"], &["rm", "1"], &["export", "x"]] {
        let words = [&["checkpoint"], task, &["--name", "nobody"]].concat();
        assert_line(&place.run(&words), 3, &["nobody"]);
    }
}

#[test]
fn a_rotten_image_is_found_and_replaced_while_the_cluster_runs() {
    const ALL: [u64; 3] = [1, 2, 3];
    let mut nodes = Nodes::new();
    nodes.hosts.setup.checkpoint = "scrub_s = 1\nlog_entries = 1000000".into();
    for id in ALL {
        nodes.begin(id, "found", &ALL);
    }
    let mut redis = wait_redis(nodes.ports[0]);
    let leader = nodes.leader(&ALL);
    let follower = ALL.into_iter().find(|id| *id != leader).unwrap();
    let confirmed = |redis: &mut Redis| {
        redis.ask(&["INCR", "count"]).unwrap();
        let said = nodes.does(follower, &["checkpoint", "ls", "--json"]);
        let all: Value = serde_json::from_str(&said).unwrap();
        let images = all[0]["images"].as_array().unwrap().clone();
        images.into_iter().rfind(|image| image["confirmed"] == true)
    };
    let entry = |image: Value| image["index"].as_u64().unwrap();
    nodes.does(follower, &["checkpoint", "create"]);
    let mut last =
        wait_for_or("an image", || nodes.evidence(), || confirmed(&mut redis).map(entry));
    let dir = nodes.place.path(&format!("data-{follower}/images"));
    let log = nodes.place.path(&format!("node-{follower}.log"));
    let found = || fs::read_to_string(&log).unwrap().matches("image_unusable").count();
    // The image itself, and the pack with its pages.
    for start in ["image-", "pack-"] {
        let before = found();
        let files = fs::read_dir(&dir).unwrap().flatten().map(|entry| entry.path());
        let named = |path: &PathBuf| {
            let name = path.file_name().unwrap().to_str().unwrap();
            name.starts_with(start) && path.extension().is_none()
        };
        let file = files.filter(named).max().unwrap();
        let mut bytes = fs::read(&file).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(&file, bytes).unwrap();
        let noted = || (found() > before).then_some(());
        wait_for_or("the damage to be found", || nodes.evidence(), noted);
        // It takes another one by itself, long before one is due.
        let next = || confirmed(&mut redis).map(entry).filter(|entry| *entry > last);
        last = wait_for_or("another image", || nodes.evidence(), next);
    }
    nodes.wait_equal(&ALL);
}

/// Changes a byte in the middle of each file of a replica's images whose name begins so.
fn rot(real: &Real, replica: u64, start: &str) {
    let dir = real.cluster.place.path(&format!("data/node-{replica}/images"));
    let files = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let is_meant = |path: &PathBuf| {
        path.extension().is_none() && path.file_name().unwrap().to_str().unwrap().starts_with(start)
    };
    let mut files = files.filter(is_meant).peekable();
    assert!(files.peek().is_some(), "no {start}");
    for file in files {
        let mut bytes = fs::read(&file).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(&file, bytes).unwrap();
    }
}

/// Kills a replica's node, which is started again.
fn kill_node(real: &Real, replica: u64) {
    let status = real.cluster.wait_status(0);
    let node = Cluster::replica(&status, replica)["node_pid"].as_i64().unwrap() as i32;
    kill(Pid::from_raw(node), Signal::SIGKILL).unwrap();
    let new = || {
        let (status, _) = real.cluster.status();
        let rows = status["replicas"].as_array()?;
        let now = rows.iter().find(|row| row["id"] == replica)?["node_pid"].as_i64()?;
        (now > 0 && now != i64::from(node)).then_some(())
    };
    wait_for_or("its next node", || real.cluster.evidence(), new);
}

#[test]
fn a_passive_replica_whose_image_rots_fetches_it_anew_and_can_lead_with_it() {
    let real = Real::redis(&["--mode", "standby"], &["--save", ""]);
    let leads = |wanted: u64| {
        let evidence = || format!("{}\n{:#}", real.cluster.evidence(), real.cluster.status().0);
        wait_for_or(&format!("replica {wanted} to lead"), evidence, || {
            let (status, code) = real.cluster.status();
            (code == Some(0) && status["leader"] == wanted).then_some(())
        });
    };
    leads(1);
    work(&real, 300, &mut Random::new(12));
    let before = size(&real);
    let entry = real.take_image(1)["index"].as_u64().unwrap();
    let has_it = || {
        let has = real.images(2)?.iter().any(|image| image["index"] == entry);
        has.then_some(())
    };
    let counted = |name| real.events(2, name).len();
    wait_for_or("the passive replica to have it", || real.cluster.evidence(), has_it);
    // The file that says where its pages are, and the pack with its pages.
    for (n, start) in (1..).zip(["image-", "pack-"]) {
        // It is listed before the node's log says so.
        let told = || (counted("image_received") >= n).then_some(());
        wait_for_or("its log to say so", || real.cluster.evidence(), told);
        assert_eq!((counted("image_received"), counted("image_unusable")), (n, n - 1));
        rot(&real, 2, start);
        kill_node(&real, 2);
        let again = || (counted("image_received") > n).then_some(());
        wait_for_or("it to be fetched anew", || real.cluster.evidence(), again);
        assert_eq!(counted("image_unusable"), n, "{}", real.cluster.evidence());
        wait_for_or("it to be there", || real.cluster.evidence(), has_it);
        let (code, said) = checkpoint(&real, &["verify"]);
        assert!(code == Some(0) && !said.contains("damaged"), "{said}");
        leads(1);
    }
    assert!(real.events(2, "restoring").is_empty(), "{}", real.cluster.evidence());
    kill_node(&real, 1);
    let restores = || (counted("restoring") > 0).then_some(());
    wait_for_or("the passive replica to lead from it", || real.cluster.evidence(), restores);
    assert_eq!(real.events(2, "restoring")[0]["index"], entry);
    leads(1);
    assert_eq!(size(&real), before);
    real.stop();
}

/// Its log begins behind the images that rot, and no other replica has one: one takes it for that.
#[test]
fn a_replica_whose_images_all_rot_continues_from_one_of_another() {
    let real = Real::redis(&[], &["--save", ""]);
    let mut random = Random::new(13);
    work(&real, 200, &mut random);
    let (replica, _) = follower(&real);
    for _ in 0..2 {
        take(&real, replica, &mut random);
    }
    let forgot = || (!real.events(replica, "log_forgot").is_empty()).then_some(());
    wait_for_or("the log to be cut short", || real.cluster.evidence(), forgot);
    rot(&real, replica, "image-");
    kill_node(&real, replica);
    // An image counts when servers were compared behind it.
    let is_well = || {
        work(&real, 20, &mut random);
        (real.cluster.status().1 == Some(0)).then_some(())
    };
    wait_for_or("an image of another", || real.cluster.evidence(), is_well);
    assert_eq!(real.events(replica, "image_unusable").len(), 2, "{}", real.cluster.evidence());
    let received = real.events(replica, "image_received");
    assert_eq!(received.len(), 1, "{}", real.cluster.evidence());
    let restored = real.events(replica, "restoring");
    assert_eq!(restored.last().unwrap()["index"], received[0]["index"]);
    real.end();
}

/// Each image writes what changed, and all of them together are bounded: when there are too many packs the smaller half is written again as one.
#[test]
fn a_chain_of_images_is_merged_and_nothing_of_it_is_lost() {
    const IMAGES: u64 = 14;
    const VALUES: u64 = 4;
    // What is random does not become smaller when it is packed. The server's own pages that change each time are fewer.
    const VALUE_BYTES: usize = 256 << 10;
    let mut real = Real::redis(&["--replicas", "1"], &["--save", ""]);
    let value = |number: u64| Random::new(number).bytes(VALUE_BYTES);
    let packs = |real: &Real| -> BTreeSet<(String, u64)> {
        let dir = real.cluster.place.path("data/node-1/images");
        let files = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
        let files = files.map(|file| (file.file_name().into_string().unwrap(), file.metadata()));
        let files = files.filter(|(name, _)| name.starts_with("pack-") && !name.contains('.'));
        files.map(|(name, about)| (name, about.unwrap().len())).collect()
    };
    let (mut before, mut most, mut merged) = (BTreeSet::new(), 0, 0);
    for image in 0..IMAGES {
        let mut client = Redis::connect(real.port(), ANSWER).unwrap();
        for number in image * VALUES..(image + 1) * VALUES {
            client.ask(&[b"SET", format!("v{number}").as_bytes(), &value(number)]).unwrap();
        }
        drop(client);
        real.take_image(1);
        // The older one's packs may go a moment later.
        let now = packs(&real);
        most = most.max(now.len());
        let own: u64 = now.difference(&before).map(|(_, bytes)| bytes).sum();
        println!("image {image}: {} packs, {own} bytes of its own", now.len());
        // So much is not new: the values of at least two packs are in this one, too.
        merged += u64::from(own > 3 * VALUES * VALUE_BYTES as u64);
        before = now;
    }
    assert!(merged > 0, "no image has written again what others had");
    // Those of two images.
    assert!(most <= 12, "{most} packs");
    real.kill_all_and_run_again();
    real.cluster.wait_ready();
    assert_eq!(real.events(1, "restoring").len(), 1, "{}", real.cluster.evidence());
    let mut client = wait_for("a connection", || Redis::connect(real.port(), ANSWER).ok());
    for number in 0..IMAGES * VALUES {
        let key = format!("v{number}");
        let Reply::Bulk(found) = client.ask(&["GET", &key]).unwrap() else { panic!("no {key}") };
        assert!(found == value(number), "{key} is another one");
    }
    drop(client);
    real.end();
}

/// What a server has in memory lies where it lay: other sizes are refused by name, and nothing is lost.
#[test]
fn an_image_keeps_the_sizes_of_its_server() {
    let real = Real::redis(&["--replicas", "1"], &["--save", ""]);
    let (port, server) = (real.port(), real.command().to_vec());
    let mut client = Redis::connect(port, ANSWER).unwrap();
    client.set("key", "value").unwrap();
    assert_eq!(checkpoint(&real, &["create"]).0, Some(0));
    client.set("other", "value").unwrap();
    let mut cluster = real.cluster;
    cluster.signal(Signal::SIGTERM);
    assert_eq!(cluster.wait_end(), Some(0), "{}", cluster.said());
    let place = cluster.into_place();
    for (set, words) in [
        (
            "tuning.input_ring_bytes=8388608",
            "tuning.input_ring_bytes = 4194304, and it is 8388608 now",
        ),
        ("tuning.arena_heap_bytes=268435456", "tuning.arena_heap_bytes = 1073741824"),
    ] {
        let data = place.data();
        let options = ["run", "--name", "t", "--data", &data, "--replicas", "1", "--set", set];
        let mut command = place.skein_with_runtime();
        command.current_dir(place.dir.path()).args(options).arg("--").args(&server);
        let refused = command.output().unwrap();
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(125), "{said}");
        let last = said.lines().last().unwrap();
        assert!(last.contains("an image of a server with") && last.contains(words), "{said}");
    }
    let larger = ["--replicas", "1", "--set", "tuning.arena_heap_bytes=2147483648"];
    let real = Real::serve(place, port, &larger, server);
    let mut client = wait_for("a connection", || Redis::connect(port, ANSWER).ok());
    for key in ["key", "other"] {
        assert_eq!(client.say(&format!("GET {key}")), Reply::Bulk(b"value".to_vec()));
    }
    drop(client);
    real.end();
}

/// It cannot stand before what it found out is agreed on.
#[test]
fn an_image_waits_for_a_server_that_asks_about_files_of_its_host() {
    const IMAGES: usize = 12;
    let real = Real::redis(&[], &["--enable-protected-configs", "yes"]);
    let dirs = real.cluster.place.path("dirs");
    fs::create_dir(&dirs).unwrap();
    let ended = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut client = Redis::connect(real.port(), ANSWER).unwrap();
            // Each is a path that the server has not seen.
            for n in 0.. {
                if ended.load(Ordering::Relaxed) > 0 {
                    break;
                }
                let dir = dirs.join(n.to_string());
                fs::create_dir(&dir).unwrap();
                let said = client.say(&format!("CONFIG SET dir {}", dir.display()));
                assert_eq!(said.text(), "OK");
            }
        });
        let taken: Vec<_> = (0..IMAGES)
            .map(|n| checkpoint(&real, &["create", "--replica", &(1 + n % 3).to_string()]))
            .collect();
        ended.store(1, Ordering::Relaxed);
        let refused: Vec<_> = taken.iter().filter(|(code, _)| *code != Some(0)).collect();
        assert!(refused.is_empty(), "{refused:?}\n{}", real.cluster.evidence());
    });
}
