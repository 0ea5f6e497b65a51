//! The memory that a cycle of instructions touches: its content at the begin, and now.
//!
//! Kept in words of eight bytes. Every word is noted before it is read or written, so the first noted value of a word is its content at
//! the begin.

use core::ops::Range;

/// Words of one cycle.
pub const MOST_WORDS: usize = 8 << 10;
const INDEX: usize = 4 * MOST_WORDS;
/// Words that one instruction touches: those of a string of 4 KiB.
pub const MOST_AT_ONCE: usize = 600;

/// A word that was touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word {
    pub address: usize,
    /// At the beginning.
    first: u64,
    /// After the last instruction.
    pub now: u64,
}

/// All of them. All-zero bytes are none.
pub struct Memory {
    index: [u16; INDEX],
    words: [Word; MOST_WORDS],
    len: usize,
    touched: [u16; MOST_AT_ONCE],
    touched_len: usize,
    /// The number of words that have changed since the begin.
    differing: usize,
    /// Of all words' addresses and values, in no order.
    digest: u64,
}

/// No room is left for a cycle's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

fn mix(address: usize, value: u64) -> u64 {
    // The finishing steps of MurmurHash3.
    let mut x = value ^ (address as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ x >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    x = (x ^ x >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    x ^ x >> 33
}

fn read(address: usize) -> u64 {
    // SAFETY: only words of memory that was found to be there are noted (`touch`); volatile, as others may have it too.
    unsafe { (address as *const u64).read_volatile() }
}

impl Memory {
    /// A new beginning.
    pub fn begin(&mut self) {
        if self.len > 0 {
            self.index.fill(0);
        }
        (self.len, self.touched_len, self.differing, self.digest) = (0, 0, 0, 0);
    }

    fn place(&self, address: usize) -> usize {
        let mut at = (address >> 3).wrapping_mul(0x9e37_79b1) >> 7 & (INDEX - 1);
        loop {
            match self.index[at] {
                0 => return at,
                n if self.words[n as usize - 1].address == address => return at,
                _ => at = (at + 1) & (INDEX - 1),
            }
        }
    }

    /// Bytes that the next instruction reads or writes.
    ///
    /// # Safety
    /// They are memory, with the rest of the words that they lie in.
    pub unsafe fn touch(&mut self, bytes: Range<usize>) -> Result<(), Full> {
        let mut address = bytes.start & !7;
        while address < bytes.end {
            let place = self.place(address);
            let number = match self.index[place] {
                0 => {
                    let value = read(address);
                    *self.words.get_mut(self.len).ok_or(Full)? =
                        Word { address, first: value, now: value };
                    self.len += 1;
                    self.index[place] = self.len as u16;
                    self.digest ^= mix(address, value);
                    self.len as u16 - 1
                }
                n => n - 1,
            };
            *self.touched.get_mut(self.touched_len).ok_or(Full)? = number;
            self.touched_len += 1;
            address += 8;
        }
        Ok(())
    }

    /// The instruction has been executed.
    pub fn executed(&mut self) {
        for n in 0..self.touched_len {
            let word = &mut self.words[self.touched[n] as usize];
            let value = read(word.address);
            if value != word.now {
                self.differing += usize::from(value != word.first);
                self.differing -= usize::from(word.now != word.first);
                self.digest ^= mix(word.address, word.now) ^ mix(word.address, value);
                word.now = value;
            }
        }
        self.touched_len = 0;
    }

    /// Whether everything is what it was at the beginning.
    pub fn as_at_first(&self) -> bool {
        self.differing == 0
    }

    /// Of all words as they are: equal when they are.
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// All words.
    pub fn words(&self) -> &[Word] {
        &self.words[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn empty() -> Box<Memory> {
        // SAFETY: all-zero bytes are an empty one.
        unsafe { Box::<Memory>::new_zeroed().assume_init() }
    }

    #[test]
    fn words_are_compared_with_the_beginning() {
        let mut memory = empty();
        let mut words = vec![7u64; 3];
        let at = words.as_ptr() as usize;
        for (value, same) in [(7, true), (8, false), (9, false), (7, true)] {
            // SAFETY: the vector's memory.
            unsafe { memory.touch(at + 9..at + 10).unwrap() };
            words[1] = value;
            core::hint::black_box(&words);
            memory.executed();
            assert_eq!(memory.as_at_first(), same, "{value}");
        }
        assert_eq!(memory.words().len(), 1);
        memory.begin();
        assert_eq!(memory.words().len(), 0);
    }

    #[test]
    fn a_digest_does_not_depend_on_the_order() {
        let words = [3u64, 5, 8];
        let at = words.as_ptr() as usize;
        let mut digests = Vec::new();
        for order in [[0, 1, 2], [2, 0, 1]] {
            let mut memory = empty();
            for n in order {
                // SAFETY: the array's memory.
                unsafe { memory.touch(at + 8 * n..at + 8 * n + 8).unwrap() };
            }
            memory.executed();
            digests.push(memory.digest());
        }
        assert_eq!(digests[0], digests[1]);
    }
}
