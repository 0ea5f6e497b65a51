//! The runtime's own stacks, and how the server's code is called from them.
//!
//! The runtime's work for a call differs between replicas in ways that no server may see: one waits for the log where another does not, a kernel's
//! answer holds another device number, a signal's frame other registers. On the server's stack it would leave bytes that programs copy about with the
//! padding of their structures. So every thread has a stack of the runtime's, in a slot of a region of its own, and a second one for the kernel's signals.
//!
//! - The entries of hooks, stubs and traps ([`crate::entry`]) change to the stack of the running thread, at its [`Level`], and note the server's stack
//!   pointer there. A call from a stack of the runtime (a library's function that the runtime has called calls a hook) stays there.
//! - A handler or a start routine is called on the server's stack by [`call_server`]; its own calls into the runtime begin below the frames of the current call.
//!
//! A slot: a page that faults, the kernel's stack for signals, another page, the stack. Slots are private memory of a process, numbered by it; a
//! forked process goes on with a copy of its parent's.
//!
//! Invariant: [`Local::level`](crate::local::Local::level) is the running thread's. Code that switches contexts saves its own before and restores it afterwards. While libc creates a
//! thread, the entries' part of it is the new one's: its kernel thread may come in beside the turn's holder, which is on its own stack then.

use crate::fatal::refuse;
use crate::local::{LOCAL, MAX_THREADS};
use crate::sys::{self, args};
use core::arch::naked_asm;
use core::sync::atomic::Ordering;

/// Above these bits all addresses of the runtime's memory are [`PLACE`]: the library's (`build.rs`), and that of the stacks.
pub use skein_arena::layout::RUNTIME_BITS as PLACE_BITS;
/// See [`PLACE_BITS`].
pub use skein_arena::layout::RUNTIME_PLACE as PLACE;
/// Where the slots are.
pub use skein_arena::layout::SLOTS_AT;
const SLOT_BYTES: usize = 512 << 10;
const PAGE_BYTES: usize = 4096;
/// The kernel's stack for signals: a frame has all registers of the processor, which can be 11 KiB, and threads that spin are looked at there.
const SIGNALS_BYTES: usize = 124 << 10;
const STACK_BYTES: usize = SLOT_BYTES - SIGNALS_BYTES - 2 * PAGE_BYTES;
const SLOTS: usize = MAX_THREADS as usize;
const _: () = assert!((SLOTS_AT + SLOTS * SLOT_BYTES) >> PLACE_BITS == PLACE);

/// The position of the running thread's next entry, and its nesting.
#[derive(Clone, Copy, Debug)]
pub struct Level {
    /// Where entries begin: eight bytes above a multiple of 16. 0: nowhere yet, they stay on the server's stack.
    entry: usize,
    /// The same without regard to a thread that is being created: the word below is the server's stack pointer.
    own: usize,
    /// The innermost call of the server's code that has not returned: an [`Out`], or 0.
    out: usize,
}

impl Level {
    /// Of a thread that is inside of nothing, whose stack ends at `top`.
    pub const fn bottom(top: usize) -> Self {
        Self { entry: top, own: top, out: 0 }
    }

    /// The running thread's.
    #[inline]
    pub fn current() -> Self {
        Self {
            entry: LOCAL.level.entry.load(Ordering::Relaxed),
            own: LOCAL.level.own.load(Ordering::Relaxed),
            out: LOCAL.level.out.load(Ordering::Relaxed),
        }
    }

    /// The thread that runs from now on has this one.
    #[inline]
    pub fn set(self) {
        LOCAL.level.entry.store(self.entry, Ordering::Relaxed);
        LOCAL.level.own.store(self.own, Ordering::Relaxed);
        LOCAL.level.out.store(self.out, Ordering::Relaxed);
    }
}

/// Whether an address is on a stack of the runtime's.
pub const fn is_own(address: usize) -> bool {
    address >> PLACE_BITS == PLACE
}

/// The server's stack pointer at its entry.
pub fn servers() -> usize {
    // SAFETY: every entry notes it there; zero before the first.
    unsafe { *((LOCAL.level.own.load(Ordering::Relaxed) - 8) as *const usize) }
}

