//! The form of a packed layer: entries in a row, each directory before what is in it, and a hash of all of them at the end. In an image, which keeps contents of
//! files apart and checks them, these have no part in the hash; its version says so.
//!
//! ```text
//! "skeinla" version u8 | entry... | 0 u8 | xxh3 of all bytes before, 128 bits
//! entry = kind u8 | opaque u8 | path text | target text | attributes, if it has some | extents, of a file
//! text = bytes u32 | the bytes
//! attributes = mode u32 | user u32 | group u32 | accessed i64 ns u32 | modified i64 ns u32 | count u32 | (name text | value text)...
//! extents = size u64 | (offset u64 | bytes u64 | contents)... | size u64 | 0 u64
//! ```
//!
//! It is no tar: that has no place for removed and opaque directories or sockets, and an old way with holes and with the times by which the runtime knows its copies.
//!
//! All numbers are little-endian. A reader trusts nothing: each length has a bound, and damage that keeps the form is found by the hash.

use std::cell::OnceCell;
use std::fs::File;
use std::io::{self, Error, Read};
use std::os::unix::fs::FileExt;

use xxhash_rust::xxh3::Xxh3;

use super::stat::{Place, Stat};

/// With contents in the hash.
const MAGIC: [u8; 8] = *b"skeinla\x01";
/// Without.
const APART: [u8; 8] = *b"skeinla\x02";
/// Read at a time.
const PIECE_BYTES: u64 = 256 << 10;
/// The longest path and target: Linux's `PATH_MAX`.
const MAX_TEXT_BYTES: usize = 4096;
/// The most bytes of extended attributes of one file: sixteen of the largest.
pub(super) const MAX_EXTENDED_BYTES: usize = 16 * (64 << 10);

/// The kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    /// Nothing more follows.
    End,
    /// The host's file was removed.
    Removed,
    Directory,
    File,
    /// A symbolic link.
    Link,
    /// One more name of an earlier file.
    Same,
    Fifo,
    Socket,
}

impl Kind {
    const ALL: [Self; 8] = [
        Self::End,
        Self::Removed,
        Self::Directory,
        Self::File,
        Self::Link,
        Self::Same,
        Self::Fifo,
        Self::Socket,
    ];

    const fn has_attributes(self) -> bool {
        !matches!(self, Self::End | Self::Removed | Self::Same)
    }
}

/// A time: seconds since the epoch, and nanoseconds.
pub(super) type Time = (i64, u32);

/// The attributes of a file. Of an ordinary user's server all files are that user's, who is 0 here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Attributes {
    pub(super) mode: u32,
    pub(super) user: u32,
    pub(super) group: u32,
    pub(super) accessed: Time,
    pub(super) modified: Time,
    /// Extended ones: names and values.
    pub(super) extended: Vec<(Vec<u8>, Vec<u8>)>,
}

/// An entry. A file's content follows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) kind: Kind,
    /// A directory: the host's entries do not show in it.
    pub(super) opaque: bool,
    /// From the server's root, without a slash at its start.
    pub(super) path: Vec<u8>,
    /// A symbolic link's target; the path of the earlier file.
    pub(super) target: Vec<u8>,
    pub(super) attributes: Attributes,
}

/// A file as the server's mounts show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Device and inode number.
    pub id: (u64, u64),
    /// Time of last access: seconds since the epoch, and nanoseconds.
    pub accessed: (i64, i64),
    /// Time of the last change of any kind.
    pub changed: (i64, i64),
}

impl Shown {
    pub(super) const fn of(about: &Stat) -> Self {
        Self { id: about.id, accessed: about.accessed, changed: about.changed }
    }
}

/// A file whose content is packed. It is opened when that is read.
#[derive(Debug)]
pub struct Content<'a> {
    place: Place<'a>,
    file: OnceCell<File>,
    id: (u64, u64),
    shown: Shown,
}

impl<'a> Content<'a> {
    pub(super) const fn new(place: Place<'a>, id: (u64, u64), shown: Shown) -> Self {
        Self { place, file: OnceCell::new(), id, shown }
    }

    /// The file, open to be read.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn file(&self) -> io::Result<&File> {
        if let Some(file) = self.file.get() {
            return Ok(file);
        }
        let opened = self.place.open()?;
        Ok(self.file.get_or_init(|| opened))
    }

    /// Its device and inode number in the layer.
    #[must_use]
    pub const fn id(&self) -> (u64, u64) {
        self.id
    }

    /// As the server's mounts show it.
    #[must_use]
    pub const fn shown(&self) -> Shown {
        self.shown
    }
}

