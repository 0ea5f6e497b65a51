//! The root directory of another distribution, in which the zoo then runs with the `skein` that was built here.
//!
//! It is made once with mmdebstrap and kept; missing packages are installed in it later. This process enters it by a mount namespace of its own, which
//! it makes before anything is mounted: however it ends, no mount is left. Below `/tmp` and in the repository the directory shows the host's files.
//!
//! An incomplete directory has another name, and is removed at the next attempt.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{geteuid, pivot_root};

use skein_testkit::workspace;
use skein_testkit::{Failure, Outcome};

/// A distribution that the zoo can make.
#[derive(Debug)]
pub struct Distribution {
    /// Its name in options.
    pub name: &'static str,
    /// Its name for people, with glibc's version.
    pub title: &'static str,
    suite: &'static str,
    archive: &'static Archive,
}

/// The archive of a distribution's packages.
#[derive(Debug)]
struct Archive {
    mirror: &'static str,
    /// The variable that names another mirror.
    variable: &'static str,
    components: &'static str,
    keys: Keys,
}

/// The keys of an archive's lists.
#[derive(Debug)]
enum Keys {
    /// The keys in a package of this machine's distribution.
    Installed(&'static str),
    /// The keys in a file of a package of the archive, known by its hash.
    Package { path: &'static str, sha256: &'static str, file: &'static str },
}

const DEBIAN: Archive = Archive {
    mirror: "http://deb.debian.org/debian",
    variable: "SKEIN_DEBIAN_MIRROR",
    components: "main",
    keys: Keys::Installed("debian-archive-keyring"),
};

const UBUNTU: Archive = Archive {
    mirror: "http://archive.ubuntu.com/ubuntu",
    variable: "SKEIN_UBUNTU_MIRROR",
    components: "main,universe",
    keys: Keys::Package {
        path: "pool/main/u/ubuntu-keyring/ubuntu-keyring_2023.11.28.1_all.deb",
        sha256: "36de43b15853ccae0028e9a767613770c704833f82586f28eb262f0311adb8a8",
        file: "usr/share/keyrings/ubuntu-archive-keyring.gpg",
    },
};

/// The distribution that developers have: none that the zoo makes for its servers, but `cargo xtask kernels` boots it.
pub const DEBIAN_12: Distribution = Distribution {
    name: "debian-12",
    title: "Debian 12 (glibc 2.36)",
    suite: "bookworm",
    archive: &DEBIAN,
};

/// All of them, by glibc's age; the host's own is none of them.
pub const ALL: [Distribution; 4] = [
    Distribution {
        name: "ubuntu-24.04",
        title: "Ubuntu 24.04 (glibc 2.39)",
        suite: "noble",
        archive: &UBUNTU,
    },
    Distribution {
        name: "debian-13",
        title: "Debian 13 (glibc 2.41)",
        suite: "trixie",
        archive: &DEBIAN,
    },
    Distribution {
        name: "ubuntu-25.10",
        title: "Ubuntu 25.10 (glibc 2.42)",
        suite: "questing",
        archive: &UBUNTU,
    },
    Distribution { name: "sid", title: "Debian sid (glibc 2.43)", suite: "sid", archive: &DEBIAN },
];

/// What a directory holds.
#[derive(Debug, Clone, Copy)]
pub enum Content {
    /// A small system with the packages, which are installed.
    System,
    /// The packages' files alone, and those of what they depend on; nothing is installed.
    Files,
}

/// The longest time to check the mirror, and to make a directory.
const PROBE_MAX_S: &str = "60";
const MAKE_MAX_S: &str = "600";

/// mmdebstrap's hook before it installs more than the essential packages, in the directory `$1`: services are not started, names of this machine are
/// known.
const HOOK: &str = "printf '#!/bin/sh\\nexit 101\\n' >\"$1/usr/sbin/policy-rc.d\" && \
    chmod 755 \"$1/usr/sbin/policy-rc.d\" && \
    printf '127.0.0.1 localhost\\n::1 localhost ip6-localhost ip6-loopback\\n' >\"$1/etc/hosts\"";

/// The distribution of this name.
pub fn named(name: &str) -> Outcome<&'static Distribution> {
    ALL.iter().find(|one| one.name == name).ok_or_else(|| {
        let known: Vec<&str> = ALL.iter().map(|one| one.name).collect();
        Failure(format!("no distribution '{name}'; there are {}", known.join(", ")))
    })
}

/// The directory of root directories, unless the user names another one.
pub fn usual_place() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| workspace::root().join("target"), PathBuf::from)
        .join("roots")
}

