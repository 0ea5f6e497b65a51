//! A process's output within bounds: the beginning for comparing, the end for showing.
//!
//! The output goes into a memory file without a name, which is read here and given back to the system as it grows.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use nix::fcntl::{FallocateFlags, fallocate};
use nix::sys::memfd::{MFdFlags, memfd_create};

/// How much of the beginning is kept: 1 MiB.
const HEAD_BYTES: usize = 1 << 20;
/// How much of the end is kept: 16 KiB.
const TAIL_BYTES: usize = 16 << 10;

/// One process's output.
pub struct Capture {
    file: File,
    /// Bytes seen.
    len: u64,
    head: Vec<u8>,
    tail: Vec<u8>,
    /// Also shows all output as it comes.
    aloud: bool,
}

impl Capture {
    /// An empty capture.
    pub fn new(aloud: bool) -> io::Result<Self> {
        let file: File = memfd_create(c"skein-output", MFdFlags::MFD_CLOEXEC)?.into();
        Ok(Self { file, len: 0, head: Vec::new(), tail: Vec::new(), aloud })
    }

    /// A path by which this process can open it.
    pub fn path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.file.as_raw_fd()).into()
    }

    /// Takes the output since the last call.
    pub fn pump(&mut self) {
        let before = self.len;
        let mut buffer = [0; 64 << 10];
        // A memory file can always be read.
        while let Ok(n @ 1..) = self.file.read_at(&mut buffer, self.len) {
            let bytes = &buffer[..n];
            self.len += n as u64;
            let room = HEAD_BYTES.saturating_sub(self.head.len());
            self.head.extend_from_slice(&bytes[..n.min(room)]);
            self.tail.extend_from_slice(bytes);
            let surplus = self.tail.len().saturating_sub(TAIL_BYTES);
            self.tail.drain(..surplus);
            if self.aloud {
                // No process reads standard error any more.
                let _ = io::Write::write_all(&mut io::stderr(), bytes);
            }
        }
        if self.len > before {
            let punch = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
            // Only saves memory. Whole pages are given back, including the page that was read in part before.
            let from = before - before % 4096;
            let len = (self.len - from) as libc::off_t;
            let _ = fallocate(&self.file, punch, from as libc::off_t, len);
        }
    }

    /// The number of bytes printed.
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// The last lines, at most `count`.
    pub fn last_lines(&self, count: usize) -> Vec<String> {
        let text = String::from_utf8_lossy(&self.tail);
        let lines: Vec<&str> = text.lines().collect();
        let printable = |line: &&str| -> String {
            line.chars().take(400).map(|c| if c.is_control() { ' ' } else { c }).collect()
        };
        lines[lines.len().saturating_sub(count)..].iter().map(printable).collect()
    }

    /// The first difference of two outputs, as the line of each there; `whole`: both are complete.
    pub fn difference(&self, other: &Self, whole: bool) -> Option<(String, String)> {
        let common = self.head.len().min(other.head.len());
        let at = (0..common).find(|at| self.head[*at] != other.head[*at]);
        let at = match at {
            Some(at) => at,
            None if whole && self.len != other.len => common,
            None => return None,
        };
        Some((line_at(&self.head, at), line_at(&other.head, at)))
    }
}

/// The line around a byte, quoted.
fn line_at(text: &[u8], at: usize) -> String {
    let at = at.min(text.len());
    let from = text[..at].iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let to = text[at..].iter().position(|byte| *byte == b'\n').map_or(text.len(), |end| at + end);
    if from == to && at == text.len() {
        return "nothing more".into();
    }
    let line = &text[from..to.min(from + 200)];
    format!("\"{}\"", line.escape_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn captured(text: &[u8]) -> Capture {
        let mut capture = Capture::new(false).unwrap();
        let mut file = std::fs::OpenOptions::new().append(true).open(capture.path()).unwrap();
        for piece in text.chunks(100_000) {
            file.write_all(piece).unwrap();
            capture.pump();
        }
        capture
    }

    #[test]
    fn the_beginning_and_the_end_are_kept() {
        let text: Vec<u8> = (0..400_000).flat_map(|n| format!("{n}\n").into_bytes()).collect();
        let capture = captured(&text);
        assert_eq!(capture.len(), text.len() as u64);
        assert_eq!(capture.head, text[..HEAD_BYTES]);
        assert_eq!(capture.last_lines(2), ["399998", "399999"]);
        let blocks = std::os::linux::fs::MetadataExt::st_blocks(&capture.file.metadata().unwrap());
        assert!(blocks * 512 < 64 << 10, "{blocks} blocks are still taken");
    }

    #[test]
    fn a_difference_is_shown_by_its_lines() {
        let (a, b) = (captured(b"one\ntwo\n"), captured(b"one\ntoo\n"));
        assert_eq!(a.difference(&b, true), Some(("\"two\"".into(), "\"too\"".into())));
        assert_eq!(a.difference(&captured(b"one\ntwo\n"), true), None);
        let shorter = captured(b"one\n");
        assert_eq!(a.difference(&shorter, false), None);
        let found = a.difference(&shorter, true).unwrap();
        assert_eq!(found, ("\"two\"".into(), "nothing more".into()));
    }
}
