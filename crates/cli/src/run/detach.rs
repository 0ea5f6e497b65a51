//! `skein run --detach`: the same command again in the background, in a session of its own; this one relays its lines until
//! the cluster is ready or has failed.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use crate::failure::{EXIT_SKEIN, Failure};
use crate::run::voice::DONE;

/// The descriptor on which the background process reports.
const REPORT_FD: i32 = 3;

/// Starts the background process and waits for its report; answers the exit code. The first `named` words name this program and its task.
pub fn start(words: &[std::ffi::OsString], named: usize) -> Result<u8, Failure> {
    let fail = |error: io::Error| Failure::new("background process", error, "");
    let (mut reader, writer) = io::pipe().map_err(fail)?;
    let mut command = Command::new(std::env::current_exe().map_err(fail)?);
    let (named, rest) = words.split_at(named);
    command.args(&named[1..]).arg("--report-fd").arg(REPORT_FD.to_string()).args(rest);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let fd = writer.as_raw_fd();
    // SAFETY: between fork and exec only `setsid`, `dup2` and `fcntl` are called, plain system calls; `fd` stays open in
    // this process until after the spawn.
    unsafe {
        command.pre_exec(move || {
            if libc::setsid() < 0 {
                return Err(io::Error::last_os_error());
            }
            let done = if fd == REPORT_FD {
                libc::fcntl(fd, libc::F_SETFD, 0)
            } else {
                libc::dup2(fd, REPORT_FD)
            };
            if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
        });
    }
    // Not waited for: it outlives this command, and init collects it.
    let _background = command.spawn().map_err(fail)?;
    drop(writer);
    relay(&mut reader, &mut io::stderr()).map_err(fail)
}

/// Copies lines until the end mark; answers the code behind it.
fn relay(from: &mut impl Read, to: &mut impl Write) -> io::Result<u8> {
    let mut last = 0;
    let mut buffer = [0; 1024];
    loop {
        let got = match from.read(&mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            other => other?,
        };
        if got == 0 {
            // It ended without a report, or the code was cut off.
            return Ok(EXIT_SKEIN);
        }
        let bytes = &buffer[..got];
        if last == DONE {
            return Ok(bytes[0]);
        }
        match bytes.iter().position(|byte| *byte == DONE) {
            Some(at) => {
                to.write_all(&bytes[..at])?;
                if let Some(code) = bytes.get(at + 1) {
                    return Ok(*code);
                }
                last = DONE;
            }
            None => to.write_all(bytes)?,
        }
    }
}

/// The pipe to the foreground command, from its number.
pub fn report_pipe(number: i32) -> Result<File, Failure> {
    let wrong = || Failure::new("--report-fd", "it is not for use by hand", "use --detach");
    if number != REPORT_FD {
        return Err(wrong());
    }
    // SAFETY: F_GETFD only asks about a number, whatever it stands for.
    if unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) } < 0 {
        return Err(wrong());
    }
    // SAFETY: the descriptor is open (just asked), it was put there by `start` for this process, and nothing else in
    // this process has opened or owns that number: this runs before anything is opened.
    Ok(File::from(unsafe { OwnedFd::from_raw_fd(number) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relays_lines_and_the_code() {
        let relayed = |bytes: &[u8]| {
            let mut to = Vec::new();
            let code = relay(&mut &bytes[..], &mut to).unwrap();
            (String::from_utf8(to).unwrap(), code)
        };
        assert_eq!(relayed(b"a\nb\n\x04\x00"), ("a\nb\n".into(), 0));
        assert_eq!(relayed(b"a\n\x04\x7f"), ("a\n".into(), 127));
        assert_eq!(relayed(b"a\n"), ("a\n".into(), 125));
        assert_eq!(relayed(b"a\n\x04"), ("a\n".into(), 125));
    }
}
