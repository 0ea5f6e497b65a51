//! Stubs: the targets of the jumps in place of replaced instructions.
//!
//! A stub executes the instructions displaced in front of the replaced one, if any, and calls [`enter`], which saves every register, asks
//! [`super::answer`], restores them as that has left them and continues in the stub. The stub then executes the instructions displaced behind it and
//! jumps back behind those. Where the call must really be made at the server's own stack pointer (a return from a handler, and every other call that the net lets
//! through), it continues at a second entry of the stub, which makes it. A new thread begins at the instructions displaced behind, on its
//! own stack; a new process goes on as its parent does, on another stack if that was asked for.
//!
//! The 128 bytes below the stack pointer, which a function that calls nothing may use, are stepped over first.
//!
//! Stubs lie in areas of their own, each near the text that jumps to it, at addresses that follow from the server's execution: the same on all replicas.
//! They are this process's own memory; a forked process has copies. An area is never writable and executable at once.

use super::code::{JUMP_BYTES, MOST_BEFORE, MOST_BYTES, Room, Stretch};
use super::instruction;
use crate::frame::{Registers, enter};
use crate::sys::{self, args};
use core::cell::Cell;
use core::mem::offset_of;

/// The replaced instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// `syscall`.
    Syscall = 0,
    /// `rdtsc`.
    Rdtsc = 1,
    /// `rdtscp`.
    Rdtscp = 2,
}

impl Kind {
    /// The instruction.
    pub const fn bytes(self) -> &'static [u8] {
        match self {
            Self::Syscall => &[0x0f, 0x05],
            Self::Rdtsc => &[0x0f, 0x31],
            Self::Rdtscp => &[0x0f, 0x01, 0xf9],
        }
    }
}

/// One stub: its code, and its data behind.
#[repr(C, align(128))]
struct Stub {
    /// The instructions displaced in front of the one that was replaced, at the end; the jump leads to the first.
    front: [u8; MOST_BEFORE],
    /// `lea rsp, [rsp - 128]; call [enter]`
    begin: [u8; 5 + 6],
    /// The instructions displaced behind it, and a jump behind them.
    displaced: [u8; MOST_BYTES + JUMP_BYTES],
    /// `syscall; jmp displaced`
    really: [u8; 2 + JUMP_BYTES],
    _pad: [u8; 18],
    enter: usize,
    /// Behind the instruction that was replaced.
    behind: usize,
    kind: Kind,
    /// Bytes displaced in front and behind.
    before: u8,
    len: u8,
    /// As they were.
    original_front: [u8; MOST_BEFORE],
    original: [u8; MOST_BYTES],
}

const STUB_BYTES: usize = 128;
const _: () = assert!(size_of::<Stub>() == STUB_BYTES);
/// Bytes of an area: room for 512 stubs, and an address that the kernel would not give out in between.
const AREA_BYTES: usize = 64 << 10;
/// How far a jump reaches, with room for the stub and for what lies around the place.
const REACH: usize = (1 << 31) - (16 << 20);
/// Between the highest address that the kernel gives out and the stack there is room on Linux, with ASLR off: for libraries.
const ABOVE_LIBRARIES: usize = 0x7fff_f810_0000;
const MOST_AREAS: usize = 64;

/// Addresses in a stub.
pub struct Made {
    /// Where the text jumps to.
    pub entry: usize,
    /// Where the instruction is executed: what is displaced in front of it has been.
    pub begin: usize,
    /// Where execution goes on behind the instruction.
    pub behind: usize,
}

/// The areas, and how many stubs are in each; none of an empty process.
pub struct Areas([(Cell<usize>, Cell<usize>); MOST_AREAS]);

impl Areas {
    pub const fn new() -> Self {
        Self([const { (Cell::new(0), Cell::new(0)) }; MOST_AREAS])
    }

