//! Clusters of real servers from Debian, and the parts that their tests share.

use std::path::Path;
use std::time::{Duration, Instant};

use super::cluster::{Cluster, free_port};
use super::{PATIENCE, Place};
use nix::sys::signal::Signal;
pub use skein_testkit::Random;

/// How long a client waits for an answer.
pub const ANSWER: Duration = Duration::from_secs(30);

/// A cluster of a real server.
pub struct Real {
    /// The cluster.
    pub cluster: Cluster,
    options: Vec<String>,
    server: Vec<String>,
}

impl Real {
    /// `skein run OPTIONS -- PROGRAM FLAG PORT ARGS`, ready.
    #[track_caller]
    pub fn start(options: &[&str], program: &str, flag: &str, args: &[&str]) -> Self {
        let port = free_port();
        let mut server = vec![format!("/usr/bin/{program}"), flag.to_string(), port.to_string()];
        server.extend(args.iter().map(ToString::to_string));
        Self::serve(Place::new(), port, options, server)
    }

    /// `skein run OPTIONS -- SERVER`, ready, in a place with its configuration and data.
    #[track_caller]
    pub fn serve(place: Place, port: u16, options: &[&str], server: Vec<String>) -> Self {
        installed(&server[0]);
        let options: Vec<String> = options.iter().map(ToString::to_string).collect();
        let cluster = start(place, port, &options, &server);
        cluster.wait_ready();
        Self { cluster, options, server }
    }

    /// One that was started otherwise, and is not started again.
    pub fn around(cluster: Cluster) -> Self {
        Self { cluster, options: Vec::new(), server: Vec::new() }
    }

    /// redis-server.
    #[track_caller]
    pub fn redis(options: &[&str], args: &[&str]) -> Self {
        Self::start(options, "redis-server", "--port", args)
    }

    /// redis, whose pages nodes read and compare, as where the kernel does not tell which were written.
    #[track_caller]
    pub fn redis_with_pages_compared() -> Self {
        let (place, port) = (Place::new(), free_port());
        let mut command = place.skein_with_runtime();
        command.env("SKEIN_COMPARE_PAGES", "1");
        command.args(["run", "--name", "t", "--data", &place.data(), "--"]);
        command.args(["/usr/bin/redis-server", "--port", &port.to_string(), "--save", ""]);
        let real = Self::around(Cluster::spawn(place, port, &mut command));
        real.cluster.wait_ready();
        real
    }

    /// memcached with four worker threads.
    #[track_caller]
    pub fn memcached(options: &[&str]) -> Self {
        let user = ["-u", "root", "-t", "4", "-m", "256"];
        Self::start(options, "memcached", "-p", &user)
    }

    /// The server's program and arguments.
    pub fn command(&self) -> &[String] {
        &self.server
    }

    /// Its address.
    pub fn port(&self) -> u16 {
        self.cluster.port
    }

    /// Kills `skein run`, and all nodes with it, and starts it again on the data on disk.
    pub fn kill_all_and_run_again(&mut self) {
        self.cluster.signal(Signal::SIGKILL);
        self.cluster.wait_end();
        self.run_again();
    }

    /// After its end, starts it again on the data on disk.
    pub fn run_again(&mut self) {
        let place = std::mem::replace(&mut self.cluster.place, Place::new());
        self.cluster = start(place, self.port(), &self.options, &self.server);
    }

    /// Waits until all replicas run, have executed the same entries and have the same digest; answers index and digest.
    #[track_caller]
    pub fn wait_agreed(&self) -> (u64, String) {
        let limit = Instant::now() + PATIENCE;
        loop {
            let (status, code) = self.cluster.status();
            let rows = status["replicas"].as_array().cloned().unwrap_or_default();
            let said = self.cluster.said();
            assert!(!said.contains("diverged"), "{said}\n{status:#}");
            // A replica that is down has no digest.
            let told = rows.iter().filter(|row| row["digest"] != "");
            if let Some(first) = told.clone().next() {
                for row in told {
                    let same = row["digest_index"] == first["digest_index"];
                    assert!(!same || row["digest"] == first["digest"], "they differ:\n{status:#}");
                }
                let all = ["digest_index", "applied_index"];
                if code == Some(0)
                    && first["digest_index"] == first["applied_index"]
                    && rows.iter().all(|row| all.iter().all(|name| row[name] == first[name]))
                {
                    let index = first["digest_index"].as_u64().unwrap();
                    return (index, first["digest"].as_str().unwrap().to_string());
                }
            }
            assert!(
                Instant::now() < limit,
                "waited for {PATIENCE:?}: one digest\n{said}\n{status:#}"
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Asserts that all replicas' servers have written the same files; answers the output of `skein files --json`.
    #[track_caller]
    pub fn wait_files_agreed(&self) -> serde_json::Value {
        let output = self.cluster.place.run(&["files", "--name", "t", "--json"]);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(0), "{text}\n{}", self.cluster.said());
        serde_json::from_str(&text).expect("JSON")
    }

    /// Asserts that all replicas' servers have equal memory, as soon as that is known. One replica equals itself.
    #[track_caller]
    pub fn wait_memory_agreed(&self) {
        let (status, _) = self.cluster.status();
        if status["replicas"].as_array().is_some_and(|rows| rows.len() == 1) {
            return;
        }
        self.cluster.wait_memory_agreed();
    }

    /// Waits for one digest, the same files and the same memory on all replicas, ends the cluster and asserts that nothing is left.
    #[track_caller]
    pub fn end(self) {
        self.wait_agreed();
        self.wait_files_agreed();
        self.wait_memory_agreed();
        self.stop();
    }

    /// Ends the cluster and asserts that nothing is left.
    #[track_caller]
    pub fn stop(mut self) {
        self.cluster.signal(Signal::SIGTERM);
        assert_eq!(self.cluster.wait_end(), Some(0), "{}", self.cluster.said());
        self.cluster.assert_nothing_left();
    }
}

/// Asserts that a test's program is installed.
#[track_caller]
pub fn installed(program: &str) {
    assert!(
        Path::new(program).exists(),
        "{program} is missing: this test drives it; run scripts/setup.sh test"
    );
}

fn start(place: Place, port: u16, options: &[String], server: &[String]) -> Cluster {
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let server: Vec<&str> = server.iter().map(String::as_str).collect();
    Cluster::start_in(place, port, &options, &server)
}

/// Runs `work(0)` to `work(n - 1)` at the same time; answers what they answer.
pub fn at_once<T: Send>(n: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let work = &work;
        let all: Vec<_> = (0..n).map(|i| scope.spawn(move || work(i))).collect();
        all.into_iter()
            .map(|one| one.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}
