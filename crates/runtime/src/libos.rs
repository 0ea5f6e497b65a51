//! The host of the library operating system: this process's services for [`skein_libos`].

use crate::files::{kernels, socket_file};
use crate::io::{park, table};
use crate::kernel::Kernel;
use crate::process::shared;
use crate::thread::{self, Thread};
use crate::turn::output;
use crate::{fatal, ipc, process, signal, sys, time, turn, uses};
use core::ffi::CStr;
use core::fmt::{Arguments, Write as _};
use skein_arena::pool::Handle;
use skein_arena::uses::Use;
use skein_libos::Host;
use skein_libos::errno::Result;
use skein_libos::host::Kernels;
use skein_libos::net::unix::name::Inode;
use skein_libos::process::ProcessHandle;
use skein_libos::signal::{Action, Info, send};
use skein_libos::thread::Wake;
use skein_model::{ConnId, OutFrame, SockAddr};

impl Host for Kernel {
    type Thread = Thread;
    type Process = process::Process;

    #[inline]
    fn suspend(&self, deadline_ns: Option<u64>) -> Wake {
        turn::suspend(deadline_ns)
    }

    #[inline]
    fn resume(&self, thread: Handle<Thread>, why: Wake) -> bool {
        turn::resume(thread, why)
    }

    fn yield_now(&self) {
        turn::yield_now();
    }

    fn deliver_signals(&self) {
        signal::deliver(self);
    }

    fn interrupted(&self, restartable: bool) -> bool {
        signal::interrupted(restartable)
    }

    #[inline]
    fn test_cancel(&self) {
        thread::test_cancel();
    }

    #[inline]
    fn process(&self) -> u32 {
        process::raw()
    }

    fn call_handler(
        &self,
        info: &Info,
        action: &Action,
        mask: u64,
        meanwhile: impl FnOnce(),
    ) -> u64 {
        signal::deliver::call_handler(self, info, action, mask, meanwhile)
    }

    #[cold]
    fn end_by_signal(&self, signo: i32) -> ! {
        process::end::end(signo)
    }

    fn kill(&self, process: ProcessHandle) {
        process::end::terminate(self, process, libc::SIGKILL);
    }

    fn stand_aside(&self) {
        turn::stand_aside();
    }

    fn real_user(&self) -> u32 {
        signal::user()
    }

    fn real_group(&self) -> u32 {
        signal::group()
    }

    fn make_timer_caller(&self) -> Result<()> {
        thread::make_caller(self)
    }

    #[inline]
    fn this_process(&self) -> &process::Process {
        process::this()
    }

    fn user(&self) -> [u32; 2] {
        ipc::user()
    }

    fn in_group(&self, group: u32) -> bool {
        ipc::in_group(group)
    }

    fn file_mask(&self) -> u32 {
        ipc::file_mask()
    }

    #[inline]
    fn in_shared_memory(&self, address: usize) -> Option<(u32, usize)> {
        if shared::any() { shared::find(address) } else { None }
    }

    fn deadline_of(&self, clock: i32, at_ns: u64) -> Result<u64> {
        time::deadline_of(self, clock, at_ns)
    }

    #[cold]
    fn refused(&self, what: Arguments<'_>) {
        fatal::refused(line(what).bytes());
    }

    #[cold]
    fn fatal(&self, why: Arguments<'_>) -> ! {
        fatal::fatal(line(why).bytes())
    }

    #[cold]
    fn notice(&self, what: Arguments<'_>) {
        fatal::notice(line(what).bytes());
    }

    #[inline]
    fn emit(&self, frame: OutFrame<'_>) {
        output::emit(frame);
    }

    #[inline]
    fn emit_send(&self, conn: ConnId, len: usize, fill: impl FnOnce(&mut [u8])) {
        output::emit_send(conn, len, fill);
    }

    #[inline]
    fn emit_datagram(
        &self,
        from: SockAddr,
        to: SockAddr,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
    ) {
        output::emit_datagram(from, to, len, fill);
    }

    #[inline]
    fn note(&self, what: Use) {
        uses::note(what);
    }

    fn random(&self, out: &mut [u8]) {
        self.random.fill(out);
    }

    fn reserve(&self, least: i32) -> Result<i32> {
        table::reserve(least)
    }

    fn reserve_at(&self, fd: i32) -> Result<()> {
        table::reserve_at(fd)
    }

    fn release(&self, fd: i32) {
        // It is reserved.
        let _ = sys::close(fd);
    }

    fn keep_over_exec(&self, fd: i32, keep: bool) {
        table::keep_over_exec(fd, keep);
    }

    fn is_own(&self, fd: i32) -> bool {
        table::is_own(fd)
    }

    fn close_kernels(&self, first: u32, last: u32, flags: u32) -> Result<()> {
        kernels::close_range(self, first, last, flags)
    }

    fn duplicate_kernels(&self, old: i32, new: i32, flags: Option<i32>) -> Result<()> {
        kernels::duplicate(old, new, flags)
    }

    fn read_kernels(&self, fd: i32, at: Option<i64>, to: &mut [u8]) -> Result<usize> {
        kernels::read(fd, at, to)
    }

    fn write_kernels(&self, fd: i32, at: Option<i64>, bytes: &[u8]) -> Result<usize> {
        kernels::write(self, fd, at, bytes)
    }

    fn move_kernels(&self, fd: i32, by: i64) -> Result<()> {
        kernels::seek(fd, by)
    }

    fn of_kernel(&self, fd: i32) -> Option<Kernels> {
        table::of_kernel(fd)
    }

    fn park(&self, fd: i32) -> Result<u64> {
        park::park(self, fd)
    }

    fn park_again(&self, ticket: u64) -> Result<u64> {
        park::duplicate(self, ticket)
    }

    fn take_parked(&self, ticket: u64, cloexec: bool) -> Result<i32> {
        park::take(self, ticket, cloexec)
    }

    fn discard_parked(&self, ticket: u64) {
        park::discard(self, ticket);
    }

    fn make_socket_file(&self, path: &CStr, mode: u32) -> Result<Inode> {
        socket_file::make(self, path, mode)
    }

    fn remove_socket_file(&self, path: &CStr) {
        socket_file::remove(self, path);
    }

    fn find_socket_file(&self, path: &CStr) -> Result<Inode> {
        socket_file::find(self, path)
    }

    fn signal_timer_fired(&self, raw: u32) {
        skein_libos::signal::timer::fired(self, raw);
    }

    #[cold]
    fn send_sigio(&self, pid: i32) {
        send::sigio(self, pid);
    }

    #[cold]
    fn raise_sigpipe(&self) {
        send::raise_here(self, libc::SIGPIPE);
    }
}

/// A text without allocation; one that is too long is cut.
fn line(text: Arguments<'_>) -> fatal::Line {
    let mut line = fatal::Line::new();
    let _ = line.write_fmt(text);
    line
}
