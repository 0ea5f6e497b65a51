//! Facts: a server's knowledge about files of its host, which is an input as much as clients' bytes are.
//!
//! A fact is agreed on at the first use of a file: every replica, and every later execution of the log, finds the same or refuses to go on. Several
//! travel in one record ([`crate::Record::Files`]). A checkpoint needs the same data to keep a file.
//!
//! ```text
//! fact = len u32 | what u8 | kind u8 | path u16 | mode u32 | user u32 | group u32 | more u32 | size u64
//!        | modified: s i64, ns u32 | errno u32 | hash [u8; 16] | path | more | zero padding to 8        (64 bytes and the two texts)
//! ```

use crate::padding::pad8;
use core::fmt;

/// Bytes of a fact before its texts.
pub const FACT_HEADER_BYTES: usize = 64;
/// The most bytes of facts in one record.
pub const MAX_FACTS_BYTES: usize = 128 << 10;
/// The longest path or other text of a fact.
pub const MAX_TEXT_BYTES: usize = 16 << 10;

/// The question about a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum What {
    /// The file does not exist.
    Absent = 1,
    /// Whether the file exists.
    There = 2,
    /// Metadata: permissions, owner, size, time; the target of a symbolic link.
    About = 3,
    /// Contents.
    Contents = 4,
    /// Directory entries: their kinds and names, unless they are too many; their number is the size.
    Listing = 5,
}

/// The kind of the file, as a listing says it (`DT_REG` and its like); 0 if there is none.
pub type Kind = u8;

/// One fact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fact<'a> {
    /// The question.
    pub what: What,
    /// The kind of file.
    pub kind: Kind,
    /// Permissions; 0 if the question does not cover them.
    pub mode: u32,
    /// Owner.
    pub user: u32,
    /// Group.
    pub group: u32,
    /// Bytes, or entries of a directory.
    pub size: u64,
    /// Time of the last change, as the server sees it: seconds and nanoseconds.
    pub modified: (i64, u32),
    /// The errno if the file was not found.
    pub errno: u32,
    /// Hash of the contents, or of the entries: xxh3.
    pub hash: [u8; 16],
    /// Absolute path.
    pub path: &'a [u8],
    /// The resolved path if it differs; a symbolic link's target; a directory's entries (kind and name, then zero).
    pub more: &'a [u8],
}

impl<'a> Fact<'a> {
    /// A fact with a path and nothing else.
    #[must_use]
    pub const fn new(what: What, path: &'a [u8]) -> Self {
        let (kind, mode, user, group, size) = (0, 0, 0, 0, 0);
        let (modified, errno, hash, more) = ((0, 0), 0, [0; 16], b"".as_slice());
        Self { what, kind, mode, user, group, size, modified, errno, hash, path, more }
    }

    /// Encoded length in bytes.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        pad8(FACT_HEADER_BYTES + self.path.len() + self.more.len())
    }

    /// Writes it to the start of `out`; answers the number of bytes, `None` when there is no room.
    pub fn encode(&self, out: &mut [u8]) -> Option<usize> {
        let len = self.bytes();
        let out = out.get_mut(..len)?;
        out.fill(0);
        out[..4].copy_from_slice(&(len as u32).to_le_bytes());
        (out[4], out[5]) = (self.what as u8, self.kind);
        out[6..8].copy_from_slice(&(self.path.len() as u16).to_le_bytes());
        for (at, word) in [
            (8, self.mode),
            (12, self.user),
            (16, self.group),
            (20, self.more.len() as u32),
            (40, self.modified.1),
            (44, self.errno),
        ] {
            out[at..at + 4].copy_from_slice(&word.to_le_bytes());
        }
        out[24..32].copy_from_slice(&self.size.to_le_bytes());
        out[32..40].copy_from_slice(&self.modified.0.to_le_bytes());
        out[48..64].copy_from_slice(&self.hash);
        let texts = FACT_HEADER_BYTES + self.path.len();
        out[FACT_HEADER_BYTES..texts].copy_from_slice(self.path);
        out[texts..texts + self.more.len()].copy_from_slice(self.more);
        Some(len)
    }

    /// Reads the first fact of `bytes` and answers its length; `None` when they do not begin with a fact.
    #[must_use]
    pub fn decode(bytes: &'a [u8]) -> Option<(Self, usize)> {
        let head = bytes.get(..FACT_HEADER_BYTES)?;
        let u32_at = |at: usize| Some(u32::from_le_bytes(head.get(at..at + 4)?.try_into().ok()?));
        let u64_at = |at: usize| Some(u64::from_le_bytes(head.get(at..at + 8)?.try_into().ok()?));
        let what = match head[4] {
            1 => What::Absent,
            2 => What::There,
            3 => What::About,
            4 => What::Contents,
            5 => What::Listing,
            _ => return None,
        };
        let path = usize::from(u16::from_le_bytes([head[6], head[7]]));
        let more = u32_at(20)? as usize;
        if path > MAX_TEXT_BYTES || more > MAX_TEXT_BYTES {
            return None;
        }
        let len = pad8(FACT_HEADER_BYTES + path + more);
        if u32_at(0)? as usize != len {
            return None;
        }
        let texts = bytes.get(FACT_HEADER_BYTES..len)?;
        let fact = Self {
            what,
            kind: head[5],
            mode: u32_at(8)?,
            user: u32_at(12)?,
            group: u32_at(16)?,
            size: u64_at(24)?,
            modified: (u64_at(32)?.cast_signed(), u32_at(40)?),
            errno: u32_at(44)?,
            hash: head[48..64].try_into().ok()?,
            path: &texts[..path],
            more: &texts[path..path + more],
        };
        Some((fact, len))
    }
}

