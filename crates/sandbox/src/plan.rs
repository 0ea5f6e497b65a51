//! The mount plan: every step that builds the server's file system, worked out by the node before the fork, so that init
//! only has to carry it out.
//!
//! The obvious plan, one overlay with `lowerdir=/`, is impossible for an ordinary user: mounts that came with the copied
//! mount namespace are locked together, and the kernel refuses an overlay over a tree with locked mounts below it. So the
//! root is a tmpfs, and each directory of it is an overlay of its own; a directory with mounts below it becomes a plain
//! directory again ("split") whose entries are treated alike. root and ordinary users get the same plan.
//!
//! While the plan runs: "/" is a tmpfs, `/old` the host, `/r` the server's future root, `/l` the layer with the upper and work directories of the
//! overlays, `/p` and `/x` pinned files ([`pinned`]). `/l` is a directory of the tmpfs or, for a layer on disk, one of the node's. That may lie
//! below a directory with an overlay: the kernel refuses this of lower directories only. `/r` stays in memory.

mod pinned;

use std::collections::BTreeSet;
use std::ffi::{CString, OsStr};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::unistd::AccessFlags;
use serde::{Deserialize, Serialize};

use super::mountinfo::{Mounts, ancestors_from_root};
use super::owner::Owner;
use super::pins::{Pins, allowed};
use pinned::{Found, Kind};

/// A file directly in a split directory is copied up to this size, and bound read-only above it.
const COPY_BYTES: u64 = 4 * 1024 * 1024;

/// A directory with more entries than this is not split: it is bound read-only.
const SPLIT_ENTRIES: usize = 4096;

/// Device files that the server gets.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

/// Read-only in /proc: root's server has the id of the host's root, and these files ask for no more than that from a writer (the program that
/// dumps cores, say).
const READ_ONLY_PROC: [&str; 5] = ["bus", "fs", "irq", "sys", "sysrq-trigger"];

/// Files in /proc that tell of the kernel's memory, keys and timers: empty.
const EMPTY_PROC: [&str; 14] = [
    "interrupts",
    "kcore",
    "keys",
    "kmsg",
    "kpagecgroup",
    "kpagecount",
    "kpageflags",
    "latency_stats",
    "mtrr",
    "pagetypeinfo",
    "sched_debug",
    "slabinfo",
    "timer_list",
    "vmallocinfo",
];

/// Where the overlays' upper directories are.
pub(super) const UPPERS: &str = "/l/u/";

const MOUNT_FLAGS: libc::c_ulong = libc::MS_NOSUID | libc::MS_NODEV;
/// Mount options of the server's writable places. The runtime keeps a mark of its own in the access time.
pub(super) const LAYER_FLAGS: libc::c_ulong = MOUNT_FLAGS | libc::MS_NOATIME;

/// One step. Strings are ready for the kernel.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Step {
    Mount {
        source: CString,
        target: CString,
        kind: CString,
        flags: libc::c_ulong,
        data: CString,
    },
    /// An overlay of directory `lower`; where that is not possible, perhaps a read-only view of it.
    Overlay {
        lower: CString,
        target: CString,
        data: CString,
        or_read_only: bool,
    },
    /// Shows `source` and the mounts below it, read-only.
    ReadOnly {
        source: CString,
        target: CString,
    },
    Directory {
        path: CString,
        mode: u32,
        owner: Option<(u32, u32)>,
    },
    /// An empty file, or a copy.
    File {
        path: CString,
        from: Option<CString>,
        mode: u32,
        owner: Option<(u32, u32)>,
    },
    Symlink {
        path: CString,
        to: CString,
    },
    /// Hides this name of the layers below.
    Absent(CString),
    /// Access and modification time, seconds and nanoseconds; of a symbolic link itself.
    Times {
        path: CString,
        accessed: (i64, i64),
        modified: (i64, i64),
    },
    Enter(CString),
    /// The node gets a descriptor of a directory of the layer.
    ShowLayer(CString),
    Pivot {
        new: CString,
        old: CString,
    },
    Detach(CString),
    /// /proc is there and nothing of it is hidden yet: init opens what it needs of it to set numbers of processes.
    OpenNumbers,
}

