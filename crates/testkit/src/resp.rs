//! A small blocking client of redis' protocol: any command, any reply. Sending and receiving are separate, so requests can
//! be pipelined.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::client::{connect, connect_port, limited, read_line};

/// redis' own limit for a value: 512 MiB.
const VALUE_BYTES_MAX: usize = 512 << 20;

/// A reply of redis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// `+OK`
    Status(String),
    /// `-ERR ...`
    Error(String),
    /// `:1`
    Int(i64),
    /// `$3`
    Bulk(Vec<u8>),
    /// `$-1` and `*-1`
    Nil,
    /// `*2`
    Array(Vec<Reply>),
}

impl Reply {
    /// `+OK`.
    #[must_use]
    pub fn ok() -> Self {
        Self::Status("OK".into())
    }

    /// A bulk string.
    pub fn bulk(text: impl AsRef<[u8]>) -> Self {
        Self::Bulk(text.as_ref().to_vec())
    }

    /// The reply as text, whatever its type.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::Status(text) | Self::Error(text) => text.clone(),
            Self::Int(number) => number.to_string(),
            Self::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Self::Nil => "(nil)".into(),
            Self::Array(all) => format!("{:?}", all.iter().map(Self::text).collect::<Vec<_>>()),
        }
    }
}

/// A connection.
#[derive(Debug)]
pub struct Redis<S = TcpStream> {
    stream: BufReader<S>,
    wanted: Vec<u8>,
}

impl Redis {
    /// Connects to a port of this machine; an answer may take as long as `patience`.
    ///
    /// # Errors
    /// The port cannot be reached.
    pub fn connect(port: u16, patience: Duration) -> io::Result<Self> {
        Ok(Self { stream: connect_port(port, patience)?, wanted: Vec::new() })
    }

    /// Connects to a service anywhere.
    ///
    /// # Errors
    /// The service cannot be reached.
    pub fn connect_to(service: SocketAddr, patience: Duration) -> io::Result<Self> {
        Ok(Self { stream: BufReader::new(connect(service, patience)?), wanted: Vec::new() })
    }

    /// Uses an existing connection.
    ///
    /// # Errors
    /// The connection takes no options.
    pub fn over(stream: TcpStream, patience: Duration) -> io::Result<Self> {
        Ok(Self { stream: BufReader::new(limited(stream, patience)?), wanted: Vec::new() })
    }
}

impl<S: Read + Write> Redis<S> {
    /// Adds a request to the bytes that the next [`Self::flush`] sends.
    pub fn push<T: AsRef<[u8]>>(&mut self, words: &[T]) {
        self.wanted.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
        for word in words {
            let word = word.as_ref();
            self.wanted.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            self.wanted.extend_from_slice(word);
            self.wanted.extend_from_slice(b"\r\n");
        }
    }

    /// Sends the added requests.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn flush(&mut self) -> io::Result<()> {
        self.stream.get_mut().write_all(&self.wanted)?;
        self.wanted.clear();
        Ok(())
    }

    /// One request and its answer.
    ///
    /// # Errors
    /// As [`Self::receive`].
    pub fn ask<T: AsRef<[u8]>>(&mut self, words: &[T]) -> io::Result<Reply> {
        self.push(words);
        self.flush()?;
        self.receive()
    }

    /// A request in words, and its answer; a failure ends the test.
    ///
    /// # Panics
    /// There is no answer.
    #[track_caller]
    pub fn say(&mut self, line: &str) -> Reply {
        let words: Vec<&str> = line.split(' ').collect();
        self.ask(&words).unwrap_or_else(|error| panic!("{line}: {error}"))
    }

    /// Sets `key`; `Ok` means acknowledged.
    ///
    /// # Errors
    /// `InvalidData` for any other answer; or as [`Self::receive`].
    pub fn set(&mut self, key: &str, value: &str) -> io::Result<()> {
        let reply = self.ask(&["SET", key, value])?;
        if reply == Reply::ok() { Ok(()) } else { Err(unexpected(&reply.text())) }
    }

    /// The value of `key`.
    ///
    /// # Errors
    /// `InvalidData` for any other answer; or as [`Self::receive`].
    pub fn get(&mut self, key: &str) -> io::Result<Option<Vec<u8>>> {
        match self.ask(&["GET", key])? {
            Reply::Bulk(value) => Ok(Some(value)),
            Reply::Nil => Ok(None),
            other => Err(unexpected(&other.text())),
        }
    }

    /// The next answer.
    ///
    /// # Errors
    /// The connection is broken, `UnexpectedEof` if it ends; `InvalidData` if the bytes are not redis' protocol.
    pub fn receive(&mut self) -> io::Result<Reply> {
        read(&mut self.stream)
    }
}

fn unexpected(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("not an answer of redis: {what:?}"))
}

