//! Whose the files are that init makes.

use std::fs;

use serde::{Deserialize, Serialize};

/// The owners of files that init creates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Owner {
    /// Every id is mapped: owners are kept.
    Kept,
    /// Only the node's own user is mapped: init's files are that user's.
    Single { uid: u32, gid: u32 },
}

/// Whether this process may map every id: it needs both capabilities in its own user namespace, and ids to speak of there.
pub(super) fn id_owner() -> Owner {
    const CAP_SETGID: u64 = 1 << 6;
    const CAP_SETUID: u64 = 1 << 7;
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|text| u64::from_str_radix(text.trim(), 16).ok())
        .unwrap_or(0);
    let all_ids = ["uid_map", "gid_map"].iter().all(|file| {
        fs::read_to_string(format!("/proc/self/{file}")).is_ok_and(|map| covers_overflow(&map))
    });
    if effective & CAP_SETGID != 0 && effective & CAP_SETUID != 0 && all_ids {
        return Owner::Kept;
    }
    let (uid, gid) = (nix::unistd::geteuid().as_raw(), nix::unistd::getegid().as_raw());
    Owner::Single { uid, gid }
}

/// Whether a map has the id that files of unmapped owners show: then every owner that is seen can be given.
fn covers_overflow(map: &str) -> bool {
    const OVERFLOW_ID: u64 = 65_534;
    map.lines().any(|line| {
        let mut fields = line.split_ascii_whitespace().map(|field| field.parse::<u64>());
        let (Some(Ok(first)), Some(Ok(count))) = (fields.next(), fields.nth(1)) else {
            return false;
        };
        (first..first.saturating_add(count)).contains(&OVERFLOW_ID)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_of_all_ids_are_known() {
        assert!(covers_overflow("0 0 4294967295\n"));
        assert!(covers_overflow(" 0 1000 1\n 1 100000 65536\n"));
        assert!(
            !covers_overflow("0 1000 1\n") && !covers_overflow("") && !covers_overflow("x y z")
        );
    }
}
