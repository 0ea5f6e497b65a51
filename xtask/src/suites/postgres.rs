//! PostgreSQL's regression tests (`src/test/regress`), driven by the installed package's `pg_regress`.
//!
//! The tests are from the source of the installed version; their library `regress.so` is built with that version's headers. The server refuses root, so
//! under root the package's user runs it, and the tests. It runs as `pg_regress` starts one of its own (`-F`: its files need not survive the machine).
//!
//! Every other run has a worker for each query that may have one (`force_parallel_mode=regress`: the results are the same). After each run [`CROWD`]
//! connections have workers build indexes and add up tables, at once.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, User, geteuid};

use super::command::{Said, bounded, output};
use super::outcome::Tests;
use super::source::Source;
use crate::interrupt::Interrupt;
use skein_testkit::{Failure, Outcome};

/// Connections that are busy at once after the tests.
pub const CROWD: u32 = 20;

const PACKAGE: &str = "postgresql-15";
const HEADERS: &str = "postgresql-server-dev-15";
const PROGRAMS: &str = "/usr/lib/postgresql/15/bin";
const LIBRARIES: &str = "/usr/lib/postgresql/15/lib";
const USER: &str = "postgres";
const IDS: [&str; 4] =
    ["/usr/bin/setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"];

/// Tests that pass against the server alone only: the client reads a file that the server has written (`lo_export`), which is in the server's private layer.
pub const APART: [&str; 1] = ["largeobject"];

/// Libraries of the package that tests load beside their own.
const BESIDE: [&str; 2] = ["autoinc.so", "refint.so"];

/// Beside the defaults: tests prepare transactions, and twenty connections have two workers each.
const SETTINGS: [&str; 3] =
    ["max_prepared_transactions=2", "max_worker_processes=64", "max_parallel_workers=48"];

/// The work of each connection of the crowd.
const CROWD_SCRIPT: &str = "\
SET min_parallel_table_scan_size = 0;
CREATE TABLE crowd_:client_id AS SELECT n FROM generate_series(1, 3000) AS n;
CREATE INDEX ON crowd_:client_id (n);
SELECT sum(n) FROM crowd_:client_id;
DROP TABLE crowd_:client_id;
";
const CROWD_TIMES: u32 = 3;

/// The longest time to prepare, compile and start, each.
const PREPARE_MAX: Duration = Duration::from_secs(120);

/// How much of unexpected output is shown.
const DIFFERENCE_LINES: usize = 200;
const DIFFERENCE_COLUMNS: usize = 160;

/// The longest time for the server to end; PostgreSQL itself kills its processes after 5 s.
const END_MAX: Duration = Duration::from_secs(10);

/// When queries have parallel workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workers {
    /// When the server expects a gain, which is its default.
    Usual,
    /// Whenever it can be.
    Always,
}

impl Workers {
    /// For people.
    pub fn about(self) -> &'static str {
        match self {
            Self::Usual => "workers as usual",
            Self::Always => "workers for every query",
        }
    }

    fn options(self) -> &'static str {
        match self {
            Self::Usual => "",
            Self::Always => "-c force_parallel_mode=regress",
        }
    }
}

/// The suite, ready to be run; removed when dropped.
pub struct Postgres {
    version: String,
    tests: PathBuf,
    library: PathBuf,
    dir: tempfile::TempDir,
}

impl Postgres {
    /// Fetches and builds it.
    pub fn make(interrupt: &Interrupt) -> Outcome<Self> {
        let failed = |error| Failure::of("cannot make a temporary directory", error);
        let dir = directory("skein-suite-source-").map_err(failed)?;
        let source = Source::new(dir.path(), interrupt)?;
        let version = source.installed(PACKAGE)?;
        let tests = source.unpack(PACKAGE, &version)?.join("src/test/regress");
        let headers =
            source.unpack_binary(HEADERS, &version)?.join("usr/include/postgresql/15/server");
        let library = dir.path().join("regress.so");
        let code = tests.join("regress.c").to_string_lossy().into_owned();
        let (headers, built) = (headers.to_string_lossy(), library.to_string_lossy());
        let words = ["gcc", "-shared", "-fPIC", "-O2", "-I", &headers, "-o", &built, &code];
        output(&words, PREPARE_MAX, interrupt)?;
        Ok(Self { version, tests, library, dir })
    }

