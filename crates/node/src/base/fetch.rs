//! Fills a base from other replicas, before anything of this node begins: a replica that joins a cluster, is
//! late at its founding, or has lost its directory, needs nothing of its host. Also serves
//! others.
//!
//! What comes is checked: an index leads nowhere out of the base, and contents have their digests. They are kept one by one, and each as far as it came, so a broken transfer goes on
//! where it ended. That of an edition, whose index comes last, begins anew when the node has started again: a start removes what no index names.

use super::contents::next_data;
use super::index::{Contents, Index, Kept};
use super::store::{Digest, Hold, LARGE_BYTES, Part, digest_of};
use super::wire::{Answer, Question, What};
use super::{Base, failed};
use crate::begin;
use crate::config::{Isolation, NodeConfig};
use crate::error::NodeError;
use crate::key;
use crate::transport::Address;
use crate::transport::wire::{BASE, PART_BYTES, Turns, Wire};
use skein_log::ClusterId;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// While contents are lost, and no other replica can be reached, it is tried so long: they may be starting, too.
const PATIENCE: Duration = Duration::from_secs(20);
/// The pause before the next round of asking.
const PAUSE: Duration = Duration::from_millis(200);
/// One that asks for an edition waits 5 s, and asks again: it is not answered longer, so that no more than a few are at it.
const ASKED_FOR: Duration = Duration::from_secs(6);
/// Others ask again.
static TURNS: Turns = Turns::new(16);
/// No file is larger: 16 TiB, as on ext4.
const SIZE_MAX: u64 = 16 << 40;
/// A longer index is not taken: 64 MiB.
const INDEX_BYTES_MAX: u64 = 64 << 20;

/// The base of a node that is about to start, with what it lacked, as far as other replicas have that.
///
/// # Errors
/// It cannot be read or written.
pub fn filled(config: &NodeConfig) -> Result<Base, NodeError> {
    let base = Base::open(&config.data_dir)?;
    // Servers that see their host's files have none.
    let has_none = config.server.isolation == Isolation::None;
    if has_none || base.others(config).is_empty() {
        return Ok(base);
    }
    let joins = begin::asked(&config.data_dir)?.is_some_and(|incarnation| incarnation > 0);
    let mut until = Instant::now() + PATIENCE;
    loop {
        let lost = base.lost()?;
        base.objects.save_notes();
        // The runtime is pinned before anybody can be asked.
        let is_new = base.index().program.is_none();
        if lost.is_empty() && !is_new {
            return Ok(base);
        }
        // A new one begins with the host's files if nobody has others; the log refuses those that differ. One that joins waits for the others in any case.
        let before = base.objects.parts_came();
        let came = ask_all(config, &base, What::Index, lost)?;
        let waits = came == Came::Nobody && joins || came != Came::All && !is_new;
        if !waits {
            return Ok(base);
        }
        if base.objects.parts_came() > before {
            // A transfer that broke goes on where it ended.
            until = Instant::now() + PATIENCE;
        }
        if Instant::now() > until {
            // The host's files may be others, and its log would be made for them.
            return if joins && is_new { Err(NodeError::NobodyGives) } else { Ok(base) };
        }
        sleep(PAUSE);
    }
}

/// Gets contents that were found damaged beside a running server; it sees them when it starts again. False: no other replica that can be reached has them, or they are
/// being got. Indexes are made meanwhile: it may take long.
///
/// # Errors
/// They cannot be written.
pub(super) fn mend(base: &Base, lost: BTreeMap<Digest, (PathBuf, u64)>) -> Result<bool, NodeError> {
    match base.node() {
        Some(config) => Ok(ask_all(config, base, What::Index, lost)? == Came::All),
        None => Ok(false),
    }
}

