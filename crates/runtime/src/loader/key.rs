//! The key by which malloc recognises freed memory: later versions of libc draw it before the runtime begins.

use super::{Draw, draw};
use crate::glibc::{unknown, version};
use crate::kernel::Kernel;
use crate::patch::Stretch;

/// Whether malloc's key may have been drawn already: 2.41 does it at the first allocation, 2.43 before any constructor.
fn draws_key_early() -> bool {
    let minor = version().strip_prefix("2.").and_then(|minor| minor.split('.').next());
    minor.and_then(|minor| minor.parse().ok()).is_none_or(|minor: u32| minor > 41)
}

/// Makes malloc's key the same on all replicas, where libc has drawn one by now. Answers where it has: a program that the server executes does so too, with the
/// net spread and nobody there to answer.
pub fn renew_key(k: &Kernel, libc: Stretch<'_>) -> Option<Draw> {
    if !draws_key_early() {
        return None;
    }
    let Some(draw) = draw(libc) else {
        unknown("where it draws malloc's key was not found");
    };
    let word = draw.key as *mut u64;
    // SAFETY: libc's variable, an aligned word, which the code that was found has the kernel write to. It is compared with what malloc has marked as
    // freed, and before the first constructor nothing is freed.
    unsafe {
        if word.read_volatile() != 0 {
            word.write_volatile(key(k));
        }
    }
    Some(draw)
}

/// A key that libc would accept: neither short nor mostly zeroes or ones.
fn key(k: &Kernel) -> u64 {
    const SHORT: u64 = 0x100_0000;
    loop {
        let mut bytes = [0; 8];
        k.random.fill(&mut bytes);
        let key = u64::from_le_bytes(bytes);
        let long = key > SHORT && key < SHORT.wrapping_neg();
        if long && (16..=48).contains(&key.count_ones()) {
            return key;
        }
    }
}