    /// For people.
    pub fn about(&self) -> String {
        format!("regression tests of {PACKAGE} {}, in {}", self.version, self.dir.path().display())
    }

    /// A new directory for a server.
    pub fn place(&self) -> Outcome<Place<'_>> {
        let failed = |error| Failure::of("cannot make the server's directory", error);
        let dir = directory("skein-suite-").map_err(failed)?;
        let port = skein_testkit::free_port().map_err(failed)?;
        let place = Place { suite: self, port, dir };
        let libraries = place.path("lib");
        fs::create_dir(&libraries).map_err(failed)?;
        fs::copy(&self.library, libraries.join("regress.so")).map_err(failed)?;
        for name in BESIDE {
            fs::copy(Path::new(LIBRARIES).join(name), libraries.join(name)).map_err(failed)?;
        }
        for name in ["data", "out"] {
            fs::create_dir(place.path(name)).map_err(failed)?;
            if geteuid().is_root() {
                let user = User::from_name(USER).ok().flatten();
                let user =
                    user.ok_or_else(|| Failure(format!("no user {USER}: install {PACKAGE}")))?;
                let ids = (Some(user.uid.as_raw()), Some(user.gid.as_raw()));
                chown(place.path(name), ids.0, ids.1).map_err(failed)?;
            }
        }
        let data = place.text("data");
        let program = format!("{PROGRAMS}/initdb");
        let initdb = [&program, "-D", &data, "--username=postgres", "--auth=trust", "--no-sync"];
        let initdb = [&initdb[..], &["--no-locale", "--encoding=UTF8"]].concat();
        let initdb = own(&initdb);
        let initdb: Vec<&str> = initdb.iter().map(String::as_str).collect();
        output(&initdb, PREPARE_MAX, &Interrupt::default())?;
        fs::write(place.path("crowd.sql"), CROWD_SCRIPT).map_err(failed)?;
        Ok(place)
    }
}

/// A server's data, its libraries, and the directory where tests write.
pub struct Place<'a> {
    suite: &'a Postgres,
    port: u16,
    dir: tempfile::TempDir,
}

