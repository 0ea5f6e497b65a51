//! What happens on a machine: servers that begin there, and servers that go on from another machine's images.
//!
//! A server runs on three replicas. While clients go on, a replica that follows takes an image; when that counts, its node is killed, and continues from it. Then digests, memory and files
//! must be equal, and everything acknowledged must be there. In the end an image is exported, with the list of what had been acknowledged before it.
//!
//! Invariants: a line that begins with [`STEP`] is for people; each step that fails is counted, and the next one follows.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};

use skein_testkit::cluster::status::Status;
use skein_testkit::cluster::{Cluster, Server, find_command};
use skein_testkit::{Failure, Outcome};

use super::place::DIR;
use super::plan::{Carried, Given, Plan, Taken};
use crate::interrupt::Interrupt;
use crate::zoo::cage::Cage;
use crate::zoo::load::Load;
use crate::zoo::species::{self, Species};

/// The beginning of a line that tells of a step.
pub const STEP: &str = "@ ";

const REPLICAS: u64 = 3;
const CLIENTS: u64 = 2;
/// Requests before an image, and again afterwards.
const REQUESTS: u64 = 20;
/// The port of the first server; each has another one, the same on all machines.
const PORT: u16 = 26_400;
/// An emulated machine may be twenty times as slow as this one.
const READY_MAX: Duration = Duration::from_secs(240);
const IMAGE_MAX: Duration = Duration::from_secs(120);
/// The longest wait for a refusal.
const REFUSED_MAX_S: &str = "240";
/// What an image's refusal says before it names extensions, and behind.
const HAS_NOT: &str = "this one has not: ";

/// Where the plan is, and where to put what it gives.
#[derive(clap::Args)]
pub struct Options {
    out: PathBuf,
}

/// Runs the plan of this machine.
pub fn run(options: &Options) -> Outcome {
    let interrupt = Interrupt::catch()?;
    let plan = Plan::read(Path::new(DIR))?;
    let visit = Visit { interrupt, all: species::all()?, out: &options.out, spoil: plan.spoil };
    let mut given = Given { extensions: extensions(), ..Given::default() };
    for name in &plan.begin {
        match visit.begin(name) {
            Ok(taken) => given.taken.push(taken),
            Err(failure) => given.failed += told(name, "", &failure),
        }
        visit.interrupt.check()?;
    }
    for one in &plan.carried {
        if let Err(failure) = visit.go_on(one) {
            given.failed += told(&one.species, &from(one), &failure);
        }
        visit.interrupt.check()?;
    }
    given.write(&options.out)
}

/// What this machine's processor can do, by the kernel's names.
pub fn extensions() -> Vec<String> {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let flags = text.lines().find_map(|line| line.strip_prefix("flags")?.split_once(':'));
    flags.map_or(Vec::new(), |(_, all)| all.split_whitespace().map(str::to_owned).collect())
}

fn say(name: &str, line: &str) {
    print(&format!("{STEP}{name}: {line}"));
}

/// Prints a line if there is still somebody to read it: if not, servers are to be stopped all the same.
fn print(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// Tells of a failure, and counts it.
fn told(name: &str, from: &str, failure: &Failure) -> u64 {
    say(name, &format!("{from}FAILED: {failure}"));
    1
}

fn from(carried: &Carried) -> String {
    format!("from {}: ", carried.from)
}

/// What is the same for all servers of a visit.
struct Visit<'a> {
    interrupt: Interrupt,
    all: Vec<Species>,
    out: &'a Path,
    spoil: bool,
}

