//! An image of a server that stands: its files are read ahead where they are much, then it is copied, and may go on; compressing and writing follow.
//!
//! This is the thread of one image, at the loop's priority while the server stands, and at a lower one behind that.

use super::Mailbox;
use super::images::{step_back, tell, trouble};
use crate::images::Store;
use crate::images::files::{self, FilesPacked, FilesSurveyed};
use crate::images::write::FilesAhead;
use crate::server;
use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::Pid;
use skein_arena::Sizes;
use skein_image::ahead::{self, Ahead, Survey, Unread};
use skein_image::before::{Before, Places};
use skein_image::contents::{Contents, Rewritten};
use skein_image::file::Head;
use skein_image::precopy::Precopied;
use skein_image::shared::SharedAhead;
use skein_image::take::{Figures, Forks, Shares, Source, Taken};
use skein_image::{Copied, FilesCopied, MemoryError, PAGE_BYTES, Room};
use skein_model::LogIndex;
use skein_replica::environment::{Image, ImageNews, Trouble};
use skein_replica::server::{Files, MemoryPlace, ServerState, Stood};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The longest time to copy a server that stands,
const COPIES: Duration = Duration::from_secs(20);
/// and to read the copies of its processes when it has gone on: nobody waits for that, and it has little of a busy host's processors.
const READS_COPIES: Duration = Duration::from_secs(600);
/// The longest time to seek the host's files that a server knows, before it stands for its first image.
const SEEKS: Duration = Duration::from_millis(500);
/// Of more files in a server's layer none is sought then.
const SOUGHT: usize = 10_000;
/// The entry of what is there before the first one.
const NO_IMAGE: LogIndex = LogIndex(0);
/// So many pages of files are read while a server stands for them, 32 MiB; more are read ahead,
const AT_ONCE: u64 = 8 << 10;
/// so often at most until there is an image.
const TIMES_AHEAD: u32 = 4;
/// The image is begun again at once; when that cannot be, what was read is kept for other tries for so long.
const KEPT_AHEAD: Duration = Duration::from_secs(60);
/// The variable of a node's environment that lets it read and compare all pages, as where the kernel does not tell which were written.
const COMPARES: &str = "SKEIN_COMPARE_PAGES";

/// Shared by the threads of all images.
pub(super) type Known = Arc<Mutex<LastTaken>>;

/// What the next image need not read or write again, and how often files had been repaired by then ([`Store::repairs`]).
#[derive(Default)]
pub(super) struct LastTaken {
    /// The last image that was taken here, if nothing has gone wrong since.
    image: Option<LastImage>,
    /// Files that were read ahead since.
    ahead: Option<(FilesAhead, u64)>,
    /// How often that was done since the last image of this server.
    times: u32,
    /// How many servers are gone: their files are not kept open.
    gone: u64,
    /// How often something was put here.
    puts: u64,
}

/// The last image that was taken here.
pub(super) struct LastImage {
    index: LogIndex,
    /// How often files had been repaired by then.
    repairs: u64,
    pub(super) before: Before,
    /// What it knows of its server since: in no pack yet.
    pub(super) precopied: Precopied,
    /// So many pages of its files, and of what its processes share, were read while the server stood for it.
    pub(super) pages: [usize; 2],
    /// Memory for the next ones.
    pub(super) rooms: [Option<Room>; 2],
    /// What was read of what its processes share.
    pub(super) shared: Option<SharedAhead>,
}

impl LastImage {
    /// None, for what is read of a server before its first one.
    pub(super) fn none(
        store: &Store,
        server: &Server,
        paths: &BTreeSet<Vec<u8>>,
        is_wanted: bool,
    ) -> Self {
        let mut before = Before::default();
        let deadline = Instant::now() + if is_wanted { SEEKS } else { Duration::ZERO };
        let in_layer = is_wanted.then(|| server::layer(&server.files).paths(SOUGHT));
        let in_layer = in_layer.and_then(Result::ok).unwrap_or_default();
        let in_layer = in_layer.into_iter().map(|path| (path, None)).collect();
        let sought = with_source(server, paths, None, |source| {
            source.seek(&mut before, in_layer, deadline).map_err(|error| error.to_string())
        });
        if let Err(why) = sought {
            // They are sought while it stands.
            tracing::info!(event = "files_not_sought_ahead", why);
        }
        let (index, repairs, precopied) = (NO_IMAGE, store.repairs(), Precopied::default());
        let (pages, rooms, shared) = ([0; 2], [None, None], None);
        Self { index, repairs, before, precopied, pages, rooms, shared }
    }

