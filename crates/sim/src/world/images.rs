//! Images of servers: taken, kept on disks, sent to other machines.

use super::{Event, Life, World};
use crate::around::Wish;
use crate::server::RegisterServer;
use crate::shelf::{Imaged, Shelved};
use skein_log::Level;
use skein_model::{LogIndex, ReplicaId};
use skein_replica::environment::{ImageFile, ImageNews, Trouble};
use skein_replica::replica::Inbox;
use skein_replica::server::ServerState;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// The longest time for which a server is read,
const COPY_US: u64 = 20_000;
/// and until the image is on disk.
const WRITE_US: u64 = 60_000;
/// The longest image, in bytes: some parts.
const BYTES: u64 = 900;
/// The bytes of one that is as it was written, and of one that is not.
const SOUND: u8 = 0;
const ROTTEN: u8 = 1;

impl World {
    /// Carries out a replica's request about images.
    pub(super) fn do_image(&mut self, life: Life, wish: Wish) {
        let id = life.replica;
        match wish {
            Wish::Prepare => {
                // Now and then it takes too long.
                let slower = if self.rng.below(16) == 0 { 1000 } else { 1 };
                let delay = 1 + slower * self.rng.below(COPY_US);
                self.schedule(delay, Event::Images(life, Box::new(ImageNews::Prepared)));
            }
            Wish::Take(state) if state.ended.is_some() => self.keep_files(life, *state),
            Wish::Take(state) => {
                let process = self.machines[&id].process.as_ref().expect("it runs");
                let generation = process.server.as_ref().map_or(0, |server| server.generation);
                let delay = 1 + self.rng.below(COPY_US);
                self.stands(id, delay);
                if self.rng.below(8) == 0 {
                    return self.read_ahead(life, state.index, delay);
                }
                self.schedule(delay, Event::ImageCopied(life, generation, state));
            }
            Wish::Confirm(index) => {
                let news = ImageNews::Named(index);
                self.schedule(10 + self.plan.sync_us, Event::Images(life, Box::new(news)));
            }
            Wish::Check(index) => {
                if self.machines[&id].images.images.get(&index).is_some_and(|image| image.rotten) {
                    let delay = 100 + self.rng.below(10_000);
                    let news = ImageNews::Damaged(index);
                    self.schedule(delay, Event::Images(life, Box::new(news)));
                }
            }
            Wish::Remove(index) => {
                self.at(id).images.images.remove(&index);
            }
            Wish::Read(to, index, from) => {
                let image = self.machines[&id].images.images.get(&index);
                let rest = image.map_or(0, |image| image.file.bytes.saturating_sub(from));
                let byte = image.map_or(SOUND, |image| if image.rotten { ROTTEN } else { SOUND });
                let bytes = vec![byte; rest.min(100) as usize];
                let delay = 10 + self.rng.below(2_000);
                let news = ImageNews::Part(to, index, from, bytes);
                self.schedule(delay, Event::Images(life, Box::new(news)));
            }
            Wish::Receive(file, from, bytes) => self.receive(life, file, from, &bytes),
            Wish::Arena(..) | Wish::Start(_) | Wish::Kill => unreachable!("not about images"),
        }
    }

    /// A server stands for an image, perhaps while another follower's does.
    fn stands(&mut self, id: u64, us: u64) {
        let leader = self.leader();
        if leader == Some(id) {
            return;
        }
        let stand = |(other, until): (&u64, &u64)| {
            *other != id && leader != Some(*other) && *until > self.now_us
        };
        self.stood_together += usize::from(self.standing.iter().any(stand));
        self.standing.insert(id, self.now_us + us);
    }

