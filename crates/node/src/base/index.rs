//! The index of a base: paths, and what is pinned at each.
//!
//! A text file of two lines: the format's number and a digest of the second line; and the index in JSON. It is written as a whole, so a crash leaves the old one or the new one.

use super::store::{Digest, Sum};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha256};
use skein_log::disk::durable;
use skein_sandbox::{About, Program, Search};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::xxh3_64;

/// Its name.
pub const FILE: &str = "index";
/// Where that of the first edition is in a data directory.
pub const PATH: &str = "base/index";
const FORMAT: u32 = 1;

/// A path or a part of one: in JSON its text, or what no text of a path begins with and the bytes in hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Text(pub OsString);

impl Text {
    /// Of a path.
    #[must_use]
    pub fn of(text: impl AsRef<OsStr>) -> Self {
        Self(text.as_ref().to_owned())
    }
}

impl Serialize for Text {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.0.to_str() {
            Some(text) => to.serialize_str(text),
            None => to.serialize_str(&format!("\0{}", hex(self.0.as_bytes()))),
        }
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let bytes = match text.strip_prefix('\0') {
            Some(digits) => unhex(digits),
            None => Some(text.into_bytes()),
        };
        let no_path = || serde::de::Error::custom("no path");
        let bytes = bytes.filter(|bytes| !bytes.contains(&0)).ok_or_else(no_path)?;
        Ok(Self(OsString::from_vec(bytes)))
    }
}

/// Bytes in hexadecimal.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Back from it.
pub(super) fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    let pair = |pair: &[u8]| {
        let text = std::str::from_utf8(pair).ok()?;
        u8::from_str_radix(text, 16).ok().filter(|_| pair.iter().all(u8::is_ascii_hexdigit))
    };
    let (pairs, []) = digits.as_chunks::<2>() else { return None };
    pairs.iter().map(|digits| pair(digits)).collect()
}

/// What is pinned at a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Kept {
    /// Nothing is there.
    Absent,
    /// A directory.
    Directory {
        /// Its attributes.
        about: About,
        /// The names in it, once the server has listed it.
        listing: Option<BTreeSet<Text>>,
    },
    /// A symbolic link.
    Link {
        /// Its attributes.
        about: About,
        /// Its target.
        to: Text,
    },
    /// A regular file.
    File {
        /// Its attributes.
        about: About,
        /// Bytes.
        size: u64,
        /// Its contents.
        digest: Digest,
        /// Their XXH3, by which rot is found: a start reads all contents.
        sum: Sum,
        /// It is one more name of this path's file.
        same_as: Option<Text>,
        /// The host's device and inode number, if the file had more names there.
        #[serde(default)]
        number: Option<(u64, u64)>,
    },
}

impl Kept {
    /// Its kind in a word.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Absent => "absent",
            Self::Directory { listing: None, .. } => "directory",
            Self::Directory { listing: Some(_), .. } => "listing",
            Self::Link { .. } => "link",
            Self::File { .. } => "file",
        }
    }
}

/// What a program is looked for by.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Command {
    program: Text,
    cwd: Text,
    path: Text,
    env: Vec<(Text, Text)>,
}

impl Command {
    /// Of a program's name as the user gave it.
    #[must_use]
    pub fn new(program: &OsStr, search: &Search<'_>) -> Self {
        let chosen = search.chosen_env();
        Self {
            program: Text::of(program),
            cwd: Text::of(search.cwd),
            path: Text::of(search.path),
            env: chosen.map(|(name, value)| (Text::of(name), Text::of(value))).collect(),
        }
    }
}

/// The pinned program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Known {
    /// The command that it was found by.
    pub command: Command,
    /// What was found.
    pub program: Program,
}

/// Contents with the first path that has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contents<'a> {
    /// The path.
    pub path: &'a Path,
    /// What they are.
    pub digest: Digest,
    /// Bytes.
    pub size: u64,
    /// Their XXH3.
    pub sum: Sum,
}