impl Step {
    /// The step's action and its path on the host, for a message.
    pub(super) fn describe(&self) -> (&'static str, PathBuf) {
        let (what, path) = match self {
            Self::Mount { target, .. } => ("mount", target),
            Self::Overlay { lower, .. } => ("overlay", lower),
            Self::ReadOnly { source, .. } => ("read-only mount", source),
            Self::Directory { path, .. } => ("directory", path),
            Self::File { path, .. } => ("file", path),
            Self::Symlink { path, .. } => ("symbolic link", path),
            Self::Absent(path) => ("absent file", path),
            Self::Times { path, .. } => ("times", path),
            Self::Enter(path) => ("enter", path),
            Self::ShowLayer(path) => ("hand over the layer", path),
            Self::OpenNumbers => return ("open", PathBuf::from("/proc/sys/kernel/ns_last_pid")),
            Self::Pivot { new, .. } => ("pivot_root", new),
            Self::Detach(path) => ("unmount", path),
        };
        let path = Path::new(OsStr::from_bytes(path.as_bytes()));
        let host = ["/old", "/r"].iter().find_map(|prefix| path.strip_prefix(prefix).ok());
        (what, host.map_or_else(|| path.to_owned(), |rest| Path::new("/").join(rest)))
    }
}

/// Works out the plan for this host.
///
/// `writable` are the directories below which the server must be able to write even where it owns only a part of the path. `pins` take the place of
/// files of the host.
pub(super) fn make(
    layer_bytes: u64,
    layer_dir: Option<&Path>,
    owner: Owner,
    writable: &[PathBuf],
    pins: &Pins,
) -> io::Result<Vec<Step>> {
    let mounts = Mounts::parse(&fs::read("/proc/self/mountinfo")?);
    let split = BTreeSet::new();
    let on_disk = layer_dir.is_some();
    let mut planner = Planner { steps: Vec::new(), layers: 0, mounts, split, owner, pins, on_disk };
    for path in writable {
        planner.split_for(path);
    }
    planner.enter_layer(layer_bytes, layer_dir)?;
    let below = planner.steps.len();
    planner.devices()?;
    planner.split_directory(Path::new("/"))?;
    // They are laid before the overlays above them are mounted, and depend on where these are.
    let above = planner.steps.split_off(below);
    planner.lay_pins(&above)?;
    planner.steps.extend(above);
    let proc_flags = MOUNT_FLAGS | libc::MS_NOEXEC;
    planner.mount("proc", "/r/proc", "proc", proc_flags, "")?;
    planner.steps.push(Step::OpenNumbers);
    planner.proc()?;
    planner.mount(
        "devpts",
        "/r/dev/pts",
        "devpts",
        libc::MS_NOSUID | libc::MS_NOEXEC,
        "newinstance,ptmxmode=0666,mode=0620",
    )?;
    planner.leave_host()?;
    Ok(planner.steps)
}

struct Planner<'a> {
    steps: Vec<Step>,
    layers: u32,
    mounts: Mounts,
    /// Directories to split although nothing is mounted below them.
    split: BTreeSet<PathBuf>,
    owner: Owner,
    pins: &'a Pins,
    /// The layer is on a disk.
    on_disk: bool,
}