/// The facts of a record, in order; stops at the first malformed one.
pub fn facts(mut bytes: &[u8]) -> impl Iterator<Item = Fact<'_>> {
    core::iter::from_fn(move || {
        let (fact, len) = Fact::decode(bytes)?;
        bytes = &bytes[len..];
        Some(fact)
    })
}

/// The paths of the files that facts are about, in order and as often as they are: absolute, by the server's first root.
pub fn paths(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    facts(bytes).filter(|fact| fact.what != What::Absent).flat_map(|fact| {
        let resolved = if fact.what == What::Contents { fact.more } else { b"" };
        [fact.path, resolved].into_iter().filter(|path| !path.is_empty())
    })
}

/// Whether `bytes` are facts and nothing else, at least one.
#[must_use]
pub fn are_facts(mut bytes: &[u8]) -> bool {
    let mut any = false;
    while !bytes.is_empty() {
        let Some((_, len)) = Fact::decode(bytes) else { return false };
        bytes = &bytes[len..];
        any = true;
    }
    any
}

/// A file that differs from the log, with the difference in words.
#[derive(Clone, Copy, Debug)]
pub struct Difference<'a> {
    /// The fact in the log.
    pub then: Fact<'a>,
    /// The fact found now.
    pub now: Fact<'a>,
}

/// Bytes as text, without anything that is not UTF-8.
struct Text<'a>(&'a [u8]);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            f.write_str(chunk.valid())?;
        }
        Ok(())
    }
}

const fn kind_name(kind: Kind) -> &'static str {
    match kind {
        8 => "file",
        4 => "directory",
        10 => "symbolic link",
        1 => "FIFO",
        12 => "socket",
        _ => "special file",
    }
}

/// The entries of `all` that `other` does not have.
fn missing<'a>(all: &'a [u8], other: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
    let entries = |text: &'a [u8]| text.split(|byte| *byte == 0).filter(|entry| !entry.is_empty());
    entries(all).filter(move |entry| !entries(other).any(|o| o == *entry))
}

impl Difference<'_> {
    fn short_hash(hash: &[u8; 16]) -> u64 {
        u64::from_be_bytes([hash[0], hash[1], hash[2], hash[3], hash[4], hash[5], hash[6], hash[7]])
    }

    fn about(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (a, b) = (&self.then, &self.now);
        let mut first = true;
        let mut comma = |f: &mut fmt::Formatter<'_>| {
            let text = if first { "its " } else { ", its " };
            first = false;
            f.write_str(text)
        };
        if a.mode != b.mode {
            comma(f)?;
            write!(f, "permissions were {:o} and are {:o}", a.mode, b.mode)?;
        }
        if (a.user, a.group) != (b.user, b.group) {
            comma(f)?;
            write!(f, "owner was {}:{} and is {}:{}", a.user, a.group, b.user, b.group)?;
        }
        if a.size != b.size {
            comma(f)?;
            write!(f, "size was {} and is {}", a.size, b.size)?;
        }
        if a.modified != b.modified {
            comma(f)?;
            write!(
                f,
                "time was {}.{:09} and is {}.{:09} (touch -d @... sets it)",
                a.modified.0, a.modified.1, b.modified.0, b.modified.1
            )?;
        }
        if a.more != b.more {
            comma(f)?;
            write!(f, "target was {} and is {}", Text(a.more), Text(b.more))?;
        }
        if first { f.write_str("it is another one") } else { Ok(()) }
    }

    fn listing(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (a, b) = (&self.then, &self.now);
        let name = |entry: &[u8]| -> (Kind, usize) { (entry[0], entry.len()) };
        let known = |fact: &Fact<'_>| fact.size == 0 || !fact.more.is_empty();
        if known(a) && known(b) {
            if let Some(entry) = missing(b.more, a.more).next() {
                let (kind, _) = name(entry);
                return write!(
                    f,
                    "its entry {} (a {}) was not there",
                    Text(&entry[1..]),
                    kind_name(kind)
                );
            }
            if let Some(entry) = missing(a.more, b.more).next() {
                return write!(f, "its entry {} is gone", Text(&entry[1..]));
            }
        }
        write!(f, "it had {} entries and has {}", a.size, b.size)?;
        if a.size == b.size { f.write_str(", not the same ones") } else { Ok(()) }
    }
}

