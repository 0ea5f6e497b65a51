//! The zoo: servers from Debian in their default form, without preparation.
//!
//! Each goes through `skein check` with its usual client, and through three replicas under load while the leader's node is killed. Requirements:
//! the check says `deterministic`; nothing acknowledged is lost; all replicas have sent the same bytes, written the same files and have equal memory. One file describes one
//! server ([`species`]); a new server is a new file. `docs/servers.md` lists them.
//!
//! Invariants: it ends by itself (every wait and every client command has a deadline) and leaves no process and no file.

pub mod cage;
pub mod half;
pub mod load;
mod page;
pub mod root;
pub mod species;

use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use nix::sys::signal::{Signal, kill};

use self::cage::Cage;
use self::load::Load;
use self::species::Species;
use crate::interrupt::Interrupt;
use skein_testkit::cluster::{Cluster, Equal, Server, find_command};
use skein_testkit::workspace;
use skein_testkit::{Failure, Outcome};

pub use self::page::{PAGE, page};

/// Requests of the client command in `skein check`.
const CHECKED_REQUESTS: u64 = 20;

/// The selected servers and parts.
#[derive(clap::Args)]
pub struct Options {
    /// The servers' names; all when none is given
    names: Vec<String>,
    /// Only those that `make test` runs
    #[arg(long)]
    in_tests: bool,
    /// Only `skein check`
    #[arg(long)]
    check_only: bool,
    /// Only three replicas
    #[arg(long, conflicts_with = "check_only")]
    replicas_only: bool,
    /// Also run servers that are known not to run yet
    #[arg(long)]
    anyway: bool,
    /// In the root directory of another distribution, which is made if it does not exist (root only)
    #[arg(long, value_name = "DISTRIBUTION")]
    root: Option<String>,
    /// Directory of these root directories [default: target/roots]
    #[arg(long, value_name = "DIR", requires = "root")]
    roots: Option<PathBuf>,
    /// If that directory cannot be made (no mirror, not root), say so and run nothing
    #[arg(long, requires = "root")]
    or_skip: bool,
    /// Write docs/servers.md and run nothing
    #[arg(long)]
    page: bool,
}

/// Runs the servers one after the other; fails when one did.
pub fn run(options: &Options) -> Outcome {
    if options.page {
        let path = workspace::root().join(PAGE);
        return std::fs::write(&path, page()?).map_err(|error| Failure::of(path.display(), error));
    }
    let chosen = chosen(options)?;
    if chosen.is_empty() {
        return Ok(());
    }
    if let Some(name) = &options.root {
        let place = options.roots.clone().unwrap_or_else(root::usual_place);
        let entered = root::enter(root::named(name)?, &place, &packages(&chosen));
        match entered {
            Err(failure) if options.or_skip => {
                say(name, &format!("not run: {failure}"));
                return Ok(());
            }
            other => other?,
        }
    }
    install(&chosen)?;
    let interrupt = Interrupt::catch()?;
    let mut failed = Vec::new();
    for species in &chosen {
        let start = Instant::now();
        match visit(species, options, &interrupt) {
            Ok(()) => say(&species.name, &format!("ok, {} s", start.elapsed().as_secs())),
            Err(failure) => {
                say(&species.name, &format!("FAILED: {failure}"));
                failed.push(species.name.clone());
            }
        }
    }
    // The format of test runners.
    println!("{} passed, {} failed", chosen.len() - failed.len(), failed.len());
    if failed.is_empty() {
        return Ok(());
    }
    Err(Failure(format!("servers that failed: {}", failed.join(", "))))
}

fn chosen(options: &Options) -> Outcome<Vec<Species>> {
    let mut all = species::all()?;
    if let Some(name) = &options.root {
        root::named(name)?;
        all = all.into_iter().filter_map(|one| one.on(name, options.anyway)).collect();
    }
    let mut all = species::named(all, &options.names)?;
    all.retain(|one| !options.in_tests || one.in_tests);
    all.retain(|one| match &one.not_yet {
        Some(why) if !options.anyway => {
            say(&one.name, &format!("does not run yet: {why}"));
            false
        }
        _ => true,
    });
    Ok(all)
}

/// The packages of all of them, each once.
pub fn packages(chosen: &[Species]) -> Vec<&str> {
    let all = chosen.iter().flat_map(|one| one.packages.iter().map(String::as_str));
    all.collect::<std::collections::BTreeSet<&str>>().into_iter().collect()
}