/// Pins what others have pinned and this one has not: entries that say so went by, as the log begins behind an image of another replica's. `edition`: for that one's
/// base. Answers the index with that, if something is new, and whether one of the others has given all that it can.
///
/// # Errors
/// It cannot be written.
pub(super) fn missing(
    base: &Base,
    edition: Option<Digest>,
) -> Result<(Option<Index>, bool), NodeError> {
    let Some(config) = base.node() else { return Ok((None, true)) };
    let others = base.others(config);
    if others.is_empty() {
        return Ok((None, true));
    }
    let key = key::configured(config)?;
    let what = edition.map_or(What::Index, What::Edition);
    let before = base.index();
    let mut index = (*before).clone();
    let mut answered = false;
    for (peer, address) in others {
        let connected = Wire::connect(BASE, &address, key.as_ref(), ClusterId(config.cluster()));
        let rate = config.checkpoint.fetch_bytes_per_s;
        let fetch = |wire| Fetch { wire, base, rate, index: Some(what), knows_holes: false };
        match connected.and_then(|wire| fetch(wire).into(&mut index)) {
            Ok(None) => {}
            Ok(Some(pins)) => {
                answered = true;
                tracing::info!(event = "base_compared", peer, pins);
            }
            Err(error) => tracing::debug!(event = "base_not_compared", peer, %error),
        }
    }
    let grown = (index.files.len() > before.files.len() || index != *before).then_some(index);
    Ok((grown, answered))
}

/// The base of an edition of the server, with what it lacked. `main`: the node's own.
///
/// # Errors
/// It cannot be had from another replica, or not be written.
pub fn edition(main: &Base, digest: Digest) -> Result<Base, NodeError> {
    let _all = main.objects.keep_all();
    if let Some(base) = edition_here(main, digest)? {
        return Ok(base);
    }
    let _making = main.objects.making();
    get_edition(main, digest)
}

/// The same, for one who asks again: `None` if others are being got.
fn edition_soon(
    main: &Base,
    digest: Digest,
    patience: Duration,
) -> Result<Option<Base>, NodeError> {
    let _all = main.objects.keep_all();
    if let Some(base) = edition_here(main, digest)? {
        return Ok(Some(base));
    }
    match main.objects.making_within(patience) {
        Some(_making) => get_edition(main, digest).map(Some),
        None => Ok(None),
    }
}

/// The base of an edition that lacks nothing: another one may be on its way for long.
fn edition_here(main: &Base, digest: Digest) -> Result<Option<Base>, NodeError> {
    let base = main.of_edition(digest)?;
    if base.is_empty() || !base.lost()?.is_empty() {
        return Ok(None);
    }
    base.objects.save_notes();
    Ok(Some(base))
}

fn get_edition(main: &Base, digest: Digest) -> Result<Base, NodeError> {
    let mut until = Instant::now() + PATIENCE;
    loop {
        let base = main.of_edition(digest)?;
        let lost = base.lost()?;
        base.objects.save_notes();
        // Some may be on their way already.
        if lost.keys().any(|digest| main.objects.is_coming(*digest)) {
            until = Instant::now() + PATIENCE;
        }
        if lost.is_empty() && !base.is_empty() {
            return Ok(base);
        }
        let config = main.node().filter(|config| !main.others(config).is_empty());
        let before = base.objects.parts_came();
        let came = match config {
            Some(config) => ask_all(config, &base, What::Edition(digest), lost)? == Came::All,
            None => false,
        };
        if came {
            continue;
        }
        if let Err(error) = main.objects.stays() {
            return Err(failed(&main.dir)(error));
        }
        if base.objects.parts_came() > before {
            until = Instant::now() + PATIENCE;
        }
        if config.is_none() || Instant::now() > until {
            return Err(NodeError::Edition {
                about: format!("with the base {digest:.12}"),
                why: "its files are not here, and no other replica that can be reached has them; start one that has taken part in the upgrade".into(),
            });
        }
        sleep(PAUSE);
    }
}

/// Has another replica get the files of an edition, which this one has. `Err`: it cannot have them; `Ok(false)`: it cannot be reached.
///
/// # Errors
/// The reason in words.
pub fn stage_at(
    config: &NodeConfig,
    address: &Address,
    digest: Digest,
    until: Instant,
) -> Result<bool, String> {
    let key = key::configured(config).map_err(|error| error.to_string())?;
    let mut reached = false;
    loop {
        let connected = Wire::connect(BASE, address, key.as_ref(), ClusterId(config.cluster()));
        let answer = connected.and_then(|mut wire| {
            reached = true;
            wire.send(&Question { what: What::Stage(digest), from: 0 }.encode())?;
            wire.receive()
        });
        match answer.map(|bytes| Answer::decode(&bytes)) {
            Ok(Some(Answer { whole: Some(_), .. })) => return Ok(true),
            Ok(Some(Answer { whole: None, bytes })) if !bytes.is_empty() => {
                return Err(String::from_utf8_lossy(&bytes).into_owned());
            }
            // It is at it: that may take longer than one answer may.
            Err(error) if error.kind() == io::ErrorKind::TimedOut && reached => {}
            _ if reached => {
                return Err("it does not know upgrades: it is of another version".into());
            }
            _ => return Ok(false),
        }
        if Instant::now() > until {
            return Err("it did not get the files in time".into());
        }
    }
}

