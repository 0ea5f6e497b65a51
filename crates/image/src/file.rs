//! The file of an image: a server at an entry of its log, as a replica keeps it and sends it to others.
//!
//! ```text
//! head      magic, version, cluster, program, entry, term, time, sizes: readable without unpacking
//! body      zstd of what the replica knew of the server, the restore file (`skein_arena::restore`), the layer of files that the server wrote
//! trailer   magic, length and XXH3 (128 bits) of all bytes before it
//! ```
//!
//! Such a file stands alone. A replica's own are of format 2: their pages are in packs beside them, and with their pages they make the same body ([`crate::packed`]).
//!
//! Numbers are little-endian; the head has the lengths of the body's parts. A reader looks at the whole file before it uses any of it
//! ([`Opened::verify`]): one that was damaged or cut, or is another cluster's or program's, is refused by name. Nothing in it is trusted beyond that:
//! lengths are bounded by the head's, and those of the head by what is there.

use crate::form::{MAX_STATE_BYTES, PACKED, PIECE_BYTES, field};
use crate::pack::{LEVEL, Pack, PackId};
use crate::packed::{self, MAX_NAMED, Planned, Stream};
use crate::placed::Placed;
use skein_model::{LogIndex, Term};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use xxhash_rust::xxh3::Xxh3;

pub use crate::form::{ImageError, VERSION};

/// `skeinimg`.
const MAGIC: [u8; 8] = *b"skeinimg";
/// Of the trailer.
const END_MAGIC: [u8; 8] = *b"skeinend";
/// The format of a file that stands alone.
const WHOLE: u32 = 1;
/// Magic, version, length of the rest (4 bytes each), cluster, program, and 7 numbers.
const HEAD_BYTES: usize = 8 + 4 + 4 + 16 + 32 + 7 * 8;
/// Magic, length, digest.
const TRAILER_BYTES: usize = 8 + 8 + 16;

/// Whose images are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The cluster's id.
    pub cluster: u128,
    /// The program with all that must be equal on all replicas.
    pub program: [u8; 32],
}

/// What a file says of its image before all else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Whose it is.
    pub owner: Owner,
    /// The last entry that the server had executed.
    pub index: LogIndex,
    /// That entry's term.
    pub term: Term,
    /// When it was taken, ms since 1970 by the clock of its replica's host.
    pub taken_ms: u64,
    /// The server's processes.
    pub processes: u64,
    /// The length of what the replica knew.
    pub state_bytes: u64,
    /// The length of the restore file.
    pub memory_bytes: u64,
    /// The length of the packed files.
    pub layer_bytes: u64,
}

/// The end of a file: what tells one image from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seal {
    /// The length of the file.
    pub bytes: u64,
    /// XXH3 of all bytes before the trailer.
    pub digest: u128,
}

impl Head {
    fn encode(&self, version: u32) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEAD_BYTES);
        out.extend(MAGIC);
        out.extend(version.to_le_bytes());
        // Lossless: a hundred bytes.
        out.extend(((HEAD_BYTES - 16) as u32).to_le_bytes());
        out.extend(self.owner.cluster.to_le_bytes());
        out.extend(self.owner.program);
        let numbers = [
            self.index.0,
            self.term.0,
            self.taken_ms,
            self.processes,
            self.state_bytes,
            self.memory_bytes,
            self.layer_bytes,
        ];
        numbers.iter().for_each(|number| out.extend(number.to_le_bytes()));
        assert_eq!(out.len(), HEAD_BYTES, "the head's fields");
        out
    }

    fn decode(bytes: &[u8; HEAD_BYTES], path: &Path) -> Result<(Self, u32), ImageError> {
        let path = || path.to_owned();
        if bytes[..8] != MAGIC {
            return Err(ImageError::NotAnImage { path: path() });
        }
        let version = u32::from_le_bytes(field(bytes, 8));
        match version {
            WHOLE | PACKED => {}
            0 => return Err(ImageError::damaged(&path(), "its format is 0")),
            _ => return Err(ImageError::Newer { path: path(), version }),
        }
        if u32::from_le_bytes(field(bytes, 12)) as usize != HEAD_BYTES - 16 {
            return Err(ImageError::damaged(&path(), "its head has another length"));
        }
        let number = |n: usize| u64::from_le_bytes(field(bytes, 64 + 8 * n));
        let head = Self {
            owner: Owner {
                cluster: u128::from_le_bytes(field(bytes, 16)),
                program: field(bytes, 32),
            },
            index: LogIndex(number(0)),
            term: Term(number(1)),
            taken_ms: number(2),
            processes: number(3),
            state_bytes: number(4),
            memory_bytes: number(5),
            layer_bytes: number(6),
        };
        Ok((head, version))
    }

    /// Reads it from the beginning of a file.
    ///
    /// # Errors
    /// The file is no image, or of a later version.
    pub fn read(path: &Path) -> Result<Self, ImageError> {
        let failed = ImageError::io(path);
        let file = File::open(path).map_err(&failed)?;
        Self::of(&file, path).map(|(head, _)| head)
    }

    /// With the file's format.
    fn of(file: &File, path: &Path) -> Result<(Self, u32), ImageError> {
        let mut bytes = [0; HEAD_BYTES];
        match file.read_exact_at(&mut bytes, 0) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                let bytes = file.metadata().map_err(ImageError::io(path))?.len();
                Err(ImageError::Cut { path: path.to_owned(), bytes })
            }
            Err(error) => Err(ImageError::reading(path)(error)),
            Ok(()) => Self::decode(&bytes, path),
        }
    }
}