/// Installs missing packages, without starting services.
pub fn install(chosen: &[Species]) -> Outcome {
    let status = Command::new(workspace::root().join("scripts/setup.sh"))
        .arg("packages")
        .args(packages(chosen))
        .status()
        .map_err(|error| Failure::of("cannot run scripts/setup.sh", error))?;
    if status.success() { Ok(()) } else { Err(Failure("scripts/setup.sh failed".to_owned())) }
}

fn visit(species: &Species, options: &Options, interrupt: &Interrupt) -> Outcome {
    if !options.replicas_only {
        check(&Cage::new(species)?)?;
    }
    if !options.check_only {
        replicate(&Cage::new(species)?, interrupt)?;
    }
    Ok(())
}

/// `skein check` with the usual client.
fn check(cage: &Cage<'_>) -> Outcome {
    let output = Command::new(find_command()?)
        .args(["check", "--json", "--drive", &cage.drive(CHECKED_REQUESTS)])
        .args(cage.options())
        .arg("--")
        .args(cage.command())
        .current_dir(cage.dir())
        .output()
        .map_err(|error| Failure::of("cannot run skein check", error))?;
    let findings: serde_json::Value = serde_json::from_slice(&output.stdout).map_err(|error| {
        let said = String::from_utf8_lossy(&output.stderr);
        Failure(format!("skein check: {}: {error}: {}", output.status, said.trim()))
    })?;
    if findings["verdict"] == "deterministic" {
        return Ok(());
    }
    let part = |name: &str| findings.get(name).cloned().unwrap_or_default();
    Err(Failure(format!(
        "skein check: {}: {} {}; the client said: {}; the server said: {}",
        part("verdict"),
        part("reason"),
        part("difference"),
        part("drive")["output"],
        part("output"),
    )))
}

/// Three replicas under load while the leader dies.
fn replicate(cage: &Cage<'_>, interrupt: &Interrupt) -> Outcome {
    let (options, command) = (cage.options(), cage.command());
    let server = Server { options: &options, command: &command };
    let mut cluster = Cluster::start("zoo", 3, cage.dir(), &server)?;
    let load = Load::new(cage);
    let told = std::thread::scope(|scope| {
        let told = story(cage, interrupt, &mut cluster, &load, |load| {
            for _ in 0..cage.species.clients {
                scope.spawn(|| load.client());
            }
        });
        load.finish();
        told
    });
    let told = told.and_then(|()| settled(cage, interrupt, &mut cluster, &load));
    let stopped = cluster.stop();
    told?;
    stopped
}

/// The leader dies while clients go on.
fn story<'a>(
    cage: &Cage<'_>,
    interrupt: &Interrupt,
    cluster: &mut Cluster,
    load: &'a Load<'a>,
    start_clients: impl FnOnce(&'a Load<'a>),
) -> Outcome {
    let status = interrupt.wait("the service to be ready", || cluster.healthy())?;
    interrupt.wait("the first answer", || {
        cluster.check()?;
        Ok(cage.request(0)?.then_some(()))
    })?;
    start_clients(load);
    let acknowledged = |cluster: &mut Cluster, count: u64| {
        interrupt.wait("requests to be acknowledged", || {
            cluster.check()?;
            Ok((load.count()? >= count).then_some(()))
        })
    };
    acknowledged(cluster, cage.species.requests)?;
    let leader = status.leader()?;
    kill(leader.pid()?, Signal::SIGKILL)
        .map_err(|error| Failure::of("cannot kill the leader", error))?;
    interrupt.wait("another leader", || cluster.led_by_other_than(leader.id))?;
    acknowledged(cluster, load.count()? + cage.species.requests)
}

/// The requirements when the killed replica is back.
fn settled(
    cage: &Cage<'_>,
    interrupt: &Interrupt,
    cluster: &mut Cluster,
    load: &Load<'_>,
) -> Outcome {
    let count = load.read_back()?;
    interrupt.wait("the killed replica to come back", || cluster.healthy())?;
    let digest = interrupt.wait("equal digests", || cluster.equal_digests())?;
    interrupt.wait("files that can be compared", || cluster.equal_files())?;
    let Equal { processes, pages, files } =
        interrupt.wait("memory that can be compared", || cluster.equal_pages())?;
    let equal = format!("all {pages} pages of {processes} processes and {files} files are equal");
    say(
        &cage.species.name,
        &format!("{count} acknowledged requests hold; digest {digest}; {equal}"),
    );
    Ok(())
}

/// Prints a line about a server.
pub fn say(name: &str, line: &str) {
    println!("{name:<12}| {line}");
}
