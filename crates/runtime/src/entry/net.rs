//! The safety net: system calls that do not come through an interposed symbol.
//!
//! The table in `crates/interpose` decides the treatment of each call. A seccomp filter lets everything from this library's text through and raises
//! SIGSYS for every call that the table does not pass, from anywhere else: from libc's own code, from `syscall` instructions in the server. The handler answers
//! as the hooks do ([`calls`]): a call that is not known to be harmless never reaches the kernel unseen.
//!
//! The kernel's handler only makes the kernel return to the runtime's stack of the thread that has the turn ([`frame`]). There the call is answered, and may block
//! like any hook. A place that is caught again and again is replaced by a jump that asks the same functions without a signal ([`patch`]).
//!
//! The filter also holds for all programs that the server executes, so it can rely only on text at the same place in every program: this library (linked to its
//! address, see `build.rs`) and the loader, which must read libraries before there is a handler, and does nothing else. Three calls of libc's that come as early are
//! known by their arguments, and one of them by its place within a page.
//!
//! `clone3` does not exist: libc then makes threads and processes with `clone`, whose arguments are in registers ([`libc_calls`], [`process::fork`]).

use crate::entry::{calls, instructions, libc_calls};
use crate::fatal::{refuse, refused};
use crate::frame::Registers;
use crate::glibc;
use crate::kernel::kernel;
use crate::local::LOCAL;
use crate::local::header;
use crate::machine;
use crate::signal::fault::handle;
use crate::sys;
use crate::thread::birth;
use crate::turn::trace;
use crate::{advice, fatal, files, frame, io, loader, original, patch, signal, spin, stack};
use core::sync::atomic::Ordering;
use libc::{c_int, c_void};
use skein_arena::trapped;
use skein_interpose::filter::{self, Next, Tree};
use skein_libos::errno::Result;

/// A system call that was caught, on a stack for signals. On a kernel thread that libc has just made it is answered there.
extern "C" fn on_sigsys(signo: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes a valid `siginfo`, with words of the call's, and a valid context, which belongs to the handler's frame.
    let (code, arch, registers) = unsafe {
        let arch = info.cast::<u32>().add(SI_ARCH_WORD).read();
        let context = &mut *context.cast::<libc::ucontext_t>();
        ((*info).si_code, arch, &mut context.uc_mcontext.gregs)
    };
    const SYS_SECCOMP: c_int = 1;
    if code != SYS_SECCOMP {
        refuse!("a SIGSYS that is not from the safety net (code {code})");
    }
    let nr = registers[libc::REG_RAX as usize];
    if arch != AUDIT_ARCH_X86_64 {
        header().net_calls.fetch_add(1, Ordering::Relaxed);
        header().trapped.note(trapped::INT80);
        // The numbers of `int 0x80` mean other calls.
        refused(fatal::line!("32-bit system call {nr}").bytes());
        registers[libc::REG_RAX as usize] = -i64::from(libc::ENOSYS);
        return;
    }
    if birth::newborn() {
        let arguments = [
            libc::REG_RDI,
            libc::REG_RSI,
            libc::REG_RDX,
            libc::REG_R10,
            libc::REG_R8,
            libc::REG_R9,
        ]
        .map(|r| registers[r as usize] as usize);
        count_trapped(nr, registers[libc::REG_RIP as usize] as usize);
        // SAFETY: the arguments and the context of this call.
        let result = unsafe {
            advice::handle(nr, arguments)
                .unwrap_or_else(|| libc_calls::of_newborn(nr, arguments, context.cast()))
        };
        registers[libc::REG_RAX as usize] = value_of(result);
        return;
    }
    // SAFETY: the kernel's own arguments.
    unsafe { frame::leave_signal(signo, info, context) };
}

/// A call has been caught, with `at` behind its instruction: answers whether that is replaced now.
fn count_trapped(nr: i64, at: usize) -> patch::Met {
    header().trapped.note(counter(nr));
    let original = patch::original(at);
    let met = if original == at {
        let site = at - patch::Kind::Syscall.bytes().len();
        let may_be = without_signal(nr);
        patch::trapped(site, patch::Kind::Syscall, counter(nr), may_be, birth::newborn())
    } else {
        patch::Met::Answer(patch::Inside::unknown())
    };
    if matches!(met, patch::Met::Answer(_)) {
        header().net_calls.fetch_add(1, Ordering::Relaxed);
    }
    met
}