    /// The stub whose code or data `address` lies in.
    fn find(&self, address: usize) -> Option<&Stub> {
        let areas = self.0.iter().take_while(|(at, _)| at.get() != 0);
        let in_one = |(at, used): &&(Cell<usize>, Cell<usize>)| {
            (at.get()..at.get() + used.get() * STUB_BYTES).contains(&address)
        };
        areas.into_iter().find(in_one)?;
        // SAFETY: a stub of an area, which stays as it is from the moment it is counted; aligned by its size.
        Some(unsafe { &*((address & !(STUB_BYTES - 1)) as *const Stub) })
    }

    /// The place in the server's own text that corresponds to a place in a stub: behind the instruction that was replaced, or among those displaced.
    pub fn original(&self, address: usize) -> Option<usize> {
        let stub = self.find(address)?;
        let into = address.wrapping_sub(stub.displaced.as_ptr() as usize);
        if into <= usize::from(stub.len) {
            return Some(stub.behind + into);
        }
        let left = (stub.begin.as_ptr() as usize).wrapping_sub(address);
        if (1..=usize::from(stub.before)).contains(&left) {
            return Some(stub.behind - stub.kind.bytes().len() - left);
        }
        Some(stub.behind)
    }

    /// The place in the stub that executes what is at `original` in the text; `address` is in the stub.
    pub fn moved(&self, address: usize, original: usize) -> usize {
        let Some(stub) = self.find(address) else { return original };
        let (before, site) = (usize::from(stub.before), stub.behind - stub.kind.bytes().len());
        if (stub.behind..stub.behind + usize::from(stub.len)).contains(&original) {
            stub.displaced.as_ptr() as usize + (original - stub.behind)
        } else if (site - before..site).contains(&original) {
            stub.begin.as_ptr() as usize - (site - original)
        } else {
            original
        }
    }

    /// The instructions that a jump to `target` has displaced: in front of the one that was replaced, and behind it.
    pub fn displaced(&self, target: usize) -> Option<[Stretch<'_>; 2]> {
        let stub = self.find(target)?;
        let (before, site) = (usize::from(stub.before), stub.behind - stub.kind.bytes().len());
        Some([
            Stretch { at: site - before, bytes: &stub.original_front[..before] },
            Stretch { at: stub.behind, bytes: &stub.original[..stub.len.into()] },
        ])
    }

    /// Makes a stub for the instruction at `site`, around which there is `room` for a jump. `start` is where the object begins.
    pub fn make(&self, site: usize, kind: Kind, room: Room, start: usize) -> Option<Made> {
        let behind = site + kind.bytes().len();
        let (area, used) = self.near(site, start)?;
        let at = area.get() + used.get() * STUB_BYTES;
        let Room { before, from } = room;
        let len = from - kind.bytes().len();
        let text = |at: usize, len: usize| {
            // SAFETY: bytes of the server's text, which the caller has read.
            Stretch { at, bytes: unsafe { core::slice::from_raw_parts(at as *const u8, len) } }
        };
        let (front, displaced) = (text(site - before, before), text(behind, len));
        let mut stub = Stub {
            front: [0xcc; _],
            begin: [0x48, 0x8d, 0x64, 0x24, 0x80, 0xff, 0x15, 0, 0, 0, 0],
            displaced: [0xcc; _],
            really: [0x0f, 0x05, 0xe9, 0, 0, 0, 0],
            _pad: [0xcc; _],
            enter: enter as *const () as usize,
            behind,
            kind,
            before: before as u8,
            len: len as u8,
            original_front: [0xcc; _],
            original: [0xcc; _],
        };
        stub.original_front[..before].copy_from_slice(front.bytes);
        stub.original[..len].copy_from_slice(displaced.bytes);
        let entry = at + MOST_BEFORE - before;
        instruction::relocate(front, entry, &mut stub.front[MOST_BEFORE - before..])?;
        let code = at + offset_of!(Stub, displaced);
        instruction::relocate(displaced, code, &mut stub.displaced[..len])?;
        let jump = jump(code + len, behind + len)?;
        stub.displaced[len..len + JUMP_BYTES].copy_from_slice(&jump);
        let call = offset_of!(Stub, enter) - offset_of!(Stub, displaced);
        stub.begin[7..].copy_from_slice(&(call as u32).to_le_bytes());
        let last = at + offset_of!(Stub, really) + 2;
        stub.really[2..].copy_from_slice(&self::jump(last, code)?);
        // SAFETY: `Stub` is bytes and numbers, without gaps that matter.
        let bytes = unsafe {
            core::slice::from_raw_parts((&raw const stub).cast::<u8>(), size_of::<Stub>())
        };
        // SAFETY: an unused stub of an area.
        unsafe { write(at, bytes)? };
        used.set(used.get() + 1);
        Some(Made { entry, begin: entry + before, behind: code })
    }

