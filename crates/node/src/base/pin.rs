//! Pins what facts are about: follows a path on the host as the kernel does, and keeps everything on the way.
//!
//! The host is compared with the fact. If it differs, it has changed since the server used it, and nothing is pinned: the runtime refuses it at the next use. The same
//! for a path that leads through what the server itself has made.

use super::index::{Command, Index, Kept, Known, Text};
use super::store::{Added, Digest, LARGE_BYTES, Objects, Sum};
use skein_model::fact::{Fact, What};
use skein_sandbox::{About, Program};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::{OsStr, OsString};
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// As many symbolic links as the kernel follows.
const LINKS_MAX: u32 = 40;
/// Of a directory that was listed, so many entries are pinned with it: a server that lists its configuration reads it next.
const ENTRIES_MAX: usize = 1024;
/// Their contents up to this size: 1 MiB.
const ENTRY_BYTES_MAX: u64 = 1 << 20;
/// Larger contents are pinned at one path only where each start would copy them for a second one: 1 GiB.
const COPIED_BYTES_MAX: u64 = 1 << 30;
/// The loader's own list of libraries, which no fact covers: the loader reads it before the runtime begins.
const LOADER_CACHE: &str = "/etc/ld.so.cache";

/// Why something is not pinned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// It is the kernel's, and not the host's.
    Kernels,
    /// A large file on the way is to be read first; which one is in [`Pinner::wanted`].
    Later,
    /// There is no room for it now, in words.
    NoRoom(String),
    /// In words.
    Because(String),
}

impl From<io::Error> for Why {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::Interrupted => Self::Later,
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Self::NoRoom(error.to_string())
            }
            _ => Self::Because(error.to_string()),
        }
    }
}

/// A large file that was read before it is pinned.
#[derive(Debug)]
pub struct Found {
    /// Where it is, without links on the way.
    pub path: PathBuf,
    /// As it was.
    pub meta: Metadata,
    /// Its contents, which are kept; or why not.
    pub added: Result<Added, Why>,
}

fn because<T>(why: &str) -> Result<T, Why> {
    Err(Why::Because(why.into()))
}

/// Where a path led.
enum End {
    Absent,
    Found(PathBuf),
}

/// Adds pins to an index.
pub struct Pinner<'a> {
    objects: &'a Objects,
    /// With all that was pinned.
    pub index: Index,
    /// Whether anything was.
    pub changed: bool,
    /// When the log began, in virtual time: seconds and nanoseconds; the server sees no file that is younger.
    begun: Option<(i64, u32)>,
    /// Large files that were read; `None`: large ones are read at once.
    pub found: Option<Vec<Found>>,
    /// One that is to be read.
    pub wanted: Option<PathBuf>,
    /// What the fact at hand adds.
    staged: BTreeMap<PathBuf, Kept>,
}

impl<'a> Pinner<'a> {
    /// To add to this index.
    #[must_use]
    pub fn new(objects: &'a Objects, index: Index, begun: Option<(i64, u32)>) -> Self {
        let (found, wanted, staged) = (None, None, BTreeMap::new());
        Self { objects, index, changed: false, begun, found, wanted, staged }
    }

    /// The log began then.
    pub const fn log_begun(&mut self, s: i64, ns: u32) {
        self.begun = Some((s, ns));
    }

    /// Pins what a fact is about.
    ///
    /// # Errors
    /// The host has it no more, or it cannot be kept.
    pub fn fact(&mut self, fact: &Fact<'_>) -> Result<(), Why> {
        let pinned = self.stage(fact);
        self.settle(pinned)
    }

    fn settle(&mut self, pinned: Result<(), Why>) -> Result<(), Why> {
        let staged = std::mem::take(&mut self.staged);
        if pinned.is_ok() && !staged.is_empty() {
            self.index.files.extend(staged);
            self.changed = true;
        }
        pinned
    }

