//! How nodes reach each other: by unix sockets on one machine, by TCP with a shared key between several.
//!
//! A transport is a [`Listener`] and a [`Stream`]; [`unix`] and [`tcp`] are the two there are, and an [`Address`] names one of them. What passes
//! over a stream may be sealed ([`channel`]), whatever the transport.
//!
//! On one machine the kernel names the user at the other end: the directory of the sockets is open to their user alone, and each side checks
//! the other's user id. Between machines the [`key`] does: [`channel`] proves and encrypts. TCP without a key is for a network that
//! no stranger can reach.

pub mod address;
pub mod channel;
pub mod key;
mod tcp;
mod unix;
pub mod wire;

pub use address::Address;
pub use key::Key;

use mio::event::Source;
use mio::{Interest, Registry, Token};
use std::fmt::Debug;
use std::io::{self, ErrorKind, Read, Write};
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

/// A connection that came, and its host, if that can be another.
pub type Accepted = (Box<dyn Stream>, Option<IpAddr>);

/// A listening socket.
pub trait Listener: Debug + Send {
    /// Registers it with a poll, for connections.
    ///
    /// # Errors
    /// The poll does not take it.
    fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()>;

    /// One connection; `None` for one that is refused.
    ///
    /// # Errors
    /// `WouldBlock` when there is none now; those of the system call.
    fn accept_one(&self) -> io::Result<Option<Accepted>>;
}

/// A connection. It never blocks.
pub trait Stream: AsFd + Read + Write + Debug + Send {
    /// Registers it with a poll, for reading and writing; what is written is sent at once.
    ///
    /// # Errors
    /// The poll does not take it.
    fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()>;

    /// Other events from now on. What is possible already is an event again.
    ///
    /// # Errors
    /// The poll does not take it.
    fn watch(&mut self, registry: &Registry, token: Token, watch: Watch) -> io::Result<()>;

    /// Makes the kernel end it when its bytes are not acknowledged for this long.
    fn give_up_after(&self, limit: Duration);
}

/// The events of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watch {
    /// It can be read, or written. A unix socket can be written anew whenever the other side has read: an event that says nothing while there is nothing to be written.
    All,
    /// It can be read.
    Reads,
    /// It ended, as far as the kernel says that without being asked.
    Ends,
}

impl Watch {
    /// In the words of `mio`, which has none for the last.
    const fn interest(self) -> Option<Interest> {
        match self {
            Self::All => Some(Interest::READABLE.add(Interest::WRITABLE)),
            Self::Reads => Some(Interest::READABLE),
            Self::Ends => None,
        }
    }
}