/// The server has entered at an instruction. It continues with the registers as they are left here.
pub extern "C" fn met(registers: &mut Registers, vectors: *mut u8) {
    let Some(trap) = registers.trap().copied() else {
        replaced(registers);
        return;
    };
    if trap.signo == libc::SIGSYS {
        caught(registers);
    } else if !instructions::answer(registers, &trap) {
        // SAFETY: `resumed` has saved them there.
        unsafe { signal::fault::fault(registers, &trap, vectors) };
    }
}

/// A system call that was caught.
fn caught(registers: &mut Registers) {
    let (nr, a, at) = (registers.rax as i64, registers.arguments(), registers.rip as usize);
    let inside = match count_trapped(nr, at) {
        patch::Met::Answer(inside) => inside,
        patch::Met::Replaced(stub) => {
            registers.rip = stub as u64;
            return;
        }
    };
    if nr == libc::SYS_clone {
        birth(registers, a, at);
    } else {
        registers.rax = answer_call(nr, a, patch::original(at)) as u64;
    }
    if let Some(behind) = inside.moved() {
        registers.rip = behind as u64;
    }
}

/// Answers a call that was caught on its way to the kernel, behind whose instruction `at` is; `errno` is kept.
fn answer_caught(nr: i64, a: [usize; 6], at: usize) -> i64 {
    // SAFETY: this thread's errno.
    let errno = unsafe { *libc::__errno_location() };
    let outer = kernel().this().trapped_at.replace(at);
    let loaders = files::from_loader(nr, a, at);
    // SAFETY: the arguments of this call.
    let result = loaders.unwrap_or_else(|| unsafe { calls::by_number(nr, a) });
    kernel().this().trapped_at.set(outer);
    // SAFETY: this thread's errno.
    unsafe { *libc::__errno_location() = errno };
    value_of(result)
}

/// Answers a call that makes no thread or process, behind whose instruction `at` is in the server's text.
fn answer_call(nr: i64, a: [usize; 6], at: usize) -> i64 {
    // SAFETY: the arguments of this call.
    if let Some(result) = unsafe { advice::handle(nr, a) } {
        return value_of(result);
    }
    // SAFETY: the arguments of this call.
    if let Some(result) = unsafe { libc_calls::handle(nr, a, glibc::is_in_text(at)) } {
        return value_of(result);
    }
    let value = answer_caught(nr, a, at);
    signal::boundary_of_call(value);
    value
}