impl Visit<'_> {
    /// The server's surroundings: the same on all machines.
    fn cage(&self, name: &str) -> Outcome<Cage<'_>> {
        let at = self.all.iter().position(|one| one.name == name);
        let at = at.ok_or_else(|| Failure(format!("no server '{name}'")))?;
        let dir = Path::new(DIR).join(name);
        // What a former server has left there is nobody's.
        let _ = fs::remove_dir_all(&dir);
        let port = PORT + u16::try_from(at).unwrap_or_default();
        Cage::at(&self.all[at], &dir, port)
    }

    /// A server begins here; answers its exported image.
    fn begin(&self, name: &str) -> Outcome<Taken> {
        let cage = self.cage(name)?;
        cage.prepare()?;
        self.live(&cage, None)?.ok_or_else(|| Failure("no image was exported".to_owned()))
    }

    /// A server goes on here from another machine's image, or that is refused as it must be.
    fn go_on(&self, carried: &Carried) -> Outcome {
        let cage = self.cage(&carried.species)?;
        let here = extensions();
        let missing: Vec<&str> = carried
            .extensions
            .iter()
            .filter(|name| !here.contains(name))
            .map(String::as_str)
            .collect();
        if !missing.is_empty()
            && let Some(named) = refused(&cage, carried)?
        {
            if let Some(name) = named.iter().find(|name| !missing.contains(&name.as_str())) {
                return Err(Failure(format!("refused for {name}, which this processor has")));
            }
            let line = format!("refused by name, as it must be: {}", named.join(" "));
            say(&carried.species, &(from(carried) + &line));
            return Ok(());
        }
        self.live(&cage, Some(carried)).map(drop)
    }

    /// A server's life here; answers its exported image if it began here.
    fn live(&self, cage: &Cage<'_>, carried: Option<&Carried>) -> Outcome<Option<Taken>> {
        let (mut options, command) = (cage.options(), cage.command());
        if let Some(carried) = carried {
            options.extend(["--import".to_owned(), carried.file.display().to_string()]);
        }
        let server = Server { options: &options, command: &command };
        let begun = Instant::now();
        let mut cluster = Cluster::start("kernels", REPLICAS, cage.dir(), &server)?;
        let told = self.story(cage, carried, &mut cluster, begun);
        if told.is_err() {
            print(&cluster.tell());
            tell_output();
        }
        let stopped = cluster.stop();
        let taken = told?;
        stopped?;
        Ok(taken)
    }

    fn story(
        &self,
        cage: &Cage<'_>,
        carried: Option<&Carried>,
        cluster: &mut Cluster,
        begun: Instant,
    ) -> Outcome<Option<Taken>> {
        self.healthy(cluster)?;
        let (name, origin) = (&cage.species.name, carried.map_or_else(String::new, from));
        let mut had = carried.map_or(Vec::new(), |one| one.acknowledged.clone());
        if self.spoil && carried.is_some() {
            had.push(had.iter().max().map_or(1, |last| last + 1_000_000));
        }
        let load = Load::behind(cage, &had);
        if carried.is_some() {
            let count = load.read_back()?;
            let took_s = begun.elapsed().as_secs();
            let line = format!("goes on; {count} acknowledged requests are there ({took_s} s)");
            say(name, &(origin.clone() + &line));
        } else {
            say(name, &format!("ready ({} s)", begun.elapsed().as_secs()));
        }
        let killed = std::thread::scope(|scope| {
            for _ in 0..CLIENTS {
                scope.spawn(|| load.client());
            }
            let killed = self.image_and_death(cluster, &load);
            load.finish();
            killed
        });
        let (replica, index, stood_us) = killed?;
        self.compare(cluster)?;
        let count = load.read_back()?;
        say(
            name,
            &format!(
                "{origin}replica {replica} continued from its image of entry {index} (stood {} ms); digests, memory and files are equal; {count} acknowledged requests hold",
                stood_us.div_ceil(1000)
            ),
        );
        if carried.is_some() {
            return Ok(None);
        }
        let acknowledged = load.acknowledged();
        let file = format!("{name}.image");
        let index = self.export(cage, cluster, &acknowledged, &self.out.join(&file))?;
        let bytes = fs::metadata(self.out.join(&file)).map_or(0, |data| data.len());
        say(name, &format!("exported its image of entry {index}: {} KB", bytes / 1000));
        Ok(Some(Taken { species: name.clone(), file, acknowledged }))
    }

    /// A follower takes an image, dies, and continues from it; answers its number, the image's entry, and how long it stood [us].
    fn image_and_death(&self, cluster: &mut Cluster, load: &Load<'_>) -> Outcome<(u64, u64, u64)> {
        self.requests(cluster, load)?;
        let status = self.healthy(cluster)?;
        let replica = follower(&status)?;
        let taken = self.image(cluster, replica)?;
        self.interrupt.wait_at_most(IMAGE_MAX, "an image to count", || {
            cluster.check()?;
            cluster.image_counts(replica, taken.index)
        })?;
        let status = self.healthy(cluster)?;
        let of = status.replicas().iter().find(|one| one.id == replica);
        let pid = of.ok_or_else(|| Failure(format!("no replica {replica}")))?.pid()?;
        kill(pid, Signal::SIGKILL).map_err(|error| Failure::of("cannot kill a node", error))?;
        self.interrupt.wait_at_most(READY_MAX, "a server to continue from its image", || {
            let last = cluster.restored(replica)?.last().copied();
            Ok(last.is_some_and(|last| last >= taken.index).then_some(()))
        })?;
        self.requests(cluster, load)?;
        self.healthy(cluster)?;
        Ok((replica, taken.index, taken.stood_us))
    }

    fn healthy(&self, cluster: &mut Cluster) -> Outcome<Status> {
        self.interrupt.wait_at_most(READY_MAX, "all replicas", || cluster.healthy())
    }

    /// More requests are acknowledged.
    fn requests(&self, cluster: &mut Cluster, load: &Load<'_>) -> Outcome {
        let count = load.count()? + REQUESTS;
        self.interrupt.wait_at_most(READY_MAX, "requests to be acknowledged", || {
            cluster.check()?;
            Ok((load.count()? >= count).then_some(()))
        })
    }

    fn image(&self, cluster: &Cluster, replica: u64) -> Outcome<skein_testkit::cluster::Taken> {
        let mut refused = String::new();
        let taken = self.interrupt.wait_at_most(IMAGE_MAX, "an image", || {
            match cluster.take_image(replica)? {
                Ok(taken) => Ok(Some(taken)),
                Err(why) => {
                    refused = why;
                    Ok(None)
                }
            }
        });
        taken.map_err(|failure| Failure::of(failure, &refused))
    }

    fn compare(&self, cluster: &mut Cluster) -> Outcome {
        cluster.no_difference()?;
        let wait = &self.interrupt;
        wait.wait_at_most(READY_MAX, "equal digests", || cluster.equal_digests())?;
        wait.wait_at_most(READY_MAX, "files to compare", || cluster.equal_files())?;
        wait.wait_at_most(READY_MAX, "memory to compare", || cluster.equal_memory())
    }

    /// Exports an image that was taken after all of `acknowledged`; answers its entry. It counts when more requests have followed.
    fn export(
        &self,
        cage: &Cage<'_>,
        cluster: &mut Cluster,
        acknowledged: &[u64],
        file: &Path,
    ) -> Outcome<u64> {
        let status = self.healthy(cluster)?;
        let replica = follower(&status)?;
        let taken = self.image(cluster, replica)?;
        let mut next = acknowledged.iter().max().map_or(1, |last| last + 1);
        self.interrupt.wait_at_most(IMAGE_MAX, "an image to count", || {
            cluster.check()?;
            cage.request(next)?;
            next += 1;
            cluster.image_counts(replica, taken.index)
        })?;
        cluster.export_image(replica, file)?.map_err(Failure)?;
        Ok(taken.index)
    }
}

