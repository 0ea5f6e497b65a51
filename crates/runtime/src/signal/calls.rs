//! Calls about signals and timers, with pointers as the server gives them.

use crate::kernel::Kernel;
use crate::kernel::thread::find;
use crate::signal::{self, Action, Info, LAST, bit, change_mask, sent, timer, wait};
use crate::turn;
use libc::{c_int, c_void, itimerval, pthread_t, sighandler_t, siginfo_t, sigset_t, stack_t};
use skein_libos::abi::itimerspec;
use skein_libos::abi::timespec;
use skein_libos::errno::{Errno, Result};
use skein_libos::signal::{action, change_mask as changed_mask, send};
use skein_sched::op::{Kind, Object};

/// libc's own signals, which its functions neither block nor handle for anybody.
const RESERVED: u64 = bit(32) | bit(33);
/// A kernel's flag that libc sets in every action, and shows.
const SA_RESTORER: u64 = 0x0400_0000;
/// glibc's `SIG_HOLD`.
const HOLD: sighandler_t = 2;

/// A kernel's set, the first word of libc's.
///
/// # Safety
/// `set` is null or valid.
pub unsafe fn read_set(set: *const sigset_t) -> Option<u64> {
    // SAFETY: the caller's contract.
    unsafe { set.cast::<u64>().as_ref() }.map(|set| set & !RESERVED)
}

/// Writes a kernel's set as libc's.
///
/// # Safety
/// `out` is null or valid.
pub unsafe fn write_set(out: *mut sigset_t, set: u64) {
    if !out.is_null() {
        // SAFETY: the caller's contract.
        unsafe {
            out.cast::<u8>().write_bytes(0, size_of::<sigset_t>());
            out.cast::<u64>().write(set);
        }
    }
}

/// `sigprocmask`.
///
/// # Safety
/// The pointers are null or valid.
pub unsafe fn mask_into(how: c_int, set: *const sigset_t, old: *mut sigset_t) -> Result<()> {
    // SAFETY: the caller's pointers.
    unsafe {
        let before = change_mask(how, read_set(set))?;
        write_set(old, before);
    }
    Ok(())
}