    /// Whether the next one can begin from it.
    pub(super) fn counts(&self, store: &Store) -> bool {
        let is_there = || self.index == NO_IMAGE || store.any_path(self.index).exists();
        self.repairs == store.repairs() && is_there()
    }
}

impl LastTaken {
    /// Whether there is one that the next can begin from.
    pub(super) fn has_image(&self, store: &Store) -> bool {
        self.image.as_ref().is_some_and(|image| image.counts(store))
    }

    /// Takes it away, and answers how many servers are gone: it counts again when it is [put](Self::put_image) back.
    pub(super) const fn take_image(&mut self) -> (Option<LastImage>, u64) {
        (self.image.take(), self.gone)
    }

    /// Answers what is to be dropped when this is unlocked: of a server that is gone nobody needs what was read ahead.
    pub(super) fn put_image(&mut self, mut image: LastImage, gone: u64) -> Option<LastImage> {
        if self.gone != gone {
            if image.precopied.pages() > 0 {
                return Some(image);
            }
            (image.rooms, image.shared) = ([None, None], None);
        }
        self.image.replace(image)
    }

    /// Takes what is known away: it counts again when it is [put](Self::put) back.
    fn take(&mut self) -> Self {
        let (image, ahead) = (self.image.take(), self.ahead.take());
        Self { image, ahead, times: self.times, gone: self.gone, puts: self.puts }
    }

    /// Answers what is to be dropped when this is unlocked.
    fn put(&mut self, new: Self) -> Option<(FilesAhead, u64)> {
        let puts = self.puts + 1;
        if self.gone != new.gone {
            let of_all = |image: &LastImage| image.precopied.pages() == 0;
            let mut image = new.image.filter(of_all);
            if let Some(image) = &mut image {
                (image.rooms, image.shared) = ([None, None], None);
            }
            (self.image, self.puts) = (image, puts);
            return new.ahead;
        }
        *self = Self { puts, ..new };
        None
    }

    /// Answers what is to be dropped when this is unlocked.
    pub(super) fn forget_server(&mut self) -> impl Send + use<> {
        (self.gone, self.times) = (self.gone + 1, 0);
        let of_shared = self
            .image
            .as_mut()
            .map(|image| (std::mem::take(&mut image.rooms), image.shared.take()));
        (self.ahead.take(), self.image.take_if(|image| image.precopied.pages() > 0), of_shared)
    }

    fn image(&self) -> Option<&Before> {
        self.image.as_ref().map(|image| &image.before)
    }

    fn ahead(&self) -> Option<&Ahead> {
        self.ahead.as_ref().map(|(files, _)| &files.ahead)
    }

    /// Without what does not count any more: pages are in files of this directory, or worth nothing; and files were read as this server has them.
    fn checked(self, store: &Store, arena: &File) -> Self {
        let repairs = store.repairs();
        let is_there = |image: &LastImage| image.counts(store);
        let is_its = |(files, then): &(FilesAhead, u64)| {
            *then == repairs && files.ahead.is_of(arena).unwrap_or(false)
        };
        Self { image: self.image.filter(is_there), ahead: self.ahead.filter(is_its), ..self }
    }
}

