//! Servers go on by themselves a few seconds after a node was asked last: one that is read quickly must not go on while others are still read, or repaired. So all nodes are asked
//! for no page, again and again, as long as servers are compared; if `skein verify` is killed, nobody is.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use skein_node::memory::Question;

use crate::admin::Asked;

/// Servers stand several times as long.
const ASKED_EVERY: Duration = Duration::from_secs(1);
const LIMIT: Duration = Duration::from_secs(2);

/// Keeps servers standing that stand, while this is done.
pub fn standing<T>(nodes: &[Asked], compare: impl FnOnce() -> T) -> T {
    let question = serde_json::to_string(&Question::default()).expect("a plain struct");
    let ask = |node: &Asked, over: &mpsc::Receiver<()>| {
        while over.recv_timeout(ASKED_EVERY) == Err(RecvTimeoutError::Timeout) {
            // One that does not stand yet refuses.
            let _ = node.post_json("/memory/look", &question, LIMIT);
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
}
