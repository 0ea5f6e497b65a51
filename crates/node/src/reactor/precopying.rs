//! Pre-copy of a server's memory before it stands for an image ([`skein_image::precopy`]), on a thread of its own.
//!
//! Other threads go before one that reads much. What the server wrote meanwhile is read without that: on a busy host it would have written as much again by the time it stands.

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
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Builder, JoinHandle};
use std::time::{Duration, Instant};

/// A server writes on while its memory is read: that is read again, so often at most,
const ROUNDS: usize = 4;
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
            let begun = Instant::now();
            let (image, gone) = known.lock().expect("no holder panics").take_image();
            let is_wanted = || !own.is_over.load(Ordering::Relaxed) && begun.elapsed() < LONGEST;
            let image = image.filter(|image| image.counts(&store));
            let much = behind_others(|| {
                let image =
                    image.unwrap_or_else(|| LastImage::none(&store, &server, &paths, is_wanted()));
                read_much(image, &server, &is_wanted)
            });
            let image =
                much.and_then(|(image, pages)| read_rest(image, pages, &server, &is_wanted));
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

/// Does this on a thread that others go before.
fn behind_others<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let mut work = Some(work);
    let mut done = || {
        step_back();
        work.take().expect("it is done once")()
    };
    let on_its_own = thread::scope(|scope| {
        let name = "skein-precopy".into();
        let thread = Builder::new().name(name).spawn_scoped(scope, &mut done).ok()?;
        Some(thread.join().unwrap_or_else(|panic| resume_unwind(panic)))
    });
    // There may be no more threads.
    on_its_own.unwrap_or_else(done)
}

/// Reads what the processes have written since this image, or ever, and what they share. Answers how many pages it knows more of what is theirs alone.
fn read_much(
    mut image: LastImage,
    server: &Server,
    is_wanted: &dyn Fn() -> bool,
) -> Result<(LastImage, usize), MemoryError> {
    let begun = Instant::now();
    let is_wanted = &mut || is_wanted();
    let LastImage { before, precopied, pages, rooms, shared, .. } = &mut image;
    // It takes off what protects pages.
    drop(shared.take());
    // First: it is not ended when the server is about to stand. Without it the pages get theirs as they come.
    for (pages, room) in pages.iter().zip(&mut *rooms) {
        if *pages >= FEW && room.is_none() {
            *room = Room::new(*pages, is_wanted).ok();
        }
    }
    let learned = precopied.read(server.init, before, is_wanted)?;
    // It is read once, and all that is written to it from then on is read again.
    let (arena, init, room) = (&server.arena, server.init, &mut rooms[1]);
    *shared = SharedAhead::read(arena, init, before, MIN_BYTES, room, is_wanted);
    let us = begun.elapsed().as_micros() as u64;
    let shared = shared.as_ref().map_or(0, SharedAhead::pages);
    tracing::debug!(event = "memory_read_ahead", learned, shared, us);
    Ok((image, learned))
}

/// Reads what they have written meanwhile, so many pages at first, as long as it gets less.
fn read_rest(
    mut image: LastImage,
    first: usize,
    server: &Server,
    is_wanted: &dyn Fn() -> bool,
) -> Result<LastImage, MemoryError> {
    let begun = Instant::now();
    let mut rounds = vec![first];
    while let [.., last] = rounds[..]
        && last > FEW
        && rounds.len() < ROUNDS
        && is_wanted()
    {
        let LastImage { before, precopied, .. } = &mut image;
        let pages = precopied.read(server.init, before, &mut || is_wanted())?;
        rounds.push(pages);
        if pages >= last {
            break;
        }
    }
    let us = begun.elapsed().as_micros() as u64;
    tracing::debug!(event = "rest_read_ahead", ?rounds, pages = image.precopied.pages(), us);
    Ok(image)
}
