//! Randomness: ChaCha20 from the seed in the log's first entry, the same stream on every replica.

use crate::kernel::kernel;
use crate::turn;
use crate::uses::{self, Use};
use core::cell::Cell;
use libc::c_uint;
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use skein_sched::op::{Kind, Object};

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

/// Bytes from the server's stream of randomness.
pub fn draw(out: &mut [u8]) {
    let _turn = turn::enter(Object::Randomness, Kind::Read);
    uses::note(Use::Randomness);
    kernel().random.fill(out);
}

/// Whether `getrandom` has these flags, in this combination.
pub fn flags_known(flags: c_uint) -> bool {
    let (random, insecure) = (libc::GRND_RANDOM, libc::GRND_INSECURE);
    flags & !(libc::GRND_NONBLOCK | random | insecure) == 0
        && flags & (random | insecure) != random | insecure
}

/// A number below `bound` without bias: values below `2^32 mod bound` are drawn again.
pub fn below(bound: u32) -> u32 {
    if bound < 2 {
        return 0;
    }
    let least = bound.wrapping_neg() % bound;
    loop {
        let mut bytes = [0; 4];
        draw(&mut bytes);
        let drawn = u32::from_le_bytes(bytes);
        if drawn >= least {
            return drawn % bound;
        }
    }
}
