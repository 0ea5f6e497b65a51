//! Rounds of the log's real work, for counting instructions: `cargo xtask counts`.
//!
//! `log_rounds append N`: N entries of 200 bytes, one after the other, each proposed, encoded, written, synced and committed, by one replica.

use std::process::ExitCode;
use std::sync::Arc;

use skein_log::disk::DirDisk;
use skein_log::wal::{Wal, WalOptions};
use skein_log::{ClusterId, Config, Consensus, Durability, ProgramHash};
use skein_model::ReplicaId;

fn append(rounds: u32) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let disk = Arc::new(DirDisk::open(dir.path()).expect("opened"));
    let options = WalOptions::new(ClusterId(1), ProgramHash([1; 32]));
    let opened = Wal::create(disk, options).expect("a new log");
    let mut wal = opened.wal;
    let reader = Box::new(wal.reader());
    let config =
        Config { durability: Durability::Fsync, ..Config::new(ReplicaId(1), vec![ReplicaId(1)]) };
    let mut consensus = Consensus::new(config, opened.recovered, Some(reader)).expect("a replica");
    consensus.campaign_now();
    let mut committed = 0;
    let mut settle = |consensus: &mut Consensus| {
        while let Some(batch) = consensus.take_ready() {
            committed += batch.committed.len();
            if let Some(persist) = batch.persist {
                wal.append(&persist).expect("appended");
                wal.sync().expect("synced");
                wal.prepare().expect("filled ahead");
                consensus.persisted(persist.ticket);
            }
        }
        committed
    };
    let before = settle(&mut consensus);
    for _ in 0..rounds {
        consensus.propose(vec![1; 200]).expect("this replica leads");
        settle(&mut consensus);
    }
    assert_eq!(settle(&mut consensus) - before, rounds as usize, "every entry is committed");
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match (words.first().map(String::as_str), words.get(1).and_then(|n| n.parse().ok())) {
        (Some("append"), Some(rounds)) => append(rounds),
        _ => {
            eprintln!("log_rounds append N");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
