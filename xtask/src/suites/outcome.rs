//! The report of `pg_regress` about its tests.

use std::collections::BTreeMap;

use skein_testkit::{Failure, Outcome};

/// One run of all tests.
#[derive(Debug, Clone)]
pub struct Tests {
    /// Whether each passed.
    results: BTreeMap<String, bool>,
    /// The duration of all.
    pub seconds: f64,
}

impl Tests {
    /// Parses the output. Without a summary the run was cut short.
    pub fn parse(text: &str, seconds: f64) -> Outcome<Self> {
        let results: BTreeMap<String, bool> = text.lines().filter_map(result).collect();
        let ended =
            text.lines().any(|line| line.contains("tests passed") || line.contains("tests failed"));
        if results.is_empty() || !ended {
            return Err(Failure::of("pg_regress did not end as usual", text.trim()));
        }
        Ok(Self { results, seconds })
    }

    /// `self`, if each test ended as in `other`; those in `apart` must pass there and fail here.
    pub fn compared(self, other: &Self, apart: &[&str]) -> Outcome<Self> {
        let passes = |name: &String| {
            let alone = other.results.get(name).copied();
            if apart.contains(&name.as_str()) { alone.map(|passed| !passed) } else { alone }
        };
        let differ = |(name, passed): (&String, &bool)| {
            (passes(name) != Some(*passed)).then(|| name.clone())
        };
        let mut names: Vec<String> = self.results.iter().filter_map(differ).collect();
        let missing = other.results.keys().filter(|name| !self.results.contains_key(*name));
        names.extend(missing.cloned());
        if names.is_empty() {
            return Ok(self);
        }
        Err(Failure(format!("other results than expected: {}", names.join(", "))))
    }

    /// The failed tests.
    pub fn failed(&self) -> impl Iterator<Item = &str> {
        self.results.iter().filter(|(_, passed)| !**passed).map(|(name, _)| name.as_str())
    }

    /// A short summary.
    pub fn about(&self) -> String {
        let failed: Vec<&str> = self.failed().collect();
        let passed = self.results.len() - failed.len();
        let (count, seconds) = (self.results.len(), self.seconds);
        let named =
            if failed.is_empty() { String::new() } else { format!(" (not {})", failed.join(", ")) };
        format!("{passed} of {count} tests pass{named} in {seconds:.1} s")
    }
}

/// The name and whether it passed, of a line such as `     boolean    ... ok    71 ms`.
fn result(line: &str) -> Option<(String, bool)> {
    let (before, after) = line.split_once(" ... ")?;
    let name = before.split_whitespace().last()?;
    let said = after.split_whitespace().next()?;
    matches!(said, "ok" | "FAILED" | "failed").then(|| (name.to_owned(), said == "ok"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "\
test tablespace                   ... ok          513 ms
parallel group (2 tests):  boolean char
     boolean                      ... ok           71 ms
     char                         ... FAILED (test process exited with exit code 2)      60 ms

======================
 1 of 3 tests failed.
======================
";

    #[test]
    fn what_pg_regress_prints_is_read() {
        let tests = Tests::parse(SAID, 2.0).unwrap();
        assert_eq!(tests.about(), "2 of 3 tests pass (not char) in 2.0 s");
        assert!(tests.clone().compared(&tests, &[]).is_ok());
        let better = Tests::parse(&SAID.replace("FAILED", "ok"), 2.0).unwrap();
        assert!(tests.clone().compared(&better, &["char"]).is_ok());
        assert!(better.clone().compared(&better, &["char"]).is_err());
        let error = better.compared(&tests, &[]).unwrap_err().to_string();
        assert_eq!(error, "other results than expected: char");
    }

    #[test]
    fn a_run_that_was_cut_short_is_no_result() {
        assert!(Tests::parse(SAID.split("===").next().unwrap(), 2.0).is_err());
        let fewer = Tests::parse(&SAID.replace("     boolean", "     boo"), 2.0).unwrap();
        let all = Tests::parse(SAID, 2.0).unwrap();
        let error = fewer.compared(&all, &[]).unwrap_err().to_string();
        assert_eq!(error, "other results than expected: boo, boolean");
    }
}