/// Takes an image of a server that stands; tells when it need not any longer. None: there is much to read in its files, which was read instead while the server went on; it is to
/// stand again.
pub(super) fn take(
    store: &Store,
    mailbox: &Mailbox,
    known: &Known,
    stood: Stood,
    state: ServerState,
) -> Result<Option<Image>, Trouble> {
    let begun = Instant::now();
    let repairs = store.repairs();
    let server = Server::of(stood);
    let last = known.lock().expect("no holder panics").take();
    let mut last = last.checked(store, &server.arena);
    match unread(&server, &state, &last) {
        Ok(None) => {}
        Ok(Some(unread)) => return read_ahead(store, mailbox, known, &server, last, unread),
        Err(why) => {
            // Nothing was read of its memory: what is known of that still counts.
            let useless = last.ahead.take();
            known.lock().expect("no holder panics").put(last);
            drop(useless);
            return Err(why.into());
        }
    }
    let rooms = last.image.as_mut().map(|image| std::mem::take(&mut image.rooms));
    let [files_room, room] = rooms.unwrap_or_default();
    let read = last.image.as_mut().and_then(|image| image.shared.take());
    let shares = Shares { room, read };
    let mut pause_us = 0;
    let go_on = |forked| {
        pause_us = begun.elapsed().as_micros() as u64;
        tell(mailbox, ImageNews::Copied { forked });
        step_back();
    };
    let Standing { memory, figures, places, layer, contents } =
        copy(store, &server, &state, &last, (files_room, shares), go_on)?;
    let encoded = state.encode();
    let copies = [&memory, &layer];
    let head = head(store, &state, &encoded, figures.processes, copies);
    let files = last.ahead.as_ref().map(|(files, _)| files);
    let precopied = last.image.as_ref().map(|image| &image.precopied);
    let written =
        store.write(&head, &encoded, copies, files, precopied).map_err(|error| trouble(&error))?;
    let read_ahead = precopied.map_or(0, Precopied::pages);
    let (copied, file_pages) = (memory.fresh(), layer.fresh());
    let fresh = (copied + file_pages) as u64;
    drop((memory, layer));
    drop(last.ahead.take());
    let file = written.file;
    let before = places.with(written.hashes, written.of_files, contents);
    tell(mailbox, ImageNews::Read { index: state.index, root: before.root(), pages: fresh });
    let (index, precopied) = (state.index, Precopied::default());
    let (pages, rooms, shared) = ([file_pages, figures.shared], [None, None], None);
    let image = LastImage { index, repairs, before, precopied, pages, rooms, shared };
    let image = Some(image);
    known.lock().expect("no holder panics").put(LastTaken { image, times: 0, ..last });
    tracing::debug!(
        event = "image_written",
        index = head.index.0,
        bytes = file.bytes,
        written = written.written,
        pages = figures.pages,
        copied,
        read_ahead,
        spared = figures.spared,
        shared = figures.shared,
        shared_before = figures.shared_before,
        shared_again = figures.shared_again,
        memory = head.memory_bytes,
        files = head.layer_bytes,
        processes = head.processes,
        pause_us,
        ms = begun.elapsed().as_millis() as u64
    );
    Ok(Some(Image { state: Arc::new(state), file }))
}

/// Waits as long as files that were read ahead may be of use, and drops them: they are kept open, and take room.
pub(super) fn forget_files_unless_used(known: &Known) {
    let lock = || known.lock().expect("no holder panics");
    let puts = lock().puts;
    thread::sleep(KEPT_AHEAD);
    let mut now = lock();
    let unused = if now.puts == puts { now.ahead.take() } else { None };
    drop(now);
    drop(unused);
}

/// Lets a server go on, and reads its files beside it for an image that is to be begun again.
fn read_ahead(
    store: &Store,
    mailbox: &Mailbox,
    known: &Known,
    server: &Server,
    last: LastTaken,
    unread: Unread,
) -> Result<Option<Image>, Trouble> {
    let (begun, repairs, pages) = (Instant::now(), store.repairs(), unread.pages());
    tell(mailbox, ImageNews::Copied { forked: false });
    step_back();
    let LastTaken { image, ahead, times, gone, puts } = last;
    let is_wanted = || known.lock().expect("no holder panics").gone == gone && server.lives();
    let read = store.read_ahead(unread, ahead.map(|(files, _)| files), &is_wanted);
    let (ahead, failed) = match read {
        Ok(files) => (Some((files, repairs)), None),
        Err(error) => (None, Some(trouble(&error))),
    };
    let times = times + 1;
    let new = LastTaken { image, ahead, times, gone, puts };
    let useless = known.lock().expect("no holder panics").put(new);
    drop(useless);
    match failed {
        Some(why) => Err(why),
        None => {
            let ms = begun.elapsed().as_millis() as u64;
            tracing::info!(event = "files_read_ahead", pages, times, ms);
            Ok(None)
        }
    }
}

