//! Ports; requests whose replies are known, and one blocking connection that compares them.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use skein_testkit::client::connect;
use skein_testkit::{Failure, Outcome};

/// The longest head of a reply.
const HEAD_MAX: usize = 8 << 10;

/// A port that nobody listens on.
pub fn free_address() -> Outcome<SocketAddr> {
    skein_testkit::free_address().map_err(|error| Failure::of("no free port on 127.0.0.1", error))
}

/// One request and the only right reply.
#[derive(Debug, Clone)]
pub struct Exchange {
    /// The bytes to send.
    pub request: String,
    reply: Reply,
}

#[derive(Debug, Clone)]
enum Reply {
    /// These bytes.
    Exact(String),
    /// Any of these.
    OneOf(Vec<String>),
    /// One line with this start; the rest is the server's own (counts, times).
    Line(String),
    /// HTTP/1.1 200 with a `Content-Length` and this body; the rest of the head is the server's own (date, name).
    Http(String),
    /// HTTP/1.1 200 with a `Content-Length` and a body that holds this text.
    HttpHolding(String),
    /// HTTP/1.1 200 with this end; the part before is the server's own.
    HttpEndingWith(String),
}

impl Exchange {
    /// Every byte of the reply is known.
    pub fn exact(request: String, reply: String) -> Self {
        Self { request, reply: Reply::Exact(reply) }
    }

    /// The reply is any of `replies`.
    pub fn one_of(request: String, replies: Vec<String>) -> Self {
        Self { request, reply: Reply::OneOf(replies) }
    }

    /// The reply is a line that begins with `start`.
    pub fn line(request: String, start: &str) -> Self {
        Self { request, reply: Reply::Line(start.to_owned()) }
    }

    /// The reply is a page.
    pub fn http(request: String, body: String) -> Self {
        Self { request, reply: Reply::Http(body) }
    }

    /// The reply is a page without a length, which ends with `end`.
    pub fn until_closed(request: String, end: String) -> Self {
        Self { request, reply: Reply::HttpEndingWith(end) }
    }

    /// The reply is a document that holds `text` and more.
    pub fn http_holding(request: String, text: String) -> Self {
        Self { request, reply: Reply::HttpHolding(text) }
    }

    /// Whether `got` is the whole reply; an error when it can no longer become the right one.
    #[cfg(test)]
    pub fn complete(&self, got: &[u8]) -> io::Result<bool> {
        self.complete_from(got, 0)
    }

    /// As [`Self::complete`], where the first `from` bytes are known to be right: a long reply is compared once.
    pub fn complete_from(&self, got: &[u8], from: usize) -> io::Result<bool> {
        let wrong = || {
            let text = String::from_utf8_lossy(&got[..got.len().min(200)]).into_owned();
            let text = text.escape_debug();
            io::Error::new(io::ErrorKind::InvalidData, format!("wrong reply: {text}"))
        };
        match &self.reply {
            Reply::OneOf(replies) => {
                let begun = replies.iter().any(|reply| reply.as_bytes().starts_with(got));
                let whole = replies.iter().any(|reply| reply.as_bytes() == got);
                if begun { Ok(whole) } else { Err(wrong()) }
            }
            Reply::Exact(reply) => match reply.as_bytes().get(..got.len()) {
                Some(known) if known[from..] == got[from..] => Ok(got.len() == reply.len()),
                _ => Err(wrong()),
            },
            Reply::Line(start) => {
                let known = got.len().min(start.len());
                if got[..known] != start.as_bytes()[..known] {
                    return Err(wrong());
                }
                match memchr::memchr(b'\n', got) {
                    Some(end) if end + 1 < got.len() => Err(wrong()),
                    end => Ok(end.is_some()),
                }
            }
            Reply::Http(body) => {
                let Some(head) = memchr::memmem::find(got, b"\r\n\r\n") else { return Ok(false) };
                let (head, rest) = (&got[..head], &got[head + 4..]);
                let length = format!("\ncontent-length: {}", body.len());
                let known = String::from_utf8_lossy(head).to_ascii_lowercase();
                if !head.starts_with(b"HTTP/1.1 200 ")
                    || !known.contains(&length)
                    || !body.as_bytes().starts_with(rest)
                {
                    return Err(wrong());
                }
                Ok(rest.len() == body.len())
            }
            Reply::HttpEndingWith(end) => {
                let start = b"HTTP/1.1 200 ";
                let known = got.len().min(start.len());
                if got[..known] != start[..known] || got.len() > HEAD_MAX + end.len() {
                    return Err(wrong());
                }
                Ok(got.ends_with(end.as_bytes()))
            }
            Reply::HttpHolding(text) => {
                let Some(head) = memchr::memmem::find(got, b"\r\n\r\n") else { return Ok(false) };
                let (head, body) = (&got[..head], &got[head + 4..]);
                let length = content_length(head).ok_or_else(wrong)?;
                if !head.starts_with(b"HTTP/1.1 200 ") || body.len() > length {
                    return Err(wrong());
                }
                let whole = body.len() == length;
                if whole && memchr::memmem::find(body, text.as_bytes()).is_none() {
                    return Err(wrong());
                }
                Ok(whole)
            }
        }
    }
}

