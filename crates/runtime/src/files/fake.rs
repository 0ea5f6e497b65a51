//! Texts in place of kernel files whose contents differ between replicas, as small files in memory.

use crate::fatal::{Line, line};
use crate::kernel::Kernel;
use crate::sys;
use crate::time;
use crate::turn::{self, trace};
use core::cell::Cell;
use core::fmt::{self, Write};
use libc::c_int;
use skein_arena::restore::{SHARED_SHOWN, SHARED_WAS};
use skein_libos::errno::{Result, fail};
use skein_libos::identity::{CPUS, MEMORY_BYTES};
use skein_libos::net::interface::Interfaces;
use skein_libos::time::NS_PER_S;

/// A text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Text {
    /// A line of this.
    Word(&'static str),
    /// Nothing.
    Empty,
    /// A zero.
    Zero,
    /// `/proc/PID/stat`: 52 fields.
    Stat,
    /// `/proc/PID/statm`: seven numbers of pages.
    Statm,
    /// `/proc/PID/status`.
    Status,
    /// `/proc/PID/maps`.
    Maps,
    /// `/proc/PID/limits`.
    Limits,
    /// `/proc/PID/io`.
    Io,
    /// `/proc/PID/schedstat`.
    SchedStat,
    /// `/proc/PID/timerslack_ns`.
    TimerSlack,
    /// `/proc/PID/loginuid`: none.
    NoId,
    /// `/proc/PID/cgroup`.
    Cgroup,
    /// `/proc/mounts`.
    Mounts,
    /// `/proc/PID/mountinfo`.
    MountInfo,
    /// `/proc/meminfo`.
    MemInfo,
    /// `/proc/stat`.
    GlobalStat,
    /// `/proc/uptime`.
    Uptime,
    /// `/proc/loadavg`.
    LoadAverage,
    /// `/proc/cpuinfo`.
    CpuInfo,
    /// `/proc/vmstat`.
    VmStat,
    /// `/proc/version`.
    Version,
    /// `/proc/swaps`.
    Swaps,
    /// `/proc/filesystems`.
    FileSystems,
    /// `/proc/sys/kernel/osrelease`.
    Release,
    /// `/proc/sys/kernel/hostname`.
    HostName,
    /// `/proc/sys/kernel/random/uuid`.
    RandomUuid,
    /// `/proc/net/dev`.
    NetDevices,
    /// `/proc/net/route`.
    NetRoutes,
}

/// A file in memory that is being written.
struct Sheet<'k> {
    k: &'k Kernel,
    fd: i32,
    failed: bool,
}

impl Write for Sheet<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.put(text.as_bytes());
        Ok(())
    }
}

impl Sheet<'_> {
    fn put(&mut self, bytes: &[u8]) {
        let args = sys::args([self.fd as usize, bytes.as_ptr() as usize, bytes.len()]);
        // SAFETY: a live buffer.
        self.failed |= unsafe { sys::call(libc::SYS_write, args) } != Ok(bytes.len());
    }

    /// Writes over what is there.
    fn put_at(&mut self, bytes: &[u8], at: usize) {
        let args = sys::args([self.fd as usize, bytes.as_ptr() as usize, bytes.len(), at]);
        // SAFETY: a live buffer.
        self.failed |= unsafe { sys::call(libc::SYS_pwrite64, args) } != Ok(bytes.len());
    }
}

macro_rules! put {
    ($sheet:expr, $($arg:tt)*) => { { let _ = write!($sheet, $($arg)*); } };
}

impl Text {
    /// Opens a file with this text about process `pid`, 0 for the caller.
    pub fn open(self, k: &Kernel, pid: u32, flags: c_int) -> Result<usize> {
        // SAFETY: no memory is involved.
        let own = unsafe { sys::raw(libc::SYS_getpid, sys::args([])) } as u32;
        let pid = if pid == 0 { own } else { pid };
        if pid != own {
            let path = line!("/proc/{pid}\0");
            let args = [libc::AT_FDCWD as usize, path.bytes().as_ptr() as usize, 0];
            // SAFETY: a string that ends in zero.
            unsafe { sys::call(libc::SYS_faccessat, sys::args(args))? };
        }
        let cloexec = if flags & libc::O_CLOEXEC != 0 { libc::MFD_CLOEXEC } else { 0 };
        let name = c"proc".as_ptr() as usize;
        // SAFETY: a constant name.
        let fd = unsafe { sys::call(libc::SYS_memfd_create, sys::args([name, cloexec as usize]))? };
        let mut sheet = Sheet { k, fd: fd as i32, failed: false };
        self.write(&mut sheet, pid);
        // SAFETY: no memory is involved.
        let rewound = unsafe { sys::call(libc::SYS_lseek, sys::args([fd, 0, 0])) };
        if sheet.failed || rewound.is_err() {
            let _ = sys::close(fd as i32);
            return fail(libc::ENOMEM);
        }
        Ok(fd)
    }

