//! Process 1 of the sandbox: sets the sandbox up, starts the server, waits for it, dies with the node.
//!
//! It is a program of its own ([`super::handover`]) with nothing of the node's except the data in the job, the socket to the
//! node and the node's pidfd, once the server has its descriptors. All signals stay blocked, so the terminal's Ctrl-C, which reaches the node's process
//! group, does not reach it.

use std::ffi::CStr;
use std::os::fd::RawFd;
use std::ptr;
use std::sync::atomic::Ordering;

use skein_arena::layout::{ARENA_FD, HEADER_BYTES, Header};

use super::job::{Failure, InitJob, await_node, gaps};
use super::numbers::Numbers;
use super::plan::{LAYER_FLAGS, Step};
use super::report::{Record, Stage};
use super::server;
use super::sys::{self, Errno, check, check_int};

/// The kernel's own (`init_task`). A server inherits it, and may ask for it; a node's threads have others.
const TIMER_SLACK_NS: libc::c_ulong = 50_000;

/// Runs init.
pub(super) fn run(job: &InitJob) -> ! {
    sys::reset_dispositions();
    // SAFETY: these take no pointers but a terminated string.
    unsafe {
        libc::prctl(libc::PR_SET_NAME, c"skein-init".as_ptr());
        libc::prctl(libc::PR_SET_TIMERSLACK, TIMER_SLACK_NS);
        libc::setsid();
        libc::umask(0);
    }
    sys::send(job.socket, &Record::Init.encode());
    if !await_node(job.socket) {
        sys::exit(1);
    }
    let mut numbers = Numbers::none();
    let status = match start(job, &mut numbers) {
        Ok(server) => watch(job, server, numbers),
        Err(failure) => Err(failure),
    };
    match status {
        Ok(Some(status)) => sys::send(job.socket, &Record::Exited { status }.encode()),
        Ok(None) => {}
        Err(Failure(stage, index, errno)) => {
            sys::send(job.socket, &Record::Failed { stage, index, errno }.encode());
        }
    }
    sys::exit(0)
}

/// Sets up, and forks the server; gives its pid.
fn start(job: &InitJob, numbers: &mut Numbers) -> Result<libc::pid_t, Failure> {
    match &job.surroundings {
        Some(_) => surround(job, numbers)?,
        // SAFETY: takes no pointers. Without a pid namespace, orphans of the server become init's children this way.
        None => drop(unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }),
    }
    // SAFETY: getpid has no preconditions.
    let me = unsafe { libc::getpid() };
    let namespaces =
        if job.surroundings.is_some() { libc::CLONE_NEWUSER | libc::CLONE_NEWNS } else { 0 };
    // SAFETY: this process has one thread, and the child goes straight to `server::run`, which ends in exec or exit.
    match unsafe { sys::fork(namespaces.cast_unsigned().into(), None) } {
        Ok(0) => server::run(job, me),
        Ok(server) => Ok(server),
        Err(errno) => Err(Failure(Stage::Fork, 0, errno)),
    }
}

fn surround(job: &InitJob, numbers: &mut Numbers) -> Result<(), Failure> {
    let Some(surroundings) = &job.surroundings else { return Ok(()) };
    let name = surroundings.hostname.as_bytes();
    let domain = b"(none)";
    let at = |errno| Failure(Stage::HostName, 0, errno);
    // SAFETY: the pointer and length are those of a live slice.
    check_int(unsafe { libc::sethostname(name.as_ptr().cast(), name.len()) }).map_err(at)?;
    // SAFETY: as above.
    check_int(unsafe { libc::setdomainname(domain.as_ptr().cast(), domain.len()) }).map_err(at)?;
    for (index, step) in surroundings.steps.iter().enumerate() {
        perform(job, numbers, step).map_err(|errno| Failure(Stage::Plan, index as u32, errno))?;
    }
    Ok(())
}

