//! Asks a node through its admin socket: HTTP over a UNIX socket, one request a connection. The time limit applies to each step: connecting, the
//! answer's head, every piece of its body. A node on another host is asked through one of this host ([`Asked`]).

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use skein_node::NodeStatus;
use tokio::net::UnixStream;

use crate::instance::NodeFiles;

/// The largest answer: the hashes of the largest server's memory.
const MAX_ANSWER_BYTES: usize = 128 << 20;

/// The reason why a node gave no answer.
#[derive(Debug)]
pub enum AdminError {
    /// No process listens at its socket.
    Absent(io::Error),
    /// It did not answer in time.
    Silent,
    /// It closed the connection before it answered.
    Ended,
    /// It refuses for now, with a reason.
    Refused(String),
    /// Its answer has an unexpected form.
    Wrong(String),
}

impl std::fmt::Display for AdminError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Absent(error) => write!(f, "its admin socket is not served ({error})"),
            Self::Silent => write!(f, "it does not answer"),
            Self::Ended => write!(f, "its node ended before it answered"),
            Self::Refused(why) => write!(f, "{why}"),
            Self::Wrong(what) => write!(f, "its answer is not understood ({what})"),
        }
    }
}

/// A replica's node, here or elsewhere.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The replica.
    pub id: u64,
    /// The socket of a node of this host.
    socket: PathBuf,
    /// What stands before each target: empty, or that the node of this host asks another one.
    way: String,
    /// Whether it has said that it tells of memory by a tree of hashes: nodes of earlier versions do not.
    pub has_trees: bool,
    /// Bytes of questions and answers, but those about its status.
    exchanged: Arc<AtomicU64>,
}

impl Asked {
    /// A node of this host.
    pub fn here(node: &NodeFiles) -> Self {
        Self::by(node, node.id, String::new())
    }

    /// The node of a replica on another host, asked through this one.
    pub fn through(node: &NodeFiles, id: u64) -> Self {
        Self::by(node, id, format!("/at/{id}"))
    }

    fn by(node: &NodeFiles, id: u64, way: String) -> Self {
        let (socket, exchanged) = (node.admin.clone(), Arc::default());
        Self { id, socket, way, has_trees: false, exchanged }
    }

    /// Bytes that were exchanged with it so far, without heads of HTTP.
    pub fn exchanged(&self) -> u64 {
        self.exchanged.load(Ordering::Relaxed)
    }

    fn count(
        &self,
        question: &str,
        answer: Result<Vec<u8>, AdminError>,
    ) -> Result<Vec<u8>, AdminError> {
        let bytes = question.len() + answer.as_ref().map_or(0, Vec::len);
        self.exchanged.fetch_add(bytes as u64, Ordering::Relaxed);
        answer
    }

    /// As [`get`].
    pub fn get(&self, target: &str, limit: Duration) -> Result<Vec<u8>, AdminError> {
        self.count("", get(&self.socket, &(self.way.clone() + target), limit))
    }

    /// As [`post`].
    pub fn post(&self, target: &str, limit: Duration) -> Result<Vec<u8>, AdminError> {
        self.count("", post(&self.socket, &(self.way.clone() + target), limit))
    }

    /// As [`post_text`].
    pub fn post_text(
        &self,
        target: &str,
        text: &str,
        limit: Duration,
    ) -> Result<Vec<u8>, AdminError> {
        self.count(text, post_text(&self.socket, &(self.way.clone() + target), text, limit))
    }

    /// As [`post_json`].
    pub fn post_json(
        &self,
        target: &str,
        question: &str,
        limit: Duration,
    ) -> Result<Vec<u8>, AdminError> {
        self.count(question, post_json(&self.socket, &(self.way.clone() + target), question, limit))
    }

    /// Its status.
    pub fn status(&self, limit: Duration) -> Result<NodeStatus, AdminError> {
        let answer = get(&self.socket, &(self.way.clone() + "/status"), limit)?;
        serde_json::from_slice(&answer).map_err(wrong)
    }
}

/// Gets `target`.
pub fn get(socket: &Path, target: &str, limit: Duration) -> Result<Vec<u8>, AdminError> {
    ask(socket, Method::GET, target, ("", ""), limit)
}

/// Posts to `target`.
pub fn post(socket: &Path, target: &str, limit: Duration) -> Result<Vec<u8>, AdminError> {
    ask(socket, Method::POST, target, ("", ""), limit)
}

/// Posts a text to `target`.
pub fn post_text(
    socket: &Path,
    target: &str,
    text: &str,
    limit: Duration,
) -> Result<Vec<u8>, AdminError> {
    ask(socket, Method::POST, target, ("text/plain; charset=utf-8", text), limit)
}

