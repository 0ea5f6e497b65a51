//! One instruction: whether it works elsewhere, its target, and the memory that it names. Anything uncertain is a no.

use super::code::Stretch;
use yaxpeax_x86::long_mode::{InstDecoder, Instruction, Opcode, Operand, RegSpec};

pub fn decode(bytes: &[u8]) -> Option<Instruction> {
    let bytes = &bytes[..bytes.len().min(15)];
    InstDecoder::default().decode_slice(bytes).ok()
}

pub fn len_of(instruction: &Instruction) -> usize {
    use yaxpeax_arch::LengthedInstruction;
    instruction.len().to_const() as usize
}

fn operands(instruction: &Instruction) -> impl Iterator<Item = Operand> + '_ {
    (0..instruction.operand_count()).map(|n| instruction.operand(n))
}

/// The address that an instruction names relative to itself as memory.
fn relative_memory(instruction: &Instruction, end: usize) -> Option<usize> {
    operands(instruction).find_map(|operand| match operand {
        Operand::MemDeref { base } if base == RegSpec::rip() => Some(end),
        Operand::Disp { base, disp } if base == RegSpec::rip() => {
            Some(end.wrapping_add_signed(disp as isize))
        }
        _ => None,
    })
}

/// Where the four bytes of an address relative to the instruction are, if it is one that can be moved with them adjusted: `lea`, or a load or
/// store of a whole register, without an immediate behind.
fn relative_at(bytes: &[u8]) -> Option<usize> {
    let prefix = usize::from(matches!(bytes.first(), Some(0x40..=0x4f)));
    let known = matches!(bytes.get(prefix), Some(0x8d | 0x8b | 0x89))
        && bytes.get(prefix + 1).is_some_and(|modrm| modrm & 0xc7 == 5)
        && bytes.len() == prefix + 6;
    known.then_some(prefix + 2)
}

/// Whether an instruction works elsewhere: it continues behind itself, and names no address relative to itself unless that can be adjusted.
pub fn movable(instruction: &Instruction, bytes: &[u8]) -> bool {
    use Opcode::*;
    let known = matches!(
        instruction.opcode(),
        MOV | MOVZX
            | MOVSX
            | MOVSXD
            | LEA
            | SHL
            | SHR
            | SAR
            | ROL
            | ROR
            | AND
            | OR
            | XOR
            | ADD
            | SUB
            | ADC
            | SBB
            | CMP
            | TEST
            | INC
            | DEC
            | NEG
            | NOT
            | IMUL
            | NOP
            | PUSH
            | POP
            | CDQE
            | CWDE
            | BSWAP
            | MOVAPS
            | MOVAPD
            | MOVUPS
            | MOVUPD
            | MOVDQA
            | MOVDQU
            | MOVQ
            | MOVD
            | PXOR
            | XORPS
    ) || matches!(
        instruction.opcode(),
        CMOVO
            | CMOVNO
            | CMOVB
            | CMOVNB
            | CMOVZ
            | CMOVNZ
            | CMOVA
            | CMOVNA
            | CMOVS
            | CMOVNS
            | CMOVP
            | CMOVNP
            | CMOVL
            | CMOVGE
            | CMOVLE
            | CMOVG
            | SETO
            | SETNO
            | SETB
            | SETAE
            | SETZ
            | SETNZ
            | SETA
            | SETBE
            | SETS
            | SETNS
            | SETP
            | SETNP
            | SETL
            | SETGE
            | SETLE
            | SETG
    );
    known && (relative_memory(instruction, 0).is_none() || relative_at(bytes).is_some())
}

/// The target of a direct jump or call; `end` is the address behind it. Whether it is a call.
pub fn branch(instruction: &Instruction, end: usize) -> Option<(usize, bool)> {
    use Opcode::*;
    let opcode = instruction.opcode();
    let branches =
        matches!(opcode, JMP | CALL | LOOP | LOOPZ | LOOPNZ | JRCXZ | JECXZ | XBEGIN | JMPE)
            || opcode.is_jcc();
    if !branches {
        return None;
    }
    operands(instruction).find_map(|operand| {
        let distance = match operand {
            Operand::ImmediateI8 { imm } => isize::from(imm),
            Operand::ImmediateI16 { imm } => isize::from(imm),
            Operand::ImmediateI32 { imm } => imm as isize,
            _ => return None,
        };
        Some((end.wrapping_add_signed(distance), opcode == CALL))
    })
}

/// An operand that could be the address of a table.
pub fn constants(instruction: &Instruction, end: usize) -> impl Iterator<Item = usize> + '_ {
    let named = |operand| match operand {
        Operand::ImmediateI32 { imm } => Some(imm as usize),
        Operand::ImmediateU32 { imm } => Some(imm as usize),
        Operand::ImmediateI64 { imm } => Some(imm as usize),
        Operand::ImmediateU64 { imm } => Some(imm as usize),
        Operand::MemIndexScaleDisp { disp, .. } => Some(disp as usize),
        Operand::Disp { base, disp } if base != RegSpec::rip() => Some(disp as usize),
        Operand::MemBaseIndexScaleDisp { disp, .. } => Some(disp as usize),
        _ => None,
    };
    operands(instruction).filter_map(named).chain(relative_memory(instruction, end))
}

/// Copies the displaced instructions from `from` to a place at address `to`; an address relative to them is adjusted. `None` when that is out of reach.
pub fn relocate(from: Stretch<'_>, to: usize, out: &mut [u8]) -> Option<()> {
    out.copy_from_slice(from.bytes);
    let mut at = 0;
    while at < from.bytes.len() {
        let instruction = decode(&from.bytes[at..])?;
        let end = at + len_of(&instruction);
        if let Some(target) = relative_memory(&instruction, from.at + end) {
            let place = at + relative_at(&from.bytes[at..end])?;
            let distance = i32::try_from(target as isize - (to + end) as isize).ok()?;
            out[place..place + 4].copy_from_slice(&distance.to_le_bytes());
        }
        at = end;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: usize = 0x40_0000;

    #[test]
    fn relative_addresses_are_adjusted() {
        let lea = [0x48, 0x8d, 0x15, 16, 0, 0, 0, 0x90];
        let mut out = [0; 8];
        assert!(relocate(Stretch { at: AT, bytes: &lea }, AT - 0x100, &mut out).is_some());
        assert_eq!(out, [0x48, 0x8d, 0x15, 16, 1, 0, 0, 0x90]);
        assert!(relocate(Stretch { at: AT, bytes: &lea }, AT + (1 << 33), &mut out).is_none());
    }
}
