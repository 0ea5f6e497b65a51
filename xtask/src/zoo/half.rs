//! A request of which the server has only the beginning, until it gets the rest.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use super::cage::Cage;
use super::species::Half;

/// The longest wait for its answer.
const ANSWER_MAX: Duration = Duration::from_secs(20);

/// Its connection.
pub struct Asked {
    stream: TcpStream,
    rest: String,
    answer: String,
}

impl Asked {
    /// Sends the beginning; nothing where the server's file has no such request, or nobody takes it now.
    pub fn begin(cage: &Cage<'_>) -> Option<Self> {
        let Half { begin, rest, answer } = cage.species.half.as_ref()?;
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, cage.port)).ok()?;
        stream.set_nodelay(true).ok()?;
        stream.set_read_timeout(Some(ANSWER_MAX)).ok()?;
        stream.write_all(cage.filled(begin).as_bytes()).ok()?;
        Some(Self { stream, rest: cage.filled(rest), answer: cage.filled(answer) })
    }

    /// Sends the rest; answers the reply if it is not the expected one.
    pub fn finish(mut self) -> Result<(), String> {
        let mut said = Vec::new();
        let mut ask = || {
            self.stream.write_all(self.rest.as_bytes())?;
            let mut piece = [0; 4096];
            loop {
                let read = self.stream.read(&mut piece)?;
                said.extend_from_slice(&piece[..read]);
                let answer = self.answer.as_bytes();
                if read == 0 || said.windows(answer.len()).any(|bytes| bytes == answer) {
                    return Ok(read > 0);
                }
            }
        };
        let asked: std::io::Result<bool> = ask();
        let said = || said.escape_ascii().to_string();
        match asked {
            Ok(true) => Ok(()),
            Ok(false) => Err(format!("the connection was closed after '{}'", said())),
            Err(error) => Err(format!("{error} after '{}'", said())),
        }
    }
}
