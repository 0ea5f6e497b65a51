//! The surroundings of one server of the zoo: its directory, its port, and its requests.
//!
//! The directory is removed when this is dropped, unless it was given. Every shell command has a deadline and is waited for.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::species::Species;
use skein_testkit::servers;
use skein_testkit::{Failure, Outcome};

/// The longest request.
const REQUEST_MAX_S: &str = "20";

/// The longest preparation.
const PREPARE_MAX_S: &str = "120";

/// A server's surroundings.
pub struct Cage<'a> {
    /// The server's description.
    pub species: &'a Species,
    /// The server's port.
    pub port: u16,
    backend: u16,
    place: Place,
}

/// The directory of a server.
enum Place {
    /// Removed in the end.
    Own(tempfile::TempDir),
    /// Somebody else's.
    Given(PathBuf),
}

impl<'a> Cage<'a> {
    /// Makes the directory with the server's files, and prepares it.
    pub fn new(species: &'a Species) -> Outcome<Self> {
        let failed = |error| Failure::of("cannot make the server's directory", error);
        let dir = tempfile::Builder::new().prefix("skein-zoo-").tempdir().map_err(failed)?;
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).map_err(failed)?;
        let port = skein_testkit::free_port().map_err(failed)?;
        let cage = Self { species, port, backend: serve_pages()?, place: Place::Own(dir) };
        cage.prepare()?;
        Ok(cage)
    }

    /// A server at this port with this directory, which is made if it is not there; nothing is prepared in it.
    pub fn at(species: &'a Species, dir: &Path, port: u16) -> Outcome<Self> {
        fs::create_dir_all(dir).map_err(|error| Failure::of(dir.display(), error))?;
        let place = Place::Given(dir.to_owned());
        Ok(Self { species, port, backend: serve_pages()?, place })
    }

    /// Makes the server's files, compiles programs, and prepares what else is no text.
    pub fn prepare(&self) -> Outcome {
        let failed = |error| Failure::of("cannot make the server's files", error);
        for (name, text) in &self.species.files {
            let path = self.dir().join(name);
            fs::create_dir_all(path.parent().unwrap_or(self.dir())).map_err(failed)?;
            fs::write(&path, self.filled(text)).map_err(failed)?;
        }
        for source in &self.species.sources {
            let name = Path::new(source).file_stem().unwrap_or_default();
            servers::compile(source, &self.dir().join(name))?;
        }
        if let Some(prepare) = &self.species.prepare {
            let (code, said) = self.shell(prepare, PREPARE_MAX_S, 0)?;
            if code != Some(0) {
                return Err(Failure::of("prepare", said.trim()));
            }
        }
        Ok(())
    }

    /// The server's working directory.
    pub fn dir(&self) -> &Path {
        match &self.place {
            Place::Own(dir) => dir.path(),
            Place::Given(dir) => dir,
        }
    }

    /// The directory stays when this is dropped; answers where it is.
    pub fn keep(&mut self) -> &Path {
        if let Place::Own(dir) = &mut self.place {
            dir.disable_cleanup(true);
        }
        self.dir()
    }

    /// The server's command.
    pub fn command(&self) -> Vec<String> {
        self.species.command.iter().map(|word| self.filled(word)).collect()
    }

    /// Options of `skein run` and `skein check`.
    pub fn options(&self) -> Vec<String> {
        self.species.options.iter().map(|word| self.filled(word)).collect()
    }

    /// `text` with this server's port and directory.
    pub fn filled(&self, text: &str) -> String {
        text.replace("{port}", &self.port.to_string())
            .replace("{backend}", &self.backend.to_string())
            .replace("{dir}", &self.dir().display().to_string())
    }

    /// The expected content of the answer about `n`.
    pub fn answer(&self, n: u64) -> String {
        self.filled(&self.species.answer).replace("{n}", &n.to_string())
    }

    /// One request that changes something, or only asks if the server keeps nothing. Answers whether it was acknowledged.
    pub fn request(&self, n: u64) -> Outcome<bool> {
        match &self.species.write {
            Some(write) => Ok(self.shell(write, REQUEST_MAX_S, n)?.0 == Some(0)),
            None => Ok(self.ask(n)?.is_ok()),
        }
    }

    /// Asks for `n`; answers the reply if it is not the expected one.
    pub fn ask(&self, n: u64) -> Outcome<Result<(), String>> {
        let (_, said) = self.shell(&self.species.ask, REQUEST_MAX_S, n)?;
        Ok(if said.contains(&self.answer(n)) { Ok(()) } else { Err(said) })
    }

    /// The client command of `skein check`: some requests and their checks, in one shell command.
    pub fn drive(&self, requests: u64) -> String {
        let answer = self.filled(&self.species.answer).replace("{n}", "$N");
        let write = self.species.write.as_deref().unwrap_or("true");
        self.filled(&format!(
            "for pair in $SKEIN_PORTS; do case $pair in {{port}}:*) SKEIN_PORT=${{pair#*:}};; esac; done\n\
             N=1; export N; while [ $N -le {requests} ]; do\n\
             {{ {write}\n}} || {{ echo \"write $N failed\"; exit 1; }}\n\
             said=$({ask}\n)\ncase $said in *\"{answer}\"*) ;; *) echo \"$N: $said\"; exit 1;; esac\n\
             N=$((N+1)); done",
            ask = self.species.ask
        ))
    }

    fn shell(&self, text: &str, max_s: &str, n: u64) -> Outcome<(Option<i32>, String)> {
        let output = Command::new("timeout")
            .args(["-k", "5", max_s, "sh", "-c", &self.filled(text)])
            .envs([("SKEIN_HOST", "127.0.0.1"), ("LC_ALL", "C.UTF-8")])
            .env("SKEIN_PORT", self.port.to_string())
            .env("N", n.to_string())
            .current_dir(self.dir())
            .stdin(Stdio::null())
            .output()
            .map_err(|error| Failure::of("cannot run timeout", error))?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        Ok((output.status.code(), said))
    }
}

/// Serves pages for proxies: `GET /N` answers `page-N`. Ends with the process.
fn serve_pages() -> Outcome<u16> {
    let failed = |error| Failure::of("cannot serve pages", error);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
    let port = listener.local_addr().map_err(failed)?.port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || serve(&stream));
        }
    });
    Ok(port)
}

fn serve(stream: &TcpStream) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream).lines();
    while let Some(first) = lines.next().transpose()? {
        let path = first.split(' ').nth(1).unwrap_or("/").to_owned();
        while lines.next().transpose()?.is_some_and(|line| !line.is_empty()) {}
        let body = format!("page-{}\n", path.rsplit('/').next().unwrap_or_default());
        let mut to = stream;
        write!(
            to,
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )?;
    }
    Ok(())
}
