//! What the restore file of an image says of itself ([`skein_arena::restore`]).

use crate::inode_table::word;
use crate::{MemoryError, PAGE_BYTES, Result};
use skein_arena::Sizes;
use skein_arena::layout::{HEADER_BYTES, Header};
use skein_arena::restore::{self, Description, Head, Known, Mapping, Object, Process, Run};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Error;
use std::mem::offset_of;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// The paths of files that a server knows which continues from this image: a part of [`Source::paths`] of its next one, whatever the log still has by then.
///
/// # Errors
/// It is no image of this version, or cannot be read.
pub fn paths(image: &File) -> Result<BTreeSet<PathBuf>> {
    let told = Told::read(image)?;
    let mut paths = BTreeSet::new();
    for n in 0..told.count(offset_of!(Head, files)) {
        let at = told.word(n * size_of::<Known>() + offset_of!(Known, path));
        let name = at.and_then(|at| {
            told.tables.get(at.checked_add(told.head(offset_of!(Head, names_at)))? as usize..)
        });
        let end = name.and_then(|name| name.iter().position(|byte| *byte == 0));
        let (Some(name), Some(end)) = (name, end) else { return Err(Told::damaged()) };
        paths.insert(PathBuf::from(OsStr::from_bytes(&name[..end])));
    }
    Ok(paths)
}

/// Whose pages are where in a restore file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PagesOf {
    /// Where what processes share begins.
    pub shared_at: u64,
    /// Whether the arena's heap is there, which the server takes up first.
    pub has_heap: bool,
    /// What each process has for itself, in the order of the table.
    pub processes: Vec<Private>,
}

/// The pages that a process has for itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Private {
    /// Its number in the server.
    pub pid: u32,
    /// Its pages.
    pub runs: Vec<Run>,
}

/// Where the pages are in an image's restore file, of which no more need be there than what is in no page.
///
/// # Errors
/// As for [`paths`].
pub fn pages(image: &File) -> Result<PagesOf> {
    let told = Told::read(image)?;
    let tables = [
        (offset_of!(Head, files), size_of::<Known>()),
        (offset_of!(Head, processes), size_of::<Process>()),
        (offset_of!(Head, objects), size_of::<Object>()),
        (offset_of!(Head, descriptions), size_of::<Description>()),
        (offset_of!(Head, mappings), size_of::<Mapping>()),
    ];
    let at = |table: usize| -> usize {
        tables[..table].iter().map(|(count, bytes)| told.count(*count) * bytes).sum()
    };
    let (processes_at, runs_at) = (at(1), at(tables.len()));
    let run = |n: usize| {
        let at = runs_at.checked_add(n.checked_mul(size_of::<Run>())?)?;
        let word = |field: usize| told.word(at + field);
        let run = [offset_of!(Run, address), offset_of!(Run, at), offset_of!(Run, bytes)];
        let [address, at, bytes] = run.map(word);
        let (address, at, bytes) = (address?, at?, bytes?);
        address.checked_add(bytes)?;
        let are_pages = [address, bytes].iter().all(|number| number.is_multiple_of(PAGE_BYTES));
        (are_pages && at.checked_add(bytes)? <= told.bytes).then_some(Run { address, bytes, at })
    };
    let private = |n: usize| {
        let at = processes_at + n * size_of::<Process>();
        let pid = told.half(at + offset_of!(Process, pid))?;
        let first = told.half(at + offset_of!(Process, runs))? as usize;
        let count = told.half(at + offset_of!(Process, runs) + 4)? as usize;
        let all = told.count(offset_of!(Head, runs));
        let runs = (first.checked_add(count)? <= all).then_some(first..first + count)?;
        Some(Private { pid, runs: runs.map(run).collect::<Option<_>>()? })
    };
    let all = || {
        let has_heap = told.count(offset_of!(Head, heap_runs)) > 0;
        let shared_at = if has_heap { run(0)?.at } else { told.bytes };
        let count = told.count(offset_of!(Head, processes));
        let processes = (0..count).map(private).collect::<Option<_>>()?;
        Some(PagesOf { shared_at, has_heap, processes })
    };
    all().ok_or_else(Told::damaged)
}

/// The sizes of the arena that the server had, of which no more need be there than for [`pages`].
///
/// # Errors
/// As for [`paths`].
pub fn sizes(image: &File) -> Result<Sizes> {
    let at = Told::read(image)?.head(offset_of!(Head, header_at));
    let mut header = vec![0; HEADER_BYTES];
    image
        .read_exact_at(&mut header, at)
        .map_err(|error| MemoryError::Read { what: "the image".into(), error })?;
    let size = |at: usize| usize::try_from(word(&header, at)).map_err(|_| Told::damaged());
    Ok(Sizes {
        input: size(offset_of!(Header, input_bytes))?,
        output: size(offset_of!(Header, output_bytes))?,
        heap: size(offset_of!(Header, heap_bytes))?,
    })
}

/// What a restore file says of itself.
struct Told {
    head: [u8; size_of::<Head>()],
    tables: Vec<u8>,
    /// The file's length.
    bytes: u64,
}

impl Told {
    fn read(image: &File) -> Result<Self> {
        let failed = |error: Error| MemoryError::Read { what: "the image".into(), error };
        let mut told = Self { head: [0; size_of::<Head>()], tables: Vec::new(), bytes: 0 };
        image.read_exact_at(&mut told.head, 0).map_err(failed)?;
        told.bytes = image.metadata().map_err(failed)?.len();
        let at = told.head(offset_of!(Head, tables_at));
        let bytes = told.head(offset_of!(Head, tables_bytes));
        let is_one = told.head(offset_of!(Head, magic)) == restore::MAGIC;
        if !is_one || at > told.bytes || bytes > told.bytes - at {
            return Err(Self::damaged());
        }
        told.tables.resize(bytes as usize, 0);
        image.read_exact_at(&mut told.tables, at).map_err(failed)?;
        Ok(told)
    }

    fn damaged() -> MemoryError {
        let error = Error::other("it is no image of this version, or damaged");
        MemoryError::Read { what: "the image".into(), error }
    }

    /// A word of the head.
    fn head(&self, at: usize) -> u64 {
        let word = self.head[at..].first_chunk().expect("it is one of the head's words");
        u64::from_ne_bytes(*word)
    }

    /// A number of records.
    fn count(&self, at: usize) -> usize {
        let word = self.head[at..].first_chunk().expect("it is one of the head's words");
        u32::from_ne_bytes(*word) as usize
    }

    /// Half a word of the tables.
    fn half(&self, at: usize) -> Option<u32> {
        self.tables.get(at..)?.first_chunk().map(|half| u32::from_ne_bytes(*half))
    }

    /// A word of the tables.
    fn word(&self, at: usize) -> Option<u64> {
        self.tables.get(at..)?.first_chunk().map(|word| u64::from_ne_bytes(*word))
    }
}
