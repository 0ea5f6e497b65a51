//! Defects that are put back one at a time: the simulation must find each within the number of seeds that the list states.
//!
//! The list is `crates/sim/planted.toml`. Each defect is one text of one file that becomes another, in a copy of the workspace: nothing is changed here.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use serde::Deserialize;

use skein_testkit::workspace;
use skein_testkit::{Failure, Outcome};

const LIST: &str = "crates/sim/planted.toml";
/// Where the copy is, below the target directory.
const COPY: &str = "planted";

/// What to do.
#[derive(clap::Args)]
pub struct Options {
    /// Only those whose name contains this
    name: Option<String>,
    /// Only those that the tests put back; of all others that they still can be
    #[arg(long, conflicts_with = "name")]
    in_tests: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    defect: Vec<Defect>,
}

/// A defect.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Defect {
    /// What it is called.
    name: String,
    /// Which promise breaks.
    what: String,
    /// Where.
    file: PathBuf,
    /// What stands there, once,
    find: String,
    /// and what is put in its place.
    put: String,
    /// It is found within so many seeds.
    seeds: u64,
    /// Put back by the tests.
    #[serde(default)]
    in_tests: bool,
}

/// Puts each back, and lets the simulation look for it.
pub fn run(options: &Options) -> Outcome {
    let root = workspace::root();
    let text = read(&root.join(LIST))?;
    let List { defect: defects } =
        toml::from_str(&text).map_err(|e| Failure(format!("{LIST}: {e}")))?;
    for defect in &defects {
        defect.apply(&read(&root.join(&defect.file))?)?;
    }
    let wanted = |defect: &&Defect| match &options.name {
        Some(name) => defect.name.contains(name),
        None => !options.in_tests || defect.in_tests,
    };
    let chosen: Vec<&Defect> = defects.iter().filter(wanted).collect();
    if chosen.is_empty() {
        return Err(Failure(format!("{LIST} has no such defect")));
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), PathBuf::from);
    let copy = Copy { tree: target.join(COPY).join("tree"), target: target.join(COPY) };
    copy.fill(root)?;
    copy.build()?;
    if let Some(seed) = copy.simulate(200)? {
        return Err(Failure(format!("seed {seed} fails without any defect")));
    }
    let mut missed = 0;
    for defect in &chosen {
        let since = Instant::now();
        let file = copy.tree.join(&defect.file);
        let before = read(&file)?;
        write(&file, &defect.apply(&before)?)?;
        let found = copy.build().and_then(|()| copy.simulate(defect.seeds));
        write(&file, &before)?;
        let seconds = since.elapsed().as_secs();
        match found? {
            Some(seed) => println!(
                "{}: found by seed {seed} of {} ({seconds} s): {}",
                defect.name, defect.seeds, defect.what
            ),
            None => {
                missed += 1;
                println!("{}: NOT found in {} seeds: {}", defect.name, defect.seeds, defect.what);
            }
        }
    }
    if missed > 0 {
        return Err(Failure(format!("{missed} of {} defects were not found", chosen.len())));
    }
    println!("planted: {} of {} defects found", chosen.len(), chosen.len());
    Ok(())
}

impl Defect {
    /// The text with the defect in it.
    fn apply(&self, text: &str) -> Result<String, Failure> {
        match text.matches(&self.find).count() {
            1 => Ok(text.replacen(&self.find, &self.put, 1)),
            count => Err(Failure(format!(
                "{LIST}: {}: what it looks for stands {count} times in {}, not once",
                self.name,
                self.file.display()
            ))),
        }
    }
}

/// A copy of the workspace with a target directory of its own.
struct Copy {
    tree: PathBuf,
    target: PathBuf,
}

impl Copy {
    /// Brings it up to date; files that are the same keep their time, so that cargo builds only what changed.
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
            if fs::read(&to).is_ok_and(|there| there == bytes) {
                continue;
            }
            if let Some(dir) = to.parent() {
                fs::create_dir_all(dir).map_err(|e| failed("make", dir, &e))?;
            }
            fs::write(&to, bytes).map_err(|e| failed("write", &to, &e))?;
        }
        Ok(())
    }

    fn cargo(&self) -> Command {
        let mut cargo = Command::new("cargo");
        cargo
            .args(["test", "--quiet", "--locked", "--profile", "checked", "-p", "skein-sim"])
            .args(["--test", "clusters"])
            .current_dir(&self.tree)
            .env("CARGO_TARGET_DIR", &self.target);
        cargo
    }

    fn build(&self) -> Outcome {
        let built =
            self.cargo().arg("--no-run").output().map_err(|e| Failure(format!("cargo: {e}")))?;
        if built.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&built.stderr);
        Err(Failure(format!("the copy cannot be built:\n{said}")))
    }

    /// The first seed that fails of so many, if one does.
    fn simulate(&self, seeds: u64) -> Result<Option<u64>, Failure> {
        let ran = self
            .cargo()
            .args(["--", "no_seed_breaks_a_promise", "--exact", "--nocapture"])
            .env("SKEIN_SIM_SEEDS", seeds.to_string())
            .env("SKEIN_SIM_FIRST", "1")
            .output()
            .map_err(|e| Failure(format!("cargo: {e}")))?;
        let said = String::from_utf8_lossy(&ran.stdout);
        let seed = said.lines().find_map(|line| {
            let number = line.strip_prefix("seed ")?.split(' ').next()?;
            number.parse().ok()
        });
        match (ran.status.success(), seed) {
            (true, _) => Ok(None),
            (false, Some(seed)) => Ok(Some(seed)),
            (false, None) => Err(Failure(format!("the simulation did not run:\n{said}"))),
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
