//! What a check has found, as `--json` prints it; `docs/check.md` explains every field. Fields are added, never changed.

use serde::Serialize;

use crate::operations::OperationsCompared;

/// The version of the form.
pub const FORM: u32 = 1;

/// The answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Both runs did the same.
    Deterministic,
    /// They did not.
    NotDeterministic,
    /// The program cannot be run under Skein, or does not work.
    CannotRun,
    /// The check itself did not come to an end: the client command failed, say.
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

    /// In words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Deterministic => "deterministic",
            Self::NotDeterministic => "NOT deterministic",
            Self::CannotRun => "cannot run",
            Self::CannotTell => "cannot tell",
        }
    }
}

/// All of it.
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
    /// What the command exits with.
    pub exit_code: u8,
    /// Why, in one line.
    pub reason: String,
    /// What the two runs did differently.
    pub difference: Option<Difference>,
    /// How the program ended by itself, in words.
    pub ended: Option<String>,
    /// The client command.
    pub drive: Option<Drive>,
    /// What was compared.
    pub compared: Option<Compared>,
    /// Where it listens.
    pub listeners: Vec<Listener>,
    /// What it used: kind and count, in a fixed order, those that are 0 too.
    pub used: Vec<Count>,
    /// What was refused.
    pub refused: Vec<Refused>,
    /// System calls that went around the interposed functions, by name where that is known.
    pub net: Vec<Count>,
    /// Those of them that came from places in the program's text that were patched, because they were trapped often.
    pub patched: Vec<Count>,
    /// What was measured.
    pub figures: Option<Figures>,
    /// The operations of both runs; `null` when they were not compared.
    pub operations: Option<OperationsCompared>,
    /// Whether clients got other answers on another schedule; `null` when that was not tried, or could not be compared.
    pub schedule_sensitive: Option<bool>,
    /// What to run it with.
    pub recommend: Option<Recommend>,
    /// What else is worth knowing.
    pub warnings: Vec<String>,
    /// The last lines that it printed.
    pub output: Vec<String>,
}

/// What the two runs did differently first.
#[derive(Clone, Debug, Serialize)]
pub struct Difference {
    /// `output`, `clock`, `end`, `printed`, `files`, `host_file` or `operation`.
    pub kind: String,
    /// After which log entry; `null` when it belongs to none.
    pub index: Option<u64>,
    /// The number of the client's connection, from 1, in the order in which they were opened.
    pub connection: Option<u32>,
    /// What the first run did.
    pub first: String,
    /// What the second run did.
    pub second: String,
}

/// The client command.
#[derive(Clone, Debug, Serialize)]
pub struct Drive {
    /// As given.
    pub command: String,
    /// Its exit status; `null` when it was not run or took too long.
    pub exit_code: Option<i32>,
    /// How long it took.
    pub seconds: f64,
    /// Connections that it made.
    pub connections: u64,
    /// The last lines that it printed.
    pub output: Vec<String>,
}

/// How much was compared and found equal.
#[derive(Clone, Debug, Serialize)]
pub struct Compared {
    /// Log entries.
    pub entries: u64,
    /// Things that it did, as the node sees them: sent, closed, took an entry.
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
    /// Where it was reached during the check.
    pub reached_at: Option<String>,
}

/// A name and how often.
#[derive(Clone, Debug, Serialize)]
pub struct Count {
    /// Of what.
    pub name: String,
    /// How often.
    pub count: u64,
}

/// A refused call.
#[derive(Clone, Debug, Serialize)]
pub struct Refused {
    /// Its name, and what it was asked.
    pub call: String,
    /// From where: `libfoo.so+0x12ab (function)`; empty when that is not known.
    pub from: String,
    /// How often.
    pub count: u64,
}

/// Measured while the client command ran, or while the program was watched.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    /// For how long.
    pub seconds: f64,
    /// Ordered operations a second.
    pub operations_per_second: f64,
    /// Share of the time that the server's processes used a processor.
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
    /// How long the second run took.
    pub replay_seconds: f64,
}

/// What to run it with.
#[derive(Clone, Debug, Serialize)]
pub struct Recommend {
    /// `order`.
    pub mode: String,
    /// `serial`.
    pub schedule: String,
    /// Operations a turn.
    pub quantum: u32,
    /// Turns from slot to slot.
    pub nclock: u32,
    /// Processor time on the leader as a multiple of what the native server would take, estimated; `null` where there was too
    /// little of it to measure.
    pub cpu_ratio_estimate: Option<f64>,
    /// The cost in words.
    pub cost: String,
}
