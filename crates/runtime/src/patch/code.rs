//! Reads machine code: which instructions a jump to a stub displaces, and whether any jump leads in among them.
//!
//! Pure: it looks at given bytes. Any unknown instruction is a no, and a no leaves the instruction as it is: trapping, and right.

use super::instruction::{branch, constants, decode, len_of, movable};
use core::ops::Range;
use yaxpeax_x86::long_mode::{Instruction, Opcode};

/// Bytes of the jump that takes the place of the instruction.
pub const JUMP_BYTES: usize = 5;
/// The longest run of bytes that a jump can displace: an instruction that begins at its last byte has at most fifteen.
pub const MOST_BYTES: usize = JUMP_BYTES - 1 + 15;
/// The longest run of bytes in front of the instruction that a jump can displace.
pub const MOST_BEFORE: usize = 12;
/// Parts of other functions that are looked at for one place.
const MOST_PARTS: usize = 64;
/// Entries of a jump table.
const MOST_ENTRIES: usize = 4096;

/// A stretch of memory and its address.
#[derive(Clone, Copy, Debug)]
pub struct Stretch<'a> {
    pub at: usize,
    pub bytes: &'a [u8],
}

impl Stretch<'_> {
    fn from(&self, address: usize) -> Option<&[u8]> {
        self.bytes.get(address.checked_sub(self.at)?..).filter(|rest| !rest.is_empty())
    }

    /// Whether an address lies in it.
    pub fn contains(&self, address: usize) -> bool {
        (self.at..self.at + self.bytes.len()).contains(&address)
    }
}

/// The bytes that a jump to a stub takes the place of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// In front of the instruction.
    pub before: usize,
    /// From the instruction on.
    pub from: usize,
}

/// The code around a place that is to be replaced.
pub struct Code<'a> {
    /// The executable segment.
    pub text: Stretch<'a>,
    /// Other readable parts of the program: jump tables are there.
    pub data: [Stretch<'a>; 4],
    /// From the start of the function that contains an address to the next function's.
    pub function: &'a dyn Fn(usize) -> Option<Range<usize>>,
    /// The instructions that an earlier jump to this address has displaced, in front of what it replaced and behind, and where they were.
    pub displaced: &'a dyn Fn(usize) -> Option<[Stretch<'a>; 2]>,
}

