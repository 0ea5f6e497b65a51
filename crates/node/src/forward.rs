//! Clients that connected to a follower: their bytes are forwarded to the leader and back.
//!
//! Runs on the admin thread, away from the reactor: a follower's own work does not wait for it. A connection that cannot be forwarded, breaks on one
//! side, or leads to a replica that is no longer the leader, is reset: an answer that ends with the connection must not look complete. So each side is closed
//! by a reset, also by the kernel when this process is killed, unless both have ended in order.

use nix::sys::socket::{setsockopt, sockopt};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, mpsc, watch};

/// A leader that accepts no connection for this long counts as lost.
const CONNECT_WITHIN: Duration = Duration::from_secs(2);

/// A client to be forwarded.
#[derive(Debug)]
pub struct Forward {
    /// Its connection, non-blocking.
    pub client: std::net::TcpStream,
    /// The leader's service address.
    pub to: SocketAddr,
    /// Closed when that replica leads no more.
    pub leads: watch::Receiver<()>,
}

/// Forwards clients until the sender is dropped; at most `limit` at a time.
pub async fn run(mut clients: mpsc::UnboundedReceiver<Forward>, limit: usize) {
    let places = Arc::new(Semaphore::new(limit.min(Semaphore::MAX_PERMITS)));
    while let Some(forward) = clients.recv().await {
        // Excess clients are closed.
        if let Ok(place) = places.clone().try_acquire_owned() {
            tokio::spawn(async move {
                let _place = place;
                pass_on(forward).await;
            });
        }
    }
}

async fn pass_on(forward: Forward) {
    let Forward { client, to, mut leads } = forward;
    let Ok(mut client) = TcpStream::from_std(client) else { return };
    close_by_reset(&client, true);
    tokio::select! {
        // Nothing is ever sent on it: it was closed.
        _ = leads.changed() => {}
        () = pass(&mut client, to) => {}
    }
}

async fn pass(client: &mut TcpStream, to: SocketAddr) {
    let connecting = tokio::time::timeout(CONNECT_WITHIN, TcpStream::connect(to));
    let Ok(Ok(mut leader)) = connecting.await else { return };
    close_by_reset(&leader, true);
    // A failure means that the connection is gone already.
    let _ = (client.set_nodelay(true), leader.set_nodelay(true));
    if tokio::io::copy_bidirectional(client, &mut leader).await.is_ok() {
        close_by_reset(client, false);
        close_by_reset(&leader, false);
    }
}

/// Whether closing it is a reset.
fn close_by_reset(stream: &TcpStream, reset: bool) {
    let linger = libc::linger { l_onoff: reset.into(), l_linger: 0 };
    // Fails when it is gone already.
    let _ = setsockopt(stream, sockopt::Linger, &linger);
}
