//! The output ring: what the server did, for its node.

use crate::fatal::{self, Line, Telling, refuse};
use crate::kernel::kernel;
use crate::local::header;
use crate::turn::{self, above::above};
use crate::{origin, stack, sys};
use core::cell::RefCell;
use core::sync::atomic::Ordering;
use skein_arena::full;
use skein_arena::layout::WAKE_FD;
use skein_arena::ring::Producer;
use skein_model::frame::{FRAME_HEADER_BYTES, FRAME_SCRATCH_BYTES, OutFrame};
use skein_model::pad8;
use skein_model::{ConnId, SockAddr};

/// The ring's end, owned by the turn's holder.
struct Out(RefCell<Option<Producer>>);

// SAFETY: only the turn's holder gets here; turns are handed over with acquire and release.
unsafe impl Sync for Out {}

static OUT: Out = Out(RefCell::new(None));

/// Installs the ring's end, through which the node is told from now on.
pub fn install(producer: Producer) {
    *OUT.0.borrow_mut() = Some(producer);
    header().news.know();
    header().plan.know();
    fatal::give_teller(tell);
}

/// Tells the node, and of a call that was refused, where the server made it.
fn tell(what: Telling, text: &[u8]) {
    match what {
        Telling::Fatal => {
            emit(OutFrame::Fatal { text });
            wake_node();
        }
        Telling::Notice => emit(OutFrame::Notice { text }),
        Telling::Refused => {
            let mut call = Line::new();
            call.append(text);
            call.append(&[0]);
            let at = kernel().this().trapped_at.get();
            stack::in_library(|| origin::append_caller(&mut call, at));
            emit(OutFrame::Refused { call: call.bytes() });
        }
    }
}

/// Whether a frame is being written: nobody else can write one.
pub fn is_held() -> bool {
    OUT.0.try_borrow().is_err()
}

/// Goes on where another process of the server has left off.
pub fn catch_up() {
    if let Some(out) = OUT.0.borrow_mut().as_mut() {
        out.catch_up();
    }
}

/// Writes a frame, waiting for room. The node sees it at once but is only woken by [`wake_node`].
pub fn emit(frame: OutFrame<'_>) {
    let mut scratch = [0; FRAME_SCRATCH_BYTES];
    let (head, payload) = frame.encode(&mut scratch);
    write(head, payload.len(), |space| space.copy_from_slice(payload));
    // Each entry has its mark: that alone is no news.
    if !matches!(frame, OutFrame::Admitted { .. }) {
        header().news.say();
    }
}

/// Writes a [`OutFrame::Send`] of `len` bytes, at most `MAX_SEND_BYTES`, which `fill` puts into the ring.
pub fn emit_send(conn: ConnId, len: usize, fill: impl FnOnce(&mut [u8])) {
    let frame = OutFrame::Send { conn, bytes: &[] };
    write_filled(frame, len, fill);
}

/// Writes a [`OutFrame::Datagram`] of `len` bytes, which `fill` puts into the ring.
pub fn emit_datagram(local: SockAddr, peer: SockAddr, len: usize, fill: impl FnOnce(&mut [u8])) {
    write_filled(OutFrame::Datagram { local, peer, bytes: &[] }, len, fill);
}

/// Writes a frame, whose own bytes are none, with `len` bytes that `fill` puts into the ring.
fn write_filled(frame: OutFrame<'_>, len: usize, fill: impl FnOnce(&mut [u8])) {
    let mut scratch = [0; FRAME_SCRATCH_BYTES];
    let used = frame.encode(&mut scratch).0.len();
    let whole = used - FRAME_HEADER_BYTES + len;
    scratch[4..8].copy_from_slice(&(whole as u32).to_le_bytes());
    above().sent(whole);
    write(&scratch[..used], len, fill);
    header().news.say();
}

fn write(head: &[u8], len: usize, fill: impl FnOnce(&mut [u8])) {
    let start = head.len();
    let whole = pad8(start + len);
    loop {
        let mut out = OUT.0.borrow_mut();
        let Some(out) = out.as_mut() else { return };
        match out.reserve(whole) {
            Ok(Some(space)) => {
                space[..start].copy_from_slice(head);
                fill(&mut space[start..][..len]);
                space[start + len..].fill(0);
                out.publish(whole);
                return;
            }
            Ok(None) => {}
            Err(damaged) => {
                fatal::stderr(fatal::line!("{damaged}").bytes());
                sys::exit_group(125);
            }
        }
        let before = full::say(&header().server_state);
        turn::sleep_at_gate(
            || !matches!(out.free(), Ok(free) if free >= whole),
            || header().plan.look(None),
        );
        header().server_state.store(before, Ordering::Relaxed);
    }
}

/// Wakes the node if it sleeps.
pub fn wake_node() {
    wake_node_for(|| true);
}

/// As [`wake_node`] when the server is about to wait; a node that wants to be woken for news only is woken for those, as for all but waiting for the next timer.
pub fn wake_node_for_news() {
    wake_node_for(|| header().has_news());
}

fn wake_node_for(has_news: impl Fn() -> bool) {
    if header().node_gate.open_for(has_news) {
        let one = 1u64;
        // SAFETY: writes 8 bytes from a local to the eventfd.
        let wrote = unsafe {
            sys::call(libc::SYS_write, sys::args([WAKE_FD as usize, &raw const one as usize, 8]))
        };
        if let Err(e) = wrote {
            // The node is gone or the server closed the descriptor: nothing can leave any more.
            if e.0 != libc::EAGAIN && e.0 != libc::EINTR {
                fatal::stderr(b"the node cannot be woken");
                sys::exit_group(125);
            }
        }
    }
}

/// Checks at start that the node can be woken.
pub fn check_wake_fd() {
    // SAFETY: no memory is involved.
    let flags = unsafe {
        sys::call(libc::SYS_fcntl, sys::args([WAKE_FD as usize, libc::F_GETFD as usize]))
    };
    if flags.is_err() {
        refuse!("descriptor {WAKE_FD} is not the node's eventfd");
    }
}
