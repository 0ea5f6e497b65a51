//! A write-ahead log that forgets its first entries, or is replaced by a base, on a disk that loses, tears and changes bytes.

mod support;

use skein_log::{
    Base, HardState, LogEntry, NewBase, Persist,
    disk::{
        Disk,
        sim::{Faults, SimDisk, SimRng},
    },
    wal::{Opened, Wal, WalError},
};
use skein_model::{LogIndex, Term};
use std::{collections::BTreeSet, sync::Arc};
use support::{entry, last_segment, options, persist, reopen};

/// A log's content. Only steps of a [`script`] change it.
#[derive(Clone, Debug, Default, PartialEq)]
struct Content {
    base: Base,
    hard_state: HardState,
    entries: Vec<LogEntry>,
}

impl Content {
    fn of(opened: &Opened) -> Self {
        let recovered = &opened.recovered;
        let (base, last) = (recovered.base().clone(), recovered.last_index());
        let entries = match base.first_index() {
            first if first > last => Vec::new(),
            first => opened.wal.reader().read(first, last, usize::MAX).expect("it can be read"),
        };
        assert!(entries.iter().all(|entry| recovered.term(entry.index) == Some(entry.term)));
        assert_eq!((&base, last), (opened.wal.base(), opened.wal.last_index()));
        Self { base, hard_state: recovered.hard_state, entries }
    }

    fn last(&self) -> LogIndex {
        self.entries.last().map_or(self.base.index, |entry| entry.index)
    }

    /// Each state that a step leads through: its entries may be torn apart, its base and hard state not.
    fn then(&self, step: &Persist) -> Vec<Self> {
        let mut states = vec![self.clone()];
        let mut state = self.clone();
        state.hard_state = step.hard_state.unwrap_or(state.hard_state);
        match &step.base {
            Some(NewBase::Forget(base)) => {
                state.entries.retain(|entry| entry.index > base.index);
                state.base = Base::clone(base);
            }
            Some(NewBase::Reset(base)) => {
                state.entries.clear();
                state.base = Base::clone(base);
            }
            None => {}
        }
        states.push(state.clone());
        if let Some(first) = step.entries.first().filter(|first| first.index <= state.last()) {
            state.entries.retain(|entry| entry.index < first.index);
            states.push(state.clone());
        }
        for entry in &step.entries {
            state.entries.push(entry.clone());
            states.push(state.clone());
        }
        states
    }
}

fn base(index: u64, term: u64) -> Base {
    Base { index: LogIndex(index), term: Term(term), ..Base::default() }
}

fn forget(index: u64, term: u64) -> Persist {
    Persist { base: Some(NewBase::Forget(Box::new(base(index, term)))), ..persist(None, vec![]) }
}

fn reset(index: u64, term: u64, state: (u64, u64), entries: Vec<LogEntry>) -> Persist {
    Persist {
        base: Some(NewBase::Reset(Box::new(base(index, term)))),
        ..persist(Some(state), entries)
    }
}

/// A log's life: it fills segments, forgets them, is overwritten, replaced, and forgets again.
fn script() -> Vec<Persist> {
    let entries =
        |from: u64, to: u64, term, len| (from..=to).map(|n| entry(n, term, len)).collect();
    vec![
        persist(Some((1, 0)), entries(1, 12, 1, 60)),
        persist(Some((1, 12)), entries(13, 30, 1, 70)),
        // Some of a segment, then whole ones.
        forget(5, 1),
        persist(Some((2, 20)), entries(29, 44, 2, 50)),
        Persist { entries: entries(45, 52, 2, 90), ..forget(40, 2) },
        persist(Some((3, 50)), entries(51, 53, 3, 30)),
        forget(53, 3),
        persist(Some((3, 53)), entries(54, 70, 3, 80)),
        // It is behind by more than the leader has.
        reset(200, 4, (5, 200), entries(201, 203, 5, 40)),
        persist(Some((5, 203)), entries(204, 230, 5, 70)),
        forget(220, 5),
        persist(Some((6, 230)), vec![]),
        reset(300, 6, (7, 300), vec![]),
        persist(Some((7, 300)), entries(301, 310, 7, 100)),
    ]
}