/// Counts and hashes what goes through.
struct Hashed<W> {
    out: W,
    bytes: u64,
    hash: Xxh3,
}

impl<W: Write> Write for Hashed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.hash.update(&bytes[..written]);
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// What goes into an image beside its head.
pub struct Contents<'a> {
    /// What the replica knew of the server.
    pub state: &'a [u8],
    /// The restore file, from its beginning.
    pub memory: &'a mut dyn Read,
    /// The packed files.
    pub layer: &'a mut dyn Read,
}

/// Writes an image into an empty file, whose name is for messages. The head's sizes are those of the contents.
///
/// # Errors
/// The file cannot be written, or the contents cannot be read or have another length.
pub fn write(
    file: &mut dyn Write,
    path: &Path,
    head: &Head,
    contents: Contents<'_>,
) -> Result<Seal, ImageError> {
    write_all(file, head, contents).map_err(ImageError::io(path))
}

fn write_all(file: &mut dyn Write, head: &Head, contents: Contents<'_>) -> io::Result<Seal> {
    let mut out = Hashed { out: BufWriter::new(file), bytes: 0, hash: Xxh3::new() };
    out.write_all(&head.encode(WHOLE))?;
    let mut body = zstd::Encoder::new(&mut out, LEVEL)?;
    let Contents { mut state, memory, layer } = contents;
    let parts: [(&str, &mut dyn Read, u64); 3] = [
        ("state", &mut state, head.state_bytes),
        ("memory", memory, head.memory_bytes),
        ("files", layer, head.layer_bytes),
    ];
    for (part, from, bytes) in parts {
        let copied = io::copy(from, &mut body)?;
        if copied != bytes {
            let why = format!("the server's {part} have {copied} bytes and not {bytes}");
            return Err(io::Error::other(why));
        }
    }
    body.finish()?;
    seal(out)
}

/// Writes the end of a file.
fn seal(mut out: Sink<'_>) -> io::Result<Seal> {
    let (before, digest) = (out.bytes, out.hash.digest128());
    out.write_all(&END_MAGIC)?;
    out.write_all(&before.to_le_bytes())?;
    out.write_all(&digest.to_le_bytes())?;
    out.flush()?;
    Ok(Seal { bytes: out.bytes, digest })
}

/// A file that is being written.
type Sink<'a> = Hashed<BufWriter<&'a mut dyn Write>>;

/// Writes the file of an image whose pages are in packs, into an empty file.
///
/// # Errors
/// It cannot be written, or is longer than a reader takes.
pub fn write_packed(
    file: &mut dyn Write,
    path: &Path,
    head: &Head,
    state: &[u8],
    planned: &Planned,
) -> Result<Seal, ImageError> {
    packed::check_lengths(state.len() as u64, planned.plan_bytes(), path)?;
    let write = || {
        let mut out = Hashed { out: BufWriter::new(file), bytes: 0, hash: Xxh3::new() };
        out.write_all(&head.encode(PACKED))?;
        packed::write_body(&mut out, state, planned)?;
        seal(out)
    };
    write().map_err(ImageError::io(path))
}

