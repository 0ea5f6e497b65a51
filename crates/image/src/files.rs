//! The files that a server's arena knows by the kernel's numbers, and for each a path by which a restored server finds it: there the kernel numbers files anew.
//!
//! Paths come from the private layer, from the facts in the log, and from the processes. Each is looked up below the server's root, with the directories on the way and behind symbolic
//! links. A file of the host without any of these (the loader looks at some) is sought beside the others. What is still nowhere was removed.

use crate::Result;
use crate::before::{Before, Nowhere};
use crate::inode_table::InodeTable;
use crate::layered::About;
use crate::pages::in_time;
use nix::fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::stat::{FileStat, SFlag, fstat, fstatat};
use skein_arena::inodes::known;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::time::Instant;

/// Device and inode number.
pub type FileId = (u64, u64);

/// The paths of known files, and what is nowhere.
pub type Found = (BTreeMap<FileId, Vec<u8>>, Nowhere);

/// Looks for files.
pub struct Files<'a> {
    root: BorrowedFd<'a>,
    deadline: Instant,
    /// The arena's files, and whether each is the host's.
    wanted: HashMap<FileId, bool>,
    /// Copies of the host's files by the time of last access that marks them: their numbers may have changed since the arena noted them.
    marked: HashMap<(i64, i64), FileId>,
    found: BTreeMap<FileId, Vec<u8>>,
    seen: HashSet<Vec<u8>>,
    directories: BTreeSet<Vec<u8>>,
    /// Those to which no symbolic link leads.
    plain: HashSet<Vec<u8>>,
    /// Whether what is looked at is a process's.
    in_use: bool,
    /// Sought for an earlier image.
    nowhere: Nowhere,
}

impl<'a> Files<'a> {
    /// For a server with this root, and this table of files in its arena. Files that were nowhere for the image `before` are sought only where they were not then.
    pub fn new(
        root: BorrowedFd<'a>,
        table: &InodeTable<'_>,
        before: Option<&Before>,
        deadline: Instant,
    ) -> Self {
        let nowhere = before.map(|before| before.places.nowhere.clone()).unwrap_or_default();
        let (mut wanted, mut marked) = (HashMap::new(), HashMap::new());
        for file in table.rows().filter_map(known) {
            wanted.insert(file.file, file.is_hosts);
            marked.extend(file.mark.map(|mark| (mark, file.file)));
        }
        Self { marked, ..Self::of(root, wanted, nowhere, deadline) }
    }

    fn of(
        root: BorrowedFd<'a>,
        wanted: HashMap<FileId, bool>,
        nowhere: Nowhere,
        deadline: Instant,
    ) -> Self {
        Self {
            root,
            deadline,
            wanted,
            marked: HashMap::new(),
            found: BTreeMap::new(),
            seen: HashSet::new(),
            directories: BTreeSet::new(),
            plain: HashSet::new(),
            in_use: false,
            nowhere,
        }
    }

    /// A process has this path open, or mapped, or is there. Before other paths.
    pub fn note_used(&mut self, path: &[u8]) -> Result<()> {
        self.in_use = true;
        let noted = self.note(path);
        self.in_use = false;
        noted
    }

    /// The server may know what is at this path, the directories on the way, and what a symbolic link leads to.
    pub fn note(&mut self, path: &[u8]) -> Result<()> {
        if is_sought(path) {
            self.note_way(path)?;
            self.look(path)?;
        }
        Ok(())
    }

    /// The same for a regular file, of which it is known how the server's mounts show it.
    pub fn note_shown(&mut self, path: &[u8], about: &About) -> Result<()> {
        if is_sought(path) {
            if !self.seen.contains(parent(path)) {
                self.note_way(path)?;
            }
            if self.seen.insert(path.to_owned()) {
                self.found(about, SFlag::S_IFREG, path);
            }
        }
        Ok(())
    }

    /// Something is mounted in the server at this path. Files in a directory that it may know for no other reason are not sought: whoever looks at one there keeps the host from freeing it.
    pub fn note_mount(&mut self, path: &[u8]) -> Result<()> {
        if path.iter().filter(|byte| **byte == b'/').count() < 2 {
            return self.note(path);
        }
        in_time(self.deadline)?;
        if is_sought(path)
            && !self.seen.contains(path)
            && let Ok(stat) = self.stat(path)
        {
            self.seen.insert(path.to_owned());
            self.found(&about(&stat), kind(&stat), path);
        }
        Ok(())
    }