impl Planner<'_> {
    fn mount(
        &mut self,
        source: &str,
        target: &str,
        kind: &str,
        flags: libc::c_ulong,
        data: &str,
    ) -> io::Result<()> {
        self.steps.push(Step::Mount {
            source: CString::new(source)?,
            target: CString::new(target)?,
            kind: CString::new(kind)?,
            flags,
            data: CString::new(data)?,
        });
        Ok(())
    }

    /// Makes the layer the root and moves the host to `/old`. Pivoting needs some directory of the host to mount the layer
    /// on; the mount moves away with the pivot, so the directory is seen again below `/old`.
    fn enter_layer(&mut self, layer_bytes: u64, layer_dir: Option<&Path>) -> io::Result<()> {
        let base = ["/tmp", "/run", "/usr"].into_iter().find(|path| Path::new(path).is_dir());
        let base = base.ok_or_else(|| io::Error::other("no /tmp, /run or /usr to mount on"))?;
        self.mount("none", "/", "", libc::MS_REC | libc::MS_PRIVATE, "")?;
        self.mount("skein", base, "tmpfs", LAYER_FLAGS, &format!("size={layer_bytes},mode=0755"))?;
        self.steps.push(Step::Enter(CString::new(base)?));
        for path in ["l", "old", "r"] {
            self.plain_directory(path, 0o755)?;
        }
        self.steps.push(Step::Pivot { new: c".".to_owned(), old: c"old".to_owned() });
        self.steps.push(Step::Enter(c"/".to_owned()));
        if let Some(dir) = layer_dir {
            // Its mount has the host's flags, some of which are locked. They do not matter: the server's are those of the overlays.
            self.steps.push(Step::Mount {
                source: under("/old", &fs::canonicalize(dir)?)?,
                target: c"/l".to_owned(),
                kind: c"".to_owned(),
                flags: libc::MS_BIND,
                data: c"".to_owned(),
            });
        }
        self.plain_directory("/l/u", 0o755)?;
        self.plain_directory("/l/w", 0o755)?;
        self.mount("/r", "/r", "", libc::MS_BIND, "")
    }

    /// Makes `/r` the root and lets go of the host and of the bare layer.
    fn leave_host(&mut self) -> io::Result<()> {
        self.steps.push(Step::ShowLayer(c"/l".to_owned()));
        self.steps.push(Step::ShowLayer(c"/".to_owned()));
        self.steps.push(Step::Enter(c"/r".to_owned()));
        self.steps.push(Step::Pivot { new: c".".to_owned(), old: c".".to_owned() });
        self.steps.push(Step::Detach(c".".to_owned()));
        self.steps.push(Step::Enter(c"/".to_owned()));
        Ok(())
    }

    fn plain_directory(&mut self, path: &str, mode: u32) -> io::Result<()> {
        self.steps.push(Step::Directory { path: CString::new(path)?, mode, owner: None });
        Ok(())
    }

    fn devices(&mut self) -> io::Result<()> {
        self.plain_directory("/r/dev", 0o755)?;
        self.plain_directory("/r/dev/shm", 0o1777)?;
        self.plain_directory("/r/dev/pts", 0o755)?;
        for name in DEVICES {
            if !Path::new("/dev").join(name).exists() {
                continue;
            }
            let path = CString::new(format!("/r/dev/{name}"))?;
            self.steps.push(Step::File { path, from: None, mode: 0o666, owner: None });
            // A device is written through a read-only mount, too; its mode and owner, which are the host's, are not.
            self.read_only(&format!("/old/dev/{name}"), &format!("/r/dev/{name}"))?;
        }
        let links = [
            ("fd", "/proc/self/fd"),
            ("stdin", "/proc/self/fd/0"),
            ("stdout", "/proc/self/fd/1"),
            ("stderr", "/proc/self/fd/2"),
            ("ptmx", "pts/ptmx"),
        ];
        for (name, to) in links {
            let path = CString::new(format!("/r/dev/{name}"))?;
            self.steps.push(Step::Symlink { path, to: CString::new(to)? });
        }
        for path in ["/r/dev", "/r/dev/shm"] {
            let path = CString::new(path)?;
            self.steps.push(Step::Times { path, accessed: (0, 0), modified: (0, 0) });
        }
        Ok(())
    }

    /// Hides the files of /proc that reach beyond the server.
    fn proc(&mut self) -> io::Result<()> {
        let there = |name: &str| Path::new("/proc").join(name).exists();
        for name in READ_ONLY_PROC.into_iter().filter(|name| there(name)) {
            let path = format!("/r/proc/{name}");
            self.read_only(&path, &path)?;
        }
        for name in EMPTY_PROC.into_iter().filter(|name| there(name)) {
            self.read_only("/r/dev/null", &format!("/r/proc/{name}"))?;
        }
        Ok(())
    }

    fn read_only(&mut self, source: &str, target: &str) -> io::Result<()> {
        let (source, target) = (CString::new(source)?, CString::new(target)?);
        self.steps.push(Step::ReadOnly { source, target });
        Ok(())
    }

    /// A directory of the host, or a pinned one, by the step that fits it.
    fn directory(&mut self, path: &Path) -> io::Result<()> {
        if [Path::new("/proc"), Path::new("/sys")].contains(&path) {
            // /proc is mounted afresh. /sys stays empty: it describes the machine, in which replicas differ.
            return self.plain_directory(&format!("/r{}", path.display()), 0o555);
        }
        if path == Path::new("/dev") {
            return Ok(());
        }
        let Some(found) = self.look(path) else { return Ok(()) };
        if self.mounts.is_kernels(path) || found.about.rights & 5 != 5 {
            self.own_directory(path, &found)?;
            return self.times(path, &found);
        }
        if self.split.contains(path) || self.mounts.any_below(path) {
            return self.split_directory(path);
        }
        self.overlay(path, &found)
    }

    /// A directory of its own, with the host's mode and owner, without the host's entries.
    fn own_directory(&mut self, path: &Path, found: &Found) -> io::Result<()> {
        let (mode, owner) = (found.about.mode(self.owner), found.about.owner(self.owner));
        self.steps.push(Step::Directory { path: under("/r", path)?, mode, owner });
        Ok(())
    }

    fn overlay(&mut self, path: &Path, found: &Found) -> io::Result<()> {
        self.own_directory(path, found)?;
        let layer = self.layers;
        self.layers += 1;
        // The merged directory's own attributes are those of the upper one.
        let (mode, owner) = (found.about.mode(self.owner), found.about.owner(self.owner));
        let upper = CString::new(format!("{UPPERS}{layer}"))?;
        self.steps.push(Step::Directory { path: upper, mode, owner });
        self.plain_directory(&format!("/l/w/{layer}"), 0o755)?;
        let lowers = self.lowers(path);
        // With xino a directory keeps its inode number when the kernel forgets and finds it again.
        // No file of the layer outlives its server, so the server's syncs need not wait for a disk.
        let volatile = if self.on_disk { ",volatile" } else { "" };
        let data = format!(
            "userxattr,xino=on{volatile},upperdir={UPPERS}{layer},workdir=/l/w/{layer},lowerdir="
        );
        self.steps.push(Step::Overlay {
            lower: lowers.from,
            target: under("/r", path)?,
            data: CString::new([data.as_bytes(), &lowers.option].concat())?,
            or_read_only: self.mounts.is_mount(path),
        });
        self.times(path, found)
    }

    fn split_directory(&mut self, path: &Path) -> io::Result<()> {
        let found = self.look(path).ok_or(io::ErrorKind::NotFound)?;
        let is_root = path == Path::new("/");
        if !is_root {
            self.own_directory(path, &found)?;
        }
        let Some(names) = self.names(path)? else {
            // Pinned entries are not shown here: the runtime refuses the host's as soon as they differ.
            let (source, target) = (under("/old", path)?, under("/r", path)?);
            self.steps.push(Step::ReadOnly { source, target });
            return Ok(());
        };
        for name in names {
            let entry = path.join(name);
            // A vanished entry never existed for the server.
            let Some(found) = self.look(&entry) else { continue };
            match &found.kind {
                Kind::Directory => self.directory(&entry)?,
                Kind::Link(to) => {
                    let to = CString::new(to.as_os_str().as_bytes())?;
                    self.steps.push(Step::Symlink { path: under("/r", &entry)?, to });
                    self.times(&entry, &found)?;
                }
                Kind::File if !self.mounts.is_kernels(&entry) => self.file(&entry, &found)?,
                Kind::File | Kind::Other => {}
            }
        }
        self.times(path, &found)
    }

    fn file(&mut self, path: &Path, found: &Found) -> io::Result<()> {
        let (mode, owner) = (found.about.mode(self.owner), found.about.owner(self.owner));
        let source = match found.is_pinned {
            true => under("", &self.tree_at(path))?,
            false => under("/old", path)?,
        };
        let target = under("/r", path)?;
        let readable = found.about.rights & 4 != 0;
        let large = found.size > COPY_BYTES;
        let from = (readable && !large).then(|| source.clone());
        self.steps.push(Step::File { path: target.clone(), from, mode, owner });
        if readable && large {
            self.steps.push(Step::ReadOnly { source, target });
            return Ok(());
        }
        self.times(path, found)
    }

    fn times(&mut self, path: &Path, found: &Found) -> io::Result<()> {
        let modified = (found.about.modified.0, i64::from(found.about.modified.1));
        self.steps.push(Step::Times {
            path: under("/r", path)?,
            accessed: found.accessed,
            modified,
        });
        Ok(())
    }

    /// Chooses overlays so that an ordinary user can write below `path`: to create a file in a directory of the lower
    /// layer, overlayfs copies that directory and those above it, up to the overlay's root, with their owners, and an owner
    /// that is not mapped cannot be copied.
    fn split_for(&mut self, path: &Path) {
        let Owner::Single { uid, .. } = self.owner else { return };
        let Ok(path) = fs::canonicalize(path) else { return };
        if !allowed(&path, AccessFlags::W_OK | AccessFlags::X_OK) {
            return;
        }
        let chain = ancestors_from_root(&path);
        let owned = |path: &Path| fs::metadata(path).is_ok_and(|meta| meta.uid() == uid);
        let others = chain.iter().rposition(|path| !owned(path)).unwrap_or(0);
        // chain[others] is the last directory of another user: it, or `path` itself, must be an overlay's root.
        self.split.extend(chain.into_iter().take(others));
    }
}