/// The packs that an image in a file needs; `None`: so little of it is there that they are not known yet.
///
/// # Errors
/// The file is no image, or cannot be read.
pub fn packs_of(path: &Path) -> Result<Option<Vec<PackId>>, ImageError> {
    let file = File::open(path).map_err(ImageError::io(path))?;
    match Head::of(&file, path) {
        Err(ImageError::Cut { .. }) => Ok(None),
        Err(error) => Err(error),
        Ok((_, WHOLE)) => Ok(Some(Vec::new())),
        Ok(_) => packs(&file, path).map(|found| found.map(|(packs, _)| packs)),
    }
}

/// The names behind the head, and their length.
fn packs(file: &impl FileExt, path: &Path) -> Result<Option<(Vec<PackId>, usize)>, ImageError> {
    let mut bytes = vec![0; 4 + MAX_NAMED * 24];
    let mut len = 0;
    while len < bytes.len() {
        let read = file.read_at(&mut bytes[len..], (HEAD_BYTES + len) as u64);
        match read.map_err(ImageError::reading(path))? {
            0 => break,
            n => len += n,
        }
    }
    if len >= 4 && u32::from_le_bytes(field(&bytes, 0)) as usize > MAX_NAMED {
        return Err(ImageError::damaged(path, "it names more packs than an image has"));
    }
    let found = packed::named(&bytes[..len]);
    if found.as_ref().is_some_and(|(packs, _)| !packed::is_possible(packs)) {
        return Err(ImageError::damaged(path, "its packs have impossible lengths"));
    }
    Ok(found)
}

/// The file of an image of the right cluster and program.
#[derive(Debug)]
pub struct Opened {
    file: File,
    path: PathBuf,
    version: u32,
    /// Its head.
    pub head: Head,
}

/// A file whose bytes are those that were written.
#[derive(Debug)]
pub struct Verified {
    opened: Opened,
    /// The file's end.
    pub seal: Seal,
    /// Its packs.
    packs: Vec<Pack>,
    /// Where its body is.
    body_at: u64,
}

impl Opened {
    /// Opens a file and reads its head.
    ///
    /// # Errors
    /// It is no image, or not one of `owner`.
    pub fn open(path: &Path, owner: &Owner) -> Result<Self, ImageError> {
        let file = File::open(path).map_err(ImageError::io(path))?;
        let (head, version) = Head::of(&file, path)?;
        let path = path.to_owned();
        if head.owner.cluster != owner.cluster {
            return Err(ImageError::OtherCluster { path });
        }
        if head.owner.program != owner.program {
            return Err(ImageError::OtherProgram { path });
        }
        Ok(Self { file, path, version, head })
    }

    /// Reads the whole file, and the packs beside it that it names, and compares them with what their ends say.
    ///
    /// # Errors
    /// One is cut, damaged, or missing.
    pub fn verify(self) -> Result<Verified, ImageError> {
        self.verify_new(&mut BTreeSet::new())
    }

    /// The same, but for packs that were verified before; those that are now are added.
    ///
    /// # Errors
    /// As [`verify`](Self::verify).
    pub fn verify_new(self, known: &mut BTreeSet<PackId>) -> Result<Verified, ImageError> {
        let bytes = self.file.metadata().map_err(ImageError::reading(&self.path))?.len();
        let seal = sealed(&self.file, bytes, &self.path)?;
        let before = bytes - TRAILER_BYTES as u64;
        let cut = || ImageError::Cut { path: self.path.clone(), bytes };
        let (mut packs, mut body_at) = (Vec::new(), HEAD_BYTES as u64);
        if self.version == PACKED {
            let found = self::packs(&self.file, &self.path)?.ok_or_else(cut)?;
            let dir = self.path.parent().unwrap_or(Path::new(""));
            for id in found.0 {
                let mut pack = Pack::open(dir, id)?;
                if !known.contains(&id) {
                    pack.verify()?;
                    known.insert(id);
                }
                packs.push(pack);
            }
            body_at += found.1 as u64;
        }
        if body_at > before {
            return Err(cut());
        }
        Ok(Verified { opened: self, seal, packs, body_at })
    }
}

