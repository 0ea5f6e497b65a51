//! Pre-copy of a server's memory before it stands for an image ([`skein_image::precopy`]), on a thread of its own that other threads go before.

use super::Mailbox;
use super::images::{step_back, tell};
use super::taking::{Known, LastImage, Server, compares};
use crate::images::Store;
use crate::server::cores::run_anywhere;
use skein_image::shared::SharedAhead;
use skein_image::{MemoryError, Room};
use skein_replica::environment::ImageNews;
use skein_replica::server::Stood;
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// A server writes on while its memory is read: that is read again, so often at most,
const ROUNDS: u32 = 4;
/// unless it is so little that it is read when the server stands.
const FEW: usize = 128;
/// Of less memory that processes share there is not much to read when the server stands.
const MIN_BYTES: u64 = 1 << 20;
/// What was not read within this time is read when the server stands.
const LONGEST: Duration = Duration::from_secs(2);

/// It is being done, or was. What nobody [ended](Self::end), but dropped, is of no use.
pub(super) struct Precopying {
    told: Arc<Told>,
    thread: Option<JoinHandle<()>>,
}

/// What its thread is told.
#[derive(Default)]
struct Told {
    is_over: AtomicBool,
    /// Nobody waits for its end: another image may be taken by then, and what it knows not count any more.
    is_abandoned: AtomicBool,
}

impl Precopying {
    /// Begins it with a server that knows these paths of its host; none where the kernel does not tell which pages were written.
    pub(super) fn begin(
        known: &Known,
        store: &Store,
        mailbox: &Mailbox,
        stood: Stood,
        paths: &BTreeSet<Vec<u8>>,
    ) -> io::Result<Option<Self>> {
        if compares() {
            return Ok(None);
        }
        let told = Arc::<Told>::default();
        let (known, mailbox, own) = (known.clone(), mailbox.clone(), told.clone());
        let has_image = known.lock().expect("no holder panics").has_image(store);
        let paths = if has_image { BTreeSet::new() } else { paths.clone() };
        let (store, server) = (store.clone(), Server::of(stood));
        let read = move || {
            run_anywhere();
            step_back();
            let begun = Instant::now();
            let (image, gone) = known.lock().expect("no holder panics").take_image();
            let is_wanted =
                &mut || !own.is_over.load(Ordering::Relaxed) && begun.elapsed() < LONGEST;
            let image = image.filter(|image| image.counts(&store));
            let image =
                image.unwrap_or_else(|| LastImage::none(&store, &server, &paths, is_wanted()));
            let image = read(image, &server, is_wanted);
            let mut known = known.lock().expect("no holder panics");
            let useless = match image {
                Ok(image) if !own.is_abandoned.load(Ordering::Relaxed) => {
                    known.put_image(image, gone)
                }
                Err(error) => {
                    tracing::warn!(event = "memory_not_read_ahead", %error);
                    None
                }
                Ok(image) => Some(image),
            };
            drop(known);
            drop(useless);
            tell(&mailbox, ImageNews::Prepared);
        };
        let thread = Some(Builder::new().name("skein-precopy".into()).spawn(read)?);
        Ok(Some(Self { told, thread }))
    }

    /// Whether it need not be waited for.
    pub(super) fn is_done(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// It is to end soon.
    pub(super) fn hurry(&self) {
        self.told.is_over.store(true, Ordering::Relaxed);
    }

    /// Ends it: what was read counts.
    pub(super) fn end(mut self) {
        self.hurry();
        // One that panicked has put nothing back, and the next image reads all.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl Drop for Precopying {
    fn drop(&mut self) {
        self.told.is_abandoned.store(true, Ordering::Relaxed);
        self.hurry();
    }
}

/// Reads what the processes have written since this image, or ever.
fn read(
    mut image: LastImage,
    server: &Server,
    is_wanted: &mut dyn FnMut() -> bool,
) -> Result<LastImage, MemoryError> {
    let begun = Instant::now();
    let LastImage { before, precopied, pages, rooms, shared, .. } = &mut image;
    // It takes off what protects pages.
    drop(shared.take());
    // First: it is not ended when the server is about to stand. Without it the pages get theirs as they come.
    for (pages, room) in pages.iter().zip(&mut *rooms) {
        if *pages >= FEW && room.is_none() {
            *room = Room::new(*pages, is_wanted).ok();
        }
    }
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let pages = precopied.read(server.init, before, is_wanted)?;
        let is_less = rounds.last().is_none_or(|last| pages < *last);
        rounds.push(pages);
        if pages <= FEW || !is_less || !is_wanted() {
            break;
        }
    }
    // Last: it is read once, and all that is written to it from then on is read again.
    let (arena, init, room) = (&server.arena, server.init, &mut rooms[1]);
    *shared = SharedAhead::read(arena, init, before, MIN_BYTES, room, is_wanted);
    let us = begun.elapsed().as_micros() as u64;
    let (pages, shared) = (precopied.pages(), shared.as_ref().map_or(0, SharedAhead::pages));
    tracing::debug!(event = "memory_read_ahead", ?rounds, pages, shared, us);
    Ok(image)
}
