//! What machines are made of: kernels of distributions, the disk, and the first file system.
//!
//! Kernels and the disk are kept below `target/kernels`. Something incomplete has another name, and is removed at the next attempt.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::unistd::geteuid;

use skein_testkit::{Failure, Outcome};

use crate::zoo::root::{self, Content, DEBIAN_12, Distribution};

/// The kernels when none is named.
const USUAL: [&str; 3] = ["debian-12", "debian-13", "ubuntu-25.10"];
/// What a guest needs beside the servers.
pub const GUEST_PACKAGES: [&str; 1] = ["busybox-static"];
/// The name of the first file system.
pub const INITRAMFS: &str = "initramfs";
/// The disk's size; most of it is never written.
const DISK_SIZE: &str = "8G";

/// Programs, and the Debian packages that have them.
const TOOLS: [(&str, &str); 6] = [
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("busybox", "busybox-static"),
    ("mke2fs", "e2fsprogs"),
    ("mmdebstrap", "mmdebstrap"),
    ("xz", "xz-utils"),
    ("zstd", "zstd"),
];

/// What a kernel needs to see its disk, and Skein its layers, in the order in which it is loaded. What a kernel has built in has no file.
const MODULES: [&str; 12] = [
    "virtio_ring",
    "virtio",
    "virtio_pci_legacy_dev",
    "virtio_pci_modern_dev",
    "virtio_pci",
    "virtio_blk",
    "crc16",
    "crc32c_generic",
    "mbcache",
    "jbd2",
    "ext4",
    "overlay",
];

/// The kernel's first process: it mounts the disk, and unpacks there what the host gives.
const INIT: &str = r#"#!/bin/busybox sh
export PATH=/bin
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
while read -r module; do insmod "/modules/$module.ko"; done </modules/list
mount -t ext4 /dev/vda /root && tar -xf /dev/vdb -C /root || poweroff -f
for dir in proc sys dev; do mount --move /$dir /root/$dir; done
exec switch_root /root /bin/sh /tmp/skein-kernels/start
"#;

/// A kernel.
pub struct Kernel {
    /// Its version, as `uname -r` says it.
    pub release: String,
    /// The bootable file.
    pub image: PathBuf,
    modules: PathBuf,
}

/// Fails with the packages that this host lacks: tools, and `servers` if they run here, too.
pub fn check_tools(servers: &[&str]) -> Outcome {
    if !geteuid().is_root() {
        return Err(Failure(
            "a disk with other users' files needs root: run it as root".to_owned(),
        ));
    }
    let there = |program: &str| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
    };
    let mut missing: Vec<&str> =
        TOOLS.iter().filter(|(program, _)| !there(program)).map(|(_, package)| *package).collect();
    missing.extend(servers.iter().filter(|package| !installed(package)));
    if missing.is_empty() {
        return Ok(());
    }
    Err(Failure(format!("missing packages: apt-get install {}", missing.join(" "))))
}

fn installed(package: &str) -> bool {
    let asked = Command::new("dpkg-query").args(["-W", "-f=${Status}", package]).output();
    asked.is_ok_and(|asked| asked.stdout == b"install ok installed")
}

/// The named distributions' kernels, downloaded if they are not there.
pub fn kernels(names: &[String]) -> Outcome<Vec<Kernel>> {
    let usual = USUAL.map(String::from);
    let names = if names.is_empty() { &usual[..] } else { names };
    names.iter().map(|name| kernel(named(name)?)).collect()
}

fn named(name: &str) -> Outcome<&'static Distribution> {
    if name == DEBIAN_12.name { Ok(&DEBIAN_12) } else { root::named(name) }
}

fn kernel(of: &Distribution) -> Outcome<Kernel> {
    let dir = kept(of.name)?;
    if !dir.exists() {
        let package = if of.name.starts_with("ubuntu") {
            "linux-image-virtual"
        } else {
            "linux-image-cloud-amd64"
        };
        let half = half(&dir)?;
        println!("{:<28}| downloading {package}", of.name);
        root::bootstrap(of, &half, &[package], Content::Files)?;
        fs::rename(&half, &dir).map_err(|error| Failure::of(dir.display(), error))?;
    }
    let image = fs::read_dir(dir.join("boot"))
        .map_err(|error| Failure::of(dir.display(), error))?
        .flatten()
        .find_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            Some((entry.path(), name.strip_prefix("vmlinuz-")?.to_owned()))
        });
    let Some((image, release)) = image else {
        return Err(Failure(format!("{} has no kernel; remove it", dir.display())));
    };
    // Debian 12 has /lib beside /usr/lib in a directory without a system.
    let places = ["lib/modules", "usr/lib/modules"];
    let modules = places.map(|place| dir.join(place).join(&release));
    let modules = modules.into_iter().find(|place| place.join("kernel").is_dir());
    let modules = modules.ok_or_else(|| Failure(format!("{} has no modules", dir.display())))?;
    Ok(Kernel { release, image, modules })
}

