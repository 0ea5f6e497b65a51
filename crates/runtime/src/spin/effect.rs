//! The effect of an instruction: how it is executed elsewhere, the memory that it touches, and the next address.
//!
//! Pure: it looks at given bytes. Anything uncertain is a no: calls of the kernel, instructions that reveal the time or the
//! processor's number, and rare ones. A thread that comes to one of these continues unchanged.

use crate::patch::instruction::{decode, len_of};
use core::ops::Range;
use yaxpeax_x86::long_mode::register_class as class;
use yaxpeax_x86::long_mode::{ConditionCode, Instruction, Opcode, Operand, RegSpec, Segment};

/// Bytes of a slot: an instruction, `jmp [rip]`, and an address.
pub const SLOT_BYTES: usize = 32;
pub const LONGEST: usize = 15;

/// Memory that an operand names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Registers by their numbers; none is [`NONE`].
    base: u8,
    index: u8,
    scale: u8,
    /// Relative to the thread's own memory (`fs`).
    of_thread: bool,
    disp: i64,
    pub bytes: u8,
}

const NONE: u8 = 0xff;

impl Place {
    /// Its address.
    pub fn address(&self, general: &[u64; 16], fs: u64) -> usize {
        let register = |n: u8| if n == NONE { 0 } else { general[n as usize & 15] };
        let index = register(self.index).wrapping_mul(u64::from(self.scale));
        let fs = if self.of_thread { fs } else { 0 };
        let sum = register(self.base).wrapping_add(index).wrapping_add(fs);
        sum.wrapping_add_signed(self.disp) as usize
    }
}

/// Memory that an instruction touches without naming it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Implied {
    Nothing,
    /// Eight bytes below the stack pointer.
    Push,
    /// Eight bytes from the stack pointer on.
    Pop,
    /// Eight bytes from the frame pointer on.
    Leave,
    /// Strings of elements of so many bytes: from where `rsi` and `rdi` point to, as often as `rcx` says.
    String {
        bytes: u8,
        from: bool,
        to: bool,
        repeated: bool,
    },
}

/// The next address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Behind the instruction, which is executed in a slot.
    Plain,
    Jump(u64),
    Branch(Condition, u64),
    Call(u64),
    /// To the address in a register, or in the place that is touched; a call or not.
    Indirect {
        register: Option<u8>,
        call: bool,
    },
    /// To where the stack says; so many bytes more are taken off.
    Return(u16),
}

/// When a branch is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Condition(ConditionCode);

impl Condition {
    /// Whether it holds.
    pub fn holds(self, flags: u64) -> bool {
        let flag = |bit: u32| flags >> bit & 1 != 0;
        let (carry, parity, zero, sign, over) = (flag(0), flag(2), flag(6), flag(7), flag(11));
        match self.0 {
            ConditionCode::O => over,
            ConditionCode::NO => !over,
            ConditionCode::B => carry,
            ConditionCode::AE => !carry,
            ConditionCode::Z => zero,
            ConditionCode::NZ => !zero,
            ConditionCode::A => !carry && !zero,
            ConditionCode::BE => carry || zero,
            ConditionCode::S => sign,
            ConditionCode::NS => !sign,
            ConditionCode::P => parity,
            ConditionCode::NP => !parity,
            ConditionCode::L => sign != over,
            ConditionCode::GE => sign == over,
            ConditionCode::G => !zero && sign == over,
            ConditionCode::LE => zero || sign != over,
        }
    }
}

/// The divisor of an instruction. It would fault for some values, and must not do so in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Divisor {
    /// In a register, or in the first place.
    pub register: Option<u8>,
    bytes: u8,
    signed: bool,
}

impl Divisor {
    fn of(instruction: &Instruction) -> Option<Self> {
        let signed = instruction.opcode() == Opcode::IDIV;
        let (register, bytes) = match instruction.operand(0) {
            Operand::Register { reg } if [class::Q, class::D].contains(&reg.class()) => {
                (Some(reg.num()), reg.width())
            }
            operand if operand.is_memory() => (None, instruction.mem_size()?.bytes_size()?),
            _ => return None,
        };
        matches!(bytes, 4 | 8).then_some(Self { register, bytes, signed })
    }

