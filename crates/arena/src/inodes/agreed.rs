//! Attributes that the server is to see in place of the kernel's, in a file's time of last access.
//!
//! An ordinary user's node can make no file of another user's: where it gives its server a copy of one, the copy is its own, with fewer rights. The server sees the
//! original's permissions, and an unknown owner as in its host's files.

/// Seconds of such a time: in 1906, which every file system has and no file.
const MARK_S: i64 = -1_999_999_999;
const USER: u32 = 1 << 12;
const GROUP: u32 = 1 << 13;
const STUCK: u32 = 1 << 14;
/// The kernel's number for an owner that a server's user namespace has not got.
pub const UNKNOWN: u32 = 65_534;

/// What the server is to see of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// Permissions.
    pub mode: u32,
    /// Owner, where it is not the kernel's answer,
    pub user: Option<u32>,
    /// and group.
    pub group: Option<u32>,
    /// It is a directory in which the server's private layer can hold no change.
    pub is_stuck: bool,
}

impl Agreed {
    /// As a time of last access, in seconds and nanoseconds. An owner or group that is given is an unknown one.
    #[must_use]
    pub const fn time(&self) -> (i64, i64) {
        let mut bits = self.mode & 0o7777;
        if self.user.is_some() {
            bits |= USER;
        }
        if self.group.is_some() {
            bits |= GROUP;
        }
        if self.is_stuck {
            bits |= STUCK;
        }
        (MARK_S, bits as i64)
    }
}

/// What the server is to see of a file with this time of last access, if that says so.
#[must_use]
pub const fn of(accessed: (i64, i64)) -> Option<Agreed> {
    if accessed.0 != MARK_S || accessed.1 < 0 || accessed.1 >= (STUCK << 1) as i64 {
        return None;
    }
    let bits = accessed.1 as u32;
    let user = if bits & USER != 0 { Some(UNKNOWN) } else { None };
    let group = if bits & GROUP != 0 { Some(UNKNOWN) } else { None };
    Some(Agreed { mode: bits & 0o7777, user, group, is_stuck: bits & STUCK != 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_in_a_time_is_read_from_it_and_from_no_other() {
        let file = Agreed { mode: 0o4755, user: Some(UNKNOWN), group: None, is_stuck: false };
        let directory = Agreed { mode: 0o1777, user: None, group: Some(UNKNOWN), is_stuck: true };
        for agreed in [file, directory] {
            assert_eq!(of(agreed.time()), Some(agreed));
        }
        assert_eq!(of((MARK_S, 1 << 15)), None);
        assert_eq!(of((1_700_000_000, 0o644)), None);
    }
}