/// Posts a question in JSON to `target`.
pub fn post_json(
    socket: &Path,
    target: &str,
    question: &str,
    limit: Duration,
) -> Result<Vec<u8>, AdminError> {
    ask(socket, Method::POST, target, ("application/json", question), limit)
}

fn ask(
    socket: &Path,
    method: Method,
    target: &str,
    (kind, text): (&str, &str),
    limit: Duration,
) -> Result<Vec<u8>, AdminError> {
    let mut request = Request::builder().method(method).uri(target).header(HOST, "skein");
    if !kind.is_empty() {
        request = request.header(CONTENT_TYPE, kind);
    }
    let request = request.body(Full::from(text.to_owned())).map_err(wrong)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(AdminError::Absent)?.block_on(exchange(socket, request, limit))
}

async fn exchange(
    socket: &Path,
    request: Request<Full<Bytes>>,
    limit: Duration,
) -> Result<Vec<u8>, AdminError> {
    let stream = in_time(limit, UnixStream::connect(socket)).await?.map_err(|error| {
        // Too many clients ask it already.
        if error.kind() == io::ErrorKind::WouldBlock {
            AdminError::Silent
        } else {
            AdminError::Absent(error)
        }
    })?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(wrong)?;
    // The thread ends with the runtime.
    tokio::spawn(connection);
    let answer = in_time(limit, sender.send_request(request)).await?.map_err(unanswered)?;
    let status = answer.status();
    let mut frames = Limited::new(answer.into_body(), MAX_ANSWER_BYTES);
    let mut body = Vec::new();
    while let Some(frame) = in_time(limit, frames.frame()).await? {
        if let Ok(bytes) = frame.map_err(wrong)?.into_data() {
            body.extend_from_slice(&bytes);
        }
    }
    match status {
        _ if status.is_success() => Ok(body),
        StatusCode::CONFLICT => {
            Err(AdminError::Refused(String::from_utf8_lossy(&body).trim().to_owned()))
        }
        _ => Err(wrong(status)),
    }
}

async fn in_time<F: Future>(limit: Duration, step: F) -> Result<F::Output, AdminError> {
    tokio::time::timeout(limit, step).await.map_err(|_| AdminError::Silent)
}

fn unanswered(error: hyper::Error) -> AdminError {
    if error.is_incomplete_message() { AdminError::Ended } else { wrong(error) }
}

fn wrong(what: impl std::fmt::Display) -> AdminError {
    AdminError::Wrong(what.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixListener;

    const LONG: Duration = Duration::from_secs(60);

    /// The result of `get` for these bytes.
    fn answered(answer: &[u8]) -> Result<Vec<u8>, AdminError> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.sock");
        let listener = UnixListener::bind(&path).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = [0; 4096];
                let read = stream.read(&mut request).unwrap();
                assert!(request[..read].starts_with(b"GET /status HTTP/1.1\r\n"));
                stream.write_all(answer).unwrap();
            });
            get(&path, "/status", LONG)
        })
    }

    #[test]
    fn reads_bodies_of_good_answers_only() {
        let good = answered(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nxyz").unwrap();
        assert_eq!(good, b"xyz");
        let refused = answered(b"HTTP/1.1 409 Conflict\r\n\r\nnot now\n").unwrap_err();
        assert!(matches!(&refused, AdminError::Refused(_)), "{refused}");
        assert_eq!(refused.to_string(), "not now");
        for bytes in [&b"HTTP/1.1 404 Not Found\r\n\r\n"[..], b"SSH-2.0\r\n\r\n"] {
            let error = answered(bytes).unwrap_err();
            assert!(matches!(error, AdminError::Wrong(_)), "{error}");
        }
    }

    #[test]
    fn half_an_answer_is_none() {
        let error = answered(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nxyz").unwrap_err();
        assert!(matches!(error, AdminError::Wrong(_)), "{error}");
        for bytes in [&b""[..], b"HTTP/1.1 200 OK\r\nContent-"] {
            let error = answered(bytes).unwrap_err();
            assert!(matches!(error, AdminError::Ended), "{error}");
        }
    }

    #[test]
    fn tells_absent_from_silent() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.sock");
        let limit = Duration::from_millis(20);
        assert!(matches!(get(&path, "/status", limit), Err(AdminError::Absent(_))));
        let _listener = UnixListener::bind(&path).unwrap();
        assert!(matches!(get(&path, "/status", limit), Err(AdminError::Silent)));
    }
}
