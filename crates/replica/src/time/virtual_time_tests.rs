//! Virtual time under arbitrary wall clocks.

use super::*;
use crate::time::clocks::Clocks;
use proptest::prelude::*;
use skein_model::ReplicaId;

const MS: u64 = 1_000_000;
const S: u64 = 1000 * MS;
const YEAR: u64 = 365 * 24 * 3600 * S;
const TRUE: u64 = 56 * YEAR;

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn agreed(wall: u64) -> impl Fn() -> WallClocks + Copy {
    move || WallClocks { agreed: Some(WallNs(wall)), earliest: WallNs(wall) }
}

fn disagree(earliest: u64) -> impl Fn() -> WallClocks + Copy {
    move || WallClocks { agreed: None, earliest: WallNs(earliest) }
}

/// A leader that has made its first stamp at `TRUE`, when the steady clock was 0.
fn leader() -> VirtualTime {
    let mut time = VirtualTime::default();
    time.begin_term();
    assert_eq!(time.stamp(Duration::ZERO, agreed(TRUE)), WallNs(TRUE));
    time
}

#[test]
fn stamps_grow_even_when_no_time_passes() {
    let mut time = leader();
    for n in 1..100 {
        assert_eq!(time.stamp(Duration::ZERO, agreed(TRUE)), WallNs(TRUE + n));
    }
    assert_eq!(time.stamp(ms(1), agreed(TRUE + MS)), WallNs(TRUE + MS));
}

#[test]
fn it_follows_the_steady_clock_when_the_wall_clocks_do() {
    let mut time = leader();
    for n in 1..5000 {
        let wall = TRUE + n * 7 * MS;
        assert_eq!(time.stamp(ms(n * 7), agreed(wall)), WallNs(wall));
    }
}

#[test]
fn wall_clocks_that_jump_slew_it_and_no_more() {
    for wrong in [TRUE + YEAR, TRUE - YEAR, TRUE + S, TRUE - S, 0, u64::MAX / 2] {
        let mut time = leader();
        let wall = |at: u64| agreed(wrong + at * MS);
        let after = time.stamp(ms(1000), wall(1000)).0;
        assert!(after.abs_diff(TRUE + S) < 2 * MS, "the jump itself does nothing: {wrong}");
        let mut at = 1000;
        while at < 2000 {
            at += 10;
            time.stamp(ms(at), wall(at));
        }
        let passed = time.last().0 - after;
        let want = if wrong > TRUE { S + S / 20 } else { S - S / 20 };
        assert!(passed.abs_diff(want) < MS, "{passed} ns in a second under {wrong}");
    }
}

#[test]
fn what_was_wrong_is_made_up_for_and_then_it_is_right() {
    let mut time = leader();
    // The clocks are set 2 s back, or forward.
    for (second, off) in [(0, -2_i64), (200, 2)] {
        for n in 0..1000 {
            let at = second * 1000 + n * 100;
            let wall = TRUE.wrapping_add_signed(at as i64 * MS as i64 + off * S as i64);
            let stamp = time.stamp(ms(at), agreed(wall)).0;
            if n > 900 {
                assert!(stamp.abs_diff(wall) < 20 * MS, "{} ns off", stamp.abs_diff(wall));
            }
        }
    }
}

#[test]
fn a_new_leader_goes_on_from_the_last_stamp() {
    // No other clock agrees with its own.
    for own in [TRUE + YEAR, TRUE - YEAR] {
        let mut time = VirtualTime::default();
        time.observe(WallNs(TRUE), ms(5000));
        time.begin_term();
        assert_eq!(time.stamp(ms(5250), disagree(own)), WallNs(TRUE + 250 * MS));
        assert_eq!(time.stamp(ms(6000), disagree(own)), WallNs(TRUE + S));
    }
}

#[test]
fn a_cluster_that_stood_still_begins_in_the_present_if_a_majority_says_so() {
    let mut time = VirtualTime::default();
    time.observe(WallNs(TRUE), ms(10));
    time.begin_term();
    // A majority is not there yet.
    assert_eq!(time.stamp(ms(20), disagree(TRUE + YEAR)), WallNs(TRUE + 10 * MS));
    let day = TRUE + 24 * 3600 * S;
    assert_eq!(time.stamp(ms(30), agreed(day)), WallNs(day));
    // But once a term only.
    let next = time.stamp(ms(1030), agreed(day + YEAR)).0;
    assert!(next.abs_diff(day + S) < 100 * MS);
    time.begin_term();
    assert_eq!(time.stamp(ms(1040), agreed(day + YEAR)), WallNs(day + YEAR));
    // Never back.
    time.begin_term();
    assert!(time.stamp(ms(1050), agreed(day)) > WallNs(day + YEAR));
}

