//! The other members, as the log named them last: `DATA_DIR/members`, a line with id and address each. A node that starts asks them for files that it lacks, before it reads its log: its
//! configuration may name members of long ago.

use crate::transport::Address;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

const FILE: &str = "members";

/// For the next life. What cannot be written is no more than a hint.
pub(super) fn note(data_dir: &Path, members: &[(u64, Address)]) {
    let line = |(id, address): &(u64, Address)| format!("{id} {address}\n");
    let text: String = members.iter().map(line).collect();
    let (path, new) = (data_dir.join(FILE), data_dir.join("members.part"));
    let written = || {
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(true).mode(0o600).open(&new);
        file?.write_all(text.as_bytes())?;
        fs::rename(&new, &path)
    };
    if let Err(error) = written() {
        tracing::warn!(event = "members_not_noted", %error);
    }
}

/// From there; lines that say nothing are left out.
pub(super) fn noted(data_dir: &Path) -> Vec<(u64, Address)> {
    let text = fs::read_to_string(data_dir.join(FILE)).unwrap_or_default();
    let member = |line: &str| {
        let (id, address) = line.split_once(' ')?;
        Some((id.parse().ok()?, address.parse().ok()?))
    };
    text.lines().filter_map(member).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_read_as_they_were_noted() {
        let dir = tempfile::tempdir().unwrap();
        assert!(noted(dir.path()).is_empty());
        let members: Vec<(u64, Address)> = vec![
            (2, "10.0.0.1:7100".parse().unwrap()),
            (3, "/run/with a space.sock".parse().unwrap()),
        ];
        note(dir.path(), &members);
        assert_eq!(noted(dir.path()), members);
        fs::write(dir.path().join(FILE), "x\n4 nowhere\n\n5 /here\n").unwrap();
        assert_eq!(noted(dir.path()), [(5, "/here".parse().unwrap())]);
    }
}
