//! A small blocking client of memcached's binary protocol, for tests.

use std::io::{self, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use super::connect;

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Verb {
    /// Reads.
    Get = 0,
    /// Writes.
    Set = 1,
    /// Writes if the key is missing.
    Add = 2,
    /// Removes.
    Delete = 4,
    /// Counts up.
    Increment = 5,
    /// The server's version.
    Version = 11,
    /// Appends.
    Append = 14,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// 0: done; 1: not found; 2: exists; 5: not stored.
    pub status: u16,
    /// Its version.
    pub cas: u64,
    /// The value, or the error's text.
    pub value: Vec<u8>,
}

/// A connection.
pub struct Binary {
    stream: BufReader<TcpStream>,
    number: u32,
}

const REQUEST: u8 = 0x80;
const RESPONSE: u8 = 0x81;
const HEADER: usize = 24;

impl Binary {
    /// Connects; an answer may take as long as `patience`.
    pub fn connect(port: u16, patience: Duration) -> io::Result<Self> {
        Ok(Self { stream: connect(port, patience)?, number: 0 })
    }

    /// One request and its answer. `cas`: 0, or the version that must still be there.
    pub fn ask(&mut self, verb: Verb, key: &str, value: &[u8], cas: u64) -> io::Result<Answer> {
        let extras: Vec<u8> = match verb {
            // Flags and expiry.
            Verb::Set | Verb::Add => vec![0; 8],
            // By one, from one.
            Verb::Increment => {
                [1u64.to_be_bytes().as_slice(), &1u64.to_be_bytes(), &[0; 4]].concat()
            }
            _ => Vec::new(),
        };
        self.number += 1;
        let body = extras.len() + key.len() + value.len();
        let mut bytes = vec![REQUEST, verb as u8];
        bytes.extend_from_slice(&(key.len() as u16).to_be_bytes());
        bytes.extend_from_slice(&[extras.len() as u8, 0, 0, 0]);
        bytes.extend_from_slice(&(body as u32).to_be_bytes());
        bytes.extend_from_slice(&self.number.to_be_bytes());
        bytes.extend_from_slice(&cas.to_be_bytes());
        bytes.extend_from_slice(&extras);
        bytes.extend_from_slice(key.as_bytes());
        bytes.extend_from_slice(value);
        self.stream.get_mut().write_all(&bytes)?;
        let mut head = [0; HEADER];
        self.stream.read_exact(&mut head)?;
        if head[0] != RESPONSE || head[1] != verb as u8 || head[12..16] != self.number.to_be_bytes()
        {
            return Err(io::Error::other(format!("not the answer of memcached: {head:?}")));
        }
        let mut body = vec![0; u32::from_be_bytes(head[8..12].try_into().unwrap()) as usize];
        self.stream.read_exact(&mut body)?;
        Ok(Answer {
            status: u16::from_be_bytes([head[6], head[7]]),
            cas: u64::from_be_bytes(head[16..24].try_into().unwrap()),
            // Behind the extras, which are flags.
            value: body.split_off(usize::from(head[4])),
        })
    }
}