/// Where the next entry of the running thread begins.
pub fn entry_level() -> usize {
    LOCAL.level.entry.load(Ordering::Relaxed)
}

/// The running thread comes in without a call, by the kernel, with the server's stack pointer at `sp`. Answers the stack pointer with which `function`, of this
/// library, begins, as behind a call of it.
///
/// # Safety
/// The thread was in the server's code, or in a library's that the runtime has called.
pub unsafe fn come_in(sp: usize, function: usize) -> usize {
    let top = if is_own(sp) { below(sp) } else { entry_level() };
    // SAFETY: free memory of the thread's own stack.
    unsafe {
        ((top - 8) as *mut usize).write(sp);
        ((top - 16) as *mut usize).write(function);
    }
    top - 16
}

/// The position of an entry from code that is on a stack of the runtime's already.
pub const fn below(sp: usize) -> usize {
    ((sp - RED_ZONE_BYTES) & !15) - 8
}

/// The position of the running thread's entry.
pub fn own_level() -> usize {
    LOCAL.level.own.load(Ordering::Relaxed)
}

/// The word below the running thread's entry: a hook's return address, or a trap's ([`crate::frame::Registers`]).
pub fn below_servers() -> usize {
    // SAFETY: as above.
    unsafe { *((LOCAL.level.own.load(Ordering::Relaxed) - 16) as *const usize) }
}

fn slot_of(top: usize) -> usize {
    (top - SLOTS_AT) / SLOT_BYTES
}

const fn start_of(slot: usize) -> usize {
    SLOTS_AT + slot * SLOT_BYTES
}

fn map(slot: usize) -> bool {
    let (word, bit) = (&LOCAL.stacks_mapped[slot / 64], 1 << (slot % 64));
    if word.load(Ordering::Relaxed) & bit != 0 {
        return true;
    }
    let signals = start_of(slot) + PAGE_BYTES;
    let parts = [(signals, SIGNALS_BYTES), (signals + SIGNALS_BYTES + PAGE_BYTES, STACK_BYTES)];
    for (at, bytes) in parts {
        let flags = libc::MAP_PRIVATE
            | libc::MAP_ANONYMOUS
            | libc::MAP_NORESERVE
            | libc::MAP_FIXED_NOREPLACE;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: new memory where there is none.
        let made = unsafe {
            let given = [at, bytes, protection as usize, flags as usize, usize::MAX, 0];
            sys::call(libc::SYS_mmap, given)
        };
        if made != Ok(at) {
            // SAFETY: the first part, if that was made.
            unsafe { sys::raw(libc::SYS_munmap, args([signals, SIGNALS_BYTES])) };
            return false;
        }
    }
    word.fetch_or(bit, Ordering::Relaxed);
    true
}

/// A stack for a thread: where it ends. `None` when there is no memory.
pub fn alloc() -> Option<usize> {
    let slot = LOCAL.stacks_used.iter().enumerate().find_map(|(n, word)| {
        let free = word.load(Ordering::Relaxed).trailing_ones() as usize;
        (free < 64).then_some(n * 64 + free)
    })?;
    if !map(slot) {
        return None;
    }
    LOCAL.stacks_used[slot / 64].fetch_or(1 << (slot % 64), Ordering::Relaxed);
    Some(start_of(slot) + SLOT_BYTES - 8)
}

/// A thread that had this stack is gone. The main thread's stays: the carrier has its signals there.
pub fn release(top: usize) {
    if top != 0 && top != LOCAL.main_stack.load(Ordering::Relaxed) {
        let slot = slot_of(top);
        LOCAL.stacks_used[slot / 64].fetch_and(!(1 << (slot % 64)), Ordering::Relaxed);
    }
}

/// The main thread's.
pub fn of_main() -> usize {
    LOCAL.main_stack.load(Ordering::Relaxed)
}