impl Place<'_> {
    /// The server's working directory.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The server's command.
    pub fn command(&self) -> Vec<String> {
        let data = self.text("data");
        let program = format!("{PROGRAMS}/postgres");
        let port = self.port.to_string();
        let mut words =
            own(&[&program, "-F", "-D", &data, "-k", &data, "-h", "127.0.0.1", "-p", &port]);
        words.extend(SETTINGS.iter().flat_map(|set| ["-c".to_owned(), (*set).to_owned()]));
        words
    }

    /// The server alone. In a namespace of its own: killed, it would leave a System V segment.
    pub fn start(&self, interrupt: &Interrupt) -> Outcome<Alone> {
        let ids: &[&str] =
            if geteuid().is_root() { &[] } else { &["--user", "--map-current-user"] };
        let log = fs::File::create(self.path("log"));
        let log = log.map_err(|error| Failure::of("cannot write the server's log", error))?;
        let child = std::process::Command::new("unshare")
            .arg("--ipc")
            .args(ids)
            .args(self.command())
            .args(["-c", "dynamic_shared_memory_type=mmap"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .map_err(|error| Failure::of("cannot run unshare", error))?;
        let alone = Alone(child);
        self.await_service(interrupt)?;
        Ok(alone)
    }

    /// Waits until it serves.
    pub fn await_service(&self, interrupt: &Interrupt) -> Outcome {
        let ready = format!("{PROGRAMS}/pg_isready");
        interrupt.wait("PostgreSQL to serve", || {
            let said = self.client(interrupt, &[&ready], PREPARE_MAX, Workers::Usual)?;
            Ok((said.code == Some(0)).then_some(()))
        })
    }

    /// All tests, once.
    pub fn regress(
        &self,
        interrupt: &Interrupt,
        workers: Workers,
        max: Duration,
    ) -> Outcome<Tests> {
        let tests = self.suite.tests.to_string_lossy().into_owned();
        let words = [
            format!("{LIBRARIES}/pgxs/src/test/regress/pg_regress"),
            format!("--bindir={PROGRAMS}"),
            format!("--dlpath={}", self.text("lib")),
            format!("--inputdir={tests}"),
            format!("--outputdir={}", self.text("out")),
            format!("--schedule={tests}/parallel_schedule"),
            format!("--max-concurrent-tests={CROWD}"),
        ];
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let start = Instant::now();
        let said = self.client(interrupt, &words, max, workers)?;
        Tests::parse(&said.text, start.elapsed().as_secs_f64())
    }

    /// The start of tests' unexpected output; the lines are cut.
    pub fn differences(&self) -> String {
        let all = fs::read(self.path("out/regression.diffs")).unwrap_or_default();
        let all = String::from_utf8_lossy(&all);
        let cut = |line: &str| line.chars().take(DIFFERENCE_COLUMNS).collect::<String>();
        let lines: Vec<String> = all.lines().take(DIFFERENCE_LINES).map(cut).collect();
        lines.join("\n")
    }

    /// Concurrent connections, each with workers; answers the seconds that they took.
    pub fn crowd(&self, interrupt: &Interrupt, max: Duration) -> Outcome<f64> {
        let words = [
            format!("{PROGRAMS}/pgbench"),
            "--no-vacuum".to_owned(),
            format!("--client={CROWD}"),
            format!("--transactions={CROWD_TIMES}"),
            format!("--file={}", self.text("crowd.sql")),
        ];
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let start = Instant::now();
        let said = self.client(interrupt, &words, max, Workers::Always)?;
        let all = format!("actually processed: {0}/{0}", CROWD * CROWD_TIMES);
        if said.code == Some(0) && said.text.contains(&all) {
            return Ok(start.elapsed().as_secs_f64());
        }
        Err(Failure::of("pgbench failed", said.text.trim()))
    }

    /// A program that connects.
    fn client(
        &self,
        interrupt: &Interrupt,
        words: &[&str],
        max: Duration,
        workers: Workers,
    ) -> Outcome<Said> {
        let mut words = own(words);
        words.extend(["--host=127.0.0.1".to_owned(), format!("--port={}", self.port)]);
        let name = words.iter().any(|word| word.ends_with("/pg_regress"));
        words.push(format!("{}=postgres", if name { "--user" } else { "--username" }));
        bounded(&words, max, interrupt, |command| {
            command.current_dir(self.path("out")).env("PGOPTIONS", workers.options());
        })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_string_lossy().into_owned()
    }
}

/// A server that runs alone; ended when dropped.
pub struct Alone(std::process::Child);

impl Drop for Alone {
    fn drop(&mut self) {
        // Ends it with all its children at once.
        let _ = kill(Pid::from_raw(self.0.id().cast_signed()), Signal::SIGQUIT);
        let start = Instant::now();
        while matches!(self.0.try_wait(), Ok(None)) {
            if start.elapsed() > END_MAX {
                let _ = self.0.kill();
                let _ = self.0.wait();
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// A directory that another user can read.
fn directory(prefix: &str) -> std::io::Result<tempfile::TempDir> {
    let all = fs::Permissions::from_mode(0o755);
    tempfile::Builder::new().prefix(prefix).permissions(all).tempdir()
}

/// A command of the server's own user.
fn own(words: &[&str]) -> Vec<String> {
    let ids = if geteuid().is_root() { &IDS[..] } else { &[] };
    ids.iter().chain(words).map(|word| (*word).to_owned()).collect()
}
