//! Old entries for followers that are far behind: read by a thread of their own, so that a slow disk, or a log of many GiB, does not keep the
//! leader from its clients.
//!
//! The thread is started when it is first needed and ends with the reactor; the loop never waits for it. A follower has one read under way at a time, of one message's size.

use super::{Inbox, Mailbox};
use crate::error::NodeError;
use skein_log::wal::WalReader;
use skein_log::{EntryReader, OldEntries};
use std::sync::mpsc::{Sender, channel};
use std::thread::Builder;

/// Reads old entries on another thread.
pub(super) struct OldReader {
    /// Held here until the thread has it.
    reader: Option<WalReader>,
    sender: Option<Sender<OldEntries>>,
}

impl OldReader {
    pub(super) fn new(reader: WalReader) -> Self {
        Self { reader: Some(reader), sender: None }
    }

    pub(super) fn read(&mut self, wanted: OldEntries, mailbox: &Mailbox) -> Result<(), NodeError> {
        if let Some(reader) = self.reader.take() {
            let (sender, receiver) = channel::<OldEntries>();
            let mailbox = mailbox.clone();
            let read = move || {
                for OldEntries { from, to, max_bytes } in receiver {
                    let entries = EntryReader::read(&reader, from, to, max_bytes);
                    if !mailbox.tell(Inbox::Old(from, entries)) {
                        break;
                    }
                }
            };
            Builder::new()
                .name("skein-old".into())
                .spawn(read)
                .map_err(NodeError::system("start a thread"))?;
            self.sender = Some(sender);
        }
        if let Some(sender) = &self.sender {
            // It ends with the reactor, not before.
            let _ = sender.send(wanted);
        }
        Ok(())
    }
}