/// The kernel's stack for signals in the slot of a stack.
pub fn for_signals(top: usize) -> libc::stack_t {
    let start = start_of(slot_of(top)) + PAGE_BYTES;
    libc::stack_t { ss_sp: start as *mut _, ss_flags: 0, ss_size: SIGNALS_BYTES }
}

/// The running kernel thread is the carrier, and its context has the stack that ends at `top`.
fn carry(top: usize) {
    LOCAL.main_stack.store(top, Ordering::Relaxed);
    take_signals(top);
}

/// The running kernel thread has its signals on the stack for them in the slot of the stack that ends at `top`.
pub fn take_signals(top: usize) {
    let signals = for_signals(top);
    // SAFETY: a live description of memory that is used for nothing else.
    let set = unsafe { sys::call(libc::SYS_sigaltstack, args([&raw const signals as usize, 0])) };
    if let Err(e) = set {
        refuse!("cannot give the kernel a stack for signals: errno {}", e.0);
    }
}

/// A program begins: its main thread has a stack from now on.
pub fn begin() {
    let Some(top) = alloc() else {
        refuse!("there is no memory at {SLOTS_AT:#x}: something else is there");
    };
    carry(top);
    Level::bottom(top).set();
}

/// In a forked process: the stack that ends at `top` is its only thread's.
pub fn forked(top: usize) {
    for word in &LOCAL.stacks_used {
        word.store(0, Ordering::Relaxed);
    }
    let slot = slot_of(top);
    LOCAL.stacks_used[slot / 64].store(1 << (slot % 64), Ordering::Relaxed);
    carry(top);
}

/// Entries are those of a thread that libc is creating, whose stack ends at `top`, while `create` runs.
pub fn while_creating<T>(top: usize, create: impl FnOnce() -> T) -> T {
    let before = LOCAL.level.entry.swap(top, Ordering::Relaxed);
    let result = create();
    LOCAL.level.entry.store(before, Ordering::Relaxed);
    result
}

/// A call of the server's code, or of a library's.
struct Out {
    before: Level,
    /// How many such calls it is inside of, with itself.
    depth: u32,
    /// Where its stack began.
    sp: usize,
    /// Its alternate stack, from and to; nothing otherwise.
    alternate: (usize, usize),
}

/// The place for a call of the server's code. By default none.
#[derive(Clone, Copy, Debug, Default)]
pub struct Place {
    /// The stack pointer: nothing below is in use.
    pub sp: usize,
    /// The alternate stack that it is on, from and to; nothing otherwise.
    pub alternate: (usize, usize),
}

impl Place {
    /// Below the server's own data, and the area that functions may use below their stack pointer.
    pub fn here() -> Self {
        let sp = servers() - RED_ZONE_BYTES;
        let out = LOCAL.level.out.load(Ordering::Relaxed) as *const Out;
        // SAFETY: an `Out` further up on this stack, or none.
        let alternate = unsafe { out.as_ref() }.map_or((0, 0), |out| out.alternate);
        let on = (alternate.0..alternate.1).contains(&sp);
        Self { sp, alternate: if on { alternate } else { (0, 0) } }
    }

    /// The same with so many bytes left free above, at a multiple of 64: where they begin, too.
    pub const fn with_room(self, bytes: usize) -> Self {
        Self { sp: (self.sp - bytes) & !63, ..self }
    }
}

/// The area that a function may use below the stack pointer.
pub const RED_ZONE_BYTES: usize = 128;

/// Calls a function of the server's on its own stack.
///
/// # Safety
/// `function` is the server's, and takes these arguments; nothing below `place` is in use.
pub unsafe fn call_server(function: usize, args: [usize; 3], place: Place) -> usize {
    let before = Level::current();
    let out = Out { before, depth: depth() + 1, sp: place.sp, alternate: place.alternate };
    LOCAL.level.out.store(&raw const out as usize, Ordering::Relaxed);
    // SAFETY: the caller's contract.
    let value = unsafe { call_out(function, args[0], args[1], args[2], place.sp & !15) };
    before.set();
    value
}

