//! The write-ahead log against a disk that loses, tears and changes bytes.

use bytes::Bytes;
use proptest::{collection::vec, prelude::*};
use skein_log::{
    ClusterId, EntryKind, HardState, LogEntry, Persist, ProgramHash, Ticket,
    disk::{
        DirDisk, Disk,
        sim::{Faults, SimDisk, SimRng},
    },
    identity::Identity,
    wal::{Opened, Wal, WalError, WalOptions, thread::WalThread},
};
use skein_model::{LogIndex, Term};
use std::sync::{Arc, mpsc};

const CLUSTER: ClusterId = ClusterId(7);
const PROGRAM: ProgramHash = ProgramHash([9; 32]);

fn options() -> WalOptions {
    WalOptions { segment_bytes: 1024, tail_bytes: 100, ..WalOptions::new(CLUSTER, PROGRAM) }
}

fn open(disk: &SimDisk) -> Result<Opened, WalError> {
    Wal::open(Arc::new(disk.clone()), options())
}

fn entry(index: u64, term: u64, len: usize) -> LogEntry {
    LogEntry {
        index: LogIndex(index),
        term: Term(term),
        kind: if index % 7 == 3 { EntryKind::Membership } else { EntryKind::Normal },
        payload: Bytes::from(vec![(index * 31 + term) as u8; len]),
    }
}

fn persist(hard_state: Option<(u64, u64)>, entries: Vec<LogEntry>) -> Persist {
    let hard_state = hard_state.map(|(term, commit)| HardState {
        term: Term(term),
        vote: term % 3,
        commit: LogIndex(commit),
    });
    Persist { ticket: Ticket::default(), hard_state, entries }
}

/// What a log says: compared before and after a crash.
#[derive(Clone, Debug, Default, PartialEq)]
struct State {
    hard_state: HardState,
    entries: Vec<LogEntry>,
}

impl State {
    fn of(opened: &Opened) -> Self {
        let last = opened.recovered.last_index();
        let reader = opened.wal.reader();
        let entries = match last.0 {
            0 => Vec::new(),
            _ => reader.read(LogIndex(1), last, usize::MAX).expect("a recovered log can be read"),
        };
        for entry in &entries {
            assert_eq!(opened.recovered.term(entry.index), Some(entry.term));
        }
        Self { hard_state: opened.recovered.hard_state, entries }
    }

    fn push(&mut self, entry: LogEntry) {
        self.entries.push(entry);
    }
}

/// All states that a log goes through, record by record.
#[derive(Default)]
struct Model {
    states: Vec<State>,
}

impl Model {
    fn new() -> Self {
        Self { states: vec![State::default()] }
    }

    fn append(&mut self, persist: &Persist) {
        let mut state = self.states.last().expect("never empty").clone();
        if let Some(hard_state) = persist.hard_state {
            state.hard_state = hard_state;
            self.states.push(state.clone());
        }
        if let Some(first) = persist.entries.first()
            && first.index.0 <= state.entries.len() as u64
        {
            state.entries.truncate(first.index.0 as usize - 1);
            self.states.push(state.clone());
        }
        for entry in &persist.entries {
            state.push(entry.clone());
            self.states.push(state.clone());
        }
    }

    /// The state is one that the log had, and no earlier one than `synced`.
    fn check(&self, found: &State, synced: usize, context: &str) {
        // The commit index is a hint: it is lowered to the last entry.
        let matches = |state: &State| {
            let last = LogIndex(state.entries.len() as u64);
            let mut hard_state = state.hard_state;
            hard_state.commit = hard_state.commit.min(last);
            found.entries == state.entries && found.hard_state == hard_state
        };
        assert!(
            self.states[synced..].iter().any(matches),
            "{context}: recovered {} entries and {:?}, but {} states from record {synced} on are others",
            found.entries.len(),
            found.hard_state,
            self.states.len() - synced,
        );
    }
}

