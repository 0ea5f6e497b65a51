//! The fault atlas: every kind of damage in every sector of every file of one replica's disk, each in a cluster of its own.
//!
//! The machine dies after all synced data have a witness, is damaged, and comes back. Its log is refused and the replica rejoins, or it continues
//! with all its promises: the simulation compares terms, votes and entries with the durable ones, and the server with the others'. Never
//! is a loss silent.

use skein_sim::options::{Damage, DamageKind, Scenario};
use skein_sim::{Options, Report, run};
use std::sync::Mutex;

/// Runs one; `None` when that place is empty.
fn damaged(damage: Damage) -> Option<Report> {
    let options = Options { scenario: Scenario::Damaged(damage), ..Options::default() };
    let report = run(1, &options).unwrap_or_else(|failure| panic!("{damage:?}: {failure}"));
    (report.faults > 0).then_some(report)
}

#[test]
fn any_damage_to_one_disk_is_refused_or_mended() {
    let mut places = Vec::new();
    for file in 0.. {
        let whole = |kind| Damage { file, sector: 0, kind };
        if damaged(whole(DamageKind::Missing)).is_none() {
            break;
        }
        places.extend(DamageKind::OF_FILES.map(whole));
        for sector in 0.. {
            let of = |kind| Damage { file, sector, kind };
            if damaged(of(DamageKind::Zeroed)).is_none() {
                break;
            }
            places.extend(DamageKind::OF_SECTORS.map(of));
        }
    }
    let outcomes = Mutex::new((0, 0));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for part in places.chunks(places.len().div_ceil(cores)) {
            let outcomes = &outcomes;
            scope.spawn(move || {
                for damage in part {
                    let refused = damaged(*damage).expect("as before").refused;
                    let mut outcomes = outcomes.lock().expect("nobody panics here");
                    let count = if refused { &mut outcomes.0 } else { &mut outcomes.1 };
                    *count += 1;
                }
            });
        }
    });
    let (refused, mended) = outcomes.into_inner().expect("nobody panics here");
    println!("{} kinds and places of damage: {refused} refused, {mended} mended", places.len());
    assert!(places.len() > 150 && refused > 80 && mended > 10, "{refused} {mended}");
}