    /// So much is in a server's files that it goes on before they are read.
    fn read_ahead(&mut self, life: Life, index: LogIndex, delay: u64) {
        self.trace(|| format!("{}: reads files ahead of an image of entry {index}", life.replica));
        let copied = ImageNews::Copied { forked: false };
        self.schedule(delay, Event::Images(life, Box::new(copied)));
        let slower = if self.rng.below(4) == 0 { 50 } else { 1 };
        let delay = delay + 1 + slower * self.rng.below(WRITE_US);
        let news = match self.rng.below(4) {
            0 => ImageNews::NotTaken(Trouble::NoRoom("the disk is full".into())),
            _ => ImageNews::FilesRead(index),
        };
        self.schedule(delay, Event::Images(life, Box::new(news)));
    }

    /// What a server has left becomes an image.
    fn keep_files(&mut self, life: Life, state: ServerState) {
        let process = self.machines[&life.replica].process.as_ref().expect("it runs");
        let (generation, program) = process.left.clone().expect("a server has ended");
        let differs = process.differs == generation;
        let index = state.index;
        self.trace(|| format!("{}: keeps files of entry {index}", life.replica));
        let holds = Imaged { state: Arc::new(state), program, differs };
        let bytes = 1 + self.rng.below(BYTES);
        let file = ImageFile { index, bytes, digest: self.images.len() as u128 + 1 };
        self.images.push(holds.clone());
        let delay = 1 + self.rng.below(WRITE_US);
        let image = Shelved { file, holds, confirmed: false, rotten: false };
        self.schedule(delay, Event::ImageWritten(life, Box::new(image)));
    }

    pub(super) fn image_copied(
        &mut self,
        life: Life,
        generation: u64,
        state: ServerState,
    ) -> Result<(), String> {
        if !self.lives(life) {
            return Ok(());
        }
        let id = life.replica;
        let process = self.machines[&id].process.as_ref().expect("it lives");
        let server = process.server.as_ref();
        let Some(server) = server.filter(|server| server.generation == generation) else {
            let why = "its server has ended".to_owned();
            return self.tell(life, Inbox::Images(ImageNews::NotTaken(why.into())));
        };
        let index = state.index;
        if process.executed != index || !server.has_said_all() {
            return Err(format!(
                "replica {id} takes an image at entry {index} of a server that has executed entry {}",
                process.executed
            ));
        }
        let differs = process.differs == generation;
        let (program, state) = (server.program.image(), Arc::new(state));
        let holds = Imaged { state, program: program.clone(), differs };
        self.trace(|| format!("{id}: image of entry {index}"));
        let bytes = 1 + self.rng.below(BYTES);
        let file = ImageFile { index, bytes, digest: self.images.len() as u128 + 1 };
        self.images.push(holds.clone());
        let delay = 1 + self.rng.below(WRITE_US);
        let image = Shelved { file, holds, confirmed: false, rotten: false };
        self.schedule(delay, Event::ImageWritten(life, Box::new(image)));
        let honest = root(index, &program);
        if !differs && !program.flipped {
            self.checker.root(ReplicaId(id), index, honest)?;
        }
        // A server's processes forked where much was to be read.
        let forked = bytes.is_multiple_of(4);
        self.tell(life, Inbox::Images(ImageNews::Copied { forked }))?;
        let root = honest ^ u64::from(differs);
        let read = ImageNews::Read { index, root, pages: 1 };
        self.tell(life, Inbox::Images(read))
    }

    /// A replica ends its server: perhaps because its memory was found to differ, which must be true.
    pub(super) fn note_memory(&mut self, id: u64) {
        let process = self.machines[&id].process.as_ref().expect("it runs");
        let notes = process.replica.snapshot().notes;
        if !notes.iter().any(|note| note.contains("its memory or files, after entry")) {
            return;
        }
        if self.different + self.flips == 0 {
            self.alarm =
                Some(format!("replica {id} rebuilt its server, and all servers were equal"));
        }
        let flipped = process.server.as_ref().is_some_and(|server| server.program.flipped);
        self.mended += usize::from(flipped);
    }