    fn write(self, out: &mut Sheet<'_>, pid: u32) {
        match self {
            Self::Word(word) => put!(out, "{word}\n"),
            Self::Empty => {}
            Self::Zero => put!(out, "0\n"),
            // pid, name, state, parent, group, session; no terminal; then counts, of which priority 20 and one thread are not zero.
            Self::Stat => put!(
                out,
                "{pid} (server) R 1 {pid} {pid} 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 0 0 0 \
                 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
            ),
            Self::Statm => put!(out, "0 0 0 0 0 0 0\n"),
            Self::Status => status(out, pid),
            Self::Maps => maps(out, pid),
            Self::Limits => limits(out, pid),
            Self::Io => put!(
                out,
                "rchar: 0\nwchar: 0\nsyscr: 0\nsyscw: 0\nread_bytes: 0\nwrite_bytes: 0\n\
                 cancelled_write_bytes: 0\n"
            ),
            Self::SchedStat => put!(out, "0 0 0\n"),
            Self::TimerSlack => put!(out, "50000\n"),
            Self::NoId => put!(out, "{}", u32::MAX),
            Self::Cgroup => put!(out, "0::/\n"),
            Self::Mounts => put!(out, "skein / overlay rw,relatime 0 0\nproc /proc proc rw 0 0\n"),
            Self::MountInfo => put!(
                out,
                "20 1 0:20 / / rw,relatime - overlay skein rw\n\
                 21 20 0:21 / /proc rw - proc proc rw\n"
            ),
            Self::MemInfo => memory(out),
            Self::GlobalStat => global_stat(out),
            Self::Uptime => {
                // The look at the clock is an operation of its own, which the rest of the call belongs to.
                turn::end();
                let ns = time::clock_ns(libc::CLOCK_MONOTONIC).unwrap_or(0);
                let (s, hundredths) = (ns / NS_PER_S, ns % NS_PER_S / 10_000_000);
                put!(out, "{s}.{hundredths:02} 0.00\n");
            }
            Self::LoadAverage => put!(out, "0.00 0.00 0.00 1/1 {pid}\n"),
            Self::CpuInfo => processors(out),
            Self::VmStat => put!(
                out,
                "nr_free_pages {}\npgpgin 0\npgpgout 0\npswpin 0\npswpout 0\npgfault 0\n\
                 pgmajfault 0\noom_kill 0\n",
                MEMORY_BYTES / 8192
            ),
            Self::Version => {
                let names = names();
                let text = |field: &[libc::c_char]| TextOf(field).line();
                put!(out, "Linux version {} (skein) ", Shown(&text(&names.release)));
                put!(out, "{}\n", Shown(&text(&names.version)));
            }
            Self::Swaps => put!(out, "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"),
            Self::FileSystems => put!(out, "nodev\ttmpfs\nnodev\tproc\nnodev\toverlay\n\text4\n"),
            Self::Release => put!(out, "{}\n", Shown(&TextOf(&names().release).line())),
            Self::HostName => put!(out, "{}\n", Shown(&TextOf(&names().nodename).line())),
            Self::RandomUuid => uuid(out),
            Self::NetDevices => devices(out),
            Self::NetRoutes => routes(out),
        }
    }
}

struct TextOf<'a>(&'a [libc::c_char]);

impl TextOf<'_> {
    fn line(&self) -> Line {
        let mut line = Line::new();
        for byte in self.0.iter().take_while(|byte| **byte != 0) {
            let _ = line.write_char(char::from(*byte as u8));
        }
        line
    }
}

