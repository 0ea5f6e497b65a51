//! The plain TCP proxy that Skein is compared with: the cost of a process between client and server.
//!
//! One thread, one edge-triggered epoll, one read and one write for each ready socket: no log, no agreement,
//! no inspection. A connection that cannot take the other side's bytes stops reading from it.
//! Ends when its parent dies or with a signal.

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use nix::sys::prctl;
use nix::sys::signal::Signal;

use skein_testkit::{Failure, Outcome};

/// The listener's token; connections have even and odd ones from 2.
const LISTENER: Token = Token(0);

/// The largest read.
const READ_BYTES: usize = 64 << 10;

/// The addresses of the proxy and its server.
#[derive(clap::Args)]
pub struct Options {
    /// Where clients connect
    listen: SocketAddr,
    /// Where the server listens
    server: SocketAddr,
}

/// Runs until killed.
pub fn run(options: &Options) -> Outcome {
    prctl::set_pdeathsig(Signal::SIGKILL).map_err(|error| Failure::of("prctl", error))?;
    serve(options).map_err(|error| Failure::of(format!("proxy at {}", options.listen), error))
}

/// One side of a pair.
struct Side {
    stream: TcpStream,
    /// Bytes from the other side that this one has not taken yet.
    unsent: Vec<u8>,
}

fn serve(options: &Options) -> std::io::Result<()> {
    let mut poll = Poll::new()?;
    let mut listener = TcpListener::bind(options.listen)?;
    poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
    let mut events = Events::with_capacity(1024);
    let mut sides: HashMap<Token, Side> = HashMap::new();
    let mut next = 2;
    let mut buffer = vec![0; READ_BYTES];
    loop {
        match poll.poll(&mut events, None) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            outcome => outcome?,
        }
        for event in &events {
            if event.token() == LISTENER {
                while let Ok((client, _)) = listener.accept() {
                    let server = TcpStream::connect(options.server)?;
                    for (offset, mut stream) in [client, server].into_iter().enumerate() {
                        let _ = stream.set_nodelay(true);
                        let token = Token(next + offset);
                        let both = Interest::READABLE | Interest::WRITABLE;
                        poll.registry().register(&mut stream, token, both)?;
                        sides.insert(token, Side { stream, unsent: Vec::new() });
                    }
                    next += 2;
                }
                continue;
            }
            let here = event.token();
            let there = Token(here.0 ^ 1);
            let wrote = !event.is_writable() || flush(&mut sides, here);
            // There is room again: unread bytes at the other side cause no new event.
            let end = event.is_read_closed();
            let alive = wrote
                && (!event.is_readable() || pass_on(&mut sides, here, there, end, &mut buffer))
                && (!event.is_writable() || pass_on(&mut sides, there, here, true, &mut buffer));
            if !alive {
                sides.remove(&here);
                sides.remove(&there);
            }
        }
    }
}

/// Moves bytes of `from` to `to`, up to the end of the stream; false when the pair is done.
fn pass_on(
    sides: &mut HashMap<Token, Side>,
    from: Token,
    to: Token,
    end: bool,
    buffer: &mut [u8],
) -> bool {
    loop {
        match sides.get(&to) {
            Some(target) if target.unsent.is_empty() => {}
            Some(_) => return true,
            None => return false,
        }
        let Some(source) = sides.get_mut(&from) else { return false };
        let read = match source.stream.read(buffer) {
            Ok(0) => return false,
            Ok(read) => read,
            Err(error) => return may_go_on(&error),
        };
        let Some(target) = sides.get_mut(&to) else { return false };
        target.unsent.extend_from_slice(&buffer[..read]);
        if !flush(sides, to) {
            return false;
        }
        // A short read has emptied the socket; later bytes are a new event.
        if read < buffer.len() && !end {
            return true;
        }
    }
}

/// Sends waiting bytes; false when the connection is gone.
fn flush(sides: &mut HashMap<Token, Side>, at: Token) -> bool {
    let Some(side) = sides.get_mut(&at) else { return false };
    while !side.unsent.is_empty() {
        match side.stream.write(&side.unsent) {
            Ok(0) => return false,
            Ok(written) => drop(side.unsent.drain(..written)),
            Err(error) => return may_go_on(&error),
        }
    }
    true
}

fn may_go_on(error: &std::io::Error) -> bool {
    // Not connected: the server's side is still connecting, and an event will tell.
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::NotConnected)
}
