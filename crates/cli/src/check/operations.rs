//! `--operations`: both runs write down what their threads do, and the first operation that differs is named.
//!
//! The second run stops where it differs from the first, and its backtrace is taken there. The first run could not know that it would differ: so the
//! program is run once or twice more up to that operation, until it does what it did in the first run.

use std::io;
use std::sync::Arc;

use skein_node::NodeError;
use skein_node::check::{Difference, Kind};
use skein_node::config::NodeConfig;
use skein_node::server::program::ProgramLauncher;
use skein_node::trace::{Damaged, Different, Seen, Told, TraceFile, Watch, first_difference, say};

use super::trial::Fault;

/// Events of a run that are written down: 8 Mi, 256 MiB.
const CAPACITY: u64 = 8 << 20;
/// Further runs that look for what the first one did.
const FURTHER_RUNS: u32 = 2;

/// What came of the comparison.
#[derive(Clone, Debug)]
pub struct Operations {
    /// Events that were compared.
    pub compared: u64,
    /// Events for which there was no room.
    pub lost: u64,
    /// The first that differs.
    pub different: Option<First>,
}

/// The first event that differs.
#[derive(Clone, Debug)]
pub struct First {
    /// Which, and after which entry.
    pub at: Different,
    /// `None`: nothing more.
    pub first: Option<Side>,
    pub second: Option<Side>,
    /// What both did last before.
    pub before: Vec<String>,
}

/// What one of the runs did.
#[derive(Clone, Debug)]
pub struct Side {
    pub told: Told,
    pub backtrace: Vec<String>,
}

impl Operations {
    /// As the difference between the runs, where nothing else differs.
    pub fn as_difference(&self) -> Option<Difference> {
        let found = self.different.as_ref()?;
        let say = |side: &Option<Side>| {
            side.as_ref().map_or_else(|| "nothing more".into(), |side| side.told.words.clone())
        };
        Some(Difference {
            kind: Kind::Operation,
            index: found.at.index,
            connection: None,
            first: say(&found.first),
            second: say(&found.second),
        })
    }
}

fn fault(what: &'static str) -> impl FnOnce(io::Error) -> Fault {
    move |error| Fault::Node(NodeError::System { what, error })
}

fn damaged(error: Damaged) -> Fault {
    fault("read the trace of operations")(error.into())
}

/// Room for one run.
pub fn room() -> Result<TraceFile, Fault> {
    TraceFile::new(CAPACITY).map_err(fault("make a file for the operations"))
}

/// Starts the program, traced if somebody watches.
pub fn launcher(
    config: &NodeConfig,
    watch: Option<&Watch<'_>>,
) -> Result<Arc<ProgramLauncher>, Fault> {
    let launcher = ProgramLauncher::new(config)?;
    Ok(Arc::new(match watch {
        Some(watch) => launcher.traced(watch.traced().map_err(fault("copy a descriptor"))?),
        None => launcher,
    }))
}

/// Two runs that were traced.
pub struct Runs<'a> {
    pub first: &'a TraceFile,
    /// The second one.
    pub watch: &'a Watch<'a>,
    /// The second run did all that the first one had done.
    pub whole: bool,
    /// The first run was at rest when it was stopped.
    pub complete: bool,
}

impl Runs<'_> {
    /// Compares; `again` runs the program once more until it stops at the event with this number, and answers what was seen there.
    pub fn compare(
        &self,
        mut again: impl FnMut(&mut Watch<'_>, u64) -> Result<Option<Seen>, Fault>,
    ) -> Result<Operations, Fault> {
        let second = self.watch.trace();
        let counts = |trace: &TraceFile| trace.counts().map_err(|error| damaged(error.into()));
        let (first_counts, second_counts) = (counts(self.first)?, counts(second)?);
        let events = |trace| TraceFile::events(trace).map_err(damaged);
        let found = first_difference(events(self.first)?, events(second)?).map_err(damaged)?;
        let found = found.filter(|found| self.counts(found));
        let compared = first_counts.0.min(second_counts.0);
        let Some(found) = found else {
            return Ok(Operations { compared, lost: first_counts.1, different: None });
        };
        let seen = self.watch.seen.clone().filter(|seen| seen.number == found.number);
        let backtrace = seen.as_ref().map(|seen| seen.backtrace.clone()).unwrap_or_default();
        let mut former = None;
        if found.is_result() {
            former = Some(backtrace.clone());
        }
        let event = found.first.map(|side| side.event);
        for _ in 0..FURTHER_RUNS {
            if former.is_some() || event.is_none() {
                break;
            }
            let trace = room()?;
            trace.stop_at(found.number).map_err(|error| damaged(error.into()))?;
            let seen = again(&mut Watch::new(&trace, None), found.number)?;
            if trace.event(found.number).map_err(damaged)? == event {
                former = seen.map(|seen| seen.backtrace);
            }
        }
        let former =
            former.unwrap_or_else(|| seen.and_then(|seen| seen.former).into_iter().collect());
        let side = |side, backtrace| Side { told: say::tell(side), backtrace };
        Ok(Operations {
            compared,
            lost: first_counts.1,
            different: Some(First {
                first: found.first.as_ref().map(|it| side(it, former)),
                second: found.second.as_ref().map(|it| side(it, backtrace)),
                before: found.before.iter().map(|it| say::tell(it).words).collect(),
                at: found,
            }),
        })
    }

    /// Whether a difference is one: not where a run was stopped before it could do the same.
    fn counts(&self, found: &Different) -> bool {
        let room = |trace: &TraceFile| trace.counts().is_ok_and(|(_, lost)| lost == 0);
        match (&found.first, &found.second) {
            (Some(_), Some(_)) => true,
            (None, _) => self.complete && room(self.first),
            (_, None) => self.whole && room(self.watch.trace()),
        }
    }
}
