//! Numbers of processes that the server's order of births does not tell. Init may set the number that the kernel gave last in its pid namespace; the server has no right to.
//!
//! * For a server that is restored: its processes and threads must get those that they had. Its runtime asks for each. A question is a number, 32 bits; the answer an errno, 0 when it is
//!   set. One question is open at a time. Anything else ends it, as does the runtime when it lets go of its end, and from then on the server can ask for nothing.
//! * For stand-ins, copies of the server's processes for an image: they get numbers that it would not have come to, and the next number is what it would have been. The node asks,
//!   while the server stands ([`SpareNumbers`]). Their ends are none of the server's.

use std::ffi::CStr;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use nix::errno::Errno as NixErrno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, recv, send};
use std::os::fd::AsFd;

use super::sys::{Errno, check, check_int};

/// The kernel's file while the host's /proc is not hidden yet; later it is below a read-only mount.
const LAST: &CStr = c"/r/proc/sys/kernel/ns_last_pid";
/// The node's question: for numbers from this one on; 0: they are not needed any more. And the question's own number.
const QUESTION_BYTES: usize = 8;
/// The answer: an errno, the server's last number, and the question's.
const ANSWER_BYTES: usize = 12;
/// Init answers at once; a node must not wait for one that hangs.
const ANSWERS_WITHIN: Duration = Duration::from_secs(1);

/// The node's end: lends numbers that the server's own processes do not have, for as long as it stands still.
#[derive(Debug)]
pub struct SpareNumbers {
    init: OwnedFd,
    /// So many questions were asked: an answer that came too late is not taken for that to the next one.
    asked: AtomicU32,
}

impl SpareNumbers {
    pub(super) const fn new(init: OwnedFd) -> Self {
        Self { init, asked: AtomicU32::new(0) }
    }

    /// From now on new processes have numbers from `first` on. Answers the last number that the server has got itself.
    ///
    /// # Errors
    /// Init does not answer, or cannot; `EBUSY`: not all processes have ended that had such numbers before.
    pub fn lend(&self, first: u32) -> io::Result<u32> {
        let lent = self.ask(first);
        if lent.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::TimedOut) {
            // It may lend them yet. Nobody waits for the answer.
            let _ = self.send(0);
        }
        lent
    }

    /// The next number is again the one that it would have been.
    ///
    /// # Errors
    /// As for [`lend`](Self::lend).
    pub fn give_back(&self) -> io::Result<()> {
        self.ask(0).map(drop)
    }

    /// Answers the question's number.
    fn send(&self, first: u32) -> io::Result<u32> {
        let number = self.asked.fetch_add(1, Ordering::Relaxed);
        let mut question = [0; QUESTION_BYTES];
        question[..4].copy_from_slice(&first.to_ne_bytes());
        question[4..].copy_from_slice(&number.to_ne_bytes());
        let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
        send(self.init.as_raw_fd(), &question, flags)?;
        Ok(number)
    }

    fn ask(&self, first: u32) -> io::Result<u32> {
        let (asked, until) = (self.send(first)?, Instant::now() + ANSWERS_WITHIN);
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let mut waiting = [PollFd::new(self.init.as_fd(), PollFlags::POLLIN)];
            match poll(&mut waiting, PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO)) {
                Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
                Ok(_) => {}
                Err(NixErrno::EINTR) => continue,
                Err(errno) => return Err(errno.into()),
            }
            let mut answer = [0; ANSWER_BYTES];
            let flags = MsgFlags::MSG_DONTWAIT;
            if recv(self.init.as_raw_fd(), &mut answer, flags)? != ANSWER_BYTES {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let [errno, last, number] = answer.as_chunks::<4>().0 else {
                unreachable!("three words")
            };
            if u32::from_ne_bytes(*number) != asked {
                continue;
            }
            return match i32::from_ne_bytes(*errno) {
                0 => Ok(u32::from_ne_bytes(*last)),
                errno => Err(io::Error::from_raw_os_error(errno)),
            };
        }
    }
}

/// Processes that are none of the server's.
#[derive(Clone, Copy, Debug)]
struct Lent {
    /// Their first number, and the one behind their last; numbers are being given while there is none.
    first: u32,
    end: Option<u32>,
    /// So many have not ended, once no more are given.
    left: u32,
}

/// What init has for this.
pub(super) struct Numbers {
    /// Where a restoring runtime asks; -1 when it may not.
    socket: RawFd,
    /// Where the node asks; -1 without a pid namespace.
    node: RawFd,
    last: RawFd,
    /// The server's last number while others are given.
    before: u32,
    lent: Option<Lent>,
}

