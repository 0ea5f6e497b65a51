//! Fills a base from other replicas, before anything of this node begins: a replica that joins a cluster, is
//! late at its founding, or has lost its directory, needs nothing of its host. Also serves
//! others.
//!
//! What comes is checked: an index leads nowhere out of the base, and contents have their digests. They are kept one by one, so a broken transfer goes on
//! where it ended.

use super::index::Index;
use super::store::Digest;
use super::wire::{Answer, Question, What};
use super::{Base, failed};
use crate::begin;
use crate::config::NodeConfig;
use crate::error::NodeError;
use crate::key;
use crate::transport::Address;
use crate::transport::wire::{BASE, PART_BYTES, Turns, Wire};
use skein_log::ClusterId;
use std::collections::BTreeMap;
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
/// Others ask again.
static TURNS: Turns = Turns::new(16);
/// A longer index is not taken: 64 MiB.
const INDEX_BYTES_MAX: u64 = 64 << 20;

/// The base of a node that is about to start, with what it lacked, as far as other replicas have that.
///
/// # Errors
/// It cannot be read or written.
pub fn filled(config: &NodeConfig) -> Result<Base, NodeError> {
    let base = Base::open(&config.data_dir)?;
    if config.peers.len() < 2 {
        return Ok(base);
    }
    let joins = begin::asked(&config.data_dir)?.is_some_and(|incarnation| incarnation > 0);
    let until = Instant::now() + PATIENCE;
    loop {
        let lost = base.lost()?;
        // The runtime is pinned before anybody can be asked.
        let is_new = base.index().program.is_none();
        if lost.is_empty() && !is_new {
            return Ok(base);
        }
        // A new one begins with the host's files if nobody has others; the log refuses those that differ. One that joins waits for the others in any case.
        let came = ask_all(config, &base, What::Index, lost)?;
        let waits = came == Came::Nobody && joins || came != Came::All && !is_new;
        if !waits || Instant::now() > until {
            return Ok(base);
        }
        sleep(PAUSE);
    }
}

