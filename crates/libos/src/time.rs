//! Times as numbers.

use crate::abi::{self, timespec};
use crate::errno::{Errno, Result};

/// Nanoseconds of a second.
pub const NS_PER_S: u64 = 1_000_000_000;

/// A `timespec` in nanoseconds.
///
/// # Errors
/// `EINVAL` when a field is out of range.
pub fn to_ns(ts: &timespec) -> Result<u64> {
    if ts.tv_sec < 0 || !(0..NS_PER_S as i64).contains(&ts.tv_nsec) {
        return Err(Errno(abi::EINVAL));
    }
    Ok((ts.tv_sec as u64).saturating_mul(NS_PER_S).saturating_add(ts.tv_nsec as u64))
}

/// Nanoseconds as a `timespec`.
pub fn to_timespec(ns: u64) -> timespec {
    timespec { tv_sec: (ns / NS_PER_S) as i64, tv_nsec: (ns % NS_PER_S) as i64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_checked_and_never_wrap() {
        let of = |tv_sec, tv_nsec| to_ns(&timespec { tv_sec, tv_nsec });
        assert_eq!(of(1, 5), Ok(1_000_000_005));
        assert_eq!(of(i64::MAX, 0), Ok(u64::MAX));
        for (s, ns) in [(-1, 0), (0, -1), (0, 1_000_000_000)] {
            assert_eq!(of(s, ns), Err(Errno(abi::EINVAL)), "{s} {ns}");
        }
        assert_eq!(to_ns(&to_timespec(12_345_678_901)), Ok(12_345_678_901));
    }
}