    /// One that was taken, or has come, is on disk.
    pub(super) fn image_written(&mut self, life: Life, image: Shelved) -> Result<(), String> {
        if !self.lives(life) {
            return Ok(());
        }
        let id = life.replica;
        if !image.holds.state.processor.is_empty() && self.machines[&id].level < Level::PROCESSORS {
            return Err(format!(
                "replica {id} has the image of entry {}, which says more than it knows",
                image.file.index
            ));
        }
        if self.machines[&id].process.as_ref().is_some_and(|process| process.replica.env.full) {
            self.trace(|| format!("{id}: no room for the image of entry {}", image.file.index));
            let trouble = Trouble::NoRoom("the disk is full".into());
            let news = match image.confirmed {
                // It has come from another machine.
                true => ImageNews::NotReceived(image.file.index, trouble),
                false => ImageNews::NotTaken(trouble),
            };
            return self.tell(life, Inbox::Images(news));
        }
        let known = image.image();
        let machine = self.at(id);
        machine.images.images.insert(image.file.index, image.clone());
        // Its servers find it there.
        let process = machine.process.as_mut().expect("it lives");
        process.replica.env.imaged.insert(image.file.index, image.holds.program);
        let news = if image.confirmed { ImageNews::Came(known) } else { ImageNews::Kept(known) };
        self.tell(life, Inbox::Images(news))
    }

    /// From now on it counts at a start.
    pub(super) fn image_named(&mut self, life: Life, index: LogIndex) {
        if self.lives(life)
            && let Some(image) = self.at(life.replica).images.images.get_mut(&index)
        {
            image.confirmed = true;
        }
    }

    fn receive(&mut self, life: Life, file: ImageFile, from: u64, bytes: &[u8]) {
        let delay = 10 + self.rng.below(2_000);
        let shelf = &mut self.at(life.replica).images;
        let come = shelf.parts.entry((file.index, file.digest)).or_default();
        if !bytes.is_empty() {
            assert_eq!(come.bytes, from, "parts are stored in order");
            come.bytes += bytes.len() as u64;
            come.rotten |= bytes.contains(&ROTTEN);
        }
        let come = *come;
        if come.bytes < file.bytes {
            let news = ImageNews::Received(file.index, come.bytes);
            return self.schedule(delay, Event::Images(life, Box::new(news)));
        }
        shelf.parts.remove(&(file.index, file.digest));
        if come.rotten {
            let why = "its bytes are not those that its sender named".to_owned();
            let news = ImageNews::NotReceived(file.index, Trouble::Damage(why));
            return self.schedule(delay, Event::Images(life, Box::new(news)));
        }
        self.trace(|| format!("{}: has image of entry {}", life.replica, file.index));
        self.fetched += 1;
        let holds = self.images[file.digest as usize - 1].clone();
        let image = Shelved { file, holds, confirmed: true, rotten: false };
        self.schedule(delay, Event::ImageWritten(life, Box::new(image)));
    }

    /// The bytes of a machine's newest image change. Never those of two machines: nothing would be left.
    pub(super) fn rot_image(&mut self, id: u64) {
        let rotten = |id: u64| self.machines[&id].images.images.values().any(|image| image.rotten);
        if self.ids().into_iter().any(|other| other != id && rotten(other)) {
            return;
        }
        let Some((index, image)) = self.at(id).images.images.iter_mut().next_back() else { return };
        image.rotten = true;
        let index = *index;
        self.trace(|| format!("{id}: its image of entry {index} rots"));
    }

    /// Whether the server that starts from this image will answer otherwise than others.
    pub(super) fn image_differs(&self, id: u64, index: LogIndex) -> bool {
        self.machines[&id].images.images.get(&index).is_some_and(|image| image.holds.differs)
    }
}

/// A hash of all that a server holds.
fn root(index: LogIndex, program: &RegisterServer) -> u64 {
    let mut hash = DefaultHasher::new();
    format!("{index} {program:?}").hash(&mut hash);
    hash.finish()
}
