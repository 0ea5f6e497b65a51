//! The write-ahead log on a disk that loses, tears and changes bytes.

mod support;

use proptest::{collection::vec, prelude::*};
use skein_log::{
    ClusterId, Persist, ProgramHash, Ticket,
    disk::{
        DirDisk, Disk,
        sim::{Faults, SimDisk, SimRng},
    },
    identity::Identity,
    wal::{Opened, Wal, WalError, WalOptions, thread::WalThread},
};
use skein_model::{LogIndex, Term};
use std::{
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};
use support::{CLUSTER, Model, PROGRAM, State, begin, entry, open, options, persist, reopen};

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

/// The outcome of a script.
struct Run {
    model: Model,
    /// The log was begun.
    begun: bool,
    /// The number of the model's states that are durable.
    synced: usize,
    result: Result<(), WalError>,
}

/// Runs the script, syncing after every second step.
fn run_script(disk: &SimDisk) -> Run {
    let mut model = Model::new();
    let (mut synced, mut begun) = (0, false);
    let mut run = || {
        let mut wal = begin(disk)?.wal;
        begun = true;
        for (n, step) in script().iter().enumerate() {
            // A failing step may be durable, too.
            model.append(step);
            wal.append(step)?;
            if n % 2 == 1 {
                wal.sync()?;
                synced = model.states.len() - 1;
                // As the log's thread does; every other time the file grows with its records.
                if n % 4 == 1 {
                    wal.prepare()?;
                } else {
                    wal.witness()?;
                }
            }
        }
        Ok(())
    };
    let result = run();
    Run { model, begun, synced, result }
}

