//! What members ask each other's admin interfaces, over a connection of its own ([`crate::transport::wire`]): so `skein verify` on one host compares servers of all hosts, and `skein status` shows them.
//!
//! ```text
//! question = Head as JSON, in a frame | body, in frames of up to 256 KiB
//! answer   = Head as JSON, in a frame | body, in frames of up to 256 KiB
//! ```
//!
//! One connection has one question. What may be asked is a part of the interface ([`crate::admin`]); no member can stop another one, or change the members, by this.

use crate::transport::wire::{ADMIN, PART_BYTES, Turns, Wire};
use crate::transport::{Address, Key};
use serde::{Deserialize, Serialize};
use skein_log::ClusterId;
use std::io;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;

/// The most bytes of a question: what is written into a server at a time.
pub const QUESTION_BYTES_MAX: u64 = 2 << 20;
/// The most bytes of an answer: the hashes of the largest server's memory.
pub const ANSWER_BYTES_MAX: u64 = 128 << 20;
/// The longest time of the other side to begin its answer: a server that reads all of its memory,
const PATIENCE: Duration = Duration::from_secs(60);
/// and a node that says how it is.
const PATIENCE_AT_ONCE: Duration = Duration::from_secs(2);
/// Others ask again.
static TURNS: Turns = Turns::new(16);

/// What stands before a body.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Head {
    /// Of a question: the method.
    method: String,
    /// Of a question: what is asked for.
    target: String,
    /// Of an answer: the status, a number of HTTP.
    status: u16,
    /// The body's media type.
    kind: String,
    /// The body's length.
    bytes: u64,
}

/// A request to an admin interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// `GET` or `POST`.
    pub method: String,
    /// The path.
    pub target: String,
    /// The body's media type; empty without a body.
    pub kind: String,
    /// The body.
    pub body: Vec<u8>,
}

/// Its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status, a number of HTTP.
    pub status: u16,
    /// The body's media type.
    pub kind: String,
    /// The body.
    pub body: Vec<u8>,
}

/// A question of another member, which the admin interface is to answer.
#[derive(Debug)]
pub struct Asked {
    /// What is asked.
    pub question: Question,
    /// Where the answer goes.
    pub reply: oneshot::Sender<Answer>,
}

/// Asks the node at an address.
///
/// # Errors
/// It cannot be reached, does not answer, or is of a version that knows no such questions.
pub fn ask(
    address: &Address,
    key: Option<&Key>,
    cluster: ClusterId,
    question: Question,
) -> io::Result<Answer> {
    let mut wire = Wire::connect(ADMIN, address, key, cluster)?;
    let Question { method, target, kind, body } = question;
    let patience = if target == "/status" { PATIENCE_AT_ONCE } else { PATIENCE };
    let head = Head { method, target, kind, ..Head::default() };
    send(&mut wire, head, &body)?;
    let head = wire.receive_within(patience)?;
    let (Head { status, kind, .. }, body) = rest(&mut wire, &head, ANSWER_BYTES_MAX)?;
    Ok(Answer { status, kind, body })
}

/// Answers another member's question, whose head has come, in a thread of its own.
///
/// # Errors
/// No thread can be made, or there are too many.
pub fn serve(admin: UnboundedSender<Asked>, mut wire: Wire, head: Vec<u8>) -> io::Result<()> {
    TURNS.serve("skein-asked", move || {
        if let Err(error) = answer(&admin, &mut wire, &head) {
            tracing::debug!(event = "question_not_answered", %error);
        }
    })
}

fn answer(admin: &UnboundedSender<Asked>, wire: &mut Wire, head: &[u8]) -> io::Result<()> {
    let (Head { method, target, kind, .. }, body) = rest(wire, head, QUESTION_BYTES_MAX)?;
    let (reply, answer) = oneshot::channel();
    let question = Question { method, target, kind, body };
    let ending = |_| io::Error::other("the node is ending");
    admin.send(Asked { question, reply }).map_err(|_| ending(oneshot::RecvError))?;
    let Answer { status, kind, body } = answer.recv().map_err(ending)?;
    send(wire, Head { status, kind, ..Head::default() }, &body)
}