impl Code<'_> {
    /// Which bytes a jump to a stub takes the place of when it is to replace the instruction of `len` bytes at `site`. `None` when it cannot:
    /// something around the instruction cannot be moved, or could be jumped to.
    pub fn room(&self, site: usize, len: usize) -> Option<Room> {
        let room = self.displaces(site, len)?;
        let inner = site - room.before + 1..site + room.from;
        let function = (self.function)(site)?;
        let mut look = Look { code: self, inner, site, function: function.clone(), met: false };
        let mut parts = [0usize; MOST_PARTS];
        let mut count = 0;
        // Parts of the same function elsewhere ("cold" ones) are known by jumps from one to the other.
        let mut add = |at: usize| -> Option<()> {
            if function.contains(&at) || !self.text.contains(at) {
                return Some(());
            }
            let part = (self.function)(at)?;
            if !parts[..count].contains(&part.start) {
                *parts.get_mut(count)? = part.start;
                count += 1;
            }
            Some(())
        };
        look.walk(function.clone(), &mut add)?;
        if !look.met {
            return None;
        }
        self.jumps_from_near(&mut look)?;
        self.jumps_from_afar(&look.inner, &function, &mut add)?;
        for part in parts.iter().take(count) {
            look.walk((self.function)(*part)?, &mut |_| Some(()))?;
        }
        Some(room)
    }

    /// Whether an instruction begins at `site`, when its function is read from its begin.
    pub fn is_instruction(&self, site: usize) -> Option<bool> {
        let mut at = (self.function)(site)?.start;
        while at < site {
            at += len_of(&decode(self.text.from(at)?)?);
        }
        Some(at == site)
    }

    /// The instructions around `site` that can be moved to make room for a jump: those behind, or where these cannot, those in front.
    pub fn displaces(&self, site: usize, len: usize) -> Option<Room> {
        self.displaces_behind(site, len).or_else(|| self.displaces_before(site, len))
    }

    fn displaces_behind(&self, site: usize, len: usize) -> Option<Room> {
        let mut from = len;
        while from < JUMP_BYTES {
            let bytes = self.text.from(site + from)?;
            let instruction = decode(bytes)?;
            let len = len_of(&instruction);
            if !movable(&instruction, &bytes[..len]) {
                return None;
            }
            from += len;
        }
        Some(Room { before: 0, from })
    }

    fn displaces_before(&self, site: usize, len: usize) -> Option<Room> {
        // Where the last instructions in front of it begin, the nearest first. What moves the stack pointer would leave too little room below it.
        const MOST: usize = 3;
        let mut begins = [None; MOST];
        let function = (self.function)(site)?;
        let mut at = function.start;
        while at < site {
            let bytes = self.text.from(at)?;
            let instruction = decode(bytes)?;
            let end = at + len_of(&instruction);
            let fits = movable(&instruction, &bytes[..end - at])
                && !matches!(instruction.opcode(), Opcode::PUSH | Opcode::POP);
            begins = [fits.then_some(at), begins[0], begins[1]];
            at = end;
        }
        if at != site {
            return None;
        }
        for begin in begins {
            let before = site - begin?;
            if before + len >= JUMP_BYTES {
                return (before <= MOST_BEFORE).then_some(Room { before, from: len });
            }
        }
        None
    }

    /// Looks at all bytes of the text as if each began a jump: none may lead in among those of `inner`. Those that lead into `function` are added.
    fn jumps_from_afar(
        &self,
        inner: &Range<usize>,
        function: &Range<usize>,
        add: &mut dyn FnMut(usize) -> Option<()>,
    ) -> Option<()> {
        let text = self.text;
        let mut fine = true;
        distances_into(text, function, &mut |offset, target| {
            let before = |n: usize| offset.checked_sub(n).map_or(0, |at| text.bytes[at]);
            let opcode = before(1);
            let jumps = matches!(opcode, 0xe8 | 0xe9)
                || (before(2) == 0x0f && opcode & 0xf0 == 0x80)
                || (before(2) == 0xc7 && opcode == 0xf8);
            let at = text.at + offset;
            // The function's own are seen by reading it.
            if jumps && !function.contains(&at) {
                fine &= !inner.contains(&target) && (opcode == 0xe8 || add(at).is_some());
            }
        });
        fine.then_some(())
    }

    /// Looks at the functions in front of and behind this one: as far as short jumps reach.
    fn jumps_from_near(&self, look: &mut Look<'_, '_>) -> Option<()> {
        const SHORT: usize = 128 + 2;
        let text = self.text.at..self.text.at + self.text.bytes.len();
        let mut at = look.inner.start.saturating_sub(SHORT).max(text.start);
        while at < (look.inner.end + SHORT).min(text.end) {
            let Some(part) = (self.function)(at) else {
                // In front of the first function.
                at += 1;
                continue;
            };
            if part != look.function {
                look.walk(part.clone(), &mut |_| Some(()))?;
            }
            at = part.end;
        }
        Some(())
    }

    /// Whether a table of addresses or of distances at `at` leads in among the bytes of `inner`.
    fn table_leads_into(&self, at: usize, inner: &Range<usize>) -> bool {
        let Some(bytes) = self.data.iter().find_map(|data| data.from(at)) else { return false };
        let targets = bytes
            .chunks_exact(4)
            .map(|entry| i32::from_le_bytes(entry.try_into().expect("four bytes")))
            .map(|distance| at.wrapping_add_signed(distance as isize));
        let addresses = bytes
            .chunks_exact(8)
            .map(|entry| usize::from_le_bytes(entry.try_into().expect("eight bytes")));
        let inside = |target: &usize| self.text.contains(*target);
        targets.take(MOST_ENTRIES).take_while(inside).any(|target| inner.contains(&target))
            || addresses.take(MOST_ENTRIES).take_while(inside).any(|at| inner.contains(&at))
    }
}