    /// Whether the quotient of `rdx:rax` by `value` surely fits.
    pub fn fits(self, general: &[u64; 16], value: u64) -> bool {
        let cut = |value: u64| if self.bytes == 4 { value & 0xffff_ffff } else { value };
        let extended = |value: u64| {
            if self.bytes == 4 { i64::from(value as i32) } else { value as i64 }
        };
        let (low, high, value) = (general[0], cut(general[2]), cut(value));
        if !self.signed {
            return high < value;
        }
        let small = high == cut((extended(low) >> 63) as u64);
        small && value != 0 && extended(value) != -1
    }
}

/// An instruction, understood.
#[derive(Clone, Copy, Debug)]
pub struct Effect {
    pub kind: Kind,
    pub len: u8,
    pub places: [Option<Place>; 2],
    /// Whether it writes to the first place.
    pub writes: bool,
    pub implied: Implied,
    /// Whether vector registers are in use.
    pub vectors: bool,
    /// What it divides by.
    pub divisor: Option<Divisor>,
    /// A register that stands for the instruction pointer in the slot, and what it is set to.
    pub instead: Option<(u8, u64)>,
}

/// Understands the instruction that begins at `at`; writes what is to be executed elsewhere to `slot`.
pub fn understand(at: u64, bytes: &[u8], slot: &mut [u8; LONGEST]) -> Option<Effect> {
    let instruction = decode(bytes)?;
    let len = len_of(&instruction);
    let bytes = bytes.get(..len)?;
    let end = at.wrapping_add(len as u64);
    let encoding = Encoding::of(bytes)?;
    let mut effect = Effect {
        kind: Kind::Plain,
        len: len as u8,
        places: [None; 2],
        writes: false,
        implied: Implied::Nothing,
        vectors: false,
        divisor: None,
        instead: None,
    };
    if let Some(kind) = control(&instruction, end) {
        let (kind, implied) = kind?;
        (effect.kind, effect.implied) = (kind, implied);
        if let Kind::Indirect { register: None, .. } = kind {
            effect.places[0] = Some(place(&instruction, 0, end)?);
        }
        return Some(effect);
    }
    effect.vectors = match family(instruction.opcode())? {
        Family::Integer => false,
        Family::Vector => true,
        Family::NoAccess => {
            // `lea` may name the instruction pointer.
            if instruction.opcode() != Opcode::LEA {
                return nothing(effect, slot);
            }
            false
        }
    };
    effect.implied = implied(&instruction, &encoding)?;
    if !(0..instruction.operand_count()).all(|n| register_known(instruction.operand(n))) {
        return None;
    }
    let string = matches!(effect.implied, Implied::String { .. });
    if matches!(instruction.opcode(), Opcode::DIV | Opcode::IDIV) {
        effect.divisor = Some(Divisor::of(&instruction)?);
    }
    let accesses = instruction.opcode() != Opcode::LEA && !string;
    for n in 0..instruction.operand_count() {
        if instruction.operand(n).is_memory() && accesses {
            let found = place(&instruction, n, end)?;
            let free = effect.places.iter_mut().find(|place| place.is_none())?;
            *free = Some(found);
            effect.writes |= n == 0 && !reads_only(instruction.opcode());
        }
    }
    use Opcode::{MOVS, STOS, XADD, XCHG};
    effect.writes |= matches!(instruction.opcode(), XCHG | XADD | MOVS | STOS);
    slot[..len].copy_from_slice(bytes);
    if encoding.relative(bytes) {
        let register = free_register(&instruction)?;
        encoding.replace_base(slot, register)?;
        let disp = i32::from_le_bytes(bytes.get(encoding.modrm? + 1..)?.get(..4)?.try_into().ok()?);
        effect.instead = Some((register, end.wrapping_add_signed(disp.into())));
    }
    Some(effect)
}

/// Segment registers and masks are not.
fn register_known(operand: Operand) -> bool {
    match operand {
        Operand::Register { reg } => {
            [class::Q, class::D, class::W, class::B, class::RB, class::X, class::Y]
                .contains(&reg.class())
        }
        _ => true,
    }
}

