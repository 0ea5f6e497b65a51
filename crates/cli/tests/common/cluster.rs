//! A `skein run` that is driven from outside, and checks for its remains.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Output};
use std::time::Duration;

use serde_json::Value;

use super::{PATIENCE, Place, guest_server, processes_naming, wait_for};

pub fn free_port() -> u16 {
    skein_testkit::free_port().unwrap()
}

/// A cluster named `t` of the server that counts its requests (`guests/servers/echo_threads.c`).
pub struct Cluster {
    /// Its directories.
    pub place: Place,
    /// Its address.
    pub port: u16,
    run: Child,
}

impl Cluster {
    /// Starts `skein run OPTIONS -- echo_threads PORT` without waiting for it.
    pub fn start(options: &[&str]) -> Self {
        let place = Place::new();
        let port = free_port();
        let server = guest_server(&place, "echo_threads");
        Self::start_in(place, port, options, &[server.to_str().unwrap(), &port.to_string()])
    }

    /// Starts `skein run OPTIONS -- SERVER` in a place.
    pub fn start_in(place: Place, port: u16, options: &[&str], server: &[&str]) -> Self {
        let mut command = place.skein_with_runtime();
        command.args(["run", "--name", "t", "--data", &place.data()]).args(options);
        Self::spawn(place, port, command.arg("--").args(server))
    }

    /// Starts a prepared command.
    pub fn spawn(place: Place, port: u16, command: &mut Command) -> Self {
        let said = fs::File::create(place.path("said")).unwrap();
        let run = command.current_dir(place.dir.path()).stderr(said).spawn().unwrap();
        Self { place, port, run }
    }

    /// Its directories, for another start.
    pub fn into_place(mut self) -> Place {
        std::mem::replace(&mut self.place, Place::new())
    }

    /// The process of `skein run`.
    pub fn pid(&self) -> i32 {
        self.run.id() as i32
    }

    /// The output of `skein run`.
    pub fn said(&self) -> String {
        fs::read_to_string(self.place.path("said")).unwrap()
    }

    /// Waits until the output has `words`.
    #[track_caller]
    pub fn wait_said(&self, words: &str) {
        let what = format!("'{words}' to be said");
        wait_for_or(&what, || self.evidence(), || self.said().contains(words).then_some(()));
    }

    /// The last output of it, its nodes and its servers.
    pub fn evidence(&self) -> String {
        let mut text = self.said();
        for id in 1..=3 {
            for file in ["node.log", "server.log"] {
                let path = self.place.path(&format!("data/node-{id}/{file}"));
                let all = fs::read_to_string(&path).unwrap_or_default();
                let tail: Vec<&str> = all.lines().rev().take(12).collect();
                text.push_str(&format!("--- {id} {file}\n"));
                tail.iter().rev().for_each(|line| text.push_str(&format!("{line}\n")));
            }
        }
        text
    }

    /// `skein status --json` and its exit code.
    pub fn status(&self) -> (Value, Option<i32>) {
        let output = self.place.run(&["status", "--name", "t", "--json"]);
        (serde_json::from_slice(&output.stdout).unwrap_or(Value::Null), output.status.code())
    }

    /// Waits until `skein status` exits with `code`; answers the state.
    #[track_caller]
    pub fn wait_status(&self, code: i32) -> Value {
        let what = format!("status {code}");
        wait_for_or(
            &what,
            || format!("{}\n{:?}", self.evidence(), self.status()),
            || {
                let (status, got) = self.status();
                (got == Some(code)).then_some(status)
            },
        )
    }

    /// Waits until `skein run` has reported readiness and `skein status` finds all replicas running.
    #[track_caller]
    pub fn wait_ready(&self) -> Value {
        self.wait_said("ready at");
        self.wait_status(0)
    }

    /// Sends a line on a new connection and answers the reply; tries until there is one.
    #[track_caller]
    pub fn ask(&self, text: &str) -> String {
        let port = self.port;
        wait_for_or("an answer", || self.evidence(), || ask_once(("127.0.0.1", port), text))
    }

    /// The number of requests that the server has counted, including this one.
    #[track_caller]
    pub fn count(&self) -> u64 {
        let answer = self.ask("x");
        let number = answer.split(' ').next().unwrap_or_default();
        number.parse().unwrap_or_else(|_| panic!("no count: {answer}"))
    }

