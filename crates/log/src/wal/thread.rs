//! The thread that owns the [`Wal`] of a running node: group commit.
//!
//! It takes whatever [`Persist`]s have gathered while the last sync ran, appends them all and syncs once. Then it tells
//! the node which ticket is durable by a callback, which is expected to do no more than store a number and wake a
//! reactor. After a failure it says so once and takes nothing more. Dropping [`WalThread`] writes what was handed over
//! and joins the thread.

use super::{Wal, WalError};
use crate::types::{Persist, Ticket};
use std::{
    io,
    sync::mpsc,
    thread::{Builder, JoinHandle},
};

/// How many bytes of entries one group gathers at most, so that a backlog does not delay its first entry for long.
const GROUP_BYTES: usize = 4 << 20;

/// See the module.
pub struct WalThread {
    sender: Option<mpsc::Sender<Persist>>,
    thread: Option<JoinHandle<()>>,
}

impl WalThread {
    /// Starts the thread. `durable` is called there with the newest durable ticket, or with the failure that ended it.
    pub fn spawn(
        wal: Wal,
        durable: impl FnMut(Result<Ticket, WalError>) + Send + 'static,
    ) -> io::Result<Self> {
        let (sender, receiver) = mpsc::channel();
        let thread = Builder::new()
            .name("skein-wal".to_owned())
            .spawn(move || run(wal, &receiver, durable))?;
        Ok(Self { sender: Some(sender), thread: Some(thread) })
    }

    /// Hands over the next thing to make durable. After a failure it is dropped: its ticket is never reported.
    pub fn append(&self, persist: Persist) {
        if let Some(sender) = &self.sender {
            // The receiver is gone after a failure only, which was reported.
            let _ = sender.send(persist);
        }
    }
}

impl Drop for WalThread {
    fn drop(&mut self) {
        self.sender = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(
    mut wal: Wal,
    receiver: &mpsc::Receiver<Persist>,
    mut durable: impl FnMut(Result<Ticket, WalError>),
) {
    while let Ok(first) = receiver.recv() {
        let result = commit_group(&mut wal, first, receiver);
        let failed = result.is_err();
        durable(result);
        if failed {
            return;
        }
        // Nobody waits for this.
        if let Err(error) = wal.prepare() {
            durable(Err(error));
            return;
        }
    }
}

fn commit_group(
    wal: &mut Wal,
    first: Persist,
    receiver: &mpsc::Receiver<Persist>,
) -> Result<Ticket, WalError> {
    let mut bytes = 0;
    let mut next = Some(first);
    let mut ticket = Ticket::default();
    while let Some(persist) = next {
        wal.append(&persist)?;
        ticket = persist.ticket;
        bytes += persist.entries.iter().map(|entry| entry.payload.len()).sum::<usize>();
        next = if bytes < GROUP_BYTES { receiver.try_recv().ok() } else { None };
    }
    wal.sync()?;
    Ok(ticket)
}