/// Instructions that touch nothing and change nothing.
fn nothing(effect: Effect, slot: &mut [u8; LONGEST]) -> Option<Effect> {
    slot[..usize::from(effect.len)].fill(0x90);
    Some(effect)
}

/// The change of the instruction pointer; nothing if it is not known.
fn control(instruction: &Instruction, end: u64) -> Option<Option<(Kind, Implied)>> {
    use Opcode::{CALL, JMP, RETURN};
    let opcode = instruction.opcode();
    let operand = instruction.operand(0);
    let distance = match operand {
        Operand::ImmediateI8 { imm } => Some(i64::from(imm)),
        Operand::ImmediateI32 { imm } => Some(i64::from(imm)),
        _ => None,
    };
    let target = distance.map(|distance| end.wrapping_add_signed(distance));
    if opcode.is_jcc() {
        let condition = opcode.condition().map(Condition);
        return Some(condition.zip(target).map(|(c, t)| (Kind::Branch(c, t), Implied::Nothing)));
    }
    match opcode {
        JMP | CALL => {}
        RETURN => {
            let more = match (instruction.operand_count(), operand) {
                (0, _) => Some(0),
                (_, Operand::ImmediateU16 { imm }) => Some(imm),
                (_, Operand::ImmediateI16 { imm }) => u16::try_from(imm).ok(),
                _ => None,
            };
            return Some(more.map(|more| (Kind::Return(more), Implied::Pop)));
        }
        _ => return None,
    }
    let call = opcode == CALL;
    let implied = if call { Implied::Push } else { Implied::Nothing };
    if let Some(target) = target {
        let kind = if call { Kind::Call(target) } else { Kind::Jump(target) };
        return Some(Some((kind, implied)));
    }
    Some(match operand {
        Operand::Register { reg } if reg.class() == class::Q => {
            Some((Kind::Indirect { register: Some(reg.num()), call }, implied))
        }
        _ if operand.is_memory() => Some((Kind::Indirect { register: None, call }, implied)),
        _ => None,
    })
}

/// The memory that an operand names.
fn place(instruction: &Instruction, n: u8, end: u64) -> Option<Place> {
    let general = |reg: RegSpec| (reg.class() == class::Q).then(|| reg.num());
    let bytes = instruction.mem_size()?.bytes_size()?;
    let of_thread = match instruction.segment_override_for_op(n) {
        Some(Segment::FS) => true,
        Some(Segment::GS) => return None,
        _ => false,
    };
    let (base, index, scale, disp) = match instruction.operand(n) {
        Operand::MemDeref { base } => (Some(base), None, 0, 0),
        Operand::Disp { base, disp } => (Some(base), None, 0, disp.into()),
        Operand::MemIndexScale { index, scale } => (None, Some(index), scale, 0),
        Operand::MemIndexScaleDisp { index, scale, disp } => {
            (None, Some(index), scale, disp.into())
        }
        Operand::MemBaseIndexScale { base, index, scale } => (Some(base), Some(index), scale, 0),
        Operand::MemBaseIndexScaleDisp { base, index, scale, disp } => {
            (Some(base), Some(index), scale, disp.into())
        }
        Operand::AbsoluteU32 { addr } => (None, None, 0, i64::from(addr as i32)),
        _ => return None,
    };
    let relative = base == Some(RegSpec::rip());
    let disp = if relative { (end as i64).wrapping_add(disp) } else { disp };
    let base = match base.filter(|_| !relative) {
        Some(base) => general(base)?,
        None => NONE,
    };
    let index = match index {
        Some(index) => general(index)?,
        None => NONE,
    };
    Some(Place { base, index, scale, of_thread, disp, bytes })
}

