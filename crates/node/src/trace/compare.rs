//! Finds the first event in which two runs differ.

use super::file::Damaged;
use skein_model::LogIndex;
use skein_sched::Op;
use skein_sched::trace::Event;
use std::collections::{BTreeMap, VecDeque};

/// The number of kept events before the first difference: 8.
const KEPT_BEFORE: usize = 8;

/// One run's event at the first difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Side {
    /// The event.
    pub event: Event,
    /// The operation that it begins or ends, if known, with its calling place.
    pub op: Option<(Op, u64)>,
}

/// The first difference of two runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Different {
    /// The number of the event, from 0.
    pub number: u64,
    /// The last entry that both had admitted before; 0: none.
    pub index: LogIndex,
    /// The first run's event; `None`: it had ended.
    pub first: Option<Side>,
    /// The second run's event.
    pub second: Option<Side>,
    /// The last events that both runs have.
    pub before: Vec<Side>,
}

impl Different {
    /// Whether both are ends of one operation, so that they were called from the same place.
    #[must_use]
    pub fn is_result(&self) -> bool {
        let of = |side: &Option<Side>| match side {
            Some(Side { event: Event::End { thread, process, depth, .. }, .. }) => {
                Some((*thread, *process, *depth))
            }
            _ => None,
        };
        of(&self.first).is_some() && of(&self.first) == of(&self.second)
    }
}

/// The first difference between two streams of events; `None` when there is none. Where one ends, the other one's next event is the difference.
///
/// # Errors
/// One of them cannot be read.
pub fn first_difference(
    first: impl IntoIterator<Item = Result<Event, Damaged>>,
    second: impl IntoIterator<Item = Result<Event, Damaged>>,
) -> Result<Option<Different>, Damaged> {
    let (mut first, mut second) = (first.into_iter(), second.into_iter());
    let mut same = Same::default();
    loop {
        let (one, other) = (first.next().transpose()?, second.next().transpose()?);
        match (one, other) {
            (None, None) => return Ok(None),
            (Some(one), Some(other)) if one == other => same.note(one),
            (one, other) => return Ok(Some(same.end(one, other))),
        }
    }
}

/// What both have done.
#[derive(Default)]
struct Same {
    number: u64,
    index: u64,
    before: VecDeque<Side>,
    /// Each thread's operations in progress, at their depths.
    open: BTreeMap<(u32, u32, u32), (Op, u64)>,
}

impl Same {
    fn note(&mut self, event: Event) {
        let side = self.side(event);
        match event {
            Event::Begin { op, process, depth, from } => {
                self.open.insert((op.thread, process, depth), (op, from));
            }
            Event::End { thread, process, depth, .. } => {
                self.open.remove(&(thread, process, depth));
            }
            Event::Admitted { index } => self.index = index,
        }
        if self.before.len() == KEPT_BEFORE {
            self.before.pop_front();
        }
        self.before.push_back(side);
        self.number += 1;
    }

    fn side(&self, event: Event) -> Side {
        let op = match event {
            Event::Begin { op, from, .. } => Some((op, from)),
            Event::End { thread, process, depth, .. } => {
                self.open.get(&(thread, process, depth)).copied()
            }
            Event::Admitted { .. } => None,
        };
        Side { event, op }
    }

    fn end(self, first: Option<Event>, second: Option<Event>) -> Different {
        Different {
            number: self.number,
            index: LogIndex(self.index),
            first: first.map(|event| self.side(event)),
            second: second.map(|event| self.side(event)),
            before: self.before.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skein_sched::op::{Kind, Object};

    const fn op(thread: u32, kind: Kind) -> Op {
        Op { thread, object: Object::Memory(0x1000), kind }
    }

    const fn begin(thread: u32, kind: Kind) -> Event {
        Event::Begin { op: op(thread, kind), process: 2, depth: 0, from: 0x40_0000 }
    }

    const fn end(thread: u32, result: i64) -> Event {
        Event::End { thread, process: 2, depth: 0, result: Some(result), errno: 0 }
    }

    fn differ(first: &[Event], second: &[Event]) -> Option<Different> {
        first_difference(first.iter().copied().map(Ok), second.iter().copied().map(Ok)).unwrap()
    }

    #[test]
    fn equal_runs_do_not_differ() {
        let run = [Event::Admitted { index: 1 }, begin(1, Kind::Lock), end(1, 0)];
        assert_eq!(differ(&run, &run), None);
        assert_eq!(differ(&[], &[]), None);
    }

    #[test]
    fn a_result_is_told_with_the_operation_that_it_is_of() {
        let before = [
            Event::Admitted { index: 7 },
            begin(1, Kind::Wait),
            begin(3, Kind::Lock),
            end(3, 0),
            begin(3, Kind::Read),
        ];
        let found =
            differ(&[&before[..], &[end(1, 0)]].concat(), &[&before[..], &[end(1, 110)]].concat());
        let found = found.unwrap();
        assert_eq!((found.number, found.index), (5, LogIndex(7)));
        let waits = Some((op(1, Kind::Wait), 0x40_0000));
        assert_eq!(found.first, Some(Side { event: end(1, 0), op: waits }));
        assert_eq!(found.second, Some(Side { event: end(1, 110), op: waits }));
        let events: Vec<Event> = found.before.iter().map(|side| side.event).collect();
        assert_eq!(events, before);
        assert_eq!(found.before[3].op, Some((op(3, Kind::Lock), 0x40_0000)));
    }

    #[test]
    fn another_thread_object_kind_or_place_differs() {
        let one = begin(1, Kind::Lock);
        let others = [
            begin(2, Kind::Lock),
            begin(1, Kind::Unlock),
            Event::Begin {
                op: Op { object: Object::Memory(0x1001), ..op(1, Kind::Lock) },
                process: 2,
                depth: 0,
                from: 0x40_0000,
            },
            Event::Begin { op: op(1, Kind::Lock), process: 2, depth: 0, from: 0x40_0005 },
            Event::Begin { op: op(1, Kind::Lock), process: 3, depth: 0, from: 0x40_0000 },
        ];
        for other in others {
            let found = differ(&[one], &[other]).unwrap();
            assert_eq!(found.second.unwrap().event, other);
        }
    }

    #[test]
    fn a_run_that_ends_before_the_other_differs() {
        let found = differ(&[begin(1, Kind::Lock), end(1, 0)], &[begin(1, Kind::Lock)]).unwrap();
        assert_eq!(found.first.unwrap().event, end(1, 0));
        assert_eq!(found.second, None);
    }

    #[test]
    fn only_the_last_events_before_are_kept() {
        let many: Vec<Event> = (0..100).map(|index| Event::Admitted { index }).collect();
        let found = differ(&many, &[&many[..99], &[end(1, 1)]].concat()).unwrap();
        let events: Vec<Event> = found.before.iter().map(|side| side.event).collect();
        assert_eq!(events, many[99 - KEPT_BEFORE..99]);
    }

    #[test]
    fn a_stream_that_cannot_be_read_is_an_error() {
        let broken = [Ok(begin(1, Kind::Lock)), Err(Damaged::Event { number: 1 })];
        let found = first_difference(broken, [Ok(begin(1, Kind::Lock))]);
        assert_eq!(found.unwrap_err().to_string(), "its event 1 is damaged");
    }
}
