//! Wires between nodes that can be cut like a network, both ways or one way: nothing comes through, and no side is told. They can be slow, too.
//!
//! A connection that was cut for long stays silent when the wire is mended, as one of TCP does until its sender tries again: only a new one works.

use super::free_address;
use skein_node::config::NodeConfig;
use std::collections::{BTreeMap, VecDeque};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, spawn};
use std::time::{Duration, Instant};

/// How often a wire looks whether it is cut or to be taken down.
const LOOK: Duration = Duration::from_millis(2);
/// A cut that is longer than this is a long one.
const LONG: Duration = Duration::from_millis(300);

#[derive(Default)]
struct State {
    /// Dialling side to listening side, and back.
    cut: [AtomicBool; 2],
    delay_ms: AtomicU64,
    down: AtomicBool,
}

/// One direction of dialling: connections here are connected to `to`.
struct Wire {
    address: SocketAddr,
    state: Arc<State>,
    thread: Option<JoinHandle<()>>,
}

/// One for each pair of nodes.
#[derive(Default)]
pub struct Wires(Mutex<BTreeMap<(u64, u64), Wire>>);

impl Wires {
    /// Makes this node reach the others by wires.
    pub fn lay(&self, config: &mut NodeConfig) {
        let own = config.id;
        // Else it follows from the addresses, which are no longer the same for all.
        config.cluster_id = Some(format!("{:032x}", 0x5eed));
        for peer in config.peers.iter_mut().filter(|peer| peer.id != own) {
            let mut wires = self.0.lock().unwrap();
            let wire = wires
                .entry((own, peer.id))
                .or_insert_with(|| Wire::new(peer.address.tcp().unwrap()));
            peer.address = wire.address.into();
        }
    }

    /// Cuts a node off from all others, or connects it again.
    pub fn cut(&self, node: u64, cut: bool) {
        for ((from, to), wire) in &*self.0.lock().unwrap() {
            if node == *from || node == *to {
                wire.state.cut.iter().for_each(|way| way.store(cut, Ordering::SeqCst));
            }
        }
    }

    /// Cuts one way between two nodes, or mends it. Nobody can connect while one is cut.
    pub fn cut_way(&self, from: u64, to: u64, cut: bool) {
        let wires = self.0.lock().unwrap();
        for (ends, way) in [((from, to), 0), ((to, from), 1)] {
            if let Some(wire) = wires.get(&ends) {
                wire.state.cut[way].store(cut, Ordering::SeqCst);
            }
        }
    }

    /// Delays the messages from and to a node by this much.
    pub fn delay(&self, node: u64, ms: u64) {
        for ((from, to), wire) in &*self.0.lock().unwrap() {
            if node == *from || node == *to {
                wire.state.delay_ms.store(ms, Ordering::SeqCst);
            }
        }
    }
}

impl Wire {
    fn new(to: SocketAddr) -> Self {
        let address = free_address();
        let listener = TcpListener::bind(address).unwrap();
        listener.set_nonblocking(true).unwrap();
        let state = Arc::new(State::default());
        let shared = state.clone();
        let thread = spawn(move || {
            let mut pumps = Vec::new();
            while !shared.down.load(Ordering::SeqCst) {
                let cut = shared.cut.iter().any(|way| way.load(Ordering::SeqCst));
                let Some((dialled, _)) = listener.accept().ok().filter(|_| !cut) else {
                    std::thread::park_timeout(LOOK);
                    continue;
                };
                // Not there yet: the dialling side tries again.
                let Ok(reached) = TcpStream::connect(to) else { continue };
                for (way, (from, to)) in
                    [(&dialled, &reached), (&reached, &dialled)].into_iter().enumerate()
                {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    from.set_nonblocking(false).unwrap();
                    from.set_read_timeout(Some(LOOK)).unwrap();
                    to.set_nodelay(true).unwrap();
                    let state = shared.clone();
                    pumps.push(spawn(move || pump(from, to, way, &state)));
                }
            }
            for pump in pumps {
                pump.join().unwrap();
            }
        });
        Self { address, state, thread: Some(thread) }
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.state.down.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

fn pump(mut from: TcpStream, mut to: TcpStream, way: usize, state: &State) {
    let mut buffer = [0; 64 << 10];
    let mut under_way: VecDeque<(Instant, Vec<u8>)> = VecDeque::new();
    let (mut cut_since, mut silent) = (None, false);
    'open: while !state.down.load(Ordering::SeqCst) {
        if state.cut[way].load(Ordering::SeqCst) {
            silent |= cut_since.get_or_insert_with(Instant::now).elapsed() > LONG;
            std::thread::park_timeout(LOOK);
            continue;
        }
        cut_since = None;
        match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(_) if silent => {}
            Ok(n) => {
                let delay = Duration::from_millis(state.delay_ms.load(Ordering::SeqCst));
                under_way.push_back((Instant::now() + delay, buffer[..n].to_vec()));
            }
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(_) => break,
        }
        // Bytes read while the wire was cut wait as well: nothing is lost on it.
        let cut = || state.cut[way].load(Ordering::SeqCst);
        while let Some((_, bytes)) =
            under_way.pop_front_if(|(at, _)| *at <= Instant::now() && !cut())
        {
            if to.write_all(&bytes).is_err() {
                break 'open;
            }
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}