fn implied(instruction: &Instruction, encoding: &Encoding) -> Option<Implied> {
    use Opcode::{CMPS, LEAVE, LODS, MOVS, POP, PUSH, SCAS, STOS};
    let string = |from, to| {
        let bytes = match instruction.operand(0) {
            Operand::Register { reg } => reg.width(),
            _ => instruction.mem_size()?.bytes_size()?,
        };
        let repeated = instruction.prefixes.rep_any();
        Some(Implied::String { bytes, from, to, repeated })
    };
    match instruction.opcode() {
        PUSH | POP | LEAVE if encoding.small => None,
        PUSH => Some(Implied::Push),
        POP => Some(Implied::Pop),
        LEAVE => Some(Implied::Leave),
        MOVS | CMPS => string(true, true),
        STOS | SCAS => string(false, true),
        LODS => string(true, false),
        _ => Some(Implied::Nothing),
    }
}

fn reads_only(opcode: Opcode) -> bool {
    use Opcode::{CMP, DIV, IDIV, IMUL, MUL, PUSH, TEST};
    matches!(opcode, CMP | TEST | PUSH | IMUL | MUL | DIV | IDIV)
}

/// A register that the instruction does not use, which its place may be named by without further bytes.
fn free_register(instruction: &Instruction) -> Option<u8> {
    const RBX: u8 = 3;
    const RSI: u8 = 6;
    const RDI: u8 = 7;
    let used = |register: u8| {
        (0..instruction.operand_count()).any(|n| match instruction.operand(n) {
            Operand::Register { reg } => {
                // `bh` is number 7 of its class.
                let number = reg.num() & if reg.class() == class::B { 3 } else { 15 };
                let vector = [class::X, class::Y].contains(&reg.class());
                !vector && (number == register || reg.num() == register)
            }
            _ => false,
        })
    };
    if matches!(instruction.opcode(), Opcode::CMPXCHG8B | Opcode::CMPXCHG16B) {
        return Some(RDI);
    }
    [RDI, RSI, RBX].into_iter().find(|register| !used(*register))
}

/// Where the parts of an instruction's bytes are.
struct Encoding {
    rex: Option<usize>,
    /// Of a three-byte VEX prefix, the first byte behind its begin.
    vex: Option<usize>,
    modrm: Option<usize>,
    /// With operands of 16 bits.
    small: bool,
}

impl Encoding {
    /// Nothing for addresses of 32 bits and for EVEX.
    fn of(bytes: &[u8]) -> Option<Self> {
        let mut encoding = Self { rex: None, vex: None, modrm: None, small: false };
        let mut at = 0;
        loop {
            match bytes.get(at)? {
                0x67 => return None,
                0x66 => encoding.small = true,
                0xf2 | 0xf3 | 0xf0 | 0x2e | 0x36 | 0x3e | 0x26 | 0x64 | 0x65 => {}
                _ => break,
            }
            at += 1;
        }
        match bytes[at] {
            0x62 => return None,
            0xc5 => at += 3,
            0xc4 => {
                encoding.vex = Some(at + 1);
                at += 4;
            }
            first => {
                if first & 0xf0 == 0x40 {
                    encoding.rex = Some(at);
                    at += 1;
                }
                at += match (bytes.get(at)?, bytes.get(at + 1)) {
                    (0x0f, Some(0x38 | 0x3a)) => 3,
                    (0x0f, _) => 2,
                    _ => 1,
                };
            }
        }
        // Where there is one; [`Encoding::relative`] is asked only when an operand is memory.
        encoding.modrm = (at < bytes.len()).then_some(at);
        Some(encoding)
    }

    fn relative(&self, bytes: &[u8]) -> bool {
        let instruction = decode(bytes);
        let named = instruction.is_some_and(|instruction| {
            (0..instruction.operand_count()).any(|n| {
                matches!(instruction.operand(n),
                    Operand::MemDeref { base } | Operand::Disp { base, .. } if base == RegSpec::rip())
            })
        });
        named && self.modrm.is_some_and(|at| bytes[at] & 0xc7 == 5)
    }

    /// Names the place by a register instead, without a distance.
    fn replace_base(&self, slot: &mut [u8; LONGEST], register: u8) -> Option<()> {
        let modrm = self.modrm?;
        slot[modrm] = slot[modrm] & 0x38 | 0x80 | register;
        slot.get_mut(modrm + 1..modrm + 5)?.fill(0);
        if let Some(rex) = self.rex {
            slot[rex] &= !1;
        }
        if let Some(vex) = self.vex {
            // Inverted there.
            slot[vex] |= 0x20;
        }
        Some(())
    }
}

