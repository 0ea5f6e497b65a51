//! Files of `/proc`. They have no size by which they could be read at once, and each call takes time while a server stands.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Most of them are shorter.
const READ_BYTES: usize = 16 << 10;

/// All of a file.
pub(crate) fn read(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let (mut all, mut len) = (vec![0; READ_BYTES], 0);
    loop {
        match file.read(&mut all[len..]) {
            Ok(0) => break,
            Ok(read) => len += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if all.len() - len < READ_BYTES / 2 {
            all.resize(2 * all.len(), 0);
        }
    }
    all.truncate(len);
    Ok(all)
}

/// The same of a file that is text.
pub(crate) fn text(path: impl AsRef<Path>) -> io::Result<String> {
    String::from_utf8(read(path)?).map_err(|_| io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_any_length_are_read() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for len in [0, 1, READ_BYTES / 2, READ_BYTES, READ_BYTES + 1, 5 * READ_BYTES] {
            let bytes: Vec<u8> = (0..len).map(|n| (n % 251) as u8).collect();
            std::fs::write(&file, &bytes).unwrap();
            assert!(read(&file).unwrap() == bytes, "{len} bytes");
        }
        std::fs::write(&file, [0xff]).unwrap();
        assert_eq!(text(&file).unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert!(text("/proc/self/limits").unwrap().starts_with("Limit"));
        assert_eq!(read("/proc/nobody").unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