    /// Pins a program with all that it is started with. `command` is what it was found by.
    ///
    /// # Errors
    /// The host has others by now, or they cannot be kept.
    pub fn program(&mut self, command: &Command, program: &Program, cwd: &Path) -> Result<(), Why> {
        let found = self.found.take();
        let pinned = self.stage_program(program, cwd);
        self.found = found;
        self.settle(pinned)?;
        let known = Known { command: command.clone(), program: program.clone() };
        self.index.program = Some(known);
        self.changed = true;
        Ok(())
    }

    /// Pins the host's runtime, in place of another one.
    ///
    /// # Errors
    /// It cannot be kept.
    pub fn runtime(&mut self, path: &Path) -> Result<(), Why> {
        let has_other = self.index.files.remove(path).is_some();
        let pinned = self.stage_now(path, false);
        self.settle(pinned)?;
        self.changed |= has_other;
        self.index.runtime = Some(path.to_owned());
        match self.index.runtime() {
            Some(_) => Ok(()),
            None => because("it is no regular file"),
        }
    }

    /// Pins what the host has at a path by now in place of what was pinned.
    ///
    /// # Errors
    /// It cannot be kept.
    pub fn take_over(&mut self, path: &Path) -> Result<(), Why> {
        let former = self.index.files.remove(path);
        let listed = matches!(former, Some(Kept::Directory { listing: Some(_), .. }));
        let is_directory = fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir());
        if !is_directory {
            // What was in it is gone, too.
            self.index.files.retain(|other, _| !other.starts_with(path));
        }
        self.changed = true;
        let pinned = self.stage_now(path, listed);
        self.settle(pinned)
    }

    fn stage_now(&mut self, path: &Path, listed: bool) -> Result<(), Why> {
        let End::Found(place) = self.walk(path.as_os_str().as_bytes(), false)? else {
            return Ok(());
        };
        match self.step(&place)? {
            Step::File => self.keep_file(&place, u64::MAX).map(drop),
            Step::Directory if listed => {
                let mut names = BTreeSet::new();
                for entry in fs::read_dir(&place)? {
                    names.insert(entry?.file_name());
                }
                self.keep_entries(&place, &names);
                self.keep_listing(&place, names.iter().map(Text::of).collect())
            }
            Step::Directory | Step::Link(_) | Step::Absent => Ok(()),
        }
    }

    /// Whether a file of a program is pinned with these contents.
    ///
    /// # Errors
    /// It cannot be followed.
    pub fn has(&mut self, path: &Path, hash: u128) -> Result<bool, Why> {
        let End::Found(place) = self.walk(path.as_os_str().as_bytes(), true)? else {
            return Ok(false);
        };
        let wanted = Sum::of(hash.to_be_bytes());
        let has = matches!(self.at(&place), Some(Kept::File { sum, .. }) if *sum == wanted);
        self.staged.clear();
        Ok(has)
    }

    fn stage_program(&mut self, program: &Program, cwd: &Path) -> Result<(), Why> {
        for (path, hash) in &program.files {
            let End::Found(place) = self.walk(path.as_os_str().as_bytes(), true)? else {
                return Err(Why::Because(format!("{} is gone", path.display())));
            };
            match self.keep_file(&place, u64::MAX)? {
                Some(added) if added.hash != hash.to_be_bytes() => {
                    return Err(Why::Because(format!("{} has changed meanwhile", path.display())));
                }
                _ => {}
            }
        }
        self.walk(cwd.as_os_str().as_bytes(), true)?;
        if let Ok(End::Found(cache)) = self.walk(LOADER_CACHE.as_bytes(), true) {
            self.keep_file(&cache, u64::MAX)?;
        }
        Ok(())
    }

    fn stage(&mut self, fact: &Fact<'_>) -> Result<(), Why> {
        let is_link = fact.what == What::About && fact.kind == libc::DT_LNK;
        let end = match self.walk(fact.path, !is_link) {
            // The server has made the link, or it is in another root directory.
            Err(Why::Because(_)) | Ok(End::Absent)
                if fact.what == What::Contents && !fact.more.is_empty() =>
            {
                self.staged.clear();
                self.walk(fact.more, true)?
            }
            end => end?,
        };
        let place = match (fact.what, end) {
            (What::Absent, End::Absent) => return Ok(()),
            (What::Absent, End::Found(_)) => {
                // Behind a file, or closed to the server's user.
                let errno = i32::try_from(fact.errno).unwrap_or(0);
                return match errno {
                    libc::ENOENT => because("it is there by now"),
                    _ => Ok(()),
                };
            }
            (_, End::Absent) => return because("it is not there any more"),
            (_, End::Found(place)) => place,
        };
        match fact.what {
            What::Contents => match self.keep_file(&place, u64::MAX)? {
                Some(added) if (added.size, added.hash) != (fact.size, fact.hash) => {
                    because("its contents have changed since")
                }
                _ => Ok(()),
            },
            What::Listing => self.listing(&place, fact),
            What::There | What::About => {
                if self.is_known(&place) {
                    return Ok(());
                }
                if place != Path::new("/") {
                    self.compare(&place, fact)?;
                }
                if fact.kind == libc::DT_REG {
                    self.keep_file(&place, u64::MAX)?;
                }
                Ok(())
            }
            What::Absent => Ok(()),
        }
    }

    /// Whether a path was pinned before.
    fn is_known(&self, path: &Path) -> bool {
        self.index.files.contains_key(path)
    }

    fn at(&self, path: &Path) -> Option<&Kept> {
        self.staged.get(path).or_else(|| self.index.files.get(path))
    }

    /// Follows a path. Directories, links and an absence on the way are staged; a file at its end is not.
    fn walk(&mut self, path: &[u8], follows: bool) -> Result<End, Why> {
        if !path.starts_with(b"/") {
            return because("its path is not known");
        }
        let parts = |path: &[u8]| -> Vec<OsString> {
            let plain =
                path.split(|byte| *byte == b'/').filter(|part| !part.is_empty() && *part != b".");
            plain.map(|part| OsStr::from_bytes(part).to_owned()).collect()
        };
        let mut todo: VecDeque<OsString> = parts(path).into();
        let mut at = PathBuf::from("/");
        let mut links = 0;
        while let Some(name) = todo.pop_front() {
            if name == ".." {
                at.pop();
                continue;
            }
            let next = at.join(&name);
            if ["/proc", "/sys", "/dev"].iter().any(|top| next.starts_with(top)) {
                return Err(Why::Kernels);
            }
            match self.step(&next)? {
                Step::Absent => return Ok(End::Absent),
                Step::Directory => at = next,
                Step::File => return Ok(End::Found(next)),
                Step::Link(_) if todo.is_empty() && !follows => return Ok(End::Found(next)),
                Step::Link(to) => {
                    links += 1;
                    if links > LINKS_MAX {
                        return because("symbolic links lead in a circle");
                    }
                    if to.as_bytes().starts_with(b"/") {
                        at = PathBuf::from("/");
                    }
                    for part in parts(to.as_bytes()).into_iter().rev() {
                        todo.push_front(part);
                    }
                }
            }
        }
        Ok(End::Found(at))
    }

    /// What the server sees at a path without links before its last part; staged if it is not pinned yet.
    fn step(&mut self, path: &Path) -> Result<Step, Why> {
        match self.at(path) {
            Some(Kept::Absent) => return Ok(Step::Absent),
            Some(Kept::Directory { .. }) => return Ok(Step::Directory),
            Some(Kept::Link { to, .. }) => return Ok(Step::Link(to.0.clone())),
            Some(Kept::File { .. }) => return Ok(Step::File),
            None => {}
        }
        let meta = match fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.staged.insert(path.to_owned(), Kept::Absent);
                return Ok(Step::Absent);
            }
            meta => meta?,
        };
        let about = About::of(path, &meta);
        if meta.is_dir() {
            let directory = Kept::Directory { about, listing: None };
            self.staged.insert(path.to_owned(), directory);
            Ok(Step::Directory)
        } else if meta.is_symlink() {
            let to = Text::of(fs::read_link(path)?);
            self.staged.insert(path.to_owned(), Kept::Link { about, to: to.clone() });
            Ok(Step::Link(to.0))
        } else if meta.is_file() {
            Ok(Step::File)
        } else {
            because("it is neither file, directory nor symbolic link")
        }
    }

    /// Stages a file with its contents; answers these if it was not pinned before.
    fn keep_file(&mut self, path: &Path, most: u64) -> Result<Option<Added>, Why> {
        match self.at(path) {
            None => {}
            Some(Kept::File { .. }) => return Ok(None),
            Some(_) => return because("it is no regular file"),
        }
        let meta = fs::symlink_metadata(path)?;
        if !meta.is_file() {
            return because("it is no regular file");
        }
        if meta.len() > most {
            return because("it is too large for an entry that was only listed");
        }
        let number = (meta.nlink() > 1).then(|| (meta.dev(), meta.ino()));
        let same_as = number.and_then(|number| self.with_number(number));
        let added = self.contents(path, &meta)?;
        let about = About::of(path, &meta);
        if !is_like(&meta, &fs::symlink_metadata(path)?) {
            return because("it changes while it is read");
        }
        let (size, digest, sum) = (added.size, added.digest, Sum::of(added.hash));
        if size > COPIED_BYTES_MAX
            && same_as.is_none()
            && !self.objects.is_shared(digest)
            && let Some(other) = self.with_contents(digest)
        {
            let other = other.display();
            let why = format!(
                "it has the contents of {other}, and each start would copy them: make it a hard link to that, or use a file system with reflinks"
            );
            return Err(Why::Because(why));
        }
        self.staged
            .insert(path.to_owned(), Kept::File { about, size, digest, sum, same_as, number });
        Ok(Some(added))
    }

    /// The contents of a file, which are kept.
    fn contents(&mut self, path: &Path, meta: &Metadata) -> Result<Added, Why> {
        let Some(found) = self.found.as_ref().filter(|_| meta.len() > LARGE_BYTES) else {
            return Ok(self.objects.add(path)?);
        };
        match found.iter().find(|found| found.path == path && is_like(&found.meta, meta)) {
            Some(found) => found.added.clone(),
            None => {
                self.wanted = Some(path.to_owned());
                Err(Why::Later)
            }
        }
    }

    /// The path of the file that the host has by this number.
    fn with_number(&self, wanted: (u64, u64)) -> Option<Text> {
        let is_it = |(path, kept): (&PathBuf, &Kept)| match kept {
            Kept::File { number: Some(number), same_as: None, .. } if *number == wanted => {
                Some(Text::of(path))
            }
            _ => None,
        };
        self.staged.iter().chain(&self.index.files).find_map(is_it)
    }

    /// A path that has these contents.
    fn with_contents(&self, wanted: Digest) -> Option<&Path> {
        let has = |kept: &Kept| matches!(kept, Kept::File { digest, .. } if *digest == wanted);
        let mut all = self.staged.iter().chain(&self.index.files);
        all.find(|(_, kept)| has(kept)).map(|(path, _)| path.as_path())
    }

    /// The host's file is as the fact says.
    fn compare(&self, place: &Path, fact: &Fact<'_>) -> Result<(), Why> {
        let meta = fs::symlink_metadata(place)?;
        if (meta.mode() & libc::S_IFMT) >> 12 != u32::from(fact.kind) {
            return because("it is of another kind by now");
        }
        if fact.what == What::There {
            return Ok(());
        }
        let modified = (meta.mtime(), meta.mtime_nsec() as u32);
        // The server sees a file that is younger than the log as if it were as old.
        let shown = self.begun.filter(|begun| modified >= *begun).unwrap_or(modified);
        let is_file = fact.kind == libc::DT_REG;
        if is_file && meta.len() != fact.size {
            return because("its size has changed since");
        }
        if fact.kind != libc::DT_DIR && shown != fact.modified {
            return because("its time has changed since");
        }
        let is_root = nix::unistd::geteuid().is_root();
        if is_root && fact.kind != libc::DT_LNK && meta.mode() & 0o7777 != fact.mode {
            return because("its permissions have changed since");
        }
        if fact.kind == libc::DT_LNK && fs::read_link(place)?.as_os_str().as_bytes() != fact.more {
            return because("its target has changed since");
        }
        Ok(())
    }

    /// Stages the names of a directory, and what they name as far as that is small.
    fn listing(&mut self, place: &Path, fact: &Fact<'_>) -> Result<(), Why> {
        if place == Path::new("/")
            || matches!(self.at(place), Some(Kept::Directory { listing: Some(_), .. }))
        {
            return Ok(());
        }
        if fact.size > 0 && fact.more.is_empty() {
            return because("it has too many entries");
        }
        let listed = fact.more.split(|byte| *byte == 0).filter_map(|entry| entry.get(1..));
        let listed: BTreeSet<OsString> =
            listed.map(|name| OsStr::from_bytes(name).to_owned()).collect();
        let mut here = BTreeSet::new();
        for entry in fs::read_dir(place)? {
            here.insert(entry?.file_name());
        }
        // What only the host has was removed by the server, or is hidden from it.
        let common = here.intersection(&listed).cloned().collect();
        self.keep_entries(place, &common);
        self.keep_listing(place, here.union(&listed).map(Text::of).collect())
    }

    /// Stages the small ones among these entries of a directory.
    fn keep_entries(&mut self, place: &Path, names: &BTreeSet<OsString>) {
        if names.len() > ENTRIES_MAX {
            return;
        }
        for name in names {
            let entry = place.join(name);
            if self.at(&entry).is_some() || !matches!(self.step(&entry), Ok(Step::File)) {
                continue;
            }
            // One that cannot be kept stays the host's.
            let _ = self.keep_file(&entry, ENTRY_BYTES_MAX);
        }
    }

    fn keep_listing(&mut self, place: &Path, names: BTreeSet<Text>) -> Result<(), Why> {
        match self.at(place).cloned() {
            Some(Kept::Directory { about, .. }) => {
                let listing = Kept::Directory { about, listing: Some(names) };
                self.staged.insert(place.to_owned(), listing);
                Ok(())
            }
            _ => because("it is no directory"),
        }
    }
}

