//! libc's resolver on three replicas: an outside name server is asked once for each name, by the leader's host, and all replicas use
//! its answer, also when the leader dies.

mod common;

use std::net::{Ipv4Addr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use common::Place;
use common::cluster::free_port;
use common::own::{Lines, compiled};
use common::real::Real;
use common::story::{PATIENCE_OF_A_CLIENT, leader_dies_under_load};

const CLIENTS: usize = 8;
/// Names looked up before and after the leader's death.
const NAMES: u64 = 300;
/// Bytes of a message's head.
const HEAD: usize = 12;

/// A name server whose every answer is another address.
struct NameServer {
    port: u16,
    asked: Arc<AtomicU32>,
}

impl NameServer {
    fn start() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        let asked = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&asked);
        // Ends with the test's process.
        std::thread::spawn(move || {
            let mut question = [0; 512];
            while let Ok((len, from)) = socket.recv_from(&mut question) {
                let number = count.fetch_add(1, Ordering::Relaxed) + 1;
                let _ = socket.send_to(&answer(&question[..len], number), from);
            }
        });
        Self { port, asked }
    }
}

/// `10.0.0.0` and a number, for every name.
fn answer(question: &[u8], number: u32) -> Vec<u8> {
    // The name ends in an empty label, behind which are type and class.
    let name = question[HEAD..].iter().position(|byte| *byte == 0).expect("a name");
    let mut bytes = question[..HEAD + name + 5].to_vec();
    // An answer, to a question that wanted recursion: one question, one answer.
    bytes[2..HEAD].copy_from_slice(&[0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0]);
    // The name of the question; an address of the internet, good for no time, of four bytes.
    bytes.extend([0xc0, HEAD as u8, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4]);
    bytes.extend((u32::from(Ipv4Addr::new(10, 0, 0, 0)) + number).to_be_bytes());
    bytes
}

#[test]
fn a_name_server_is_asked_by_the_leader_alone() {
    let names = NameServer::start();
    let (place, port) = (Place::new(), free_port());
    let program = compiled(&place, "names_threads.c").to_str().unwrap().to_string();
    let real =
        Real::serve(place, port, &[], vec![program, port.to_string(), names.port.to_string()]);
    let look = |lines: &mut Lines, word: &str| {
        let answer = lines.ask(&format!("look {word}.test."))?;
        // A lookup that the resolver gave up because the leader died has no answer.
        match answer.strip_prefix("ok 10.") {
            Some(_) => Ok(()),
            None => {
                assert!(answer.starts_with("failed "), "{answer}");
                Err(std::io::ErrorKind::TimedOut.into())
            }
        }
    };
    let connect = || Lines::connect(port, PATIENCE_OF_A_CLIENT);
    let books = leader_dies_under_load(&real, CLIENTS, NAMES, connect, look);
    let (asked, answered) = (names.asked.load(Ordering::Relaxed), books.kept.len() as u32);
    println!("the name server was asked {asked} times, {answered} names were answered");
    assert!(asked >= answered, "{asked} questions, {answered} answers");
    // Replicas that asked by themselves would have asked three times as often.
    assert!(asked < answered * 2, "{asked} questions, {answered} answers");
    real.end();
}
