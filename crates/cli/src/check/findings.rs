//! The findings of a check, in the form of `--json`; `docs/check.md` explains every field. Fields are added, never changed.

use serde::Serialize;

use crate::operations::OperationsCompared;

/// The version of this form.
pub const FORM: u32 = 1;

/// The answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Both runs did the same.
    Deterministic,
    /// The runs differed.
    NotDeterministic,
    /// The program cannot be run under Skein, or does not work.
    CannotRun,
    /// The check itself did not complete: the client command failed, say.
    CannotTell,
}

impl Verdict {
    /// The command's exit code.
    pub const fn code(self) -> u8 {
        match self {
            Self::Deterministic => 0,
            Self::NotDeterministic => 1,
            Self::CannotRun | Self::CannotTell => 2,
        }
    }

    /// The verdict in words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Deterministic => "deterministic",
            Self::NotDeterministic => "NOT deterministic",
            Self::CannotRun => "cannot run",
            Self::CannotTell => "cannot tell",
        }
    }
}

/// All findings.
#[derive(Clone, Debug, Serialize)]
pub struct Findings {
    /// [`FORM`].
    pub skein_check: u32,
    /// As given.
    pub program: String,
    /// As given.
    pub args: Vec<String>,
    /// The answer.
    pub verdict: Verdict,
    /// The command's exit code.
    pub exit_code: u8,
    /// The reason in one line.
    pub reason: String,
    /// The difference between the two runs.
    pub difference: Option<Difference>,
    /// How the program ended by itself, in words.
    pub ended: Option<String>,
    /// The client command.
    pub drive: Option<Drive>,
    /// The compared amounts.
    pub compared: Option<Compared>,
    /// The program's listening sockets.
    pub listeners: Vec<Listener>,
    /// Used features: kind and count, in a fixed order, including zeros.
    pub used: Vec<Count>,
    /// Refused calls.
    pub refused: Vec<Refused>,
    /// System calls that went around the interposed functions, by name where that is known.
    pub net: Vec<Count>,
    /// The part of them from patched places in the program's text, which had trapped often.
    pub patched: Vec<Count>,
    /// The measurements.
    pub figures: Option<Figures>,
    /// The operations of both runs; `null` when they were not compared.
    pub operations: Option<OperationsCompared>,
    /// Whether clients got other answers on another schedule; `null` when that was not tried, or could not be compared.
    pub schedule_sensitive: Option<bool>,
    /// Recommended options.
    pub recommend: Option<Recommend>,
    /// Further remarks.
    pub warnings: Vec<String>,
    /// The last lines that it printed.
    pub output: Vec<String>,
}

/// The first difference between the two runs.
#[derive(Clone, Debug, Serialize)]
pub struct Difference {
    /// `output`, `clock`, `end`, `printed`, `files`, `host_file` or `operation`.
    pub kind: String,
    /// The log entry before it; `null` when it belongs to none.
    pub index: Option<u64>,
    /// The number of the client's connection, from 1, in the order of opening.
    pub connection: Option<u32>,
    /// The first run's action.
    pub first: String,
    /// The second run's action.
    pub second: String,
}

/// The client command.
#[derive(Clone, Debug, Serialize)]
pub struct Drive {
    /// As given.
    pub command: String,
    /// Its exit status; `null` when it was not run or took too long.
    pub exit_code: Option<i32>,
    /// Its duration.
    pub seconds: f64,
    /// The number of its connections.
    pub connections: u64,
    /// The last lines that it printed.
    pub output: Vec<String>,
}

/// The amounts that were compared and equal.
#[derive(Clone, Debug, Serialize)]
pub struct Compared {
    /// Log entries.
    pub entries: u64,
    /// Actions of the program, as the node sees them: sent, closed, took an entry.
    pub frames: u64,
    /// Bytes sent to clients.
    pub sent_bytes: u64,
    /// Bytes printed.
    pub printed_bytes: u64,
    /// Files written; `null` when they were not compared.
    pub files: Option<u64>,
    /// The first run was at rest when it was stopped, so that its very end was compared, too.
    pub complete: bool,
}

/// A listening socket.
#[derive(Clone, Debug, Serialize)]
pub struct Listener {
    /// The server's own address.
    pub server: String,
    /// Its address during the check.
    pub reached_at: Option<String>,
}

/// A name and a count.
#[derive(Clone, Debug, Serialize)]
pub struct Count {
    /// The name.
    pub name: String,
    /// The count.
    pub count: u64,
}

/// A refused call.
#[derive(Clone, Debug, Serialize)]
pub struct Refused {
    /// Its name and arguments.
    pub call: String,
    /// The calling place: `libfoo.so+0x12ab (function)`; empty when unknown.
    pub from: String,
    /// The count.
    pub count: u64,
}

/// Measured while the client command ran, or while the program was watched.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    /// The measured time.
    pub seconds: f64,
    /// Ordered operations a second.
    pub operations_per_second: f64,
    /// CPU use of the server's processes, as a share of the time.
    pub busy_share: f64,
    /// Processor time of the server's processes.
    pub server_cpu_seconds: f64,
    /// Processor time of the node.
    pub node_cpu_seconds: f64,
    /// Log entries of the whole run, and those of them that were time bubbles and clock entries.
    pub entries: u64,
    /// See `entries`.
    pub bubbles: u64,
    /// See `entries`.
    pub clock_entries: u64,
    /// System calls of the whole run that the net handled.
    pub net_calls: u64,
    /// Duration of the second run.
    pub replay_seconds: f64,
}

/// Recommended options.
#[derive(Clone, Debug, Serialize)]
pub struct Recommend {
    /// `order`.
    pub mode: String,
    /// `serial`.
    pub schedule: String,
    /// Operations a turn.
    pub quantum: u32,
    /// Turns between two slots.
    pub nclock: u32,
    /// CPU time on the leader as an estimated multiple of the native server's; `null` where there was too
    /// little of it to measure.
    pub cpu_ratio_estimate: Option<f64>,
    /// The cost in words.
    pub cost: String,
}
