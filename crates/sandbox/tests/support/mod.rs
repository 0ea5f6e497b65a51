//! Shared by the supervisor's tests: a directory that any user may read, tiny C programs, launching, and running a test
//! again as an ordinary user.
#![allow(dead_code)] // Each test binary uses a part.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use skein_arena::layout::ARENA_FD;
use skein_sandbox::{Exit, Isolation, LaunchSpec, Limits, Search, ServerProcess, inspect, launch};
use tempfile::TempDir;

/// An id that no file of the host belongs to.
pub const USER: u32 = 65_533;

/// Set in a test binary that runs as [`USER`].
const AS_USER: &str = "SKEIN_TEST_AS_USER";

/// A directory for one test, which everyone may read and enter.
pub fn workspace() -> TempDir {
    let dir = tempfile::Builder::new().prefix("skein-sup").tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    dir
}

/// Compiles a C program (`flags` come last), and gives its path.
pub fn compile(dir: &Path, name: &str, source: &str, flags: &[&str]) -> PathBuf {
    let (file, program) = (dir.join(format!("{name}.c")), dir.join(name));
    fs::write(&file, source).unwrap();
    let status = Command::new("cc").arg(&file).arg("-o").arg(&program).args(flags).status();
    assert!(status.unwrap().success(), "cc {name}");
    program
}

/// Copies a program in a process of its own: a launch in another thread could fork while this one had the file
/// open for writing, and the kernel would refuse to execute it as long ("text file busy").
pub fn copy_program(from: &Path, to: &Path, mode: u32) {
    let status = Command::new("cp").arg("--").arg(from).arg(to).status().unwrap();
    assert!(status.success(), "cp {}", to.display());
    fs::set_permissions(to, fs::Permissions::from_mode(mode)).unwrap();
}

/// The end of a program and its output on stdout and stderr.
#[derive(Debug, PartialEq, Eq)]
pub struct Ran {
    pub exit: Exit,
    pub stdout: String,
    pub stderr: String,
}

/// A launch with everything at its usual value.
pub struct Setup {
    pub program: PathBuf,
    pub argv: Vec<OsString>,
    pub cwd: PathBuf,
    pub layer_bytes: u64,
    pub layer_dir: Option<PathBuf>,
    pub limits: Limits,
    pub isolation: Isolation,
    /// What takes the place of the host's files.
    pub pins: skein_sandbox::Pins,
    /// The server's descriptor at the arena's number.
    pub arena: Option<fs::File>,
    /// The image that it continues from.
    pub restore: Option<fs::File>,
    dir: TempDir,
}

impl Setup {
    pub fn new(program: &Path, args: &[&str]) -> Self {
        let argv = [program.as_os_str()].into_iter().chain(args.iter().map(OsStr::new));
        Self {
            program: program.to_owned(),
            argv: argv.map(OsStr::to_owned).collect(),
            cwd: PathBuf::from("/"),
            layer_bytes: 64 << 20,
            layer_dir: None,
            limits: Limits::default(),
            isolation: Isolation::Full,
            pins: skein_sandbox::Pins::default(),
            arena: None,
            restore: None,
            dir: workspace(),
        }
    }

    pub fn out(&self) -> PathBuf {
        self.dir.path().join("out")
    }

    pub fn try_start(&self) -> Result<ServerProcess, skein_sandbox::LaunchError> {
        let (out, err) = (self.out(), self.dir.path().join("err"));
        let [out, err] = [out, err].map(|path| fs::File::create(path).unwrap());
        launch(&LaunchSpec {
            program: &self.program,
            argv: self.argv.clone(),
            env: vec![("PATH".into(), "/usr/bin:/bin".into()), ("ONE".into(), "1=2".into())],
            cwd: &self.cwd,
            inherit: self.arena.iter().map(|file| (file.as_fd(), ARENA_FD)).collect(),
            stdout: out.as_fd(),
            stderr: err.as_fd(),
            hostname: "flock",
            layer_bytes: self.layer_bytes,
            layer_dir: self.layer_dir.clone(),
            writable: Vec::new(),
            pins: self.pins.clone(),
            limits: self.limits,
            isolation: self.isolation,
            restore: self.restore.as_ref().map(AsFd::as_fd),
            random: *b"0123456789abcdef",
        })
    }

    pub fn start(&self) -> ServerProcess {
        self.try_start().unwrap_or_else(|error| panic!("{error}"))
    }

    pub fn run(&self) -> Ran {
        let exit = self.start().wait().unwrap();
        self.ran(exit)
    }

    pub fn ran(&self, exit: Exit) -> Ran {
        let read = |name| fs::read_to_string(self.dir.path().join(name)).unwrap();
        Ran { exit, stdout: read("out"), stderr: read("err") }
    }
}

/// Runs a shell command in the sandbox; panics unless it exits with 0. Gives its stdout.
pub fn shell(script: &str) -> String {
    shell_in(Path::new("/"), script)
}

/// As [`shell`], in a directory.
pub fn shell_in(cwd: &Path, script: &str) -> String {
    let mut setup = Setup::new(Path::new("/bin/sh"), &["-c", script]);
    setup.cwd = cwd.to_owned();
    let ran = setup.run();
    assert_eq!((ran.exit, ran.stderr.as_str()), (Exit::Code(0), ""), "{script}: {}", ran.stdout);
    ran.stdout
}

/// Waits until `condition` holds.
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::yield_now();
    }
}

pub fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// A copy of this test binary that every user may run.
pub fn readable_copy() -> (TempDir, PathBuf) {
    let dir = workspace();
    let copy = dir.path().join("tests");
    copy_program(&std::env::current_exe().unwrap(), &copy, 0o755);
    (dir, copy)
}

/// Tells an `as_node_*` test that it is wanted, with a parameter.
pub const ROLE: &str = "SKEIN_TEST_ROLE";

/// The parameter of this `as_node_*` test, if it is wanted.
pub fn role() -> Option<String> {
    std::env::var(ROLE).ok()
}

/// The command that runs only `test` of a test binary.
pub fn node_arguments(binary: &Path, test: &str) -> Vec<String> {
    let binary = binary.to_str().unwrap();
    [binary, "--exact", test, "--nocapture", "--test-threads=1"].map(str::to_owned).into()
}

/// Starts a process that runs only `test` of this binary.
pub fn start_node(test: &str, role: &str) -> Child {
    let arguments = node_arguments(&std::env::current_exe().unwrap(), test);
    Command::new(&arguments[0])
        .args(&arguments[1..])
        .env(ROLE, role)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Runs all tests of this binary again as an ordinary user. Does nothing in a binary that already does.
pub fn rerun_as_user() {
    if std::env::var_os(AS_USER).is_some() || !is_root() {
        return;
    }
    let (_dir, copy) = readable_copy();
    let id = USER.to_string();
    let output = Command::new("setpriv")
        .args(["--reuid", &id, "--regid", &id, "--clear-groups", "--"])
        .arg(&copy)
        .arg("--test-threads=2")
        .env(AS_USER, "1")
        .env("TMPDIR", "/tmp")
        .current_dir("/")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(!text.contains(" 0 passed"), "{text}");
}

/// Inspects with an ordinary PATH.
pub fn look_up(
    program: &OsStr,
    cwd: &Path,
) -> Result<skein_sandbox::Program, skein_sandbox::ProgramError> {
    let path = OsStr::new("/usr/local/bin:/usr/bin:/bin");
    inspect(program, &Search { cwd, path, env: &[] })
}
