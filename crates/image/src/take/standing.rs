//! An image between the two halves of its taking: the server may go on if its private memory is in stand-ins, and must stand on otherwise.

use super::memory::{Found, Private, Stand};
use super::{Image, Taken};
use crate::Result;
use crate::contents::Rewritten;
use crate::processes::Process;
use crate::raw::Raw;
use crate::stand_ins::{self, StandIns};
use skein_arena::parts::Own;
use std::time::Instant;

/// What an image is made of, when all was read of the server that only one that stands has.
pub struct Standing<'a, 'b> {
    pub(super) image: Image<'a, 'b>,
    pub(super) processes: Vec<Process>,
    pub(super) header: Vec<u8>,
    pub(super) heap: Heap,
    /// Of which the pages are to be read yet.
    pub(super) private: Vec<Vec<Private>>,
    pub(super) rewritten: Rewritten,
    /// They have the private memory.
    pub(super) stand_ins: Option<StandIns<'a>>,
    /// Why there are none, though they were wanted.
    pub(super) stood_because: Option<String>,
}

/// The arena's heap.
pub(super) struct Heap {
    /// By position in the heap.
    pub(super) pages: Raw,
    /// Its address in the server.
    pub(super) address: u64,
    /// The bytes that belong to one replica.
    pub(super) owns: Vec<Own>,
}

impl<'b> Standing<'_, 'b> {
    /// Whether the server may go on: its private memory is in stand-ins.
    #[must_use]
    pub const fn is_forked(&self) -> bool {
        self.stand_ins.is_some()
    }

    /// Why it may not, though that was wanted.
    #[must_use]
    pub fn stood_because(&self) -> Option<&str> {
        self.stood_because.as_deref()
    }

    /// Waits for the stand-ins, if there are to be some.
    pub(super) fn await_fork(&mut self, stand: &mut Stand) -> Result<()> {
        let Some(asked) = &mut self.stand_ins else { return Ok(()) };
        if let Err(why) = asked.await_made(stand.deadline) {
            (self.stand_ins, self.stood_because, stand.forked) = (None, Some(why), false);
            self.image.spared = 0;
        }
        Ok(())
    }

    /// Finds out, or copies, what later nobody has.
    pub(super) fn hold_private(&mut self, private: Found, stand: &Stand) -> Result<()> {
        let (image, processes) = (&self.image, &self.processes);
        let mut private = match private {
            Found::Not(mappings) => image.all_private(processes, mappings, stand, |_| true)?,
            Found::Is(private) => image.ask_all(processes, private, stand)?,
        };
        if stand.forked {
            for (process, private) in processes.iter().zip(&mut private) {
                private.iter_mut().try_for_each(|one| one.hold_unforked(process, stand))?;
            }
        }
        self.private = private;
        Ok(())
    }

    /// Copies the private memory. Calls `go_on` when the server need not stand any longer: at once if it [forked](Self::is_forked), and otherwise when it is copied.
    ///
    /// # Errors
    /// As for [`Source::stand`](super::Source::stand).
    pub fn finish(self, deadline: Instant, go_on: impl FnOnce()) -> Result<Taken<'b>> {
        let Self { mut image, processes, header, heap, private, rewritten, .. } = self;
        let mut go_on = Some(go_on);
        if self.stand_ins.is_some() {
            go_on.take().expect("it is the first time")();
        }
        let copies = self.stand_ins.as_ref().map(|all| all.of(image.init, &processes));
        let copies = copies.transpose()?;
        image.all_pages(&processes, copies.as_deref(), private, deadline)?;
        if let Some(go_on) = go_on {
            go_on();
        }
        drop(self.stand_ins);
        (image.ahead.read, image.ahead.protected) = (None, Vec::new());
        stand_ins::await_end(&copies.unwrap_or_default(), deadline);
        image.most_shared = image.most_shared();
        image.heap(&heap)?;
        image.objects()?;
        image.finish(&header, &processes, rewritten)
    }
}
