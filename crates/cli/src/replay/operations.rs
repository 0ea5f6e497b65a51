//! `skein replay --operations`: runs a server twice, or more often, from one stored log and names the first operation that differs.
//!
//! The log of the later runs may be another replica's: replicas hold the same entries, so their servers do the same. Each run is a [`Replay`] of
//! its own, one after the other, and [`crate::operations`] compares their recordings.
//!
//! Crash: as for any replay; recordings vanish with this process.

use std::path::Path;
use std::sync::atomic::Ordering;

use skein_model::LogIndex;
use skein_node::check::second::how;
use skein_node::config::NodeConfig;
use skein_node::replay::stored::{Begin, Origin, Stored};
use skein_node::replay::{Came, Replay};
use skein_node::server::program::ProgramLauncher;
use skein_node::trace::{Seen, TraceFile, Watch};
use skein_node::{NodeError, server::Launcher};
use skein_replica::environment::Image;

use super::{EXIT_DIFFERS, EXIT_INTERRUPTED, Session, configuration, difference, failed};
use crate::check::capture::Capture;
use crate::failure::Failure;
use crate::operations::{OperationsCompared, Runs, launcher, room};

impl From<NodeError> for Failure {
    fn from(error: NodeError) -> Self {
        failed(error)
    }
}

/// The end of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Ran {
    /// The end in words,
    words: String,
    /// and without what depends on where the run began: the same for two equal runs.
    end: String,
    /// The server executed all its entries, or ended by itself.
    complete: bool,
    /// A digest of its output differs from the log's.
    differs: bool,
}

/// The source of runs, and their last entry.
struct Runner<'a, 'b> {
    session: &'a mut Session<'b>,
    until: Option<LogIndex>,
}

/// Compares runs; answers the exit code.
pub fn compare(session: &mut Session<'_>, config: &NodeConfig) -> Result<u8, Failure> {
    let args = session.args;
    let other = args.with.as_deref().map(|dir| other_replica(session, dir)).transpose()?;
    let mut until = args.at.map(LogIndex);
    if let Some((_, stored)) = &other {
        let behind = agreed(&session.stored, stored)?.next();
        until = Some(until.map_or(behind, |until| until.min(behind)));
    }
    let mut from = args.from.unwrap_or(0);
    if let Some(index) = args.image.map(LogIndex) {
        // Before a run that may be long.
        session.stored.origin = Origin::Image(index);
        session.stored.begin(until)?;
        session.stored.origin = Origin::Before(index);
        from = index.next().0;
    }
    let behind = until.unwrap_or(session.stored.last.next());
    if from >= behind.0 {
        let why = format!("the runs end before entry {behind}");
        let option =
            args.image.map_or(format!("--from {from}"), |image| format!("--image {image}"));
        return Err(Failure::new(option, why, "name an earlier entry"));
    }
    let mut runner = Runner { session, until };
    let first = recording(from)?;
    let mut watch = Watch::new(&first, None);
    let ran = runner.run(config, None, &mut watch, false)?;
    println!("run 1   {}", ran.words);
    if let Some(index) = args.image {
        runner.session.stored.origin = Origin::Image(LogIndex(index));
    }
    for number in 2..=args.runs {
        let second = recording(from)?;
        let mut watch = Watch::new(&second, Some(&first));
        let (config, stored) = match &other {
            Some((config, stored)) => (config, Some(stored)),
            None => (config, None),
        };
        let again = runner.run(config, stored, &mut watch, true)?;
        println!("run {number}   {}", again.words);
        let runs =
            Runs { first: &first, watch: &watch, whole: again.complete, complete: ran.complete };
        let found = runs.compare(|watch, number| -> Result<Option<Seen>, Failure> {
            runner.run(config, stored, watch, true)?;
            Ok(watch.seen.take().filter(|seen| seen.number == number))
        })?;
        let found = OperationsCompared::from(&found);
        let ends_differ = ran.end != again.end;
        let differs = found.difference.is_some() || ends_differ || again.differs || ran.differs;
        if !differs && number < args.runs {
            continue;
        }
        report(&found, differs);
        if let Some(index) =
            found.difference.as_ref().and_then(|found| found.index).filter(|i| *i > 0)
        {
            println!("look    skein replay {} --at {index} --gdb", args.dir.display());
        }
        return Ok(if differs { EXIT_DIFFERS } else { 0 });
    }
    unreachable!("clap asks for two runs at least")
}

