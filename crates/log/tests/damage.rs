//! The write-ahead log on disks that change, lose, misplace or refuse durable bytes, and on failing syncs.
//!
//! The rule: synced records come back, or the log is refused with a file and an offset.

mod support;

use skein_log::{
    Persist, Ticket,
    disk::{
        Disk,
        sim::{Faults, SimDisk, SimRng},
    },
    wal::{Opened, WalError, thread::WalThread},
};
use skein_model::LogIndex;
use std::time::{Duration, Instant};
use support::{Model, State, begin, entry, last_segment, open, options, persist, reopen};

/// The largest loss of a disk at once.
const SECTORS: [usize; 2] = [512, 4096];

#[test]
fn an_append_torn_at_every_byte_is_cut_off() {
    let disk = SimDisk::new();
    let mut wal = open(&disk).unwrap().wal;
    wal.append(&persist(Some((1, 0)), vec![entry(1, 1, 10)])).unwrap();
    wal.sync().unwrap();
    let name = &last_segment(&disk);
    let before = disk.bytes(name).unwrap().len();
    wal.append(&persist(None, vec![entry(2, 1, 56), entry(3, 1, 8)])).unwrap();
    drop(wal);
    let whole = disk.bytes(name).unwrap();
    assert!(whole.len() > before + 104, "both are in one segment");
    for cut in before..whole.len() {
        // Once the rest is missing, once it is zeros, once it is garbage.
        for filler in [None, Some(0_u8), Some(0xa5)] {
            let torn = disk.fork();
            let mut bytes = whole[..cut].to_vec();
            if let Some(filler) = filler {
                bytes.resize(whole.len() + 100, filler);
            }
            let expected = if cut - before < 104 { 1 } else { 2 };
            torn.set_bytes(name, bytes);
            let mut opened = open(&torn).unwrap();
            assert_eq!(opened.recovered.last_index(), LogIndex(expected), "cut at {cut}");
            let dirty = filler == Some(0xa5) || (cut > before && cut != before + 104);
            assert_eq!(opened.repair.is_some(), dirty, "cut at {cut}, then {filler:?}");
            opened.wal.append(&persist(None, vec![entry(expected + 1, 1, 20)])).unwrap();
            opened.wal.sync().unwrap();
            drop(opened);
            let opened = open(&torn).unwrap();
            assert_eq!(opened.recovered.last_index(), LogIndex(expected + 1));
            assert_eq!(opened.repair, None);
        }
    }
}

#[test]
fn a_record_that_is_lost_before_others_is_refused_if_it_was_durable_and_cut_if_it_was_not() {
    for synced in [true, false] {
        let disk = SimDisk::new();
        let mut wal = open(&disk).unwrap().wal;
        wal.append(&persist(Some((1, 0)), vec![entry(1, 1, 8)])).unwrap();
        wal.sync().unwrap();
        let name = &last_segment(&disk);
        let before = disk.bytes(name).unwrap().len();
        wal.append(&persist(None, vec![entry(2, 1, 8)])).unwrap();
        let after = disk.bytes(name).unwrap().len();
        if synced {
            wal.sync().unwrap();
        }
        wal.append(&persist(None, vec![entry(3, 1, 8)])).unwrap();
        drop(wal);
        let mut bytes = disk.bytes(name).unwrap();
        bytes[before..after].fill(0);
        disk.set_bytes(name, bytes);
        match open(&disk) {
            Err(error @ WalError::Damaged { .. }) if synced => {
                let line = error.to_string();
                assert!(line.contains(&format!("{name}: damaged at byte {before}")), "{line}");
            }
            Ok(opened) if !synced => assert_eq!(opened.recovered.last_index(), LogIndex(1)),
            other => panic!("synced: {synced}, {:?}", other.err()),
        }
    }
}

/// A log of several segments. Each group is synced before the next one; the last ones are an entry, several entries, and a vote.
struct Synced {
    disk: SimDisk,
    /// The disk before the last groups.
    before: SimDisk,
    state: State,
}