/// See the [module](self).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Index {
    /// The program.
    pub program: Option<Known>,
    /// The runtime's path, if that file is pinned.
    pub runtime: Option<PathBuf>,
    /// Of an edition's: a number of its own, as one that was given up may have begun with the same pins, and has others by now.
    pub made: Option<u64>,
    /// By absolute path, without symbolic links on the way. Each directory on the way is there.
    pub files: BTreeMap<PathBuf, Kept>,
}

#[derive(Serialize, Deserialize)]
struct Stored {
    program: Option<Known>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    runtime: Option<Text>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    made: Option<u64>,
    files: Vec<(Text, Kept)>,
}

impl Index {
    /// That of a base, in the file of this name; an empty one if there is none.
    ///
    /// # Errors
    /// It cannot be read, is damaged, or of a later version.
    pub fn read(dir: &Path, name: &str) -> io::Result<Self> {
        match fs::read(dir.join(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            bytes => Self::decode(&bytes?),
        }
    }

    /// Writes it, durably.
    pub(super) fn write(&self, dir: &Path, name: &str) -> io::Result<()> {
        let text = String::from_utf8(self.encode()).map_err(io::Error::other)?;
        durable::write(&dir.join(name), &text)
    }

    /// As bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let files = self.files.iter().map(|(path, kept)| (Text::of(path), kept.clone())).collect();
        let runtime = self.runtime.as_ref().map(Text::of);
        let stored = Stored { program: self.program.clone(), runtime, made: self.made, files };
        let body = serde_json::to_string(&stored).expect("texts and numbers have a JSON form");
        format!("skein base {FORMAT} {:016x}\n{body}\n", xxh3_64(body.as_bytes())).into_bytes()
    }

    /// From bytes of a file, or of another replica: nothing in them leads out of the base.
    ///
    /// # Errors
    /// They are not what [`encode`](Self::encode) made.
    pub fn decode(bytes: &[u8]) -> io::Result<Self> {
        let damaged =
            |why: &str| io::Error::new(io::ErrorKind::InvalidData, format!("the index {why}"));
        let text = std::str::from_utf8(bytes).map_err(|_| damaged("is damaged"))?;
        let (head, body) = text.split_once('\n').ok_or_else(|| damaged("is damaged"))?;
        let mut words = head.strip_prefix("skein base ").unwrap_or_default().split(' ');
        if words.next() != Some(&FORMAT.to_string()) {
            return Err(damaged("is damaged, or of a later version of Skein"));
        }
        let body = body.strip_suffix('\n').unwrap_or(body);
        if words.next() != Some(&format!("{:016x}", xxh3_64(body.as_bytes()))) {
            return Err(damaged("is damaged"));
        }
        let stored: Stored =
            serde_json::from_str(body).map_err(|error| damaged(&format!("is damaged: {error}")))?;
        let files: BTreeMap<PathBuf, Kept> =
            stored.files.into_iter().map(|(path, kept)| (path.0.into(), kept)).collect();
        let runtime = stored.runtime.map(|path| PathBuf::from(path.0));
        let index = Self { program: stored.program, runtime, made: stored.made, files };
        if index.runtime.is_some() && index.runtime().is_none() {
            return Err(damaged("names a runtime that is not pinned"));
        }
        match index.files.keys().find(|path| !index.has_way_to(path)) {
            Some(path) => Err(damaged(&format!("names {} without the way to it", path.display()))),
            None => Ok(index),
        }
    }

    /// Whether a path is absolute and plain, and all directories on the way are pinned ones.
    fn has_way_to(&self, path: &Path) -> bool {
        use std::path::Component::{Normal, RootDir};
        let plain = path.components().enumerate().all(|(at, part)| match part {
            RootDir => at == 0,
            Normal(_) => at > 0,
            _ => false,
        });
        let same = path.components().collect::<PathBuf>().as_os_str() == path.as_os_str();
        let is_directory = |path: &Path| {
            path == Path::new("/") || matches!(self.files.get(path), Some(Kept::Directory { .. }))
        };
        plain && same && path.parent().is_some_and(is_directory)
    }