/// Follows the server through its exec, then waits for its end. `None` when the node is gone.
fn watch(job: &InitJob, server: libc::pid_t, mut numbers: Numbers) -> Result<Option<i32>, Failure> {
    if let Some(status) = server::trace_exec(server, job)? {
        // Ended before it ran: it has reported why, unless it was killed.
        return Ok(Some(status));
    }
    let mut deaths = Deaths { announced: map_header(job), seen: 0, server: None, killed: None };
    let mut mine = vec![job.socket, job.node];
    mine.extend(numbers.descriptors());
    for (first, last) in gaps(mine, 0) {
        let _ = sys::close_range(first, last, 0);
    }
    let children = 1u64 << (libc::SIGCHLD - 1);
    // SAFETY: the mask is 8 bytes, the kernel's size of a signal set.
    let signals = check(unsafe {
        libc::syscall(
            libc::SYS_signalfd4,
            -1,
            &raw const children,
            size_of::<u64>(),
            libc::SOCK_NONBLOCK,
        )
    })
    .map_err(|errno| Failure(Stage::Watch, 0, errno))? as RawFd;
    sys::send(job.socket, &Record::Started.encode());
    loop {
        if let Some(status) = deaths.reap(server, &mut numbers) {
            kill_rest(job, server);
            return Ok(Some(status));
        }
        let wanted = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let [runtime, asks] = numbers.sockets();
        let mut waiting = [signals, job.node, job.socket, runtime, asks].map(wanted);
        // SAFETY: the array is live and its length is given.
        let ready = check_int(unsafe { libc::poll(waiting.as_mut_ptr(), 5, -1) });
        if matches!(ready, Err(errno) if errno != libc::EINTR) {
            return Err(Failure(Stage::Watch, 1, libc::EIO));
        }
        let [_, node, socket, asked, lends] = waiting;
        if node.revents != 0 || socket.revents != 0 {
            kill_rest(job, server);
            return Ok(None);
        }
        if asked.revents != 0 {
            numbers.answer();
        }
        if lends.revents != 0 {
            numbers.answer_node();
        }
        let mut drained = [0u8; 128];
        // SAFETY: the buffer is as long as one signalfd_siginfo.
        unsafe { libc::read(signals, drained.as_mut_ptr().cast(), drained.len()) };
    }
}

/// Without a pid namespace the server's remaining processes must be killed by hand: its process group, and all children of init.
fn kill_rest(job: &InitJob, server: libc::pid_t) {
    if job.surroundings.is_some() {
        return;
    }
    // SAFETY: takes no pointers. The server made its own group, named after it, with setsid; its processes stay in it.
    unsafe { libc::kill(-server, libc::SIGKILL) };
}

/// The arena's header, if the server has an arena.
fn map_header(job: &InitJob) -> Option<&'static Header> {
    let (arena, _) = job.server.inherit.iter().find(|(_, target)| *target == ARENA_FD)?;
    // SAFETY: a new mapping, kept for as long as init lives, of a file that the node sized; the header is all atomics.
    unsafe {
        let at =
            libc::mmap(ptr::null_mut(), HEADER_BYTES, libc::PROT_READ, libc::MAP_SHARED, *arena, 0);
        (at != libc::MAP_FAILED).then(|| &*at.cast::<Header>())
    }
}

/// The ends of the server's processes, all of which are init's children.
struct Deaths {
    /// The runtime's counter of announced ends.
    announced: Option<&'static Header>,
    seen: u32,
    /// The first process's wait status.
    server: Option<i32>,
    /// That of the last process that a signal ended.
    killed: Option<i32>,
}