fn synced(witnessed: bool, ends_with_vote: bool) -> Synced {
    let disk = SimDisk::new();
    let mut wal = begin(&disk).unwrap().wal;
    let mut steps = vec![persist(Some((1, 0)), vec![])];
    steps.extend((1..=20).map(|n| persist(None, vec![entry(n, 1, 100)])));
    steps.push(persist(Some((2, 20)), vec![entry(21, 2, 30)]));
    let last = steps.len();
    steps.push(persist(None, vec![entry(22, 2, 10)]));
    steps.push(persist(None, (23..26).map(|n| entry(n, 2, 50)).collect()));
    if ends_with_vote {
        steps.push(persist(Some((5, 22)), vec![]));
    }
    let mut model = Model::new();
    let mut before = None;
    for (n, step) in steps.iter().enumerate() {
        if n == last {
            before = Some(disk.fork());
        }
        model.append(step);
        wal.append(step).unwrap();
        wal.sync().unwrap();
    }
    if witnessed {
        wal.witness().unwrap();
    }
    drop(wal);
    let state = model.states.pop().unwrap();
    Synced { disk, before: before.unwrap(), state }
}

impl Synced {
    /// The damage is refused by name, or nothing is missing. Answers whether it was refused.
    #[track_caller]
    fn check(&self, damaged: &SimDisk, what: &str) -> bool {
        match reopen(damaged) {
            Err(WalError::Damaged { file, .. }) => {
                assert!(file.ends_with(".wal") || file.ends_with("witness"), "{what}: {file}");
                true
            }
            Err(other) => panic!("{what}: {other}"),
            Ok(opened) => {
                assert_eq!(State::of(&opened), self.state, "{what}");
                // A second open finds the same.
                drop(opened);
                assert_eq!(State::of(&reopen(damaged).unwrap()), self.state, "{what}");
                false
            }
        }
    }

    /// Each file with its bytes.
    fn files(&self) -> Vec<(String, Vec<u8>)> {
        let names = self.disk.list().unwrap().into_iter();
        names.map(|name| (name.clone(), self.disk.bytes(&name).unwrap())).collect()
    }

    fn with(&self, name: &str, bytes: Vec<u8>) -> SimDisk {
        let damaged = self.disk.fork();
        damaged.set_bytes(name, bytes);
        damaged
    }
}

#[test]
fn a_changed_byte_anywhere_is_refused_or_mended() {
    for ends_with_vote in [true, false] {
        let log = synced(true, ends_with_vote);
        let mut refused = 0;
        for (name, whole) in log.files() {
            for place in 0..whole.len() {
                for change in [0x10, 0xff] {
                    let mut bytes = whole.clone();
                    bytes[place] ^= change;
                    let what = format!("byte {place} of {name}");
                    let damaged = log.with(&name, bytes);
                    match reopen(&damaged) {
                        Err(WalError::Damaged { file, offset, .. }) => {
                            assert!(file.ends_with(name.as_str()), "{file} for {what}");
                            // A vote's copy lies behind a pad of a sector.
                            let within = offset <= place as u64 && place as u64 - offset < 5000;
                            assert!(within, "{what}: offset {offset}");
                            refused += 1;
                        }
                        Err(other) => panic!("{what}: {other}"),
                        Ok(opened) => assert_eq!(State::of(&opened), log.state, "{what}"),
                    }
                }
            }
        }
        assert!(refused > 10_000, "{refused} refused");
    }
}