/// Makes the distribution's directory below `place` if it is not there, with `packages` in it, and makes it this process's root.
pub fn enter(of: &Distribution, place: &Path, packages: &[&str]) -> Outcome {
    if !geteuid().is_root() {
        return Err(Failure("another root directory needs root: run it as root".to_owned()));
    }
    let failed = |error| Failure::of(format!("cannot make {}", place.display()), error);
    fs::DirBuilder::new().recursive(true).mode(0o755).create(place).map_err(failed)?;
    let root = fs::canonicalize(place).map_err(failed)?.join(of.name);
    unshare(CloneFlags::CLONE_NEWNS)
        .and_then(|()| mount_at(None, Path::new("/"), MsFlags::MS_REC | MsFlags::MS_PRIVATE))
        .map_err(|error| Failure::of("cannot have mounts of its own", error))?;
    if !root.exists() {
        make(of, &root, packages)?;
    }
    change_root(&root)
        .map_err(|error| Failure::of(format!("cannot enter {}", root.display()), error))
}

/// Makes the directory.
fn make(of: &Distribution, root: &Path, packages: &[&str]) -> Outcome {
    let mut tools = vec!["mmdebstrap"];
    if let Keys::Installed(package) = of.archive.keys {
        tools.push(package);
    }
    let status = Command::new(workspace::root().join("scripts/setup.sh"))
        .arg("packages")
        .args(&tools)
        .status();
    if !status.is_ok_and(|status| status.success()) {
        return Err(Failure(format!("cannot install {}", tools.join(", "))));
    }
    bootstrap(of, root, packages, Content::System)
}

/// Fills a new directory from the distribution's archive; mmdebstrap is there.
pub fn bootstrap(of: &Distribution, root: &Path, packages: &[&str], content: Content) -> Outcome {
    let archive = of.archive;
    let mirror = std::env::var(archive.variable).unwrap_or_else(|_| archive.mirror.to_owned());
    let dir = tempfile::tempdir()
        .map_err(|error| Failure::of("cannot make a temporary directory", error))?;
    let cannot = |address| {
        Failure(format!("{address} cannot be had; {} names another mirror", archive.variable))
    };
    let lists = format!("{mirror}/dists/{}/InRelease", of.suite);
    if !download(&lists, &dir.path().join("InRelease"), None)? {
        return Err(cannot(lists));
    }
    let mut keyring = None;
    if let Keys::Package { path, sha256, file } = archive.keys {
        let (address, package) = (format!("{mirror}/{path}"), dir.path().join("keys.deb"));
        if !download(&address, &package, Some(sha256))? || !unpack(&package, dir.path())? {
            return Err(cannot(address));
        }
        keyring = Some(format!("--keyring={}", dir.path().join(file).display()));
    }
    let half = root.with_extension("new");
    match fs::remove_dir_all(&half) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(Failure::of(format!("cannot remove {}", half.display()), error));
        }
        _ => {}
    }
    println!("{:<12}| making {}", of.name, root.display());
    let made = Command::new("timeout")
        .args(["-k", "5", MAKE_MAX_S, "mmdebstrap", "--quiet", "--mode=root"])
        .arg(format!("--variant={}", content.variant()))
        .args(["--dpkgopt=force-unsafe-io", &format!("--include={}", packages.join(","))])
        .arg(format!("--components={}", archive.components))
        .args(keyring)
        .args(content.hook())
        .args(old_lists_too())
        .args([of.suite.as_ref(), half.as_os_str(), mirror.as_ref()])
        .output()
        .map_err(|error| Failure::of("cannot run mmdebstrap", error))?;
    if !made.status.success() {
        let said = String::from_utf8_lossy(&made.stderr);
        let last: Vec<&str> = said.lines().rev().take(5).collect();
        return Err(Failure(format!(
            "cannot make {} from {mirror}: mmdebstrap: {}: {}",
            of.title,
            made.status,
            last.into_iter().rev().collect::<Vec<_>>().join("; ")
        )));
    }
    fs::rename(&half, root).map_err(|error| Failure::of(root.display(), error))
}