/// Runs `call`, which calls a function of a library's. What the library asks of the runtime is inside of what the server has asked.
pub fn in_library<T>(call: impl FnOnce() -> T) -> T {
    let before = Level::current();
    // SAFETY: an `Out` further up on this stack, or none.
    let outer = unsafe { (before.out as *const Out).as_ref() };
    let alternate = outer.map_or((0, 0), |out| out.alternate);
    // The server's code is not called, so nothing jumps past it.
    let out = Out { before, depth: depth() + 1, sp: usize::MAX, alternate };
    let at = &raw const out as usize;
    LOCAL.level.out.store(at, Ordering::Relaxed);
    if before.entry != 0 {
        // Should the thread end in there, what it still does must not overwrite this.
        LOCAL.level.entry.store(below(at), Ordering::Relaxed);
    }
    let result = call();
    before.set();
    result
}

/// The number of calls of the server's code, and of libraries', that the running thread is inside of.
pub fn depth() -> u32 {
    let out = LOCAL.level.out.load(Ordering::Relaxed) as *const Out;
    // SAFETY: an `Out` further up on this stack, or none.
    unsafe { out.as_ref() }.map_or(0, |out| out.depth)
}

/// The server jumps to where its stack pointer was `to`: the calls that it left are forgotten.
pub fn jumped(to: usize) {
    loop {
        let out = LOCAL.level.out.load(Ordering::Relaxed) as *const Out;
        // SAFETY: an `Out` further up on this stack, or none.
        let Some(out) = (unsafe { out.as_ref() }) else { return };
        let (from, end) = out.alternate;
        let stays = if end == 0 { to <= out.sp } else { (from..end).contains(&to) };
        if stays {
            return;
        }
        out.before.set();
    }
}

/// Calls `function(a, b, c)` with the stack pointer at `sp`. Of the runtime's registers it finds none but the one that leads back, which follows from how
/// deep the call is.
#[unsafe(naked)]
unsafe extern "C" fn call_out(function: usize, a: usize, b: usize, c: usize, sp: usize) -> usize {
    naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_adjust_cfa_offset 8",
        "push r12",
        ".cfi_adjust_cfa_offset 8",
        "push r13",
        ".cfi_adjust_cfa_offset 8",
        "push r14",
        ".cfi_adjust_cfa_offset 8",
        "push r15",
        ".cfi_adjust_cfa_offset 8",
        "push rbx",
        ".cfi_adjust_cfa_offset 8",
        "call {settle}",
        "mov rbx, rsp",
        ".cfi_def_cfa_register rbx",
        ".cfi_offset rbp, -16",
        ".cfi_offset r12, -24",
        ".cfi_offset r13, -32",
        ".cfi_offset r14, -40",
        ".cfi_offset r15, -48",
        ".cfi_offset rbx, -56",
        "lea rax, [rsp - 8]",
        "and rax, -16",
        "sub rax, 8",
        "mov [rip + {level}], rax",
        "mov [rip + {level} + 8], rax",
        "mov rax, rdi",
        "mov rdi, rsi",
        "mov rsi, rdx",
        "mov rdx, rcx",
        "mov rsp, r8",
        "xor ecx, ecx",
        "xor ebp, ebp",
        "xor r8d, r8d",
        "xor r9d, r9d",
        "xor r10d, r10d",
        "xor r11d, r11d",
        "xor r12d, r12d",
        "xor r13d, r13d",
        "xor r14d, r14d",
        "xor r15d, r15d",
        "call rax",
        "mov rsp, rbx",
        ".cfi_def_cfa_register rsp",
        "pop rbx",
        ".cfi_adjust_cfa_offset -8",
        "pop r15",
        ".cfi_adjust_cfa_offset -8",
        "pop r14",
        ".cfi_adjust_cfa_offset -8",
        "pop r13",
        ".cfi_adjust_cfa_offset -8",
        "pop r12",
        ".cfi_adjust_cfa_offset -8",
        "pop rbp",
        ".cfi_adjust_cfa_offset -8",
        "ret",
        ".cfi_endproc",
        level = sym LOCAL,
        settle = sym crate::vectors::settle,
    )
}