#[test]
fn a_lost_misplaced_stale_or_unreadable_sector_is_refused_or_mended() {
    for ends_with_vote in [true, false] {
        let log = synced(true, ends_with_vote);
        let mut refused = 0;
        let mut check = |damaged: &SimDisk, what: String| {
            refused += usize::from(log.check(damaged, &what));
        };
        for (name, whole) in log.files() {
            for size in SECTORS {
                for start in (0..whole.len()).step_by(size) {
                    let end = whole.len().min(start + size);
                    let sector = |from: &[u8]| {
                        let mut bytes = whole.clone();
                        let count = from.len().min(end - start);
                        bytes[start..start + count].copy_from_slice(&from[..count]);
                        bytes
                    };
                    let what = |how: &str| format!("{name}: sector of {size} at {start} {how}");
                    check(&log.with(&name, sector(&vec![0; size])), what("zeroed"));
                    check(&log.with(&name, sector(&vec![0xa5; size])), what("is noise"));
                    let stale = log.before.bytes(&name).unwrap_or_default();
                    let mut old = stale.get(start..).unwrap_or_default().to_vec();
                    old.resize(size, 0);
                    check(&log.with(&name, sector(&old)), what("stale"));
                    for (other, from) in log.files() {
                        for at in (0..from.len()).step_by(size) {
                            let from = &from[at..from.len().min(at + size)];
                            let how = format!("overwritten by {other} at {at}");
                            check(&log.with(&name, sector(from)), what(&how));
                        }
                    }
                    let damaged = log.disk.fork();
                    (start..end).step_by(512).for_each(|at| damaged.break_sector(&name, at));
                    check(&damaged, what("unreadable"));
                }
            }
        }
        assert!(refused > 500, "{refused} refused");
    }
}

#[test]
fn files_that_are_missing_cut_short_or_older_are_refused() {
    let log = synced(true, true);
    let mut refused = 0;
    for (name, whole) in log.files() {
        let missing = log.disk.fork();
        missing.remove(&name).unwrap();
        assert!(log.check(&missing, &format!("{name} is missing")));
        for len in (0..whole.len()).step_by(8) {
            let cut = log.with(&name, whole[..len].to_vec());
            refused += usize::from(log.check(&cut, &format!("{name} ends at {len}")));
        }
        if let Some(older) = log.before.bytes(&name) {
            log.check(&log.with(&name, older), &format!("{name} is older"));
        }
    }
    assert!(refused > 500, "{refused} refused");
    let empty = SimDisk::new();
    let error = reopen(&empty).err().expect("nothing is there").to_string();
    assert!(error.contains("holds no log; 'skein rejoin'"), "{error}");
}

#[test]
fn a_vote_survives_damage_before_the_witness_is_written() {
    let log = synced(false, true);
    let vote = (log.state.hard_state.term, log.state.hard_state.vote);
    let name = last_segment(&log.disk);
    let whole = log.disk.bytes(&name).unwrap();
    let check = |damaged: &SimDisk, what: String| match reopen(damaged) {
        Err(WalError::Damaged { .. }) => {}
        Err(other) => panic!("{what}: {other}"),
        Ok(opened) => {
            let found = State::of(&opened);
            assert_eq!((found.hard_state.term, found.hard_state.vote), vote, "{what}");
            assert_eq!(found.entries, log.state.entries, "{what}");
            drop(opened);
            assert_eq!(State::of(&reopen(damaged).unwrap()).hard_state.term, vote.0, "{what}");
        }
    };
    for place in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[place] ^= 0x40;
        check(&log.with(&name, bytes), format!("byte {place}"));
    }
    for size in SECTORS {
        // The vote's group begins where the disk ended before, or later.
        for start in (0..whole.len()).step_by(size) {
            let mut bytes = whole.clone();
            let end = whole.len().min(start + size);
            bytes[start..end].fill(0);
            let damaged = log.with(&name, bytes);
            if let Ok(opened) = reopen(&damaged) {
                let state = opened.recovered.hard_state;
                assert_eq!((state.term, state.vote), vote, "sector of {size} at {start}");
            }
        }
    }
}

