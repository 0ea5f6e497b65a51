//! Clients that connected to a follower: their bytes go to the leader and back.
//!
//! Runs on the admin thread, away from the reactor: a follower's own work does not wait for it. A connection that
//! cannot be passed on, or breaks on one side, is reset on the other: an answer that ends with the connection must not look whole.

use nix::sys::socket::{setsockopt, sockopt};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, mpsc};

/// A leader that takes no connection for this long is no leader any more.
const CONNECT_WITHIN: Duration = Duration::from_secs(2);

/// A client to be passed on.
#[derive(Debug)]
pub struct Forward {
    /// Its connection, non-blocking.
    pub client: std::net::TcpStream,
    /// The leader's service address.
    pub to: SocketAddr,
}

/// Passes clients on until the sender is dropped; at most `limit` at a time.
pub async fn run(mut clients: mpsc::UnboundedReceiver<Forward>, limit: usize) {
    let places = Arc::new(Semaphore::new(limit.min(Semaphore::MAX_PERMITS)));
    while let Some(forward) = clients.recv().await {
        // Who finds no place is closed.
        if let Ok(place) = places.clone().try_acquire_owned() {
            tokio::spawn(async move {
                let _place = place;
                pass_on(forward).await;
            });
        }
    }
}

async fn pass_on(forward: Forward) {
    let Ok(mut client) = TcpStream::from_std(forward.client) else { return };
    let connecting = tokio::time::timeout(CONNECT_WITHIN, TcpStream::connect(forward.to));
    let Ok(Ok(mut leader)) = connecting.await else { return reset(&client) };
    // What fails here is gone already.
    let _ = (client.set_nodelay(true), leader.set_nodelay(true));
    if tokio::io::copy_bidirectional(&mut client, &mut leader).await.is_err() {
        reset(&client);
        reset(&leader);
    }
}

/// Makes closing it a reset.
fn reset(stream: &TcpStream) {
    let now = libc::linger { l_onoff: 1, l_linger: 0 };
    // Fails when it is gone already.
    let _ = setsockopt(stream, sockopt::Linger, &now);
}
