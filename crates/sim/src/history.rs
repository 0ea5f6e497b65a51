//! Are the clients' observations possible for one register that executes one operation at a time (linearizability)?
//!
//! The search of Wing and Gong with Lowe's memory of states seen, for each key on its own, as linearizability is local.

use std::collections::{BTreeMap, BTreeSet, HashSet};

/// A client's operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Set the register; each value is written once.
    Write(u64),
    /// Read the register; the value is known when the operation ends. The initial value is 0.
    Read(Option<u64>),
}

/// One operation of one client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// The register.
    pub key: u64,
    /// The operation.
    pub action: Action,
    /// When it was sent.
    pub invoked_us: u64,
    /// When its answer came; `None` if none came: it may be executed at any later time, or never.
    pub returned_us: Option<u64>,
}

/// The most operations of one key that are searched.
const MAX_OPERATIONS: usize = 128;

/// Reports an impossible observation, if there is one
///
/// # Errors
/// The key and the operations that cannot be put in an order.
pub fn check(operations: &[Operation]) -> Result<(), String> {
    let mut keys: BTreeMap<u64, Vec<Operation>> = BTreeMap::new();
    for operation in operations {
        keys.entry(operation.key).or_default().push(*operation);
    }
    for (key, operations) in keys {
        let relevant = relevant(&operations);
        assert!(relevant.len() <= MAX_OPERATIONS, "{} operations on one key", relevant.len());
        if !is_possible(&relevant) {
            return Err(explain(key, &relevant));
        }
    }
    Ok(())
}

fn is_possible(operations: &[Operation]) -> bool {
    Search { operations, seen: HashSet::new() }.possible(0, 0)
}

/// The first answer that no order explains, with what came shortly before it.
fn explain(key: u64, operations: &[Operation]) -> String {
    let mut returns: Vec<u64> = operations.iter().filter_map(|op| op.returned_us).collect();
    returns.sort_unstable();
    let until = |end: u64| -> Vec<Operation> {
        let known = operations.iter().filter(|op| op.invoked_us <= end);
        known
            .map(|op| Operation { returned_us: op.returned_us.filter(|at| *at <= end), ..*op })
            .filter(|op| op.returned_us.is_some() || matches!(op.action, Action::Write(_)))
            .collect()
    };
    let end = returns.into_iter().find(|end| !is_possible(&until(*end))).unwrap_or(u64::MAX);
    let mut last = until(end);
    last.drain(..last.len().saturating_sub(10));
    let lines = last.iter().map(|op| {
        let returned =
            op.returned_us.map_or("no answer".to_owned(), |at| format!("answered {at} us"));
        format!("\n  {:?} sent {} us, {returned}", op.action, op.invoked_us)
    });
    format!("no order explains what clients saw of key {key}:{}", lines.collect::<String>())
}

/// Drops what puts no constraint on the rest: reads without an answer, and writes without an answer that nobody saw.
fn relevant(operations: &[Operation]) -> Vec<Operation> {
    let seen: BTreeSet<u64> = operations
        .iter()
        .filter_map(|operation| match operation.action {
            Action::Read(value) => value,
            Action::Write(_) => None,
        })
        .collect();
    let mut relevant: Vec<Operation> = operations
        .iter()
        .filter(|operation| match operation.action {
            _ if operation.returned_us.is_some() => true,
            Action::Read(_) => false,
            Action::Write(value) => seen.contains(&value),
        })
        .copied()
        .collect();
    relevant.sort_by_key(|operation| operation.invoked_us);
    relevant
}

struct Search<'a> {
    operations: &'a [Operation],
    /// Which were done, and the value then.
    seen: HashSet<(u128, u64)>,
}

impl Search<'_> {
    fn possible(&mut self, done: u128, value: u64) -> bool {
        if !self.seen.insert((done, value)) {
            return false;
        }
        let open = |n: &usize| done & (1 << n) == 0;
        let returns =
            (0..self.operations.len()).filter(open).filter_map(|n| self.operations[n].returned_us);
        let Some(first_return) = returns.min() else {
            // Only operations without an answer are left.
            return true;
        };
        // What was sent after the first open answer came cannot come first.
        for n in (0..self.operations.len()).filter(open) {
            let operation = self.operations[n];
            if operation.invoked_us > first_return {
                break;
            }
            let next = match operation.action {
                Action::Write(written) => written,
                Action::Read(Some(read)) if read == value => value,
                Action::Read(_) => continue,
            };
            if self.possible(done | 1 << n, next) {
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn op(action: Action, invoked_us: u64, returned_us: u64) -> Operation {
        let returned_us = (returned_us > 0).then_some(returned_us);
        Operation { key: 1, action, invoked_us, returned_us }
    }

    const fn read(value: u64) -> Action {
        Action::Read(Some(value))
    }

    #[test]
    fn what_one_register_can_do_passes() {
        let possible: [&[Operation]; 5] = [
            &[],
            &[op(read(0), 1, 2), op(Action::Write(7), 3, 4), op(read(7), 5, 6)],
            // Overlapping: either order.
            &[op(Action::Write(7), 1, 9), op(read(0), 2, 3), op(read(7), 4, 5)],
            // Without an answer, and yet executed, late.
            &[op(Action::Write(7), 1, 0), op(read(0), 2, 3), op(read(7), 4, 5)],
            &[op(Action::Write(7), 1, 9), op(Action::Write(8), 1, 9), op(read(7), 10, 11)],
        ];
        for history in possible {
            assert_eq!(check(history), Ok(()));
        }
    }

    #[test]
    fn what_one_register_cannot_do_is_found() {
        let impossible: [&[Operation]; 5] = [
            // Lost, stale, from nowhere, undone, back and forth.
            &[op(Action::Write(7), 1, 2), op(read(0), 3, 4)],
            &[op(Action::Write(7), 1, 2), op(Action::Write(8), 3, 4), op(read(7), 5, 6)],
            &[op(read(9), 1, 2)],
            &[op(Action::Write(7), 1, 0), op(read(7), 2, 3), op(read(0), 4, 5)],
            &[
                op(Action::Write(7), 1, 2),
                op(Action::Write(8), 1, 2),
                op(read(7), 3, 4),
                op(read(8), 5, 6),
                op(read(7), 7, 8),
            ],
        ];
        for history in impossible {
            assert!(check(history).is_err(), "{history:?}");
        }
    }
}
