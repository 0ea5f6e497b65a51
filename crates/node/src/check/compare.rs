//! The second run's output against the first one's, frame by frame, and the first difference in words.

use super::recording::{Frames, parse};
use super::seen::Shared;
use skein_arena::layout::Header;
use skein_model::{ConnId, LogIndex, OutFrame};
use skein_replica::server::Files;
use skein_replica::server::tap::Tap;
use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The most differing bytes that are shown: 48.
const SHOWN_BYTES: usize = 48;
/// The number of equal bytes shown before the first difference: 16.
const SHOWN_BEFORE: usize = 16;

/// The index of a difference that belongs to no entry.
pub const NOWHERE: LogIndex = LogIndex(0);

/// The kind of a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Bytes to a client, the end of a connection, or a listening address.
    Output,
    /// The logical clock or the count of operations at an entry: another path was taken.
    Clock,
    /// The end of the server.
    End,
    /// Printed output.
    Printed,
    /// The files at the end.
    Files,
    /// A file of the host that changed between the runs.
    HostFile,
    /// An operation, if these are compared.
    Operation,
}

impl Kind {
    /// Its name in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Output => "output",
            Self::Clock => "clock",
            Self::End => "end",
            Self::Printed => "printed",
            Self::Files => "files",
            Self::HostFile => "host_file",
            Self::Operation => "operation",
        }
    }
}

/// The first difference between two runs from one log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The kind.
    pub kind: Kind,
    /// The last entry before it; [`NOWHERE`] when it belongs to none.
    pub index: LogIndex,
    /// The number of the client's connection, if it belongs to one.
    pub connection: Option<u32>,
    /// The first run's action.
    pub first: String,
    /// The second run's action.
    pub second: String,
}

/// The state of a comparison.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) difference: Option<Difference>,
    /// All output of the first run has been seen again.
    pub(super) exhausted: bool,
    pub(super) failed: Option<io::Error>,
}

impl State {
    /// For a run that is compared with nothing while it goes on.
    pub(super) const fn nothing() -> Self {
        Self { difference: None, exhausted: true, failed: None }
    }
}

/// The same, shared with the driver of the second run.
#[derive(Clone, Debug, Default)]
pub(super) struct Progress(Arc<Mutex<State>>);

impl Progress {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing in it is ever half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Compares while the second run goes on.
#[derive(Debug)]
pub(super) struct Comparer {
    seen: Shared,
    progress: Progress,
    frames: Frames,
    /// The first run's next output; empty behind the last frame.
    expected: Vec<u8>,
    index: LogIndex,
    sent: HashMap<ConnId, u64>,
    /// The first run had executed its whole log when it was stopped.
    complete: bool,
}

impl Comparer {
    pub(super) fn new(
        seen: Shared,
        progress: Progress,
        frames: Frames,
        complete: bool,
    ) -> io::Result<Self> {
        let mut comparer = Self {
            seen,
            progress,
            frames,
            expected: Vec::new(),
            index: LogIndex(0),
            sent: HashMap::new(),
            complete,
        };
        comparer.read_next()?;
        Ok(comparer)
    }

    fn read_next(&mut self) -> io::Result<()> {
        if !self.frames.next(&mut self.expected)? {
            self.expected.clear();
            self.progress.lock().exhausted = true;
        }
        Ok(())
    }

    fn compare(&mut self, raw: &[u8], frame: &OutFrame<'_>) -> io::Result<()> {
        if self.progress.lock().difference.is_some() {
            return Ok(());
        }
        if self.expected.is_empty() {
            if self.complete {
                self.differs("nothing more".into(), describe(frame), Kind::Output, conn_of(frame));
            }
            return Ok(());
        }
        if raw != self.expected {
            let expected = std::mem::take(&mut self.expected);
            let first = parse(&expected).map_err(|broken| io::Error::other(broken.0))?;
            self.judge(&first, frame);
            return Ok(());
        }
        match *frame {
            OutFrame::Admitted { index, .. } => self.index = index,
            OutFrame::Send { conn, bytes } => {
                *self.sent.entry(conn).or_default() += bytes.len() as u64;
            }
            OutFrame::Close { conn } | OutFrame::Abort { conn } => drop(self.sent.remove(&conn)),
            _ => {}
        }
        self.read_next()
    }