/// Takes a packed layer. The server stands still meanwhile, so this only copies.
pub trait Packs {
    /// The next bytes.
    ///
    /// # Errors
    /// There is no room for them.
    fn bytes(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Whether contents of files are kept, and checked, apart from the other bytes: then they have no part in the hash, and go to [`Self::contents`].
    fn keeps_contents(&self) -> bool {
        false
    }

    /// A number for a file of which each write by the server is noted, none of them through a mapping, and how much was noted so far. No other file of this server ever has that number.
    fn follows(&self, shown: &Shown) -> Option<(u64, u64)> {
        let _ = shown;
        None
    }

    /// The pages of 4 KiB of the file with this number that may have been written since so much was noted: from one to another, in order. Only the last ones can have become a
    /// hole, if they reach to [`u64::MAX`]. None: it is not known.
    fn written(&self, number: u64, noted: u64) -> Option<Vec<(u64, u64)>> {
        let _ = (number, noted);
        None
    }

    /// The next bytes are those of a file between two positions.
    ///
    /// # Errors
    /// They cannot be read, or there is no room for them.
    fn contents(&mut self, content: &Content<'_>, start: u64, end: u64) -> io::Result<()> {
        let _ = (content, start, end);
        Err(io::ErrorKind::Unsupported.into())
    }
}

impl Packs for Vec<u8> {
    fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.extend_from_slice(bytes);
        Ok(())
    }
}

/// Writes a stream.
pub(super) struct Packer<'a> {
    out: &'a mut dyn Packs,
    hash: Xxh3,
}

impl<'a> Packer<'a> {
    pub(super) fn new(out: &'a mut dyn Packs) -> io::Result<Self> {
        let mut packer = Self { out, hash: Xxh3::new() };
        packer.bytes(if packer.out.keeps_contents() { &APART } else { &MAGIC })?;
        Ok(packer)
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.hash.update(bytes);
        self.out.bytes(bytes)
    }

    pub(super) fn follows(&self, shown: &Shown) -> Option<(u64, u64)> {
        self.out.follows(shown)
    }

    pub(super) fn written(&self, number: u64, noted: u64) -> Option<Vec<(u64, u64)>> {
        self.out.written(number, noted)
    }

    pub(super) fn contents(
        &mut self,
        content: &Content<'_>,
        start: u64,
        end: u64,
    ) -> io::Result<()> {
        self.number(start)?;
        self.number(end - start)?;
        if self.out.keeps_contents() {
            return self.out.contents(content, start, end);
        }
        let file = content.file()?;
        let mut piece = vec![0; PIECE_BYTES as usize];
        let mut at = start;
        while at < end {
            let piece = &mut piece[..(end - at).min(PIECE_BYTES) as usize];
            file.read_exact_at(piece, at)?;
            self.bytes(piece)?;
            at += piece.len() as u64;
        }
        Ok(())
    }

    fn text(&mut self, text: &[u8]) -> io::Result<()> {
        self.bytes(&(text.len() as u32).to_le_bytes())?;
        self.bytes(text)
    }

    fn time(&mut self, (s, ns): Time) -> io::Result<()> {
        self.bytes(&s.to_le_bytes())?;
        self.bytes(&ns.to_le_bytes())
    }

    pub(super) fn entry(&mut self, entry: &Entry) -> io::Result<()> {
        if entry.path.len().max(entry.target.len()) > MAX_TEXT_BYTES {
            return Err(Error::other("a path has more than 4096 bytes"));
        }
        self.bytes(&[entry.kind as u8, u8::from(entry.opaque)])?;
        self.text(&entry.path)?;
        self.text(&entry.target)?;
        if !entry.kind.has_attributes() {
            return Ok(());
        }
        let attributes = &entry.attributes;
        for word in [attributes.mode, attributes.user, attributes.group] {
            self.bytes(&word.to_le_bytes())?;
        }
        self.time(attributes.accessed)?;
        self.time(attributes.modified)?;
        self.bytes(&(attributes.extended.len() as u32).to_le_bytes())?;
        for (name, value) in &attributes.extended {
            self.text(name)?;
            self.text(value)?;
        }
        Ok(())
    }

    pub(super) fn number(&mut self, number: u64) -> io::Result<()> {
        self.bytes(&number.to_le_bytes())
    }