/// Reads functions for jumps into bytes that are to be displaced.
struct Look<'a, 'b> {
    code: &'a Code<'b>,
    inner: Range<usize>,
    /// Where the instruction is.
    site: usize,
    /// The function that these bytes are in.
    function: Range<usize>,
    /// Whether an instruction begins there.
    met: bool,
}

impl Look<'_, '_> {
    /// Reads a function, one instruction after the other.
    fn walk(&mut self, part: Range<usize>, add: &mut dyn FnMut(usize) -> Option<()>) -> Option<()> {
        let mut at = part.start;
        while at < part.end {
            let instruction = decode(self.code.text.from(at)?)?;
            if at == self.site {
                self.met = true;
            }
            let end = at + len_of(&instruction);
            self.look_at(&instruction, end, add)?;
            at = end;
        }
        Some(())
    }

    fn look_at(
        &self,
        instruction: &Instruction,
        end: usize,
        add: &mut dyn FnMut(usize) -> Option<()>,
    ) -> Option<()> {
        if let Some((target, call)) = branch(instruction, end) {
            if self.inner.contains(&target) {
                return None;
            }
            if let Some(stretches) = (self.code.displaced)(target) {
                for moved in stretches {
                    let mut at = 0;
                    while at < moved.bytes.len() {
                        let instruction = decode(&moved.bytes[at..])?;
                        at += len_of(&instruction);
                        self.look_at(&instruction, moved.at + at, &mut |_| Some(()))?;
                    }
                }
            } else if !call {
                add(target)?;
            }
            return Some(());
        }
        for constant in constants(instruction, end) {
            // A label whose address is taken could be what addresses are computed from.
            if constant != self.function.start && self.function.contains(&constant) {
                return None;
            }
            if self.code.table_leads_into(constant, &self.inner) {
                return None;
            }
        }
        Some(())
    }
}