/// What is at a path.
enum Step {
    Absent,
    Directory,
    Link(OsString),
    File,
}

fn is_like(a: &Metadata, b: &Metadata) -> bool {
    let state = |meta: &Metadata| {
        (meta.dev(), meta.ino(), meta.len(), meta.mtime(), meta.mtime_nsec(), meta.ctime_nsec())
    };
    state(a) == state(b)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    struct Host {
        dir: tempfile::TempDir,
        objects: Objects,
    }

    impl Host {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let objects = Objects::new(dir.path().join("objects"));
            fs::create_dir_all(dir.path().join("etc/conf.d")).unwrap();
            fs::write(dir.path().join("etc/v1"), "one").unwrap();
            symlink("etc", dir.path().join("short")).unwrap();
            symlink("../short/v1", dir.path().join("etc/now")).unwrap();
            Self { dir, objects }
        }

        fn path(&self, name: &str) -> Vec<u8> {
            self.dir.path().join(name).into_os_string().into_encoded_bytes()
        }

        fn contents(&self, name: &str, text: &str) -> Result<Vec<(String, &'static str)>, Why> {
            let hash = xxhash_rust::xxh3::xxh3_128(text.as_bytes()).to_be_bytes();
            let path = self.path(name);
            let fact = Fact {
                kind: libc::DT_REG,
                size: text.len() as u64,
                hash,
                ..Fact::new(What::Contents, &path)
            };
            self.pin(&fact)
        }

        fn pin(&self, fact: &Fact<'_>) -> Result<Vec<(String, &'static str)>, Why> {
            let mut pinner = Pinner::new(&self.objects, Index::default(), None);
            let pinned = pinner.fact(fact);
            assert_eq!(pinner.changed, pinned.is_ok() && !pinner.index.files.is_empty());
            Index::decode(&pinner.index.encode()).unwrap();
            pinned?;
            let below = |(path, kept): (&PathBuf, &Kept)| {
                let path = path.strip_prefix(self.dir.path()).ok()?.to_str()?.to_owned();
                Some((path, kept.kind())).filter(|(path, _)| !path.is_empty())
            };
            Ok(pinner.index.files.iter().filter_map(below).collect())
        }
    }

    fn named(all: &[(&str, &'static str)]) -> Vec<(String, &'static str)> {
        all.iter().map(|(path, kind)| ((*path).into(), *kind)).collect()
    }

    #[test]
    fn all_links_on_the_way_to_contents_are_pinned() {
        let host = Host::new();
        let expected =
            [("etc", "directory"), ("etc/now", "link"), ("etc/v1", "file"), ("short", "link")];
        assert_eq!(host.contents("short/now", "one").unwrap(), named(&expected));
        assert_eq!(host.contents("short/now", "two"), because("its contents have changed since"));
        assert!(host.contents("etc/none", "one").is_err());
    }

    #[test]
    fn an_absence_is_pinned_where_the_path_ends() {
        let host = Host::new();
        let path = host.path("short/none/below");
        let absent = Fact { errno: libc::ENOENT as u32, ..Fact::new(What::Absent, &path) };
        let expected = [("etc", "directory"), ("etc/none", "absent"), ("short", "link")];
        assert_eq!(host.pin(&absent).unwrap(), named(&expected));
        let path = host.path("etc/v1");
        let there = Fact { path: &path, ..absent };
        assert_eq!(host.pin(&there), because("it is there by now"));
    }

    #[test]
    fn a_listing_is_pinned_with_small_entries() {
        let host = Host::new();
        fs::write(host.dir.path().join("etc/conf.d/a.conf"), "a").unwrap();
        let path = host.path("etc/conf.d");
        let more = b"\x08a.conf\0\x08made-by-the-server\0";
        let fact = Fact { kind: libc::DT_DIR, size: 2, more, ..Fact::new(What::Listing, &path) };
        let expected =
            [("etc", "directory"), ("etc/conf.d", "listing"), ("etc/conf.d/a.conf", "file")];
        assert_eq!(host.pin(&fact).unwrap(), named(&expected));
        let large = Fact { size: 3000, more: b"", ..fact };
        assert_eq!(host.pin(&large), because("it has too many entries"));
    }

    #[test]
    fn what_the_host_has_by_now_is_taken_over() {
        let host = Host::new();
        let at = |name: &str| host.dir.path().join(name);
        fs::write(at("etc/conf.d/a.conf"), "a").unwrap();
        let mut pinner = Pinner::new(&host.objects, Index::default(), None);
        let (listed, absent, file) =
            (host.path("etc/conf.d"), host.path("etc/none"), host.path("etc/v1"));
        let more = b"\x08a.conf\0";
        let facts = [
            Fact { kind: libc::DT_DIR, size: 1, more, ..Fact::new(What::Listing, &listed) },
            Fact { errno: libc::ENOENT as u32, ..Fact::new(What::Absent, &absent) },
            Fact { kind: libc::DT_REG, ..Fact::new(What::There, &file) },
        ];
        facts.iter().for_each(|fact| pinner.fact(fact).unwrap());
        let before = pinner.index.digest();
        // Another file, one more, one that is there by now, and a directory that is none any more.
        fs::write(at("etc/v1"), "two").unwrap();
        fs::write(at("etc/none"), "some").unwrap();
        fs::write(at("etc/conf.d/b.conf"), "b").unwrap();
        let changed = super::super::diff::changed(&pinner.index).unwrap();
        for name in ["etc/v1", "etc/none", "etc/conf.d"] {
            assert!(changed.contains(&at(name)), "{name} {changed:?}");
        }
        changed.iter().for_each(|path| pinner.take_over(path).unwrap());
        assert_eq!(super::super::diff::changed(&pinner.index).unwrap(), Vec::<PathBuf>::new());
        assert_ne!(pinner.index.digest(), before);
        let hash = |text: &str| xxhash_rust::xxh3::xxh3_128(text.as_bytes());
        assert!(pinner.has(&at("etc/v1"), hash("two")).unwrap());
        assert!(!pinner.has(&at("etc/v1"), hash("one")).unwrap());
        assert!(pinner.has(&at("etc/conf.d/b.conf"), hash("b")).unwrap());
        fs::remove_dir_all(at("etc/conf.d")).unwrap();
        fs::write(at("etc/conf.d"), "a file").unwrap();
        pinner.take_over(&at("etc/conf.d")).unwrap();
        assert!(pinner.has(&at("etc/conf.d"), hash("a file")).unwrap());
        Index::decode(&pinner.index.encode()).unwrap();
    }

    #[test]
    fn two_names_of_a_file_stay_so() {
        let host = Host::new();
        fs::hard_link(host.dir.path().join("etc/v1"), host.dir.path().join("etc/v0")).unwrap();
        let mut pinner = Pinner::new(&host.objects, Index::default(), None);
        for name in ["etc/v0", "etc/v1"] {
            let path = host.path(name);
            pinner.fact(&Fact { kind: libc::DT_REG, ..Fact::new(What::There, &path) }).unwrap();
        }
        let same = pinner.index.files.values().filter_map(|kept| match kept {
            Kept::File { same_as, .. } => Some(same_as.is_some()),
            _ => None,
        });
        assert_eq!(same.collect::<Vec<_>>(), [false, true]);
    }

    /// What was read is told here, so nothing of that length is read.
    #[test]
    fn very_large_contents_are_not_copied_at_each_start() {
        let host = Host::new();
        let (one, two) = (host.dir.path().join("one"), host.dir.path().join("two"));
        for path in [&one, &two] {
            fs::File::create(path).unwrap().set_len(COPIED_BYTES_MAX + 1).unwrap();
        }
        fs::hard_link(&one, host.dir.path().join("three")).unwrap();
        let (digest, size) = (Digest([3; 32]), COPIED_BYTES_MAX + 1);
        let found = |path: PathBuf| {
            let added = Ok(Added { digest, size, hash: [0; 16] });
            Found { meta: fs::symlink_metadata(&path).unwrap(), path, added }
        };
        let mut pinner = Pinner::new(&host.objects, Index::default(), None);
        let there = |pinner: &mut Pinner<'_>, name: &str| {
            let path = host.path(name);
            pinner.fact(&Fact { kind: libc::DT_REG, ..Fact::new(What::There, &path) })
        };
        pinner.found = Some(Vec::new());
        assert_eq!(there(&mut pinner, "one"), Err(Why::Later));
        assert_eq!(pinner.wanted.take(), Some(one.clone()));
        let all = ["one", "two", "three"].map(|name| found(host.dir.path().join(name)));
        pinner.found = Some(all.into());
        assert_eq!(there(&mut pinner, "one"), Ok(()));
        let Err(Why::Because(why)) = there(&mut pinner, "two") else { panic!("it is pinned") };
        assert!(why.contains("/one, and each start would copy"), "{why}");
        assert_eq!(there(&mut pinner, "three"), Ok(()));
    }
}