/// What the other replicas had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Came {
    /// One had all that this one lacks.
    All,
    /// Some answered, and none had that.
    Nothing,
    /// None answered.
    Nobody,
}

/// Asks one after the other for what this one lacks.
fn ask_all(
    config: &NodeConfig,
    base: &Base,
    index: What,
    mut lost: BTreeMap<Digest, (PathBuf, u64)>,
) -> Result<Came, NodeError> {
    let mut came = Came::Nobody;
    // An index is set only where nothing is pinned, also if what was lost came, and could not be kept.
    let index = lost.is_empty().then_some(index);
    let key = key::configured(config)?;
    let rate = config.checkpoint.fetch_bytes_per_s;
    for (peer, address) in base.others(config) {
        if base.objects.stays().is_err() {
            return Ok(Came::Nobody);
        }
        let connected = Wire::connect(BASE, &address, key.as_ref(), ClusterId(config.cluster()));
        let fetch = |wire, knows_holes| Fetch { wire, base, rate, index, knows_holes };
        let filled = connected.and_then(|wire| fetch(wire, true).all(&mut lost));
        // One of an earlier version ends the connection when it is asked for data behind holes.
        let filled = match filled {
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset
                ) =>
            {
                let again =
                    Wire::connect(BASE, &address, key.as_ref(), ClusterId(config.cluster()));
                again.and_then(|wire| fetch(wire, false).all(&mut lost))
            }
            filled => filled,
        };
        match filled {
            Ok(0) => came = Came::Nothing,
            Ok(bytes) => {
                tracing::info!(event = "base_fetched", peer, bytes);
                return Ok(Came::All);
            }
            Err(error) if is_full(&error) => {
                return Err(failed(&base.dir)(error));
            }
            Err(error) => {
                tracing::debug!(event = "base_not_fetched", peer, %error);
            }
        }
    }
    Ok(came)
}

/// Another replica's would not fit either.
fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// A transfer.
struct Fetch<'a> {
    wire: Wire,
    base: &'a Base,
    rate: u64,
    /// The index that is wanted; none: only what is lost.
    index: Option<What>,
    /// The other side can be asked for the next data.
    knows_holes: bool,
}

