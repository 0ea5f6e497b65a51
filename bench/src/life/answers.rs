//! Answers to all clients, often enough for what an event does to them: sums of half seconds, and times without any.

use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::clients::Clients;
use super::{Event, events, rounded};

/// A sum has the answers of so long [s].
pub const HALF_S: f64 = 0.5;
/// Sums around an event of [`events::is_kept`] are kept from so long before it [s],
const BEFORE_S: f64 = 2.0;
/// to so long behind it, but not beyond the next event [s].
const BEHIND_S: f64 = 10.0;
const LOOK_AFTER: Duration = Duration::from_millis(2);
/// Shorter times without an answer are not noted [ms].
const GAP_MS: f64 = 10.0;

/// What was seen in a run.
#[derive(Debug, Default)]
pub struct Answers {
    /// How many there were so far, after each half second [s since the start].
    sums: Vec<(f64, u64)>,
    /// When there was none, and for how long [s since the start, ms].
    gaps: Vec<(f64, f64)>,
}

/// Answers around an event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Around {
    /// The end of the first half second [s since the event], before it.
    pub first_s: f64,
    /// Answers a second in each half second.
    pub per_second: Vec<f64>,
}

impl Around {
    /// The ends of half seconds [s since the event], and answers a second.
    pub fn points(&self) -> impl Iterator<Item = (f64, f64)> {
        let at = |(at, per_second): (usize, &f64)| (self.first_s + HALF_S * at as f64, *per_second);
        self.per_second.iter().enumerate().map(at)
    }
}

impl Answers {
    /// Looks until the clients end.
    pub fn look(clients: &Clients<'_>, begun: Instant) -> Self {
        let mut seen = Self { sums: vec![(0.0, clients.answers())], gaps: Vec::new() };
        let (mut answers, mut last) = (clients.answers(), begun);
        while !clients.have_ended() {
            thread::sleep(LOOK_AFTER);
            let now = Instant::now();
            let since = |at: Instant| at.duration_since(begun).as_secs_f64();
            let before = std::mem::replace(&mut answers, clients.answers());
            if answers != before {
                let gap_ms = now.duration_since(last).as_secs_f64() * 1e3;
                if gap_ms >= GAP_MS {
                    seen.gaps.push((since(last), gap_ms));
                }
                last = now;
            }
            if since(now) >= HALF_S * seen.sums.len() as f64 {
                seen.sums.push((since(now), answers));
            }
        }
        seen
    }

    /// Tells events what of this is theirs.
    pub fn tell(&self, all: &mut [Event]) {
        let begins: Vec<f64> = all.iter().map(|event| event.at_s).collect();
        for (number, event) in all.iter_mut().enumerate() {
            let end = begins.get(number + 1).copied().unwrap_or(f64::INFINITY);
            event.quiet_ms = Some(rounded(self.quiet_ms(event.at_s, end)));
            event.answers = events::is_kept(&event.what).then(|| self.around(event.at_s, end));
        }
    }

    /// The longest time without an answer that was, or began, between the two.
    fn quiet_ms(&self, from: f64, end: f64) -> f64 {
        let own = self.gaps.iter().filter(|(at, ms)| at + ms / 1e3 > from && *at < end);
        own.map(|(_, ms)| *ms).fold(0.0, f64::max)
    }

    fn around(&self, event: f64, end: f64) -> Around {
        let end = end.min(event + BEHIND_S);
        let halves = self.sums.windows(2).filter_map(|two| {
            let [(begun, before), (at, answers)] = [two[0], two[1]];
            let is_near = at > event - BEFORE_S && at <= end;
            is_near.then(|| (at, (answers - before) as f64 / (at - begun)))
        });
        let halves: Vec<(f64, f64)> = halves.collect();
        let hundredths = |value: f64| (value * 100.0).round() / 100.0;
        Around {
            first_s: hundredths(halves.first().map_or(0.0, |(at, _)| at - event)),
            per_second: halves.into_iter().map(|(_, rate)| rate.round()).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(what: &str, at_s: f64) -> Event {
        let (what, quiet_ms, answers) = (what.to_owned(), None, None);
        Event { what, at_s, took_s: 0.1, silent_ms: 1.0, quiet_ms, answers }
    }

    /// Ten answers each half second, and none from 4.2 s until 5.4 s.
    fn seen() -> Answers {
        let sum = |half: u64| match half {
            0..=8 => 10 * half,
            9 | 10 => 84,
            _ => 84 + 10 * (half - 10),
        };
        Answers {
            sums: (0..=30).map(|half| (half as f64 * HALF_S, sum(half))).collect(),
            gaps: vec![(1.0, 20.0), (4.2, 1_200.0), (9.0, 30.0)],
        }
    }

    #[test]
    fn an_event_is_told_what_was_until_the_next() {
        let mut events = [
            event("leadership transferred", 0.5),
            event(events::LEADER_KILLED, 4.1),
            event(events::IMAGE_TAKEN, 8.0),
        ];
        seen().tell(&mut events);
        let quiet: Vec<_> = events.iter().map(|event| event.quiet_ms).collect();
        assert_eq!(quiet, [Some(20.0), Some(1_200.0), Some(30.0)]);
        assert_eq!(events[0].answers, None, "not of such events");
        let around = events[1].answers.as_ref().expect("a kill");
        let points: Vec<_> = around.points().collect();
        assert_eq!(around.first_s, -1.6);
        assert_eq!(points.len(), 12, "2.5 s to 8 s, as the next event is then: {points:?}");
        assert!((points[4].0 - 0.4).abs() < 1e-9, "{points:?}");
        assert_eq!(around.per_second[3..7], [20.0, 8.0, 0.0, 20.0]);
    }

    #[test]
    fn a_gap_that_an_event_meets_is_its_own_too() {
        assert_eq!(seen().quiet_ms(5.0, 6.0), 1_200.0);
        assert_eq!(seen().quiet_ms(5.5, 6.0), 0.0);
    }
}