struct Shown<'a>(&'a Line);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(core::str::from_utf8(self.0.bytes()).unwrap_or("?"))
    }
}

fn names() -> libc::utsname {
    // SAFETY: all-zero is a valid `utsname`, which the kernel fills.
    unsafe {
        let mut names: libc::utsname = core::mem::zeroed();
        sys::raw(libc::SYS_uname, sys::args([&raw mut names as usize]));
        names
    }
}

fn uuid(out: &mut Sheet<'_>) {
    let mut bytes = [0; 16];
    out.k.random.fill(&mut bytes);
    // Version 4.
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    for (at, byte) in bytes.iter().enumerate() {
        put!(out, "{}{byte:02x}", if matches!(at, 4 | 6 | 8 | 10) { "-" } else { "" });
    }
    put!(out, "\n");
}

fn devices(out: &mut Sheet<'_>) {
    put!(
        out,
        "Inter-|   Receive                                                |  Transmit\n \
         face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n"
    );
    for face in Interfaces::of(out.k.net.interface.get()).all() {
        let name = face.name.to_str().unwrap_or("?");
        put!(
            out,
            "{name:>6}:       0       0    0    0    0     0          0         0        0       0    0    0    0     0       0          0\n"
        );
    }
}

/// The way to the network of the interface that the server was given.
fn routes(out: &mut Sheet<'_>) {
    put!(
        out,
        "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
    );
    let given = out.k.net.interface.get();
    if !given.is_none() {
        let word = u32::from_ne_bytes;
        let (network, mask) = (word(given.network()), word(given.mask()));
        put!(out, "eth0\t{network:08X}\t00000000\t0001\t0\t0\t0\t{mask:08X}\t0\t0\t0\n");
    }
}

fn memory(out: &mut Sheet<'_>) {
    let total = MEMORY_BYTES / 1024;
    let fields: [(&str, u64); 14] = [
        ("MemTotal", total),
        ("MemFree", total / 2),
        ("MemAvailable", total / 2),
        ("Buffers", 0),
        ("Cached", 0),
        ("SwapCached", 0),
        ("Active", 0),
        ("Inactive", 0),
        ("SwapTotal", 0),
        ("SwapFree", 0),
        ("Dirty", 0),
        ("AnonPages", 0),
        ("Mapped", 0),
        ("Shmem", 0),
    ];
    for (name, kib) in fields {
        let gap = 16usize.saturating_sub(name.len() + 1);
        put!(out, "{name}:{:gap$}{kib:8} kB\n", "");
    }
    for name in ["HugePages_Total", "HugePages_Free", "HugePages_Rsvd", "HugePages_Surp"] {
        put!(out, "{name}:       0\n");
    }
    put!(out, "Hugepagesize:       2048 kB\n");
}

fn global_stat(out: &mut Sheet<'_>) {
    put!(out, "cpu  0 0 0 0 0 0 0 0 0 0\n");
    for cpu in 0..CPUS {
        put!(out, "cpu{cpu} 0 0 0 0 0 0 0 0 0 0\n");
    }
    let boot_s = out.k.boot_ns.get() / NS_PER_S - 1000;
    put!(out, "intr 0\nctxt 0\nbtime {boot_s}\nprocesses 2\nprocs_running 1\nprocs_blocked 0\n");
}

fn processors(out: &mut Sheet<'_>) {
    for cpu in 0..CPUS {
        put!(
            out,
            "processor\t: {cpu}\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 0\n\
             model name\t: virtual\nstepping\t: 0\ncpu MHz\t\t: 1000.000\ncache size\t: 1024 KB\n\
             physical id\t: 0\nsiblings\t: {CPUS}\ncore id\t\t: {cpu}\ncpu cores\t: {CPUS}\n\
             fpu\t\t: yes\ncpuid level\t: 13\nwp\t\t: yes\n\
             flags\t\t: fpu tsc msr cx8 sep cmov pat clflush mmx fxsr sse sse2 ht syscall nx lm \
             constant_tsc nopl cpuid pni ssse3 cx16 sse4_1 sse4_2 popcnt\n\
             bogomips\t: 2000.00\nclflush size\t: 64\ncache_alignment\t: 64\n\
             address sizes\t: 46 bits physical, 48 bits virtual\n\n"
        );
    }
}

