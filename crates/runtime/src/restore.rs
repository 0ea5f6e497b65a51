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

mod files;
mod identity;
mod kernels;
mod numbers;
mod pages;
mod program;
mod settings;
mod steps;

use self::steps::{fail, failed};
use crate::context;
use crate::fatal::refuse;
use crate::io::table;
use crate::kernel::{Kernel, kernel};
use crate::local::{LOCAL, header};
use crate::sys::{self, args};
use crate::turn::trace;
use crate::uses::{self, Use};
use crate::{glibc, process, spin, stack, thread};
use core::mem::offset_of;
use core::slice::from_raw_parts;
use core::sync::atomic::{AtomicU64, Ordering};
use skein_arena::layout::{
    HEADER_BYTES, Header, LIBRARY_AT, NUMBERS_FD, RESTORE_AT, RESTORE_FD, RESTORE_SPAN, SERVER_BASE,
};
use skein_arena::restore::{
    Credentials, Description, Descriptor, Head, Known, Lock, MAGIC, Mapping, Object, Parked,
    Process, Program, Run, advice, kind,
};
use skein_libos::errno::Errno;

const STACK_BYTES: usize = 256 << 10;
/// Whether a process was made here: at the stack's other end.
const IS_CHILD_AT: usize = RESTORE_AT;
/// Whether this process's memory is being replaced: libc is not there, and the runtime's variables may be the image's.
const IS_REPLACED_AT: usize = IS_CHILD_AT + 1;
/// The tables are behind the stack, the head in front of them.
const HEAD_AT: usize = RESTORE_AT + STACK_BYTES;
const TABLES_AT: usize = HEAD_AT + PAGE_BYTES;
/// The end of a process's addresses.
const END: usize = 0x7fff_ffff_f000;
const PAGE_BYTES: usize = 4096;
const WRITE: usize = libc::PROT_WRITE as usize;
const EXECUTE: usize = libc::PROT_EXEC as usize;

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
    pages::accept();
    let file = take_room(&head);
    map_tables(&head, file);
    leave(restore);
}

/// In a program that a process has executed again: goes on with its restore.
pub fn go_on() -> ! {
    let file = header().restored_from.load(Ordering::Relaxed) as usize;
    let mut head = Head::default();
    // SAFETY: a local.
    let read = unsafe {
        let at = &raw mut head as usize;
        sys::call(libc::SYS_pread64, args([file, at, size_of::<Head>(), 0]))
    };
    if read != Ok(size_of::<Head>()) {
        fail(2);
    }
    // Placeholders are duplicates of one that is not to be kept.
    table::keep_spare_over_exec(false);
    // The image has others of its own.
    spin::stop_timers();
    map_tables(&head, file);
    // SAFETY: just mapped.
    unsafe { (IS_CHILD_AT as *mut bool).write(true) };
    leave(restore_program);
}

/// Whether processes are being restored.
pub fn is_under_way() -> bool {
    header().restoring.load(Ordering::Acquire) != 0
}

extern "C" fn restore_program(_: u32) -> ! {
    // SAFETY: mapped; this process has one thread, on a stack that is no part of the image.
    unsafe {
        let t = Tables::get();
        let own = t.own();
        let program = t.program_of(own, true);
        if !program.is_some_and(|program| program::has_its_place(&t, program)) {
            fail(58);
        }
        identity::ask(&t);
        become_process(&t, own)
    }
}

/// Leaves this stack for the one that is no part of the image.
fn leave(to: extern "C" fn(u32) -> !) -> ! {
    let mut forgotten = 0u64;
    let fs = context::fs_base();
    // SAFETY: the end of the new stack; nothing of this one is needed again.
    unsafe {
        let top = HEAD_AT as *mut u8;
        context::onto_stack(&raw mut forgotten, top, fs, to, 0);
    }
    fail(59)
}

fn map_tables(head: &Head, file: usize) {
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
    map(HEAD_AT, PAGE_BYTES, flags, file, 0);
    map(TABLES_AT, (head.tables_bytes as usize).max(1), flags, file, head.tables_at);
}