impl Deaths {
    /// Reaps all that ended. Gives the server's wait status when all its processes are gone, or when one ended without an announcement
    /// to the runtime: the others would wait for it for ever.
    fn reap(&mut self, server: libc::pid_t, numbers: &mut Numbers) -> Option<i32> {
        loop {
            let mut status = 0;
            // SAFETY: the status is a live int.
            let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG | libc::__WALL) };
            if pid == 0 {
                return None;
            }
            if pid < 0 {
                // No child is left.
                return self.server;
            }
            if numbers.was_spare(pid) {
                continue;
            }
            let announced = self.announced.map(|header| header.deaths.load(Ordering::Acquire));
            let end = self.note(pid == server, status, announced);
            if end.is_some() {
                return end;
            }
        }
    }

    /// One process has ended, the `first` one or another. Gives the server's wait status, if that was its end: an end that was not announced is a signal's as a rule, also
    /// where a child that has announced its own is reaped after it.
    fn note(&mut self, first: bool, status: i32, announced: Option<u32>) -> Option<i32> {
        self.seen += 1;
        if first {
            self.server = Some(status);
        }
        if libc::WIFSIGNALED(status) {
            self.killed = Some(status);
        }
        match announced {
            // A program without the runtime: its end is all that counts.
            None => self.server,
            Some(announced) if self.seen > announced => self.killed.or(Some(status)),
            Some(_) => None,
        }
    }
}

fn perform(job: &InitJob, numbers: &mut Numbers, step: &Step) -> Result<(), Errno> {
    match step {
        Step::OpenNumbers => numbers.open(job.numbers, job.spare),
        Step::Mount { source, target, kind, flags, data } => {
            sys::mount(source, target, kind, *flags, data)
        }
        Step::Overlay { lower, target, data, or_read_only } => {
            match enter(lower) {
                Ok(()) => {}
                // Gone since the plan was made: an empty directory is left.
                Err(libc::ENOENT | libc::ENOTDIR) => return Ok(()),
                Err(errno) => return Err(errno),
            }
            let mounted = sys::mount(c"skein", target, c"overlay", LAYER_FLAGS, data);
            // "/" again: the working directory would keep the host's file system busy.
            enter(c"/")?;
            match mounted {
                Err(_) if *or_read_only => read_only(lower, target),
                other => other,
            }
        }
        Step::ReadOnly { source, target } => read_only(source, target),
        Step::Directory { path, mode, owner } => {
            // SAFETY: the path is terminated.
            match check_int(unsafe { libc::mkdir(path.as_ptr(), 0o700) }) {
                Ok(_) | Err(libc::EEXIST) => attributes(path, *mode, *owner),
                Err(errno) => Err(errno),
            }
        }
        Step::File { path, from, mode, owner } => {
            match file(path, from.as_deref()) {
                // Gone since the plan was made.
                // SAFETY: the path is terminated.
                Err(libc::ENOENT) => check_int(unsafe { libc::unlink(path.as_ptr()) }).map(drop),
                Err(errno) => Err(errno),
                Ok(()) => attributes(path, *mode, *owner),
            }
        }
        Step::Symlink { path, to } => {
            // SAFETY: both strings are terminated.
            check_int(unsafe { libc::symlink(to.as_ptr(), path.as_ptr()) }).map(drop)
        }
        Step::Absent(path) => {
            // SAFETY: the path is terminated. A device with number 0 is overlayfs' word for an absent file, which any user may make.
            check_int(unsafe { libc::mknod(path.as_ptr(), libc::S_IFCHR, 0) }).map(drop)
        }
        Step::Times { path, accessed, modified } => {
            let time = |(tv_sec, tv_nsec): (i64, i64)| libc::timespec { tv_sec, tv_nsec };
            let times = [time(*accessed), time(*modified)];
            // SAFETY: the path is terminated, the array has the two times that the call reads. Times are for the looks:
            // a read-only fallback refuses them.
            unsafe {
                let flags = libc::AT_SYMLINK_NOFOLLOW;
                libc::utimensat(libc::AT_FDCWD, path.as_ptr(), times.as_ptr(), flags)
            };
            Ok(())
        }
        Step::Enter(path) => enter(path),
        Step::ShowLayer(path) => {
            let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
            // SAFETY: the path is terminated.
            let top = check_int(unsafe { libc::open(path.as_ptr(), flags) })?;
            let sent = sys::send_descriptor(job.socket, &Record::Layer.encode(), top);
            // SAFETY: opened above, used no more.
            unsafe { libc::close(top) };
            sent
        }
        Step::Pivot { new, old } => {
            // SAFETY: both strings are terminated.
            check(unsafe { libc::syscall(libc::SYS_pivot_root, new.as_ptr(), old.as_ptr()) })
                .map(drop)
        }
        Step::Detach(path) => {
            // SAFETY: the path is terminated.
            check_int(unsafe { libc::umount2(path.as_ptr(), libc::MNT_DETACH) }).map(drop)
        }
    }
}

