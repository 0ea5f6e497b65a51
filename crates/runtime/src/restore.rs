//! A server continues from an image: everything that its first process has is replaced by what the restore file says ([`skein_arena::restore`]), and its other
//! processes are made.
//!
//! The process has begun as any first process of a server does, so the kernel knows its handlers, its filter, its timers and its limits, which are those
//! of the server that the image is of. The rest is done from a stack and from tables that are no part of the image: the arena's heap and the runtime's words in its header,
//! memory and open files that processes share, a child for each other process, and in each process its mappings, pages and descriptors. Then its carrier takes
//! up the context in which it slept ([`crate::turn::carrier::hold`]), and makes the kernel threads of the others again.
//!
//! Addresses are equal because address randomisation is off and the program is the same. After the first page was written nothing here reads the runtime's own
//! variables: the library's data are replaced, too. A step that fails ends the server ([`steps`]).

mod identity;
mod numbers;
mod steps;

use self::steps::{fail, failed};
use crate::context;
use crate::fatal::refuse;
use crate::io::table::{SPARE_FD, is_own};
use crate::kernel::{Kernel, kernel};
use crate::local::{LOCAL, header};
use crate::sys::{self, args};
use crate::{glibc, spin, stack, thread};
use core::mem::offset_of;
use core::slice::from_raw_parts;
use core::sync::atomic::{AtomicU64, Ordering};
use skein_arena::layout::{
    HEADER_BYTES, Header, LIBRARY_AT, NUMBERS_FD, RESTORE_AT, RESTORE_FD, RESTORE_SPAN, SERVER_BASE,
};
use skein_arena::restore::{
    Description, Descriptor, ERRORS, Head, Known, MAGIC, Mapping, OUTPUT, Object, PLACEHOLDER,
    Process, Run, kind,
};

const STACK_BYTES: usize = 256 << 10;
/// Whether a process was made here: at the stack's other end.
const IS_CHILD_AT: usize = RESTORE_AT;
/// The tables are behind the stack, the head in front of them.
const HEAD_AT: usize = RESTORE_AT + STACK_BYTES;
const TABLES_AT: usize = HEAD_AT + PAGE_BYTES;
/// The end of a process's addresses.
const END: usize = 0x7fff_ffff_f000;
const PAGE_BYTES: usize = 4096;
/// Descriptors of shared memory and of open files until all processes have them.
const LENT_FD: i32 = NUMBERS_FD + 1;
const WRITE: usize = libc::PROT_WRITE as usize;

/// Continues from the restore file if there is one; does not return then.
pub fn begin() {
    let mut head = Head::default();
    let bytes = size_of::<Head>();
    // SAFETY: a local.
    let read = unsafe {
        let at = &raw mut head as usize;
        sys::call(libc::SYS_pread64, args([RESTORE_FD as usize, at, bytes, 0]))
    };
    if read.is_err() {
        return;
    }
    if read != Ok(bytes) || head.magic != MAGIC || head.tables_bytes as usize > RESTORE_SPAN / 2 {
        refuse!("descriptor {RESTORE_FD} is no image of this version");
    }
    let protection = (libc::PROT_READ | WRITE as i32) as usize;
    let flags = (libc::MAP_PRIVATE | libc::MAP_FIXED_NOREPLACE) as usize;
    let anonymous = flags | libc::MAP_ANONYMOUS as usize;
    let map = |at: usize, bytes: usize, flags: usize, fd: usize, offset: u64| {
        // SAFETY: new memory where nothing is.
        let made = unsafe {
            sys::call(libc::SYS_mmap, [at, bytes, protection, flags, fd, offset as usize])
        };
        if made != Ok(at) {
            refuse!("there is no memory at {RESTORE_AT:#x} for an image's tables");
        }
    };
    map(RESTORE_AT, STACK_BYTES, anonymous, usize::MAX, 0);
    map(HEAD_AT, PAGE_BYTES, flags, RESTORE_FD as usize, 0);
    map(TABLES_AT, (head.tables_bytes as usize).max(1), flags, RESTORE_FD as usize, head.tables_at);
    let mut forgotten = 0u64;
    let fs = context::fs_base();
    // SAFETY: the end of the new stack; nothing of this one is needed again.
    unsafe {
        let top = HEAD_AT as *mut u8;
        context::onto_stack(&raw mut forgotten, top, fs, restore, 0);
    }
}

