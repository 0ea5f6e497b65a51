//! Asks a node through its admin socket: HTTP/1.0 over a unix socket, one request a connection, with a deadline.
//!
//! HTTP/1.0 because it needs no more than this: no chunks, no connection to keep, the answer ends with the stream.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// The largest answer that is read: the hashes of all that a server's memory may hold at most.
const MAX_ANSWER_BYTES: u64 = 128 << 20;
/// The status of an answer that says why not.
const CONFLICT: &str = "409";

/// Why a node gave no answer.
#[derive(Debug)]
pub enum AdminError {
    /// Nobody listens at its socket.
    Absent(io::Error),
    /// It took the request, or would have, and said nothing in time.
    Silent,
    /// It says why it does not do that now.
    Refused(String),
    /// It answered something else than asked for.
    Wrong(String),
}

impl std::fmt::Display for AdminError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Absent(error) => write!(f, "its admin socket is not served ({error})"),
            Self::Silent => write!(f, "it does not answer"),
            Self::Refused(why) => write!(f, "{why}"),
            Self::Wrong(what) => write!(f, "its answer is not understood ({what})"),
        }
    }
}

/// Gets `target`.
pub fn get(socket: &Path, target: &str, limit: Duration) -> Result<Vec<u8>, AdminError> {
    ask(socket, "GET", target, "", limit)
}

/// Posts to `target`.
pub fn post(socket: &Path, target: &str, limit: Duration) -> Result<Vec<u8>, AdminError> {
    ask(socket, "POST", target, "", limit)
}

/// Posts a question in JSON to `target`.
pub fn post_json(
    socket: &Path,
    target: &str,
    question: &str,
    limit: Duration,
) -> Result<Vec<u8>, AdminError> {
    ask(socket, "POST", target, question, limit)
}

fn ask(
    socket: &Path,
    method: &str,
    target: &str,
    json: &str,
    limit: Duration,
) -> Result<Vec<u8>, AdminError> {
    let silent = |error: io::Error| match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => AdminError::Silent,
        _ => AdminError::Absent(error),
    };
    let mut stream = UnixStream::connect(socket).map_err(silent)?;
    stream.set_read_timeout(Some(limit)).map_err(AdminError::Absent)?;
    stream.set_write_timeout(Some(limit)).map_err(AdminError::Absent)?;
    let kind = match json.len() {
        0 => String::new(),
        len => format!("Content-Type: application/json\r\nContent-Length: {len}\r\n"),
    };
    let request = format!("{method} {target} HTTP/1.0\r\nHost: skein\r\n{kind}\r\n{json}");
    stream.write_all(request.as_bytes()).map_err(silent)?;
    let mut answer = Vec::new();
    stream.take(MAX_ANSWER_BYTES).read_to_end(&mut answer).map_err(silent)?;
    body(&answer).map(<[u8]>::to_vec)
}

/// The body of a successful answer.
fn body(answer: &[u8]) -> Result<&[u8], AdminError> {
    let split = answer.windows(4).position(|four| four == b"\r\n\r\n");
    let split = split.ok_or_else(|| AdminError::Wrong("no HTTP".into()))?;
    let head = String::from_utf8_lossy(&answer[..split]);
    let line = head.lines().next().unwrap_or_default();
    let code = line.split(' ').nth(1).unwrap_or_default();
    let body = &answer[split + 4..];
    match code {
        _ if !line.starts_with("HTTP/1.") => Err(AdminError::Wrong(line.to_string())),
        _ if code.starts_with('2') => Ok(body),
        CONFLICT => Err(AdminError::Refused(String::from_utf8_lossy(body).trim().to_string())),
        _ => Err(AdminError::Wrong(line.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn reads_bodies_of_good_answers_only() {
        assert_eq!(body(b"HTTP/1.0 200 OK\r\nA: b\r\n\r\nxyz").unwrap(), b"xyz");
        let refused = body(b"HTTP/1.0 409 Conflict\r\n\r\nnot now\n").unwrap_err();
        assert_eq!(refused.to_string(), "not now");
        assert!(body(b"HTTP/1.1 404 Not Found\r\n\r\n").is_err());
        assert!(body(b"SSH-2.0\r\n\r\n").is_err());
        assert!(body(b"").is_err());
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
