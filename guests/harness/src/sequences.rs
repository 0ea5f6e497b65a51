//! Guests that make random sequences of calls (`guests/sequence.h`): finds a sequence that differs between Linux and Skein, and its shortest part
//! that still differs.
//!
//! A sequence's calls are drawn one by one from its number, so any of them can be left out without changing the others.

use crate::catalogue::{self, Guest};
use crate::compare;
use crate::images::Images;
use crate::node::{End, ORDINARY, Role, Schedule};
use crate::runner::{self, How};
use crate::script::Script;
use std::io;
use std::time::{Duration, Instant};

/// The search for a shorter part ends after this time.
const SEARCH_LIMIT: Duration = Duration::from_secs(60);
/// How many lines of a transcript before the difference are shown.
const SHOWN: usize = 80;

/// A guest of sequences, and how it is run under Skein.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// The guest.
    pub guest: &'a Guest,
    /// The built programs.
    pub images: &'a Images,
    /// The leader's schedule.
    pub schedule: Schedule,
    /// The rest.
    pub how: How<'static>,
}

/// Both transcripts of the same sequences.
struct Transcripts {
    native: Vec<u8>,
    skein: Vec<u8>,
    /// Errors of the runs.
    wrong: Option<String>,
}

impl Transcripts {
    fn differ(&self) -> bool {
        self.wrong.is_some() || self.native != self.skein
    }

    /// The number of the first sequence that differs.
    fn sequence(&self) -> Option<u64> {
        let (native, skein) =
            (String::from_utf8_lossy(&self.native), String::from_utf8_lossy(&self.skein));
        let mut sequence = None;
        let mut other = skein.lines();
        for line in native.lines() {
            if let Some(number) = line.strip_prefix("sequence ") {
                sequence = number.parse().ok();
            }
            if other.next() != Some(line) {
                break;
            }
        }
        sequence
    }

    /// The calls in either transcript, if both have one sequence.
    fn calls(&self) -> Vec<u32> {
        let of = |text: &[u8]| -> Vec<u32> {
            let number = |line: &str| line.split(' ').next()?.parse().ok();
            String::from_utf8_lossy(text).lines().filter_map(number).collect()
        };
        let mut calls = [of(&self.native), of(&self.skein)].concat();
        calls.sort_unstable();
        calls.dedup();
        calls
    }

    fn report(&self) -> String {
        let native = String::from_utf8_lossy(&self.native);
        let skein = String::from_utf8_lossy(&self.skein);
        let same = native.lines().zip(skein.lines()).take_while(|(a, b)| a == b).count();
        let mut report = String::new();
        for line in native.lines().take(same).skip(same.saturating_sub(SHOWN)) {
            report += &format!("\n      {line}");
        }
        let parted = compare::text("transcripts", ("native", &self.native), ("skein", &self.skein));
        for more in parted.iter().chain(&self.wrong) {
            report += &format!("\n    {more}");
        }
        report
    }
}

impl Subject<'_> {
    /// Makes `count` sequences from `first` on, natively and under Skein; answers the difference, if there is one.
    ///
    /// # Errors
    /// The guest cannot be run.
    pub fn compare(&self, first: u64, count: u64) -> io::Result<Option<String>> {
        let both = self.transcripts(&[first.to_string(), count.to_string()])?;
        if both.differ() { self.explain(&both, first).map(Some) } else { Ok(None) }
    }

    /// The shortest part found of the first sequence with a difference.
    fn explain(&self, both: &Transcripts, first: u64) -> io::Result<String> {
        let sequence = both.sequence().unwrap_or(first);
        let alone = self.transcripts(&[sequence.to_string(), "1".into()])?;
        if !alone.differ() {
            let calls = both.report();
            return Ok(format!("sequence {sequence} differs, but not by itself:{calls}"));
        }
        let since = Instant::now();
        let all = alone.calls();
        if all.is_empty() {
            return Ok(format!(
                "sequence {sequence} differs before its first call:{}",
                alone.report()
            ));
        }
        let mut shortest = (all.clone(), alone);
        let kept = shorten(all, |calls| {
            if since.elapsed() > SEARCH_LIMIT {
                return Ok(false);
            }
            let fewer = self.transcripts(&arguments(sequence, calls))?;
            let differ = fewer.differ();
            if differ {
                shortest = (calls.to_vec(), fewer);
            }
            Ok::<_, io::Error>(differ)
        })?;
        debug_assert_eq!(kept, shortest.0, "the last that differed is the shortest");
        let (calls, transcripts) = shortest;
        let words = arguments(sequence, &calls).join(" ");
        let mut report = format!(
            "sequence {sequence} differs; these calls of it are enough: {} {words}{}",
            self.guest.name,
            transcripts.report()
        );
        let again = runner::native(&self.guest.program, &arguments(sequence, &calls))?;
        if again.stdout != transcripts.native {
            report += "\n    It differs natively from run to run: the sequence is wrong.";
        }
        Ok(report)
    }

    fn transcripts(&self, args: &[String]) -> io::Result<Transcripts> {
        let program = &self.guest.program;
        let native = runner::native(program, args)?;
        let role = Role::Leader(Script::default(), self.schedule);
        let run = runner::skein(program, args, &self.images.library, role, self.how)?;
        let wrong = native.wrong().or_else(|| {
            let stderr = String::from_utf8_lossy(&run.stderr);
            let (end, advice) = (&run.account.end, run.account.advice.join("; "));
            (*end != End::Status(0))
                .then(|| format!("under Skein it ends with {end:?}: {advice} {stderr}"))
        });
        Ok(Transcripts { native: native.stdout, skein: run.stdout, wrong })
    }
}