impl Content {
    /// mmdebstrap's name for it.
    fn variant(self) -> &'static str {
        match self {
            Self::System => "minbase",
            Self::Files => "extract",
        }
    }

    fn hook(self) -> Option<String> {
        matches!(self, Self::System).then(|| format!("--essential-hook={HOOK}"))
    }
}

/// The option that accepts a mirror's old lists, if this machine's own apt does: its mirror is a snapshot.
fn old_lists_too() -> Option<&'static str> {
    let said =
        Command::new("apt-config").args(["dump", "Acquire::Check-Valid-Until"]).output().ok()?;
    let off = String::from_utf8_lossy(&said.stdout).contains("\"false\"");
    off.then_some("--aptopt=Acquire::Check-Valid-Until \"false\"")
}

/// Whether a file, with this hash if one is given, could be fetched.
fn download(address: &str, to: &Path, sha256: Option<&str>) -> Outcome<bool> {
    let asked = Command::new("timeout")
        .args(["-k", "5", PROBE_MAX_S, "/usr/lib/apt/apt-helper", "download-file", address])
        .arg(to)
        .args(sha256.map(|hash| format!("SHA256:{hash}")))
        .output()
        .map_err(|error| Failure::of("cannot run apt-helper", error))?;
    Ok(asked.status.success())
}

/// Whether a package's files could be put below `dir`.
fn unpack(package: &Path, dir: &Path) -> Outcome<bool> {
    let status = Command::new("dpkg-deb").arg("-x").args([package, dir]).status();
    Ok(status.map_err(|error| Failure::of("cannot run dpkg-deb", error))?.success())
}

/// From now on `root` is this process's root directory.
fn change_root(root: &Path) -> nix::Result<()> {
    mount_at(Some(root), root, MsFlags::MS_BIND)?;
    for dir in ["/proc", "/sys", "/dev"] {
        show(Path::new(dir), root, MsFlags::MS_BIND | MsFlags::MS_REC)?;
    }
    for dir in shown() {
        show(&dir, root, MsFlags::MS_BIND)?;
    }
    let old = root.join("mnt");
    pivot_root(root, &old)?;
    std::env::set_current_dir("/").map_err(|_| nix::Error::EIO)?;
    umount2("/mnt", MntFlags::MNT_DETACH)
}

/// Shows the host's files at the same place: the repository, built programs, temporary files.
fn shown() -> Vec<PathBuf> {
    let mut dirs = vec![workspace::root().to_owned(), std::env::temp_dir()];
    for variable in ["SKEIN_BIN", "SKEIN_RUNTIME"] {
        let path = std::env::var_os(variable).map(PathBuf::from);
        dirs.extend(path.and_then(|path| Some(path.parent()?.to_owned())));
    }
    dirs.extend(std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from));
    dirs.retain(|dir| dir.is_absolute() && dir.is_dir());
    // Parents first: a later mount on a parent would hide it.
    dirs.sort();
    dirs.dedup();
    dirs
}

fn show(dir: &Path, root: &Path, flags: MsFlags) -> nix::Result<()> {
    let at = root.join(dir.strip_prefix("/").unwrap_or(dir));
    fs::create_dir_all(&at).map_err(|_| nix::Error::EIO)?;
    mount_at(Some(dir), &at, flags)
}

fn mount_at(from: Option<&Path>, to: &Path, flags: MsFlags) -> nix::Result<()> {
    mount(from, to, None::<&str>, flags, None::<&str>)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_distribution_is_refused_with_those_that_there_are() {
        assert_eq!(named("sid").expect("known").suite, "sid");
        let refused = named("debian-7").expect_err("unknown");
        assert!(refused.to_string().contains("debian-13, ubuntu-25.10, sid"), "{refused}");
    }
}