/// The base of an edition of the server, with what it lacked. `main`: the node's own.
///
/// # Errors
/// It cannot be had from another replica, or not be written.
pub fn edition(main: &Base, digest: Digest) -> Result<Base, NodeError> {
    let _alone = main.objects.alone();
    let until = Instant::now() + PATIENCE;
    loop {
        let base = main.of_edition(digest)?;
        let lost = base.lost()?;
        if lost.is_empty() && !base.is_empty() {
            return Ok(base);
        }
        let config = main.node().filter(|config| !main.others(config).is_empty());
        let came = match config {
            Some(config) => ask_all(config, &base, What::Edition(digest), lost)? == Came::All,
            None => false,
        };
        if came {
            continue;
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
    let key = key::configured(config)?;
    let rate = config.checkpoint.fetch_bytes_per_s;
    for (peer, address) in base.others(config) {
        let connected = Wire::connect(BASE, &address, key.as_ref(), ClusterId(config.cluster()));
        let filled = connected.and_then(|wire| Fetch { wire, base, rate, index }.all(&mut lost));
        match filled {
            Ok(0) => came = Came::Nothing,
            Ok(bytes) => {
                tracing::info!(event = "base_fetched", peer, bytes);
                return Ok(Came::All);
            }
            Err(error) if error.kind() == io::ErrorKind::StorageFull => {
                return Err(failed(&base.dir)(error));
            }
            Err(error) => {
                tracing::debug!(event = "base_not_fetched", peer, %error);
            }
        }
    }
    Ok(came)
}

/// A transfer.
struct Fetch<'a> {
    wire: Wire,
    base: &'a Base,
    rate: u64,
    /// The index that is wanted.
    index: What,
}

impl Fetch<'_> {
    /// Gets what is lost, or, where nothing is pinned here, all that the other replica has. Answers the bytes; 0 if it has nothing.
    fn all(mut self, lost: &mut BTreeMap<Digest, (PathBuf, u64)>) -> io::Result<u64> {
        let mut bytes = 0;
        if !lost.is_empty() {
            while let Some((digest, (_, size))) =
                lost.first_key_value().map(|(d, l)| (*d, l.clone()))
            {
                bytes += self.contents(digest, size)?;
                lost.remove(&digest);
            }
            self.base.objects.sync()?;
            return Ok(bytes.max(1));
        }
        let index = Index::decode(&self.bytes_of(self.index, INDEX_BYTES_MAX)?)?;
        if index.program.is_none() {
            return Ok(0);
        }
        for (digest, size) in index.contents() {
            if !self.base.objects.has(digest, size) {
                bytes += self.contents(digest, size)?;
            }
        }
        self.base.objects.make_dir()?;
        self.base.objects.sync()?;
        // Numbers of another host's files say nothing here.
        self.base.set(index.without_numbers())?;
        Ok(bytes.max(1))
    }

    /// Contents become a file of the store.
    fn contents(&mut self, digest: Digest, size: u64) -> io::Result<u64> {
        self.base.objects.make_dir()?;
        let (part, file) = self.base.objects.begin()?;
        let mut came = 0;
        let kept = self.parts(What::Contents(digest), size, &mut |bytes| {
            file.write_all_at(bytes, came)?;
            came += bytes.len() as u64;
            Ok(())
        });
        let kept = kept.and_then(|()| {
            if came != size || super::store::digest_of(&part)? != (digest, size) {
                return Err(io::Error::other("contents came that are not those of the digest"));
            }
            self.base.objects.keep(&part, &file, digest)
        });
        if kept.is_err() {
            // The error of the transfer is the one that matters.
            let _ = std::fs::remove_file(&part);
        }
        kept.map(|()| size)
    }

    fn bytes_of(&mut self, what: What, most: u64) -> io::Result<Vec<u8>> {
        let mut all = Vec::new();
        self.parts(what, most, &mut |bytes| {
            all.extend_from_slice(bytes);
            Ok(())
        })?;
        Ok(all)
    }

    /// Asks for one part after the other, not faster than is configured.
    fn parts(
        &mut self,
        what: What,
        most: u64,
        take: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        let (begun, mut from) = (Instant::now(), 0);
        loop {
            self.wire.send(&Question { what, from }.encode())?;
            let answer = Answer::decode(&self.wire.receive()?)
                .ok_or_else(|| io::Error::other("its answer is none"))?;
            let whole = answer.whole.ok_or(io::ErrorKind::NotFound)?;
            from += answer.bytes.len() as u64;
            if whole > most || from > whole || answer.bytes.is_empty() && from < whole {
                return Err(io::Error::other("its answer has a length that does not fit"));
            }
            take(&answer.bytes)?;
            if from == whole {
                return Ok(());
            }
            let due = Duration::from_millis(from * 1000 / self.rate.max(1));
            sleep(due.saturating_sub(begun.elapsed()));
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
        loop {
            let Some(asked) = Question::decode(&question) else { return };
            let answer = base.answer(asked, &mut index);
            let next = wire.send(&answer.encode()).and_then(|()| wire.receive());
            // It has all that it wants, or is gone.
            let Ok(next) = next else { return };
            question = next;
        }
    })
}

impl Base {
    /// `index`: the one that this transfer has begun with.
    fn answer(&self, asked: Question, index: &mut Option<Vec<u8>>) -> Answer {
        let from = usize::try_from(asked.from).unwrap_or(usize::MAX);
        match asked.what {
            What::Index => {
                let bytes = index.get_or_insert_with(|| self.index().encode());
                let end = bytes.len().min(from.saturating_add(PART_BYTES));
                let part = bytes.get(from..end).unwrap_or_default().to_vec();
                Answer { whole: Some(bytes.len() as u64), bytes: part }
            }
            What::Edition(digest) => match self.of_edition(digest) {
                Ok(edition) if !edition.is_empty() => {
                    edition.answer(Question { what: What::Index, ..asked }, index)
                }
                _ => Answer { whole: None, bytes: Vec::new() },
            },
            What::Stage(digest) => match edition(self, digest).and_then(|base| base.can_run()) {
                Ok(()) => Answer { whole: Some(0), bytes: Vec::new() },
                Err(error) => Answer { whole: None, bytes: error.to_string().into_bytes() },
            },
            What::Commands => self.tell_commands(),
            What::Contents(digest) => {
                self.part(digest, asked.from).unwrap_or(Answer { whole: None, bytes: Vec::new() })
            }
        }
    }