fn arguments(sequence: u64, calls: &[u32]) -> Vec<String> {
    let calls: Vec<String> = calls.iter().map(u32::to_string).collect();
    vec![sequence.to_string(), "1".into(), calls.join(",")]
}

/// A short part of `calls` for which `differs` still holds, as it does for all of them: parts of half the length are left out, then of a quarter,
/// until no single call can be.
fn shorten<E>(
    mut calls: Vec<u32>,
    mut differs: impl FnMut(&[u32]) -> Result<bool, E>,
) -> Result<Vec<u32>, E> {
    let mut part = calls.len().div_ceil(2).max(1);
    loop {
        let (mut at, mut found) = (0, false);
        while at < calls.len() && calls.len() > 1 {
            let end = (at + part).min(calls.len());
            let fewer = [&calls[..at], &calls[end..]].concat();
            if !fewer.is_empty() && differs(&fewer)? {
                (calls, found) = (fewer, true);
            } else {
                at = end;
            }
        }
        if part == 1 && !found {
            return Ok(calls);
        }
        part = if found { part.min(calls.len()) } else { part.div_ceil(2) }.max(1);
    }
}

/// Makes `count` sequences from `first` on with each guest of sequences that one of `words` selects (all without words). Answers whether all were equal.
///
/// # Errors
/// A guest cannot be built or run.
pub fn all(first: u64, count: u64, words: &[String]) -> io::Result<bool> {
    let images = Images::build()?;
    let (mut alike, mut run) = (true, 0);
    for guest in catalogue::all(&images.sources, &images.guests)? {
        let Some(at_a_time) = guest.head.sequences else { continue };
        if !words.is_empty() && !words.iter().any(|word| guest.is_meant_by(word)) {
            continue;
        }
        run += 1;
        let since = Instant::now();
        let subject =
            Subject { guest: &guest, images: &images, schedule: ORDINARY, how: How::default() };
        let (mut next, end, mut difference) = (first, first + count, None);
        while next < end && difference.is_none() {
            let some = at_a_time.min(end - next);
            difference = subject.compare(next, some)?;
            next += some;
        }
        let ms = since.elapsed().as_millis();
        match difference {
            None => println!("alike   {:28} {ms:6} ms  {count} sequences", guest.name),
            Some(difference) => {
                alike = false;
                println!("DIFFERS {:28} {ms:6} ms  {difference}", guest.name);
            }
        }
    }
    if run == 0 {
        return Err(io::Error::other("no guest of sequences has such a name"));
    }
    Ok(alike)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner::Native;

    #[test]
    fn what_is_shortened_keeps_the_calls_that_matter() {
        let mut asked = 0;
        let kept = shorten((0..60).collect(), |calls| {
            asked += 1;
            Ok::<_, ()>([3, 17, 18, 59].iter().all(|call| calls.contains(call)))
        });
        assert_eq!(kept, Ok(vec![3, 17, 18, 59]));
        assert!(asked < 120, "{asked}");
        assert_eq!(shorten(vec![5], |_| Ok::<_, ()>(true)), Ok(vec![5]));
    }

    #[test]
    fn the_sequence_of_the_first_difference_is_named() {
        let native = b"sequence 7\n0 a: 1\nsequence 8\n1 b: 1\n4 c: 1\nsequence 9\n".to_vec();
        let skein = b"sequence 7\n0 a: 1\nsequence 8\n1 b: 1\n4 c: 2\n5 d: 0\n".to_vec();
        let both = Transcripts { native, skein, wrong: None };
        assert!(both.differ());
        assert_eq!(both.sequence(), Some(8));
        assert_eq!(both.calls(), [0, 1, 4, 5]);
    }

    #[test]
    fn a_sequence_that_does_not_end_is_named() {
        let native = b"sequence 7\n0 a: 1\nsequence 8\n".to_vec();
        let skein = b"sequence 7\n0 a: 1\nsequence 8\n1 b: 1\nsequence 9\n".to_vec();
        let hung = Native { status: None, stdout: native.clone(), stderr: Vec::new() };
        let said = "natively it does not end (the last line that it wrote: sequence 8): ";
        let wrong = || hung.wrong();
        assert_eq!(wrong().as_deref(), Some(said));
        let stuck = Transcripts { native: native.clone(), skein, wrong: wrong() };
        assert_eq!((stuck.differ(), stuck.sequence()), (true, Some(8)));
        let both = Transcripts { skein: native.clone(), native, wrong: wrong() };
        assert_eq!((both.differ(), both.sequence()), (true, Some(8)));
        assert!(both.report().ends_with(said), "{}", both.report());
    }
}
