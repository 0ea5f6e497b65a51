//! The cost of an entry on this machine, for the decision records.
//!
//! `cargo run --release -p skein-log --example cost`

use skein_log::{
    ClusterId, Config, Consensus, Durability, Persist, ProgramHash, Recovered,
    disk::DirDisk,
    wal::{Wal, WalOptions},
};
use skein_model::ReplicaId;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

fn single(durability: Durability) -> Config {
    Config { durability, ..Config::new(ReplicaId(1), vec![ReplicaId(1)]) }
}

fn one_replica_with_a_memory_log() {
    let mut consensus =
        Consensus::new(single(Durability::Memory), Recovered::default(), None).unwrap();
    consensus.campaign_now();
    while consensus.take_ready().is_some() {}
    let (count, mut committed) = (200_000, 0);
    let start = Instant::now();
    for _ in 0..count {
        consensus.propose(vec![1; 200]).unwrap();
        while let Some(batch) = consensus.take_ready() {
            committed += batch.committed.len();
        }
    }
    assert_eq!(committed, count);
    println!("memory, 200 bytes: {} ns an entry", start.elapsed().as_nanos() / count as u128);
}

fn one_replica_with_a_log_on_disk() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Arc::new(DirDisk::open(dir.path()).unwrap());
    let opened = Wal::create(disk, WalOptions::new(ClusterId(1), ProgramHash([1; 32]))).unwrap();
    let mut wal = opened.wal;
    let reader = Box::new(wal.reader());
    let mut consensus =
        Consensus::new(single(Durability::Fsync), opened.recovered, Some(reader)).unwrap();
    consensus.campaign_now();
    for (name, group, groups) in [("alone", 1, 500), ("in groups of 64", 64, 100)] {
        let start = Instant::now();
        for _ in 0..groups {
            for _ in 0..group {
                if consensus.propose(vec![1; 200]).is_err() {
                    // The first turn of the term.
                    break;
                }
            }
            while let Some(batch) = consensus.take_ready() {
                if let Some(persist) = batch.persist {
                    write(&mut wal, &persist);
                    consensus.persisted(persist.ticket);
                }
            }
        }
        let each = start.elapsed().as_micros() / (group * groups);
        println!("fsync, 200 bytes, {name}: {each} us an entry");
    }
}

/// Whether the file is filled with zeros ahead of the writes.
static PREPARE: AtomicBool = AtomicBool::new(false);

fn main() {
    one_replica_with_a_memory_log();
    for prepare in [false, true, false, true] {
        PREPARE.store(prepare, Ordering::Relaxed);
        println!("{}:", if prepare { "zeros written ahead" } else { "a file that grows" });
        one_replica_with_a_log_on_disk();
    }
}

fn write(wal: &mut Wal, persist: &Persist) {
    wal.append(persist).unwrap();
    wal.sync().unwrap();
    if PREPARE.load(Ordering::Relaxed) {
        wal.prepare().unwrap();
    }
}