/// Registers a connection again, for other events.
fn watch(
    stream: &mut (impl Source + AsRawFd),
    registry: &Registry,
    token: Token,
    watch: Watch,
) -> io::Result<()> {
    if let Some(interest) = watch.interest() {
        return stream.reregister(registry, token, interest);
    }
    // The kernel reports ends in any case. `mio` cannot ask for nothing else, and the arrival of bytes wakes those who wait for priority data, too.
    let mut event = libc::epoll_event { events: libc::EPOLLET as u32, u64: token.0 as u64 };
    let (poll, fd) = (registry.as_raw_fd(), stream.as_raw_fd());
    // SAFETY: both descriptors are open, as their owners are borrowed; the kernel only reads the event.
    let done = unsafe { libc::epoll_ctl(poll, libc::EPOLL_CTL_MOD, fd, &raw mut event) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Begins to listen.
///
/// # Errors
/// Those of the system calls.
pub fn listen(address: &Address) -> io::Result<Box<dyn Listener>> {
    match address {
        Address::Tcp(address) => tcp::listen(*address),
        Address::Unix(path) => unix::listen(path),
    }
}

/// Begins to connect.
///
/// # Errors
/// Those of the system calls; the other side is another user's.
pub fn connect(address: &Address) -> io::Result<Box<dyn Stream>> {
    match address {
        Address::Tcp(address) => tcp::connect(*address),
        Address::Unix(path) => unix::connect(path),
    }
}

impl dyn Listener {
    /// The next connection; `None` when there is none now.
    ///
    /// # Errors
    /// Those of the machine; a connection that is already gone, or is refused, is passed over.
    pub fn accept(&self) -> io::Result<Option<Accepted>> {
        loop {
            match self.accept_one() {
                Ok(Some(accepted)) => return Ok(Some(accepted)),
                Ok(None) => {}
                Err(e) => match e.kind() {
                    ErrorKind::WouldBlock => return Ok(None),
                    // The other side is gone again, or a signal came.
                    ErrorKind::ConnectionAborted | ErrorKind::Interrupted => {}
                    _ => return Err(e),
                },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mio::{Events, Poll};

    /// Until it is possible.
    fn retry<T>(mut act: impl FnMut() -> io::Result<Option<T>>) -> T {
        let end = std::time::Instant::now() + Duration::from_secs(20);
        loop {
            match act() {
                Ok(Some(done)) => return done,
                Ok(None) => {}
                Err(e) if [ErrorKind::WouldBlock, ErrorKind::NotConnected].contains(&e.kind()) => {}
                Err(e) => panic!("{e}"),
            }
            assert!(std::time::Instant::now() < end, "nothing came");
            std::thread::yield_now();
        }
    }

    /// The events of sockets that are polled until nothing happens any more.
    fn happens(poll: &mut Poll) -> Vec<(bool, bool)> {
        let mut events = Events::with_capacity(8);
        poll.poll(&mut events, Some(Duration::ZERO)).unwrap();
        events.iter().map(|event| (event.is_readable(), event.is_writable())).collect()
    }

    #[test]
    fn a_reader_wakes_its_writer_only_if_that_waits_for_room() {
        let dir = tempfile::tempdir().unwrap();
        let address = Address::Unix(dir.path().join("peer.sock"));
        let listener = listen(&address).unwrap();
        let mut near = connect(&address).unwrap();
        let (mut far, _) = retry(|| listener.accept());
        let (mut poll, token) = (Poll::new().unwrap(), Token(1));
        near.register(poll.registry(), token).unwrap();
        assert_eq!(happens(&mut poll), [(false, true)]);
        let mut pass = |near: &mut Box<dyn Stream>| {
            near.write_all(b"heartbeat").unwrap();
            far.read_exact(&mut [0; 9]).unwrap();
        };
        pass(&mut near);
        assert_eq!(happens(&mut poll), [(false, true)], "the kernel says that there is room");
        near.watch(poll.registry(), token, Watch::Reads).unwrap();
        pass(&mut near);
        assert_eq!(happens(&mut poll), []);
        near.watch(poll.registry(), token, Watch::All).unwrap();
        assert_eq!(happens(&mut poll), [(false, true)], "there was room before");
        near.watch(poll.registry(), token, Watch::Ends).unwrap();
        far.write_all(b"answer").unwrap();
        assert_eq!(happens(&mut poll), []);
        near.watch(poll.registry(), token, Watch::Reads).unwrap();
        assert_eq!(happens(&mut poll), [(true, false)], "it came before");
        near.watch(poll.registry(), token, Watch::Ends).unwrap();
        drop(far);
        let mut events = Events::with_capacity(8);
        poll.poll(&mut events, Some(Duration::ZERO)).unwrap();
        assert!(events.iter().any(|event| event.is_read_closed()), "an end is an event");
    }

    #[test]
    fn all_transports_carry_bytes_both_ways_and_an_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("peer.sock");
        std::fs::write(&path, "of a node that was killed").unwrap();
        // An address that no other test process has.
        let [_, _, high, low] = std::process::id().to_be_bytes();
        let host = IpAddr::from([127, 77, high, low]);
        let tcp = Address::Tcp((host, 7100).into());
        for (address, has_host) in [(Address::Unix(path), false), (tcp, true)] {
            let listener = listen(&address).unwrap();
            assert!(listener.accept().unwrap().is_none(), "nobody has connected");
            let mut near = connect(&address).unwrap();
            let (mut far, from) = retry(|| listener.accept());
            assert_eq!(from.is_some(), has_host);
            near.give_up_after(Duration::from_secs(1));
            for _ in 0..2 {
                retry(|| near.write(b"bytes").map(Some));
                let mut got = [0; 9];
                let n = retry(|| far.read(&mut got).map(Some));
                assert_eq!(&got[..n], b"bytes");
                std::mem::swap(&mut near, &mut far);
            }
            drop(near);
            assert_eq!(retry(|| far.read(&mut [0; 9]).map(Some)), 0, "{address}");
        }
    }
}
