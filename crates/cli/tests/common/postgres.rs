//! A small blocking client of PostgreSQL for tests: protocol 3, simple queries, a user without a password.

use std::io::{self, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use super::connect;

/// A connection.
pub struct Postgres {
    stream: BufReader<TcpStream>,
}

const PROTOCOL: u32 = 3 << 16;
const LOGIN: &[u8] = b"user\0postgres\0database\0postgres\0\0";
/// The length of a field that is NULL.
const NULL: u32 = u32::MAX;

impl Postgres {
    /// Connects as postgres; an answer may take as long as `patience`.
    pub fn connect(port: u16, patience: Duration) -> io::Result<Self> {
        let mut postgres = Self { stream: connect(port, patience)? };
        postgres.send(&[], &[&PROTOCOL.to_be_bytes(), LOGIN])?;
        postgres.answer()?;
        Ok(postgres)
    }

    /// A message: its kind (the first one has none), its length, its body.
    fn send(&mut self, kind: &[u8], body: &[&[u8]]) -> io::Result<()> {
        let len = 4 + body.iter().map(|part| part.len()).sum::<usize>() as u32;
        let message = [kind, &len.to_be_bytes(), &body.concat()].concat();
        self.stream.get_mut().write_all(&message)
    }

    fn message(&mut self) -> io::Result<(u8, Vec<u8>)> {
        let mut head = [0; 5];
        self.stream.read_exact(&mut head)?;
        let len = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
        let mut body = vec![0; len.saturating_sub(4)];
        self.stream.read_exact(&mut body)?;
        Ok((head[0], body))
    }

    /// Reads until the server waits for the next query; answers the rows.
    fn answer(&mut self) -> io::Result<Vec<Vec<String>>> {
        let (mut rows, mut error) = (Vec::new(), None);
        loop {
            let (kind, body) = self.message()?;
            match kind {
                b'Z' => return error.map_or(Ok(rows), Err),
                b'D' => rows.push(fields(&body)),
                b'E' => {
                    let (text, ends) = (complaint(&body), fatal(&body));
                    error = Some(io::Error::other(text));
                    if ends {
                        return Err(error.unwrap());
                    }
                }
                _ => {}
            }
        }
    }

    /// Statements, which are one transaction unless they say otherwise; answers their rows, `NULL` as such.
    pub fn query(&mut self, sql: &str) -> io::Result<Vec<Vec<String>>> {
        self.send(b"Q", &[sql.as_bytes(), b"\0"])?;
        self.answer()
    }

    /// The first column of a statement's rows.
    pub fn column(&mut self, sql: &str) -> io::Result<Vec<String>> {
        Ok(self.query(sql)?.into_iter().map(|mut row| row.remove(0)).collect())
    }

    /// The next notification: its channel and its text.
    pub fn notification(&mut self) -> io::Result<(String, String)> {
        loop {
            let (kind, body) = self.message()?;
            if kind == b'A' {
                let mut texts = body[4..].split(|byte| *byte == 0);
                let mut text =
                    || String::from_utf8_lossy(texts.next().unwrap_or_default()).into_owned();
                return Ok((text(), text()));
            }
        }
    }
}

/// The fields of a row: how many, then each a length and its bytes.
fn fields(body: &[u8]) -> Vec<String> {
    let (mut all, mut rest) = (Vec::new(), &body[2..]);
    while let Some((len, after)) = rest.split_first_chunk() {
        let len = u32::from_be_bytes(*len);
        rest = after;
        if len == NULL {
            all.push("NULL".into());
        } else {
            let (field, after) = rest.split_at(len as usize);
            all.push(String::from_utf8_lossy(field).into_owned());
            rest = after;
        }
    }
    all
}

/// A part of an error by its letter.
fn part(body: &[u8], letter: u8) -> String {
    let mut parts = body.split(|byte| *byte == 0);
    let found = parts.find(|part| part.first() == Some(&letter));
    String::from_utf8_lossy(found.map_or(&[][..], |part| &part[1..])).into_owned()
}

/// The server's message.
fn complaint(body: &[u8]) -> String {
    format!("PostgreSQL answers: {}", part(body, b'M'))
}

/// Whether it ends the connection.
fn fatal(body: &[u8]) -> bool {
    part(body, b'S') == "FATAL"
}