/// The tables.
struct Tables {
    head: &'static Head,
    processes: &'static [Process],
    objects: &'static [Object],
    descriptions: &'static [Description],
    mappings: &'static [Mapping],
    runs: &'static [Run],
    descriptors: &'static [Descriptor],
    names: usize,
}

impl Tables {
    /// # Safety
    /// They are mapped.
    unsafe fn get() -> Self {
        let mut at = TABLES_AT;
        // SAFETY: the node has written them so; they stay until the process is whole.
        unsafe {
            let head = &*(HEAD_AT as *const Head);
            at += head.files as usize * size_of::<Known>();
            Self {
                head,
                processes: table(&mut at, head.processes),
                objects: table(&mut at, head.objects),
                descriptions: table(&mut at, head.descriptions),
                mappings: table(&mut at, head.mappings),
                runs: table(&mut at, head.runs),
                descriptors: table(&mut at, head.descriptors),
                names: at,
            }
        }
    }

    fn name(&self, at: u64) -> usize {
        self.names + at as usize
    }
}

/// The table at `at`, behind which the next one is.
unsafe fn table<T>(at: &mut usize, count: u32) -> &'static [T] {
    let first = *at as *const T;
    *at += count as usize * size_of::<T>();
    // SAFETY: the caller's contract.
    unsafe { from_raw_parts(first, count as usize) }
}

