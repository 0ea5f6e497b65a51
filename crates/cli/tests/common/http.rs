//! A small blocking HTTP/1.1 client for tests: one connection, one request after the other.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use super::connect;

/// A connection that is kept.
pub struct Http {
    stream: BufReader<TcpStream>,
    host: String,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// 200, 404, ...
    pub status: u16,
    /// Its head, without the first line.
    pub head: Vec<String>,
    /// Its body.
    pub body: Vec<u8>,
}

impl Answer {
    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// A header's value.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.iter().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

impl Http {
    /// Connects; an answer may take as long as `patience`.
    pub fn connect(port: u16, patience: Duration) -> io::Result<Self> {
        Ok(Self { stream: connect(port, patience)?, host: format!("127.0.0.1:{port}") })
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(line.trim_end().to_string())
    }

    /// A request and its answer.
    pub fn ask(&mut self, method: &str, path: &str, body: &[u8]) -> io::Result<Answer> {
        self.send(method, path, body)?;
        self.answer()
    }

    /// A request; [`Self::answer`] takes its answer.
    pub fn send(&mut self, method: &str, path: &str, body: &[u8]) -> io::Result<()> {
        let host = &self.host;
        let len = body.len();
        let mut bytes =
            format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len}\r\n\r\n")
                .into_bytes();
        bytes.extend_from_slice(body);
        self.stream.get_mut().write_all(&bytes)
    }

    /// `GET`.
    pub fn get(&mut self, path: &str) -> io::Result<Answer> {
        self.ask("GET", path, &[])
    }

    /// The next answer.
    pub fn answer(&mut self) -> io::Result<Answer> {
        let first = self.line()?;
        let bad = || io::Error::other(format!("not an answer: {first:?}"));
        let status = first.split(' ').nth(1).and_then(|n| n.parse().ok()).ok_or_else(bad)?;
        let mut answer = Answer { status, head: Vec::new(), body: Vec::new() };
        loop {
            let line = self.line()?;
            if line.is_empty() {
                break;
            }
            answer.head.push(line);
        }
        if let Some(len) = answer.header("Content-Length") {
            answer.body = vec![0; len.parse().map_err(|_| bad())?];
            self.stream.read_exact(&mut answer.body)?;
        } else if answer.header("Transfer-Encoding") == Some("chunked") {
            loop {
                let size = self.line()?;
                let size = usize::from_str_radix(&size, 16).map_err(|_| bad())?;
                let mut chunk = vec![0; size + 2];
                self.stream.read_exact(&mut chunk)?;
                if size == 0 {
                    break;
                }
                answer.body.extend_from_slice(&chunk[..size]);
            }
        } else {
            self.stream.read_to_end(&mut answer.body)?;
        }
        Ok(answer)
    }
}
