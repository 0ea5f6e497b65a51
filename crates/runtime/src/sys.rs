//! Direct system calls: from this library's text, so the safety net lets them through, and without touching `errno`.

use core::arch::asm;
use skein_libos::errno::{Errno, Result};

/// Makes system call `nr`.
///
/// # Safety
/// The arguments fit the call; pointers are valid for it.
#[inline]
pub unsafe fn raw(nr: i64, a: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY: the kernel clobbers rax, rcx and r11 only; memory effects are the caller's contract.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") nr as isize => result,
            in("rdi") a[0], in("rsi") a[1], in("rdx") a[2],
            in("r10") a[3], in("r8") a[4], in("r9") a[5],
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// As [`raw`], with the error split off.
///
/// # Safety
/// As for [`raw`].
#[inline]
pub unsafe fn call(nr: i64, a: [usize; 6]) -> Result<usize> {
    // SAFETY: passed on.
    check(unsafe { raw(nr, a) })
}

/// A system call of the server's that has not been made yet.
#[derive(Clone, Copy)]
pub struct Call {
    /// Its number.
    pub nr: i64,
    /// Its arguments.
    pub args: [usize; 6],
}

impl Call {
    /// Lets the kernel answer it.
    ///
    /// # Safety
    /// As for [`raw`].
    #[inline]
    pub unsafe fn make(self) -> Result<usize> {
        // SAFETY: passed on.
        unsafe { call(self.nr, self.args) }
    }
}

/// Splits a kernel's return value.
pub fn check(result: isize) -> Result<usize> {
    if (-4095..0).contains(&result) { Err(Errno(-result as i32)) } else { Ok(result as usize) }
}

/// Shorthand for the arguments of a call with fewer than six.
pub const fn args<const N: usize>(given: [usize; N]) -> [usize; 6] {
    let mut all = [0; 6];
    let mut i = 0;
    while i < N {
        all[i] = given[i];
        i += 1;
    }
    all
}

/// Sleeps while `*word == value`, at most until woken; spurious returns are possible.
pub fn futex_wait(word: &core::sync::atomic::AtomicU32, value: u32) {
    let op = libc::FUTEX_WAIT;
    // SAFETY: `word` is valid; a shared (not private) wait, as the waker may be another process.
    unsafe {
        raw(libc::SYS_futex, args([word as *const _ as usize, op as usize, value as usize, 0]))
    };
}

/// As [`futex_wait`], for so long at most.
pub fn futex_wait_for(word: &core::sync::atomic::AtomicU32, value: u32, ns: u64) {
    let op = libc::FUTEX_WAIT;
    let time = libc::timespec {
        tv_sec: (ns / 1_000_000_000) as i64,
        tv_nsec: (ns % 1_000_000_000) as i64,
    };
    let (word, time) = (core::ptr::from_ref(word) as usize, &raw const time as usize);
    // SAFETY: both are valid; as in `futex_wait`.
    unsafe { raw(libc::SYS_futex, args([word, op as usize, value as usize, time])) };
}

/// `CLOCK_BOOTTIME`.
pub fn boot_time_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let at = &raw mut time as usize;
    // SAFETY: writes a `timespec` into `time`.
    unsafe { raw(libc::SYS_clock_gettime, args([libc::CLOCK_BOOTTIME as usize, at])) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Wakes all sleepers on `word`.
pub fn futex_wake(word: &core::sync::atomic::AtomicU32) {
    let op = libc::FUTEX_WAKE;
    // SAFETY: `word` is valid.
    unsafe {
        raw(libc::SYS_futex, args([word as *const _ as usize, op as usize, i32::MAX as usize]));
    }
}

/// The calling kernel thread's id.
pub fn gettid() -> u32 {
    // SAFETY: no arguments.
    unsafe { raw(libc::SYS_gettid, args([])) as u32 }
}

/// Closes a kernel descriptor.
pub fn close(fd: i32) -> Result<usize> {
    // SAFETY: no memory is involved.
    unsafe { call(libc::SYS_close, args([fd as usize])) }
}

/// Ends the process at once.
pub fn exit_group(status: i32) -> ! {
    loop {
        // SAFETY: does not return.
        unsafe { raw(libc::SYS_exit_group, args([status as usize])) };
    }
}

/// `arch_prctl`: whether the cpuid instruction may be used.
pub const ARCH_CPUID: usize = 0x1012;

/// `rdtsc` does not trap any more: the loader of a new program looks at the time stamp counter before there is a handler. The kernel allows `cpuid` itself.
pub fn allow_instructions() {
    // SAFETY: only allows an instruction.
    unsafe {
        raw(
            libc::SYS_prctl,
            args([libc::PR_SET_TSC as usize, libc::PR_TSC_ENABLE as usize, 0, 0, 0]),
        );
    }
}

/// Makes `rdtsc` and, where it is wanted and can be, `cpuid` fault; whether each of them does.
pub fn forbid_instructions(cpuid: bool) -> (Result<usize>, Result<usize>) {
    let trap = [libc::PR_SET_TSC as usize, libc::PR_TSC_SIGSEGV as usize, 0, 0, 0];
    // SAFETY: only makes an instruction of this process fault.
    let tsc = unsafe { call(libc::SYS_prctl, args(trap)) };
    if !cpuid {
        return (tsc, Err(Errno(libc::ENODEV)));
    }
    // SAFETY: as above.
    (tsc, unsafe { call(libc::SYS_arch_prctl, args([ARCH_CPUID, 0])) })
}