/// The treatment of a line of the kernel's.
enum Fate {
    Kept,
    Dropped,
    Written,
}

/// Writes the lines of the kernel's own file, as `each` decides.
fn filter(out: &mut Sheet<'_>, pid: u32, name: &str, each: impl Fn(&mut Sheet<'_>, &[u8]) -> Fate) {
    let opened = each_line(pid, name, |text| {
        if let Fate::Kept = each(out, text) {
            out.put(text);
            out.put(b"\n");
        }
    });
    out.failed |= !opened;
}

/// Calls `each` for the lines of a file of process `pid`; false: it cannot be opened.
pub fn each_line(pid: u32, name: &str, mut each: impl FnMut(&[u8])) -> bool {
    let path = line!("/proc/{pid}/{name}\0");
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    let args = [libc::AT_FDCWD as usize, path.bytes().as_ptr() as usize, flags as usize];
    // SAFETY: a string that ends in zero.
    let Ok(fd) = (unsafe { sys::call(libc::SYS_openat, sys::args(args)) }) else {
        return false;
    };
    let mut buffer = [0u8; 2048];
    let mut filled = 0;
    loop {
        let room = &mut buffer[filled..];
        let args = sys::args([fd, room.as_mut_ptr() as usize, room.len()]);
        // SAFETY: a live buffer.
        let Ok(n) = (unsafe { sys::call(libc::SYS_read, args) }) else { break };
        filled += n;
        let mut start = 0;
        while let Some(len) = buffer[start..filled].iter().position(|byte| *byte == b'\n') {
            each(&buffer[start..start + len]);
            start += len + 1;
        }
        buffer.copy_within(start..filled, 0);
        filled -= start;
        // A line that is longer than the buffer is cut.
        if n == 0 || filled == buffer.len() {
            break;
        }
    }
    let _ = sys::close(fd as i32);
    true
}

/// Whether all these addresses of this process are shown to it as parts of one mapping of nothing.
pub fn is_one_mapping(from: usize, to: usize) -> bool {
    // SAFETY: no memory is involved.
    let pid = unsafe { sys::raw(libc::SYS_getpid, sys::args([])) } as u32;
    // How far they are alike, and what they are.
    let (mut at, mut kind) = (from, None);
    each_line(pid, "maps", |line| {
        let mut fields = line.splitn(6, |byte| *byte == b' ');
        let mut next = || fields.next().unwrap_or(b"");
        let [place, permissions, _, device, inode, path] = [(); 6].map(|()| next());
        let mut parts = place.split(|byte| *byte == b'-');
        let (Some(start), Some(end)) = (hex(parts.next()), hex(parts.next())) else { return };
        let own = Some(fnv(&[permissions, device, inode, path.trim_ascii_start()]));
        if (start..end).contains(&at) && at < to && inode == b"0" && *kind.get_or_insert(own) == own
        {
            at = end;
        }
    });
    at >= to
}

fn status(out: &mut Sheet<'_>, pid: u32) {
    const KEPT: [&str; 20] = [
        "Name:",
        "Umask:",
        "Tgid:",
        "Ngid:",
        "Pid:",
        "PPid:",
        "TracerPid:",
        "Uid:",
        "Gid:",
        "Groups:",
        "NStgid:",
        "NSpid:",
        "NSpgid:",
        "NSsid:",
        "CapInh:",
        "CapPrm:",
        "CapEff:",
        "CapBnd:",
        "CapAmb:",
        "NoNewPrivs:",
    ];
    filter(out, pid, "status", |out, line| {
        if line.starts_with(b"State:") {
            out.put(b"State:\tR (running)\n");
            return Fate::Written;
        }
        let kept = KEPT.iter().any(|name| line.starts_with(name.as_bytes()));
        if kept { Fate::Kept } else { Fate::Dropped }
    });
    for name in [
        "VmPeak",
        "VmSize",
        "VmLck",
        "VmPin",
        "VmHWM",
        "VmRSS",
        "RssAnon",
        "RssFile",
        "RssShmem",
        "VmData",
        "VmStk",
        "VmExe",
        "VmLib",
        "VmPTE",
        "VmSwap",
        "HugetlbPages",
    ] {
        put!(out, "{name}:\t       0 kB\n");
    }
    put!(out, "Threads:\t{}\n", crate::kernel::process::this().threads.get());
    put!(out, "Cpus_allowed:\t1\nCpus_allowed_list:\t0\nMems_allowed_list:\t0\n");
    put!(out, "voluntary_ctxt_switches:\t0\nnonvoluntary_ctxt_switches:\t0\n");
}