impl Numbers {
    /// For nobody.
    pub(super) const fn none() -> Self {
        Self { socket: -1, node: -1, last: -1, before: 0, lent: None }
    }

    /// For a runtime that asks at `socket`, if it does, and the node. In the moment after /proc was mounted.
    pub(super) fn open(&mut self, socket: Option<RawFd>, node: RawFd) -> Result<(), Errno> {
        let flags = libc::O_RDWR | libc::O_CLOEXEC;
        // SAFETY: the path is terminated.
        match check_int(unsafe { libc::open(LAST.as_ptr(), flags) }) {
            Ok(last) => (self.last, self.node) = (last, node),
            // A kernel without it: there are no stand-ins, and nothing else needs it.
            Err(_) if socket.is_none() => return Ok(()),
            Err(errno) => return Err(errno),
        }
        self.socket = socket.unwrap_or(-1);
        Ok(())
    }

    /// What init keeps open.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        [self.socket, self.node, self.last].into_iter().filter(|fd| *fd >= 0)
    }

    /// The sockets, of the runtime and of the node, for poll, which leaves out negative numbers.
    pub(super) const fn sockets(&self) -> [RawFd; 2] {
        [self.socket, self.node]
    }

    /// Something has come from the runtime: answers the question, or lets go.
    pub(super) fn answer(&mut self) {
        let number = match hear::<4>(self.socket) {
            Some(number) => u32::from_ne_bytes(number),
            None => return close(&mut self.socket),
        };
        let answer = self.set(number).err().unwrap_or(0).to_ne_bytes();
        if !say(self.socket, &answer) {
            close(&mut self.socket);
        }
    }

    /// Something has come from the node: answers it. Its end, with which init ends, is noticed elsewhere.
    pub(super) fn answer_node(&mut self) {
        let Some(question) = hear::<QUESTION_BYTES>(self.node) else {
            return close(&mut self.node);
        };
        let [first, number] = question.as_chunks::<4>().0 else { unreachable!("two words") };
        let done = match u32::from_ne_bytes(*first) {
            0 => self.take_back(),
            first => self.lend(first),
        };
        let mut answer = [0; ANSWER_BYTES];
        answer[..4].copy_from_slice(&done.err().unwrap_or(0).to_ne_bytes());
        answer[4..8].copy_from_slice(&self.before.to_ne_bytes());
        answer[8..].copy_from_slice(number);
        if !say(self.node, &answer) {
            close(&mut self.node);
        }
    }

    fn lend(&mut self, first: u32) -> Result<(), Errno> {
        // Their numbers would be given again, and their ends be taken for the server's.
        if self.lent.is_some() {
            return Err(libc::EBUSY);
        }
        let before = self.get()?;
        if before >= first {
            return Err(libc::ERANGE);
        }
        self.set(first - 1)?;
        self.before = before;
        self.lent = Some(Lent { first, end: None, left: 0 });
        Ok(())
    }

    fn take_back(&mut self) -> Result<(), Errno> {
        let Some(lent) = &mut self.lent else { return Ok(()) };
        if lent.end.is_some() {
            return Ok(());
        }
        let first = lent.first;
        let end = self.get()? + 1;
        self.set(self.before)?;
        // A fork that fails for a limit of a control group has had a number, too. One that has ended is there until it is reaped here.
        let left = (first..end).filter(|number| exists(*number)).count() as u32;
        self.lent = (left > 0).then_some(Lent { first, end: Some(end), left });
        Ok(())
    }

    /// A process has ended: whether that was none of the server's.
    pub(super) fn was_spare(&mut self, pid: libc::pid_t) -> bool {
        let Some(lent) = &mut self.lent else { return false };
        let pid = pid.cast_unsigned();
        let is = pid >= lent.first && lent.end.is_none_or(|end| pid < end);
        if is && lent.end.is_some() {
            lent.left = lent.left.saturating_sub(1);
            if lent.left == 0 {
                self.lent = None;
            }
        }
        is
    }

    fn get(&self) -> Result<u32, Errno> {
        let mut text = [0u8; 16];
        // SAFETY: a live buffer of this length.
        let read = check(
            unsafe { libc::pread(self.last, text.as_mut_ptr().cast(), text.len(), 0) } as i64,
        )?;
        let digits = text[..read as usize].trim_ascii_end();
        let number = std::str::from_utf8(digits).ok().and_then(|text| text.parse().ok());
        number.ok_or(libc::EPROTO)
    }

    fn set(&self, number: u32) -> Result<(), Errno> {
        let mut text = [0u8; 10];
        let mut rest = &mut text[..];
        let room = rest.len();
        // Ten digits are enough for every number.
        let written =
            write!(rest, "{number}").map(|()| room - rest.len()).map_err(|_| libc::EINVAL)?;
        // SAFETY: a live buffer of this length. The kernel reads from the file's start only.
        check(unsafe { libc::pwrite(self.last, text.as_ptr().cast(), written, 0) } as i64).map(drop)
    }
}