/// Reads all of a file of this length, and compares it with its end.
fn sealed(file: &impl FileExt, bytes: u64, path: &Path) -> Result<Seal, ImageError> {
    let failed = ImageError::reading(path);
    let cut = || ImageError::Cut { path: path.to_owned(), bytes };
    let least = (HEAD_BYTES + TRAILER_BYTES) as u64;
    let before = if bytes < least { Err(cut()) } else { Ok(bytes - TRAILER_BYTES as u64) }?;
    let mut trailer = [0; TRAILER_BYTES];
    file.read_exact_at(&mut trailer, before).map_err(&failed)?;
    if trailer[..8] != END_MAGIC || u64::from_le_bytes(field(&trailer, 8)) != before {
        return Err(cut());
    }
    let said = u128::from_le_bytes(field(&trailer, 16));
    let mut hash = Xxh3::new();
    let mut piece = vec![0; PIECE_BYTES];
    let mut at = 0;
    while at < before {
        let part = piece.len().min((before - at) as usize);
        file.read_exact_at(&mut piece[..part], at).map_err(&failed)?;
        hash.update(&piece[..part]);
        at += part as u64;
    }
    let digest = hash.digest128();
    if digest != said {
        return Err(ImageError::damaged(path, "its checksum does not fit"));
    }
    Ok(Seal { bytes, digest })
}

impl Verified {
    /// Its head.
    #[must_use]
    pub const fn head(&self) -> &Head {
        &self.opened.head
    }

    /// The length of the file and of all its packs.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.packs.iter().map(|pack| pack.id().bytes).sum::<u64>() + self.seal.bytes
    }

    /// Unpacks what the replica knew of the server; the rest follows.
    ///
    /// # Errors
    /// It cannot be read, or is not what the head says.
    pub fn unpack(self) -> Result<(Vec<u8>, Body), ImageError> {
        let Opened { file, path, head, version } = self.opened;
        let failed = ImageError::io(&path);
        let mut from = file;
        from.seek(SeekFrom::Start(self.body_at)).map_err(&failed)?;
        let body = self.seal.bytes - TRAILER_BYTES as u64 - self.body_at;
        let mut from = zstd::Decoder::new(from.take(body)).map_err(&failed)?;
        if version == PACKED {
            let lengths = [head.state_bytes, head.memory_bytes, head.layer_bytes];
            let contained = packed::contained(&mut from, lengths, self.packs.len())
                .map_err(|error| ImageError::damaged(&path, error))?;
            let packs = Rc::new(RefCell::new(self.packs));
            let memory = Stream::new(contained.memory, packs.clone());
            let layer = Stream::new(contained.layer, packs);
            let from = Source::Packs(Box::new(memory), Box::new(layer));
            return Ok((contained.state, Body { from, head, path }));
        }
        let mut body = Body { from: Source::Own(from), head, path };
        let mut state = Vec::new();
        if head.state_bytes > MAX_STATE_BYTES {
            return Err(ImageError::damaged(&body.path, "its state is impossibly long"));
        }
        body.copy("state", head.state_bytes, &mut state)?;
        Ok((state, body))
    }

    /// Writes it as one file that stands alone, as an image of this owner.
    ///
    /// # Errors
    /// It cannot be read or written.
    pub fn write_whole(
        self,
        owner: &Owner,
        out: &mut dyn Write,
        to: &Path,
    ) -> Result<Seal, ImageError> {
        let head = Head { owner: *owner, ..*self.head() };
        let seal = self.seal;
        if self.opened.version == WHOLE && head == *self.head() {
            let mut from = &self.opened.file;
            from.rewind().map_err(ImageError::io(&self.opened.path))?;
            io::copy(&mut from, out).map_err(ImageError::io(to))?;
            return Ok(seal);
        }
        let (state, body) = self.unpack()?;
        match body.from {
            Source::Packs(mut memory, mut layer) => {
                let contents = Contents { state: &state, memory: &mut *memory, layer: &mut *layer };
                write(out, to, &head, contents)
            }
            Source::Own(from) => {
                // One behind the other.
                let from = RefCell::new(from);
                let part = |left| Part { from: &from, left };
                let (mut memory, mut layer) = (part(head.memory_bytes), part(head.layer_bytes));
                let contents = Contents { state: &state, memory: &mut memory, layer: &mut layer };
                write(out, to, &head, contents)
            }
        }
    }
}

/// The next bytes of a reader that several have in turn.
struct Part<'a, R> {
    from: &'a RefCell<R>,
    left: u64,
}

impl<R: Read> Read for Part<'_, R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let most = out.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        if most == 0 {
            return Ok(0);
        }
        let read = self.from.borrow_mut().read(&mut out[..most])?;
        self.left -= read as u64;
        Ok(read)
    }
}

/// The parts of an image that follow its state, in order.
pub struct Body {
    from: Source,
    head: Head,
    path: PathBuf,
}

/// Why there are no parts of it.
const NO_PACKS: &str = "its body is not in packs";

