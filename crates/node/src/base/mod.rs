//! The base of a replica's server, `DATA_DIR/base`: what the server has used of its host, by content, and sees from then on instead of the host's files.
//!
//! ```text
//! index            the pinned paths: attributes, and which contents they have ([`index`])
//! index-DIGEST     the same for a later edition of the server (`skein upgrade`): it began as the index with this digest ([`stage`])
//! objects/DIGEST   contents, by their SHA-256 ([`store`])
//! objects/*.part   being written; one that a crash left is removed at the next start
//! notes            when larger contents were last read, and whether they share their bytes with the host's ([`notes`])
//! late-index...    facts about large files that are still to be pinned into that index ([`late`])
//! behind           others may have pinned what is not pinned here ([`behind`])
//! tree-N           the contents under their paths, for one start of the server: links to the objects
//! ```
//!
//! A node whose base lacks something, because it joins a cluster or a disk has lost it, gets that from another replica before it starts ([`fetch`]).
//!
//! What the server uses is agreed on as facts ([`skein_model::fact`]). When they are committed, a thread copies what they are about from the host, and compares it with them
//! ([`pin`]). The program, its loader and its libraries are pinned the same way. The next start of the server, also in a later life of the node, shows all of that in place
//! of the host's files ([`skein_sandbox::Pins`]). What has never been used comes from the host, and is pinned at its first use.
//!
//! Invariants: an object is synced before it has its name, and has its name before the index names it. A pinned path of an index never changes. What cannot be pinned
//! (devices, what there is no room for, what has changed in between) stays the host's, and is refused by the runtime once it differs.
//!
//! An edition's index goes when the log has forgotten its entries, and contents that nothing names go then and at a start. Running servers see their files through links of
//! their own in a tree.
//!
//! Threads: one ([`work`]), beside the reactor, and one for large files, which everything else goes before ([`slow`]); one for each replica that is given contents; and
//! the starter of a server, which reads.

mod behind;
mod contents;
pub mod diff;
mod doubt;
pub mod edition;
pub mod fetch;
pub mod index;
mod late;
mod needed;
mod notes;
pub mod pin;
mod quiet;
pub(crate) mod room;
pub mod runtime;
mod slow;
pub mod stage;
pub mod store;
pub mod told;
pub mod wire;
pub mod work;

use crate::base::edition::Commands;
use crate::config::NodeConfig;
use crate::error::NodeError;
use crate::members;
use crate::transport::Address;
use index::{Contents, Index, Kept, Text};
use skein_log::disk::durable;
use skein_sandbox::{Pin, Pins, Program, can_be_stacked};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use store::{Digest, Objects};

/// Its directory in a data directory.
pub(crate) const NAME: &str = "base";
const TREE: &str = "tree-";
const EDITION: &str = "index-";
/// A start reads so much of the contents, the smallest first, and of the others those that are not as they were last read: 1 GiB.
const START_BYTES: u64 = 1 << 30;

/// See the [module](self).
#[derive(Debug)]
pub struct Base {
    dir: PathBuf,
    /// The name of its index.
    name: String,
    objects: Arc<Objects>,
    /// The node that has it; none for a look from outside.
    node: Option<Owner>,
    index: Mutex<Arc<Index>>,
    /// Its contents have been read, and nothing is lost.
    is_whole: AtomicBool,
}

/// A base's node.
#[derive(Clone, Debug)]
struct Owner {
    /// As its cluster was founded.
    config: Arc<NodeConfig>,
    /// The others, as the log knows them; all bases of the node share it.
    others: Arc<Mutex<Vec<(u64, Address)>>>,
    /// Editions whose files were got for an upgrade that the log has not got yet; the same.
    awaited: Arc<Mutex<BTreeSet<Digest>>>,
    /// Editions whose servers were started, the last one last; the same.
    launched: Arc<Mutex<Vec<Digest>>>,
    /// How often it was demanded that what others have pinned meanwhile is pinned here,
    behind: Arc<AtomicU64>,
    /// and how many of these demands were met; the same.
    caught_up: Arc<AtomicU64>,
}

fn failed(path: &Path) -> impl Fn(io::Error) -> NodeError {
    let path = path.to_owned();
    move |error| NodeError::Base { path: path.clone(), error }
}

impl Base {
    /// That of a data directory; empty if there is none yet. Changes nothing.
    ///
    /// # Errors
    /// Its index cannot be read or is damaged.
    pub fn open(data_dir: &Path) -> Result<Self, NodeError> {
        let dir = data_dir.join(NAME);
        let objects = Objects::new(dir.join("objects"));
        Self::named(dir, index::FILE.into(), Arc::new(objects), None)
    }