/// The head's information about the body's length.
fn content_length(head: &[u8]) -> Option<usize> {
    let head = String::from_utf8_lossy(head).to_ascii_lowercase();
    let value = head.lines().find_map(|line| line.strip_prefix("content-length:"))?;
    value.trim().parse().ok()
}

/// One blocking connection.
pub struct Client {
    stream: TcpStream,
    got: Vec<u8>,
}

impl Client {
    /// Connects; no step may take longer than `answer_max`.
    pub fn connect(service: SocketAddr, answer_max: Duration) -> io::Result<Self> {
        Ok(Self { stream: connect(service, answer_max)?, got: Vec::new() })
    }

    /// The last reply, byte by byte.
    pub fn got(&self) -> &[u8] {
        &self.got
    }

    /// Does one exchange; any other reply than the right one is `InvalidData`.
    pub fn exchange(&mut self, exchange: &Exchange) -> io::Result<()> {
        self.stream.write_all(exchange.request.as_bytes())?;
        self.got.clear();
        let mut buffer = [0; 8192];
        let mut right = 0;
        while !exchange.complete_from(&self.got, right)? {
            right = self.got.len();
            match self.stream.read(&mut buffer)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => self.got.extend_from_slice(&buffer[..read]),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_reply_than_the_right_one_is_an_error() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let service = listener.local_addr().expect("its address");
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client");
            let _ = stream.write_all(b"-ERR\r\n");
            let _ = stream.read(&mut [0; 256]);
        });
        let mut client = Client::connect(service, Duration::from_secs(5)).expect("connected");
        let asked = Exchange::exact("SET\r\n".to_owned(), "+OK\r\n".to_owned());
        let error = client.exchange(&asked).expect_err("refused");
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        drop(client);
        server.join().expect("ended");
    }

    #[test]
    fn a_page_is_whole_when_its_body_is() {
        let page = Exchange::http(String::new(), "abc".to_owned());
        let head = "HTTP/1.1 200 OK\r\nDate: now\r\nContent-Length: 3\r\n\r\n";
        assert!(!page.complete(b"HTTP/1.1 200").expect("so far"));
        assert!(!page.complete(format!("{head}ab").as_bytes()).expect("so far"));
        assert!(page.complete(format!("{head}abc").as_bytes()).expect("whole"));
        assert!(page.complete(format!("{head}abd").as_bytes()).is_err());
        assert!(
            page.complete(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 3\r\n\r\nabc").is_err()
        );
    }

    #[test]
    fn a_line_is_whole_at_its_end() {
        let line = Exchange::line(String::new(), "ok ");
        assert!(!line.complete(b"o").expect("so far"));
        assert!(!line.complete(b"ok 1").expect("so far"));
        assert!(line.complete(b"ok 12\n").expect("whole"));
        assert!(line.complete(b"no\n").is_err());
        assert!(line.complete(b"ok 1\nok").is_err());
    }
}