    /// An area with room that a jump from `site` reaches, made where there is none.
    fn near(&self, site: usize, start: usize) -> Option<&(Cell<usize>, Cell<usize>)> {
        let reached = |at: usize| at.abs_diff(site) < REACH;
        for (n, area) in self.0.iter().enumerate() {
            let (at, used) = area;
            if at.get() == 0 {
                // Below the object, where the kernel gives addresses out only when nothing is left above; a MiB of distance from whatever is there.
                let step = 1 << 20;
                let below = (1..REACH / step)
                    .map_while(|k| (start & !(step - 1)).checked_sub(k * step))
                    .take_while(|at| *at > 0);
                let above = ABOVE_LIBRARIES + n * AREA_BYTES;
                let candidates = core::iter::once(above).chain(below);
                let made = candidates.filter(|at| reached(*at)).find(|at| map(*at))?;
                at.set(made);
                used.set(0);
                return Some(area);
            }
            if reached(at.get()) && (used.get() + 1) * STUB_BYTES <= AREA_BYTES {
                return Some(area);
            }
        }
        None
    }
}

/// `jmp` from `at` to `to`.
pub fn jump(at: usize, to: usize) -> Option<[u8; JUMP_BYTES]> {
    let distance = to.wrapping_sub(at + JUMP_BYTES) as isize;
    let [a, b, c, d] = i32::try_from(distance).ok()?.to_le_bytes();
    Some([0xe9, a, b, c, d])
}

const CODE: i32 = libc::PROT_READ | libc::PROT_EXEC;

fn map(at: usize) -> bool {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: a new mapping where there is none.
    let made = unsafe {
        sys::call(libc::SYS_mmap, [at, AREA_BYTES, CODE as usize, flags as usize, usize::MAX, 0])
    };
    made == Ok(at)
}

/// Writes into code, whose pages are not executable meanwhile.
///
/// # Safety
/// `at` is private memory that may be read and executed; no kernel thread executes in its pages just now.
pub unsafe fn write(at: usize, bytes: &[u8]) -> Option<()> {
    const PAGE: usize = 4096;
    let start = at & !(PAGE - 1);
    let len = (at + bytes.len()).next_multiple_of(PAGE) - start;
    let protect = |protection: i32| {
        // SAFETY: the caller's contract.
        unsafe { sys::call(libc::SYS_mprotect, args([start, len, protection as usize])) }
    };
    protect(libc::PROT_READ | libc::PROT_WRITE).ok()?;
    for (n, byte) in bytes.iter().enumerate() {
        // SAFETY: as above. One by one: copying is libc's, whose text this may be.
        unsafe { ((at + n) as *mut u8).write_volatile(*byte) };
    }
    if protect(CODE).is_err() {
        crate::fatal::refuse!("code at {start:#x} cannot be made executable again");
    }
    Some(())
}

// Of the server where it has come in behind a stub's call of `enter`.
impl Registers {
    /// What was replaced, and the address behind it.
    pub fn place(&self) -> (Kind, usize) {
        let stub = (self.displaced() - offset_of!(Stub, displaced)) as *const Stub;
        // SAFETY: `enter` was called by a stub.
        unsafe { ((*stub).kind, (*stub).behind) }
    }

    /// Where in the stub it goes on behind the instruction.
    pub fn displaced(&self) -> usize {
        self.cause as usize
    }

    /// Lets the stub make the call itself.
    pub fn really(&mut self) {
        self.rip += (offset_of!(Stub, really) - offset_of!(Stub, displaced)) as u64;
    }
}
