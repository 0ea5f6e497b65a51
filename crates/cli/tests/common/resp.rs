//! A small blocking client of redis, for tests: what is sent and what comes back are separate, so requests can be pipelined.

use std::io::{self, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use super::{connect, prepared, read_line};

/// What redis answers.
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
    pub fn ok() -> Self {
        Self::Status("OK".into())
    }

    /// A bulk string.
    pub fn bulk(text: impl AsRef<[u8]>) -> Self {
        Self::Bulk(text.as_ref().to_vec())
    }

    /// As text, whatever it is.
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
pub struct Redis {
    stream: BufReader<TcpStream>,
    wanted: Vec<u8>,
}

impl Redis {
    /// Connects; an answer may take as long as `patience`.
    pub fn connect(port: u16, patience: Duration) -> io::Result<Self> {
        Ok(Self { stream: connect(port, patience)?, wanted: Vec::new() })
    }

    /// A connection that is there already.
    pub fn over(stream: TcpStream, patience: Duration) -> io::Result<Self> {
        Ok(Self { stream: prepared(stream, patience)?, wanted: Vec::new() })
    }

    /// Adds a request to what the next [`Self::flush`] sends.
    pub fn push<T: AsRef<[u8]>>(&mut self, words: &[T]) {
        write!(self.wanted, "*{}\r\n", words.len()).unwrap();
        for word in words {
            let word = word.as_ref();
            write!(self.wanted, "${}\r\n", word.len()).unwrap();
            self.wanted.extend_from_slice(word);
            self.wanted.extend_from_slice(b"\r\n");
        }
    }

    /// Sends what was pushed.
    pub fn flush(&mut self) -> io::Result<()> {
        self.stream.get_mut().write_all(&self.wanted)?;
        self.wanted.clear();
        Ok(())
    }

    /// One request and its answer.
    pub fn ask<T: AsRef<[u8]>>(&mut self, words: &[T]) -> io::Result<Reply> {
        self.push(words);
        self.flush()?;
        self.receive()
    }

    /// A request in words, and its answer; a failure ends the test.
    #[track_caller]
    pub fn say(&mut self, line: &str) -> Reply {
        let words: Vec<&str> = line.split(' ').collect();
        self.ask(&words).unwrap_or_else(|error| panic!("{line}: {error}"))
    }

    fn line(&mut self) -> io::Result<String> {
        read_line(&mut self.stream)
    }

    /// The next answer.
    pub fn receive(&mut self) -> io::Result<Reply> {
        let line = self.line()?;
        let bad = || io::Error::other(format!("not an answer of redis: {line:?}"));
        let (kind, rest) = line.split_at_checked(1).ok_or_else(bad)?;
        let number = || rest.parse::<i64>().map_err(|_| bad());
        Ok(match kind {
            "+" => Reply::Status(rest.into()),
            "-" => Reply::Error(rest.into()),
            ":" => Reply::Int(number()?),
            "$" | "*" if number()? < 0 => Reply::Nil,
            "$" => {
                let mut bytes = vec![0; number()? as usize + 2];
                self.stream.read_exact(&mut bytes)?;
                if !bytes.ends_with(b"\r\n") {
                    return Err(bad());
                }
                bytes.truncate(bytes.len() - 2);
                Reply::Bulk(bytes)
            }
            "*" => Reply::Array((0..number()?).map(|_| self.receive()).collect::<io::Result<_>>()?),
            _ => return Err(bad()),
        })
    }
}