/// Syncs fail and drop pending bytes, the node restarts, and then the power fails or not: the recovered records stay.
#[test]
fn what_a_failed_sync_dropped_is_written_again_before_anybody_counts_on_it() {
    let mut handed_over = std::collections::BTreeSet::new();
    for fail_at in 0..14 {
        for power_fails in [false, true] {
            let disk = SimDisk::new();
            let mut wal = begin(&disk).unwrap().wal;
            let mut synced = State::default();
            let mut model = Model::new();
            for n in 0..=fail_at {
                let term = 1 + n / 3;
                let index = n + 1;
                let step = match n % 3 {
                    0 => persist(Some((term, n)), vec![entry(index, term, 40)]),
                    _ => persist(None, vec![entry(index, term, 300)]),
                };
                model.append(&step);
                if n == fail_at {
                    let fail_sync = true;
                    disk.set_faults(Faults { fail_sync, drop_dirty: true, ..Faults::default() });
                    let failed = wal.append(&step).and_then(|()| wal.sync());
                    assert!(matches!(failed, Err(WalError::Io { what: "sync", .. })));
                } else {
                    wal.append(&step).unwrap();
                    wal.sync().unwrap();
                    synced = model.states.last().unwrap().clone();
                }
            }
            drop(wal);
            disk.kill_process();
            if fail_at % 2 == 0 {
                assert!(reopen(&disk).is_err(), "the disk still fails");
                disk.kill_process();
            }
            disk.set_faults(Faults::default());
            let opened = reopen(&disk).unwrap();
            let first = State::of(&opened);
            drop(opened);
            assert!(first.entries.starts_with(&synced.entries), "step {fail_at}");
            handed_over.insert(first.entries.len() - synced.entries.len());
            if power_fails {
                disk.crash(&mut SimRng::new(fail_at));
            } else {
                disk.kill_process();
            }
            let second = State::of(&reopen(&disk).unwrap());
            assert_eq!(second, first, "step {fail_at}, power fails: {power_fails}");
        }
    }
    assert_eq!(Vec::from_iter(handed_over), [0, 1], "some of it was readable after the failure");
}

/// Waits for a condition.
#[track_caller]
fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !condition() {
        assert!(begin.elapsed() < Duration::from_secs(30), "waited in vain: {what}");
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

fn started(disk: &SimDisk) -> WalThread {
    let Opened { wal, .. } = begin(disk).unwrap();
    WalThread::spawn(wal, |result| assert!(result.is_ok())).unwrap()
}

#[test]
fn an_idle_log_gets_its_witness_and_then_rests() {
    let disk = SimDisk::new();
    let thread = started(&disk);
    let ticketed = |n: u64| Persist { ticket: Ticket(n), ..persist(None, vec![entry(n, 1, 8)]) };
    thread.append(persist(Some((1, 0)), vec![]));
    (1..=3).for_each(|n| thread.append(ticketed(n)));
    // The last record damaged: taken for a torn one until the witness is written.
    wait_for("damage in the last group to be refused", || {
        let damaged = disk.fork();
        let name = last_segment(&damaged);
        let mut bytes = damaged.bytes(&name).unwrap();
        let Some(end) = bytes.iter().rposition(|byte| *byte != 0) else { return false };
        bytes[end] ^= 1;
        damaged.set_bytes(&name, bytes);
        matches!(reopen(&damaged), Err(WalError::Damaged { .. }))
    });
    // Another log is busy long enough for its witness to be written twice more; the idle log does nothing in the last part of that time.
    let other = SimDisk::new();
    let busy = started(&other);
    busy.append(persist(Some((1, 0)), vec![]));
    let (mut seen, mut index) = (other.bytes("witness"), 0);
    wait_for("the idle log to rest", || {
        let operations = disk.operations();
        for _ in 0..3 {
            wait_for("the busy log's witness", || {
                index += 1;
                busy.append(ticketed(index));
                let now = other.bytes("witness");
                std::mem::replace(&mut seen, now.clone()) != now
            });
        }
        disk.operations() == operations
    });
    drop(busy);
    assert_eq!(reopen(&other).unwrap().recovered.last_index(), LogIndex(index));
}

#[test]
fn a_log_that_is_closed_in_order_has_its_witness() {
    let disk = SimDisk::new();
    let thread = started(&disk);
    thread.append(persist(Some((1, 0)), vec![entry(1, 1, 8)]));
    drop(thread);
    let name = last_segment(&disk);
    let mut bytes = disk.bytes(&name).unwrap();
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    bytes[end] ^= 1;
    disk.set_bytes(&name, bytes);
    assert!(matches!(reopen(&disk), Err(WalError::Damaged { .. })));
    assert_eq!(options().segment_bytes, 1024, "small, so that all this meets several segments");
}