/// Where they come from.
enum Source {
    /// The file itself.
    Own(zstd::Decoder<'static, io::BufReader<io::Take<File>>>),
    /// Packs: the memory and the files.
    Packs(Box<Stream>, Box<Stream>),
}

impl Body {
    /// Writes the restore file.
    ///
    /// # Errors
    /// It is not as the head says, or cannot be written.
    pub fn memory(&mut self, out: &mut (dyn Write + Send)) -> Result<(), ImageError> {
        match &mut self.from {
            Source::Own(_) => self.copy("memory", self.head.memory_bytes, out),
            Source::Packs(memory, _) => memory.copy(u64::MAX, out, &self.path),
        }
    }

    /// Writes what of the restore file is known before its pages are unpacked where it belongs, which is all that is at no page; false if nothing is known.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn place_known(&self, out: &File) -> Result<bool, ImageError> {
        let Source::Packs(memory, _) = &self.from else { return Ok(false) };
        let placed = out.set_len(self.head.memory_bytes).and_then(|()| memory.place_bytes(out));
        placed.map_err(ImageError::io(&self.path))?;
        Ok(true)
    }

    /// The pages of the restore file, if they are [known](Self::place_known) by their places.
    ///
    /// # Errors
    /// There is no memory.
    pub fn placed(&self) -> Result<Option<Placed>, ImageError> {
        match &self.from {
            Source::Packs(memory, _) => memory.placed(&self.path).map(Some),
            Source::Own(_) => Ok(None),
        }
    }

    /// Writes the part of the restore file from `at` on. Of one of which nothing is [known](Self::place_known) there are no parts.
    ///
    /// # Errors
    /// As for [`memory`](Self::memory).
    pub fn memory_behind(&self, at: u64, out: &mut (dyn Write + Send)) -> Result<(), ImageError> {
        let damaged = |why| ImageError::damaged(&self.path, why);
        let Source::Packs(memory, _) = &self.from else { return Err(damaged(NO_PACKS)) };
        let mut rest = memory.again();
        if rest.skip(at) != at {
            return Err(damaged("no page begins where its shared memory is said to"));
        }
        rest.copy(u64::MAX, out, &self.path)
    }

    /// Writes the part before `at`.
    ///
    /// # Errors
    /// As for [`memory`](Self::memory).
    pub fn memory_before(
        &mut self,
        at: u64,
        out: &mut (dyn Write + Send),
    ) -> Result<(), ImageError> {
        let Source::Packs(memory, _) = &mut self.from else {
            return Err(ImageError::damaged(&self.path, NO_PACKS));
        };
        memory.copy(at, out, &self.path)
    }

    /// Hands over the packed files, which `read` reads to their end; answers its result.
    ///
    /// # Errors
    /// They are not as the head says.
    pub fn layer<T, E>(
        &mut self,
        read: impl FnOnce(&mut dyn Read) -> Result<T, E>,
    ) -> Result<Result<T, E>, ImageError> {
        let damaged = |why: &dyn std::fmt::Display| ImageError::damaged(&self.path, why);
        let from: &mut dyn Read = match &mut self.from {
            Source::Own(from) => from,
            Source::Packs(_, layer) => &mut **layer,
        };
        let mut layer = from.take(self.head.layer_bytes);
        let result = read(&mut layer);
        if result.is_err() {
            return Ok(result);
        }
        let left = layer.limit();
        if left > 0 {
            return Err(damaged(&format!("its last {left} bytes of files are of no use")));
        }
        // What it was made of must end here, too.
        match layer.into_inner().read(&mut [0]) {
            Ok(0) => Ok(result),
            Ok(_) => Err(damaged(&"it is longer than its head says")),
            Err(error) => Err(damaged(&error)),
        }
    }

    fn copy(&mut self, part: &str, bytes: u64, out: &mut dyn Write) -> Result<(), ImageError> {
        let mut piece = vec![0; PIECE_BYTES];
        let mut left = bytes;
        while left > 0 {
            let most = piece.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let Source::Own(from) = &mut self.from else {
                return Err(ImageError::damaged(&self.path, "its body is in packs"));
            };
            let read = match from.read(&mut piece[..most]) {
                Ok(0) => Err(format!("its {part} ends {left} bytes too early")),
                read => read.map_err(|error| error.to_string()),
            };
            let read = read.map_err(|why| ImageError::damaged(&self.path, why))?;
            out.write_all(&piece[..read]).map_err(ImageError::io(&self.path))?;
            left -= read as u64;
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
