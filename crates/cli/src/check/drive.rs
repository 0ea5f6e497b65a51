//! The client command: a shell in a process group of its own, which leaves nothing behind, however `skein check` ends.
//!
//! A small process guards the group: it waits for the end of a pipe that only `skein check` holds open, and then kills the
//! group. It is told when there is nothing left to guard.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::fcntl::OFlag;

use super::capture::Capture;

/// A running client command. Dropping it kills the command and all its descendants.
pub struct Drive {
    child: Child,
    guard: Option<Guard>,
    output: Capture,
    began: Instant,
    ended: Option<(ExitStatus, Duration)>,
}

/// The end of a client command.
#[derive(Clone, Debug)]
pub struct DriveEnd {
    /// Its exit status; 128 and the signal that killed it.
    pub code: i32,
    /// It exceeded its time and was ended.
    pub timed_out: bool,
    /// Its duration.
    pub took: Duration,
    /// The last lines that it printed.
    pub last_lines: Vec<String>,
}

impl Drive {
    /// Starts a command; `places`: the address of each port of the server, the first listener first.
    pub fn start(command: &str, places: &[(u16, SocketAddr)], aloud: bool) -> io::Result<Self> {
        let output = Capture::new(aloud)?;
        let open = || std::fs::OpenOptions::new().append(true).open(output.path());
        let mut shell = Command::new("/bin/sh");
        shell.arg("-c").arg(command).stdin(Stdio::null()).stdout(open()?).stderr(open()?);
        shell.process_group(0);
        if let Some((_, first)) = places.first() {
            let all: Vec<String> =
                places.iter().map(|(port, at)| format!("{port}:{}", at.port())).collect();
            shell.env("SKEIN_HOST", first.ip().to_string());
            shell.env("SKEIN_PORT", first.port().to_string());
            shell.env("SKEIN_PORTS", all.join(" "));
        }
        let mut child = shell.spawn()?;
        let guard = match Guard::start(child.id() as libc::pid_t) {
            Ok(guard) => guard,
            Err(error) => {
                kill_group(child.id() as libc::pid_t);
                let _ = child.wait();
                return Err(error);
            }
        };
        Ok(Self { child, guard: Some(guard), output, began: Instant::now(), ended: None })
    }

    /// Its running time so far.
    pub fn age(&self) -> Duration {
        self.began.elapsed()
    }

    /// Whether it has ended.
    pub fn ended(&mut self) -> bool {
        self.output.pump();
        if self.ended.is_none() && has_ended(self.child.id()) {
            // Checked before it is reaped, so that the group's number is surely its own.
            kill_group(self.child.id() as libc::pid_t);
            if let Ok(status) = self.child.wait() {
                self.ended = Some((status, self.began.elapsed()));
            }
        }
        self.ended.is_some()
    }

    /// Ends it, if it has not ended, and all its descendants.
    pub fn finish(mut self) -> DriveEnd {
        let timed_out = !self.ended();
        self.end();
        self.output.pump();
        let (status, took) =
            self.ended.unwrap_or((ExitStatus::from_raw(libc::SIGKILL), self.age()));
        let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
        DriveEnd { code, timed_out, took, last_lines: self.output.last_lines(8) }
    }

    fn end(&mut self) {
        if self.ended.is_none() {
            kill_group(self.child.id() as libc::pid_t);
            if let Ok(status) = self.child.wait() {
                self.ended = Some((status, self.began.elapsed()));
            }
        }
        if let Some(guard) = self.guard.take() {
            guard.dismiss();
        }
    }
}

impl Drop for Drive {
    fn drop(&mut self) {
        self.end();
    }
}

/// Whether a child has ended; it is not reaped.
fn has_ended(pid: u32) -> bool {
    use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
    let id = Id::Pid(nix::unistd::Pid::from_raw(pid as i32));
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    !matches!(waitid(id, flags), Ok(WaitStatus::StillAlive))
}

fn kill_group(leader: libc::pid_t) {
    // SAFETY: takes no pointers. The group's leader is a child of ours that is not reaped yet.
    unsafe { libc::kill(-leader, libc::SIGKILL) };
}

/// The small process that ends the client command's group.
struct Guard {
    pid: libc::pid_t,
    pipe: OwnedFd,
}

impl Guard {
    fn start(group: libc::pid_t) -> io::Result<Self> {
        let (end, pipe) = nix::unistd::pipe2(OFlag::O_CLOEXEC)?;
        let kept = end.as_raw_fd();
        // SAFETY: the child makes system calls only, and ends in `_exit`.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                // SAFETY: system calls on descriptors and a byte of its own; see `guard`.
                unsafe { guard(kept, group) }
            }
            pid => Ok(Self { pid, pipe }),
        }
    }

    /// There is nothing left to guard.
    fn dismiss(self) {
        let mut pipe = std::fs::File::from(self.pipe);
        // It is gone only if another process killed it.
        let _ = pipe.write_all(b"d");
        drop(pipe);
        let mut status = 0;
        // SAFETY: the status is a live int; the process is a child of ours that nobody else waits for.
        unsafe { libc::waitpid(self.pid, &raw mut status, 0) };
    }
}

/// Waits for the pipe's end, then kills the group; a byte from the pipe dismisses it.
///
/// # Safety
/// In a forked child only.
unsafe fn guard(pipe: i32, group: libc::pid_t) -> ! {
    // SAFETY: plain system calls; the byte is this function's own.
    unsafe {
        // Not reached by the terminal's Ctrl-C.
        libc::setpgid(0, 0);
        let fd = pipe as libc::c_uint;
        if fd > 0 {
            libc::close_range(0, fd - 1, 0);
        }
        libc::close_range(fd + 1, libc::c_uint::MAX, 0);
        let mut byte = 0u8;
        loop {
            match libc::read(pipe, (&raw mut byte).cast(), 1) {
                1 => libc::_exit(0),
                -1 if *libc::__errno_location() == libc::EINTR => {}
                _ => break,
            }
        }
        libc::kill(-group, libc::SIGKILL);
        libc::_exit(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(command: &str, limit: Duration) -> DriveEnd {
        let at = "127.0.0.1:4000".parse().unwrap();
        let mut drive = Drive::start(command, &[(80, at)], false).unwrap();
        while !drive.ended() && drive.age() < limit {
            std::thread::sleep(Duration::from_millis(2));
        }
        drive.finish()
    }

    #[test]
    fn a_command_is_told_where_and_its_status_is_kept() {
        let end = run("echo $SKEIN_HOST $SKEIN_PORT $SKEIN_PORTS; exit 7", Duration::from_secs(30));
        assert_eq!((end.code, end.timed_out), (7, false));
        assert_eq!(end.last_lines, ["127.0.0.1 4000 80:4000"]);
        assert_eq!(run("kill -9 $$", Duration::from_secs(30)).code, 137);
    }

    #[test]
    fn one_that_does_not_end_is_ended_with_all_that_it_started() {
        let end = run("sleep 1000 & echo $!; sleep 1000", Duration::from_millis(300));
        assert!(end.timed_out && end.code == 137, "{end:?}");
        let pid: i32 = end.last_lines[0].parse().unwrap();
        let limit = Instant::now() + Duration::from_secs(30);
        // The process that inherited it reaps it; a dead process has no command line.
        while std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty()) {
            assert!(Instant::now() < limit, "process {pid} is still there");
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}