    /// That of a data directory's current edition of the server. Changes nothing.
    ///
    /// # Errors
    /// Its index cannot be read or is damaged.
    pub fn current(data_dir: &Path) -> Result<Self, NodeError> {
        let base = Self::open(data_dir)?;
        match Commands::read(data_dir)?.and_then(|commands| commands.base) {
            Some(digest) => base.of_edition(digest),
            None => Ok(base),
        }
    }

    fn named(
        dir: PathBuf,
        name: String,
        objects: Arc<Objects>,
        node: Option<Owner>,
    ) -> Result<Self, NodeError> {
        let index = Index::read(&dir, &name).map_err(failed(&dir))?;
        let (index, is_whole) = (Mutex::new(Arc::new(index)), AtomicBool::new(false));
        Ok(Self { dir, name, objects, node, index, is_whole })
    }

    /// That of an edition of the server, beside this one; empty if there is none yet.
    ///
    /// # Errors
    /// Its index cannot be read or is damaged.
    pub fn of_edition(&self, digest: Digest) -> Result<Self, NodeError> {
        let name = edition_name(digest);
        Self::named(self.dir.clone(), name, self.objects.clone(), self.node.clone())
    }

    /// The one whose index has this name, of [`names`](Self::names).
    pub(crate) fn with_index(&self, name: &str) -> Result<Self, NodeError> {
        Self::named(self.dir.clone(), name.to_owned(), self.objects.clone(), None)
    }

    /// The same for a node with this configuration, as its cluster was founded.
    #[must_use]
    pub fn of_node(self, config: &NodeConfig) -> Self {
        let (config, others) = (Arc::new(config.clone()), Arc::default());
        let (awaited, launched) = (Arc::default(), Arc::default());
        let behind = Arc::new(AtomicU64::new(u64::from(self.is_noted_behind())));
        let caught_up = Arc::default();
        let owner = Owner { config, others, awaited, launched, behind, caught_up };
        Self { node: Some(owner), ..self }
    }

    /// A server of an edition is about to be started. It may continue from an image that another replica has sent, of which the log says nothing.
    pub(crate) fn launches(&self, edition: Digest) {
        if let Some(node) = &self.node {
            let mut launched = node.launched.lock().unwrap_or_else(PoisonError::into_inner);
            launched.retain(|other| *other != edition);
            launched.push(edition);
        }
    }

    /// The log has forgotten what others than the last one need.
    fn forget_launched(&self) {
        if let Some(node) = &self.node {
            let mut launched = node.launched.lock().unwrap_or_else(PoisonError::into_inner);
            *launched = launched.last().copied().into_iter().collect();
        }
    }

    /// An edition stays, though the log does not know it yet.
    fn awaits(&self, edition: Digest) {
        if let Some(node) = &self.node {
            node.awaited.lock().unwrap_or_else(PoisonError::into_inner).insert(edition);
        }
    }

    /// The log knows it by now.
    fn awaits_no_more(&self, edition: Digest) {
        if let Some(node) = &self.node {
            node.awaited.lock().unwrap_or_else(PoisonError::into_inner).remove(&edition);
        }
    }

    /// Editions that are needed, whatever the log says.
    fn in_use(&self) -> Vec<Digest> {
        let Some(node) = &self.node else { return Vec::new() };
        let awaited = node.awaited.lock().unwrap_or_else(PoisonError::into_inner);
        let launched = node.launched.lock().unwrap_or_else(PoisonError::into_inner);
        awaited.iter().chain(launched.iter()).copied().collect()
    }

    /// The node that has it.
    #[must_use]
    pub fn node(&self) -> Option<&Arc<NodeConfig>> {
        self.node.as_ref().map(|node| &node.config)
    }

    /// From now on the log names these as the other members, whatever the configuration says.
    pub fn know(&self, members: Vec<(u64, Address)>) {
        if let Some(node) = &self.node {
            let mut others = node.others.lock().unwrap_or_else(PoisonError::into_inner);
            if *others != members {
                *others = members;
            }
        }
    }

    /// Where files can be had: the other members that the log names, or named in a former life, and the peers of the configuration.
    fn others(&self, config: &NodeConfig) -> Vec<(u64, Address)> {
        let known = self.node.as_ref().map(|node| &node.others);
        let known = known.map(|others| others.lock().unwrap_or_else(PoisonError::into_inner));
        let mut all = known.map_or_else(Vec::new, |others| others.clone());
        if all.is_empty() {
            all = members::noted(&config.data_dir).others;
            all.retain(|(id, _)| *id != config.id);
        }
        for peer in config.peers.iter().filter(|peer| peer.id != config.id) {
            if all.iter().all(|(_, address)| *address != peer.address) {
                all.push((peer.id, peer.address.clone()));
            }
        }
        all
    }