impl fmt::Display for Difference<'_> {
    /// The path, a colon, the old value and the new value.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (a, b) = (&self.then, &self.now);
        write!(f, "{}: ", Text(a.path))?;
        if a.path != b.path {
            return write!(f, "the server used {} instead", Text(b.path));
        }
        match (a.what, b.what) {
            (What::Absent, What::Absent) => {
                write!(f, "it was not found with errno {}, now with {}", a.errno, b.errno)
            }
            (What::Absent, _) => {
                write!(f, "it was not there, and is a {} now", kind_name(b.kind))
            }
            (_, What::Absent) => write!(f, "it was a {} and is gone", kind_name(a.kind)),
            (was, is) if was != is => f.write_str("the server asks something else about it"),
            _ if a.kind != b.kind => {
                write!(f, "it was a {} and is a {}", kind_name(a.kind), kind_name(b.kind))
            }
            (What::Contents, _) if a.more != b.more => {
                let place = |fact: &Fact<'_>| if fact.more.is_empty() { "itself" } else { "" };
                write!(
                    f,
                    "it led to {}{} and leads to {}{}",
                    place(a),
                    Text(a.more),
                    place(b),
                    Text(b.more)
                )
            }
            (What::Contents, _) => write!(
                f,
                "its contents were {} bytes with hash {:016x} and are {} bytes with hash {:016x}",
                a.size,
                Self::short_hash(&a.hash),
                b.size,
                Self::short_hash(&b.hash)
            ),
            (What::Listing, _) => self.listing(f),
            _ => self.about(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::string::String;

    fn say(then: Fact<'_>, now: Fact<'_>) -> String {
        let mut bytes = [0; 4096];
        let first = then.encode(&mut bytes).unwrap();
        let second = now.encode(&mut bytes[first..]).unwrap();
        assert!(are_facts(&bytes[..first + second]) && !are_facts(&bytes[..first + second - 8]));
        let mut read = facts(&bytes[..first + second]);
        let (a, b) = (read.next().unwrap(), read.next().unwrap());
        assert_eq!((a, b), (then, now));
        format!("{}", Difference { then: a, now: b })
    }

    #[test]
    fn a_difference_says_what_was_and_what_is() {
        let absent = Fact { errno: 2, ..Fact::new(What::Absent, b"/etc/x") };
        let there = Fact { kind: 8, ..Fact::new(What::There, b"/etc/x") };
        assert_eq!(say(absent, there), "/etc/x: it was not there, and is a file now");
        assert_eq!(say(there, absent), "/etc/x: it was a file and is gone");
        let about = Fact { kind: 8, mode: 0o644, size: 3, ..Fact::new(What::About, b"/etc/x") };
        let text = say(about, Fact { mode: 0o600, modified: (1_700_000_000, 5), ..about });
        assert_eq!(
            text,
            "/etc/x: its permissions were 644 and are 600, its time was 0.000000000 and is 1700000000.000000005 (touch -d @... sets it)"
        );
        let link = Fact { kind: 10, more: b"v1", ..Fact::new(What::About, b"/srv/now") };
        assert_eq!(
            say(link, Fact { more: b"v2", ..link }),
            "/srv/now: its target was v1 and is v2"
        );
        let list = Fact { size: 1, more: b"\x08app.py\0", ..Fact::new(What::Listing, b"/srv/app") };
        let more = Fact { size: 2, more: b"\x08app.py\0\x08orig.py\0", ..list };
        assert_eq!(say(list, more), "/srv/app: its entry orig.py (a file) was not there");
        assert_eq!(say(more, list), "/srv/app: its entry orig.py is gone");
        let contents =
            Fact { kind: 8, size: 10, hash: [1; 16], ..Fact::new(What::Contents, b"/c") };
        assert_eq!(
            say(contents, Fact { size: 11, hash: [2; 16], ..contents }),
            "/c: its contents were 10 bytes with hash 0101010101010101 and are 11 bytes with hash 0202020202020202"
        );
    }

    #[test]
    fn paths_are_those_of_files_that_exist() {
        let facts = [
            Fact::new(What::Absent, b"/none"),
            Fact { more: b"/real", ..Fact::new(What::Contents, b"/link") },
            Fact { more: b"real", ..Fact::new(What::About, b"/other") },
        ];
        let mut bytes = [0; 512];
        let used = facts.iter().fold(0, |at, fact| at + fact.encode(&mut bytes[at..]).unwrap());
        assert!(paths(&bytes[..used]).eq([b"/link".as_slice(), b"/real", b"/other"]));
    }

    #[test]
    fn what_is_no_fact_is_not_read() {
        let fact = Fact::new(What::Contents, b"/a/path");
        let mut bytes = [0; 128];
        let len = fact.encode(&mut bytes).unwrap();
        for end in 0..len {
            assert!(!are_facts(&bytes[..end]), "cut at {end}");
        }
        for (at, byte) in [(0, 3), (4, 9), (4, 0), (6, 200), (22, 255)] {
            let mut spoiled = bytes;
            spoiled[at] = byte;
            assert!(!are_facts(&spoiled[..len]), "byte {at}");
        }
    }
}
