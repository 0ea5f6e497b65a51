//! An event in words.

use super::compare::Side;
use skein_sched::Op;
use skein_sched::trace::Event;

/// The parts of an event in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// The thread's number and that of its process; `None` for an admitted entry.
    pub whose: Option<(u32, u32)>,
    /// The operation: `lock`.
    pub kind: Option<&'static str>,
    /// The object: `memory at 0x5555`.
    pub object: Option<String>,
    /// The call's result; `None` where it does not return.
    pub result: Option<String>,
    /// All of it in a line.
    pub words: String,
}

/// Puts an event into words.
#[must_use]
pub fn tell(side: &Side) -> Told {
    let result = match side.event {
        Event::End { result: Some(result), errno, .. } => Some(value(result, errno)),
        _ => None,
    };
    Told {
        whose: side.event.whose(),
        kind: side.op.map(|(op, _)| op.kind.name()),
        object: side.op.map(|(op, _)| op.object.to_string()),
        result,
        words: event(side),
    }
}

/// `thread 3: lock of memory at 0x5555 begins`, `thread 3: read of open file 4 returns -1 (EAGAIN)`.
#[must_use]
pub fn event(side: &Side) -> String {
    let what = side.op.map_or_else(|| "a call".to_owned(), |(op, _)| operation(&op));
    match side.event {
        Event::Begin { op, process, .. } => {
            format!("thread {} of process {process}: {what} begins", op.thread)
        }
        Event::End { thread, process, result: Some(result), errno, .. } => {
            format!("thread {thread} of process {process}: {what} returns {}", value(result, errno))
        }
        Event::End { thread, process, result: None, .. } => {
            format!("thread {thread} of process {process}: {what} ends")
        }
        Event::Admitted { index } => format!("entry {index} is taken"),
    }
}

/// `lock of memory at 0x5555`.
#[must_use]
pub fn operation(op: &Op) -> String {
    format!("{} of {}", op.kind.name(), op.object)
}

/// A result; `errno` by its name.
#[must_use]
pub fn value(result: i64, errno: i32) -> String {
    match errno {
        0 if result.unsigned_abs() > 1 << 24 => format!("{result:#x}"),
        0 => result.to_string(),
        errno => format!("{result} ({:?})", nix::errno::Errno::from_raw(errno)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skein_sched::op::{Kind, Object};

    #[test]
    fn events_are_told_with_thread_kind_object_and_result() {
        let op = Op { thread: 3, object: Object::Memory(0x5550), kind: Kind::Lock };
        let side = |event| Side { event, op: Some((op, 9)) };
        assert_eq!(
            event(&side(Event::Begin { op, process: 2, depth: 0, from: 9 })),
            "thread 3 of process 2: lock of memory at 0x5550 begins"
        );
        let end = |result, errno| Event::End { thread: 3, process: 2, depth: 0, result, errno };
        assert_eq!(
            event(&side(end(Some(-1), libc::EAGAIN))),
            "thread 3 of process 2: lock of memory at 0x5550 returns -1 (EAGAIN)"
        );
        assert!(event(&side(end(Some(0x7fff_0000_0000), 0))).ends_with(" returns 0x7fff00000000"));
        assert!(event(&side(end(None, 0))).ends_with(": lock of memory at 0x5550 ends"));
        let unknown = Side { event: end(Some(5), 0), op: None };
        assert_eq!(event(&unknown), "thread 3 of process 2: a call returns 5");
    }
}
