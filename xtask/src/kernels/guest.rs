//! A machine under QEMU: its processor, its memory of what it begins with, and its end.
//!
//! Four devices: the disk, of which QEMU keeps changes to itself; a tar archive with all that the machine needs of this host, at the same paths; an empty device, onto which the guest
//! writes an archive of what it gives; and two serial lines, for the kernel and for the steps.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::signal::Signal;

use skein_testkit::cluster::find_command;
use skein_testkit::workspace;
use skein_testkit::{Failure, Outcome};

use super::fetch::{INITRAMFS, Kernel};
use super::place::{DIR, follow, start};
use super::plan::{Given, Plan};
use crate::interrupt::Interrupt;

/// Of the machine.
const CORES: &str = "2";
const MEMORY: &str = "2G";
/// The most that a machine gives: 2 GiB, most of it never written.
const GIVEN_BYTES_MAX: u64 = 2 << 30;

/// So many lines of the kernel's are shown when something went wrong.
const CONSOLE_LINES: usize = 12;

/// The first process of the machine once its disk is mounted. Nodes want many files to be opened, as a service manager allows it.
const START: &str = r#"
export PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8
exec >/dev/ttyS1 2>&1
mkdir -p /dev/pts /dev/shm
mount -t devpts pts /dev/pts
mount -t tmpfs shm /dev/shm
mount -t tmpfs run /run
mount -t cgroup2 cgroup /sys/fs/cgroup
busybox ip link set lo up
hostname guest
ulimit -n 1048576
uname -srv
mkdir -p "$OUT"
"$XTASK" kernels-inside "$OUT" || echo "it ended with $?"
cd "$OUT" && tar -cf /dev/vdc .
sync
busybox poweroff -f
"#;

/// Boots the kernel, has it do the plan, and puts what it gives into `out`.
pub fn boot(
    kernel: &Kernel,
    disk: &Path,
    plan: &Plan,
    out: &Path,
    limit: Duration,
    interrupt: &Interrupt,
    tell: impl FnMut(&str),
) -> Outcome {
    let dir = Path::new(DIR);
    let [archive, given, console] = ["needed.tar", "given.raw", "console"].map(|n| dir.join(n));
    pack(plan, out, &archive)?;
    let made = File::create(&given).and_then(|file| file.set_len(GIVEN_BYTES_MAX));
    made.map_err(|error| Failure::of(given.display(), error))?;
    let initramfs = kernel.initramfs(&dir.join(INITRAMFS))?;
    let drive =
        |file: &Path, more: &str| format!("file={},if=virtio,format=raw{more}", file.display());
    let mut command = Command::new("nice");
    command
        .args(["-n", "10", "qemu-system-x86_64", "-accel", "tcg,thread=multi"])
        .args(["-smp", CORES, "-m", MEMORY, "-cpu", &processor()?])
        .args(["-nodefaults", "-no-reboot", "-display", "none"])
        .args(["-serial", &format!("file:{}", console.display()), "-serial", "stdio"])
        .arg("-kernel")
        .arg(&kernel.image)
        .arg("-initrd")
        .arg(initramfs)
        .args(["-append", "console=ttyS0 panic=-1 quiet"])
        .args(["-drive", &drive(disk, ",snapshot=on")])
        .args(["-drive", &drive(&archive, ",readonly=on")])
        .args(["-drive", &drive(&given, "")])
        // QEMU's file of what changes on the disk has no name, but needs room.
        .env("TMPDIR", dir.join("tmp"))
        .stdin(Stdio::null());
    let mut qemu = start(&mut command, Signal::SIGKILL)?;
    let followed = follow(&mut qemu, limit, interrupt, tell);
    let _ = qemu.kill();
    let _ = qemu.wait();
    followed.map_err(|failure| Failure::of(failure, end_of(&console)))?;
    let unpacked = Command::new("tar")
        .arg("-xf")
        .arg(&given)
        .arg("-C")
        .arg(out)
        .output()
        .map_err(|error| Failure::of("cannot run tar", error))?;
    for file in [&given, &archive] {
        fs::remove_file(file).map_err(|error| Failure::of(file.display(), error))?;
    }
    if unpacked.status.success() && Given::read(out).is_ok() {
        return Ok(());
    }
    Err(Failure(format!("the machine has given nothing; its kernel said: {}", end_of(&console))))
}

/// The last lines of the kernel.
fn end_of(console: &Path) -> String {
    let text = fs::read(console).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    lines[lines.len().saturating_sub(CONSOLE_LINES)..].join("; ")
}

/// Writes the archive: this program, Skein, the zoo, the plan and its images, and the first process.
fn pack(plan: &Plan, out: &Path, archive: &Path) -> Outcome {
    let failed = |error| Failure::of("cannot name this program", error);
    let program = std::env::current_exe().map_err(failed)?;
    let skein = find_command()?;
    let skein = fs::canonicalize(&skein).map_err(|error| Failure::of(skein.display(), error))?;
    let runtime = std::env::var_os("SKEIN_RUNTIME")
        .map_or_else(|| skein.with_file_name("libskein.so"), PathBuf::from);
    let start = Path::new(DIR).join("start");
    let variables = format!(
        "export SKEIN_BIN='{}' SKEIN_RUNTIME='{}' TMPDIR={DIR}/tmp\nXTASK='{}' OUT='{}'\n",
        skein.display(),
        runtime.display(),
        program.display(),
        out.display()
    );
    super::write(&start, variables + START)?;
    let mut files = vec![
        program,
        skein,
        runtime,
        workspace::root().join("zoo"),
        workspace::root().join("Cargo.toml"),
        start,
        Path::new(DIR).join("plan.json"),
        Path::new(DIR).join("tmp"),
    ];
    files.extend(plan.carried.iter().map(|one| one.file.clone()));
    let names = files.iter().map(|file| file.strip_prefix("/").unwrap_or(file));
    let packed = Command::new("tar")
        .args(["--exclude=tmp/skein-kernels/tmp/*", "-C", "/", "-cf"])
        .arg(archive)
        .args(names)
        .output()
        .map_err(|error| Failure::of("cannot run tar", error))?;
    if packed.status.success() {
        return Ok(());
    }
    Err(Failure::of("tar", String::from_utf8_lossy(&packed.stderr).trim()))
}

/// QEMU's best processor without what this host's has not.
fn processor() -> Outcome<String> {
    let help = Command::new("qemu-system-x86_64")
        .args(["-cpu", "help"])
        .output()
        .map_err(|error| Failure::of("cannot run qemu-system-x86_64", error))?;
    let here = super::inside::extensions();
    Ok(without(&String::from_utf8_lossy(&help.stdout), &here))
}

/// `max` without the extensions that QEMU knows and `here` does not name.
fn without(help: &str, here: &[String]) -> String {
    // QEMU writes sse4.1 and sha-ni, the kernel sse4_1 and sha_ni.
    let known = help.split("Recognized CPUID flags:").nth(1).unwrap_or_default();
    let missing = known
        .split_whitespace()
        .filter(|flag| !here.iter().any(|name| *name == flag.replace(['-', '.'], "_")));
    let mut out = String::from("max");
    for flag in missing {
        out.push_str(",-");
        out.push_str(flag);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::without;

    #[test]
    fn a_guest_has_no_extension_that_its_host_has_not() {
        let help =
            "Available CPUs:\nx86 max\n\nRecognized CPUID flags:\n  3dnow avx2 sha-ni\n  sse4.1\n";
        let here = ["avx2", "sse4_1"].map(String::from);
        assert_eq!(without(help, &here), "max,-3dnow,-sha-ni");
        assert_eq!(without("", &here), "max");
    }
}
