//! The number of instructions of a round of the hot path, against the stored number in `bench/counts.json`.
//!
//! Times on a busy machine say little; instructions are always the same. Each round is real code of a crate, driven by an example of that
//! crate (`*_rounds NAME N`) under callgrind with N and with 2N rounds: the difference is N rounds alone, without start and end. The kernel's work
//! is not in it, and no round reads a clock.
//!
//! The runtime itself cannot run under valgrind: a server's calls in it are counted by single steps ([`hooks`]).

mod hooks;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use skein_testkit::workspace;
use skein_testkit::{Failure, Outcome};

/// The counted rounds: a name, the crate with the example, its argument, N.
const ROUNDS: &[(&str, &str, &str, u32)] = &[
    ("a log append", "skein-log", "append", 200),
    ("a gateway turn", "skein-node", "gateway", 2_000),
    ("an admission", "skein-node", "admission", 4_000),
    ("a schedule's turn", "skein-node", "schedule", 4_000),
];

const STORED: &str = "bench/counts.json";

/// The allowed deviation of a round's count from the stored one [%].
const TOLERANCE_PERCENT: f64 = 5.0;

/// The longest run of an example.
const RUN_MAX: Duration = Duration::from_secs(60);

/// Options.
#[derive(clap::Args)]
pub struct Options {
    /// Store the new counts as the expected ones
    #[arg(long)]
    accept: bool,

    /// Count only a server's calls, in this built libskein.so, with the harness beside it; print the counts without comparing
    #[arg(long, value_name = "FILE")]
    runtime: Option<PathBuf>,
}

/// The stored counts.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Counts {
    /// The compiler: another one makes other instructions.
    compiler: String,
    /// The allowed deviation of a count [%].
    tolerance_percent: f64,
    /// Instructions a round, by name.
    instructions: BTreeMap<String, f64>,
}

/// Counts, and compares or stores.
pub fn run(options: &Options) -> Outcome {
    if let Some(runtime) = &options.runtime {
        for (name, each) in hooks::count(&runtime.with_file_name("skein-harness"), runtime)? {
            println!("hook: {name:<24} {each:>6}");
        }
        return Ok(());
    }
    let examples = build()?;
    let mut found = Counts {
        compiler: compiler()?,
        tolerance_percent: TOLERANCE_PERCENT,
        instructions: BTreeMap::new(),
    };
    for (name, package, argument, rounds) in ROUNDS {
        let program = examples
            .get(*package)
            .ok_or_else(|| Failure(format!("cargo built no example of {package}")))?;
        let once = count(program, argument, *rounds)?;
        let twice = count(program, argument, 2 * rounds)?;
        let each = twice.saturating_sub(once) as f64 / f64::from(*rounds);
        found.instructions.insert((*name).to_owned(), each.round());
    }
    let (harness, runtime) = build_runtime()?;
    for (name, each) in hooks::count(&harness, &runtime)? {
        found.instructions.insert(format!("hook: {name}"), each);
    }
    let path = workspace::root().join(STORED);
    if options.accept {
        let mut text = serde_json::to_string_pretty(&found)
            .map_err(|error| Failure::of("cannot write counts", error))?;
        text.push('\n');
        std::fs::write(&path, text).map_err(|error| Failure::of(path.display(), error))?;
        println!("{}", table(&found, &found));
        return Ok(());
    }
    let text = std::fs::read(&path).map_err(|error| Failure::of(path.display(), error))?;
    let stored: Counts =
        serde_json::from_slice(&text).map_err(|error| Failure::of(path.display(), error))?;
    println!("{}", table(&stored, &found));
    judge(&stored, &found)
}

/// A failure when a count is off by more than the tolerance, or exists on one side only.
fn judge(stored: &Counts, found: &Counts) -> Outcome {
    let mut off: Vec<String> = found
        .instructions
        .iter()
        .filter_map(|(name, now)| match stored.instructions.get(name) {
            None => Some(format!("{name} is new")),
            Some(before) => {
                let percent = (now - before) / before * 100.0;
                (percent.abs() > stored.tolerance_percent)
                    .then(|| format!("{name} {percent:+.1} %"))
            }
        })
        .collect();
    let gone = stored.instructions.keys().filter(|name| !found.instructions.contains_key(*name));
    off.extend(gone.map(|name| format!("{name} is gone")));
    if off.is_empty() {
        return Ok(());
    }
    let other = if stored.compiler == found.compiler {
        String::new()
    } else {
        format!(" (stored with {}, counted with {})", stored.compiler, found.compiler)
    };
    Err(Failure(format!(
        "instructions: {}: more than {} % off{other}; if that is meant, store it: cargo xtask counts --accept",
        off.join(", "),
        stored.tolerance_percent
    )))
}

fn table(stored: &Counts, found: &Counts) -> String {
    let mut text = format!("{:<24} {:>12} {:>12}\n", "instructions of", "stored", "now");
    for (name, now) in &found.instructions {
        let before = stored.instructions.get(name).map_or("-".to_owned(), f64::to_string);
        text.push_str(&format!("{name:<24} {before:>12} {now:>12}\n"));
    }
    text
}