struct Run {
    /// The states that the log may have.
    states: Vec<Content>,
    begun: bool,
    result: Result<(), WalError>,
}

fn run_script(disk: &SimDisk) -> Run {
    let mut states = vec![Content::default()];
    let mut begun = false;
    let mut run = || {
        let mut wal = Wal::create(Arc::new(disk.clone()), options())?.wal;
        begun = true;
        for (n, step) in script().iter().enumerate() {
            let latest = states.last().expect("never empty").clone();
            states.extend(latest.then(step));
            wal.append(step)?;
            if n % 2 == 1 {
                wal.sync()?;
                states.drain(..states.len() - 1);
            }
            match n % 3 {
                0 => wal.prepare()?,
                1 => wal.witness()?,
                _ => {}
            }
        }
        wal.sync()?;
        states.drain(..states.len() - 1);
        wal.prepare()?;
        wal.witness()
    };
    let result = run();
    Run { states, begun, result }
}

/// The found state is a possible one: its vote may be of a later one, as a torn vote may have been cast, and its commit index is a hint.
fn is_possible(found: &Content, states: &[Content]) -> bool {
    states.iter().enumerate().any(|(n, state)| {
        let vote = |state: &Content| (state.hard_state.term, state.hard_state.vote);
        let commit = state.hard_state.commit.min(state.last()).max(state.base.index);
        found.entries == state.entries
            && found.base == state.base
            && found.hard_state.commit == commit
            && states[n..].iter().any(|later| vote(later) == vote(found))
    })
}

fn segments(disk: &SimDisk) -> Vec<String> {
    let mut names = disk.list().unwrap();
    names.retain(|name| name.ends_with(".wal"));
    names
}

#[test]
fn a_log_that_forgot_is_recovered_and_has_fewer_files() {
    let disk = SimDisk::new();
    let Run { states, result, .. } = run_script(&disk);
    result.unwrap();
    disk.kill_process();
    let opened = reopen(&disk).unwrap();
    assert_eq!(Content::of(&opened), states[0]);
    let refused = opened.wal.reader().read(LogIndex(300), LogIndex(301), 1000).unwrap_err();
    assert!(matches!(refused, WalError::BelowBase { index: 300, first: 301 }), "{refused}");
    let names = segments(&disk);
    assert!(names.len() <= 3, "{names:?}");
    assert!(names[0].as_str() > "0000000000000009.wal", "{names:?}");
    let bytes: usize = names.iter().map(|name| disk.bytes(name).unwrap().len()).sum();
    assert!(opened.wal.bytes() <= bytes as u64 && opened.wal.bytes() > 1000);
}

#[test]
fn a_crash_at_every_operation_keeps_what_was_synced() {
    let full = SimDisk::new();
    run_script(&full).result.unwrap();
    let (mut bases, mut torn_removals) = (BTreeSet::new(), 0);
    for stop_after in 0..full.operations() {
        for seed in 0..12 {
            let disk = SimDisk::new();
            disk.set_faults(Faults { stop_after: Some(stop_after), ..Faults::default() });
            let Run { states, begun, result } = run_script(&disk);
            result.expect_err("the power failed");
            if !begun {
                continue;
            }
            let mut rng = SimRng::new(seed * 1000 + stop_after);
            disk.crash(&mut rng);
            let context = format!("stopped after {stop_after} operations, seed {seed}");
            let numbers: Vec<u64> = segments(&disk)
                .iter()
                .map(|name| u64::from_str_radix(&name[..16], 16).unwrap())
                .collect();
            torn_removals += u64::from(numbers.windows(2).any(|pair| pair[0] + 1 != pair[1]));
            let mut opened = reopen(&disk).unwrap_or_else(|error| panic!("{context}: {error}"));
            let found = Content::of(&opened);
            assert!(is_possible(&found, &states), "{context}: {found:?}");
            bases.insert(found.base.index);

            // It goes on, forgets all that it has, and a second crash keeps that too.
            let (last, term) = (found.last().0, found.hard_state.term.0 + 1);
            let more =
                persist(Some((term, last)), (1..=9).map(|n| entry(last + n, term, 90)).collect());
            opened.wal.append(&more).unwrap();
            opened.wal.append(&forget(last + 8, term)).unwrap();
            opened.wal.sync().unwrap();
            if seed % 2 == 0 {
                opened.wal.prepare().unwrap();
            }
            drop(opened);
            disk.crash(&mut rng);
            let mut opened = reopen(&disk).unwrap_or_else(|error| panic!("{context}: {error}"));
            let found = Content::of(&opened);
            assert_eq!(found.base, base(last + 8, term), "{context}");
            assert_eq!(found.entries, [entry(last + 9, term, 90)], "{context}");
            opened.wal.append(&forget(last + 9, term)).unwrap();
            opened.wal.prepare().unwrap();
            assert_eq!(segments(&disk).len(), 1, "{context}");
        }
    }
    assert_eq!(bases.len(), 7, "crashes hit each base: {bases:?}");
    assert!(torn_removals > 0);
}

