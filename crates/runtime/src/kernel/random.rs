//! The server's stream of randomness: ChaCha20 from the seed in the log's first entry.

use core::cell::Cell;
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// The stream. All-zero bytes until seeded.
#[repr(C)]
pub struct Random {
    seed: Cell<[u8; 32]>,
    /// Position in the stream, in words of four bytes.
    word: Cell<u64>,
}

impl Random {
    /// Starts the stream.
    pub fn seed(&self, seed: &[u8; 32]) {
        self.seed.set(*seed);
        self.word.set(0);
    }

    /// The next bytes of the stream.
    pub fn fill(&self, out: &mut [u8]) {
        let mut rng = ChaCha20Rng::from_seed(self.seed.get());
        rng.set_word_pos(u128::from(self.word.get()));
        rng.fill_bytes(out);
        self.word.set(self.word.get() + out.len().div_ceil(4) as u64);
    }
}
