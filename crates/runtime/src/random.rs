//! Randomness that the server draws: from one stream, the same on every replica ([`crate::kernel::random`]).

use crate::turn;
use crate::uses::{self, Use};
use libc::c_uint;
use skein_sched::op::{Kind, Object};

/// Bytes from the server's stream of randomness.
pub fn draw(out: &mut [u8]) {
    let turn = turn::enter(Object::Randomness, Kind::Read);
    uses::note(Use::Randomness);
    turn.random.fill(out);
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
