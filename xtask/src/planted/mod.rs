//! Defects that are put back one at a time: each must be found by the finder that the list names: the simulation within a number of seeds, a test, or a guest.
//!
//! The lists are `xtask/planted/*.toml`. Each defect replaces one text of one file by another, in a copy of the workspace: nothing is changed here.
//! The copy shares the target directory, so that only the crates of the workspace are built again.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use skein_testkit::workspace;
use skein_testkit::{Failure, Outcome};

pub mod list;

use list::{Defect, Finder, LISTS};

/// The copy's path, below the target directory.
const COPY: &str = "planted";
/// The simulation runs this many seeds without any defect first.
const SOUND_SEEDS: u64 = 200;
/// The most memory of a finder that runs below cargo: 16 GiB of addresses.
const MEMORY_BYTES: u64 = 16 << 30;

/// Options.
#[derive(clap::Args)]
pub struct Options {
    /// Only those whose name contains one of these
    names: Vec<String>,
    /// Only those that the tests put back; check of the others that their text still exists
    #[arg(long, conflicts_with = "names")]
    in_tests: bool,
}

/// Puts each back, and runs its finder.
pub fn run(options: &Options) -> Outcome {
    let root = workspace::root();
    let mut defects = Vec::new();
    for path in workspace::files(root)?.into_iter().filter(|path| list::is_list(path)) {
        let parsed = list::parse(&read(&root.join(&path))?);
        defects.extend(parsed.map_err(|e| Failure(format!("{}: {e}", path.display())))?);
    }
    for defect in &defects {
        defect.apply(&read(&root.join(&defect.file))?).map_err(Failure)?;
    }
    let wanted = |defect: &&Defect| match &options.names[..] {
        [] => !options.in_tests || defect.in_tests,
        names => names.iter().any(|name| defect.name.contains(name)),
    };
    let chosen: Vec<&Defect> = defects.iter().filter(wanted).collect();
    if chosen.is_empty() {
        return Err(Failure(format!("{LISTS} has no such defect")));
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), PathBuf::from);
    let copy = Copy { tree: target.join(COPY).join("tree"), target };
    copy.fill(root)?;
    // A finder that fails anyway finds nothing.
    let mut sound = BTreeSet::new();
    for defect in &chosen {
        let (name, finder) = match &defect.finder {
            Finder::Seeds(_) => ("the simulation".to_owned(), &Finder::Seeds(SOUND_SEEDS)),
            other => (other.to_string(), other),
        };
        if sound.insert(name) {
            copy.build(finder)?;
            if let Some(how) = copy.find(finder)? {
                return Err(Failure(format!("{finder} fails without any defect: {how}")));
            }
        }
    }
    let mut missed = 0;
    for defect in &chosen {
        let since = Instant::now();
        let file = copy.tree.join(&defect.file);
        let before = read(&file)?;
        write(&file, &defect.apply(&before).map_err(Failure)?)?;
        let found = copy.build(&defect.finder).and_then(|()| copy.find(&defect.finder));
        write(&file, &before)?;
        let seconds = since.elapsed().as_secs();
        let Defect { name, what, finder, .. } = defect;
        match found {
            Ok(Some(how)) => println!("{name}: found by {finder}: {how} ({seconds} s): {what}"),
            Ok(None) => {
                missed += 1;
                println!("{name}: NOT found by {finder} ({seconds} s): {what}");
            }
            // The others may be well.
            Err(Failure(why)) => {
                missed += 1;
                println!("{name}: NOT put back: {why}");
            }
        }
    }
    if missed > 0 {
        return Err(Failure(format!("{missed} of {} defects were not found", chosen.len())));
    }
    println!("planted: {} of {} defects found", chosen.len(), chosen.len());
    Ok(())
}

/// A copy of the workspace with a target directory of its own.
struct Copy {
    tree: PathBuf,
    target: PathBuf,
}

impl Copy {
    /// Updates the copy; equal files keep their time, so that cargo builds only the changes.
    fn fill(&self, root: &Path) -> Outcome {
        let listed = Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(root)
            .output()
            .map_err(|e| Failure(format!("git ls-files: {e}")))?;
        let names = String::from_utf8_lossy(&listed.stdout).into_owned();
        for name in names.split('\0').filter(|name| !name.is_empty()) {
            let (from, to) = (root.join(name), self.tree.join(name));
            let Ok(bytes) = fs::read(&from) else { continue };
            // Some are programs.
            let mode = |path: &Path| fs::metadata(path).map(|meta| meta.permissions()).ok();
            if fs::read(&to).is_ok_and(|there| there == bytes) && mode(&to) == mode(&from) {
                continue;
            }
            if let Some(dir) = to.parent() {
                fs::create_dir_all(dir).map_err(|e| failed("make", dir, &e))?;
            }
            fs::copy(&from, &to).map_err(|e| failed("write", &to, &e))?;
        }
        Ok(())
    }