/// What a server that stands has in its files and no image has, if that is so much that it is read while the server goes on. Not for ever: one that writes faster than it is read
/// stands in the end.
fn unread(
    server: &Server,
    state: &ServerState,
    last: &LastTaken,
) -> Result<Option<Unread>, String> {
    if last.times >= TIMES_AHEAD {
        return Ok(None);
    }
    let Server { files, arena, sizes, .. } = server;
    let (before, ahead) = (last.image(), last.ahead());
    let failed = |error: MemoryError| error.to_string();
    let layer = server::layer(files);
    let unreadable =
        |error| MemoryError::Read { what: "the server's files".into(), error }.to_string();
    // First what is quick.
    let pages = match ahead::noted(arena, *sizes, before, ahead).map_err(failed)? {
        Some(pages) => pages,
        None => match layer.bytes_at_most().map_err(unreadable)? {
            Some(most) if most / PAGE_BYTES <= AT_ONCE => return Ok(None),
            _ => layer.bytes().map_err(unreadable)? / PAGE_BYTES,
        },
    };
    if pages <= AT_ONCE {
        return Ok(None);
    }
    let survey = Survey::new(arena, *sizes, before, ahead).map_err(failed)?;
    let mut survey = FilesSurveyed(survey);
    layer.pack(&mut survey).map_err(unreadable)?;
    let unread = survey.0.finish();
    if unread.pages() <= AT_ONCE {
        return Ok(None);
    }
    // In vain, if an image cannot hold what the server has: of one that had an image it has nearly always.
    if last.image.as_ref().is_none_or(|image| image.index == NO_IMAGE) {
        let deadline = Instant::now() + COPIES;
        with_source(server, &state.paths, ahead, |source| source.check(deadline).map_err(failed))?;
    }
    Ok(Some(unread))
}

/// The head of an image of a server of so many processes: of its memory and its files.
fn head(
    store: &Store,
    state: &ServerState,
    encoded: &[u8],
    processes: usize,
    [memory, layer]: [&Copied<'_>; 2],
) -> Head {
    Head {
        owner: *store.owner(),
        index: state.index,
        term: state.term,
        taken_ms: now_ms(),
        processes: processes as u64,
        state_bytes: encoded.len() as u64,
        memory_bytes: memory.len(),
        layer_bytes: layer.len(),
    }
}

/// Keeps the files of a server that has ended as an image without processes. What the image before has of them is not read again: the next server waits for it.
pub(super) fn keep_files(
    store: &Store,
    known: &Known,
    files: &Files,
    memory: Option<MemoryPlace>,
    state: ServerState,
) -> Result<Image, Trouble> {
    let last = known.lock().expect("no holder panics").take();
    if let Some(memory) = memory {
        let arena = File::from(memory.arena);
        let last = last.checked(store, &arena);
        let rewritten = ahead::rewritten(&arena, memory.sizes, last.image(), last.ahead());
        let kept = rewritten
            .map_err(|error| error.to_string().into())
            .and_then(|rewritten| keep(store, &last, rewritten, files, &state));
        match kept {
            Ok(image) => return Ok(image),
            // The image before may be gone by now.
            Err(why) => tracing::warn!(event = "files_not_kept", ?why),
        }
    }
    keep(store, &LastTaken::default(), Rewritten::default(), files, &state)
}

fn keep(
    store: &Store,
    last: &LastTaken,
    rewritten: Rewritten,
    files: &Files,
    state: &ServerState,
) -> Result<Image, Trouble> {
    let begun = Instant::now();
    let (before, beyond) = (last.image(), Some(store.beyond()));
    let mut packed = FilesPacked(FilesCopied::new(before, last.ahead(), rewritten, beyond));
    let (s, ns) = (state.wall.0 / 1_000_000_000, state.wall.0 % 1_000_000_000);
    let time = (s.cast_signed(), ns.cast_signed());
    server::layer(files)
        .pack_left(&mut packed, time)
        .map_err(|error| format!("the server's files cannot be packed: {error}"))?;
    let (layer, _) = packed.0.finish();
    let memory = Copied::new();
    let encoded = state.encode();
    let copies = [&memory, &layer];
    let head = head(store, state, &encoded, 0, copies);
    let ahead = last.ahead.as_ref().map(|(files, _)| files);
    let written =
        store.write(&head, &encoded, copies, ahead, None).map_err(|error| trouble(&error))?;
    tracing::info!(
        event = "files_kept",
        index = head.index.0,
        bytes = head.layer_bytes,
        read = layer.fresh() as u64 * PAGE_BYTES,
        ms = begun.elapsed().as_millis() as u64
    );
    Ok(Image { state: Arc::new(state.clone()), file: written.file })
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64)
}

