//! The published listening sockets of `skein run`.
//!
//! Every replica of this machine shares the same kernel listener for a port of the server; only the leader accepts from
//! it. So the service address stays where it is when the leader changes: clients that connect meanwhile wait in its
//! backlog. A node asks over a unix socket, one JSON line a request, and gets a JSON line and the descriptor:
//!
//! ```text
//! -> {"publish":{"addr":"0.0.0.0","port":6379}}
//! <- {"ok":true,"address":"127.0.0.1:6379"}   + the listening socket (SCM_RIGHTS)
//! <- {"error":"..."}
//! ```
//!
//! With `"udp":true` it is a socket for datagrams: only the leader reads from it and sends by it.
//!
//! Threads: one accepts, one a connected node. The table of sockets is behind a mutex that no thread holds while waiting.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufRead, BufReader, IoSlice};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use nix::sys::socket::{
    self, AddressFamily, Backlog, ControlMessage, MsgFlags, SockFlag, SockType, SockaddrStorage,
    sockopt,
};
use serde::Deserialize;

use crate::args::Publish;
use crate::failure::Failure;

/// Connections that wait for the leader to accept them; the kernel cuts it to `net.core.somaxconn`.
const BACKLOG: i32 = 4096;
/// The longest request line.
const MAX_REQUEST_BYTES: u64 = 4096;

/// An event at the published sockets.
#[derive(Debug)]
pub enum Published {
    /// A port of the server is published for the first time.
    New {
        /// Its address for clients.
        address: SocketAddr,
        /// The server's port.
        server_port: u16,
        /// Whether it is for datagrams.
        udp: bool,
    },
    /// The server has a port that the user's list does not name.
    Unnamed {
        /// The server's port.
        server_port: u16,
        /// Its address if the user names it.
        fix: String,
    },
    /// A port cannot be published.
    Failed(Failure),
}

struct Socket {
    address: SocketAddr,
    socket: OwnedFd,
    announced: bool,
}

/// The sockets, by the server's port and whether it is for datagrams.
pub struct Sockets {
    /// With a list only its ports are published.
    only_named: bool,
    table: Mutex<BTreeMap<(u16, bool), Socket>>,
    /// Requested ports that are not on the list.
    unnamed: Mutex<BTreeSet<(u16, bool)>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    publish: Wanted,
}

#[derive(Deserialize)]
struct Wanted {
    port: u16,
    #[serde(default)]
    udp: bool,
}

/// Binds, and listens; a failure says what to do.
fn listen(address: SocketAddr, server_port: u16, udp: bool) -> Result<OwnedFd, Failure> {
    let inner = || -> nix::Result<OwnedFd> {
        let family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let kind = if udp { SockType::Datagram } else { SockType::Stream };
        let fd = socket::socket(family, kind, flags, None)?;
        if !udp {
            // Two sockets would each get a part of the datagrams.
            socket::setsockopt(&fd, sockopt::ReuseAddr, &true)?;
        }
        if address.is_ipv6() {
            socket::setsockopt(&fd, sockopt::Ipv6V6Only, &true)?;
        }
        socket::bind(fd.as_raw_fd(), &SockaddrStorage::from(address))?;
        if !udp {
            socket::listen(&fd, Backlog::new(BACKLOG)?)?;
        }
        Ok(fd)
    };
    inner().map_err(|errno| {
        let (free, suffix) = ("HOST:PORT", if udp { "/udp" } else { "" });
        let fix = match errno {
            nix::Error::EADDRINUSE => format!(
                "stop what listens there (see 'ss -ltunp') or publish it elsewhere: \
                 --publish {free}:{server_port}{suffix}"
            ),
            nix::Error::EACCES => {
                format!("publish it at a port above 1023: --publish {free}:{server_port}{suffix}")
            }
            _ => {
                format!("publish it at an address of this machine: --publish {free}:{server_port}{suffix}")
            }
        };
        Failure::new(format!("publish {address}"), errno.desc(), fix)
    })
}

impl Sockets {
    /// Binds the user's addresses at once: a taken port is known before anything runs.
    pub fn new(named: &[Publish]) -> Result<Self, Failure> {
        let mut table = BTreeMap::new();
        for publish in named {
            let Publish { address, server_port, udp } = *publish;
            let socket = listen(address, server_port, udp)?;
            let socket = Socket { address, socket, announced: false };
            if table.insert((server_port, udp), socket).is_some() {
                return Err(Failure::new(
                    format!("publish {address}"),
                    format!("the server's port {server_port} is published twice"),
                    "name each of its ports once",
                ));
            }
        }
        let unnamed = Mutex::default();
        Ok(Self { only_named: !named.is_empty(), table: Mutex::new(table), unnamed })
    }