    /// The directories on the way to a path.
    fn note_way(&mut self, path: &[u8]) -> Result<()> {
        self.look(b"/")?;
        let ends = (1..path.len()).filter(|at| path[*at] == b'/' && path[at - 1] != b'/');
        ends.collect::<Vec<_>>().into_iter().try_for_each(|end| self.look(&path[..end]))
    }

    fn look(&mut self, path: &[u8]) -> Result<()> {
        if self.seen.contains(path) {
            return Ok(());
        }
        self.seen.insert(path.to_owned());
        in_time(self.deadline)?;
        // What is not there any more, or closed, is not found.
        let Ok(stat) = self.stat(path) else { return Ok(()) };
        self.found(&about(&stat), kind(&stat), path);
        match kind(&stat) {
            SFlag::S_IFDIR => drop(self.directories.insert(path.to_owned())),
            SFlag::S_IFLNK => {
                if let Ok(target) = self.open(path, OFlag::O_PATH)
                    && let Ok(name) = fs::read_link(place(&target))
                {
                    self.note(name.as_os_str().as_bytes())?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn stat(&mut self, path: &[u8]) -> nix::Result<FileStat> {
        // Without symbolic links on the way there is nothing to leave the root by.
        let is_plain = path.len() > 1 && self.plain.contains(parent(path));
        let stat = match is_plain {
            true => fstatat(self.root, &path[1..], AtFlags::AT_SYMLINK_NOFOLLOW)?,
            false => fstat(self.open(path, OFlag::O_PATH | OFlag::O_NOFOLLOW)?)?,
        };
        if kind(&stat) == SFlag::S_IFDIR && (is_plain || path == b"/") {
            self.plain.insert(path.to_owned());
        }
        Ok(stat)
    }

    fn open(&self, path: &[u8], flags: OFlag) -> nix::Result<OwnedFd> {
        let how = OpenHow::new().flags(flags | OFlag::O_CLOEXEC);
        openat2(self.root, path, how.resolve(ResolveFlag::RESOLVE_IN_ROOT))
    }

    fn found(&mut self, about: &About, kind: SFlag, path: &[u8]) {
        let file = about.id;
        let marked = self.marked.get(&about.accessed).copied();
        // Ends of FIFOs and names of sockets are known elsewhere in the arena, as are shared mappings.
        let has_other = matches!(kind, SFlag::S_IFIFO | SFlag::S_IFSOCK) || self.in_use;
        if self.wanted.contains_key(&file) || has_other {
            self.found.entry(file).or_insert_with(|| path.to_owned());
        }
        if let Some(file) = marked {
            self.found.insert(file, path.to_owned());
        }
    }

    /// All that were found, by their numbers; and the host's that are nowhere.
    pub fn finish(mut self) -> Result<Found> {
        let mut directories = std::mem::take(&mut self.directories);
        let mut unread = Vec::new();
        let before = std::mem::take(&mut self.nowhere);
        // Whether any is missing: of those that were not sought before, and of all.
        let missing = |files: &Self| {
            let wanted = files.wanted.iter().filter(|(_, is_hosts)| **is_hosts);
            let missing = wanted.map(|(file, _)| file).filter(|id| !files.found.contains_key(id));
            let (sought, new): (Vec<&FileId>, Vec<_>) =
                missing.partition(|id| before.files.contains(id));
            (!new.is_empty(), !new.is_empty() || !sought.is_empty())
        };
        let (mut new, mut any) = missing(&self);
        for directory in &directories {
            let is_known = before.directories.contains(directory);
            if !(if is_known { new } else { any }) {
                continue;
            }
            in_time(self.deadline)?;
            let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY;
            let opened = self.open(directory, flags);
            let entries = opened.as_ref().ok().and_then(|opened| fs::read_dir(place(opened)).ok());
            let Some((opened, entries)) = opened.ok().zip(entries) else {
                unread.push(directory.clone());
                continue;
            };
            for name in entries.flatten().map(|entry| entry.file_name()) {
                if let Ok(stat) = fstatat(&opened, name.as_os_str(), AtFlags::AT_SYMLINK_NOFOLLOW)
                    && self.wanted.contains_key(&(stat.st_dev, stat.st_ino))
                {
                    let slash = if directory.ends_with(b"/") { b"".as_slice() } else { b"/" };
                    let path = [directory, slash, name.as_bytes()].concat();
                    self.found.entry((stat.st_dev, stat.st_ino)).or_insert(path);
                }
            }
            (new, any) = missing(&self);
        }
        directories.retain(|directory| !unread.contains(directory));
        let hosts = self.wanted.iter().filter(|(_, is_hosts)| **is_hosts).map(|(file, _)| *file);
        let files = hosts.filter(|file| !self.found.contains_key(file)).collect();
        Ok((self.found, Nowhere { files, directories }))
    }
}

/// Whether files at this path have numbers that a restored server needs.
fn is_sought(path: &[u8]) -> bool {
    path.starts_with(b"/") && path != b"/proc" && !path.starts_with(b"/proc/")
}

/// The path of the directory that has the last name of a path.
fn parent(path: &[u8]) -> &[u8] {
    let slash = path.iter().rposition(|byte| *byte == b'/');
    slash.map_or(path, |at| &path[..at.max(1)])
}

fn about(stat: &FileStat) -> About {
    About {
        id: (stat.st_dev, stat.st_ino),
        accessed: (stat.st_atime, stat.st_atime_nsec),
        changed: (stat.st_ctime, stat.st_ctime_nsec),
    }
}

fn kind(stat: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits())
}

fn place(opened: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", opened.as_raw_fd())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::os::unix::fs::MetadataExt;
    use std::path::Path;
    use std::time::Duration;

    #[test]
    fn nothing_is_sought_where_something_is_only_mounted() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("disks/one")).unwrap();
        fs::write(root.path().join("disks/one/file"), "").unwrap();
        let id = |path: &str| {
            let about = fs::metadata(root.path().join(path)).unwrap();
            (about.dev(), about.ino())
        };
        let (disk, file) = (id("disks/one"), id("disks/one/file"));
        let opened = fs::File::open(root.path()).unwrap();
        let find = |mount: &str, path: Option<&str>| {
            let wanted = [(disk, true), (file, true)].into();
            let deadline = Instant::now() + Duration::from_secs(60);
            let mut files = Files::of(opened.as_fd(), wanted, Nowhere::default(), deadline);
            path.into_iter().for_each(|path| files.note(path.as_bytes()).unwrap());
            files.note_mount(mount.as_bytes()).unwrap();
            files.finish().unwrap().0.into_keys().collect::<Vec<_>>()
        };
        assert_eq!(find("/disks/one", None), [disk]);
        assert_eq!(
            find("/disks/one", Some("/disks/one/other")),
            [disk, file],
            "it knows a file there"
        );
        assert_eq!(find("/disks", None), [disk], "below the root they are sought");
    }

    /// What is found of these of the host's files, where the server may know these paths, and some were sought before.
    fn find(root: &Path, wanted: &[FileId], paths: &[&str], nowhere: Nowhere) -> Found {
        let opened = fs::File::open(root).unwrap();
        let wanted = wanted.iter().map(|file| (*file, true)).collect();
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut files = Files::of(opened.as_fd(), wanted, nowhere, deadline);
        paths.iter().for_each(|path| files.note(path.as_bytes()).unwrap());
        files.finish().unwrap()
    }

    #[test]
    fn what_was_nowhere_is_sought_where_it_was_not() {
        let root = tempfile::tempdir().unwrap();
        let made = |name: &str| {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "").unwrap();
            let about = fs::metadata(path).unwrap();
            (about.dev(), about.ino())
        };
        let (one, two, gone) = (made("a/one"), made("b/two"), (0, 1));
        let find =
            |wanted: &[FileId], paths: &[&str], nowhere| find(root.path(), wanted, paths, nowhere);
        let (found, nowhere) = find(&[one, two, gone], &["/a/not-there"], Nowhere::default());
        assert_eq!(found, BTreeMap::from([(one, b"/a/one".to_vec())]));
        assert_eq!(nowhere.files, HashSet::from([two, gone]));
        assert!(nowhere.directories.contains(b"/a".as_slice()));
        // Not where it was sought.
        let three = made("a/three");
        let known = Nowhere { files: [two, three, gone].into(), ..nowhere.clone() };
        let (found, _) = find(&[three, gone], &["/a/not-there"], known.clone());
        assert!(found.is_empty(), "{found:?}");
        // In another directory, and everywhere for a file that was not sought.
        let (found, left) = find(&[two, three, gone], &["/a/x", "/b/x"], known.clone());
        assert_eq!(found, BTreeMap::from([(two, b"/b/two".to_vec())]));
        assert_eq!(left.files, HashSet::from([three, gone]));
        let four = made("a/four");
        let (found, _) = find(&[four, gone], &["/a/x"], known);
        assert_eq!(found.get(&four), Some(&b"/a/four".to_vec()));
    }
}
