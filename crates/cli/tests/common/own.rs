//! Servers of this repository (`tests/servers`), and a client of those with a line protocol.

use std::io::{self, BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::cluster::free_port;
use super::real::Real;
use super::{Place, connect};

/// Compiles a server; answers its path.
pub fn compiled(place: &Place, source: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/servers").join(source);
    let (name, kind) = source.rsplit_once('.').unwrap();
    let out = place.path(name);
    let (compiler, flags): (&str, &[&str]) = match kind {
        "c" => ("cc", &["-std=gnu11", "-O2", "-pthread"]),
        "cc" => ("c++", &["-std=c++20", "-O2", "-pthread"]),
        _ => ("rustc", &["--edition", "2024", "-O"]),
    };
    let libraries: &[&str] =
        if name.ends_with("libevent") { &["-levent", "-levent_pthreads"] } else { &[] };
    let mut command = Command::new(compiler);
    command.args(flags).arg("-o").arg(&out).arg(path).args(libraries);
    assert!(command.status().unwrap().success(), "{compiler} {source}; run scripts/setup.sh test");
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