    /// Whether anything is pinned.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.index().program.is_none() && self.index().files.is_empty()
    }

    /// Removes all of it: a cluster that is founded has no past.
    ///
    /// # Errors
    /// It cannot be removed.
    pub fn forget(data_dir: &Path) -> Result<(), NodeError> {
        let dir = data_dir.join(NAME);
        Commands::forget(data_dir)?;
        durable::remove(&dir.join(index::FILE)).or_else(none_there).map_err(failed(&dir))?;
        fs::remove_dir_all(&dir).or_else(none_there).map_err(failed(&dir))
    }

    /// Gives another data directory of this machine what this one has pinned, with the commands of its editions, durably.
    pub(crate) fn copy(from: &Path, to: &Path) -> Result<(), NodeError> {
        let there = to.join(NAME);
        durable::create_dir(to).map_err(failed(&there))?;
        Self::forget(to)?;
        let base = Self::open(from)?;
        let copy = || -> io::Result<()> {
            durable::create_dir(&there)?;
            let objects = Objects::new(there.join("objects"));
            objects.make_dir()?;
            let names = base.names()?;
            for name in &names {
                for digest in Index::read(&base.dir, name)?.digests() {
                    let path = objects.path(digest);
                    if !path.exists() {
                        skein_sandbox::copy_contents(&base.objects.path(digest), &path)?;
                        fs::File::open(&path)?.sync_all()?;
                    }
                }
            }
            objects.sync()?;
            for name in &names {
                let text = fs::read_to_string(base.dir.join(name))?;
                durable::write(&there.join(name), &text)?;
            }
            Ok(())
        };
        copy().map_err(failed(&there))?;
        match Commands::read(from)? {
            Some(commands) => commands.write(to),
            None => Ok(()),
        }
    }

    /// What is pinned now.
    #[must_use]
    pub fn index(&self) -> Arc<Index> {
        self.index.lock().expect("no holder panics").clone()
    }

    /// The contents.
    #[must_use]
    pub fn objects(&self) -> &Objects {
        &self.objects
    }

    /// Pins more, durably.
    fn set(&self, index: Index) -> io::Result<()> {
        index.write(&self.dir, &self.name)?;
        *self.index.lock().expect("no holder panics") = Arc::new(index);
        Ok(())
    }

    /// Reads contents that are pinned and compares them with their digests: [`START_BYTES`] of them, and what is not the file that was last read as a whole. Contents that are
    /// damaged or missing are taken from the host again if that still has them. Answers the others, each with a path that has it, and its length.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn lost(&self) -> Result<BTreeMap<Digest, (PathBuf, u64)>, NodeError> {
        let lost = self.lost_beyond(START_BYTES);
        self.is_whole.store(lost.is_empty(), Ordering::Relaxed);
        Ok(lost)
    }

    fn lost_beyond(&self, mut most: u64) -> BTreeMap<Digest, (PathBuf, u64)> {
        let index = self.index();
        let mut all = index.kept_once();
        all.sort_by_key(|one| one.size);
        let mut lost = BTreeMap::new();
        for &Contents { path, digest, size, sum } in &all {
            let left = most.checked_sub(size);
            most = left.unwrap_or(0);
            let is_as_read = left.is_none() && self.objects.vouches(digest, size);
            if is_as_read {
                continue;
            }
            match self.objects.is_whole_still(digest, size, sum) {
                Ok(true) => continue,
                Ok(false) => {}
                Err(_) => {
                    // The node ends: nobody asks any more.
                    lost.insert(digest, (path.to_owned(), size));
                    continue;
                }
            }
            tracing::warn!(event = "base_damaged", path = %path.display(), object = %digest);
            if !self.comes_from_host(path, digest, size) {
                lost.insert(digest, (path.to_owned(), size));
            }
        }
        lost
    }

    /// Takes contents from the host again, if that still has them.
    fn comes_from_host(&self, path: &Path, digest: Digest, size: u64) -> bool {
        let has_size = fs::symlink_metadata(path).is_ok_and(|meta| meta.len() == size);
        has_size && self.objects.add_if(path, |found| found == digest).is_ok()
    }

    /// Nothing of it is lost, as far as was not found before.
    ///
    /// # Errors
    /// Contents are lost, or cannot be read.
    pub fn check(&self) -> Result<(), NodeError> {
        if !self.is_whole.load(Ordering::Relaxed)
            && let Some((digest, (path, _))) = self.lost()?.into_iter().next()
        {
            return Err(NodeError::BaseLost { path, digest: digest.to_string() });
        }
        Ok(())
    }

    /// Removes indexes of other editions than these and those that are in use, objects that nothing names, and other remains; `None` keeps all editions. Answers the number of objects; `None` if
    /// somebody is at them: it is to be tried again. Only for the node that has the data directory.
    fn tidy(&self, editions: Option<&BTreeSet<Digest>>) -> io::Result<Option<u64>> {
        let names = || {
            if let Some(editions) = editions {
                let mut kept = editions.clone();
                kept.extend(self.in_use());
                self.keep_editions(&kept)?;
            }
            let mut named = BTreeSet::new();
            for name in self.names()? {
                named.extend(Index::read(&self.dir, &name)?.digests());
            }
            Ok(named)
        };
        let removed = self.objects.collect(names)?;
        if let Some(files @ 1..) = removed {
            tracing::info!(event = "base_tidied", files);
        }
        Ok(removed)
    }

    /// The names of all indexes.
    pub(crate) fn names(&self) -> io::Result<Vec<String>> {
        let entries = match fs::read_dir(&self.dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut names = Vec::new();
        for entry in entries {
            let name = entry?.file_name().into_string().unwrap_or_default();
            let is_edition = name.strip_prefix(EDITION).is_some_and(|digest| digest.len() == 64);
            if name == index::FILE || is_edition {
                names.push(name);
            }
        }
        Ok(names)
    }

    /// Removes the indexes of editions that are not among these.
    fn keep_editions(&self, kept: &BTreeSet<Digest>) -> io::Result<()> {
        let kept: BTreeSet<String> = kept.iter().map(|digest| edition_name(*digest)).collect();
        let is_old = |name: &String| name.starts_with(EDITION) && !kept.contains(name);
        for name in self.names()?.into_iter().filter(is_old) {
            durable::remove(&self.dir.join(late::name(&name)))?;
            durable::remove(&self.dir.join(name))?;
        }
        Ok(())
    }

    /// The pinned program, if this command was given for it.
    #[must_use]
    pub fn program(&self, command: &index::Command) -> Option<Program> {
        let index = self.index();
        let known = index.program.as_ref().filter(|known| known.command == *command)?;
        can_be_stacked(&self.dir).then(|| known.program.clone())
    }

    /// The same, of any edition of the server.
    ///
    /// # Errors
    /// An index cannot be read.
    pub fn program_of_any(&self, command: &index::Command) -> Result<Option<Program>, NodeError> {
        for name in self.names().map_err(failed(&self.dir))? {
            if let Some(program) = self.with_index(&name)?.program(command) {
                return Ok(Some(program));
            }
        }
        Ok(None)
    }

    /// What a server that is started now sees in place of its host's files.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn lay(&self) -> Result<Pins, NodeError> {
        let index = self.index();
        if index.files.is_empty() {
            return Ok(Pins::default());
        }
        if !can_be_stacked(&self.dir) {
            tracing::warn!(
                event = "base_unused",
                dir = %self.dir.display(),
                "the data directory is on overlayfs, over which the kernel stacks no further one: files come from the host; use a data directory on another file system"
            );
            return Ok(Pins::default());
        }
        // Another start may be at it, whose server is being ended.
        let (_laying, _all) = (self.objects.laying(), self.objects.keep_all());
        let tree = self.next_tree().map_err(failed(&self.dir))?;
        let all = index.files.iter().map(|(path, kept)| (path.clone(), self.pin(kept))).collect();
        let pins = Pins { tree, all };
        self.objects.while_times_are_set(|| pins.lay()).map_err(failed(&pins.tree))?;
        if self.node.is_some() {
            self.objects.save_notes();
        }
        Ok(pins)
    }

    fn pin(&self, kept: &Kept) -> Pin {
        match kept {
            Kept::Absent => Pin::Absent,
            Kept::Directory { about, listing } => {
                let names = |listing: &std::collections::BTreeSet<Text>| {
                    listing.iter().map(|name| name.0.clone()).collect()
                };
                Pin::Directory { about: *about, listing: listing.as_ref().map(names) }
            }
            Kept::Link { about, to } => Pin::Link { about: *about, to: to.0.clone().into() },
            Kept::File { about, size, digest, same_as, .. } => Pin::File {
                about: *about,
                size: *size,
                from: self.objects.path(*digest),
                same_as: same_as.as_ref().map(|path| path.0.clone().into()),
            },
        }
    }

    /// The directory for the next start; those of earlier ones are removed, since their servers are being ended.
    fn next_tree(&self) -> io::Result<PathBuf> {
        let mut last = 0;
        for entry in fs::read_dir(&self.dir)? {
            let name = entry?.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix(TREE));
            if let Some(number) = number.and_then(|number| number.parse::<u64>().ok()) {
                last = last.max(number);
                fs::remove_dir_all(self.dir.join(&name))?;
            }
        }
        Ok(self.dir.join(format!("{TREE}{}", last + 1)))
    }
}

fn edition_name(digest: Digest) -> String {
    format!("{EDITION}{digest}")
}

fn none_there(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

#[cfg(test)]
#[path = "slow_tests.rs"]
mod slow_tests;