/// Makes room for the descriptors of the restore, above those of the server; answers that of its file.
fn take_room(head: &Head) -> usize {
    let mut limit = [0u64; 2];
    let resource = libc::RLIMIT_NOFILE as usize;
    // SAFETY: a local.
    unsafe {
        sys::raw(libc::SYS_prlimit64, args([0, resource, 0, &raw mut limit as usize]));
        limit[0] = limit[1];
        sys::raw(libc::SYS_prlimit64, args([0, resource, limit.as_ptr() as usize]));
    }
    let file = head.file_fd();
    for (is, to) in [(NUMBERS_FD, head.numbers_fd()), (RESTORE_FD, file)] {
        if is == to {
            continue;
        }
        let move_to = args([is as usize, to as usize, libc::O_CLOEXEC as usize]);
        // SAFETY: numbers.
        match unsafe { sys::call(libc::SYS_dup3, move_to) } {
            Ok(_) => {
                let _ = sys::close(is);
            }
            // Nobody is asked for numbers.
            Err(Errno(libc::EBADF)) if is == NUMBERS_FD && (to as u64) < limit[1] => {}
            Err(_) => refuse!(
                "descriptor {to} is needed while the server is restored: raise the limit of open files above {to}"
            ),
        }
    }
    file as usize
}

/// The tables.
struct Tables {
    head: &'static Head,
    processes: &'static [Process],
    objects: &'static [Object],
    descriptions: &'static [Description],
    mappings: &'static [Mapping],
    runs: &'static [Run],
    locks: &'static [Lock],
    credentials: &'static [Credentials],
    parked: &'static [Parked],
    programs: &'static [Program],
    descriptors: &'static [Descriptor],
    groups: &'static [u32],
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
                locks: table(&mut at, head.locks),
                credentials: table(&mut at, head.credentials),
                parked: table(&mut at, head.parked),
                programs: table(&mut at, head.programs),
                descriptors: table(&mut at, head.descriptors),
                groups: table(&mut at, head.groups),
                names: at,
            }
        }
    }

    fn name(&self, at: u64) -> usize {
        self.names + at as usize
    }

    /// The descriptor of the restore file.
    fn file(&self) -> usize {
        self.head.file_fd() as usize
    }

    /// The descriptor at which the server asks for numbers.
    fn numbers(&self) -> i32 {
        self.head.numbers_fd()
    }

    /// The first descriptor that processes take over.
    fn lent(&self) -> usize {
        self.numbers() as usize + 1
    }

    /// The process that runs.
    fn own(&self) -> &'static Process {
        // SAFETY: no memory.
        let pid = unsafe { sys::raw(libc::SYS_getpid, args([])) } as u32;
        match self.processes.iter().find(|process| process.pid == pid) {
            Some(process) => process,
            None => fail(3),
        }
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

