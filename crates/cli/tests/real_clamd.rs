//! clamd from Debian on three replicas: clients that send it whole trees, with a signature file of our own, while the leader dies.

mod common;

use std::fs;
use std::io::{self, Read, Write};
use std::net::TcpStream;

use common::Place;
use common::cluster::free_port;
use common::real::{Random, Real, at_once};
use common::story::{PATIENCE_OF_A_CLIENT, leader_dies_under_load, tool_with_code};

const CLIENTS: usize = 8;
/// Scans before and after the leader's death.
const SCANS: u64 = 500;
const FILES: usize = 60;
const INFECTED: &str = "skein-infected";

/// A configuration, one signature, and a tree with infected files.
fn start() -> Real {
    let place = Place::new();
    let path = |name: &str| place.path(name).to_str().unwrap().to_string();
    let port = free_port();
    fs::create_dir(place.path("db")).unwrap();
    let hex: String = INFECTED.bytes().map(|byte| format!("{byte:02x}")).collect();
    place.file("db/own.ndb", &format!("Skein.Test:0:*:{hex}\n"), 0o644);
    let lines = [
        format!("DatabaseDirectory {}", path("db")),
        format!("TCPSocket {port}"),
        "TCPAddr 127.0.0.1".into(),
        format!("LogFile {}", path("clamd.log")),
        "LogClean yes".into(),
        "LogTime yes".into(),
        "Foreground yes".into(),
        "MaxThreads 6".into(),
        "User root".into(),
    ];
    let config = place.file("clamd.conf", &(lines.join("\n") + "\n"), 0o644);
    let mut random = Random::new(1);
    for number in 0..FILES {
        let dir = place.path(&format!("tree/{}", number % 6));
        fs::create_dir_all(&dir).unwrap();
        let len = 100 + random.below(20_000) as usize;
        let mut bytes = random.bytes(len);
        if number % 7 == 0 {
            bytes.extend_from_slice(INFECTED.as_bytes());
        }
        fs::write(dir.join(format!("file{number}")), bytes).unwrap();
    }
    let server =
        vec!["/usr/sbin/clamd".into(), format!("--config-file={}", config.to_str().unwrap())];
    Real::serve(place, port, &[], server)
}

/// The infected files that `clamdscan --multiscan` finds in the tree.
fn scan_tree(real: &Real) -> Vec<String> {
    let path = |name: &str| real.cluster.place.path(name).to_str().unwrap().to_string();
    let config = format!("--config-file={}", path("clamd.conf"));
    let (text, code) =
        tool_with_code("clamdscan", &[&config, "--multiscan", "--stream", &path("tree")]);
    // 1: infected files were found.
    assert_eq!(code, Some(1), "{text}");
    let ends = ": Skein.Test.UNOFFICIAL FOUND";
    let mut found: Vec<String> =
        text.lines().filter_map(|line| line.strip_suffix(ends)).map(str::to_string).collect();
    found.sort();
    found
}

/// One `INSTREAM` of some bytes on a connection of its own; answers clamd's verdict.
fn scan(port: u16, bytes: &[u8]) -> io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(PATIENCE_OF_A_CLIENT))?;
    stream.write_all(b"zINSTREAM\0")?;
    for chunk in bytes.chunks(4096) {
        stream.write_all(&(chunk.len() as u32).to_be_bytes())?;
        stream.write_all(chunk)?;
    }
    stream.write_all(&[0; 4])?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    if answer.is_empty() { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(answer) }
}

#[test]
fn trees_are_scanned_while_the_leader_dies() {
    let real = start();
    let found = scan_tree(&real);
    assert_eq!(found.len(), FILES.div_ceil(7), "{found:?}");
    let together = at_once(3, |_| scan_tree(&real));
    assert!(together.iter().all(|one| *one == found), "{together:?}");

    let port = real.port();
    let ask = |_: &mut (), word: &str| {
        let infected = word.ends_with(['3', '7']);
        let mut bytes = Random::new(word.len() as u64).bytes(30 * word.len() * word.len());
        bytes.extend_from_slice(word.as_bytes());
        if infected {
            bytes.extend_from_slice(INFECTED.as_bytes());
        }
        let verdict = if infected { "Skein.Test.UNOFFICIAL FOUND" } else { "OK" };
        assert_eq!(scan(port, &bytes)?, format!("stream: {verdict}\0"));
        Ok(())
    };
    leader_dies_under_load(&real, CLIENTS, SCANS, || Ok(()), ask);
    assert_eq!(scan_tree(&real), found);
    // Its signatures are in the image.
    real.continue_a_follower_with_a_client(|| Ok(()), ask);
    assert_eq!(scan_tree(&real), found);
    real.end();
}