/// Builds the examples; answers each package's path.
fn build() -> Outcome<BTreeMap<String, PathBuf>> {
    let packages: BTreeSet<&str> = ROUNDS.iter().map(|(_, package, ..)| *package).collect();
    let mut words = vec!["--release", "--example", "*_rounds"];
    words.extend(packages.iter().flat_map(|package| ["-p", package]));
    Ok(cargo_build(&words)?.lines().filter_map(artifact).collect())
}

/// Builds the harness and the runtime, the latter as users have it; answers their paths.
fn build_runtime() -> Outcome<(PathBuf, PathBuf)> {
    // Not counted itself.
    let harness = cargo_build(&["--profile", "checked", "-p", "skein-harness"])?;
    let (_, harness) = harness
        .lines()
        .filter_map(artifact)
        .find(|(package, _)| package == "skein-harness")
        .ok_or_else(|| Failure("cargo built no skein-harness".to_owned()))?;
    let runtime = cargo_build(&["--release", "-p", "skein-cli", "-p", "skein-runtime"])?;
    let runtime = runtime
        .lines()
        .find_map(library)
        .ok_or_else(|| Failure("cargo built no libskein.so".to_owned()))?;
    Ok((harness, runtime))
}

/// Builds; cargo's messages, a line each.
fn cargo_build(words: &[&str]) -> Outcome<String> {
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .current_dir(workspace::root())
        .args(["build", "--locked", "--quiet"])
        .args(["--message-format", "json-render-diagnostics"])
        .args(words)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| Failure::of("cannot run cargo", error))?;
    if !output.status.success() {
        return Err(Failure("what is counted does not build".to_owned()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The runtime, from a line of cargo's messages that reports it built.
fn library(line: &str) -> Option<PathBuf> {
    let message: serde_json::Value = serde_json::from_str(line).ok()?;
    let files = message.get("filenames")?.as_array()?;
    files
        .iter()
        .filter_map(|file| file.as_str())
        .find(|f| f.ends_with("/libskein.so"))
        .map(PathBuf::from)
}

/// The package and the program of a line of cargo's messages that reports a built example.
fn artifact(line: &str) -> Option<(String, PathBuf)> {
    let message: serde_json::Value = serde_json::from_str(line).ok()?;
    let program = message.get("executable")?.as_str()?;
    let manifest = Path::new(message.get("manifest_path")?.as_str()?);
    let folder = manifest.parent()?.file_name()?.to_str()?;
    Some((format!("skein-{folder}"), PathBuf::from(program)))
}

fn compiler() -> Outcome<String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc)
        .arg("--version")
        .output()
        .map_err(|error| Failure::of("cannot run rustc", error))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Instructions of one run.
fn count(program: &Path, argument: &str, rounds: u32) -> Outcome<u64> {
    let mut child = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .args([argument, &rounds.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| {
            Failure::of("cannot run valgrind (scripts/setup.sh test installs it)", error)
        })?;
    let start = Instant::now();
    while child.try_wait().map_err(|error| Failure::of("valgrind", error))?.is_none() {
        if start.elapsed() > RUN_MAX {
            let _ = child.kill();
            let _ = child.wait();
            return Err(Failure(format!("rounds {argument} {rounds} had not ended after 60 s")));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let output = child.wait_with_output().map_err(|error| Failure::of("valgrind", error))?;
    let text = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        let said = text.lines().last().unwrap_or_default();
        return Err(Failure(format!("rounds {argument} {rounds}: {}: {said}", output.status)));
    }
    collected(&text).ok_or_else(|| Failure(format!("valgrind said something else: {text}")))
}

/// `==7== Collected : 123`.
fn collected(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.split_once("Collected : ")?.1.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(pairs: &[(&str, f64)]) -> Counts {
        let instructions = pairs.iter().map(|(name, count)| ((*name).to_owned(), *count));
        Counts {
            compiler: "rustc 1".to_owned(),
            tolerance_percent: 5.0,
            instructions: instructions.collect(),
        }
    }

    #[test]
    fn what_is_off_is_named() {
        let stored = counts(&[("append", 100.0), ("turn", 1_000.0)]);
        assert!(judge(&stored, &counts(&[("append", 104.0), ("turn", 960.0)])).is_ok());
        let error = judge(&stored, &counts(&[("append", 110.0), ("turn", 940.0)]));
        let said = error.expect_err("off").to_string();
        assert!(said.contains("append +10.0 %") && said.contains("turn -6.0 %"), "{said}");
        let error = judge(&stored, &counts(&[("append", 100.0), ("other", 1.0)]));
        let said = error.expect_err("others").to_string();
        assert!(said.contains("other is new") && said.contains("turn is gone"), "{said}");
    }

    #[test]
    fn what_the_tools_print_is_read() {
        assert_eq!(collected("==7== Events    : Ir\n==7== Collected : 1234\n"), Some(1_234));
        let line = r#"{"reason":"compiler-artifact","manifest_path":"/x/crates/log/Cargo.toml","executable":"/x/t/rounds"}"#;
        assert_eq!(artifact(line), Some(("skein-log".to_owned(), "/x/t/rounds".into())));
        assert_eq!(artifact(r#"{"reason":"build-finished","success":true}"#), None);
        let line = r#"{"reason":"compiler-artifact","executable":null,"filenames":["/x/t/libskein.rlib","/x/t/libskein.so"]}"#;
        assert_eq!(library(line), Some("/x/t/libskein.so".into()));
        assert_eq!(artifact(line), None);
    }
}