fn read(from: &mut impl BufRead) -> io::Result<Reply> {
    let line = read_line(from)?;
    let bad = || unexpected(&line);
    let (kind, rest) = line.split_at_checked(1).ok_or_else(bad)?;
    let number = || rest.parse::<i64>().map_err(|_| bad());
    Ok(match kind {
        "+" => Reply::Status(rest.into()),
        "-" => Reply::Error(rest.into()),
        ":" => Reply::Int(number()?),
        "$" | "*" if number()? < 0 => Reply::Nil,
        "$" => {
            let bytes = usize::try_from(number()?).map_err(|_| bad())?;
            if bytes > VALUE_BYTES_MAX {
                return Err(bad());
            }
            let mut value = vec![0; bytes + 2];
            from.read_exact(&mut value)?;
            if !value.ends_with(b"\r\n") {
                return Err(bad());
            }
            value.truncate(bytes);
            Reply::Bulk(value)
        }
        "*" => Reply::Array((0..number()?).map(|_| read(from)).collect::<io::Result<_>>()?),
        _ => return Err(bad()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A peer that has already answered, and keeps the bytes sent to it.
    struct Scripted {
        answers: io::Cursor<Vec<u8>>,
        sent: Vec<u8>,
    }

    impl Read for Scripted {
        fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
            self.answers.read(to)
        }
    }

    impl Write for Scripted {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.sent.write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn client(answers: &str) -> Redis<Scripted> {
        let answers = io::Cursor::new(answers.as_bytes().to_vec());
        let stream = BufReader::new(Scripted { answers, sent: Vec::new() });
        Redis { stream, wanted: Vec::new() }
    }

    fn parse(text: &str) -> io::Result<Reply> {
        client(text).receive()
    }

    #[test]
    fn requests_and_answers_are_in_redis_form() {
        let mut client = client("+OK\r\n$3\r\na\r\n\r\n$-1\r\n");
        client.set("k", "a\r\n").expect("acknowledged");
        assert_eq!(client.stream.get_ref().sent, b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$3\r\na\r\n\r\n");
        assert_eq!(client.get("k").expect("a value").as_deref(), Some(&b"a\r\n"[..]));
        assert_eq!(client.get("k").expect("no value"), None);
    }

    #[test]
    fn several_requests_go_out_at_once() {
        let mut client = client(":1\r\n:2\r\n");
        client.push(&["INCR", "k"]);
        client.push(&["INCR", "k"]);
        assert_eq!(client.stream.get_ref().sent, b"");
        client.flush().expect("sent");
        assert_eq!(client.stream.get_ref().sent, b"*2\r\n$4\r\nINCR\r\n$1\r\nk\r\n".repeat(2));
        assert_eq!(client.receive().expect("first"), Reply::Int(1));
        assert_eq!(client.receive().expect("second"), Reply::Int(2));
    }

    #[test]
    fn every_kind_of_reply_is_read() {
        assert_eq!(parse("+OK\r\n").expect("status"), Reply::ok());
        assert_eq!(parse(":-2\r\n").expect("number"), Reply::Int(-2));
        assert_eq!(parse("*-1\r\n").expect("nothing"), Reply::Nil);
        let both = parse("*2\r\n$9\r\n127.0.0.1\r\n$4\r\n6\r\n7\r\n").expect("an array");
        assert_eq!(both, Reply::Array(vec![Reply::bulk("127.0.0.1"), Reply::bulk("6\r\n7")]));
        let refused = parse("-READONLY You can't write\r\n").expect("an error");
        assert!(matches!(refused, Reply::Error(text) if text.starts_with("READONLY")));
    }

    #[test]
    fn anything_else_is_no_acknowledgement() {
        for text in ["-ERR no\r\n", "$2\r\nOK\r\n", "+QUEUED\r\n", ":1\r\n"] {
            let kind = client(text).set("k", "v").map_err(|error| error.kind());
            assert_eq!(kind, Err(io::ErrorKind::InvalidData), "{text:?}");
        }
    }

    #[test]
    fn what_is_no_reply_is_an_error() {
        let cut = io::ErrorKind::UnexpectedEof;
        let wrong = io::ErrorKind::InvalidData;
        for (text, kind) in [
            ("", cut),
            ("+OK", cut),
            ("$5\r\nab\r\n", cut),
            ("+OK\n", wrong),
            ("HTTP/1.1 400\r\n", wrong),
            ("\r\n", wrong),
            (":x\r\n", wrong),
            ("$1\r\nabc", wrong),
            ("$99999999999\r\n", wrong),
        ] {
            assert_eq!(parse(text).map_err(|error| error.kind()), Err(kind), "{text:?}");
        }
        let endless = "x".repeat(1 << 20);
        assert_eq!(parse(&endless).map_err(|error| error.kind()), Err(wrong));
    }
}