/// A server to be read.
pub(super) struct Server {
    files: Files,
    pub(super) init: u32,
    pub(super) arena: File,
    sizes: Sizes,
}

impl Server {
    pub(super) fn of(stood: Stood) -> Self {
        let Stood { files, memory: MemoryPlace { init, arena, sizes, .. }, .. } = stood;
        Self { files, init, arena: arena.into(), sizes }
    }

    /// Whether it has not ended: its node takes the status of its first process at once.
    fn lives(&self) -> bool {
        kill(Pid::from_raw(self.init.cast_signed()), None) != Err(Errno::ESRCH)
    }
}

/// A copy of a server that stood.
struct Standing<'b> {
    memory: Copied<'b>,
    figures: Figures,
    places: Places,
    layer: Copied<'b>,
    contents: Contents,
}

/// When a server forks for an image. Each page that is read while it stands costs some 3 us; each that a fork copies 0.1 to 0.2 us, and later a fault when the server writes it. A row of
/// pages that it does without costs 3 us.
const FORKS: Forks =
    Forks { for_pages: |read, copied| read > 1024 && read > copied / 16, spares: 64 };

pub(super) fn compares() -> bool {
    std::env::var_os(COMPARES).is_some()
}

/// A server as it is read.
fn with_source<T>(
    server: &Server,
    paths: &BTreeSet<Vec<u8>>,
    ahead: Option<&Ahead>,
    with: impl FnOnce(&Source<'_>) -> Result<T, String>,
) -> Result<T, String> {
    let Server { files, init, arena, sizes } = server;
    let (init, sizes) = (*init, *sizes);
    let outfit = server::outfit(files);
    let given = outfit.given().ok_or("what the server prints into is not known")?;
    let layer = server::layer(files);
    let root = layer.root().ok_or("the server's root was not seen")?;
    let host = paths.iter().map(|path| PathBuf::from(OsStr::from_bytes(path)));
    let paths = || host.clone().map(|path| (path, None)).collect();
    let given = [given, given];
    let watches = !compares();
    let (paths, numbers) = (&paths, outfit.numbers());
    let (mounts, forks) = (&layer.mounts()[..], FORKS);
    with(&Source { init, arena, sizes, given, root, paths, mounts, watches, numbers, forks, ahead })
}

/// Calls `copied` when the server may go on.
fn copy<'b>(
    store: &Store,
    server: &Server,
    state: &ServerState,
    last: &'b LastTaken,
    (files_room, shares): (Option<Room>, Shares),
    copied: impl FnOnce(bool),
) -> Result<Standing<'b>, String> {
    let (before, ahead) = (last.image(), last.ahead());
    let deadline = Instant::now() + COPIES;
    let layer = server::layer(&server.files);
    with_source(server, &state.paths, ahead, |source| {
        let mut packed = None;
        let pack = |rewritten: &mut Rewritten| {
            let (now, beyond) = (std::mem::take(rewritten), Some(store.beyond()));
            let files = FilesCopied::new(before, ahead, now, beyond).with_room(files_room);
            let mut files = FilesPacked(files.until(deadline));
            let paths = layer.pack(&mut files).map_err(MemoryError::read("the server's files"))?;
            packed = Some(files.0.finish());
            let about = |(path, shown): (_, Option<_>)| (path, shown.as_ref().map(files::about));
            Ok(paths.into_iter().map(about).collect())
        };
        let standing =
            source.stand(before, shares, deadline, pack).map_err(|error| error.to_string())?;
        if compares() {
            tracing::info!(event = "pages_compared", index = state.index.0);
        }
        if let Some(why) = standing.stood_because() {
            tracing::info!(event = "image_without_fork", index = state.index.0, why);
        }
        let (layer, contents) = packed.expect("files are packed while the server stands");
        let forked = standing.is_forked();
        let deadline = if forked { Instant::now() + READS_COPIES } else { deadline };
        let taken = standing.finish(deadline, || copied(forked));
        let Taken { copied: memory, figures, places, .. } = taken.map_err(|e| e.to_string())?;
        Ok(Standing { memory, figures, places, layer, contents })
    })
}