/// The part of a table that a process or an object names.
fn part<T>(of: &'static [T], part: [u32; 2]) -> &'static [T] {
    of.get(part[0] as usize..).and_then(|rest| rest.get(..part[1] as usize)).unwrap_or(&[])
}

/// A call that must work.
unsafe fn must(step: i32, nr: i64, a: [usize; 6]) -> usize {
    // SAFETY: the caller's.
    match unsafe { sys::call(nr, a) } {
        Ok(value) => value,
        Err(e) => failed(step, e),
    }
}

/// Reads pages from the file to where they belong, or to `base` and more.
unsafe fn fill(runs: &[Run], base: usize) {
    for run in runs {
        let mut to = base + run.address as usize;
        let (mut left, mut from) = (run.bytes as usize, run.at as usize);
        while left > 0 {
            // SAFETY: the image's memory, which is mapped.
            let n =
                unsafe { must(1, libc::SYS_pread64, args([RESTORE_FD as usize, to, left, from])) };
            if n == 0 {
                fail(2);
            }
            (to, left, from) = (to + n, left - n, from + n);
        }
    }
}

extern "C" fn restore(_: u32) -> ! {
    // SAFETY: mapped; this process has one thread, on a stack that is no part of the image.
    unsafe {
        let t = Tables::get();
        let k = kernel();
        let found = k.files().surroundings();
        arena(&t);
        k.files().move_to(&found);
        identity::renew(k, t.names);
        identity::check(k, t.mappings, t.names);
        objects(&t);
        open(&t);
        let own = sys::call(libc::SYS_getpid, args([])).unwrap_or(0) as u32;
        for process in t.processes.iter().filter(|process| process.pid != own) {
            if make_child(process.pid) {
                (IS_CHILD_AT as *mut bool).write(true);
                become_process(&t, process);
            }
        }
        match t.processes.iter().find(|process| process.pid == own) {
            Some(process) => become_process(&t, process),
            // It has ended, as that of a server that goes into the background does.
            None => {
                header().deaths.fetch_add(1, Ordering::Relaxed);
                sys::exit_group(0)
            }
        }
    }
}

/// The heap, and the runtime's words in the header.
unsafe fn arena(t: &Tables) {
    // SAFETY: the arena, which is mapped; only this thread uses it.
    unsafe {
        let header = &*(SERVER_BASE as *const Header);
        let size = |word: &AtomicU64| word.load(Ordering::Relaxed) as usize;
        let rings = 2 * (size(&header.input_bytes) + size(&header.output_bytes));
        let heap = SERVER_BASE + HEADER_BYTES + rings;
        let all = args([heap, size(&header.heap_bytes), libc::MADV_REMOVE as usize]);
        must(4, libc::SYS_madvise, all);
        fill(part(t.runs, [0, t.head.heap_runs]), 0);
        let from = offset_of!(Header, server_state);
        let asks_nothing = size(&header.asks_nothing);
        let (to, bytes) = (SERVER_BASE + from, size_of::<Header>() - from);
        let at = t.head.header_at as usize + from;
        must(5, libc::SYS_pread64, args([RESTORE_FD as usize, to, bytes, at]));
        header.asks_nothing.store(asks_nothing as u64, Ordering::Relaxed);
        // None of its processes has ended: those that had were of another server.
        header.deaths.store(0, Ordering::Relaxed);
        header.restoring.store(t.head.processes, Ordering::Relaxed);
    }
}

/// Makes the memory that processes share.
unsafe fn objects(t: &Tables) {
    for (n, object) in t.objects.iter().enumerate() {
        let bytes = object.bytes as usize;
        // SAFETY: a new object, mapped behind the tables while it is filled.
        unsafe {
            let name = c"shared".as_ptr() as usize;
            let fd = must(6, libc::SYS_memfd_create, args([name, libc::MFD_CLOEXEC as usize]));
            must(7, libc::SYS_ftruncate, args([fd, bytes]));
            let flags = (libc::MAP_SHARED | libc::MAP_FIXED) as usize;
            let at = RESTORE_AT + RESTORE_SPAN / 2;
            let protection = libc::PROT_READ as usize | WRITE;
            must(8, libc::SYS_mmap, [at, bytes, protection, flags, fd, 0]);
            fill(part(t.runs, object.runs), at);
            must(9, libc::SYS_munmap, args([at, bytes]));
            lend(fd, n);
        }
    }
}

/// Opens the files that were open.
unsafe fn open(t: &Tables) {
    for (n, file) in t.descriptions.iter().enumerate() {
        let flags = file.flags & !(libc::O_CREAT | libc::O_EXCL | libc::O_TRUNC) | libc::O_CLOEXEC;
        // SAFETY: a path of the tables.
        unsafe {
            let fd = must(10, libc::SYS_open, args([t.name(file.name), flags as usize]));
            let seek = args([fd, file.position as usize, libc::SEEK_SET as usize]);
            // Not every file has a position.
            sys::raw(libc::SYS_lseek, seek);
            lend(fd, t.objects.len() + n);
        }
    }
    for (n, standard) in [libc::STDOUT_FILENO, libc::STDERR_FILENO].into_iter().enumerate() {
        let to = LENT_FD as usize + t.objects.len() + t.descriptions.len() + n;
        // SAFETY: numbers.
        unsafe {
            must(27, libc::SYS_dup3, args([standard as usize, to, libc::O_CLOEXEC as usize]));
        }
    }
}

/// Moves a descriptor to where all processes find it.
unsafe fn lend(fd: usize, n: usize) {
    let to = LENT_FD as usize + n;
    if fd != to {
        // SAFETY: numbers.
        unsafe {
            must(11, libc::SYS_dup3, args([fd, to, libc::O_CLOEXEC as usize]));
            sys::raw(libc::SYS_close, args([fd]));
        }
    }
}

/// Makes a process of this number; true in it.
unsafe fn make_child(pid: u32) -> bool {
    // SAFETY: a fork; all processes are children of the first one's parent.
    let fork = || unsafe { sys::raw(libc::SYS_clone, args([libc::CLONE_PARENT as usize])) };
    numbers::make(pid, fork)
}

fn unmap(from: usize, to: usize) {
    if from < to {
        // SAFETY: nothing there is part of the image.
        unsafe { must(15, libc::SYS_munmap, args([from, to - from])) };
    }
}

/// Unmaps what is between two mappings, but for the runtime's own part.
fn clear(from: usize, to: usize) {
    unmap(from, to.min(SERVER_BASE));
    unmap(from.max(LIBRARY_AT), to);
}

/// Replaces all that the running process has.
unsafe fn become_process(t: &Tables, process: &Process) -> ! {
    let mappings = part(t.mappings, process.mappings);
    let runs = part(t.runs, process.runs);
    // SAFETY: this process has one thread, on a stack that is no part of the image; what is replaced is not used here.
    unsafe {
        let mut at = PAGE_BYTES;
        for m in mappings {
            clear(at, m.start as usize);
            at = m.end as usize;
        }
        clear(at, END);
        if process.brk != 0 {
            must(16, libc::SYS_brk, args([process.brk as usize]));
        }
        for m in mappings {
            map(t, m, runs);
        }
        fill(runs, 0);
        for m in mappings {
            if m.protection as usize & WRITE == 0 && m.kind != kind::SHARED_FILE {
                let bytes = (m.end - m.start) as usize;
                // The kernel's own are not changed.
                sys::raw(
                    libc::SYS_mprotect,
                    args([m.start as usize, bytes, m.protection as usize]),
                );
            }
        }
        must(17, libc::SYS_chdir, args([t.name(process.directory)]));
        sys::raw(libc::SYS_umask, args([process.umask as usize]));
        descriptors(t, part(t.descriptors, process.descriptors));
        let (sp, fs) = (&LOCAL.resume[0], &LOCAL.resume[1]);
        context::take_up_restored(sp.load(Ordering::Relaxed), fs.load(Ordering::Relaxed))
    }
}

/// Makes a mapping, writable until its pages are there.
unsafe fn map(t: &Tables, m: &Mapping, runs: &[Run]) {
    let (start, bytes) = (m.start as usize, (m.end - m.start) as usize);
    let (protection, offset) = (m.protection as usize | WRITE, m.offset as usize);
    let fixed = (libc::MAP_FIXED | libc::MAP_NORESERVE) as usize;
    let private = fixed | libc::MAP_PRIVATE as usize;
    let shared = fixed | libc::MAP_SHARED as usize;
    // SAFETY: as in `become_process`.
    unsafe {
        match m.kind {
            kind::ANONYMOUS => {
                let flags = private | libc::MAP_ANONYMOUS as usize;
                must(18, libc::SYS_mmap, [start, bytes, protection, flags, usize::MAX, 0]);
            }
            kind::SHARED => {
                let fd = LENT_FD as usize + m.of as usize;
                must(19, libc::SYS_mmap, [start, bytes, protection, shared, fd, offset]);
            }
            kind::FILE | kind::SHARED_FILE => {
                let of_file = m.kind == kind::FILE;
                let path = t.name(m.of);
                let fd = must(20, libc::SYS_open, args([path, libc::O_RDONLY as usize]));
                let (flags, protection) =
                    if of_file { (private, protection) } else { (shared, m.protection as usize) };
                must(21, libc::SYS_mmap, [start, bytes, protection, flags, fd, offset]);
                sys::raw(libc::SYS_close, args([fd]));
            }
            kind::STACK | kind::HEAP => {
                let empty = args([start, bytes, libc::MADV_DONTNEED as usize]);
                // A part of the stack that it has not grown to is not there.
                if sys::raw(libc::SYS_madvise, empty) < 0 && m.kind == kind::HEAP {
                    fail(22);
                }
            }
            _ if runs.iter().any(|run| (m.start..m.end).contains(&run.address)) => {
                let protection = libc::PROT_READ as usize | WRITE;
                must(23, libc::SYS_mprotect, args([start, bytes, protection]));
            }
            _ => {}
        }
    }
}

/// Takes the descriptors that were open.
unsafe fn descriptors(t: &Tables, of: &[Descriptor]) {
    let files = LENT_FD as usize + t.objects.len();
    let given = files + t.descriptions.len();
    let lent = LENT_FD as usize..given + 2;
    // SAFETY: numbers.
    unsafe {
        for standard in 0..3 {
            sys::raw(libc::SYS_close, args([standard]));
        }
        for d in of.iter().filter(|d| !is_own(d.fd)) {
            let from = match d.description {
                PLACEHOLDER => SPARE_FD as usize,
                OUTPUT => given,
                ERRORS => given + 1,
                n => files + n as usize,
            };
            // Nothing else of a server is there: its descriptors begin at the lowest free numbers.
            if lent.contains(&(d.fd as usize)) {
                fail(24);
            }
            must(25, libc::SYS_dup3, args([from, d.fd as usize, d.flags as usize]));
        }
        must(26, libc::SYS_close_range, args([lent.start, lent.end - 1, 0]));
    }
}

/// The carrier of a restored process runs: what it needs of the kernel is renewed, and what was needed to come here is given back.
pub fn end(k: &Kernel) {
    // SAFETY: mapped until now; nothing of it is in use behind this.
    let is_child = unsafe {
        let is_child = *(IS_CHILD_AT as *const bool);
        identity::renew_own();
        sys::raw(libc::SYS_munmap, args([RESTORE_AT, RESTORE_SPAN]));
        is_child
    };
    let _ = sys::close(RESTORE_FD);
    if k.park.parked.get() != 0 {
        refuse!("an image cannot hold this server: a descriptor of the kernel's was on its way");
    }
    stack::take_signals(stack::of_main());
    if is_child {
        // It has none of its parent's timers.
        spin::start_timers();
        glibc::tell_of_main();
    }
    thread::revive_all(k, |number, make| {
        numbers::make(number, make);
    });
    numbers::await_all(k);
}
