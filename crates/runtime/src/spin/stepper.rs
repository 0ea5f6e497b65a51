//! Executes the server's code instruction by instruction and notes the memory that it touches ([`super::machine`], [`super::effect`], [`super::memory`]).

use super::effect::{self, Effect, Implied, Kind, LONGEST, Place, SLOT_BYTES};
use super::machine::{self, RBP, RSP, Registers, Vectors};
use super::memory::{Full, Memory};
use crate::sys::{self, args};
use core::ops::Range;

/// The reason why it stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// It enters the runtime: that is an operation, or will be.
    Runtime,
    /// It comes to an unknown instruction, or to memory that does not exist.
    Unknown,
    /// It touches more memory than can be noted.
    Full,
}

impl From<Full> for Stop {
    fn from(_: Full) -> Self {
        Self::Full
    }
}

/// Instructions of different addresses.
const MOST_INSTRUCTIONS: usize = 4 << 10;
const INDEX: usize = 4 * MOST_INSTRUCTIONS;
/// Pages that are known to be there.
const PAGES: usize = 256;
const PAGE: usize = 4096;

/// Known facts about the code and the memory. All-zero bytes are none.
#[repr(C)]
pub struct Known {
    /// Executable.
    slots: [[u8; SLOT_BYTES]; MOST_INSTRUCTIONS],
    effects: [core::mem::MaybeUninit<(u64, Effect)>; MOST_INSTRUCTIONS],
    index: [u16; INDEX],
    len: usize,
    /// By their numbers, as many as there are: what was asked of each last, and 1 if it may be written.
    readable: [usize; PAGES],
    writable: [usize; PAGES],
}

/// Bytes from its begin that are executable.
pub const SLOTS_BYTES: usize = MOST_INSTRUCTIONS * SLOT_BYTES;

/// A thread, executed here.
pub struct Stepper<'a> {
    pub registers: Registers,
    pub vectors: Option<Vectors>,
    /// Whether an instruction since the last [`Stepper::begin`] used them.
    pub vectors_used: bool,
    pub memory: &'a mut Memory,
    known: &'a mut Known,
    /// Its own memory.
    fs: u64,
    /// The runtime's text.
    runtime: Range<u64>,
    own_pid: usize,
}

impl<'a> Stepper<'a> {
    pub fn new(
        registers: Registers,
        vectors: Option<Vectors>,
        known: &'a mut Known,
        memory: &'a mut Memory,
        runtime: Range<u64>,
    ) -> Self {
        // SAFETY: no arguments.
        let own_pid = unsafe { sys::raw(libc::SYS_getpid, args([])) } as usize;
        let fs = crate::context::fs_base();
        Self { registers, vectors, vectors_used: false, memory, known, fs, runtime, own_pid }
    }

    /// Touched memory is compared with its content of now, from now on.
    pub fn begin(&mut self) {
        self.memory.begin();
        self.vectors_used = false;
    }

    /// Executes one instruction.
    pub fn step(&mut self) -> Result<(), Stop> {
        let (number, effect) = self.instruction()?;
        let rsp = self.registers.general[RSP] as usize;
        for place in effect.places.iter().flatten() {
            let at = place.address(&self.registers.general, self.fs);
            self.touch(at..at.wrapping_add(place.bytes.into()), effect.writes)?;
        }
        match effect.implied {
            Implied::Nothing => {}
            Implied::Push => self.touch(rsp.wrapping_sub(8)..rsp, true)?,
            Implied::Pop => self.touch(rsp..rsp.wrapping_add(8), false)?,
            Implied::Leave => {
                let rbp = self.registers.general[RBP] as usize;
                self.touch(rbp..rbp.wrapping_add(8), false)?;
            }
            Implied::String { .. } => {
                let Registers { general, flags, .. } = &self.registers;
                let [from, to] =
                    effect::strings(effect.implied, general, *flags).ok_or(Stop::Unknown)?;
                self.touch(from, false)?;
                self.touch(to, effect.writes)?;
            }
        }
        self.execute(number, &effect)?;
        self.memory.executed();
        Ok(())
    }