#[test]
fn a_crash_at_every_operation_keeps_what_was_synced() {
    let full = SimDisk::new();
    run_script(&full).result.expect("nothing fails");
    let operations = full.operations();
    assert!(operations > 40, "{operations} operations");
    let mut recovered_counts = std::collections::BTreeSet::new();
    for stop_after in 0..operations {
        for seed in 0..30 {
            let disk = SimDisk::new();
            disk.set_faults(Faults { stop_after: Some(stop_after), ..Faults::default() });
            let Run { mut model, begun, synced, result } = run_script(&disk);
            result.expect_err("the power failed");
            let mut rng = SimRng::new(seed * 1000 + stop_after);
            disk.crash(&mut rng);
            let context = format!("stopped after {stop_after} operations, seed {seed}");
            let opened = if begun { reopen(&disk) } else { begin(&disk) };
            let mut opened = opened.unwrap_or_else(|error| panic!("{context}: {error}"));
            let found = State::of(&opened);
            model.check(&found, synced, &context);
            recovered_counts.insert(found.entries.len());

            // It continues from there, and a second crash keeps that too.
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

fn script_log() -> SimDisk {
    let disk = SimDisk::new();
    run_script(&disk).result.expect("nothing fails");
    disk.kill_process();
    disk
}

#[test]
fn a_directory_of_another_cluster_program_version_or_durability_is_refused() {
    let disk = script_log();
    let with = |options| Wal::open(Arc::new(disk.clone()), options).err();
    let other = WalOptions { cluster: ClusterId(8), ..options() };
    assert!(matches!(with(other), Some(WalError::OtherCluster { .. })));
    let other = WalOptions { program: ProgramHash([8; 32]), ..options() };
    assert!(matches!(with(other), Some(WalError::OtherProgram { .. })));
    let memory = Identity::open(Arc::new(disk.clone()), CLUSTER, PROGRAM, false).err();
    assert!(matches!(memory, Some(WalError::OtherDurability { made_for: "fsync", .. })));

    let newer = disk.fork();
    let name = &disk.list().unwrap()[0];
    let mut bytes = disk.bytes(name).unwrap();
    bytes[8] = 8;
    let crc = {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&bytes[..12]);
        hasher.update(&bytes[16..96]);
        hasher.finalize()
    };
    bytes[12..16].copy_from_slice(&crc.to_le_bytes());
    newer.set_bytes(name, bytes);
    assert!(matches!(open(&newer).err(), Some(WalError::Version { found: 8, .. })));
}

/// A client that knew them could send bytes that pass for records of the log.
#[test]
fn nobody_can_guess_the_first_bytes_of_a_record() {
    const SALT: std::ops::Range<usize> = 88..96;
    const FIRST_TAG: std::ops::Range<usize> = 96..100;
    let (mut salts, mut tags) = (Vec::new(), std::collections::BTreeSet::new());
    for _ in 0..20 {
        let dir = tempfile::tempdir().unwrap();
        let disk = DirDisk::open(dir.path()).unwrap();
        let mut wal = Wal::create(Arc::new(disk), options()).unwrap().wal;
        let entries = (1..=3).map(|index| entry(index, 1, 600)).collect();
        wal.append(&persist(Some((1, 0)), entries)).unwrap();
        for number in 1..=2 {
            let bytes = std::fs::read(dir.path().join(format!("{number:016x}.wal"))).unwrap();
            salts.push(u64::from_le_bytes(bytes[SALT].try_into().unwrap()));
            tags.insert(bytes[FIRST_TAG].to_vec());
        }
    }
    let differ = salts.iter().fold(0, |bits, salt| bits | (salt ^ salts[0]));
    // One bit is set in each: no tag is zero.
    assert!(differ.count_ones() >= 63, "{differ:#x}");
    assert_eq!(tags.len(), salts.len(), "each segment's records begin otherwise");
}

fn open_real(disk: DirDisk) -> Result<Opened, WalError> {
    let is_new = !disk.list().unwrap().iter().any(|name| name.ends_with(".wal"));
    if is_new {
        Wal::create(Arc::new(disk), options())
    } else {
        Wal::open(Arc::new(disk), options())
    }
}

#[test]
fn two_nodes_cannot_share_a_directory() {
    let dir = tempfile::tempdir().unwrap();
    let disk = || DirDisk::open(dir.path()).unwrap();
    let first = open_real(disk()).unwrap();
    let error = open_real(disk()).err().expect("it is in use");
    assert!(matches!(error, WalError::InUse { .. }));
    assert!(error.to_string().contains("is in use by another node"), "{error}");
    drop(first);
    open_real(disk()).expect("it is free again");
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
    let open = || open_real(DirDisk::open(dir.path()).unwrap()).unwrap();
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
    let open = || Identity::open(Arc::new(disk.clone()), CLUSTER, PROGRAM, false);
    assert!(matches!(open().err(), Some(WalError::NoLog { .. })));
    assert_eq!(create(&disk, false).unwrap().incarnation(), 0);
    for expected in 1..3 {
        assert_eq!(open().unwrap().incarnation(), expected);
    }
    let first = open().unwrap();
    assert!(matches!(open().err(), Some(WalError::InUse { .. })));
    drop(first);
    let other = Identity::open(Arc::new(disk.clone()), ClusterId(1), PROGRAM, false).err();
    assert!(matches!(other, Some(WalError::OtherCluster { .. })));
    let as_log = Wal::open(Arc::new(disk.clone()), options()).err();
    assert!(matches!(as_log, Some(WalError::OtherDurability { made_for: "memory", .. })));
    let mut bytes = disk.bytes("identity").unwrap();
    bytes[60] ^= 1;
    disk.set_bytes("identity", bytes);
    assert!(matches!(open().err(), Some(WalError::Damaged { .. })));
}

fn create(disk: &SimDisk, sole: bool) -> Result<Identity, WalError> {
    Identity::create(Arc::new(disk.clone()), CLUSTER, PROGRAM, 0, sole)
}

#[test]
fn a_memory_marker_of_a_founder_counts_once_it_has_met_others() {
    let disk = SimDisk::new();
    let open = |sole| Identity::open(Arc::new(disk.clone()), CLUSTER, PROGRAM, sole).unwrap();
    drop(create(&disk, true));
    for sole in [true, false] {
        assert_eq!(open(sole).incarnation(), 0, "nobody heard of it");
    }
    open(true).meets_others().unwrap();
    for expected in 1..3 {
        // Whatever its configuration says by now.
        assert_eq!(open(true).incarnation(), expected);
    }
    // One that joins is not alone, either.
    let joins = Identity::create(Arc::new(disk.clone()), CLUSTER, PROGRAM, 7, true).unwrap();
    drop(joins);
    assert_eq!(open(true).incarnation(), 8);
}

#[test]
fn a_memory_marker_of_an_earlier_version_is_read() {
    for (sole, expected) in [(true, 0), (false, 6)] {
        let disk = SimDisk::new();
        let mut bytes = b"SKEINID1".to_vec();
        bytes.extend(CLUSTER.0.to_le_bytes());
        bytes.extend(PROGRAM.0);
        bytes.extend(5_u64.to_le_bytes());
        bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
        disk.set_bytes("identity", bytes);
        let open = || Identity::open(Arc::new(disk.clone()), CLUSTER, PROGRAM, sole).unwrap();
        assert_eq!(open().incarnation(), expected);
        open().meets_others().unwrap();
        assert!(open().incarnation() > 0);
    }
}

#[test]
fn a_memory_marker_never_goes_back_over_a_crash() {
    for (stop_after, seed) in (0..40).flat_map(|stop| (0..20).map(move |seed| (stop, seed))) {
        let disk = SimDisk::new();
        let open = || Identity::open(Arc::new(disk.clone()), CLUSTER, PROGRAM, false);
        disk.set_faults(Faults { stop_after: Some(stop_after), ..Faults::default() });
        let mut spoken = None;
        let mut start = create(&disk, false);
        let begun = start.is_ok();
        while let Ok(identity) = start {
            // From here on the replica may promise things as this incarnation.
            assert!(spoken < Some(identity.incarnation()));
            spoken = Some(identity.incarnation());
            drop(identity);
            start = open();
        }
        disk.crash(&mut SimRng::new(seed));
        let next = if begun { open() } else { create(&disk, false) };
        let next = next.expect("no torn file").incarnation();
        assert!(spoken < Some(next), "stopped after {stop_after}, seed {seed}");
    }
}

#[test]
fn that_a_founder_met_others_is_not_forgotten_over_a_crash() {
    let mut met = 0;
    for (stop_after, seed) in (0..40).flat_map(|stop| (0..20).map(move |seed| (stop, seed))) {
        let disk = SimDisk::new();
        drop(create(&disk, true).unwrap());
        disk.set_faults(Faults { stop_after: Some(stop_after), ..Faults::default() });
        let open = || Identity::open(Arc::new(disk.clone()), CLUSTER, PROGRAM, true);
        let told = open().and_then(|mut identity| identity.meets_others()).is_ok();
        disk.crash(&mut SimRng::new(seed));
        let next = open().expect("no torn file").incarnation();
        assert!(next > 0 || !told, "stopped after {stop_after}, seed {seed}");
        met += u64::from(told);
    }
    assert!((100..700).contains(&met), "{met} of 800 knew it before the crash");
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
        // It may still be filling the file ahead, which nothing waits for.
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
fn while_the_disk_is_full_writes_wait() {
    // At each place where the disk may be full: within a record, between two, where a segment begins.
    for space_bytes in (0..2500).step_by(61) {
        let disk = SimDisk::new();
        let (sender, receiver) = mpsc::channel();
        let wal = open(&disk).unwrap().wal;
        let thread = WalThread::spawn(wal, move |result| sender.send(result).unwrap()).unwrap();
        disk.set_faults(Faults { space_bytes: Some(space_bytes), ..Faults::default() });
        for n in 1..=30 {
            let one = persist(Some((1, 0)), vec![entry(n, 1, 90)]);
            thread.append(Persist { ticket: Ticket(n), ..one });
        }
        let began = Instant::now();
        while !thread.is_full() {
            assert!(began.elapsed() < Duration::from_secs(60), "it does not wait");
            std::thread::yield_now();
        }
        assert!(receiver.try_iter().all(|ticket| ticket.unwrap() < Ticket(30)));
        if space_bytes % 2 == 0 {
            disk.set_faults(Faults::default());
            while receiver.recv().unwrap().unwrap() < Ticket(30) {}
            assert!(!thread.is_full());
            drop(thread);
            disk.crash(&mut SimRng::new(1));
            assert_eq!(open(&disk).unwrap().recovered.last_index(), LogIndex(30));
        } else {
            // Its end is not delayed.
            drop(thread);
            assert!(matches!(receiver.recv().unwrap(), Err(WalError::DiskFull { .. })));
        }
    }
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

    /// Any history of appends and overwritten suffixes: every range has its last written content, now and after a restart.
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