    pub(super) fn finish(mut self) -> io::Result<()> {
        self.bytes(&[Kind::End as u8])?;
        let hash = self.hash.digest128();
        self.out.bytes(&hash.to_le_bytes())
    }
}

/// What is read is no packed layer of this version, or not as it was written.
pub(super) fn damaged(how: &str) -> Error {
    Error::new(io::ErrorKind::InvalidData, format!("the packed files are damaged: {how}"))
}

/// Reads a stream.
pub(super) struct Reader<'a> {
    from: &'a mut dyn Read,
    hash: Xxh3,
    /// Contents have no part in the hash.
    apart: bool,
}

impl<'a> Reader<'a> {
    pub(super) fn new(from: &'a mut dyn Read) -> io::Result<Self> {
        let mut reader = Self { from, hash: Xxh3::new(), apart: false };
        let magic = reader.array()?;
        if magic != MAGIC && magic != APART {
            return Err(damaged("they do not begin as such of this version do"));
        }
        reader.apart = magic == APART;
        Ok(reader)
    }

    /// A file's content.
    pub(super) fn contents(&mut self, into: &mut [u8]) -> io::Result<()> {
        if self.apart { self.read(into) } else { self.bytes(into) }
    }

    fn bytes(&mut self, into: &mut [u8]) -> io::Result<()> {
        self.read(into)?;
        self.hash.update(into);
        Ok(())
    }

    fn read(&mut self, into: &mut [u8]) -> io::Result<()> {
        self.from.read_exact(into).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => damaged("they end too early"),
            _ => error,
        })
    }

    fn array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.bytes(&mut bytes)?;
        Ok(bytes)
    }

    fn word(&mut self) -> io::Result<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn number(&mut self) -> io::Result<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn text(&mut self, most: usize) -> io::Result<Vec<u8>> {
        let len = self.word()? as usize;
        if len > most {
            return Err(damaged("a text is too long"));
        }
        let mut text = vec![0; len];
        self.bytes(&mut text)?;
        if text.contains(&0) && most == MAX_TEXT_BYTES {
            return Err(damaged("a path has a zero byte"));
        }
        Ok(text)
    }

    fn time(&mut self) -> io::Result<Time> {
        let s = i64::from_le_bytes(self.array()?);
        let ns = self.word()?;
        if ns >= 1_000_000_000 {
            return Err(damaged("a time has more than 999999999 ns"));
        }
        Ok((s, ns))
    }

    /// The next entry; `None` at the end of a stream that is whole.
    pub(super) fn entry(&mut self) -> io::Result<Option<Entry>> {
        let [kind] = self.array()?;
        let kind = *Kind::ALL.get(usize::from(kind)).ok_or_else(|| damaged("an unknown kind"))?;
        if kind == Kind::End {
            let hash = self.hash.digest128();
            return match u128::from_le_bytes(self.array()?) == hash {
                true => Ok(None),
                false => Err(damaged("their hash is another one")),
            };
        }
        let [opaque] = self.array()?;
        let path = self.text(MAX_TEXT_BYTES)?;
        let target = self.text(MAX_TEXT_BYTES)?;
        check_path(&path)?;
        if kind == Kind::Same {
            check_path(&target)?;
        }
        let attributes =
            if kind.has_attributes() { self.attributes()? } else { Attributes::default() };
        Ok(Some(Entry { kind, opaque: opaque != 0, path, target, attributes }))
    }

    fn attributes(&mut self) -> io::Result<Attributes> {
        let [mode, user, group] = [self.word()?, self.word()?, self.word()?];
        if mode > 0o7777 {
            return Err(damaged("an unknown mode"));
        }
        let (accessed, modified) = (self.time()?, self.time()?);
        let (mut extended, mut left) = (Vec::new(), MAX_EXTENDED_BYTES);
        for _ in 0..self.word()? {
            let name = self.text(left.min(MAX_TEXT_BYTES))?;
            let value = self.text(left - name.len())?;
            if name.is_empty() || name.contains(&0) {
                return Err(damaged("an extended attribute has no name"));
            }
            left -= name.len() + value.len();
            extended.push((name, value));
        }
        Ok(Attributes { mode, user, group, accessed, modified, extended })
    }
}

/// A path of ordinary names.
fn check_path(path: &[u8]) -> io::Result<()> {
    let ordinary = |name: &[u8]| !matches!(name, b"" | b"." | b"..") && name.len() <= 255;
    match path.split(|byte| *byte == b'/').all(ordinary) {
        true => Ok(()),
        false => Err(damaged("a path leads elsewhere")),
    }
}
