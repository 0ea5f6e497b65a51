//! A small blocking client of memcached's text protocol, for tests.

use std::io::{self, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use super::{connect, read_line};

/// A connection.
pub struct Memcached {
    stream: BufReader<TcpStream>,
}

/// A value with its flags and its version (`gets`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// The client's own number.
    pub flags: u32,
    /// Its bytes.
    pub value: Vec<u8>,
    /// The version for `cas`.
    pub version: u64,
}

impl Memcached {
    /// Connects; an answer may take as long as `patience`.
    pub fn connect(port: u16, patience: Duration) -> io::Result<Self> {
        Ok(Self { stream: connect(port, patience)? })
    }

    fn line(&mut self) -> io::Result<String> {
        read_line(&mut self.stream)
    }

    /// A request of one line, and the line that answers it.
    pub fn ask(&mut self, line: &str) -> io::Result<String> {
        self.stream.get_mut().write_all(format!("{line}\r\n").as_bytes())?;
        self.line()
    }

    /// `set`, `add`, `replace`, `append`, `prepend`; or `cas`, with a version.
    pub fn store(
        &mut self,
        verb: &str,
        key: &str,
        value: &[u8],
        expiry_s: u32,
        version: Option<u64>,
    ) -> io::Result<String> {
        let version = version.map_or(String::new(), |version| format!(" {version}"));
        let mut bytes =
            format!("{verb} {key} 7 {expiry_s} {}{version}\r\n", value.len()).into_bytes();
        bytes.extend_from_slice(value);
        bytes.extend_from_slice(b"\r\n");
        self.stream.get_mut().write_all(&bytes)?;
        self.line()
    }

    /// `gets` of one key.
    pub fn get(&mut self, key: &str) -> io::Result<Option<Item>> {
        let first = self.ask(&format!("gets {key}"))?;
        if first == "END" {
            return Ok(None);
        }
        let bad = || io::Error::other(format!("not an answer of memcached: {first:?}"));
        let words: Vec<&str> = first.split(' ').collect();
        let ["VALUE", got, flags, len, version] = words[..] else { return Err(bad()) };
        if got != key {
            return Err(bad());
        }
        let len: usize = len.parse().map_err(|_| bad())?;
        let mut value = vec![0; len + 2];
        self.stream.read_exact(&mut value)?;
        value.truncate(len);
        if self.line()? != "END" {
            return Err(bad());
        }
        let flags = flags.parse().map_err(|_| bad())?;
        Ok(Some(Item { flags, value, version: version.parse().map_err(|_| bad())? }))
    }

    /// `stats`: names and values.
    pub fn stats(&mut self) -> io::Result<Vec<(String, String)>> {
        let mut line = self.ask("stats")?;
        let mut all = Vec::new();
        while line != "END" {
            let mut words = line.split(' ').skip(1).map(str::to_string);
            let pair = words.next().zip(words.next());
            all.push(pair.ok_or_else(|| io::Error::other(line.clone()))?);
            line = self.line()?;
        }
        Ok(all)
    }
}
