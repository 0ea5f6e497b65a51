//! Init becomes a program of its own. The node forks; the child, which has all of the node's memory and must not keep it, executes this very
//! program again, under the name [`NAME`], with its job in a sealed file in memory as descriptor 0 and only those of the node's descriptors that
//! the job names. The program finds out before its `main` ([`BEFORE_MAIN`]), so that every program with a supervisor in it can do this: the
//! tests' as well as the command.
//!
//! Under that name and without such a file it is the program that it always is.

use std::ffi::{CStr, c_char, c_int};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::ptr;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};

use super::confine;
use super::init;
use super::job::{InitJob, Ranges, await_node, gaps};
use super::report::{Record, Stage};
use super::sys::{self, check, check_int};

/// `argv[0]` of init, and all of its command line.
const NAME: &CStr = c"skein-init";

/// The descriptor of init's job.
const JOB_FD: RawFd = 0;

/// Seals: the job cannot be changed on the way.
const SEALS: SealFlag = SealFlag::F_SEAL_WRITE
    .union(SealFlag::F_SEAL_GROW)
    .union(SealFlag::F_SEAL_SHRINK)
    .union(SealFlag::F_SEAL_SEAL);

/// The data needed between fork and exec.
pub(super) struct Handover {
    job: File,
    program: File,
    /// All descriptors but those in `kept`, the job's and the program's.
    foreign: Ranges,
    kept: Vec<RawFd>,
}

impl Handover {
    /// The descriptors that the job names are above the standard ones.
    pub(super) fn new(job: &InitJob) -> io::Result<Self> {
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
        let mut file = File::from(memfd_create(NAME, flags)?);
        file.write_all(&serde_json::to_vec(job)?)?;
        file.seek(SeekFrom::Start(0))?;
        fcntl(&file, FcntlArg::F_ADD_SEALS(SEALS))?;
        let program =
            OpenOptions::new().read(true).custom_flags(libc::O_PATH).open("/proc/self/exe")?;
        let mut kept = vec![job.socket, job.node, job.spare, job.server.stdout, job.server.stderr];
        kept.extend(job.numbers);
        kept.extend(job.server.inherit.iter().map(|(source, _)| *source));
        let mut open = kept.clone();
        open.extend([file.as_raw_fd(), program.as_raw_fd()]);
        Ok(Self { job: file, program, foreign: gaps(open, 0), kept })
    }

    /// Becomes init. In the child of the fork only.
    pub(super) fn execute(&self, job: &InitJob) -> ! {
        let errno = match self.prepare(job) {
            Ok(()) => {
                let argv = [NAME.as_ptr(), ptr::null()];
                let env = [ptr::null::<c_char>()];
                // SAFETY: an empty path means the descriptor; both arrays end in a null pointer.
                let result = unsafe {
                    libc::syscall(
                        libc::SYS_execveat,
                        self.program.as_raw_fd(),
                        c"".as_ptr(),
                        argv.as_ptr(),
                        env.as_ptr(),
                        libc::AT_EMPTY_PATH,
                    )
                };
                check(result).err().unwrap_or(libc::EINVAL)
            }
            Err(errno) => errno,
        };
        sys::send(job.socket, &Record::Failed { stage: Stage::Init, index: 0, errno }.encode());
        sys::exit(1)
    }

    fn prepare(&self, job: &InitJob) -> Result<(), sys::Errno> {
        for (first, last) in &self.foreign {
            sys::close_range(*first, *last, 0)?;
        }
        if !await_node(job.socket) {
            sys::exit(1);
        }
        // SAFETY: descriptor numbers only, of this process' own table.
        check_int(unsafe { libc::dup2(self.job.as_raw_fd(), JOB_FD) })?;
        for fd in &self.kept {
            // SAFETY: as above.
            check_int(unsafe { libc::fcntl(*fd, libc::F_SETFD, 0) })?;
        }
        match job.surroundings {
            Some(_) => confine::keep_capabilities(),
            None => Ok(()),
        }
    }
}

/// The C library calls it with `main`'s arguments, before `main`.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn(c_int, *const *const c_char) = before_main;

extern "C" fn before_main(count: c_int, words: *const *const c_char) {
    // SAFETY: `words` has `count` strings.
    let name = (count == 1).then(|| unsafe { CStr::from_ptr(*words) });
    if name != Some(NAME) {
        return;
    }
    match take_job() {
        Ok(Some(job)) => init::run(&job),
        Ok(None) => {}
        // The node hears the end of its socket.
        Err(_) => sys::exit(1),
    }
}

/// `None` when there is no such file.
fn take_job() -> io::Result<Option<InitJob>> {
    // SAFETY: the number is only looked up; without a file behind it this is EBADF.
    let seals = unsafe { libc::fcntl(JOB_FD, libc::F_GET_SEALS) };
    if Errno::result(seals).ok().map(SealFlag::from_bits_truncate) != Some(SEALS) {
        return Ok(None);
    }
    // SAFETY: the node has put it there for this purpose only; the standard library's stdin is not used in init.
    let mut file = File::from(unsafe { OwnedFd::from_raw_fd(JOB_FD) });
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(Some(serde_json::from_slice(&bytes)?))
}
