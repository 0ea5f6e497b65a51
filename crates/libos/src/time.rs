//! Times as numbers.

use crate::abi::{self, timespec};
use crate::errno::{Errno, Result};
use crate::host::Host;

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

/// The limit of a wait.
#[derive(Clone, Copy, Debug)]
pub enum Timeout {
    /// Not at all.
    Poll,
    /// Until an event.
    Never,
    /// Nanoseconds.
    Ns(u64),
}

impl Timeout {
    /// From poll's and epoll's milliseconds.
    pub const fn from_ms(ms: i32) -> Self {
        match ms {
            0 => Self::Poll,
            ..0 => Self::Never,
            _ => Self::Ns(ms as u64 * 1_000_000),
        }
    }

    /// From a `timespec`, if any.
    pub fn from_timespec(ts: Option<&timespec>) -> Result<Self> {
        Ok(match ts.map(to_ns).transpose()? {
            None => Self::Never,
            Some(0) => Self::Poll,
            Some(ns) => Self::Ns(ns),
        })
    }

    /// The deadline in virtual time, when there is one.
    pub fn deadline_ns(self, k: &impl Host) -> Option<u64> {
        match self {
            Self::Ns(ns) => Some(k.now_ns.get().saturating_add(ns)),
            _ => None,
        }
    }
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
