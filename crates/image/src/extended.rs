//! The extended attributes that a server can give its files (`user.`), of files that have no path.

use std::ffi::CString;
use std::io;

/// The longest list of names, and the longest value, in Linux.
const MOST_BYTES: usize = 64 << 10;
/// What is a server's: others are the kernel's or the host's.
const OF_SERVERS: &[u8] = b"user.";

/// Names and values.
pub(crate) type Extended = Vec<(Vec<u8>, Vec<u8>)>;

/// Those of the file at this place, by name.
pub(crate) fn of(place: &str) -> io::Result<Extended> {
    let path = CString::new(place)?;
    // Most files have none.
    // SAFETY: a terminated string, and no buffer.
    let len = unsafe { libc::listxattr(path.as_ptr(), std::ptr::null_mut(), 0) };
    if usize::try_from(len).is_ok_and(|len| len == 0) {
        return Ok(Vec::new());
    }
    let names = filled(|buffer| {
        // SAFETY: a terminated string, and a live buffer of this length.
        unsafe { libc::listxattr(path.as_ptr(), buffer.as_mut_ptr().cast(), buffer.len()) }
    })?;
    let names = names.split(|byte| *byte == 0).filter(|name| name.starts_with(OF_SERVERS));
    let with_value = |name: &[u8]| {
        let terminated = CString::new(name)?;
        let value = filled(|buffer| {
            let (to, room) = (buffer.as_mut_ptr().cast(), buffer.len());
            // SAFETY: two terminated strings, and a live buffer of this length.
            unsafe { libc::getxattr(path.as_ptr(), terminated.as_ptr(), to, room) }
        })?;
        Ok((name.to_vec(), value))
    };
    let mut all = names.map(with_value).collect::<io::Result<Extended>>()?;
    all.sort_unstable();
    Ok(all)
}

/// What the kernel writes; nothing where there are none.
fn filled(write: impl FnOnce(&mut [u8]) -> isize) -> io::Result<Vec<u8>> {
    let mut buffer = vec![0; MOST_BYTES];
    let Ok(len) = usize::try_from(write(&mut buffer)) else {
        let error = io::Error::last_os_error();
        return match error.raw_os_error() {
            Some(libc::EOPNOTSUPP) => Ok(Vec::new()),
            _ => Err(error),
        };
    };
    buffer.truncate(len);
    Ok(buffer)
}

/// As an image has them ([`skein_arena::restore::Object::attributes`]).
pub(crate) fn packed(all: &Extended) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, value) in all {
        bytes.extend_from_slice(name);
        bytes.push(0);
        bytes.extend_from_slice(&(value.len() as u32).to_le_bytes());
        bytes.extend_from_slice(value);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsRawFd;

    #[test]
    fn attributes_of_a_file_without_a_path_are_read() {
        let file = tempfile::tempfile().unwrap();
        let place = format!("/proc/self/fd/{}", file.as_raw_fd());
        assert_eq!(of(&place).unwrap(), []);
        let long = vec![b'x'; 300];
        let set = |file: &File, name: &std::ffi::CStr, value: &[u8]| {
            let (fd, at) = (file.as_raw_fd(), value.as_ptr().cast());
            // SAFETY: a terminated string, and a live buffer of this length.
            unsafe { libc::fsetxattr(fd, name.as_ptr(), at, value.len(), 0) }
        };
        if set(&file, c"user.b", &long) < 0 {
            // This file system has none.
            return;
        }
        assert_eq!(set(&file, c"user.a", b""), 0);
        let all = of(&place).unwrap();
        assert_eq!(all, [(b"user.a".to_vec(), vec![]), (b"user.b".to_vec(), long.clone())]);
        let end = [b"user.b\0\x2c\x01\0\0".to_vec(), long].concat();
        assert_eq!(packed(&all), [b"user.a\0\0\0\0\0".to_vec(), end].concat());
    }
}