fn report(found: &OperationsCompared, differs: bool) {
    let mut name = if differs { "differs" } else { "same" };
    for line in found.lines(differs) {
        println!("{name:<8}{line}");
        name = "";
    }
    if found.not_compared > 0
        && let Some(last) = found.full_after
    {
        println!("more    --from {last} compares from there on");
    }
}

fn recording(from: u64) -> Result<TraceFile, Failure> {
    let trace = room()?;
    trace.set_record_from(from).map_err(failed)?;
    Ok(trace)
}

/// Another replica's configuration and log.
fn other_replica(session: &Session<'_>, dir: &Path) -> Result<(NodeConfig, Stored), Failure> {
    let config = configuration(dir, None)?;
    let program = ProgramLauncher::new(&config).map_err(failed)?.program_hash();
    let stored = Stored::open(&config, dir, program).map_err(failed)?;
    if config.cluster() != session.cluster {
        let why = "it is of another cluster";
        return Err(Failure::new(
            format!("--with {}", dir.display()),
            why,
            "name a replica of the same one",
        ));
    }
    Ok((config, stored))
}

/// The last entry that both logs have.
fn agreed(first: &Stored, second: &Stored) -> Result<LogIndex, Failure> {
    let agreed = first.agrees_to(second)?;
    if agreed < first.commit.min(second.commit) {
        let why = format!(
            "entry {} is not the same in both logs, and both say that it is committed",
            agreed.next()
        );
        return Err(Failure::new("replay", why, "report this with both directories"));
    }
    let begin = |stored: &Stored| stored.begin(Some(agreed.next()));
    let (one, two) = (begin(first)?, begin(second)?);
    let index = |begin: &Begin| begin.image.as_ref().map(Image::index);
    if index(&one) != index(&two) {
        let why = "both logs begin later than at entry 1, and the images beside them are of different entries";
        return Err(failed(why));
    }
    println!("both    logs hold the same up to entry {agreed}, where the runs end");
    Ok(agreed)
}

impl Runner<'_, '_> {
    /// Makes a run; `until_seen`: only until its server has stopped at an event.
    fn run(
        &mut self,
        config: &NodeConfig,
        stored: Option<&Stored>,
        watch: &mut Watch<'_>,
        until_seen: bool,
    ) -> Result<Ran, Failure> {
        let Session { stored: own, output, interrupted, .. } = &mut *self.session;
        // The output of later runs is not shown again.
        let mut printed = Capture::new(false).map_err(failed)?;
        let mut config = config.clone();
        config.server.output = Some(if until_seen { printed.path() } else { output.path() });
        let launcher = launcher(&config, Some(watch))?;
        let stored = stored.unwrap_or(own);
        let mut run = Replay::start(&config, launcher, stored, self.until)?;
        let mut unreadable = None;
        let came = run.go(|_| {
            match until_seen {
                true => printed.pump(),
                false => output.pump(),
            }
            let looked = watch.look().unwrap_or_else(|error| {
                unreadable = Some(error);
                true
            });
            let is_enough = looked && until_seen;
            !is_enough && !interrupted.load(Ordering::Relaxed)
        });
        run.end();
        output.pump();
        if let Some(error) = unreadable {
            return Err(failed(error));
        }
        let place = run.place();
        let mut ran =
            Ran { words: String::new(), end: String::new(), complete: true, differs: false };
        ran.words = match came? {
            Came::Stands => {
                ran.end = format!("to entry {}", place.entry);
                format!("{}, {} digests equal", ran.end, place.equal)
            }
            Came::Ended(status) => {
                let what = stored.describe(place.entry)?;
                let says = run.fatal().map_or(String::new(), |text| format!(": {text}"));
                format!("in entry {} ({what}) the server {}{says}", place.entry, how(status))
            }
            Came::Differs(mismatch) => {
                (ran.complete, ran.differs) = (false, true);
                difference(&mismatch)
            }
            Came::HostFile(text) => return Err(failed(text)),
            Came::Stopped if interrupted.load(Ordering::Relaxed) => {
                let why = format!("interrupted after entry {}", place.entry);
                return Err(Failure::new("replay", why, "").with_code(EXIT_INTERRUPTED));
            }
            Came::Stopped => {
                ran.complete = false;
                format!("stopped after entry {}, where it differs", place.entry)
            }
        };
        if ran.end.is_empty() {
            ran.end.clone_from(&ran.words);
        }
        Ok(ran)
    }
}