    fn judge(&mut self, first: &OutFrame<'_>, second: &OutFrame<'_>) {
        match (*first, *second) {
            (
                OutFrame::Admitted { index, clock, ops },
                OutFrame::Admitted { index: index2, clock: clock2, ops: ops2 },
            ) if index == index2 => {
                let say = |clock, ops| format!("{clock} turns and {ops} operations before it");
                self.index = index;
                self.differs(say(clock.0, ops), say(clock2.0, ops2), Kind::Clock, None);
            }
            (OutFrame::Send { conn, bytes: a }, OutFrame::Send { conn: conn2, bytes: b })
                if conn == conn2 =>
            {
                let same = a.iter().zip(b).take_while(|(a, b)| a == b).count();
                let at = self.sent.get(&conn).copied().unwrap_or(0) + same as u64;
                let say =
                    |bytes: &[u8]| format!("{} at byte {at} of its answers", excerpt(bytes, same));
                self.differs(say(a), say(b), Kind::Output, Some(conn));
            }
            (first, second) => {
                let kind = match (first, second) {
                    (OutFrame::Exit { .. }, _) | (_, OutFrame::Exit { .. }) => Kind::End,
                    _ => Kind::Output,
                };
                let conn = conn_of(&first).or(conn_of(&second));
                self.differs(describe(&first), describe(&second), kind, conn);
            }
        }
    }

    fn differs(&mut self, first: String, second: String, kind: Kind, conn: Option<ConnId>) {
        let connection = conn.map(number);
        self.progress.lock().difference =
            Some(Difference { kind, index: self.index, connection, first, second });
    }
}

impl Tap for Comparer {
    fn launched(&mut self, files: Option<&Files>) {
        self.seen.lock().launched(files);
    }

    fn entry(&mut self, _: LogIndex, entry: &[u8]) {
        self.seen.lock().entry(entry);
    }

    fn frame(&mut self, raw: &[u8], frame: &OutFrame<'_>) {
        self.seen.lock().frame(frame);
        if frame.is_output()
            && let Err(error) = self.compare(raw, frame)
        {
            self.progress.lock().failed.get_or_insert(error);
        }
    }

    fn drained(&mut self, header: &Header, rests: bool) {
        self.seen.lock().drained(header, rests);
    }
}

impl Drop for Comparer {
    /// Output of the first run that the second one, though finished, lacks.
    fn drop(&mut self) {
        let rests = self.seen.lock().rests;
        let mut state = self.progress.lock();
        if state.difference.is_none()
            && rests
            && let Ok(frame) = parse(&self.expected)
        {
            state.difference = Some(Difference {
                kind: Kind::Output,
                index: self.index,
                connection: conn_of(&frame).map(number),
                first: describe(&frame),
                second: "nothing more".into(),
            });
        }
    }
}

/// A connection's number in its term, for reports.
fn number(conn: ConnId) -> u32 {
    conn.0 as u32
}

fn conn_of(frame: &OutFrame<'_>) -> Option<ConnId> {
    match *frame {
        OutFrame::Send { conn, .. }
        | OutFrame::Fin { conn }
        | OutFrame::Close { conn }
        | OutFrame::Abort { conn } => Some(conn),
        _ => None,
    }
}

/// A frame in words.
fn describe(frame: &OutFrame<'_>) -> String {
    match *frame {
        OutFrame::Admitted { index, .. } => format!("took entry {index}"),
        OutFrame::Send { conn, bytes } => {
            let text = excerpt(bytes, 0);
            format!("sent {text} ({} bytes) to connection {}", bytes.len(), number(conn))
        }
        OutFrame::Fin { conn } => format!("ended its side of connection {}", number(conn)),
        OutFrame::Close { conn } => format!("closed connection {}", number(conn)),
        OutFrame::Abort { conn } => format!("reset connection {}", number(conn)),
        OutFrame::Listen { addr } => format!("listened on port {}", addr.port),
        OutFrame::Unlisten { addr } => format!("stopped listening on port {}", addr.port),
        OutFrame::Exit { status } => super::second::how(status),
        _ => "did something else".into(),
    }
}

/// Some bytes around `at`, as text in quotes.
pub(super) fn excerpt(bytes: &[u8], at: usize) -> String {
    let from = at.saturating_sub(SHOWN_BEFORE);
    let to = bytes.len().min(from + SHOWN_BYTES);
    let before = if from > 0 { "..." } else { "" };
    let behind = if to < bytes.len() { "..." } else { "" };
    format!("\"{before}{}{behind}\"", bytes[from.min(to)..to].escape_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excerpt_shows_where_it_differs() {
        assert_eq!(excerpt(b"+OK\r\n", 1), "\"+OK\\r\\n\"");
        let long: Vec<u8> = (0..200u8).map(|i| b'a' + i % 26).collect();
        let text = excerpt(&long, 100);
        assert!(text.starts_with("\"...") && text.ends_with("...\""), "{text}");
        assert_eq!(text.len(), SHOWN_BYTES + 8);
        assert_eq!(excerpt(b"", 0), "\"\"");
    }
}