#[test]
fn a_cluster_begins_by_what_is_agreed_or_with_the_clock_that_is_furthest_behind() {
    let mut time = VirtualTime::default();
    time.begin_term();
    assert_eq!(time.stamp(ms(7), disagree(TRUE - YEAR)), WallNs(TRUE - YEAR));
    assert_eq!(time.stamp(ms(8), agreed(TRUE)), WallNs(TRUE), "a majority corrects it");
    let mut time = VirtualTime::default();
    assert_eq!(time.stamp(ms(7), disagree(0)), WallNs(1), "a clock before 1970 counts up");
}

#[test]
fn a_suspended_machine_finds_the_present() {
    let mut time = leader();
    time.stamp(ms(10), agreed(TRUE + 10 * MS));
    let hour = 3_600_000;
    let wall = TRUE + hour * MS;
    assert_eq!(time.stamp(ms(hour), agreed(wall)), WallNs(wall));
}

/// The events of a cluster of three.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// Time passes.
    Wait(u64),
    /// A replica's wall clock is set off by so many seconds.
    Set(usize, i64),
    /// A replica's wall clock is stepped at each look.
    Restless(usize, bool),
    /// Another replica leads.
    Lead(usize),
}

fn event() -> impl Strategy<Value = Event> {
    const Y: i64 = 365 * 24 * 3600;
    let off = prop_oneof![Just(0), Just(Y), Just(-Y), Just(1), Just(-1), -100..100_i64];
    prop_oneof![
        6 => (1..3000_u64).prop_map(Event::Wait),
        2 => (0..3_usize, off).prop_map(|(id, off)| Event::Set(id, off)),
        1 => (0..3_usize, any::<bool>()).prop_map(|(id, on)| Event::Restless(id, on)),
        1 => (0..3_usize).prop_map(Event::Lead),
    ]
}

proptest! {
    /// For all wall clocks and leaders: stamps grow, virtual time advances within a twentieth of the steady rate, and only a majority
    /// makes it step.
    #[test]
    fn it_never_stands_still_nor_runs_away(events in prop::collection::vec(event(), 1..60)) {
        let mut off = [0_i64; 3];
        let mut restless = [false; 3];
        let mut nodes: Vec<_> = (1..=3)
            .map(|id| (VirtualTime::default(), Clocks::new(ReplicaId(id), 3)))
            .collect();
        let (mut leader, mut now_ms, mut looks) = (0, 1_u64, 0_i64);
        nodes[0].0.begin_term();
        let mut last: Option<(u64, u64)> = None;
        let mut elected = true;
        for event in events {
            let mut left = 0;
            match event {
                Event::Wait(wait) => left = wait,
                Event::Set(id, by) => off[id] = by,
                Event::Restless(id, on) => restless[id] = on,
                Event::Lead(id) => {
                    leader = id;
                    elected = true;
                    nodes[leader].0.begin_term();
                }
            }
            loop {
                looks += 1;
                let at = ms(now_ms);
                let wall = |id: usize| {
                    let step = if restless[id] { looks % 2 * 3 } else { 0 };
                    WallNs(TRUE.wrapping_add_signed(now_ms as i64 * MS as i64 + (off[id] + step) * S as i64))
                };
                for (id, (_, clocks)) in nodes.iter_mut().enumerate() {
                    for other in (0..3).filter(|other| *other != id) {
                        clocks.heard(ReplicaId(other as u64 + 1), wall(other), at);
                    }
                }
                let (time, clocks) = &mut nodes[leader];
                let read = clocks.read(wall(leader), at);
                let stamp = time.stamp(at, || read).0;
                if let Some((before, before_ms)) = last {
                    let passed = (now_ms - before_ms) * MS;
                    let moved = stamp - before;
                    prop_assert!(stamp > before);
                    prop_assert!(moved + 100 >= passed - passed / 20, "{moved} in {passed}");
                    let stepped = read.agreed == Some(WallNs(stamp));
                    prop_assert!(
                        moved <= passed + passed / 20 + 100 || elected && stepped,
                        "{moved} in {passed}"
                    );
                }
                elected &= read.agreed.is_none();
                last = Some((stamp, now_ms));
                for (id, (time, _)) in nodes.iter_mut().enumerate() {
                    if id != leader {
                        time.observe(WallNs(stamp), at);
                    }
                }
                if left == 0 {
                    break;
                }
                let step = left.min(50);
                left -= step;
                now_ms += step;
            }
        }
    }
}