/// Whether there is a process with this number, ended or not.
fn exists(number: u32) -> bool {
    // SAFETY: numbers; no signal is sent.
    let found = check_int(unsafe { libc::kill(number.cast_signed(), 0) });
    // Another user's is there, too.
    found != Err(libc::ESRCH)
}

/// A packet of this length; `None`: another one, or the end.
fn hear<const N: usize>(socket: RawFd) -> Option<[u8; N]> {
    let mut packet = [0u8; 16];
    // SAFETY: a live buffer of this length.
    let len =
        unsafe { libc::recv(socket, packet.as_mut_ptr().cast(), packet.len(), libc::MSG_DONTWAIT) };
    packet.first_chunk().copied().filter(|_| usize::try_from(len) == Ok(N))
}

/// Sends a packet; whether that was possible.
fn say(socket: RawFd, packet: &[u8]) -> bool {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: a live buffer of this length.
    let sent = unsafe { libc::send(socket, packet.as_ptr().cast(), packet.len(), flags) };
    usize::try_from(sent) == Ok(packet.len())
}

fn close(fd: &mut RawFd) {
    // SAFETY: init's own, used no more.
    unsafe { libc::close(*fd) };
    *fd = -1;
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
    use std::os::unix::fs::FileExt;

    #[test]
    fn ends_of_processes_with_lent_numbers_are_told_apart() {
        let lent = |end, left| Some(Lent { first: 100, end, left });
        let mut numbers = Numbers { lent: lent(None, 0), ..Numbers::none() };
        assert!(!numbers.was_spare(99) && numbers.was_spare(100) && numbers.was_spare(5000));
        numbers.lent = lent(Some(103), 2);
        assert!(!numbers.was_spare(103) && !numbers.was_spare(7));
        assert!(numbers.was_spare(101) && numbers.was_spare(102));
        assert!(!numbers.was_spare(101), "all have ended: it is the server's own by now");
    }

    #[test]
    fn an_answer_that_comes_too_late_is_none_to_the_next_question() {
        let (node, init) =
            socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)
                .unwrap();
        let spare = SpareNumbers::new(node);
        let hears = || {
            let question = hear::<QUESTION_BYTES>(init.as_raw_fd()).expect("a question");
            question.as_chunks::<4>().0.iter().map(|word| u32::from_ne_bytes(*word)).collect()
        };
        let says = |last: u32, number: u32| {
            let words = [0, last, number].map(u32::to_ne_bytes).concat();
            assert!(say(init.as_raw_fd(), &words));
        };
        assert_eq!(spare.lend(7000).unwrap_err().kind(), io::ErrorKind::TimedOut);
        let (lend, take_back): (Vec<u32>, Vec<u32>) = (hears(), hears());
        assert_eq!((lend[0], take_back[0]), (7000, 0), "nothing stays lent");
        says(41, lend[1]);
        says(42, take_back[1]);
        says(43, take_back[1] + 1);
        assert_eq!(spare.lend(7000).unwrap(), 43);
    }

    #[test]
    fn a_number_of_a_process_that_was_never_born_is_not_waited_for() {
        let file = tempfile::tempfile().unwrap();
        let last = |number: u32| file.write_all_at(number.to_string().as_bytes(), 0).unwrap();
        // Above all numbers that a kernel gives.
        let (own, nobody) = (std::process::id(), 1 << 22);
        let lent = |first| Some(Lent { first, end: None, left: 0 });
        last(nobody + 1);
        let mut numbers = Numbers { last: file.as_raw_fd(), lent: lent(nobody), ..Numbers::none() };
        assert_eq!(numbers.take_back(), Ok(()));
        assert!(numbers.lent.is_none(), "others can be lent");
        file.set_len(0).unwrap();
        last(own);
        numbers.lent = lent(own);
        assert_eq!(numbers.take_back(), Ok(()));
        assert_eq!(numbers.lend(nobody), Err(libc::EBUSY), "it lives");
        assert!(numbers.was_spare(own.cast_signed()) && numbers.lent.is_none());
    }
}