#[test]
fn changed_bytes_are_refused_or_do_not_matter() {
    let disk = SimDisk::new();
    let Run { states, result, .. } = run_script(&disk);
    result.unwrap();
    disk.kill_process();
    let mut refused = 0;
    for name in segments(&disk) {
        let len = disk.bytes(&name).unwrap().len();
        for at in (0..len).step_by(3) {
            let damaged = disk.fork();
            let mut bytes = disk.bytes(&name).unwrap();
            bytes[at] ^= 0x40;
            damaged.set_bytes(&name, bytes);
            match reopen(&damaged) {
                Err(error) => {
                    assert!(matches!(error, WalError::Damaged { .. }), "{name} at {at}: {error}");
                    refused += 1;
                }
                // Zeros written ahead.
                Ok(opened) => assert_eq!(Content::of(&opened), states[0], "{name} at {at}"),
            }
        }
    }
    assert!(refused > 100);
}

#[test]
fn a_file_that_the_log_needs_is_missed() {
    let disk = SimDisk::new();
    let mut wal = Wal::create(Arc::new(disk.clone()), options()).unwrap().wal;
    wal.append(&persist(Some((1, 0)), (1..=80).map(|n| entry(n, 1, 60)).collect())).unwrap();
    wal.append(&forget(40, 1)).unwrap();
    wal.append(&persist(None, (81..=120).map(|n| entry(n, 1, 60)).collect())).unwrap();
    wal.append(&forget(90, 1)).unwrap();
    wal.append(&persist(None, (121..=140).map(|n| entry(n, 1, 60)).collect())).unwrap();
    wal.sync().unwrap();
    wal.witness().unwrap();
    wal.prepare().unwrap();
    drop(wal);
    let names = segments(&disk);
    assert!(names.len() > 3 && !names[0].ends_with("01.wal"), "{names:?}");
    for name in &names {
        let lossy = disk.fork();
        lossy.remove(name).unwrap();
        let line = reopen(&lossy).err().expect("a file is missing").to_string();
        assert!(line.contains("the file is missing") || line.contains("was durable"), "{line}");
    }
    // A file that came back from before is no obstacle.
    let more = disk.fork();
    more.set_bytes("0000000000000001.wal", vec![7; 300]);
    drop(reopen(&more).unwrap());
    assert_eq!(segments(&more), names);
}

#[test]
fn the_disk_that_a_log_needs_is_bounded() {
    let disk = SimDisk::new();
    let mut wal = Wal::create(Arc::new(disk.clone()), options()).unwrap().wal;
    let (mut most_files, mut most_bytes) = (0, 0);
    wal.append(&persist(Some((1, 0)), vec![])).unwrap();
    for n in 1..=3000 {
        wal.append(&persist(None, vec![entry(n, 1, 60)])).unwrap();
        if n % 50 == 0 {
            wal.append(&forget(n - 20, 1)).unwrap();
        }
        wal.sync().unwrap();
        wal.prepare().unwrap();
        let names = segments(&disk);
        most_files = most_files.max(names.len());
        most_bytes = most_bytes.max(wal.bytes());
    }
    // 70 entries, and those of the segment that the base is in; about 7 entries fill a segment of 1 KiB, and a new base ends one early. The first
    // segment has padding between two copies of a vote.
    assert!(most_files <= 16, "{most_files} files");
    assert!(most_bytes <= 20 << 10, "{most_bytes} bytes");
    assert!(last_segment(&disk).as_str() > "0000000000000100.wal");
}
