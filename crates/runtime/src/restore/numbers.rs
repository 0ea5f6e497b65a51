//! Numbers of processes and threads while a server is restored: each gets the one that it had.
//!
//! The kernel gives the number after the last one, and the last one can be set: by init at the other end of [`skein_arena::layout::NUMBERS_FD`], where the server itself has no right to, or directly. Processes
//! restore themselves side by side, so from setting the number to taking it one of them has the word [`skein_arena::layout::Header::numbers`]. A process that ends meanwhile ends the
//! server.

use super::{fail, failed};
use crate::kernel::Kernel;
use crate::local::header;
use crate::sys::{self, args};
use core::sync::atomic::Ordering;
use skein_libos::errno::Errno;

/// The word is free, taken, or taken and waited for.
const FREE: u32 = 0;
const TAKEN: u32 = 1;
const AWAITED: u32 = 2;

fn take() {
    let word = &header().numbers;
    if word.compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_ok() {
        return;
    }
    while word.swap(AWAITED, Ordering::Acquire) != FREE {
        sys::futex_wait(word, AWAITED);
    }
}

fn give_back() {
    let word = &header().numbers;
    if word.swap(FREE, Ordering::Release) == AWAITED {
        sys::futex_wake(word);
    }
}

/// Makes a process or a thread of this number. `make` answers as `clone` does; a new process answers 0 from here, too, and a new thread does not come here.
pub fn make(number: u32, make: impl FnOnce() -> isize) -> bool {
    take();
    set_last(number - 1);
    let made = make();
    if made == 0 {
        return true;
    }
    if made < 0 {
        failed(14, Errno(-made as i32));
    }
    if made != number as isize {
        // A process outside of the server took it.
        fail(28);
    }
    give_back();
    false
}

/// The running process is whole. No process goes on before all are, and before the kernel's next number is the one that it would have given to the server.
pub fn await_all(k: &Kernel) {
    let whole = &header().restoring;
    take();
    let left = whole.load(Ordering::Relaxed) - 1;
    let last = k.last_number.get();
    if left == 0 && last != 0 {
        set_last(last);
    }
    whole.store(left, Ordering::Release);
    sys::futex_wake(whole);
    give_back();
    loop {
        match whole.load(Ordering::Acquire) {
            0 => break,
            others => sys::futex_wait(whole, others),
        }
    }
    // SAFETY: the tables are mapped until the process is whole.
    let _ = sys::close(unsafe { super::Tables::get() }.numbers());
}

/// Tells the kernel which number it gave last.
fn set_last(last: u32) {
    // SAFETY: the tables are mapped until the process is whole.
    let init = unsafe { super::Tables::get() }.numbers() as usize;
    let mut answer = 0i32;
    let bytes = size_of_val(&last);
    let (question, into) = ((&raw const last) as usize, (&raw mut answer) as usize);
    // SAFETY: live locals.
    let asked = unsafe {
        sys::call(libc::SYS_write, args([init, question, bytes]))
            .and_then(|_| sys::call(libc::SYS_read, args([init, into, bytes])))
    };
    match asked {
        Ok(len) if len == bytes && answer == 0 => {}
        Ok(len) if len == bytes => failed(12, Errno(answer)),
        Ok(_) => fail(29),
        Err(Errno(libc::EBADF)) => set_directly(last),
        Err(e) => failed(12, e),
    }
}

/// Where nobody is asked.
fn set_directly(last: u32) {
    let mut digits = [0; 10];
    let digits = super::decimal(last, &mut digits);
    // SAFETY: a constant path, a local.
    unsafe {
        let path = c"/proc/sys/kernel/ns_last_pid".as_ptr() as usize;
        let fd = super::must(12, libc::SYS_open, args([path, libc::O_WRONLY as usize]));
        super::must(13, libc::SYS_write, args([fd, digits.as_ptr() as usize, digits.len()]));
        sys::raw(libc::SYS_close, args([fd]));
    }
}
