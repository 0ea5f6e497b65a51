//! Asks each node for its status, over and over: one thread a node, so that one that hangs delays no other.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::Thread;
use std::time::{Duration, Instant};

use skein_node::NodeStatus;

use super::watch::Pace;
use crate::admin;

/// The longest time for one answer.
const LIMIT: Duration = Duration::from_secs(2);
/// The threads that ask.
pub struct Pollers {
    threads: Vec<Thread>,
    /// The pause between two questions, in ms.
    pause: Arc<AtomicU64>,
}

impl Pollers {
    /// Starts the threads; `tell` receives the answers, or when a question was asked that has none.
    pub fn start<F>(nodes: Vec<(u64, PathBuf)>, tell: F) -> std::io::Result<Self>
    where
        F: Fn(u64, Result<NodeStatus, Instant>) + Clone + Send + 'static,
    {
        let pause = Arc::new(AtomicU64::new(Pace::Hurry.pause_ms()));
        let mut threads = Vec::new();
        for (id, socket) in nodes {
            let (tell, pause) = (tell.clone(), Arc::clone(&pause));
            let ask = move || {
                loop {
                    let asked = Instant::now();
                    tell(id, status(&socket, LIMIT).ok_or(asked));
                    let pause = Duration::from_millis(pause.load(Ordering::Relaxed));
                    std::thread::park_timeout(pause);
                }
            };
            let thread = std::thread::Builder::new().name(format!("status-{id}")).spawn(ask)?;
            threads.push(thread.thread().clone());
        }
        Ok(Self { threads, pause })
    }

    /// Asks so often.
    pub fn set_pace(&self, pace: Pace) {
        let pause = pace.pause_ms();
        if self.pause.swap(pause, Ordering::Relaxed) > pause {
            self.threads.iter().for_each(Thread::unpark);
        }
    }
}

/// A node's status, if it answers in time and in the right form.
pub fn status(socket: &std::path::Path, limit: Duration) -> Option<NodeStatus> {
    let body = admin::get(socket, "/status", limit).ok()?;
    serde_json::from_slice(&body).ok()
}