    /// Asserts that all replicas' servers have equal memory and files, as soon as they can be compared.
    #[track_caller]
    pub fn wait_memory_agreed(&self) {
        let verify = || self.place.run(&["verify", "--name", "t"]);
        wait_verified(|| self.evidence(), verify);
    }

    /// The row of a replica.
    pub fn replica(status: &Value, id: u64) -> &Value {
        let rows = status["replicas"].as_array().unwrap();
        rows.iter().find(|row| row["id"] == id).unwrap()
    }

    /// The leader's id and its node's process.
    pub fn leader(status: &Value) -> (u64, i32) {
        let id = status["leader"].as_u64().unwrap();
        (id, Self::replica(status, id)["node_pid"].as_i64().unwrap() as i32)
    }

    /// Sends a signal to `skein run`.
    pub fn signal(&self, signal: nix::sys::signal::Signal) {
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(self.pid()), signal).unwrap();
    }

    /// Waits for the end of `skein run`; answers its exit code.
    #[track_caller]
    pub fn wait_end(&mut self) -> Option<i32> {
        let run = &mut self.run;
        wait_for("skein run to end", || run.try_wait().unwrap()).code()
    }

    /// Kills `skein run`, and waits until all nodes and servers, which end with it, are gone.
    #[track_caller]
    pub fn kill_all(&mut self) {
        self.signal(nix::sys::signal::Signal::SIGKILL);
        self.wait_end();
        let dir = self.place.dir.path().to_str().unwrap();
        let gone = || processes_naming(dir).is_empty().then_some(());
        wait_for_or("all processes to end", || self.said(), gone);
    }

    /// Asserts that only the data directory is left.
    #[track_caller]
    pub fn assert_nothing_left(&self) {
        let dir = self.place.dir.path().to_str().unwrap();
        let left = processes_naming(dir);
        assert!(left.is_empty(), "processes are left: {left:?}\n{}", self.said());
        let run: Vec<_> = fs::read_dir(self.place.path("run")).unwrap().collect();
        assert!(run.is_empty(), "the runtime directory holds {run:?}");
        for file in ["/proc/self/mountinfo", "/proc/net/unix"] {
            let text = fs::read_to_string(file).unwrap();
            assert!(!text.contains(dir), "{file} names {dir}");
        }
        assert!(TcpListener::bind(("127.0.0.1", self.port)).is_ok(), "the port is still taken");
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // The kernel ends the nodes with it. Both fail when it has ended already.
        let _ = self.run.kill();
        let _ = self.run.wait();
    }
}

/// One request on a connection of its own.
pub fn ask_once(address: impl std::net::ToSocketAddrs, text: &str) -> Option<String> {
    let address = address.to_socket_addrs().ok()?.next()?;
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(1)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    // In one write: the server counts what it reads at once.
    stream.write_all(format!("{text}\n").as_bytes()).ok()?;
    let mut line = String::new();
    BufReader::new(&stream).read_line(&mut line).ok()?;
    (!line.is_empty()).then(|| line.trim_end().to_string())
}

/// Waits until `skein verify`, which `verify` runs, can compare all servers, and asserts that it finds them equal; answers what it says.
#[track_caller]
pub fn wait_verified(evidence: impl Fn() -> String, verify: impl Fn() -> Output) -> String {
    let compared = || {
        let output = verify();
        // A replica cannot be asked now.
        (output.status.code() != Some(2)).then_some(output)
    };
    let evidence_then = || {
        let output = verify();
        let said = [output.stdout, output.stderr].concat();
        format!("{}\n{}", String::from_utf8_lossy(&said), evidence())
    };
    let output = wait_for_or("a comparison of all servers", evidence_then, compared);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "{said}\n{}", evidence());
    said
}

/// Waits like [`wait_for`], and shows `evidence` on failure.
#[track_caller]
pub fn wait_for_or<T>(
    what: &str,
    evidence: impl Fn() -> String,
    mut probe: impl FnMut() -> Option<T>,
) -> T {
    let limit = std::time::Instant::now() + PATIENCE;
    loop {
        if let Some(found) = probe() {
            return found;
        }
        if std::time::Instant::now() > limit {
            panic!("waited for {PATIENCE:?}: {what}\n{}", evidence());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