/// A log's life: appends, group commits, new terms that overwrite, several segments.
fn script() -> Vec<Persist> {
    let mut steps = vec![persist(Some((1, 0)), vec![])];
    steps.extend((1..=6).map(|n| persist(Some((1, n - 1)), vec![entry(n, 1, 40)])));
    steps.push(persist(None, (7..=12).map(|n| entry(n, 1, 30)).collect()));
    steps.push(persist(Some((3, 8)), vec![entry(10, 3, 100), entry(11, 3, 0)]));
    steps.push(persist(Some((3, 9)), vec![entry(12, 3, 700)]));
    steps.push(persist(Some((3, 12)), (13..=20).map(|n| entry(n, 3, 90)).collect()));
    steps.push(persist(Some((4, 12)), vec![]));
    steps.push(persist(None, vec![entry(14, 4, 2000), entry(15, 4, 8)]));
    steps
}

/// Runs the script, syncing after every second step; returns the model and how many of its states are durable.
fn run_script(disk: &SimDisk) -> (Model, usize, Result<(), WalError>) {
    let mut model = Model::new();
    let mut synced = 0;
    let mut run = || {
        let mut wal = open(disk)?.wal;
        for (n, step) in script().iter().enumerate() {
            // Also what fails may be durable.
            model.append(step);
            wal.append(step)?;
            if n % 2 == 1 {
                wal.sync()?;
                synced = model.states.len() - 1;
                // As the log's thread does; every other time the file grows with its records.
                if n % 4 == 1 {
                    wal.prepare()?;
                }
            }
        }
        Ok(())
    };
    let result = run();
    (model, synced, result)
}

#[test]
fn a_crash_at_every_operation_keeps_what_was_synced() {
    let full = SimDisk::new();
    run_script(&full).2.expect("nothing fails");
    let operations = full.operations();
    assert!(operations > 40, "{operations} operations");
    let mut recovered_counts = std::collections::BTreeSet::new();
    for stop_after in 0..operations {
        for seed in 0..30 {
            let disk = SimDisk::new();
            disk.set_faults(Faults { stop_after: Some(stop_after), ..Faults::default() });
            let (mut model, synced, result) = run_script(&disk);
            result.expect_err("the power failed");
            let mut rng = SimRng::new(seed * 1000 + stop_after);
            disk.crash(&mut rng);
            let context = format!("stopped after {stop_after} operations, seed {seed}");
            let mut opened = open(&disk).unwrap_or_else(|error| panic!("{context}: {error}"));
            let found = State::of(&opened);
            model.check(&found, synced, &context);
            recovered_counts.insert(found.entries.len());

            // It goes on from there, and a second crash keeps that too.
            let term = found.hard_state.term.0 + 1;
            let last = found.entries.len() as u64;
            let step = persist(Some((term, 0)), vec![entry(last.max(1), term, 60)]);
            model.states = vec![found];
            model.append(&step);
            opened.wal.append(&step).expect("the disk works again");
            opened.wal.sync().expect("the disk works again");
            drop(opened);
            disk.crash(&mut rng);
            let found =
                State::of(&open(&disk).unwrap_or_else(|error| panic!("{context}: {error}")));
            model.check(&found, model.states.len() - 1, &context);
        }
    }
    assert!(recovered_counts.len() > 10, "crashes hit different places: {recovered_counts:?}");
}

