//! A place of its own for each test: data, runtime directory and programs below one temporary directory, the real `skein`
//! binary, and a guard that ends the remains of a failed test.

#![allow(dead_code)] // Each test binary uses a part of this.

pub mod bank;
pub mod binary;
pub mod cluster;
pub mod faults;
pub mod gerbera;
pub mod hosts;
pub mod http;
pub mod imaged;
pub mod limits;
pub mod load;
pub mod machine;
pub mod mariadb_server;
pub mod mysql;
pub mod nodes;
pub mod own;
pub mod planted;
pub mod postgres;
pub mod postgres_server;
pub mod preloaded;
pub mod real;
pub mod story;
pub mod text;
pub mod web;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

pub use skein_testkit::client::{connect_port as connect, read_line};
pub use skein_testkit::resp;

/// The longest time for anything on a slow machine that is busy with other tests.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A test's own directories.
pub struct Place {
    /// All of it; removed at the end.
    pub dir: tempfile::TempDir,
}

impl Place {
    /// Makes one.
    pub fn new() -> Self {
        let dir = tempfile::Builder::new().prefix("skein-").tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(dir.path().join("run")).unwrap();
        Self { dir }
    }

    /// A path in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The last lines of these files, for messages.
    pub fn last_lines(&self, files: impl IntoIterator<Item = String>) -> String {
        let mut text = String::new();
        for file in files {
            let all = fs::read_to_string(self.path(&file)).unwrap_or_default();
            let tail: Vec<&str> = all.lines().rev().take(15).collect();
            text.push_str(&format!("--- {file}\n"));
            tail.iter().rev().for_each(|line| text.push_str(&format!("{line}\n")));
        }
        text
    }

    /// Writes a file.
    pub fn file(&self, name: &str, text: &str, mode: u32) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    /// The command (`SKEIN_BIN`, or the one built with the tests), ready to get arguments.
    pub fn skein(&self) -> Command {
        let built = || env!("CARGO_BIN_EXE_skein").into();
        self.skein_of(Path::new(&std::env::var_os("SKEIN_BIN").unwrap_or_else(built)))
    }

    /// The same, of this file.
    pub fn skein_of(&self, file: &Path) -> Command {
        let mut command = Command::new(file);
        command.env("SKEIN_RUN_DIR", self.path("run")).env("XDG_STATE_HOME", self.path("state"));
        // Commands that fail before the server starts need no runtime; `skein_with_runtime` gives the real one.
        command.env("SKEIN_RUNTIME", self.path("run")).stdin(Stdio::null());
        command
    }

    /// The command with the real runtime.
    pub fn skein_with_runtime(&self) -> Command {
        let mut command = self.skein();
        command.env("SKEIN_RUNTIME", runtime());
        command
    }

    /// Runs the command to its end.
    pub fn run(&self, args: &[&str]) -> Output {
        self.skein().args(args).output().unwrap()
    }

    /// The data directory as arguments.
    pub fn data(&self) -> String {
        self.path("data").to_str().unwrap().to_string()
    }
}

/// Asserts that the command failed with this code and exactly one line with all these words; answers the line.
#[track_caller]
pub fn assert_line(output: &Output, code: i32, words: &[&str]) -> String {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{text}");
    assert_eq!(text.lines().count(), 1, "not one line: {text}");
    assert!(text.starts_with("skein: "), "{text}");
    for word in words {
        assert!(text.contains(word), "'{word}' is not in: {text}");
    }
    text
}

/// Waits until `probe` has an answer.
#[track_caller]
pub fn wait_for<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let limit = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = probe() {
            return found;
        }
        assert!(Instant::now() < limit, "waited for {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Processes whose command line or environment contains `text`, except this one; zombies have none.
pub fn processes_naming(text: &str) -> Vec<(i32, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        let read = |file: &str| {
            let bytes = fs::read(entry.path().join(file)).unwrap_or_default();
            String::from_utf8_lossy(&bytes).replace('\0', " ")
        };
        let line = read("cmdline");
        if pid != std::process::id() as i32
            && (line.contains(text) || read("environ").contains(text))
        {
            found.push((pid, line));
        }
    }
    found
}

/// The runtime library: `SKEIN_RUNTIME`, or built with the same profile as the command.
pub fn runtime() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        if let Some(path) = std::env::var_os("SKEIN_RUNTIME") {
            return path.into();
        }
        let profile = Path::new(env!("CARGO_BIN_EXE_skein")).parent().unwrap();
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "-p", "skein-runtime"]);
        match profile.file_name().unwrap().to_str().unwrap() {
            "debug" => {}
            name => drop(cargo.args(["--profile", name])),
        }
        let status = cargo.env("CARGO_TARGET_DIR", profile.parent().unwrap()).status().unwrap();
        assert!(status.success(), "cargo build -p skein-runtime");
        profile.join("libskein.so")
    })
}

/// Compiles a C program of `guests/servers`.
pub fn guest_server(place: &Place, name: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../guests");
    let out = place.path(name);
    let status = Command::new("cc")
        .args(["-O2", "-pthread", "-I"])
        .arg(&root)
        .arg("-o")
        .arg(&out)
        .arg(root.join(format!("servers/{name}.c")))
        .status()
        .unwrap();
    assert!(status.success(), "cc {name}");
    out
}