/// What the servers have said last, before their cluster's directory is removed.
fn tell_output() {
    const LINES: usize = 6;
    let entries = |dir: &Path| fs::read_dir(dir).into_iter().flatten().flatten();
    for cluster in entries(&Path::new(DIR).join("tmp")) {
        for node in entries(&cluster.path().join("cluster")) {
            let text = fs::read(node.path().join("server.log")).unwrap_or_default();
            let text = String::from_utf8_lossy(&text);
            let lines: Vec<&str> = text.lines().collect();
            for line in &lines[lines.len().saturating_sub(LINES)..] {
                print(&format!("{}: {line}", node.file_name().to_string_lossy()));
            }
        }
    }
}

/// A replica that does not lead.
fn follower(status: &Status) -> Outcome<u64> {
    let leader = status.leader()?.id;
    let other = status.replicas().iter().map(|one| one.id).find(|id| *id != leader);
    other.ok_or_else(|| Failure("no replica follows".to_owned()))
}

/// The extensions for whose lack the image is refused; `None` where it is not.
fn refused(cage: &Cage<'_>, carried: &Carried) -> Outcome<Option<Vec<String>>> {
    const NAME: &str = "kernels-try";
    let data = Path::new(DIR).join("tmp").join(NAME);
    let skein = find_command()?;
    let tried = Command::new("timeout")
        .args(["-k", "20", REFUSED_MAX_S])
        .arg(&skein)
        .args(["run", "--name", NAME, "--detach", "--data"])
        .arg(&data)
        .arg("--import")
        .arg(&carried.file)
        .args(cage.options())
        .arg("--")
        .args(cage.command())
        .current_dir(cage.dir())
        .stdin(Stdio::null())
        .output()
        .map_err(|error| Failure::of("cannot run timeout", error))?;
    if tried.status.success() {
        let stopped = Command::new(&skein).args(["stop", "--name", NAME]).output();
        stopped.map_err(|error| Failure::of("cannot run skein stop", error))?;
    }
    let _ = fs::remove_dir_all(&data);
    if tried.status.success() {
        return Ok(None);
    }
    let said = String::from_utf8_lossy(&tried.stderr);
    named(&said).map(Some).ok_or_else(|| Failure::of("refused without a reason", said.trim()))
}

/// The extensions that a refusal names.
fn named(said: &str) -> Option<Vec<String>> {
    let list = said.split(HAS_NOT).nth(1)?.split(';').next()?;
    let names: Vec<String> = list.split_whitespace().map(str::to_owned).collect();
    (!names.is_empty()).then_some(names)
}

#[cfg(test)]
mod tests {
    use super::named;

    #[test]
    fn a_refusal_names_extensions() {
        let said = "skein: x.image: an image of a server on a processor that has, and this one has not: 3dnow pku; use a host with such a processor";
        assert_eq!(named(said).unwrap(), ["3dnow", "pku"]);
        assert_eq!(named("skein: no such file"), None);
        assert_eq!(named("and this one has not: ; use another"), None);
    }
}