    fn part(&self, digest: Digest, from: u64) -> io::Result<Answer> {
        let file = self.objects.open(digest)?;
        let whole = file.metadata()?.len();
        let len = whole.saturating_sub(from).min(PART_BYTES as u64);
        let mut bytes = vec![0; len as usize];
        file.read_exact_at(&mut bytes, from)?;
        Ok(Answer { whole: Some(whole), bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::super::pin::Pinner;
    use super::*;
    use crate::transport::{Address, channel::Sealer, listen};
    use skein_log::frame::Decoder;
    use skein_model::fact::{Fact, What as About};
    use std::path::Path;

    const CLUSTER: ClusterId = ClusterId(5);

    /// A replica with a pinned file, which another one may ask.
    fn replica(dir: &Path) -> (Arc<Base>, Address) {
        let data = dir.join("has");
        let base = Base::open(&data).unwrap();
        let text = vec![b'x'; PART_BYTES + 9];
        std::fs::write(dir.join("file"), text).unwrap();
        let path = dir.join("file").into_os_string().into_encoded_bytes();
        let mut pinner = Pinner::new(&base.objects, Index::default(), None);
        let there = Fact { kind: libc::DT_REG, ..Fact::new(About::There, &path) };
        pinner.fact(&there).unwrap();
        base.set(pinner.index).unwrap();
        (Arc::new(base), Address::Unix(dir.join("socket")))
    }

    #[test]
    fn lost_contents_come_from_another_replica_and_damaged_ones_do_not() {
        let dir = tempfile::tempdir().unwrap();
        let (base, address) = replica(dir.path());
        let data = dir.path().join("lacks");
        std::fs::create_dir_all(data.join("base")).unwrap();
        let lacks = Base::open(&data).unwrap();
        lacks.set((*base.index()).clone()).unwrap();
        // The host has not got it any more.
        std::fs::remove_file(dir.path().join("file")).unwrap();
        let (digest, size) = base.index().contents().next().unwrap();
        let fetch = || {
            let (base, listener) = (base.clone(), listen(&address).unwrap());
            std::thread::scope(|scope| {
                scope.spawn(move || {
                    let until = Instant::now() + Duration::from_secs(20);
                    let stream = loop {
                        if let Some((stream, _)) = listener.accept().unwrap() {
                            break stream;
                        }
                        assert!(Instant::now() < until, "nobody came");
                        std::thread::yield_now();
                    };
                    let sealer = Sealer::new(None, CLUSTER, false, &mut Vec::new());
                    let mut wire = Wire::over(BASE, stream, sealer, Decoder::new(CLUSTER), CLUSTER);
                    let first = wire.receive().unwrap();
                    serve(base, wire, first).unwrap();
                });
                let wire = Wire::connect(BASE, &address, None, CLUSTER).unwrap();
                Fetch { wire, base: &lacks, rate: u64::MAX, index: What::Index }
                    .all(&mut lacks.lost().unwrap())
            })
        };
        assert!(!lacks.lost().unwrap().is_empty());
        assert_eq!(fetch().unwrap(), size);
        assert!(lacks.lost().unwrap().is_empty());
        // Damage at the sender's, and here.
        for objects in [&base.objects, &lacks.objects] {
            std::fs::write(objects.path(digest), vec![b'y'; size as usize]).unwrap();
        }
        assert!(fetch().unwrap_err().to_string().contains("not those of the digest"));
        assert_eq!(lacks.lost().unwrap().len(), 1);
    }
}