fn send(wire: &mut Wire, head: Head, body: &[u8]) -> io::Result<()> {
    let head = Head { bytes: body.len() as u64, ..head };
    wire.send(&serde_json::to_vec(&head)?)?;
    body.chunks(PART_BYTES).try_for_each(|part| wire.send(part))
}

/// The body that follows a head.
fn rest(wire: &mut Wire, head: &[u8], most: u64) -> io::Result<(Head, Vec<u8>)> {
    let head: Head = serde_json::from_slice(head)?;
    if head.bytes > most {
        return Err(io::Error::other(format!("{} bytes are too many", head.bytes)));
    }
    let mut body = Vec::new();
    while (body.len() as u64) < head.bytes {
        let part = wire.receive()?;
        if part.is_empty() || (body.len() + part.len()) as u64 > head.bytes {
            return Err(io::Error::other("the body has another length than its head says"));
        }
        body.extend(part);
    }
    Ok((head, body))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::channel::Sealer;
    use crate::transport::listen;
    use skein_log::frame::Decoder;
    use std::thread;
    use std::time::Instant;

    const CLUSTER: ClusterId = ClusterId(5);

    /// What this question is answered, by an interface that repeats it; and what that was asked.
    fn asked(send: impl FnOnce(&Address) -> io::Result<Answer>) -> (io::Result<Answer>, bool) {
        let dir = tempfile::tempdir().unwrap();
        let address = Address::Unix(dir.path().join("socket"));
        let listener = listen(&address).unwrap();
        let (admin, mut questions) = tokio::sync::mpsc::unbounded_channel::<Asked>();
        thread::scope(|scope| {
            let answers = scope.spawn(move || {
                let until = Instant::now() + Duration::from_secs(20);
                let stream = loop {
                    if let Some((stream, _)) = listener.accept().unwrap() {
                        break stream;
                    }
                    assert!(Instant::now() < until, "nobody came");
                    thread::yield_now();
                };
                let sealer = Sealer::new(None, CLUSTER, false, &mut Vec::new());
                let mut wire = Wire::over(ADMIN, stream, sealer, Decoder::new(CLUSTER), CLUSTER);
                let head = wire.receive().unwrap();
                serve(admin, wire, head).unwrap();
                let Some(Asked { question, reply }) = questions.blocking_recv() else {
                    return false;
                };
                let Question { method, target, kind, body } = question;
                let body = [format!("{method} {target} ").into_bytes(), body].concat();
                reply.send(Answer { status: 200, kind, body }).unwrap();
                true
            });
            (send(&address), answers.join().unwrap())
        })
    }

    /// A side that says what it wants.
    fn says(frames: &[&[u8]]) -> impl FnOnce(&Address) -> io::Result<Answer> {
        move |address| {
            let mut wire = Wire::connect(ADMIN, address, None, CLUSTER)?;
            frames.iter().try_for_each(|frame| wire.send(frame))?;
            let head = wire.receive()?;
            rest(&mut wire, &head, ANSWER_BYTES_MAX)
                .map(|(Head { status, kind, .. }, body)| Answer { status, kind, body })
        }
    }

    #[test]
    fn long_bodies_come_whole_both_ways() {
        for len in [0, 1, PART_BYTES, 5 * PART_BYTES + 7] {
            let body = vec![b'x'; len];
            let question = Question {
                method: "POST".into(),
                target: "/memory/look".into(),
                kind: "text/plain".into(),
                body: body.clone(),
            };
            let (answer, _) = asked(|address| ask(address, None, CLUSTER, question));
            let Answer { status, kind, body: came } = answer.unwrap();
            assert_eq!((status, &*kind), (200, "text/plain"));
            assert!(came == [&b"POST /memory/look "[..], &body].concat(), "{len}");
        }
    }

    #[test]
    fn what_no_member_says_reaches_no_interface() {
        let head = |bytes: u64| {
            serde_json::to_vec(&Head { method: "GET".into(), bytes, ..Head::default() }).unwrap()
        };
        let (short, large) = (head(3), head(QUESTION_BYTES_MAX + 1));
        for frames in [&[&b"garbage"[..]][..], &[&large], &[&short, b"long"], &[&short, b""]] {
            let (answer, reached) = asked(says(frames));
            assert!(answer.is_err() && !reached, "{answer:?}");
        }
        assert!(asked(says(&[&short, b"yes"])).1);
    }
}
