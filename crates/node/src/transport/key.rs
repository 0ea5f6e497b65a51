//! The key that all nodes of a cluster share.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The bytes of a key.
pub const KEY_BYTES: usize = 32;

/// A key: every node that has it belongs to the cluster. It is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Key([u8; KEY_BYTES]);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key")
    }
}

impl Key {
    /// A key of these bytes.
    #[must_use]
    pub const fn new(bytes: [u8; KEY_BYTES]) -> Self {
        Self(bytes)
    }

    /// Its bytes.
    #[must_use]
    pub const fn bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }

    /// Reads a file of 64 hexadecimal digits that only its owner can read.
    ///
    /// # Errors
    /// The file cannot be read, is another user's or open to others, or is malformed. The message contains nothing of its content.
    pub fn read(path: &Path) -> io::Result<Self> {
        let mut file = File::open(path)?;
        let meta = file.metadata()?;
        let own = [0, nix::unistd::geteuid().as_raw()].contains(&meta.uid());
        if !meta.is_file() || !own || meta.mode() & 0o077 != 0 {
            return Err(io::Error::other(
                "it must be a file of this user that no other user may read: chmod 600",
            ));
        }
        let mut text = String::new();
        file.by_ref().take(4096).read_to_string(&mut text)?;
        Self::parse(text.trim()).ok_or_else(|| {
            io::Error::other(
                "it must hold 64 hexadecimal digits: make it once with 'openssl rand -hex 32'",
            )
        })
    }

    fn parse(text: &str) -> Option<Self> {
        let digits = text.as_bytes();
        if digits.len() != 2 * KEY_BYTES {
            return None;
        }
        let mut key = [0; KEY_BYTES];
        for (byte, pair) in key.iter_mut().zip(digits.chunks_exact(2)) {
            let digit = |c: u8| (c as char).to_digit(16);
            *byte = (digit(pair[0])? << 4 | digit(pair[1])?) as u8;
        }
        Some(Self(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_key_is_64_digits_in_a_file_of_ones_own() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        let write = |text: &str, mode| {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            Key::read(&path)
        };
        let digits = "0123456789abcdefABCDEF0123456789".repeat(2);
        let key = write(&format!("{digits}\n"), 0o600).unwrap();
        assert_eq!((key.bytes()[0], key.bytes()[31]), (0x01, 0x89));
        assert_eq!(format!("{key:?}"), "Key");
        assert!(write(&digits, 0o640).unwrap_err().to_string().contains("chmod 600"));
        for text in ["", &digits[1..], &digits.replace('0', "x")] {
            let why = write(text, 0o600).unwrap_err().to_string();
            assert!(why.contains("64 hexadecimal") && !why.contains("abcdef"), "{why}");
        }
    }
}