    /// What another index pins and this one does not. What is pinned stays, but a directory that was not listed is listed.
    #[must_use]
    pub fn lacks(&self, other: Self) -> Self {
        let is_unlisted = |kept: &Kept| matches!(kept, Kept::Directory { listing: None, .. });
        let is_listed = |kept: &Kept| matches!(kept, Kept::Directory { listing: Some(_), .. });
        let is_new = |path: &PathBuf, kept: &Kept| {
            self.files.get(path).is_none_or(|own| is_unlisted(own) && is_listed(kept))
        };
        let mut new = Self::default();
        for (path, kept) in other.files {
            // Directories come before what is in them.
            let is_directory = |kept: Option<&Kept>| {
                kept.is_some_and(|kept| matches!(kept, Kept::Directory { .. }))
            };
            let has_way = |way: &Path| {
                way == Path::new("/")
                    || is_directory(new.files.get(way).or_else(|| self.files.get(way)))
            };
            if is_new(&path, &kept) && path.parent().is_some_and(has_way) {
                new.files.insert(path, kept);
            }
        }
        new
    }

    /// The pinned runtime: its path, its length and its contents.
    #[must_use]
    pub fn runtime(&self) -> Option<(&Path, u64, Digest)> {
        let path = self.runtime.as_deref()?;
        match self.files.get(path)? {
            Kept::File { size, digest, .. } => Some((path, *size, *digest)),
            _ => None,
        }
    }

    /// All contents.
    #[must_use]
    pub fn digests(&self) -> BTreeSet<Digest> {
        let digest = |kept: &Kept| match kept {
            Kept::File { digest, .. } => Some(*digest),
            _ => None,
        };
        self.files.values().filter_map(digest).collect()
    }

    /// All contents, each once.
    #[must_use]
    pub fn kept_once(&self) -> Vec<Contents<'_>> {
        let mut seen = BTreeSet::new();
        let mut all = Vec::new();
        for (path, kept) in &self.files {
            if let &Kept::File { digest, size, sum, .. } = kept
                && seen.insert(digest)
            {
                all.push(Contents { path, digest, size, sum });
            }
        }
        all
    }

    /// All contents with their lengths, each once.
    pub fn contents(&self) -> impl Iterator<Item = (Digest, u64)> + '_ {
        self.kept_once().into_iter().map(|one| (one.digest, one.size))
    }

    /// What it is named by where an edition of the server has one of its own.
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest(Sha256::digest(self.clone().without_numbers().encode()).into())
    }

    /// Bytes of all contents.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.contents().map(|(_, size)| size).sum()
    }

    /// The same for another host, which numbers files otherwise.
    #[must_use]
    pub fn without_numbers(mut self) -> Self {
        for kept in self.files.values_mut() {
            if let Kept::File { number, .. } = kept {
                *number = None;
            }
        }
        self
    }
}