    fn execute(&mut self, number: usize, effect: &Effect) -> Result<(), Stop> {
        let behind = self.registers.rip.wrapping_add(effect.len.into());
        let fs = self.fs;
        let read = |place: Place, general: &[u64; 16]| {
            let at = place.address(general, fs);
            let mut bytes = [0; 8];
            for (n, byte) in bytes.iter_mut().enumerate().take(place.bytes.into()) {
                // SAFETY: it was touched.
                *byte = unsafe { ((at + n) as *const u8).read() };
            }
            u64::from_le_bytes(bytes)
        };
        let rsp = self.registers.general[RSP] as usize;
        let mut call = false;
        let target = match effect.kind {
            Kind::Plain => {
                if effect.vectors {
                    self.vectors_used = true;
                    self.vectors.ok_or(Stop::Unknown)?;
                }
                if let Some(divisor) = effect.divisor {
                    let general = &self.registers.general;
                    let value = match (divisor.register, effect.places[0]) {
                        (Some(register), _) => general[usize::from(register)],
                        (None, Some(place)) => read(place, general),
                        (None, None) => return Err(Stop::Unknown),
                    };
                    if !divisor.fits(general, value) {
                        return Err(Stop::Unknown);
                    }
                }
                let kept = effect.instead.map(|(register, value)| {
                    let place = &mut self.registers.general[usize::from(register)];
                    (usize::from(register), core::mem::replace(place, value))
                });
                let slot = self.known.slots[number].as_ptr() as usize;
                let vectors = self.vectors.filter(|_| effect.vectors);
                // SAFETY: what is in the slot was understood: it goes on behind itself, and the memory that it touches is there.
                unsafe { machine::execute(&mut self.registers, slot, vectors) };
                if let Some((register, value)) = kept {
                    self.registers.general[register] = value;
                }
                behind
            }
            Kind::Jump(to) => to,
            Kind::Branch(condition, to) => {
                if condition.holds(self.registers.flags) {
                    to
                } else {
                    behind
                }
            }
            Kind::Call(to) => {
                call = true;
                to
            }
            Kind::Indirect { register, call: calls } => {
                call = calls;
                match (register, effect.places[0]) {
                    (Some(register), _) => self.registers.general[usize::from(register)],
                    (None, Some(place)) => read(place, &self.registers.general),
                    (None, None) => return Err(Stop::Unknown),
                }
            }
            Kind::Return(more) => {
                self.registers.general[RSP] = (rsp + 8 + usize::from(more)) as u64;
                // SAFETY: it was touched.
                unsafe { (rsp as *const u64).read_unaligned() }
            }
        };
        if call {
            // SAFETY: it was touched, for writing.
            unsafe { ((rsp - 8) as *mut u64).write_unaligned(behind) };
            self.registers.general[RSP] = (rsp - 8) as u64;
        }
        self.registers.rip = target;
        Ok(())
    }

    /// The instruction that is to be executed, and its slot.
    fn instruction(&mut self) -> Result<(usize, Effect), Stop> {
        let at = self.registers.rip;
        if self.runtime.contains(&at) {
            return Err(Stop::Runtime);
        }
        let mut place = at.wrapping_mul(0x9e37_79b9_7f4a_7c15) as usize >> 40 & (INDEX - 1);
        loop {
            let number = self.known.index[place];
            if number == 0 {
                break;
            }
            // SAFETY: numbers in the index are of effects that were written.
            let (found, effect) =
                unsafe { self.known.effects[number as usize - 1].assume_init_ref() };
            if *found == at {
                return Ok((number as usize - 1, *effect));
            }
            place = (place + 1) & (INDEX - 1);
        }
        let number = self.known.len;
        if number == MOST_INSTRUCTIONS {
            return Err(Stop::Full);
        }
        self.check(at as usize, false)?;
        let room = PAGE - at as usize % PAGE;
        let whole = room >= LONGEST || self.check(at as usize + room, false).is_ok();
        let len = if whole { LONGEST } else { room };
        // SAFETY: the pages are there.
        let bytes = unsafe { core::slice::from_raw_parts(at as *const u8, len) };
        let mut code = [0x90; LONGEST];
        let effect = effect::understand(at, bytes, &mut code).ok_or(Stop::Unknown)?;
        let slot = &mut self.known.slots[number];
        let len = usize::from(effect.len);
        slot[..len].copy_from_slice(&code[..len]);
        slot[len..len + 6].copy_from_slice(&[0xff, 0x25, 0, 0, 0, 0]);
        slot[len + 6..len + 14].copy_from_slice(&(machine::back() as u64).to_le_bytes());
        self.known.effects[number].write((at, effect));
        self.known.len += 1;
        self.known.index[place] = number as u16 + 1;
        Ok((number, effect))
    }

    fn touch(&mut self, bytes: Range<usize>, writes: bool) -> Result<(), Stop> {
        if bytes.start == bytes.end {
            return Ok(());
        }
        let last = bytes.end.checked_sub(1).filter(|last| *last >= bytes.start);
        self.check(bytes.start, writes)?;
        self.check(last.ok_or(Stop::Unknown)?, writes)?;
        // SAFETY: two pages at most, which are there; words do not cross pages.
        unsafe { self.memory.touch(bytes)? };
        Ok(())
    }

    /// Whether there is memory at an address: the kernel is asked, because touching missing memory would raise a signal.
    fn check(&mut self, address: usize, writes: bool) -> Result<(), Stop> {
        let page = address / PAGE;
        let place = page % PAGES;
        if self.known.writable[place] == page || !writes && self.known.readable[place] == page {
            return Ok(());
        }
        let mut byte = 0u8;
        let here = skein_libos::abi::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
        let there = skein_libos::abi::iovec { iov_base: address as *mut libc::c_void, iov_len: 1 };
        let ask = |call: i64| {
            let a = [self.own_pid, &raw const here as usize, 1, &raw const there as usize, 1, 0];
            // SAFETY: one byte of this process, from or to a local; what is written is what was read.
            unsafe { sys::call(call, a) == Ok(1) }
        };
        if !ask(libc::SYS_process_vm_readv) {
            return Err(Stop::Unknown);
        }
        if !writes {
            self.known.readable[place] = page;
        } else if ask(libc::SYS_process_vm_writev) {
            self.known.writable[place] = page;
        } else {
            return Err(Stop::Unknown);
        }
        Ok(())
    }
}