extern "C" fn restore(_: u32) -> ! {
    // SAFETY: mapped; this process has one thread, on a stack that is no part of the image.
    unsafe {
        let t = Tables::get();
        let k = kernel();
        let found = k.files().surroundings();
        arena(&t);
        trace::begin();
        k.files().move_to(&found);
        files::objects(&t);
        identity::renew(k, &t);
        identity::check(k, t.mappings, t.names);
        files::open(&t);
        files::finish(&t);
        files::park(&t);
        files::locks_of_files(&t);
        let executed = program::first_executed(k, &t);
        let own = sys::call(libc::SYS_getpid, args([])).unwrap_or(0) as u32;
        for process in t.processes.iter().filter(|process| process.pid != own) {
            if make_child(process.pid) {
                (IS_CHILD_AT as *mut bool).write(true);
                if let Some(program) = t.program_of(process, executed) {
                    program::execute(&t, process, program);
                }
                become_process(&t, process);
            }
        }
        let Some(process) = t.processes.iter().find(|process| process.pid == own) else {
            // It has ended, as that of a server that goes into the background does.
            header().deaths.fetch_add(1, Ordering::Relaxed);
            sys::exit_group(0)
        };
        if let Some(program) = t.program_of(process, executed) {
            program::execute(&t, process, program);
        }
        become_process(&t, process)
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
        t.fill(part(t.runs, [0, t.head.heap_runs]), 0);
        let asks_nothing = size(&header.asks_nothing);
        // First, and left out below: with it, the words that say how far the server has come mean nothing yet.
        header.restoring.store(t.head.processes, Ordering::Release);
        let left_out = offset_of!(Header, restoring);
        let behind = left_out + size_of_val(&header.restoring);
        let parts = [offset_of!(Header, server_state)..left_out, behind..size_of::<Header>()];
        for part in parts {
            let (to, at) = (SERVER_BASE + part.start, t.head.header_at as usize + part.start);
            must(5, libc::SYS_pread64, args([t.file(), to, part.len(), at]));
        }
        header.asks_nothing.store(asks_nothing as u64, Ordering::Relaxed);
        // None of its processes has ended: those that had were of another server.
        header.deaths.store(0, Ordering::Relaxed);
        header.restored_from.store(t.file() as u32, Ordering::Relaxed);
    }
}

/// A number's digits.
fn decimal(number: u32, digits: &mut [u8; 10]) -> &[u8] {
    let (mut at, mut rest) = (digits.len(), number);
    while rest > 0 || at == digits.len() {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    &digits[at..]
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
        let same = kernels::make_room(mappings);
        (IS_REPLACED_AT as *mut bool).write(true);
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
            map(t, m, runs, same.lacks(m));
        }
        t.take_pages(process, runs);
        for m in mappings {
            let (may_write, may_run) = (m.protection & WRITE as u32, m.protection & EXECUTE as u32);
            let is_kept = may_write == 0 && !is_of_files(m.kind);
            // The kernel has made the stack and the heap.
            if is_kept || may_run != 0 && matches!(m.kind, kind::STACK | kind::HEAP) {
                let bytes = (m.end - m.start) as usize;
                if m.kind == kind::STACK {
                    // So it grows as far.
                    (m.start as *const u8).read_volatile();
                }
                // The kernel's own are not changed.
                sys::raw(
                    libc::SYS_mprotect,
                    args([m.start as usize, bytes, m.protection as usize]),
                );
            }
        }
        for m in mappings {
            advise(m);
        }
        must(17, libc::SYS_chdir, args([t.name(process.directory)]));
        sys::raw(libc::SYS_umask, args([process.umask as usize]));
        files::descriptors(t, part(t.descriptors, process.descriptors));
        files::locks_of_process(part(t.locks, process.locks));
        let [sp, fs, gs] = &LOCAL.resume;
        context::set_gs_base(gs.load(Ordering::Relaxed));
        context::take_up_restored(sp.load(Ordering::Relaxed), fs.load(Ordering::Relaxed))
    }
}

