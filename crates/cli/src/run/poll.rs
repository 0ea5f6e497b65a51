//! Asks each node for its status, over and over: one thread a node, so that one that hangs delays no other.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Thread;
use std::time::Duration;

use skein_node::NodeStatus;

use crate::admin;

/// The longest time for one answer.
const LIMIT: Duration = Duration::from_secs(2);
/// The pause between two questions when something is going on.
const HURRY: Duration = Duration::from_millis(10);
/// The pause when all is well: short enough to report changes, long enough to cost nothing.
const CALM: Duration = Duration::from_secs(1);

/// The threads that ask.
pub struct Pollers {
    threads: Vec<Thread>,
    hurry: Arc<AtomicBool>,
}

impl Pollers {
    /// Starts the threads; `tell` receives the answers.
    pub fn start<F>(nodes: Vec<(u64, PathBuf)>, tell: F) -> std::io::Result<Self>
    where
        F: Fn(u64, NodeStatus) + Clone + Send + 'static,
    {
        let hurry = Arc::new(AtomicBool::new(true));
        let mut threads = Vec::new();
        for (id, socket) in nodes {
            let (tell, hurry) = (tell.clone(), Arc::clone(&hurry));
            let ask = move || {
                loop {
                    if let Some(status) = status(&socket, LIMIT) {
                        tell(id, status);
                    }
                    let pause = if hurry.load(Ordering::Relaxed) { HURRY } else { CALM };
                    std::thread::park_timeout(pause);
                }
            };
            let thread = std::thread::Builder::new().name(format!("status-{id}")).spawn(ask)?;
            threads.push(thread.thread().clone());
        }
        Ok(Self { threads, hurry })
    }

    /// Asks fast, or slowly.
    pub fn set_hurry(&self, hurry: bool) {
        if self.hurry.swap(hurry, Ordering::Relaxed) != hurry && hurry {
            self.threads.iter().for_each(Thread::unpark);
        }
    }
}

/// A node's status, if it answers in time and in the right form.
pub fn status(socket: &std::path::Path, limit: Duration) -> Option<NodeStatus> {
    let body = admin::get(socket, "/status", limit).ok()?;
    serde_json::from_slice(&body).ok()
}