    /// A port outside the list, at its first request.
    fn unnamed(&self, wanted: &Wanted) -> Option<Published> {
        let Wanted { port: server_port, udp } = *wanted;
        let mut unnamed = self.unnamed.lock().unwrap_or_else(PoisonError::into_inner);
        if !unnamed.insert((server_port, udp)) {
            return None;
        }
        let table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, socket) = table.iter().find(|((_, of), _)| *of == udp)?;
        let suffix = if udp { "/udp" } else { "" };
        let fix = format!("--publish {}:{server_port}{suffix}", socket.address);
        Some(Published::Unnamed { server_port, fix })
    }

    /// The socket for a port of the server; `None` in the answer when that port is not to be published.
    fn get(&self, wanted: &Wanted) -> Result<Option<(SocketAddr, OwnedFd, bool)>, Failure> {
        let Wanted { port, udp } = *wanted;
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        if let std::collections::btree_map::Entry::Vacant(slot) = table.entry((port, udp)) {
            if self.only_named {
                return Ok(None);
            }
            let address = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port);
            let socket = listen(address, port, udp)?;
            slot.insert(Socket { address, socket, announced: false });
        }
        let socket = table.get_mut(&(port, udp)).expect("it is there or was just put there");
        let fresh = !std::mem::replace(&mut socket.announced, true);
        let copy = socket.socket.try_clone().map_err(|error| {
            Failure::new(format!("publish {}", socket.address), error, "raise 'ulimit -n'")
        })?;
        Ok(Some((socket.address, copy, fresh)))
    }

    /// Closes all sockets: new clients are refused from now on (once the nodes are gone as well).
    pub fn close(&self) {
        self.table.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// Serves nodes at `path` until the process ends; `tell` receives the events.
pub fn serve<F>(path: &Path, sockets: Arc<Sockets>, tell: F) -> io::Result<()>
where
    F: Fn(Published) + Clone + Send + 'static,
{
    let listener = UnixListener::bind(path)?;
    std::thread::Builder::new().name("publish".into()).spawn(move || {
        for stream in listener.incoming().flatten() {
            let (sockets, tell) = (Arc::clone(&sockets), tell.clone());
            let serve = move || {
                // A node that died ends the conversation; it asks anew when it is back.
                let _ = converse(&stream, &sockets, &tell);
            };
            // Without a thread the connection closes, and the node sees that and asks again.
            let _ = std::thread::Builder::new().name("publish-node".into()).spawn(serve);
        }
    })?;
    Ok(())
}

fn converse(stream: &UnixStream, sockets: &Sockets, tell: &impl Fn(Published)) -> io::Result<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let mut line = String::new();
        if io::Read::take(&mut reader, MAX_REQUEST_BYTES).read_line(&mut line)? == 0 {
            return Ok(());
        }
        let Ok(Request { publish }) = serde_json::from_str(&line) else {
            return answer(
                stream,
                &serde_json::json!({"error": "request is not understood"}),
                None,
            );
        };
        match sockets.get(&publish) {
            Ok(Some((address, fd, fresh))) => {
                if fresh {
                    let Wanted { port: server_port, udp } = publish;
                    tell(Published::New { address, server_port, udp });
                }
                let line = serde_json::json!({"ok": true, "address": address.to_string()});
                answer(stream, &line, Some(&fd))?;
            }
            Ok(None) => {
                sockets.unnamed(&publish).into_iter().for_each(tell);
                let why = format!("port {} is not named by --publish", publish.port);
                answer(stream, &serde_json::json!({"error": why, "hidden": true}), None)?;
            }
            Err(failure) => {
                let why = format!("{}: {}", failure.what, failure.why);
                tell(Published::Failed(failure));
                answer(stream, &serde_json::json!({ "error": why }), None)?;
            }
        }
    }
}

