//! Asks each node for its status, over and over: one thread a node, so that one that hangs delays no other.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Thread;
use std::time::{Duration, Instant};

use skein_node::NodeStatus;

use crate::admin;

/// The longest time for one answer.
const LIMIT: Duration = Duration::from_secs(2);
/// The pause between two questions when something is going on.
const HURRY: Duration = Duration::from_millis(10);
/// The pause when all is well: short enough to report changes, long enough to cost little.
const CALM: Duration = Duration::from_secs(1);
/// The pause when nobody uses the node either: then a question is a tenth of what it costs to run.
const IDLE: Duration = Duration::from_secs(5);

/// The threads that ask.
pub struct Pollers {
    threads: Vec<Thread>,
    hurry: Arc<AtomicBool>,
}

impl Pollers {
    /// Starts the threads; `tell` receives the answers, or when a question was asked that has none.
    pub fn start<F>(nodes: Vec<(u64, PathBuf)>, tell: F) -> std::io::Result<Self>
    where
        F: Fn(u64, Result<NodeStatus, Instant>) + Clone + Send + 'static,
    {
        let hurry = Arc::new(AtomicBool::new(true));
        let mut threads = Vec::new();
        for (id, socket) in nodes {
            let (tell, hurry) = (tell.clone(), Arc::clone(&hurry));
            let ask = move || {
                loop {
                    let asked = Instant::now();
                    let answer = status(&socket, LIMIT).ok_or(asked);
                    let calm = if answer.as_ref().is_ok_and(|s| s.idle) { IDLE } else { CALM };
                    tell(id, answer);
                    let pause = if hurry.load(Ordering::Relaxed) { HURRY } else { calm };
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
