//! Whether disk and memory are bounded: the second half of a run needs no more of them than the first.

use super::{Event, Sample};
use skein_testkit::{Failure, Outcome};

/// The most of the second half may be so many times that of the first,
const TIMES: f64 = 1.25;
/// and so much more: an image, or a segment of a log, more or less [MiB].
const MORE_MIB: f64 = 64.0;

/// A name, and its value in a sample.
type Bounded = (&'static str, fn(&Sample) -> f64);

const BOUNDED: [Bounded; 2] =
    [("data directories", |at| at.disk_mib), ("nodes' memory", |at| at.nodes_mib)];

/// Fails when the second half of a run took more than the first; answers a line for people.
///
/// The halves are halves of the events, which come in turn: each half has all of the `kinds` then, and with them the times of most replicas. A run with fewer
/// events than twice `kinds` has no such halves, and nothing is asserted.
pub fn check(events: &[Event], samples: &[Sample], kinds: usize) -> Outcome<String> {
    let half = events.len() / 2;
    let Some(middle) = events.get(half).filter(|_| kinds > 0 && half >= kinds) else {
        return Ok(format!(
            "bounds of disk and memory are not asserted: {} events are not all {kinds} kinds twice",
            events.len()
        ));
    };
    let mut said = Vec::new();
    for (name, value) in BOUNDED {
        let most = |in_second: bool| {
            let of = samples.iter().filter(|sample| (sample.at_s > middle.at_s) == in_second);
            of.map(value).reduce(f64::max)
        };
        let (Some(first), Some(second)) = (most(false), most(true)) else {
            return Err(Failure(format!("{name}: a half of the run has no samples")));
        };
        let bound = TIMES * first + MORE_MIB;
        let both = format!("{name} took {first:.0} MiB at most, in the second half {second:.0}");
        if second > bound {
            return Err(Failure(format!("{both}; {bound:.0} are allowed: it is not bounded")));
        }
        said.push(both);
    }
    Ok(said.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An event each 10 s, of three kinds in turn, and a sample each second.
    fn checked(events: u32, disk: fn(f64) -> f64, nodes: fn(f64) -> f64) -> Outcome<String> {
        let event = |at: u32| Event {
            what: format!("kind {}", at % 3),
            at_s: f64::from(10 * at),
            took_s: 1.0,
            silent_ms: 1.0,
            quiet_ms: None,
            answers: None,
        };
        let sample = |at: u32| {
            let at_s = f64::from(at);
            let (disk_mib, nodes_mib) = (disk(at_s), nodes(at_s));
            Sample { at_s, per_second: 1.0, disk_mib, nodes_mib, servers_mib: at_s * 1e3 }
        };
        let events: Vec<Event> = (0..events).map(event).collect();
        let samples: Vec<Sample> = (1..=10 * events.len() as u32).map(sample).collect();
        check(&events, &samples, 3)
    }

    #[test]
    fn what_stays_is_bounded() {
        let said = checked(6, |_| 100.0, |_| 50.0).expect("bounded");
        assert!(
            said.contains("directories took 100 MiB at most, in the second half 100"),
            "{said}"
        );
        assert!(said.contains("memory took 50 MiB at most, in the second half 50"), "{said}");
        // The most counts, not where it is in its half: 1.25 times 400 MiB, and 64.
        let once = |at_s: f64| if at_s == 5.0 { 400.0 } else { 10.0 };
        checked(6, once, |at_s| if at_s == 60.0 { 126.0 } else { 50.0 }).expect("just");
        let just = |at_s: f64| match at_s {
            5.0 => 400.0,
            31.0 => 564.0,
            _ => 10.0,
        };
        checked(6, just, |_| 50.0).expect("just");
    }

    #[test]
    fn what_grows_fails() {
        let failed = |disk, nodes| checked(6, disk, nodes).expect_err("it grows").to_string();
        let said = failed(|at_s| if at_s > 30.0 { 190.0 } else { 100.0 }, |_| 50.0);
        assert!(said.contains("data directories took 100 MiB at most, in the second half 190"));
        assert!(said.contains("189 are allowed"), "{said}");
        let said = failed(|_| 100.0, |at_s| if at_s == 60.0 { 127.0 } else { 50.0 });
        assert!(said.contains("nodes' memory took 50 MiB at most, in the second half 127"));
    }

    #[test]
    fn halves_have_all_kinds_or_nothing_is_asserted() {
        let grows = |at_s: f64| at_s * 100.0;
        let said = checked(5, grows, grows).expect("too short");
        assert!(said.contains("not asserted: 5 events are not all 3 kinds twice"), "{said}");
        // The fourth of seven events begins the second half.
        let late = |at_s: f64| if at_s > 30.0 { 1e3 } else { 1.0 };
        assert!(checked(7, late, |_| 1.0).is_err());
        assert!(checked(7, |at_s| if at_s <= 30.0 { 1e3 } else { 1e3 + 1.0 }, |_| 1.0).is_ok());
        assert!(check(&[], &[], 0).is_ok(), "a run without kinds");
    }
}