impl Kernel {
    /// Makes the first file system in `dir`.
    pub fn initramfs(&self, dir: &Path) -> Outcome<PathBuf> {
        let failed = |error| Failure::of(dir.display(), error);
        removed(dir)?;
        for name in ["bin", "modules", "proc", "sys", "dev", "root"] {
            fs::create_dir_all(dir.join(name)).map_err(failed)?;
        }
        let mut list = String::new();
        for name in MODULES {
            if let Some(file) = found(&self.modules.join("kernel"), name) {
                plain(&file, &dir.join("modules").join(format!("{name}.ko")))?;
                list.push_str(name);
                list.push('\n');
            }
        }
        super::write(&dir.join("modules/list"), list)?;
        super::write(&dir.join("init"), INIT)?;
        shell(
            "chmod 755 init && cp \"$(command -v busybox)\" bin/busybox && \
             find . | busybox cpio -o -H newc >../initramfs.cpio 2>/dev/null",
            dir,
        )?;
        Ok(dir.with_file_name("initramfs.cpio"))
    }
}

/// A module's file, compressed or not.
fn found(dir: &Path, name: &str) -> Option<PathBuf> {
    let entries: Vec<PathBuf> = fs::read_dir(dir).ok()?.flatten().map(|one| one.path()).collect();
    let is = |path: &PathBuf| {
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        file.strip_prefix(name).is_some_and(|end| matches!(end, ".ko" | ".ko.xz" | ".ko.zst"))
    };
    let here = entries.iter().find(|path| is(path)).cloned();
    here.or_else(|| entries.iter().filter(|path| path.is_dir()).find_map(|path| found(path, name)))
}

/// Writes a module as the kernel takes it.
fn plain(from: &Path, to: &Path) -> Outcome {
    let end = from.extension().unwrap_or_default().to_string_lossy();
    let program = match end.as_ref() {
        "xz" => "xz",
        "zst" => "zstd",
        _ => {
            let copied = fs::copy(from, to);
            return copied.map(drop).map_err(|error| Failure::of(from.display(), error));
        }
    };
    let output = Command::new(program)
        .arg("-dc")
        .arg(from)
        .output()
        .map_err(|error| Failure::of(format!("cannot run {program}"), error))?;
    if !output.status.success() {
        return Err(Failure(format!("{program} cannot read {}", from.display())));
    }
    super::write(to, output.stdout)
}

/// The disk with these packages, made if there is none.
pub fn disk(packages: &[&str]) -> Outcome<PathBuf> {
    let (disk, list) = (kept("disk.ext4")?, kept("disk.packages")?);
    let wanted = packages.join(" ");
    if disk.exists() && fs::read_to_string(&list).is_ok_and(|has| has == wanted) {
        return Ok(disk);
    }
    println!("{:<28}| making a disk with {wanted}", DEBIAN_12.name);
    let tree = half(&kept("disk")?)?;
    root::bootstrap(&DEBIAN_12, &tree, packages, Content::System)?;
    let _ = fs::remove_file(&list);
    // The whole path of the tree may have quotes; the shell gets it as its directory.
    shell(
        &format!(
            "mke2fs -q -F -t ext4 -O ^has_journal -d . ../disk.ext4.new {DISK_SIZE} && mv ../disk.ext4.new ../disk.ext4"
        ),
        &tree,
    )?;
    removed(&tree)?;
    super::write(&list, wanted)?;
    Ok(disk)
}

/// The place of something that is kept.
fn kept(name: &str) -> Outcome<PathBuf> {
    let dir = root::usual_place().with_file_name("kernels");
    fs::create_dir_all(&dir).map_err(|error| Failure::of(dir.display(), error))?;
    let dir = fs::canonicalize(&dir).map_err(|error| Failure::of(dir.display(), error))?;
    Ok(dir.join(name))
}

/// The name of something that is not complete; what an earlier attempt has left is removed.
fn half(path: &Path) -> Outcome<PathBuf> {
    let mut half = path.to_owned();
    half.as_mut_os_string().push(".new");
    removed(&half)?;
    Ok(half)
}

fn removed(dir: &Path) -> Outcome {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(Failure::of(format!("cannot remove {}", dir.display()), error))
        }
        _ => Ok(()),
    }
}

fn shell(text: &str, dir: &Path) -> Outcome {
    let output = Command::new("sh")
        .args(["-c", text])
        .current_dir(dir)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| Failure::of("cannot run sh", error))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(Failure::of(format!("in {}", dir.display()), said.trim()))
}
