//! A small blocking client of MariaDB for tests: the text protocol, a user without a password.

use std::io::{self, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use super::connect;

/// A connection.
pub struct Mysql {
    stream: BufReader<TcpStream>,
}

const LONG_PASSWORD: u32 = 1;
const PROTOCOL_41: u32 = 0x200;
const SECURE_CONNECTION: u32 = 0x8000;
const PLUGIN_AUTH: u32 = 0x8_0000;
const MAX_PACKET: u32 = 1 << 24;
const UTF8: u8 = 33;
const COM_QUERY: u8 = 3;

/// The first byte of an answer.
const OK: u8 = 0;
const NULL: u8 = 0xfb;
const END: u8 = 0xfe;
const ERROR: u8 = 0xff;

impl Mysql {
    /// Connects as root; an answer may take as long as `patience`.
    pub fn connect(port: u16, patience: Duration) -> io::Result<Self> {
        let mut mysql = Self { stream: connect(port, patience)? };
        let (_, greeting) = mysql.packet()?;
        if greeting.first() == Some(&ERROR) {
            return Err(refusal(&greeting));
        }
        let mut login = Vec::new();
        let can = LONG_PASSWORD | PROTOCOL_41 | SECURE_CONNECTION | PLUGIN_AUTH;
        login.extend_from_slice(&can.to_le_bytes());
        login.extend_from_slice(&MAX_PACKET.to_le_bytes());
        login.push(UTF8);
        login.extend_from_slice(&[0; 23]);
        login.extend_from_slice(b"root\0\0mysql_native_password\0");
        mysql.send(1, &login)?;
        let (number, answer) = mysql.packet()?;
        let answer = if answer.first() == Some(&END) {
            // Asked for the password once more: it is empty.
            mysql.send(number + 1, &[])?;
            mysql.packet()?.1
        } else {
            answer
        };
        match answer.first() {
            Some(&OK) => Ok(mysql),
            _ => Err(refusal(&answer)),
        }
    }

    fn packet(&mut self) -> io::Result<(u8, Vec<u8>)> {
        let mut head = [0; 4];
        self.stream.read_exact(&mut head)?;
        let mut body = vec![0; u32::from_le_bytes([head[0], head[1], head[2], 0]) as usize];
        self.stream.read_exact(&mut body)?;
        Ok((head[3], body))
    }

    fn send(&mut self, number: u8, body: &[u8]) -> io::Result<()> {
        let mut bytes = (body.len() as u32).to_le_bytes().to_vec();
        bytes[3] = number;
        bytes.extend_from_slice(body);
        self.stream.get_mut().write_all(&bytes)
    }

    /// A statement; answers its rows, `NULL` as such.
    pub fn query(&mut self, sql: &str) -> io::Result<Vec<Vec<String>>> {
        let mut request = vec![COM_QUERY];
        request.extend_from_slice(sql.as_bytes());
        self.send(0, &request)?;
        let (_, first) = self.packet()?;
        match first.first() {
            Some(&OK) => return Ok(Vec::new()),
            Some(&ERROR) | None => return Err(refusal(&first)),
            _ => {}
        }
        let is_end = |body: &[u8]| body.first() == Some(&END) && body.len() < 9;
        while !is_end(&self.packet()?.1) {}
        let mut rows = Vec::new();
        loop {
            let (_, body) = self.packet()?;
            match body.first() {
                Some(&ERROR) => return Err(refusal(&body)),
                _ if is_end(&body) => return Ok(rows),
                _ => rows.push(fields(&body)),
            }
        }
    }

    /// The first column of a statement's rows.
    pub fn column(&mut self, sql: &str) -> io::Result<Vec<String>> {
        Ok(self.query(sql)?.into_iter().map(|mut row| row.remove(0)).collect())
    }
}

/// The fields of a row: each a length and its bytes.
fn fields(mut body: &[u8]) -> Vec<String> {
    let mut all = Vec::new();
    while let Some((&first, rest)) = body.split_first() {
        if first == NULL {
            all.push("NULL".into());
            body = rest;
            continue;
        }
        let (len, rest) = match first {
            0xfc => (u16::from_le_bytes([rest[0], rest[1]]) as usize, &rest[2..]),
            0xfd => (u32::from_le_bytes([rest[0], rest[1], rest[2], 0]) as usize, &rest[3..]),
            _ => (first as usize, rest),
        };
        all.push(String::from_utf8_lossy(&rest[..len]).into_owned());
        body = &rest[len..];
    }
    all
}

fn refusal(packet: &[u8]) -> io::Error {
    let text = String::from_utf8_lossy(packet.get(3..).unwrap_or_default()).into_owned();
    io::Error::other(format!("MariaDB answers: {text}"))
}
