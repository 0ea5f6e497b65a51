//! Pre-copy of a server's memory before it stands for an image ([`skein_image::precopy`]), on a thread of its own that other threads go before.

use super::Mailbox;
use super::images::{step_back, tell};
use super::taking::{COPIES, Known, LastImage, compares};
use crate::server::cores::run_anywhere;
use skein_image::MemoryError;
use skein_replica::environment::ImageNews;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::Instant;

/// A server writes on while its memory is read: that is read again, so often at most,
const ROUNDS: u32 = 4;
/// unless it is so little that it is read when the server stands.
const FEW: usize = 128;

/// Of smaller mappings there is not much to read when the server stands.
const MIN_BYTES: u64 = 1 << 20;

/// It is being done, or was.
pub(super) struct Precopying {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Precopying {
    /// Begins it with the processes below `init`; none if there is no image before, without which it is of no use.
    pub(super) fn begin(known: &Known, mailbox: &Mailbox, init: u32) -> io::Result<Option<Self>> {
        if compares() || known.lock().expect("no holder panics").last_image().is_none() {
            return Ok(None);
        }
        let is_over = Arc::new(AtomicBool::new(false));
        let (known, mailbox, over) = (known.clone(), mailbox.clone(), is_over.clone());
        let read = move || {
            run_anywhere();
            step_back();
            let image = known.lock().expect("no holder panics").last_image().take();
            let is_wanted = &mut || !over.load(Ordering::Relaxed);
            let image = image.and_then(|image| {
                read(image, init, is_wanted)
                    .inspect_err(|error| {
                        tracing::warn!(event = "memory_not_read_ahead", %error);
                    })
                    .ok()
            });
            *known.lock().expect("no holder panics").last_image() = image;
            tell(&mailbox, ImageNews::Prepared);
        };
        let thread = Builder::new().name("skein-precopy".into()).spawn(read)?;
        Ok(Some(Self { is_over, thread }))
    }

    /// Whether it need not be waited for.
    pub(super) fn is_done(&self) -> bool {
        self.thread.is_finished()
    }

    /// Ends it: what was read counts.
    pub(super) fn end(self) {
        self.is_over.store(true, Ordering::Relaxed);
        // One that panicked has put nothing back, and the next image reads all.
        let _ = self.thread.join();
    }
}

/// Reads what the processes have written since this image.
fn read(
    mut image: LastImage,
    init: u32,
    is_wanted: &mut dyn FnMut() -> bool,
) -> Result<LastImage, MemoryError> {
    let begun = Instant::now();
    let LastImage { before, precopied, .. } = &mut image;
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let pages = precopied.read(init, before, MIN_BYTES, begun + COPIES, is_wanted)?;
        let is_less = rounds.last().is_none_or(|last| pages < *last);
        rounds.push(pages);
        if pages <= FEW || !is_less || !is_wanted() {
            break;
        }
    }
    let us = begun.elapsed().as_micros() as u64;
    tracing::debug!(event = "memory_read_ahead", ?rounds, pages = precopied.pages(), us);
    Ok(image)
}