impl Fetch<'_> {
    /// Gets what is lost, or, where an index is wanted, all that the other replica has. Answers the bytes; 0 if it has nothing.
    fn all(mut self, lost: &mut BTreeMap<Digest, (PathBuf, u64)>) -> io::Result<u64> {
        let mut bytes = 0;
        let Some(index) = self.index else {
            while let Some((digest, (_, size))) =
                lost.first_key_value().map(|(d, l)| (*d, l.clone()))
            {
                bytes += self.contents(digest, size)?;
                lost.remove(&digest);
            }
            self.base.objects.sync()?;
            return Ok(bytes.max(1));
        };
        let index = Index::decode(&self.bytes_of(index, INDEX_BYTES_MAX)?)?;
        if index.program.is_none() {
            return Ok(0);
        }
        for Contents { path, digest, size, .. } in index.kept_once() {
            if self.base.objects.has(digest, size) {
                continue;
            }
            // A large file is seldom another one here, and need not travel then.
            if size <= LARGE_BYTES || !self.base.comes_from_host(path, digest, size) {
                bytes += self.contents(digest, size)?;
            }
        }
        self.base.objects.make_dir()?;
        self.base.objects.sync()?;
        // Numbers of another host's files say nothing here.
        self.base.set(index.without_numbers())?;
        Ok(bytes.max(1))
    }

    /// Adds the other replica's pins to those that are here, with their contents; answers how many, or `None` if it has nothing. What there is no room for is left out.
    ///
    /// # Errors
    /// It could not give all that it has pinned: what came is added all the same.
    fn into(mut self, own: &mut Index) -> io::Result<Option<usize>> {
        let Some(what) = self.index else { return Ok(None) };
        let other = Index::decode(&self.bytes_of(what, INDEX_BYTES_MAX)?)?.without_numbers();
        if other.program.is_none() {
            return Ok(None);
        }
        let mut new = own.lacks(other);
        let (mut left_out, mut broken, mut gone) = (BTreeSet::new(), None, None);
        for Contents { path, digest, size, .. } in new.kept_once() {
            let objects = self.base.objects.clone();
            if objects.has(digest, size) || self.base.comes_from_host(path, digest, size) {
                continue;
            }
            // Of a large file all its parts are looked at, when what came before is known.
            let came = match (&broken, objects.fits(size.min(LARGE_BYTES))) {
                (None, Ok(())) => self.contents(digest, size).map(drop),
                (_, fits) => fits.and(Err(io::ErrorKind::NotConnected.into())),
            };
            if let Err(error) = came {
                left_out.insert(digest);
                // The next one may come all the same.
                tracing::info!(event = "not_pinned", path = %path.display(), why = %error);
                match error.kind() {
                    _ if is_full(&error) => {}
                    // Another replica may have it.
                    io::ErrorKind::NotFound => gone = Some(error),
                    _ if broken.is_none() => broken = Some(error),
                    _ => {}
                }
            }
        }
        self.base.objects.make_dir()?;
        self.base.objects.sync()?;
        new.files.retain(
            |_, kept| !matches!(kept, Kept::File { digest, .. } if left_out.contains(digest)),
        );
        let pins = new.files.len();
        own.files.extend(new.files);
        match broken.or(gone) {
            None => Ok(Some(pins)),
            Some(error) => Err(error),
        }
    }

    /// Contents become a file of the store. What an earlier try has got need not come again.
    fn contents(&mut self, digest: Digest, size: u64) -> io::Result<u64> {
        if size > SIZE_MAX {
            return Err(io::Error::other("contents are larger than any file here"));
        }
        self.base.objects.make_dir()?;
        let objects = self.base.objects.clone();
        let part = objects.go_on(digest)?;
        let came = self.rest(digest, size, &part);
        if came.as_ref().is_err_and(is_full) {
            // Its room is needed for the rest.
            let _ = std::fs::remove_file(&part.path);
        }
        came
    }

    fn rest(&mut self, digest: Digest, size: u64, part: &Part<'_>) -> io::Result<u64> {
        let file = &part.file;
        let had = file.metadata()?.len().min(size);
        let (mut came, mut checked) = (had, 0);
        let objects = self.base.objects.clone();
        let what = if self.knows_holes { What::Data } else { What::Contents };
        self.parts(what(digest), (had, size), &mut |at, bytes| {
            if size > LARGE_BYTES && came >= checked {
                objects.leaves_room(file)?;
                checked = came + LARGE_BYTES;
                file.sync_data()?;
            }
            came = at + bytes.len() as u64;
            objects.came();
            match bytes.iter().all(|byte| *byte == 0) {
                // A hole stays one.
                true => file.set_len(came),
                false => file.write_all_at(bytes, at),
            }
        })?;
        file.set_len(came)?;
        if came != size || digest_of(&part.path, Some(objects.leaves()))? != (digest, size) {
            // The next try begins from the start.
            let _ = std::fs::remove_file(&part.path);
            return Err(io::Error::other("contents came that are not those of the digest"));
        }
        self.base.objects.keep(part, digest, Some(false))?;
        Ok(size - had)
    }

    fn bytes_of(&mut self, what: What, most: u64) -> io::Result<Vec<u8>> {
        let mut all = Vec::new();
        self.parts(what, (0, most), &mut |_, bytes| {
            all.extend_from_slice(bytes);
            Ok(())
        })?;
        Ok(all)
    }

    /// Asks for one part after the other, from a byte on, not faster than is configured.
    fn parts(
        &mut self,
        what: What,
        (first, most): (u64, u64),
        take: &mut dyn FnMut(u64, &[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        let (begun, mut from, mut travelled) = (Instant::now(), first, 0_u64);
        let misfit = || io::Error::other("its answer has a length that does not fit");
        loop {
            self.base.objects.stays()?;
            self.wire.send(&Question { what, from }.encode())?;
            let answer = Answer::decode(&self.wire.receive()?)
                .ok_or_else(|| io::Error::other("its answer is none"))?;
            let whole = answer.whole.ok_or(io::ErrorKind::NotFound)?;
            let (at, bytes) = match what {
                What::Data(_) => answer.place().ok_or_else(misfit)?,
                _ => (from, answer.bytes.as_slice()),
            };
            let end = at.checked_add(bytes.len() as u64).ok_or_else(misfit)?;
            if whole > most || at < from || end > whole || end == from && end < whole {
                return Err(misfit());
            }
            take(at, bytes)?;
            if end == whole {
                return Ok(());
            }
            (from, travelled) = (end, travelled + bytes.len() as u64);
            let due = Duration::from_millis(travelled.saturating_mul(1000) / self.rate.max(1));
            while let Some(left) = due.checked_sub(begun.elapsed()) {
                self.base.objects.stays()?;
                sleep(left.min(PAUSE));
            }
        }
    }
}

/// Answers another replica's questions, the first of which has come, until it has no more; in a thread of its own.
///
/// # Errors
/// No thread can be made.
pub fn serve(base: Arc<Base>, mut wire: Wire, first: Vec<u8>) -> io::Result<()> {
    TURNS.serve("skein-base-out", move || {
        let mut index = None;
        let mut question = first;
        // What this transfer is about stays until it is over.
        let hold = base.objects.hold();
        loop {
            let Some(asked) = Question::decode(&question) else { return };
            let answer = base.answer(asked, &mut index, &hold);
            let next = wire.send(&answer.encode()).and_then(|()| wire.receive());
            // It has all that it wants, or is gone.
            let Ok(next) = next else { return };
            question = next;
        }
    })
}

impl Base {
    /// `index`: the one that this transfer has begun with.
    fn answer(&self, asked: Question, index: &mut Option<Vec<u8>>, hold: &Hold) -> Answer {
        let from = usize::try_from(asked.from).unwrap_or(usize::MAX);
        let nothing = || Answer { whole: None, bytes: Vec::new() };
        match asked.what {
            What::Index => {
                let bytes = index.get_or_insert_with(|| {
                    let _all = self.objects.keep_all();
                    let index = self.index();
                    hold.add(index.digests());
                    index.encode()
                });
                let end = bytes.len().min(from.saturating_add(PART_BYTES));
                let part = bytes.get(from..end).unwrap_or_default().to_vec();
                Answer { whole: Some(bytes.len() as u64), bytes: part }
            }
            What::Edition(digest) => {
                let _all = self.objects.keep_all();
                match self.of_edition(digest) {
                    Ok(edition) if !edition.is_empty() => {
                        edition.answer(Question { what: What::Index, ..asked }, index, hold)
                    }
                    _ => nothing(),
                }
            }
            What::Stage(digest) => {
                let _all = self.objects.keep_all();
                let refused = |why: String| Answer { whole: None, bytes: why.into_bytes() };
                match edition_soon(self, digest, ASKED_FOR) {
                    Ok(Some(base)) => match base.can_run() {
                        Ok(()) => {
                            self.awaits(digest);
                            Answer { whole: Some(0), bytes: Vec::new() }
                        }
                        Err(error) => refused(error.to_string()),
                    },
                    // The one that asked has given up this connection by now, and asks again.
                    Ok(None) => refused("it is getting other files; try again later".into()),
                    Err(error) => refused(error.to_string()),
                }
            }
            What::Commands => self.tell_commands(),
            What::Contents(digest) => self
                .opened(digest, hold)
                .and_then(|file| part(&file, asked.from))
                .unwrap_or_else(|_| nothing()),
            What::Data(digest) => self
                .opened(digest, hold)
                .and_then(|file| next_part(&file, asked.from))
                .unwrap_or_else(|_| nothing()),
        }
    }

    /// Contents that stay from now on, if they are here.
    fn opened(&self, digest: Digest, hold: &Hold) -> io::Result<File> {
        let _all = self.objects.keep_all();
        let file = self.objects.open(digest)?;
        hold.add([digest]);
        Ok(file)
    }
}

fn part(file: &File, from: u64) -> io::Result<Answer> {
    let whole = file.metadata()?.len();
    let len = whole.saturating_sub(from).min(PART_BYTES as u64);
    let mut bytes = vec![0; len as usize];
    file.read_exact_at(&mut bytes, from)?;
    Ok(Answer { whole: Some(whole), bytes })
}

/// The same of the next data; none at the end behind a hole.
fn next_part(file: &File, from: u64) -> io::Result<Answer> {
    let whole = file.metadata()?.len();
    let from = from.min(whole);
    let (at, end) = if from < whole { next_data(file, from, whole)? } else { (from, from) };
    let mut bytes = vec![0; (end - at).min(PART_BYTES as u64) as usize];
    file.read_exact_at(&mut bytes, at)?;
    Ok(Answer::data(whole, at, &bytes))
}

#[cfg(test)]
#[path = "fetch_tests.rs"]
mod tests;
