//! Agreement on the entries of a directory of the host.

use super::place::is_kernels;
use super::{add, differs, facts, is_off};
use crate::files::inode::MADE;
use crate::files::stat::{self, Class};
use crate::kernel::Kernel;
use skein_model::fact::{Fact, What};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// A directory was listed: `entries` are kinds and names, in order.
pub fn listed<'a>(k: &Kernel, fd: i32, entries: impl Iterator<Item = (u8, &'a [u8])>) {
    if is_off(k) {
        return;
    }
    let Ok(st) = stat::real_of(fd) else { return };
    if stat::class(k, &st) != Class::Own {
        return;
    }
    let seen = k.files().inodes.see_stat(&st);
    let known = k.files().inodes.known(seen);
    if known.is(MADE) {
        return;
    }
    let room = facts::more_scratch();
    let (mut used, mut fits, mut size, mut hash) = (0, true, 0u64, 1u64);
    for (kind, name) in entries {
        size += 1;
        hash = xxh3_64_with_seed(name, hash ^ u64::from(kind));
        let len = name.len() + 2;
        fits &= used + len <= room.len();
        if fits {
            room[used] = kind;
            room[used + 1..used + 1 + name.len()].copy_from_slice(name);
            room[used + len - 1] = 0;
            used += len;
        }
    }
    let (path, named) = facts::name_of(k, fd);
    if is_kernels(named) {
        return;
    }
    hash |= 1;
    if known.listing.get() == hash {
        return;
    }
    if known.listing.get() != 0 {
        differs(path, b"its entries have changed since the server first listed it");
    }
    known.listing.set(hash);
    let mut whole = [0; 16];
    whole[..8].copy_from_slice(&hash.to_be_bytes());
    let more: &[u8] = if fits { &room[..used] } else { b"" };
    let fact =
        Fact { kind: libc::DT_DIR, size, hash: whole, more, ..Fact::new(What::Listing, path) };
    add(k, &fact);
}