/// Tells of every four bytes of `text` that, as the end of an instruction that jumps, lead into `range` behind its first byte: their offset and
/// where they lead.
fn distances_into(text: Stretch<'_>, range: &Range<usize>, found: &mut dyn FnMut(usize, usize)) {
    use core::arch::x86_64::*;
    let (low, len) = (range.start + 1, range.len().saturating_sub(1));
    let mut exact = |offset: usize| {
        let distance = &text.bytes[offset..offset + 4];
        let distance = i32::from_le_bytes(distance.try_into().expect("four bytes"));
        let target = (text.at + offset + 4).wrapping_add_signed(distance as isize);
        if (low..low + len).contains(&target) {
            found(offset, target);
        }
    };
    // distance + offset - (low - at - 4), as numbers of 32 bits, is below `len` for a hit; so for few others that are looked at again.
    let bias = (low.wrapping_sub(text.at).wrapping_sub(4)) as i32;
    let mut offset = 0;
    // SAFETY: SSE2 is in every x86-64; loads are within the text, 19 bytes from `offset` on.
    unsafe {
        let lanes = |n: i32| _mm_set_epi32(n + 12, n + 8, n + 4, n);
        let least = _mm_set1_epi32(i32::MIN);
        let limit = _mm_xor_si128(_mm_set1_epi32(len as i32), least);
        while offset + 20 <= text.bytes.len() {
            let base = (offset as i32).wrapping_sub(bias);
            let mut hits = _mm_setzero_si128();
            for shift in 0..4 {
                let at = text.bytes.as_ptr().add(offset + shift);
                let there = _mm_loadu_si128(at.cast());
                let places = _mm_add_epi32(lanes(shift as i32), _mm_set1_epi32(base));
                let sum = _mm_xor_si128(_mm_add_epi32(there, places), least);
                hits = _mm_or_si128(hits, _mm_cmplt_epi32(sum, limit));
            }
            if _mm_movemask_epi8(hits) != 0 {
                for n in 0..16 {
                    exact(offset + n);
                }
            }
            offset += 16;
        }
    }
    while offset + 4 <= text.bytes.len() {
        exact(offset);
        offset += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: usize = 0x40_0000;
    const TABLE: usize = 0x50_0000;

    /// The result of [`Code::room`] for the first `rdtsc` in `text`, of which the first `function` bytes are its function and the rest another one.
    fn room(text: &[u8], function: usize, table: &[u8]) -> Option<usize> {
        let room = both(text, function, table)?;
        assert_eq!(room.before, 0);
        Some(room.from)
    }

    fn both(text: &[u8], function: usize, table: &[u8]) -> Option<Room> {
        let empty = Stretch { at: 0, bytes: &[] };
        let site = text.windows(2).position(|two| two == [0x0f, 0x31]).expect("an rdtsc");
        let of = move |at: usize| {
            let offset = at.checked_sub(AT)?;
            let split = if offset < function { 0..function } else { function..text.len() };
            Some(AT + split.start..AT + split.end)
        };
        let code = Code {
            text: Stretch { at: AT, bytes: text },
            data: [Stretch { at: TABLE, bytes: table }, empty, empty, empty],
            function: &of,
            displaced: &|_| None,
        };
        code.room(AT + site, 2)
    }

    // rdtsc; shl rdx, 32; or rax, rdx; ret
    const READ: [u8; 10] = [0x0f, 0x31, 0x48, 0xc1, 0xe2, 0x20, 0x48, 0x09, 0xd0, 0xc3];

    #[test]
    fn whole_instructions_are_displaced() {
        assert_eq!(room(&READ, 10, &[]), Some(6));
        // mov rsi, rax
        assert_eq!(room(&[0x0f, 0x31, 0x48, 0x89, 0xc6, 0xc3], 6, &[]), Some(5));
        // lea rdx, [rip + 16]
        assert_eq!(room(&[0x0f, 0x31, 0x48, 0x8d, 0x15, 16, 0, 0, 0, 0xc3], 10, &[]), Some(9));
    }

    #[test]
    fn what_cannot_be_moved_stays() {
        // ret; call; a jump; another rdtsc; movl $1, [rip]; the end of the text; no instruction.
        for behind in [
            &[0xc3, 0x90, 0x90, 0x90][..],
            &[0xe8, 0, 0, 0, 0, 0xc3],
            &[0xeb, 0, 0x90, 0x90, 0x90],
            &[0x0f, 0x31, 0x90, 0x90, 0x90],
            &[0xc7, 0x05, 0, 0, 0, 0, 1, 0, 0, 0, 0xc3],
            &[0x90],
            &[0x06, 0x90, 0x90, 0x90],
        ] {
            let text = [&[0x0f, 0x31], behind].concat();
            assert_eq!(room(&text, text.len(), &[]), None, "{behind:x?}");
        }
    }

    #[test]
    fn what_is_jumped_to_stays() {
        // je to the instruction behind the rdtsc, by one byte and by four.
        let short = [&[0x74, 2][..], &READ].concat();
        assert_eq!(room(&short, short.len(), &[]), None);
        let near = [&[0x0f, 0x84, 2, 0, 0, 0][..], &READ].concat();
        assert_eq!(room(&near, near.len(), &[]), None);
        // To the rdtsc itself, or behind what is displaced: nothing in the way.
        for distance in [0, 6] {
            let fine = [&[0x74, distance][..], &READ].concat();
            assert_eq!(room(&fine, fine.len(), &[]), Some(6));
        }
        // From another function, far behind.
        for (distance, found) in [(-205i32, Some(6)), (-203, None), (-200, None), (-199, Some(6))] {
            let mut text = [&READ[..], &[0x90; 190], &[0xe9]].concat();
            text.extend((distance).to_le_bytes());
            assert_eq!(room(&text, 200, &[]), found, "{distance}");
        }
        // And from one just in front, by a short jump.
        let mut text = vec![0xeb, 4, 0x90, 0x90];
        text.extend(READ);
        let site = AT + 4;
        let bytes = &text[..];
        let of = |at: usize| Some(if at < site { AT..site } else { site..AT + bytes.len() });
        let empty = Stretch { at: 0, bytes: &[] };
        let code = Code {
            text: Stretch { at: AT, bytes },
            data: [empty; 4],
            function: &of,
            displaced: &|_| None,
        };
        assert_eq!(code.room(site, 2), None);
    }

    #[test]
    fn what_is_in_front_is_displaced_where_what_is_behind_cannot_be() {
        let text =
            |front: &[u8]| [&[0x90; 3], front, &[0x0f, 0x31, 0xc3, 0x90, 0x90, 0x90]].concat();
        let found = |front: &[u8]| both(&text(front), front.len() + 9, &[]).map(|room| room.before);
        // mov eax, 1; mov edi, eax twice; xor eax, eax behind it.
        assert_eq!(found(&[0xb8, 1, 0, 0, 0]), Some(5));
        assert_eq!(found(&[0x89, 0xc7, 0x89, 0xc7]), Some(4));
        assert_eq!(found(&[0xb8, 1, 0, 0, 0, 0x31, 0xc0]), Some(7));
        // A call; push rax twice; a jump to the instruction itself; movl $1, [rip].
        for stays in [
            &[0xe8, 0, 0, 0, 0][..],
            &[0x50, 0x50, 0x50],
            &[0x74, 5, 0xb8, 1, 0, 0, 0],
            &[0xc7, 0x05, 0, 0, 0, 0, 1, 0, 0, 0],
        ] {
            assert_eq!(found(stays), None, "{stays:x?}");
        }
        // A jump to what is displaced first.
        assert_eq!(found(&[0x74, 0, 0xb8, 1, 0, 0, 0]), Some(5));
    }

    #[test]
    fn what_a_table_leads_to_stays() {
        // lea rcx, [rip + TABLE]; then the rdtsc at offset 7.
        let mut text = vec![0x48, 0x8d, 0x0d];
        text.extend(((TABLE - AT - 7) as u32).to_le_bytes());
        text.extend(READ);
        let len = text.len();
        let distances = |offsets: &[usize]| -> Vec<u8> {
            let entry = |o: &usize| ((AT + o) as i32 - TABLE as i32).to_le_bytes();
            offsets.iter().flat_map(entry).collect()
        };
        assert_eq!(room(&text, len, &distances(&[0, 7, 13])), Some(6));
        assert_eq!(room(&text, len, &distances(&[0, 9, 13])), None);
        let addresses: Vec<u8> =
            [AT, AT + 9].iter().flat_map(|at| (*at as u64).to_le_bytes()).collect();
        assert_eq!(room(&text, len, &addresses), None);
        // A label whose address is taken: lea rcx, [rip + 2].
        let label = [&[0x48, 0x8d, 0x0d, 2, 0, 0, 0][..], &READ].concat();
        assert_eq!(room(&label, label.len(), &[]), None);
    }

    #[test]
    fn bytes_that_are_no_instruction_are_not_replaced() {
        // mov eax, 0x31_0f_00_00: the rdtsc is part of a number.
        let text = [&[0xb8, 0, 0][..], &READ].concat();
        assert_eq!(room(&text, text.len(), &[]), None);
    }

    #[test]
    fn distances_are_found_wherever_they_are() {
        for offset in 0..70 {
            let mut text = vec![0x90u8; 90];
            let target = AT + 1;
            let distance = target as i32 - (AT + offset + 4) as i32;
            text[offset..offset + 4].copy_from_slice(&distance.to_le_bytes());
            let mut found = Vec::new();
            let stretch = Stretch { at: AT, bytes: &text };
            distances_into(stretch, &(AT..AT + 2), &mut |o, t| found.push((o, t)));
            assert_eq!(found, [(offset, target)]);
        }
    }
}
