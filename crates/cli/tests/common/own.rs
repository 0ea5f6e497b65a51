//! Servers of this repository (`tests/servers`), and a client of those with a line protocol.

use std::io::{self, BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::cluster::free_port;
use super::real::Real;
use super::{Place, connect};
use skein_testkit::servers;

/// Compiles a server; answers its path.
#[track_caller]
pub fn compiled(place: &Place, source: &str) -> PathBuf {
    let out = place.path(Path::new(source).file_stem().unwrap().to_str().unwrap());
    servers::compile(source, &out).unwrap_or_else(|failure| panic!("{failure}"));
    out
}

/// Three replicas of a server that takes its port as its argument.
pub fn start(source: &str, options: &[&str]) -> Real {
    let place = Place::new();
    let port = free_port();
    let server = compiled(&place, source).to_str().unwrap().to_string();
    Real::serve(place, port, options, vec![server, port.to_string()])
}

/// A connection to a server with a line protocol.
pub struct Lines {
    stream: BufReader<TcpStream>,
}

impl Lines {
    /// Connects; an answer may take as long as `patience`.
    pub fn connect(port: u16, patience: Duration) -> io::Result<Self> {
        Ok(Self { stream: connect(port, patience)? })
    }

    /// A line and the line that answers it.
    pub fn ask(&mut self, line: &str) -> io::Result<String> {
        self.stream.get_mut().write_all(format!("{line}\n").as_bytes())?;
        let mut answer = String::new();
        self.stream.read_line(&mut answer)?;
        match answer.strip_suffix('\n') {
            Some(answer) => Ok(answer.to_string()),
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}