/// `sigaction`.
///
/// # Safety
/// The pointers are null or valid.
pub unsafe fn action_into(
    signo: c_int,
    action: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> Result<()> {
    if (1..=LAST).contains(&signo) && RESERVED & bit(signo) != 0 {
        return Err(Errno(libc::EINVAL));
    }
    // SAFETY: the caller's pointers.
    unsafe {
        let new = action.as_ref().map(|a| Action {
            handler: a.sa_sigaction,
            flags: a.sa_flags as u32 as u64 | SA_RESTORER,
            restorer: a.sa_restorer.map_or(0, |f| f as usize),
            mask: (&raw const a.sa_mask).cast::<u64>().read(),
        });
        let before = signal::set_action(signo, new)?;
        if let Some(old) = old.as_mut() {
            old.sa_sigaction = before.handler;
            old.sa_flags = before.flags as c_int;
            old.sa_restorer =
                core::mem::transmute::<usize, Option<extern "C" fn()>>(before.restorer);
            write_set(&raw mut old.sa_mask, before.mask);
        }
    }
    Ok(())
}

/// `signal` and its like: with `flags`, the signal itself blocked meanwhile when `blocked`. Answers the handler before.
fn set_handler(
    k: &Kernel,
    signo: c_int,
    handler: usize,
    flags: c_int,
    blocked: bool,
) -> Result<usize> {
    if !(1..=LAST).contains(&signo) || RESERVED & bit(signo) != 0 || handler == libc::SIG_ERR {
        return Err(Errno(libc::EINVAL));
    }
    let mask = if blocked { bit(signo) } else { 0 };
    let action = Action { handler, flags: flags as u32 as u64 | SA_RESTORER, restorer: 0, mask };
    Ok(action::set(k, signo, Some(action))?.handler)
}

/// `signal` as in BSD: the handler stays, and the signal is blocked while it runs.
pub fn bsd_handler(signo: c_int, handler: usize) -> Result<usize> {
    let turn = turn::enter(Object::Signals, Kind::Set);
    let restarts = !action::interrupting(&*turn, signo);
    let flags = if restarts { libc::SA_RESTART } else { 0 };
    set_handler(&turn, signo, handler, flags, true)
}

/// `signal` as in System V: the handler runs once, and the signal is not blocked meanwhile.
pub fn sysv_handler(signo: c_int, handler: usize) -> Result<usize> {
    let flags = libc::SA_RESETHAND | libc::SA_NODEFER;
    let turn = turn::enter(Object::Signals, Kind::Set);
    set_handler(&turn, signo, handler, flags, false)
}

/// `sigignore`.
pub fn ignore(signo: c_int) -> Result<()> {
    let turn = turn::enter(Object::Signals, Kind::Set);
    set_handler(&turn, signo, libc::SIG_IGN, 0, false).map(|_| ())
}

/// `sigset`: like `signal`, but the signal can be held, and is let go otherwise. Answers `SIG_HOLD` when it was held.
pub fn set_disposition(signo: c_int, handler: usize) -> Result<usize> {
    if !(1..=LAST).contains(&signo) {
        return Err(Errno(libc::EINVAL));
    }
    let turn = turn::enter(Object::Signals, Kind::Set);
    let (k, set) = (&*turn, Some(bit(signo)));
    if handler == HOLD {
        let before = changed_mask(k, libc::SIG_BLOCK, set)?;
        let held = before & bit(signo) != 0;
        return if held { Ok(HOLD) } else { Ok(action::set(k, signo, None)?.handler) };
    }
    let old = set_handler(k, signo, handler, 0, false)?;
    let before = changed_mask(k, libc::SIG_UNBLOCK, set)?;
    Ok(if before & bit(signo) != 0 { HOLD } else { old })
}

/// Blocks or unblocks one signal.
pub fn one(how: c_int, signo: c_int) -> Result<()> {
    if !(1..=LAST).contains(&signo) {
        return Err(Errno(libc::EINVAL));
    }
    change_mask(how, Some(bit(signo))).map(|_| ())
}

/// `pthread_kill` and `pthread_sigqueue`.
pub fn to_thread(t: pthread_t, info: Info) -> Result<()> {
    let turn = turn::enter(Object::Signals, Kind::Send);
    let k = &*turn;
    send::check(info.signo)?;
    let handle = find(k, t).ok_or(Errno(libc::ESRCH))?;
    // One that has ended, but is not joined, takes nothing.
    if k.threads.get(handle).life.get() == skein_libos::thread::Life::Ended {
        return Ok(());
    }
    send::to_thread(k, handle, info)
}

/// What `sigqueue` sends.
pub fn queued(signo: c_int, value: usize) -> Info {
    Info { value: value as u64, ..sent(signo, libc::SI_QUEUE) }
}

/// `sigtimedwait`.
///
/// # Safety
/// The pointers are null or valid.
pub unsafe fn wait_into(
    set: *const sigset_t,
    info: *mut siginfo_t,
    timeout: *const timespec,
) -> Result<i32> {
    // SAFETY: the caller's pointers.
    unsafe {
        let timeout = timeout.as_ref().map(skein_libos::time::to_ns).transpose()?;
        let set = read_set(set).ok_or(Errno(libc::EFAULT))?;
        let found = wait::wait_for(set, timeout)?;
        if !info.is_null() {
            signal::write_info(&found, info);
        }
        Ok(found.signo)
    }
}

/// libc's `sigtimedwait`: a thread's signal looks like one that `kill` has sent.
///
/// # Safety
/// The pointers are null or valid.
pub unsafe fn libc_wait_into(
    set: *const sigset_t,
    info: *mut siginfo_t,
    timeout: *const timespec,
) -> Result<i32> {
    // SAFETY: the caller's contract.
    unsafe {
        let signo = wait_into(set, info, timeout)?;
        if let Some(info) = info.as_mut()
            && info.si_code == libc::SI_TKILL
        {
            info.si_code = libc::SI_USER;
        }
        Ok(signo)
    }
}

/// `sigaltstack`.
///
/// # Safety
/// The pointers are null or valid.
pub unsafe fn alternate_into(new: *const stack_t, old: *mut stack_t) -> Result<usize> {
    // SAFETY: the caller's pointers.
    unsafe {
        let new = new.as_ref().map(|s| (s.ss_sp as usize, s.ss_size, s.ss_flags));
        let (start, bytes, flags) = signal::set_alternate(new)?;
        if let Some(old) = old.as_mut() {
            (old.ss_sp, old.ss_size, old.ss_flags) = (start as *mut c_void, bytes, flags);
        }
    }
    Ok(0)
}

/// `timer_settime`.
///
/// # Safety
/// `new` is null or valid, `old` too.
pub unsafe fn set_timer(
    id: usize,
    flags: c_int,
    new: *const itimerspec,
    old: *mut itimerspec,
) -> Result<usize> {
    // SAFETY: the caller's pointers.
    unsafe {
        let before = timer::set_time(id, flags, new.as_ref().ok_or(Errno(libc::EINVAL))?)?;
        if let Some(old) = old.as_mut() {
            *old = before;
        }
    }
    Ok(0)
}

/// `timer_gettime`.
///
/// # Safety
/// `out` is valid.
pub unsafe fn get_timer(id: usize, out: *mut itimerspec) -> Result<usize> {
    let now = timer::get_time(id)?;
    // SAFETY: the caller's pointer.
    unsafe { out.write(now) };
    Ok(0)
}

/// The timer's id is written as `id`; it is an `int` for the kernel and a pointer for libc, which is as wide as its handle here.
pub unsafe fn make_timer(clock: c_int, event: *const timer::Event, out: *mut usize) -> Result<()> {
    // SAFETY: the caller's pointers.
    unsafe { out.write(timer::create(clock, event, true)?) };
    Ok(())
}

/// `setitimer`: as in Linux no new value means zero.
///
/// # Safety
/// The pointers are null or valid.
pub unsafe fn set_interval(
    which: c_int,
    new: *const itimerval,
    old: *mut itimerval,
) -> Result<usize> {
    // SAFETY: all-zero is a valid `itimerval`; otherwise the caller's contract.
    unsafe {
        let zero: itimerval = core::mem::zeroed();
        timer::interval_at(which, if new.is_null() { &raw const zero } else { new }, old)
    }
}