#[test]
fn an_append_torn_at_every_byte_is_cut_off() {
    let disk = SimDisk::new();
    let mut wal = open(&disk).unwrap().wal;
    wal.append(&persist(Some((1, 0)), vec![entry(1, 1, 10)])).unwrap();
    wal.sync().unwrap();
    let name = "0000000000000001.wal";
    let before = disk.bytes(name).unwrap().len();
    wal.append(&persist(None, vec![entry(2, 1, 56), entry(3, 1, 8)])).unwrap();
    drop(wal);
    let whole = disk.bytes(name).unwrap();
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

/// A log of several segments in which each record is synced before the next one is written.
fn synced_log() -> SimDisk {
    let disk = SimDisk::new();
    let mut wal = open(&disk).unwrap().wal;
    wal.append(&persist(Some((1, 0)), vec![])).unwrap();
    wal.sync().unwrap();
    for n in 1..=16 {
        wal.append(&persist(None, vec![entry(n, 1, 100)])).unwrap();
        wal.sync().unwrap();
    }
    drop(wal);
    disk
}

#[test]
fn a_changed_byte_anywhere_but_in_the_last_record_is_refused() {
    let disk = synced_log();
    let names: Vec<String> = disk.list().unwrap();
    assert!(names.len() >= 3, "{names:?}");
    let last_name = names.last().unwrap();
    let last_record = disk.bytes(last_name).unwrap().len() - 152;
    for name in &names {
        let whole = disk.bytes(name).unwrap();
        for place in 0..whole.len() {
            let damaged = disk.fork();
            let mut bytes = whole.clone();
            bytes[place] ^= 0x10;
            damaged.set_bytes(name, bytes);
            match open(&damaged) {
                Err(WalError::Damaged { file, offset, .. }) => {
                    assert!(file.ends_with(name.as_str()), "{file} for {name}");
                    let within = offset <= place as u64 && place as u64 - offset < 160;
                    assert!(within, "byte {place} of {name}: offset {offset}");
                }
                Err(other) => panic!("byte {place} of {name}: {other}"),
                // Nothing can vouch for the very last record.
                Ok(opened) => {
                    assert!(name == last_name && place >= last_record, "byte {place} of {name}");
                    assert_eq!(opened.recovered.last_index(), LogIndex(15));
                    assert!(opened.repair.is_some());
                }
            }
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
        let name = "0000000000000001.wal";
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

#[test]
fn misdirected_and_stale_sectors_are_refused() {
    let disk = synced_log();
    let names = disk.list().unwrap();
    let first = disk.bytes(&names[0]).unwrap();
    let second = disk.bytes(&names[1]).unwrap();
    // Records begin after a header of 96 bytes and a hard state of 56; each entry takes 152.
    let misdirected = {
        let mut bytes = first.clone();
        let (from, to) = (152..304, 304..456);
        bytes.copy_within(from, to.start);
        bytes
    };
    let of_another_segment = {
        let mut bytes = second.clone();
        bytes[96 + 152..96 + 304].copy_from_slice(&first[96 + 56 + 152..96 + 56 + 304]);
        bytes
    };
    let cases = [
        (&names[0], misdirected, "misdirected within a segment"),
        (&names[1], of_another_segment, "misdirected from another segment"),
        (&names[1], first.clone(), "a segment in place of another"),
        (&names[0], first[..first.len() - 200].to_vec(), "a segment's end is missing"),
    ];
    for (name, bytes, what) in cases {
        let damaged = disk.fork();
        damaged.set_bytes(name, bytes);
        assert!(matches!(open(&damaged).err(), Some(WalError::Damaged { .. })), "{what}");
    }
    let missing = disk.fork();
    missing.remove(&names[1]).unwrap();
    let error = open(&missing).err().expect("a segment is missing").to_string();
    assert!(
        error.contains("0000000000000002.wal: damaged at byte 0: the file is missing"),
        "{error}"
    );
}

#[test]
fn a_directory_of_another_cluster_program_version_or_durability_is_refused() {
    let disk = synced_log();
    let with = |options| Wal::open(Arc::new(disk.clone()), options).err();
    let other = WalOptions { cluster: ClusterId(8), ..options() };
    assert!(matches!(with(other), Some(WalError::OtherCluster { .. })));
    let other = WalOptions { program: ProgramHash([8; 32]), ..options() };
    assert!(matches!(with(other), Some(WalError::OtherProgram { .. })));
    let memory = Identity::open(&disk, CLUSTER, PROGRAM).err();
    assert!(matches!(memory, Some(WalError::OtherDurability { made_for: "fsync", .. })));

    let newer = disk.fork();
    let name = &disk.list().unwrap()[0];
    let mut bytes = disk.bytes(name).unwrap();
    bytes[8] = 2;
    let crc = {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&bytes[..12]);
        hasher.update(&bytes[16..96]);
        hasher.finalize()
    };
    bytes[12..16].copy_from_slice(&crc.to_le_bytes());
    newer.set_bytes(name, bytes);
    assert!(matches!(open(&newer).err(), Some(WalError::Version { found: 2, .. })));
}

#[test]
fn two_nodes_cannot_share_a_directory() {
    let dir = tempfile::tempdir().unwrap();
    let disk = || Arc::new(DirDisk::open(dir.path()).unwrap());
    let first = Wal::open(disk(), options()).unwrap();
    let error = Wal::open(disk(), options()).err().expect("it is in use");
    assert!(matches!(error, WalError::InUse { .. }));
    assert!(error.to_string().contains("is in use by another node"), "{error}");
    drop(first);
    Wal::open(disk(), options()).expect("it is free again");
}

#[test]
fn what_a_restarted_process_found_survives_a_power_failure() {
    for seed in 0..50 {
        let disk = SimDisk::new();
        let mut wal = open(&disk).unwrap().wal;
        wal.append(&persist(Some((1, 0)), vec![entry(1, 1, 8)])).unwrap();
        // Written, not synced; the kernel lives on.
        disk.kill_process();
        drop(wal);
        let opened = open(&disk).unwrap();
        assert_eq!(opened.recovered.last_index(), LogIndex(1));
        disk.crash(&mut SimRng::new(seed));
        assert_eq!(open(&disk).unwrap().recovered.last_index(), LogIndex(1), "seed {seed}");
    }
}

#[test]
fn a_failed_sync_stops_the_log_for_good() {
    let disk = SimDisk::new();
    let mut wal = open(&disk).unwrap().wal;
    wal.append(&persist(Some((1, 0)), vec![entry(1, 1, 8)])).unwrap();
    disk.set_faults(Faults { fail_sync: true, ..Faults::default() });
    assert!(matches!(wal.sync(), Err(WalError::Io { what: "sync", .. })));
    disk.set_faults(Faults::default());
    assert!(matches!(wal.sync(), Err(WalError::Stopped { .. })));
    assert!(matches!(wal.append(&persist(Some((2, 0)), vec![])), Err(WalError::Stopped { .. })));
}

#[test]
fn a_full_disk_is_named_and_what_fitted_is_kept() {
    let disk = SimDisk::new();
    let mut wal = open(&disk).unwrap().wal;
    wal.append(&persist(Some((1, 0)), vec![entry(1, 1, 8)])).unwrap();
    wal.sync().unwrap();
    disk.set_faults(Faults { space_bytes: Some(70), ..Faults::default() });
    let error = wal.append(&persist(None, vec![entry(2, 1, 100)])).unwrap_err();
    assert!(matches!(error, WalError::DiskFull { .. }));
    assert!(error.to_string().contains("disk full; free space"), "{error}");
    drop(wal);
    disk.set_faults(Faults::default());
    assert_eq!(open(&disk).unwrap().recovered.last_index(), LogIndex(1));
}

#[test]
fn real_files_keep_entries_over_segments_and_restarts() {
    let dir = tempfile::tempdir().unwrap();
    let open = || Wal::open(Arc::new(DirDisk::open(dir.path()).unwrap()), options()).unwrap();
    let mut written = Vec::new();
    for round in 0..4_u64 {
        let mut opened = open();
        assert_eq!(opened.repair, None);
        assert_eq!(State::of(&opened).entries, written);
        for n in 1..=10 {
            let entry = entry(round * 10 + n, round + 1, 90);
            written.push(entry.clone());
            opened.wal.append(&persist(Some((round + 1, round * 10)), vec![entry])).unwrap();
            opened.wal.sync().unwrap();
        }
    }
    let opened = open();
    assert_eq!(opened.recovered.last_index(), LogIndex(40));
    assert_eq!(opened.recovered.hard_state.term, Term(4));
}

#[test]
fn a_kept_memory_marker_counts_starts() {
    let disk = SimDisk::new();
    let open = || Identity::open(&disk, CLUSTER, PROGRAM);
    for expected in 0..3 {
        assert_eq!(open().unwrap().incarnation(), expected);
    }
    let first = open().unwrap();
    assert!(matches!(open().err(), Some(WalError::InUse { .. })));
    drop(first);
    let other = Identity::open(&disk, ClusterId(1), PROGRAM).err();
    assert!(matches!(other, Some(WalError::OtherCluster { .. })));
    let as_log = Wal::open(Arc::new(disk.clone()), options()).err();
    assert!(matches!(as_log, Some(WalError::OtherDurability { made_for: "memory", .. })));
    let mut bytes = disk.bytes("identity").unwrap();
    bytes[60] ^= 1;
    disk.set_bytes("identity", bytes);
    assert!(matches!(open().err(), Some(WalError::Damaged { .. })));
}

#[test]
fn a_memory_marker_never_goes_back_over_a_crash() {
    for stop_after in 0..40 {
        for seed in 0..20 {
            let disk = SimDisk::new();
            disk.set_faults(Faults { stop_after: Some(stop_after), ..Faults::default() });
            let mut spoken = None;
            while let Ok(identity) = Identity::open(&disk, CLUSTER, PROGRAM) {
                // From here on the replica may promise things as this incarnation.
                assert!(spoken < Some(identity.incarnation()));
                spoken = Some(identity.incarnation());
            }
            disk.crash(&mut SimRng::new(seed));
            let next = Identity::open(&disk, CLUSTER, PROGRAM).expect("no torn file").incarnation();
            assert!(spoken < Some(next), "stopped after {stop_after}, seed {seed}");
        }
    }
}

#[test]
fn the_thread_reports_the_newest_durable_ticket_and_the_failure_that_ends_it() {
    let disk = SimDisk::new();
    let wal = open(&disk).unwrap().wal;
    let reader = wal.reader();
    let (sender, receiver) = mpsc::channel();
    let thread = WalThread::spawn(wal, move |result| sender.send(result).unwrap()).unwrap();
    let mut first = persist(Some((1, 0)), vec![]);
    first.ticket = Ticket(1);
    thread.append(first);
    for n in 1..=100 {
        thread.append(Persist { ticket: Ticket(n + 1), ..persist(None, vec![entry(n, 1, 8)]) });
    }
    let mut last = Ticket(0);
    while last < Ticket(101) {
        let ticket = receiver.recv().unwrap().unwrap();
        assert!(ticket > last, "tickets grow");
        last = ticket;
    }
    assert_eq!(reader.read(LogIndex(1), LogIndex(100), usize::MAX).unwrap().len(), 100);
    disk.set_faults(Faults { fail_sync: true, ..Faults::default() });
    thread.append(Persist { ticket: Ticket(102), ..persist(None, vec![entry(101, 1, 8)]) });
    assert!(matches!(receiver.recv().unwrap(), Err(WalError::Io { .. })));
    thread.append(Persist { ticket: Ticket(103), ..persist(None, vec![entry(102, 1, 8)]) });
    drop(thread);
    assert!(receiver.recv().is_err(), "nothing after the failure");
}

#[test]
fn who_has_the_claim_writes_by_itself_and_what_is_handed_over_meanwhile_comes_after() {
    let disk = SimDisk::new();
    let (sender, receiver) = mpsc::channel();
    let wal = open(&disk).unwrap().wal;
    let reader = wal.reader();
    let thread = WalThread::spawn(wal, move |result| sender.send(result).unwrap()).unwrap();
    let numbered =
        |n: u64| Persist { ticket: Ticket(n), ..persist(Some((1, 0)), vec![entry(n, 1, 8)]) };
    let claim = || loop {
        // It may still be filling the file ahead, which is not waited for.
        if let Some(claim) = thread.claim() {
            break claim;
        }
        std::thread::yield_now();
    };
    let mut next = 1;
    for _ in 0..50 {
        let held = claim();
        assert!(thread.claim().is_none(), "one at a time");
        thread.append(numbered(next + 2));
        assert!(receiver.try_recv().is_err(), "it waits for who has the claim");
        assert_eq!(held.write(&[numbered(next), numbered(next + 1)]).unwrap(), Ticket(next + 1));
        assert_eq!(receiver.recv().unwrap().unwrap(), Ticket(next + 2));
        next += 3;
    }
    let read = reader.read(LogIndex(1), LogIndex(next - 1), usize::MAX).unwrap();
    assert_eq!(read.len() as u64, next - 1);
    let held = claim();
    held.write(&[numbered(next)]).unwrap();
    disk.crash(&mut SimRng::new(1));
    drop(thread);
    assert_eq!(open(&disk).unwrap().recovered.last_index(), LogIndex(next));
}

#[test]
fn what_fails_under_a_claim_is_said_to_who_has_it_and_nothing_is_written_after() {
    let disk = SimDisk::new();
    let (sender, receiver) = mpsc::channel();
    let thread = WalThread::spawn(open(&disk).unwrap().wal, move |result| {
        sender.send(result).unwrap();
    })
    .unwrap();
    disk.set_faults(Faults { fail_sync: true, ..Faults::default() });
    let held = thread.claim().unwrap();
    assert!(held.write(&[persist(None, vec![entry(1, 1, 8)])]).is_err());
    thread.append(persist(None, vec![entry(2, 1, 8)]));
    assert!(matches!(receiver.recv().unwrap(), Err(WalError::Stopped { .. })));
}

#[test]
fn dropping_the_thread_writes_what_it_was_given() {
    let disk = SimDisk::new();
    let thread = WalThread::spawn(open(&disk).unwrap().wal, |_| {}).unwrap();
    thread.append(persist(Some((1, 0)), vec![]));
    for n in 1..=50 {
        thread.append(persist(None, vec![entry(n, 1, 8)]));
    }
    drop(thread);
    disk.crash(&mut SimRng::new(1));
    assert_eq!(open(&disk).unwrap().recovered.last_index(), LogIndex(50));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Any history of appends and overwritten suffixes: every range reads as it was written last, now and after a restart.
    #[test]
    fn every_range_reads_back(steps in vec((0..12_u64, 1..6_u64, 0..400_usize), 1..40), max_bytes in 1..2000_usize) {
        let disk = SimDisk::new();
        let mut opened = open(&disk).unwrap();
        let mut model = State::default();
        for (term, (back, count, len)) in (1..).zip(steps) {
            let first = (model.entries.len() as u64 + 1).saturating_sub(back).max(1);
            let entries: Vec<_> = (first..first + count).map(|n| entry(n, term, len)).collect();
            model.entries.truncate(first as usize - 1);
            model.entries.extend(entries.iter().cloned());
            opened.wal.append(&persist(Some((term, 0)), entries)).unwrap();
        }
        for restarted in [false, true] {
            if restarted {
                drop(opened);
                opened = open(&disk).unwrap();
                prop_assert_eq!(&State::of(&opened).entries, &model.entries);
            }
            let reader = opened.wal.reader();
            let last = LogIndex(model.entries.len() as u64);
            prop_assert_eq!(opened.wal.last_index(), last);
            for from in 1..=last.0 {
                let read = reader.read(LogIndex(from), last, max_bytes).unwrap();
                let rest = &model.entries[from as usize - 1..];
                prop_assert_eq!(&read[..], &rest[..read.len()]);
                let bytes: usize = read.iter().map(|entry| entry.payload.len()).sum();
                prop_assert!(!read.is_empty() && (bytes <= max_bytes || read.len() == 1));
            }
            prop_assert!(reader.read(last.next(), last.next(), 1).is_err());
        }
    }
}