/// Makes a mapping, writable until its pages are there. One that is lacking was made by the image's kernel, and this one has not made it: it is memory like any other.
unsafe fn map(t: &Tables, m: &Mapping, runs: &[Run], is_lacking: bool) {
    let (start, bytes) = (m.start as usize, (m.end - m.start) as usize);
    let (protection, offset) = (m.protection as usize | WRITE, m.offset as usize);
    let fixed = (libc::MAP_FIXED | libc::MAP_NORESERVE) as usize;
    let private = fixed | libc::MAP_PRIVATE as usize;
    let shared = fixed | libc::MAP_SHARED as usize;
    // SAFETY: as in `become_process`.
    unsafe {
        match m.kind {
            kind::STAYS if is_lacking => {
                let flags = private | libc::MAP_ANONYMOUS as usize;
                must(18, libc::SYS_mmap, [start, bytes, protection, flags, usize::MAX, 0]);
            }
            kind::ANONYMOUS => {
                let mut flags = private | libc::MAP_ANONYMOUS as usize;
                if m.advice & advice::GROWS != 0 {
                    flags |= libc::MAP_GROWSDOWN as usize;
                }
                must(18, libc::SYS_mmap, [start, bytes, protection, flags, usize::MAX, 0]);
            }
            kind::SHARED => {
                let protection = m.protection as usize;
                must(
                    19,
                    libc::SYS_mmap,
                    [start, bytes, protection, shared, t.object_fd(m.of), offset],
                );
            }
            kind::PRIVATE => {
                must(
                    19,
                    libc::SYS_mmap,
                    [start, bytes, protection, private, t.object_fd(m.of), offset],
                );
            }
            kind::FILE | kind::SHARED_FILE | kind::WRITTEN_FILE => {
                let access =
                    if m.kind == kind::WRITTEN_FILE { libc::O_RDWR } else { libc::O_RDONLY };
                let fd = files::open_path(t.name(m.of), access | libc::O_CLOEXEC)
                    .unwrap_or_else(|e| failed(20, e));
                let (flags, protection) = match m.kind {
                    kind::FILE => (private, protection),
                    _ => (shared, m.protection as usize),
                };
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

/// Whether a mapping of this kind shows what other processes see, too: its pages are not this process's.
const fn is_of_files(kind: u32) -> bool {
    matches!(kind, kind::SHARED | kind::SHARED_FILE | kind::WRITTEN_FILE)
}

/// Tells the kernel what the server had told it about a mapping.
unsafe fn advise(m: &Mapping) {
    /// `mseal`, which libc does not know yet.
    const MSEAL: i64 = 462;
    let (start, bytes) = (m.start as usize, (m.end - m.start) as usize);
    let advices = [
        (advice::NOT_FORKED, libc::MADV_DONTFORK),
        (advice::WIPED, libc::MADV_WIPEONFORK),
        (advice::HUGE, libc::MADV_HUGEPAGE),
        (advice::SMALL, libc::MADV_NOHUGEPAGE),
    ];
    if m.advice & !advice::GROWS != 0 {
        uses::note(Use::MemoryAdvice);
    }
    for (bit, order) in advices.into_iter().filter(|_| m.kind != kind::STAYS) {
        if m.advice & bit != 0 {
            // SAFETY: one of the image's mappings; its content stays.
            let told =
                unsafe { sys::call(libc::SYS_madvise, args([start, bytes, order as usize])) };
            // Huge pages make a server faster or slower, not different.
            if told.is_err() && bit & (advice::HUGE | advice::SMALL) == 0 {
                fail(50);
            }
        }
    }
    if m.advice & advice::SEALED != 0 && m.kind != kind::STAYS {
        // SAFETY: as above.
        unsafe { must(51, MSEAL, args([start, bytes, 0])) };
    }
}

/// The carrier of a restored process runs: what it needs of the kernel is renewed, and what was needed to come here is given back.
pub fn end(k: &Kernel) {
    // SAFETY: mapped until the end of this.
    let (is_child, t) = unsafe { (*(IS_CHILD_AT as *const bool), Tables::get()) };
    // SAFETY: as above.
    unsafe { identity::renew_own() };
    let _ = sys::close(t.file() as i32);
    trace::attach_again();
    stack::take_signals(stack::of_main());
    if is_child {
        process::written::begin();
        // It has none of its parent's timers.
        spin::start_timers();
        glibc::tell_of_main();
    }
    // SAFETY: the tables are mapped.
    unsafe {
        settings::of_process(&t, t.own());
        thread::revive_all(k, |number, make| {
            numbers::make(number, make);
        });
        numbers::await_all(k);
        settings::limits(t.own(), false);
        settings::root(&t, t.own());
        settings::rights(&t, t.own());
        settings::limits(t.own(), true);
        sys::raw(libc::SYS_munmap, args([RESTORE_AT, RESTORE_SPAN]));
    }
}

/// In a kernel thread that was made again, while its process is restored: it has the rights of its process.
pub fn take_rights() {
    // SAFETY: mapped until all threads are made.
    unsafe {
        let t = Tables::get();
        settings::rights(&t, t.own());
    }
}