fn limits(out: &mut Sheet<'_>, pid: u32) {
    filter(out, pid, "limits", |out, line| {
        // These two follow from the machine's memory.
        for name in ["Max processes", "Max pending signals"] {
            if line.starts_with(name.as_bytes()) {
                let unit = if name == "Max processes" { "processes" } else { "signals" };
                put!(out, "{name:<25} {:<20} {:<20} {unit:<10}\n", 31500, 31500);
                return Fate::Written;
            }
        }
        Fate::Kept
    });
}

/// The line of a mapping that was written last: one that only continues it is joined with it.
#[derive(Clone, Copy)]
struct Last {
    /// Where in the text its end is, and how many digits that has.
    at: usize,
    digits: usize,
    /// The address behind it, and the offset in the file there.
    end: usize,
    offset: usize,
    /// Of permissions, file and name.
    rest: u64,
}

/// Mappings: `address permissions offset device inode path`. Device and inode number differ; what the kernel maps by itself follows its version. It may keep apart
/// what is one mapping, as where an image was taken in between.
fn maps(out: &mut Sheet<'_>, pid: u32) {
    let (written, last) = (Cell::new(0), Cell::new(None::<Last>));
    filter(out, pid, "maps", |out, line| {
        if [b"[vvar".as_slice(), b"[vdso", b"[vsys"].iter().any(|own| contains(line, own)) {
            return Fate::Dropped;
        }
        if begin_of(line).is_some_and(trace::is_at) {
            return Fate::Dropped;
        }
        let mut fields = line.splitn(6, |byte| *byte == b' ');
        let mut next = || fields.next().unwrap_or(b"");
        let place = [next(), next(), next()];
        let (device, inode, path) = (next(), next(), next().trim_ascii_start());
        let mut parts = place[0].split(|byte| *byte == b'-');
        let (start, end_text) = (hex(parts.next()), parts.next().unwrap_or(b""));
        let (Some(start), Some(end), Some(offset)) =
            (start, hex(Some(end_text)), hex(Some(place[2])))
        else {
            return Fate::Dropped;
        };
        let is_of_file = inode != b"0";
        let rest = fnv(&[place[1], device, inode, path]);
        if let Some(shown) = last.get()
            && (shown.end, shown.rest, shown.digits) == (start, rest, end_text.len())
            && (!is_of_file || shown.offset == offset)
        {
            out.put_at(end_text, shown.at);
            let offset = offset + (end - start);
            last.set(Some(Last { end, offset, ..shown }));
            return Fate::Written;
        }
        let at = written.get() + place[0].len() - end_text.len();
        let (digits, offset) = (end_text.len(), offset + (end - start));
        last.set(Some(Last { at, digits, end, offset, rest }));
        let mut column = 0;
        for field in place {
            out.put(field);
            out.put(b" ");
            column += field.len() + 1;
        }
        let file: &[u8] = if is_of_file { b"08:01 1" } else { b"00:00 0" };
        out.put(file);
        column += file.len();
        if !path.is_empty() {
            while column < 73 {
                out.put(b" ");
                column += 1;
            }
            let restored = path == SHARED_SHOWN.as_bytes();
            let path = if restored { SHARED_WAS.as_bytes() } else { path };
            out.put(path);
            column += path.len();
        }
        out.put(b"\n");
        written.set(written.get() + column + 1);
        Fate::Written
    });
}

/// A hexadecimal number.
fn hex(digits: Option<&[u8]>) -> Option<usize> {
    usize::from_str_radix(core::str::from_utf8(digits?).ok()?, 16).ok()
}

/// FNV-1a, to tell lines apart.
fn fnv(parts: &[&[u8]]) -> u64 {
    let bytes = parts.iter().flat_map(|part| part.iter().chain(b" "));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    })
}

/// Where a mapping begins.
fn begin_of(line: &[u8]) -> Option<usize> {
    hex(line.split(|byte| *byte == b'-').next())
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}