/// What a string touches, as (from, to).
pub fn strings(implied: Implied, general: &[u64; 16], flags: u64) -> Option<[Range<usize>; 2]> {
    const MOST_BYTES: u64 = 2 << 10;
    const BACKWARDS: u64 = 1 << 10;
    let Implied::String { bytes, from, to, repeated } = implied else { return Some([0..0, 0..0]) };
    let count = if repeated { general[1] } else { 1 };
    let len = count.checked_mul(bytes.into())?;
    if len > MOST_BYTES || flags & BACKWARDS != 0 {
        return None;
    }
    let range = |there: bool, at: u64| {
        let at = at as usize;
        if there { at..at.saturating_add(len as usize) } else { 0..0 }
    };
    Some([range(from, general[6]), range(to, general[7])])
}

enum Family {
    Integer,
    Vector,
    /// Whatever it names, it does not touch it.
    NoAccess,
}

#[rustfmt::skip]
fn family(opcode: Opcode) -> Option<Family> {
    use Opcode::*;
    if opcode.is_cmovcc() || opcode.is_setcc() {
        return Some(Family::Integer);
    }
    match opcode {
        MOV | MOVZX | MOVSX | MOVSXD | MOVBE | SHL | SHR | SAR | ROL | ROR | RCL | RCR | SHLD | SHRD | AND | OR | XOR | ADD | SUB | ADC | SBB | CMP | TEST
        | INC | DEC | NEG | NOT | IMUL | MUL | DIV | IDIV | PUSH | POP | LEAVE | CDQE | CWDE | CBW | CWD | CDQ | CQO | BSWAP | XCHG | XADD | CMPXCHG | CMPXCHG8B
        | CMPXCHG16B | LFENCE | MFENCE | SFENCE | BSF | BSR | TZCNT | LZCNT | POPCNT | ANDN | BLSI | BLSR | BLSMSK | BZHI | BEXTR | SHLX | SHRX
        | SARX | RORX | MULX | CMC | CLC | STC | SAHF | LAHF | CLD | MOVS | STOS | LODS | SCAS | CMPS => Some(Family::Integer),
        LEA | NOP | ENDBR64 | PREFETCHNTA | PREFETCH0 | PREFETCH1 | PREFETCH2 | PREFETCHW => Some(Family::NoAccess),
        MOVAPS | MOVAPD | MOVUPS | MOVUPD | MOVDQA | MOVDQU | MOVQ | MOVD | MOVSS | MOVSD | MOVLPS | MOVHPS | MOVLPD | MOVHPD | MOVMSKPS | MOVMSKPD
        | PXOR | POR | PAND | PANDN | XORPS | XORPD | ORPS | ANDPS | ANDPD | ANDNPS | PCMPEQB | PCMPEQW | PCMPEQD | PCMPGTB | PCMPGTD | PMOVMSKB | PMINUB
        | PADDB | PADDW | PADDD | PADDQ | PSUBB | PSUBW | PSUBD | PSUBQ | PSHUFD | PUNPCKLBW | PUNPCKLWD | PUNPCKLDQ | PUNPCKLQDQ | PUNPCKHQDQ
        | PSRLDQ | PSLLDQ | PSRLQ | PSLLQ | PSRLD | PSLLD | SHUFPS | UNPCKLPS | UNPCKLPD | CVTSI2SD | CVTSI2SS | CVTTSD2SI | CVTTSS2SI | CVTSD2SS
        | CVTSS2SD | ADDSD | ADDSS | SUBSD | SUBSS | MULSD | MULSS | DIVSD | DIVSS | SQRTSD | MAXSD | MINSD | COMISD | UCOMISD | COMISS | UCOMISS
        | VZEROUPPER | VMOVDQU | VMOVDQA | VMOVUPS | VMOVAPS | VMOVQ | VMOVD | VPXOR | VPOR | VPAND | VPCMPEQB | VPMOVMSKB | VPTEST | VPMINUB => {
            Some(Family::Vector)
        }
        _ => None,
    }
}
