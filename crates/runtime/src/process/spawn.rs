//! `posix_spawn`'s child, and any other that would share its parent's memory while that waits: it has a copy, and its result for the
//! parent in the argument, an errno, is copied to the parent.
//!
//! The result's place in the argument differs from glibc to glibc. So all words that the child has changed there are copied: before it executes a program it only reads
//! the rest.

use super::Process;
use crate::kernel::process::{LEFT_WORDS as WORDS, Left};
use crate::stack;

/// Where glibc's `clone` puts the child's argument on its stack: it takes both its function and its argument from there.
const ARGUMENT: usize = 8;
/// How far from the stack pointer an argument of `posix_spawn`'s lies at most: it is a local variable.
const NEAR_BYTES: usize = 64 << 10;

fn read(at: usize) -> [u32; WORDS] {
    // SAFETY: on the server's stack above its stack pointer, by `note`.
    unsafe { (at as *const [u32; WORDS]).read_unaligned() }
}

impl Left {
    /// A child is made whose stack begins at `stack`; its parent's memory is that of the running process.
    ///
    /// # Safety
    /// libc's `clone` has put the child's function and argument there.
    pub unsafe fn note(&self, stack: usize) {
        // SAFETY: the caller's contract.
        let at = unsafe { *((stack + ARGUMENT) as *const usize) };
        // Any other's own `clone` may have an argument that is no memory.
        if at.wrapping_sub(stack::servers()) < NEAR_BYTES {
            self.at.set(at);
            self.before.set(read(at));
            self.after.set(self.before.get());
        }
    }

    /// The child ends, in its own memory.
    pub fn ended(&self, p: &Process) {
        if self.at.get() != 0 && !p.executed.get() {
            self.after.set(read(self.at.get()));
        }
    }

    /// The parent goes on, in its own memory.
    pub fn bring_over(&self) {
        let (at, before, after) = (self.at.get(), self.before.get(), self.after.get());
        for (i, (before, after)) in before.iter().zip(after).enumerate() {
            if *before != after {
                // SAFETY: as in `read`; the child would have written there.
                unsafe { ((at + 4 * i) as *mut u32).write_unaligned(after) };
            }
        }
        self.forget();
    }

    /// Nothing of what was on a stack stays.
    pub fn forget(&self) {
        self.at.set(0);
        self.before.set([0; WORDS]);
        self.after.set([0; WORDS]);
    }
}
