//! Servers go on by themselves a few seconds after a node was asked last: one that is read quickly must not go on while others are still read, or repaired. So all nodes are asked
//! for no page, again and again, as long as servers are compared; if `skein verify` is killed, nobody is, and if one does not answer any more: nothing can be compared with its server, and clients
//! must not wait for it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use skein_node::memory::Question;

use crate::admin::{AdminError, Asked};

/// Servers stand several times as long.
const ASKED_EVERY: Duration = Duration::from_secs(1);
const LIMIT: Duration = Duration::from_secs(3);
/// One that has given no answer so often in a row gives none any more.
const TRIES: u32 = 2;

/// Keeps servers standing that stand, while this is done.
pub fn standing<T>(nodes: &[Asked], compare: impl FnOnce() -> T) -> T {
    let question = serde_json::to_string(&Question::default()).expect("a plain struct");
    let in_vain = AtomicBool::new(false);
    let ask = |node: &Asked, over: &mpsc::Receiver<()>| {
        let mut silent = 0;
        while over.recv_timeout(ASKED_EVERY) == Err(RecvTimeoutError::Timeout)
            && !in_vain.load(Ordering::Relaxed)
        {
            // One that does not stand yet refuses.
            silent = match node.post_json("/memory/look", &question, LIMIT) {
                Ok(_) | Err(AdminError::Refused(_) | AdminError::Wrong(_)) => 0,
                Err(_) => silent + 1,
            };
            if silent == TRIES {
                in_vain.store(true, Ordering::Relaxed);
            }
        }
    };
    thread::scope(|scope| {
        let ask = &ask;
        let kept: Vec<_> = nodes
            .iter()
            .map(|node| {
                let (end, over) = mpsc::channel::<()>();
                scope.spawn(move || ask(node, &over));
                end
            })
            .collect();
        let compared = compare();
        drop(kept);
        compared
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instance::NodeFiles;
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::net::UnixListener;
    use std::time::Instant;

    #[test]
    fn nodes_are_asked_as_long_as_servers_are_compared() {
        let dir = tempfile::tempdir().unwrap();
        let admin = dir.path().join("admin");
        let listener = UnixListener::bind(&admin).unwrap();
        let (address, log, output, data) = Default::default();
        let node = Asked::here(&NodeFiles { id: 1, admin, address, log, output, data });
        let (first, line) = standing(&[node], || {
            // Comparing takes until the node is asked for the second time.
            let [first, second] = [(); 2].map(|()| {
                let mut stream = BufReader::new(listener.accept().unwrap().0);
                let mut line = String::new();
                stream.read_line(&mut line).unwrap();
                stream
                    .get_mut()
                    .write_all(b"HTTP/1.1 409 Conflict\r\ncontent-length: 0\r\n\r\n")
                    .unwrap();
                line
            });
            (first, second)
        });
        assert_eq!(first, line);
        assert!(line.starts_with("POST /memory/look "), "{line}");
        listener.set_nonblocking(true).unwrap();
        assert!(listener.accept().is_err(), "nobody asks any more");
    }

    #[test]
    fn nobody_is_kept_when_one_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let asked = |id: u64| {
            let (address, log, output, data) = Default::default();
            let admin = dir.path().join(id.to_string());
            Asked::here(&NodeFiles { id, admin, address, log, output, data })
        };
        let there = UnixListener::bind(dir.path().join("1")).unwrap();
        there.set_nonblocking(true).unwrap();
        standing(&[asked(1), asked(2)], || {
            let deadline = Instant::now() + Duration::from_secs(60);
            let mut last = Instant::now();
            // Longer than it takes to ask once more.
            while last.elapsed() < 3 * ASKED_EVERY {
                assert!(Instant::now() < deadline, "it is asked on and on");
                if let Ok((mut stream, _)) = there.accept() {
                    last = Instant::now();
                    stream.set_nonblocking(false).unwrap();
                    let mut line = String::new();
                    BufReader::new(&stream).read_line(&mut line).unwrap();
                    stream
                        .write_all(b"HTTP/1.1 409 Conflict\r\ncontent-length: 0\r\n\r\n")
                        .unwrap();
                }
                thread::yield_now();
            }
        });
    }
}