    /// A command of cargo that builds what this finder needs, or builds and runs it.
    fn cargo(&self, finder: &Finder) -> Command {
        // A defect may have no end.
        let mut cargo = Command::new("prlimit");
        cargo.arg(format!("--as={MEMORY_BYTES}")).arg("cargo");
        cargo.current_dir(&self.tree).env("CARGO_INCREMENTAL", "1");
        let quiet = ["--quiet", "--locked", "--profile", "checked"];
        match finder {
            Finder::Seeds(_) => {
                cargo.arg("test").args(quiet).args(["-p", "skein-sim", "--test", "clusters"]);
            }
            Finder::Test(arguments) => {
                cargo.arg("test").args(quiet).args(arguments);
            }
            Finder::Guest(_) => {
                cargo.arg("build").args(quiet).args(["-p", "skein-runtime", "-p", "skein-harness"]);
            }
        }
        // The tests would take another build's.
        cargo.env_remove("SKEIN_BIN").env_remove("SKEIN_RUNTIME");
        cargo.env("CARGO_TARGET_DIR", self.target_of(finder));
        cargo
    }

    /// The command, the runtime and the guests have the same names with and without a defect.
    fn target_of(&self, finder: &Finder) -> PathBuf {
        match finder {
            Finder::Seeds(_) => self.target.clone(),
            Finder::Test(arguments) if !arguments.contains(&"skein-cli".to_owned()) => {
                self.target.clone()
            }
            Finder::Guest(_) | Finder::Test(_) => self.target.join(COPY),
        }
    }

    fn build(&self, finder: &Finder) -> Outcome {
        let mut cargo = self.cargo(finder);
        if !matches!(finder, Finder::Guest(_)) {
            cargo.arg("--no-run");
        }
        let built = cargo.output().map_err(|e| Failure(format!("cargo: {e}")))?;
        if built.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&built.stderr);
        Err(Failure(format!("the copy cannot be built:\n{said}")))
    }

    /// The finder's evidence, if it found something.
    fn find(&self, finder: &Finder) -> Result<Option<String>, Failure> {
        let mut command = self.cargo(finder);
        match finder {
            Finder::Seeds(seeds) => {
                command
                    .args(["--", "no_seed_breaks_a_promise", "--exact", "--nocapture"])
                    .env("SKEIN_SIM_SEEDS", seeds.to_string())
                    .env("SKEIN_SIM_FIRST", "1");
            }
            Finder::Test(_) => {}
            Finder::Guest(name) => {
                let built = self.target_of(finder).join("checked");
                command = Command::new(built.join("skein-harness"));
                command.arg(name).env("SKEIN_RUNTIME", built.join("libskein.so"));
                command.current_dir(&self.tree);
            }
        }
        let ran = command.output().map_err(|e| Failure(format!("{command:?}: {e}")))?;
        let said = String::from_utf8_lossy(&ran.stdout);
        // A name that fits no test finds nothing, and fails nothing.
        let results = said.lines().filter_map(|line| line.strip_prefix("test result: ok. "));
        let ran_none = results.into_iter().all(|counts| counts.starts_with("0 passed"));
        let first = |start: &str| said.lines().find(|line| line.starts_with(start));
        match (ran.status.success(), finder) {
            (true, Finder::Test(_)) if ran_none => {
                Err(Failure(format!("{finder}: there is no such test")))
            }
            (true, _) => Ok(None),
            (false, Finder::Seeds(_)) => match first("seed ") {
                Some(line) => Ok(Some(line.to_owned())),
                None => Err(Failure(format!("the simulation did not run:\n{said}"))),
            },
            (false, Finder::Test(_) | Finder::Guest(_)) => {
                let errors = String::from_utf8_lossy(&ran.stderr);
                let last =
                    |said: &str| said.lines().rfind(|line| !line.is_empty()).map(str::to_owned);
                Ok(last(&errors).or_else(|| last(&said)).or(Some("it fails".to_owned())))
            }
        }
    }
}

fn failed(what: &str, path: &Path, error: &std::io::Error) -> Failure {
    Failure(format!("cannot {what} {}: {error}", path.display()))
}

fn read(path: &Path) -> Result<String, Failure> {
    fs::read_to_string(path).map_err(|e| failed("read", path, &e))
}

fn write(path: &Path, text: &str) -> Outcome {
    fs::write(path, text).map_err(|e| failed("write", path, &e))
}
