//! The loader's notes from before the runtime was there.
//!
//! | note | how it is found | its new value |
//! |---|---|---|
//! | the device and inode number of each library | the same two words at one place in all link maps | those that the server sees |
//! | times by the processor's counter | words that code stores to behind `rdtsc` | 0 |
//! | the number of the core, beside what `cpuid` says | the other words of that answer | 0 |
//! | the guard of pointers | its value, when the runtime makes another one | the new one |

use super::{Image, text};
use crate::files::inputs::libraries::{self, Object};
use crate::files::stat;
use crate::kernel::Kernel;
use core::ffi::CStr;

/// The furthest position of the file's numbers in a link map, which is longer than that.
const LINK_MAP_BYTES: usize = 1024;
const WORD: usize = size_of::<u64>();

/// Makes all of them equal; the caller has made [`Image::data`] writable. Answers those that were not found.
pub fn make_equal(k: &Kernel, image: &Image) -> impl Iterator<Item = &'static str> {
    [
        (libraries_files(k), "which files libraries are"),
        (clear_times(image), "times"),
        (clear_core(image), "the core's number"),
    ]
    .into_iter()
    .filter(|(found, _)| !found)
    .map(|(_, what)| what)
}

/// The guard has another value from now on: the loader has its own copy.
pub fn renew_guard(old: u64, new: u64) {
    let Some(image) = Image::find() else { return };
    image.unsealed(|| {
        for word in words(&image) {
            // SAFETY: an aligned word of the loader's data, which can be written to.
            unsafe {
                if word.read_volatile() == old {
                    word.write_volatile(new);
                }
            }
        }
    });
}

/// All words of the loader's data.
fn words(image: &Image) -> impl Iterator<Item = *mut u64> {
    let start = image.data.start.next_multiple_of(WORD);
    let end = image.data.end & !(WORD - 1);
    (start..end).step_by(WORD).map(|at| at as *mut u64)
}

fn libraries_files(k: &Kernel) -> bool {
    let mut known = None;
    let mut fine = true;
    for object in libraries::listed() {
        // SAFETY: the loader's string.
        let path = unsafe { CStr::from_ptr(object.path) };
        if !path.to_bytes().starts_with(b"/") {
            continue;
        }
        // SAFETY: as above.
        let Ok(mut st) = (unsafe { stat::real_at(libc::AT_FDCWD, path.as_ptr(), 0) }) else {
            fine = false;
            continue;
        };
        let at = core::ptr::from_ref(object) as usize;
        let numbers = |offset: usize| (at + offset) as *mut [u64; 2];
        // SAFETY: a link map has so many bytes.
        let there = |offset: usize| unsafe { numbers(offset).read() };
        let real = [st.st_dev, st.st_ino];
        let mut places = (size_of::<Object>()..LINK_MAP_BYTES).step_by(WORD);
        match known.or_else(|| places.find(|at| there(*at) == real)) {
            Some(place) if there(place) == real => {
                known = Some(place);
                stat::replace(k, &mut st, None);
                // SAFETY: as above; nobody else reads it.
                unsafe { numbers(place).write([st.st_dev, st.st_ino]) };
            }
            // Of the loader itself, which the kernel has mapped, they are not noted.
            Some(place) => fine &= there(place) == [0, 0],
            None => {}
        }
    }
    fine && known.is_some()
}

fn clear_times(image: &Image) -> bool {
    // SAFETY: the counter, which does not trap yet.
    let now = unsafe { core::arch::x86_64::_rdtsc() };
    let mut found = false;
    for word in text::times(image.text, image.data.clone()) {
        let word = word as *mut u64;
        // SAFETY: an aligned word of the loader's data, which can be written to.
        unsafe {
            if word.read_volatile() <= now {
                word.write_volatile(0);
                found = true;
            }
        }
    }
    found
}

fn clear_core(image: &Image) -> bool {
    const CORE: u32 = 0xff00_0000;
    let said = core::arch::x86_64::__cpuid(1);
    let mut found = 0;
    let mut at = image.data.start.next_multiple_of(4);
    while at + 16 <= image.data.end {
        let words = at as *mut [u32; 4];
        // SAFETY: within the loader's data, which can be written to.
        unsafe {
            let there = words.read();
            let same = there[0] == said.eax
                && there[1] & !CORE == said.ebx & !CORE
                && there[2..] == [said.ecx, said.edx];
            if same {
                (*words)[1] &= !CORE;
                found += 1;
            }
        }
        at += 4;
    }
    found > 0
}
