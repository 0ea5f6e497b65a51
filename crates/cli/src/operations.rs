//! `--operations` of `skein check` and `skein replay`: two runs record their threads' operations, and the first difference is named.
//!
//! Owns the recordings of both runs, the comparison in words, and its form as JSON. The second run stops where it differs from the first, and its
//! backtrace is taken there. The first run could not know that it would differ: the program is run up to [`FURTHER_RUNS`] more times, up to that
//! operation, until a run repeats the first one's operation.
//!
//! Crash: recordings are files without names, which vanish with this process.

use std::io;
use std::sync::Arc;

use serde::Serialize;
use skein_model::LogIndex;
use skein_node::NodeError;
use skein_node::check::{Difference, Kind, NOWHERE};
use skein_node::config::NodeConfig;
use skein_node::server::program::ProgramLauncher;
use skein_node::trace::{
    Damaged, Different, Event, Seen, Told, TraceFile, Watch, first_difference, say,
};

use crate::words::{number, plural};

/// The most recorded events of a run: 8 Mi, 256 MiB.
const CAPACITY: u64 = 8 << 20;
/// Further runs that look for the first run's operation.
const FURTHER_RUNS: u32 = 2;
/// The most operations before the difference in a report for a person; JSON has more.
const BEFORE_ROWS: usize = 3;

/// The result of the comparison.
#[derive(Clone, Debug)]
pub struct Operations {
    /// The number of compared events.
    pub compared: u64,
    /// The number of events of the first run that did not fit.
    pub lost: u64,
    /// The last recorded entry, if later events did not fit.
    pub full_after: Option<LogIndex>,
    /// The first difference.
    pub different: Option<First>,
}

/// The first event that differs.
#[derive(Clone, Debug)]
pub struct First {
    /// Its number, and the entry before it.
    pub at: Different,
    /// `None`: nothing more.
    pub first: Option<Side>,
    pub second: Option<Side>,
    /// The last operations that both runs did.
    pub before: Vec<String>,
}

/// The action of one run.
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

fn fault(what: &'static str) -> impl FnOnce(io::Error) -> NodeError {
    move |error| NodeError::System { what, error }
}

fn damaged(error: Damaged) -> NodeError {
    fault("read the recording of operations")(error.into())
}

/// Room for one run.
pub fn room() -> Result<TraceFile, NodeError> {
    TraceFile::new(CAPACITY).map_err(fault("make a file for the operations"))
}

/// Starts the program; with a watch its operations are recorded.
pub fn launcher(
    config: &NodeConfig,
    watch: Option<&Watch<'_>>,
) -> Result<Arc<ProgramLauncher>, NodeError> {
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
    /// The second run repeated all of the first one's events.
    pub whole: bool,
    /// The first run was at rest when it was stopped.
    pub complete: bool,
}

impl Runs<'_> {
    /// Compares; `again` runs the program once more until it stops at the event with this number, and answers its observation.
    pub fn compare<E: From<NodeError>>(
        &self,
        mut again: impl FnMut(&mut Watch<'_>, u64) -> Result<Option<Seen>, E>,
    ) -> Result<Operations, E> {
        let second = self.watch.trace();
        let counts = |trace: &TraceFile| trace.counts().map_err(|error| damaged(error.into()));
        let (first_counts, second_counts) = (counts(self.first)?, counts(second)?);
        let events = |trace| TraceFile::events(trace).map_err(damaged);
        let found = first_difference(events(self.first)?, events(second)?).map_err(damaged)?;
        let found = found.filter(|found| self.counts(found));
        let compared = first_counts.0.min(second_counts.0);
        let Some(found) = found else {
            let full_after = self.full_after(first_counts.1)?;
            return Ok(Operations { compared, lost: first_counts.1, full_after, different: None });
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
            let set = self.first.record_from().and_then(|from| trace.set_record_from(from));
            set.and_then(|()| trace.stop_at(found.number))
                .map_err(|error| damaged(error.into()))?;
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
            full_after: None,
            different: Some(First {
                first: found.first.as_ref().map(|it| side(it, former)),
                second: found.second.as_ref().map(|it| side(it, backtrace)),
                before: found.before.iter().map(|it| say::tell(it).words).collect(),
                at: found,
            }),
        })
    }

    /// The last entry that the first run recorded, if events were lost.
    fn full_after(&self, lost: u64) -> Result<Option<LogIndex>, NodeError> {
        if lost == 0 {
            return Ok(None);
        }
        let mut last = LogIndex(0);
        for event in self.first.events().map_err(damaged)? {
            if let Event::Admitted { index } = event.map_err(damaged)? {
                last = LogIndex(index);
            }
        }
        Ok(Some(last))
    }

    /// Whether a difference is real: not where a run was stopped before it could repeat the other.
    fn counts(&self, found: &Different) -> bool {
        let room = |trace: &TraceFile| trace.counts().is_ok_and(|(_, lost)| lost == 0);
        match (&found.first, &found.second) {
            (Some(_), Some(_)) => true,
            (None, _) => self.complete && room(self.first),
            (_, None) => self.whole && room(self.watch.trace()),
        }
    }
}

