//! Reads `/proc/self/mountinfo`: the mount points and their types.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// File systems whose files are the kernel's, not data: the server sees none of them.
const KERNEL_TYPES: [&str; 20] = [
    "autofs",
    "binfmt_misc",
    "bpf",
    "cgroup",
    "cgroup2",
    "configfs",
    "debugfs",
    "devpts",
    "devtmpfs",
    "efivarfs",
    "fusectl",
    "hugetlbfs",
    "mqueue",
    "nsfs",
    "proc",
    "pstore",
    "rpc_pipefs",
    "securityfs",
    "sysfs",
    "tracefs",
];

/// Mount points, each with the type of the file system that was mounted there last.
#[derive(Debug, Default)]
pub(super) struct Mounts(BTreeMap<PathBuf, OsString>);

impl Mounts {
    pub(super) fn parse(text: &[u8]) -> Self {
        let mut mounts = BTreeMap::new();
        for line in text.split(|byte| *byte == b'\n') {
            let mut fields = line.split(|byte| *byte == b' ');
            // id, parent, major:minor, root, mount point, options, [tags...], "-", type, source, super options.
            let Some(point) = fields.nth(4) else { continue };
            let Some(kind) = fields.skip_while(|field| *field != b"-").nth(1) else { continue };
            let point = PathBuf::from(OsString::from_vec(unescape(point)));
            mounts.insert(point, OsString::from_vec(kind.to_vec()));
        }
        Self(mounts)
    }

    /// Whether something is mounted below `path` (not: at it).
    pub(super) fn any_below(&self, path: &Path) -> bool {
        self.0.keys().any(|point| point != path && point.starts_with(path))
    }

    /// Whether `path` is a mount point.
    pub(super) fn is_mount(&self, path: &Path) -> bool {
        self.0.contains_key(path)
    }

    /// Whether `path` is the mount point of one of the kernel's own file systems.
    pub(super) fn is_kernels(&self, path: &Path) -> bool {
        self.0.get(path).is_some_and(|kind| KERNEL_TYPES.iter().any(|name| kind == name))
    }
}

/// Undoes the kernel's octal escapes (`\040` for a space).
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, tail @ ..] = rest {
        if let (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..]) =
            (first, tail)
        {
            bytes.push((a - b'0') * 64 + (b - b'0') * 8 + (c - b'0'));
            rest = after;
        } else {
            bytes.push(*first);
            rest = tail;
        }
    }
    bytes
}

/// Cuts a path into its ancestors, "/" first, itself last.
pub(super) fn ancestors_from_root(path: &Path) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = path
        .ancestors()
        .filter(|ancestor| ancestor.as_os_str().as_bytes().starts_with(b"/"))
        .map(Path::to_owned)
        .collect();
    all.reverse();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_understood() {
        let text = b"22 27 0:21 / /proc rw,relatime - proc proc rw\n\
            27 1 254:0 / / rw - ext4 /dev/vda rw\n\
            30 27 0:27 / /mnt/a\\040b\\134 rw shared:1 master:2 - tmpfs - rw\n\
            31 27 0:28 net:[1] /run/netns/x rw - nsfs nsfs rw\nbroken line\n";
        let mounts = Mounts::parse(text);
        assert!(mounts.is_mount(Path::new("/mnt/a b\\")));
        assert!(mounts.any_below(Path::new("/mnt")));
        assert!(!mounts.any_below(Path::new("/mnt/a b\\")));
        assert!(!mounts.any_below(Path::new("/mn")));
        assert!(mounts.is_kernels(Path::new("/proc")));
        assert!(mounts.is_kernels(Path::new("/run/netns/x")));
        assert!(!mounts.is_kernels(Path::new("/")));
    }

    #[test]
    fn ancestors_start_at_the_root() {
        let all = ancestors_from_root(Path::new("/a/b"));
        assert_eq!(all, ["/", "/a", "/a/b"].map(PathBuf::from));
    }
}