fn enter(path: &CStr) -> Result<(), Errno> {
    // SAFETY: the path is terminated.
    check_int(unsafe { libc::chdir(path.as_ptr()) }).map(drop)
}

fn read_only(source: &CStr, target: &CStr) -> Result<(), Errno> {
    sys::mount(source, target, c"", libc::MS_BIND | libc::MS_REC, c"")?;
    sys::make_read_only(target)
}

fn attributes(path: &CStr, mode: u32, owner: Option<(u32, u32)>) -> Result<(), Errno> {
    if let Some((uid, gid)) = owner {
        // SAFETY: the path is terminated.
        check_int(unsafe { libc::chown(path.as_ptr(), uid, gid) })?;
    }
    // After chown, which clears the setuid and setgid bits.
    // SAFETY: the path is terminated.
    check_int(unsafe { libc::chmod(path.as_ptr(), mode) }).map(drop)
}

fn file(path: &CStr, from: Option<&CStr>) -> Result<(), Errno> {
    let flags = libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY | libc::O_CLOEXEC;
    // SAFETY: the path is terminated.
    let to = check_int(unsafe { libc::open(path.as_ptr(), flags, 0o600) })?;
    let copied = match from {
        Some(from) => copy(from, to),
        None => Ok(()),
    };
    // SAFETY: opened above, used no more.
    unsafe { libc::close(to) };
    copied
}

fn copy(from: &CStr, to: RawFd) -> Result<(), Errno> {
    // SAFETY: the path is terminated.
    let from = check_int(unsafe { libc::open(from.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) })?;
    let copied = loop {
        // SAFETY: both descriptors are open; a null offset uses and moves the source's own.
        match check(unsafe { libc::sendfile(to, from, ptr::null_mut(), 1 << 20) } as i64) {
            Ok(0) => break Ok(()),
            Ok(_) | Err(libc::EINTR) => {}
            Err(errno) => break Err(errno),
        }
    };
    // SAFETY: opened above, used no more.
    unsafe { libc::close(from) };
    copied
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Wait statuses as the kernel makes them.
    const KILLED: i32 = libc::SIGKILL;
    const EXITED: i32 = 0;

    fn none() -> Deaths {
        Deaths { announced: None, seen: 0, server: None, killed: None }
    }

    #[test]
    fn a_killed_servers_end_is_not_that_of_a_child_that_is_reaped_after_it() {
        // A child has announced its end, and is reaped last.
        let mut deaths = none();
        assert_eq!(deaths.note(true, KILLED, Some(1)), None);
        assert_eq!(deaths.note(false, EXITED, Some(1)), Some(KILLED));
        // A killed child, and another as above.
        let mut deaths = none();
        assert_eq!(deaths.note(false, KILLED, Some(1)), None);
        assert_eq!(deaths.note(false, EXITED, Some(1)), Some(KILLED));
    }

    #[test]
    fn ends_that_were_announced_are_no_end_of_the_server() {
        let mut deaths = none();
        assert_eq!(deaths.note(false, EXITED, Some(2)), None);
        assert_eq!(deaths.note(false, EXITED, Some(2)), None);
        assert_eq!(deaths.note(false, KILLED, Some(2)), Some(KILLED));
        // Without the runtime only the first process counts.
        let mut deaths = none();
        assert_eq!(deaths.note(false, KILLED, None), None);
        assert_eq!(deaths.note(true, EXITED, None), Some(EXITED));
    }
}