/// The threads' operations.
#[derive(Clone, Debug, Serialize)]
pub struct OperationsCompared {
    /// The number of compared events: begins and ends of operations, and admitted entries.
    pub compared: u64,
    /// The number of events that did not fit.
    pub not_compared: u64,
    /// The last recorded log entry when later events did not fit; `null` when all fitted.
    pub full_after: Option<u64>,
    /// The first difference.
    pub difference: Option<OperationDifference>,
}

/// The first event where the threads of the two runs differ.
#[derive(Clone, Debug, Serialize)]
pub struct OperationDifference {
    /// The event's number, from 0.
    pub number: u64,
    /// The log entry before it.
    pub index: Option<u64>,
    /// The first run's event; `null`: it had ended.
    pub first: Option<Operation>,
    /// The second run's event.
    pub second: Option<Operation>,
    /// The last events of both, in words.
    pub before: Vec<String>,
}

/// An event of a thread.
#[derive(Clone, Debug, Serialize)]
pub struct Operation {
    /// The thread's number; `null` when an entry was admitted.
    pub thread: Option<u32>,
    /// Its process, by the program's own number.
    pub process: Option<u32>,
    /// The operation.
    pub operation: Option<String>,
    /// Its object.
    pub object: Option<String>,
    /// The call's result; `null` at its begin.
    pub result: Option<String>,
    /// All of it in a line.
    pub words: String,
    /// The calls that led there, the innermost first: `libfoo.so+0x12ab (function)`.
    pub backtrace: Vec<String>,
}

impl From<Side> for Operation {
    fn from(Side { told, backtrace }: Side) -> Self {
        Self {
            thread: told.whose.map(|(thread, _)| thread),
            process: told.whose.map(|(_, process)| process),
            operation: told.kind.map(str::to_owned),
            object: told.object,
            result: told.result,
            words: told.words,
            backtrace,
        }
    }
}

impl From<&Operations> for OperationsCompared {
    fn from(found: &Operations) -> Self {
        Self {
            compared: found.compared,
            not_compared: found.lost,
            full_after: found.full_after.map(|index| index.0),
            difference: found.different.as_ref().map(|different| OperationDifference {
                number: different.at.number,
                index: (different.at.index != NOWHERE).then_some(different.at.index.0),
                first: different.first.clone().map(Operation::from),
                second: different.second.clone().map(Operation::from),
                before: different.before.clone(),
            }),
        }
    }
}

impl OperationsCompared {
    /// For a person, line by line. `differs`: the runs differ in something besides operations.
    pub fn lines(&self, differs: bool) -> Vec<String> {
        let Some(different) = &self.difference else {
            let compared = plural(self.compared, "event");
            let mut lines = vec![match (differs, self.not_compared) {
                (true, 0) => format!(
                    "{compared} compared, none differs: the runs differ in values that operations carry"
                ),
                _ => format!("{compared} compared, none differs"),
            }];
            if self.not_compared > 0 {
                lines.push(format!(
                    "{} not compared: the recording was full after entry {}",
                    plural(self.not_compared, "later event"),
                    self.full_after.unwrap_or(0)
                ));
            }
            return lines;
        };
        let after = different.index.map_or(String::new(), |index| format!(", after entry {index}"));
        let nth = number(different.number + 1);
        let mut lines = vec![format!("event {nth}{after} is the first that differs")];
        for (run, side) in [("first", &different.first), ("second", &different.second)] {
            let words = side.as_ref().map_or("nothing more", |side| side.words.as_str());
            lines.push(format!("{:<11} {words}", format!("{run} run:")));
            let frames = side.iter().flat_map(|side| &side.backtrace);
            lines.extend(frames.map(|frame| format!("            at {frame}")));
        }
        let more = different.before.len().saturating_sub(BEFORE_ROWS);
        lines.extend(different.before[more..].iter().map(|words| format!("before:     {words}")));
        lines
    }
}