/// The birth of a thread or a process: a thread goes on at `go_on`, a process also with a stack of its own.
fn birth(registers: &mut Registers, a: [usize; 6], go_on: usize) {
    // SAFETY: this thread's errno.
    let errno = unsafe { *libc::__errno_location() };
    // SAFETY: the arguments of this call, and behind it.
    let (result, stack) = unsafe { libc_calls::birth(a, go_on) };
    if a[0] as i32 & libc::CLONE_THREAD == 0 {
        trace::returns(value_of(result));
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
    registers.rax = value_of(result) as u64;
    if let Some(stack) = stack {
        registers.rsp = stack as u64;
    }
}

/// A replaced instruction is executed.
fn replaced(registers: &mut Registers) {
    let (kind, behind) = registers.place();
    registers.at = behind as u64;
    match kind {
        patch::Kind::Rdtsc | patch::Kind::Rdtscp => {
            header().patched.note(trapped::RDTSC);
            let now = instructions::time_stamp();
            registers.rax = now & 0xffff_ffff;
            registers.rdx = now >> 32;
            if kind == patch::Kind::Rdtscp {
                registers.rcx = 0;
            }
        }
        patch::Kind::Syscall => {
            let (nr, a) = (registers.rax as i64, registers.arguments());
            // As the processor leaves them.
            registers.rcx = behind as u64;
            registers.r11 = registers.flags;
            if !without_signal(nr) {
                registers.really();
                return;
            }
            header().net_calls.fetch_add(1, Ordering::Relaxed);
            header().patched.note(counter(nr));
            if nr == libc::SYS_clone {
                birth(registers, a, registers.displaced());
            } else {
                registers.rax = answer_call(nr, a, behind) as u64;
            }
        }
    }
}

/// Whether a call is answered alike with a signal's frame and without one: caught calls, except those that no C library makes.
fn without_signal(nr: i64) -> bool {
    let birth = matches!(nr, libc::SYS_clone3 | libc::SYS_fork | libc::SYS_vfork);
    skein_interpose::caught(nr) && !birth
}

/// The counter of a call.
fn counter(nr: i64) -> usize {
    match usize::try_from(nr) {
        Ok(place) if skein_interpose::syscall(nr).is_some() => place,
        _ => trapped::OTHER,
    }
}

/// A result as the kernel returns it.
fn value_of(result: Result<usize>) -> i64 {
    match result {
        Ok(n) => n as i64,
        Err(e) => -i64::from(e.0),
    }
}

/// Where this library is linked to be: as in `build.rs`.
const PLACE: u64 = (stack::PLACE as u64) << stack::PLACE_BITS;

/// The executable segments in question: this library's, the loader's and libc's.
#[derive(Default)]
struct Texts {
    own: (usize, usize),
    loader: (usize, usize),
    libc: (usize, usize),
}

unsafe extern "C" fn note_text(
    object: *mut libc::dl_phdr_info,
    _: usize,
    texts: *mut c_void,
) -> c_int {
    // SAFETY: the loader passes valid pointers for the time of the call.
    let (object, texts) = unsafe { (&*object, &mut *texts.cast::<Texts>()) };
    // SAFETY: as above.
    let headers =
        unsafe { core::slice::from_raw_parts(object.dlpi_phdr, object.dlpi_phnum as usize) };
    let own = met as *const () as usize;
    let libc = original::originals().pthread_create as usize;
    // SAFETY: reads a word of the auxiliary vector.
    let loader = unsafe { libc::getauxval(libc::AT_BASE) } as usize;
    for header in headers {
        if header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_X != 0 {
            let start = object.dlpi_addr as usize + header.p_vaddr as usize;
            let range = (start, start + header.p_memsz as usize);
            if (range.0..range.1).contains(&own) {
                texts.own = range;
            }
            if (range.0..range.1).contains(&libc) {
                texts.libc = range;
            }
            if loader != 0 && object.dlpi_addr as usize == loader {
                texts.loader = range;
            }
        }
    }
    0
}

/// A classic BPF program under construction.
struct Filter {
    code: [libc::sock_filter; MAX_CODE],
    len: usize,
}

// BPF: load a word, jump on comparison, keep bits, return.
const LOAD: u16 = 0x20;
const JUMP_EQ: u16 = 0x15;
const JUMP_GE: u16 = 0x35;
const JUMP_SET: u16 = 0x45;
const JUMP: u16 = 0x05;
const AND: u16 = 0x54;
const RETURN: u16 = 0x06;
// Offsets in `struct seccomp_data`.
const AT_NR: u32 = 0;
const AT_ARCH: u32 = 4;
const AT_IP_LOW: u32 = 8;
const AT_IP_HIGH: u32 = 12;
const AT_ARG_LOW: u32 = 16;
const ARG_BYTES: u32 = 8;
const AUDIT_ARCH_X86_64: u32 = 0xc000_003e;
// The tree, its two returns and what looks at the instruction's address.
const MAX_CODE: usize = filter::MAX_NODES + 96;
/// `si_arch` of a SIGSYS: behind number, errno, code, padding, the instruction's address and the call's number.
const SI_ARCH_WORD: usize = 7;

impl Filter {
    fn push(&mut self, code: u16, k: u32, jt: u8, jf: u8) {
        assert!(self.len < self.code.len(), "the net's filter is too long");
        self.code[self.len] = libc::sock_filter { code, jt, jf, k };
        self.len += 1;
    }

    /// Answers `madvise` that makes guard pages, or takes them away, as a kernel before 6.13 does: libc then protects the pages, and memory is the same whatever kernel
    /// a replica has. The number is loaded, and is so behind.
    fn refuse_guards(&mut self) {
        const MADV_GUARD_INSTALL: u32 = 102;
        const MADV_GUARD_REMOVE: u32 = 103;
        self.push(JUMP_EQ, libc::SYS_madvise as u32, 0, 5);
        self.push(LOAD, AT_ARG_LOW + 2 * ARG_BYTES, 0, 0);
        self.push(JUMP_EQ, MADV_GUARD_INSTALL, 1, 0);
        self.push(JUMP_EQ, MADV_GUARD_REMOVE, 0, 1);
        self.push(RETURN, libc::SECCOMP_RET_ERRNO | libc::EINVAL as u32, 0, 0);
        self.push(LOAD, AT_NR, 0, 0);
    }

    /// Answers `set_robust_list`, as libc does it for each thread, some before there is a handler. The number is loaded, and is so behind.
    fn answer_robust(&mut self) {
        self.push(JUMP_EQ, libc::SYS_set_robust_list as u32, 0, 4);
        self.push(LOAD, AT_ARG_LOW + ARG_BYTES, 0, 0);
        self.push(JUMP_EQ, machine::ROBUST_BYTES as u32, 1, 0);
        self.push(RETURN, libc::SECCOMP_RET_ERRNO | libc::EINVAL as u32, 0, 0);
        self.push(RETURN, libc::SECCOMP_RET_ERRNO, 0, 0);
    }

    /// Catches what a server tells the kernel about its memory ([`advice`]). The number is loaded, and is so behind.
    fn catch_advice(&mut self, texts: &Texts) {
        /// A look at one text.
        const TEXT: usize = 6;
        let begin = self.len;
        // The calls that always count are behind three others; then each look has a load in front of it.
        let looks = 3 + advice::ALWAYS.len() + 1;
        let flags = looks + 1 + advice::ADVICE.len() + 1;
        let size = flags + 4 + advice::MAPPED_AS.len();
        let caught = size + 5;
        let end = caught + 2 * TEXT + 1;
        let to = |target: usize, filter: &Self| (target - (filter.len - begin) - 1) as u8;
        self.push(JUMP_EQ, libc::SYS_mmap as u32, to(flags, self), 0);
        self.push(JUMP_EQ, libc::SYS_madvise as u32, to(looks, self), 0);
        self.push(JUMP_EQ, libc::SYS_mremap as u32, to(size, self), 0);
        for nr in advice::ALWAYS {
            self.push(JUMP_EQ, nr as u32, to(caught, self), 0);
        }
        self.push(JUMP, to(end, self).into(), 0, 0);
        self.push(LOAD, AT_ARG_LOW + 2 * ARG_BYTES, 0, 0);
        for word in advice::ADVICE {
            self.push(JUMP_EQ, word as u32, to(caught, self), 0);
        }
        self.push(JUMP, to(end, self).into(), 0, 0);
        self.push(LOAD, AT_ARG_LOW + 3 * ARG_BYTES, 0, 0);
        self.push(JUMP_SET, advice::MAPPED, to(caught, self), 0);
        self.push(AND, libc::MAP_TYPE as u32, 0, 0);
        for kind in advice::MAPPED_AS {
            self.push(JUMP_EQ, kind, to(caught, self), 0);
        }
        self.push(JUMP, to(end, self).into(), 0, 0);
        // Of no size: what processes share is mapped a second time.
        self.push(LOAD, AT_ARG_LOW + ARG_BYTES, 0, 0);
        self.push(JUMP_EQ, 0, 0, to(end, self));
        self.push(LOAD, AT_ARG_LOW + ARG_BYTES + 4, 0, 0);
        self.push(JUMP_EQ, 0, to(caught, self), 0);
        self.push(JUMP, to(end, self).into(), 0, 0);
        self.allow_from(texts.own);
        // It begins before there is a handler.
        self.allow_from(texts.loader);
        self.push(RETURN, libc::SECCOMP_RET_TRAP, 0, 0);
        assert!(self.len - begin == end, "the way past it is as long as it is");
        self.push(LOAD, AT_NR, 0, 0);
    }

    /// Lets through calls that the table does not catch, unless they name a descriptor of the runtime's; continues behind with the
    /// others. The number is loaded.
    fn decide(&mut self, tree: &Tree) {
        /// Instructions that look at one argument.
        const GUARD: usize = 3;
        let nodes = tree.nodes();
        // Behind the tree: one look for each argument that may be a descriptor, the return for what goes through, then the way on.
        let guards = filter::GUARDED.len() * GUARD;
        let distance = |next: Next, from: usize| {
            let to = match next {
                Next::Node(n) => n as usize,
                Next::Guarded(place) => {
                    let at = filter::GUARDED.iter().position(|guarded| *guarded == place);
                    nodes.len() + GUARD * at.expect("a place that is guarded")
                }
                Next::Through => nodes.len() + guards,
                Next::Caught => nodes.len() + guards + 1,
            };
            u8::try_from(to - from - 1).expect("the tree is short enough")
        };
        for (at, node) in nodes.iter().enumerate() {
            let (right, left) = (distance(node.right, at), distance(node.left, at));
            self.push(JUMP_GE, node.pivot, right, left);
        }
        let (first, last) = io::table::own_range();
        for (at, place) in filter::GUARDED.iter().enumerate() {
            let end = (guards - at * GUARD) as u8;
            self.push(LOAD, AT_ARG_LOW + ARG_BYTES * u32::from(*place), 0, 0);
            self.push(JUMP_GE, first, 0, end - 2);
            self.push(JUMP_GE, last + 1, end - 3, end - 2);
        }
        self.push(RETURN, libc::SECCOMP_RET_ALLOW, 0, 0);
    }

    /// Lets the call through when its instruction lies in `text`; goes on behind otherwise.
    fn allow_from(&mut self, text: (usize, usize)) {
        self.push(LOAD, AT_IP_HIGH, 0, 0);
        self.push(JUMP_EQ, (text.0 >> 32) as u32, 0, 4);
        self.push(LOAD, AT_IP_LOW, 0, 0);
        self.push(JUMP_GE, text.0 as u32, 0, 2);
        self.push(JUMP_GE, text.1 as u32, 1, 0);
        self.push(RETURN, libc::SECCOMP_RET_ALLOW, 0, 0);
    }

    /// Lets libc draw malloc's key, which it does once, before there is a handler, and which is redrawn then ([`glibc::renew_key`]). libc's address in the next
    /// program is not known, except for the place within a page.
    fn allow_draw(&mut self, drawn: loader::Draw) {
        const PAGE: usize = 4096;
        let conditions = [
            (AT_ARG_LOW + ARG_BYTES, size_of::<u64>() as u32),
            (AT_ARG_LOW + 2 * ARG_BYTES, libc::GRND_NONBLOCK),
        ];
        self.push(LOAD, AT_NR, 0, 0);
        self.push(JUMP_EQ, libc::SYS_getrandom as u32, 0, 8);
        for (left, (at, value)) in [6, 4].into_iter().zip(conditions) {
            self.push(LOAD, at, 0, 0);
            self.push(JUMP_EQ, value, 0, left);
        }
        self.push(LOAD, AT_IP_LOW, 0, 0);
        self.push(AND, (PAGE - 1) as u32, 0, 0);
        self.push(JUMP_EQ, (drawn.behind % PAGE) as u32, 0, 1);
        self.push(RETURN, libc::SECCOMP_RET_ALLOW, 0, 0);
    }
}

/// Installs the net. From here on only this library makes the trapped calls.
pub fn install() {
    let texts = prepare();
    loader::make_equal(kernel(), true);
    let drawn = loader::renew_key(kernel(), glibc::text());
    instructions::install();
    spread(&texts, drawn);
}

/// In a program that the server executed: the filter is there already.
pub fn join() {
    prepare();
    loader::make_equal(kernel(), false);
    let _ = instructions::forbid();
}

/// The same in a program that is executed to be restored: what differs comes from the image.
pub fn rejoin() {
    prepare();
    let _ = instructions::forbid();
}

/// Installs the handlers; finds what the filter lets through.
fn prepare() -> Texts {
    LOCAL.met.store(met as *const () as usize, Ordering::Relaxed);
    patch::prepare();
    glibc::hide_cpu_number();
    handle(libc::SIGSYS, on_sigsys);
    handle(libc::SIGSEGV, signal::fault::on_trap);
    signal::fault::install();
    let mut texts = Texts::default();
    // SAFETY: `note_text` is what the loader wants; `texts` outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(note_text), (&raw mut texts).cast()) };
    for (what, text) in
        [("libskein.so", texts.own), ("the loader", texts.loader), ("the C library", texts.libc)]
    {
        if text.0 == 0 || text.0 >> 32 != (text.1 - 1) >> 32 {
            refuse!("the text of {what} was not found where the safety net needs it");
        }
    }
    if texts.own.0 >> 32 != (PLACE >> 32) as usize {
        refuse!("libskein.so was not loaded at {PLACE:#x}: something else is there");
    }
    for (word, text) in [(&LOCAL.libc_text, texts.libc), (&LOCAL.loader_text, texts.loader)] {
        word[0].store(text.0, Ordering::Relaxed);
        word[1].store(text.1, Ordering::Relaxed);
    }
    spin::begin(texts.own);
    texts
}

/// `drawn`: where libc has drawn random bytes before the runtime was there, as it will in each program that the server executes.
fn spread(texts: &Texts, drawn: Option<loader::Draw>) {
    let mut filter =
        Filter { code: [libc::sock_filter { code: 0, jt: 0, jf: 0, k: 0 }; MAX_CODE], len: 0 };
    let trap = libc::SECCOMP_RET_TRAP;
    filter.push(LOAD, AT_ARCH, 0, 0);
    filter.push(JUMP_EQ, AUDIT_ARCH_X86_64, 1, 0);
    filter.push(RETURN, trap, 0, 0);
    filter.push(LOAD, AT_NR, 0, 0);
    filter.refuse_guards();
    filter.answer_robust();
    filter.catch_advice(texts);
    filter.decide(&Tree::new());
    filter.allow_from(texts.own);
    filter.allow_from(texts.loader);
    filter.push(LOAD, AT_NR, 0, 0);
    // libc asks for the limit of the stack, which is the supervisor's, before there is a handler.
    filter.push(JUMP_EQ, libc::SYS_prlimit64 as u32, 0, 3);
    filter.push(LOAD, AT_ARG_LOW + ARG_BYTES, 0, 0);
    filter.push(JUMP_EQ, libc::RLIMIT_STACK, 0, 1);
    filter.push(RETURN, libc::SECCOMP_RET_ALLOW, 0, 0);
    if let Some(drawn) = drawn {
        filter.allow_draw(drawn);
    }
    filter.push(LOAD, AT_NR, 0, 0);
    filter.push(JUMP_EQ, libc::SYS_clone3 as u32, 0, 1);
    filter.push(RETURN, libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32, 0, 0);
    filter.push(RETURN, trap, 0, 0);
    let program = libc::sock_fprog { len: filter.len as u16, filter: filter.code.as_mut_ptr() };
    // SAFETY: a valid program; both calls only restrict this process.
    let result = unsafe {
        sys::call(libc::SYS_prctl, sys::args([libc::PR_SET_NO_NEW_PRIVS as usize, 1, 0, 0, 0]))
            .and_then(|_| {
                sys::call(
                    libc::SYS_seccomp,
                    sys::args([
                        libc::SECCOMP_SET_MODE_FILTER as usize,
                        libc::SECCOMP_FILTER_FLAG_TSYNC as usize,
                        &raw const program as usize,
                    ]),
                )
            })
    };
    match result {
        Ok(0) => {}
        Ok(tid) => {
            refuse!("thread {tid} was created before the runtime: a library's constructor made it")
        }
        Err(e) => refuse!("cannot install the safety net: seccomp: errno {}", e.0),
    }
}