/// One with a program, and no files.
#[cfg(test)]
pub(super) fn of_a_program() -> Index {
    let search = Search { cwd: Path::new("/"), path: OsStr::new("/bin"), env: &[] };
    let program = Program {
        path: "/x".into(),
        script_args: Vec::new(),
        loader: "/l".into(),
        libraries: Vec::new(),
        glibc: (2, 36),
        hash: [0; 32],
        files: Vec::new(),
    };
    let known = Known { command: Command::new(OsStr::new("x"), &search), program };
    Index { program: Some(known), ..Index::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index() -> Index {
        let about = About { mode: 0o644, user: 1, group: 2, rights: 4, modified: (5, 6) };
        let listing = Some([Text::of("x"), Text(OsString::from_vec(vec![0xff]))].into());
        let digest = Digest([7; 32]);
        let sum = Sum(u64::MAX, 1);
        let file = |same_as| Kept::File { about, size: 3, digest, sum, same_as, number: None };
        let files = [
            ("/etc", Kept::Directory { about, listing }),
            ("/etc/gone", Kept::Absent),
            ("/etc/link", Kept::Link { about, to: Text::of("x") }),
            ("/etc/x", file(None)),
            ("/etc/y", file(Some(Text::of("/etc/x")))),
        ];
        let files = files.into_iter().map(|(path, kept)| (path.into(), kept)).collect();
        let runtime = Some("/etc/x".into());
        Index { program: None, runtime, made: None, files }
    }

    #[test]
    fn it_is_read_as_it_was_written() {
        let index = index();
        let bytes = index.encode();
        assert_eq!(Index::decode(&bytes).unwrap(), index);
        assert_eq!((index.bytes(), index.digests().len()), (3, 1));
        for at in 0..bytes.len() - 1 {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(Index::decode(&damaged).is_err(), "byte {at}");
        }
    }

    /// `SKEIN_BLESS` writes the stored one.
    #[test]
    fn one_that_is_stored_by_earlier_versions_is_read() {
        let stored = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/base/formats/index");
        if std::env::var_os("SKEIN_BLESS").is_some() {
            std::fs::write(&stored, index().encode()).unwrap();
        }
        assert_eq!(Index::decode(&std::fs::read(stored).unwrap()).unwrap(), index());
    }

    #[test]
    fn a_runtime_is_a_pinned_file() {
        let mut index = index();
        assert_eq!(index.runtime(), Some((Path::new("/etc/x"), 3, Digest([7; 32]))));
        for path in ["/etc", "/etc/gone", "/etc/none"] {
            index.runtime = Some(path.into());
            assert!(Index::decode(&index.encode()).is_err(), "{path}");
        }
        index.runtime = None;
        assert!(!String::from_utf8(index.encode()).unwrap().contains("runtime"));
        assert_eq!(Index::decode(&index.encode()).unwrap(), index);
    }

    #[test]
    fn what_another_pins_is_added_and_changes_nothing_that_is_pinned() {
        let own = index();
        let mut other = index();
        let about = About { mode: 0o755, user: 0, group: 0, rights: 5, modified: (1, 0) };
        let bare = || Kept::Directory { about, listing: None };
        let listed = || Kept::Directory { about, listing: Some([Text::of("a")].into()) };
        // Another file, one in a new directory, and one in what is none here.
        other.files.insert("/etc/x".into(), Kept::Absent);
        other.files.insert("/new".into(), bare());
        other.files.insert("/new/file".into(), Kept::Absent);
        other.files.insert("/etc/gone".into(), bare());
        other.files.insert("/etc/gone/file".into(), Kept::Absent);
        let new = own.lacks(other.clone());
        let paths = |index: &Index| index.files.keys().cloned().collect::<Vec<_>>();
        assert_eq!(paths(&new), [PathBuf::from("/new"), PathBuf::from("/new/file")]);
        let mut both = own.clone();
        both.files.extend(new.files);
        Index::decode(&both.encode()).unwrap();
        assert!(both.lacks(other.clone()).files.is_empty());
        // A directory is listed once a server has listed it.
        other.files.insert("/new".into(), listed());
        let new = both.lacks(other);
        assert_eq!(paths(&new), [PathBuf::from("/new")]);
        assert!(both.lacks(both.clone()).files.is_empty());
    }

    #[test]
    fn editions_that_begin_with_the_same_pins_are_not_the_same() {
        let of = |made| Index { made, ..index() };
        assert_eq!(of(Some(7)).digest(), of(Some(7)).digest());
        assert_ne!(of(Some(7)).digest(), of(Some(8)).digest());
        assert_ne!(of(Some(7)).digest(), of(None).digest());
        assert_eq!(Index::decode(&of(Some(7)).encode()).unwrap(), of(Some(7)));
    }

    #[test]
    fn a_path_that_leads_elsewhere_is_refused() {
        for path in
            ["etc/z", "/etc/../z", "/etc/./z", "/none/z", "/etc/x/z", "/etc/link/z", "/etc//z", "/"]
        {
            let mut index = index();
            index.files.insert(path.into(), Kept::Absent);
            assert!(Index::decode(&index.encode()).is_err(), "{path}");
        }
    }
}