pub(super) fn under(prefix: &str, path: &Path) -> io::Result<CString> {
    let mut bytes = prefix.as_bytes().to_vec();
    if path != Path::new("/") {
        bytes.extend_from_slice(path.as_os_str().as_bytes());
    }
    Ok(CString::new(bytes)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planner<'a>(mountinfo: &[u8], owner: Owner, pins: &'a Pins) -> Planner<'a> {
        let mounts = Mounts::parse(mountinfo);
        let split = BTreeSet::new();
        Planner { steps: Vec::new(), layers: 0, mounts, split, owner, pins, on_disk: false }
    }

    fn lowers(steps: &[Step]) -> Vec<String> {
        let lower = |step: &Step| match step {
            Step::Overlay { lower, .. } => Some(lower.to_str().unwrap().to_owned()),
            _ => None,
        };
        steps.iter().filter_map(lower).collect()
    }

    #[test]
    fn a_directory_with_a_mount_below_is_split_and_no_other() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path();
        for name in ["a/b/mounted", "a/c", "d"] {
            fs::create_dir_all(path.join(name)).unwrap();
        }
        fs::write(path.join("a/file"), "x").unwrap();
        std::os::unix::fs::symlink("file", path.join("a/link")).unwrap();
        let info = format!("1 2 0:1 / {}/a/b/mounted rw - ext4 x rw\n", path.display());
        let pins = Pins::default();
        let mut planner = planner(info.as_bytes(), Owner::Kept, &pins);
        planner.directory(path).unwrap();
        let old = |name: &str| format!("/old{}/{name}", path.display());
        assert_eq!(lowers(&planner.steps), [old("a/b/mounted"), old("a/c"), old("d")]);
        let copied = planner.steps.iter().any(|step| {
            matches!(step, Step::File { from: Some(from), .. }
                if from.to_str().unwrap() == old("a/file"))
        });
        assert!(copied);
        assert!(planner.steps.iter().any(|step| matches!(step, Step::Symlink { .. })));
    }

    #[test]
    fn a_directory_with_too_many_entries_is_read_only() {
        // In memory: thousands of directories take a busy disk seconds.
        let root = tempfile::tempdir_in("/dev/shm").unwrap();
        for name in 0..=SPLIT_ENTRIES {
            fs::create_dir(root.path().join(name.to_string())).unwrap();
        }
        let pins = Pins::default();
        let mut planner = planner(b"", Owner::Kept, &pins);
        planner.split_directory(root.path()).unwrap();
        assert!(matches!(planner.steps.last(), Some(Step::ReadOnly { .. })));
        assert_eq!(lowers(&planner.steps), [""; 0]);
    }

    #[test]
    fn the_kernels_file_systems_are_empty_directories() {
        let root = tempfile::tempdir().unwrap();
        let info = format!("1 2 0:1 / {} rw - cgroup2 x rw\n", root.path().display());
        let pins = Pins::default();
        let mut planner = planner(info.as_bytes(), Owner::Kept, &pins);
        planner.directory(root.path()).unwrap();
        assert!(matches!(planner.steps[..], [Step::Directory { .. }, Step::Times { .. }]));
    }

    #[test]
    fn a_users_directory_inside_anothers_gets_an_overlay_it_can_write() {
        let root = tempfile::tempdir().unwrap();
        let path = fs::canonicalize(root.path()).unwrap();
        // For a user that owns nothing on the path, the directory itself must be an overlay's root.
        let pins = Pins::default();
        let mut planner =
            planner(b"", Owner::Single { uid: u32::MAX - 1, gid: u32::MAX - 1 }, &pins);
        planner.split_for(&path);
        assert!(planner.split.contains(path.parent().unwrap()));
        assert!(!planner.split.contains(&path));
    }
}