fn answer(stream: &UnixStream, line: &serde_json::Value, fd: Option<&OwnedFd>) -> io::Result<()> {
    let text = format!("{line}\n");
    let fds: Vec<i32> = fd.iter().map(|fd| fd.as_raw_fd()).collect();
    let rights = [ControlMessage::ScmRights(&fds)];
    let control: &[ControlMessage] = if fds.is_empty() { &[] } else { &rights };
    let mut bytes = text.as_bytes();
    let mut control = control;
    while !bytes.is_empty() {
        let sent = socket::sendmsg::<()>(
            stream.as_fd().as_raw_fd(),
            &[IoSlice::new(bytes)],
            control,
            MsgFlags::MSG_NOSIGNAL,
            None,
        )?;
        bytes = &bytes[sent..];
        control = &[];
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::socket::{ControlMessageOwned, RecvMsg};
    use std::io::{IoSliceMut, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::FromRawFd;
    use std::sync::mpsc;

    fn ask(stream: &mut UnixStream, port: u16) -> (serde_json::Value, Option<TcpListener>) {
        writeln!(stream, r#"{{"publish":{{"addr":"0.0.0.0","port":{port}}}}}"#).unwrap();
        let (line, fd) = answer_of(stream);
        (line, fd.map(TcpListener::from))
    }

    fn answer_of(stream: &UnixStream) -> (serde_json::Value, Option<OwnedFd>) {
        let mut buffer = [0; 1024];
        let mut control = nix::cmsg_space!([i32; 1]);
        let mut slices = [IoSliceMut::new(&mut buffer)];
        let message: RecvMsg<'_, '_, ()> =
            socket::recvmsg(stream.as_raw_fd(), &mut slices, Some(&mut control), MsgFlags::empty())
                .unwrap();
        let mut socket = None;
        for part in message.cmsgs().unwrap() {
            if let ControlMessageOwned::ScmRights(fds) = part {
                // SAFETY: the kernel has just put this descriptor into our table for us; nobody else knows it.
                socket = Some(unsafe { OwnedFd::from_raw_fd(fds[0]) });
            }
        }
        let bytes = message.bytes;
        (serde_json::from_slice(&buffer[..bytes]).unwrap(), socket)
    }

    fn free_port() -> u16 {
        skein_testkit::free_port().unwrap()
    }

    fn served(named: &[Publish]) -> (tempfile::TempDir, UnixStream, mpsc::Receiver<Published>) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("p.sock");
        let (tx, rx) = mpsc::channel();
        let sockets = Arc::new(Sockets::new(named).unwrap());
        serve(&path, sockets, move |event| tx.send(event).unwrap()).unwrap();
        let stream = UnixStream::connect(&path).unwrap();
        (dir, stream, rx)
    }

    #[test]
    fn all_nodes_get_the_same_listener() {
        let port = free_port();
        let (dir, mut one, events) = served(&[]);
        let mut two = UnixStream::connect(dir.path().join("p.sock")).unwrap();
        let (line, first) = ask(&mut one, port);
        assert_eq!(line["address"], format!("127.0.0.1:{port}"));
        let (_, second) = ask(&mut two, port);
        let (first, second) = (first.unwrap(), second.unwrap());
        first.set_nonblocking(false).unwrap();
        let _client = TcpStream::connect(("127.0.0.1", port)).unwrap();
        drop(first);
        second.accept().unwrap();
        assert!(
            matches!(events.recv().unwrap(), Published::New { server_port, .. } if server_port == port)
        );
        assert!(events.try_recv().is_err(), "told once");
    }

    #[test]
    fn a_taken_port_is_named() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = taken.local_addr().unwrap().port();
        let (_dir, mut stream, events) = served(&[]);
        let (line, fd) = ask(&mut stream, port);
        assert!(fd.is_none());
        assert!(line["error"].as_str().unwrap().contains(&port.to_string()), "{line}");
        let Published::Failed(failure) = events.recv().unwrap() else { panic!("not failed") };
        assert!(failure.to_string().contains("ddress already in use"), "{failure}");
    }

    #[test]
    fn datagrams_have_ports_of_their_own() {
        let port = free_port();
        let (_dir, mut stream, events) = served(&[]);
        assert!(ask(&mut stream, port).1.is_some());
        writeln!(stream, r#"{{"publish":{{"addr":"0.0.0.0","port":{port},"udp":true}}}}"#).unwrap();
        let (line, fd) = answer_of(&stream);
        assert_eq!(line["address"], format!("127.0.0.1:{port}"));
        let socket = std::net::UdpSocket::from(fd.unwrap());
        socket.set_nonblocking(false).unwrap();
        let client = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        client.send_to(b"hello", ("127.0.0.1", port)).unwrap();
        let mut bytes = [0; 9];
        assert_eq!(socket.recv_from(&mut bytes).unwrap(), (5, client.local_addr().unwrap()));
        let kinds: Vec<bool> = (0..2)
            .map(|_| match events.recv().unwrap() {
                Published::New { udp, .. } => udp,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(kinds, [false, true]);
    }

    #[test]
    fn with_a_list_only_named_ports_are_published() {
        let (outside, inside) = (free_port(), 6379);
        let address = format!("127.0.0.1:{outside}").parse().unwrap();
        let (_dir, mut stream, events) =
            served(&[Publish { address, server_port: inside, udp: false }]);
        let (line, fd) = ask(&mut stream, inside);
        assert_eq!(line["address"], format!("127.0.0.1:{outside}"));
        assert!(fd.is_some());
        let (line, fd) = ask(&mut stream, inside + 1);
        assert!(line["error"].is_string() && fd.is_none());
        let _ = ask(&mut stream, inside + 1);
        let told: Vec<_> = events.try_iter().collect();
        let [Published::New { .. }, Published::Unnamed { server_port: 6380, fix }] = &told[..]
        else {
            panic!("{told:?}")
        };
        assert_eq!(*fix, format!("--publish 127.0.0.1:{outside}:6380"));
    }

    #[test]
    fn a_list_that_names_a_port_twice_is_refused() {
        let publish = |port| Publish {
            address: format!("127.0.0.1:{port}").parse().unwrap(),
            server_port: 6379,
            udp: false,
        };
        assert!(Sockets::new(&[publish(free_port()), publish(free_port())]).is_err());
        let udp = Publish { udp: true, ..publish(free_port()) };
        assert!(Sockets::new(&[publish(free_port()), udp]).is_ok(), "one of each");
    }

    #[test]
    fn garbage_gets_an_answer_and_no_descriptor() {
        let (_dir, mut stream, _events) = served(&[]);
        writeln!(stream, "hello").unwrap();
        let mut line = String::new();
        BufReader::new(&stream).read_line(&mut line).unwrap();
        assert!(line.contains("error"));
    }
}
