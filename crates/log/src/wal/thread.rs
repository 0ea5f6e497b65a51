//! The thread that owns the [`Wal`] of a running node: group commit.
//!
//! It takes all [`Persist`]s that have gathered during the last sync, appends them and syncs once. Then it reports the
//! durable ticket to the node by a callback, which must do no more than store a number and wake a
//! reactor. After a failure it reports that once and takes nothing more. Another thread writes the [witness](super::witness). Dropping [`WalThread`] writes all queued jobs
//! and joins the thread.
//!
//! While it is idle, another thread that would only wait for it can write by itself ([`WalThread::claim`]), which saves waking this one
//! and being woken by it. Jobs handed over meanwhile are written after that.
//!
//! While the disk is full, the writing thread waits for [room](super::room).

use super::{Wal, WalError, room::Room, witness::Watch};
use crate::types::{Persist, Ticket};
use std::{
    io,
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread::{Builder, JoinHandle},
};

/// The most bytes of entries in one group, so that a backlog does not delay its first entry for long.
const GROUP_BYTES: usize = 4 << 20;

/// A job of the thread.
enum Job {
    Append(Persist),
    /// Fill the file ahead: a thread that wrote by itself does not wait for that.
    Prepare,
}

struct Shared {
    wal: Mutex<Place>,
    returned: Condvar,
    /// Jobs handed over and not done, and claims.
    busy: AtomicUsize,
    room: Arc<Room>,
}

struct Place {
    /// Absent while a thread writes.
    wal: Option<Box<Wal>>,
    /// A thread waits for it; otherwise waking is skipped, which would cost a system call each time.
    awaited: bool,
}

impl Shared {
    fn take(&self) -> Box<Wal> {
        let mut place = self.wal.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(wal) = place.wal.take() {
                return wal;
            }
            place.awaited = true;
            place = self.returned.wait(place).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn give_back(&self, wal: Box<Wal>) {
        let mut place = self.wal.lock().unwrap_or_else(PoisonError::into_inner);
        place.wal = Some(wal);
        if std::mem::take(&mut place.awaited) {
            self.returned.notify_one();
        }
    }

    fn done(&self, jobs: usize) {
        self.busy.fetch_sub(jobs, Ordering::AcqRel);
    }
}

/// The owner of the writing thread; dropping it writes everything and joins.
pub struct WalThread {
    shared: Arc<Shared>,
    sender: Option<mpsc::Sender<Job>>,
    thread: Option<JoinHandle<()>>,
    watch: Option<Watch>,
}

/// The exclusive right to write, held by one thread.
pub struct Claim {
    wal: Option<Box<Wal>>,
    shared: Arc<Shared>,
    sender: mpsc::Sender<Job>,
}

impl WalThread {
    /// Starts the thread. `durable` is called there with the newest durable ticket, or with the failure that ended it.
    pub fn spawn(
        mut wal: Wal,
        durable: impl FnMut(Result<Ticket, WalError>) + Send + 'static,
    ) -> io::Result<Self> {
        let (witness, synced) = (wal.witness.take(), wal.synced.clone());
        let report = Arc::new(Report { durable: Mutex::new(Some(durable)) });
        let told = report.clone();
        let failed = move |error| told.tell(Err(error));
        let watch = witness.map(|witness| Watch::spawn(witness, synced, failed)).transpose()?;
        let room = Arc::new(Room::default());
        wal.room = Some(room.clone());
        let shared = Arc::new(Shared {
            wal: Mutex::new(Place { wal: Some(Box::new(wal)), awaited: false }),
            returned: Condvar::new(),
            busy: AtomicUsize::new(0),
            room,
        });
        let (sender, receiver) = mpsc::channel();
        let own = shared.clone();
        let thread = Builder::new()
            .name("skein-wal".to_owned())
            .spawn(move || run(&own, &receiver, &report))?;
        Ok(Self { shared, sender: Some(sender), thread: Some(thread), watch })
    }

    /// Hands over the next data to make durable. After a failure it is dropped: its ticket is never reported.
    pub fn append(&self, persist: Persist) {
        if let Some(sender) = &self.sender {
            self.shared.busy.fetch_add(1, Ordering::AcqRel);
            // The receiver is gone after a failure only, which was reported.
            let _ = sender.send(Job::Append(persist));
        }
    }

    /// Whether pending writes wait for room on the disk.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.shared.room.is_missing()
    }

    /// The right to write, if no write runs or waits.
    #[must_use]
    pub fn claim(&self) -> Option<Claim> {
        let sender = self.sender.clone()?;
        let busy = &self.shared.busy;
        busy.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Acquire).ok()?;
        let wal = Some(self.shared.take());
        Some(Claim { wal, shared: self.shared.clone(), sender })
    }
}

impl Drop for WalThread {
    fn drop(&mut self) {
        self.sender = None;
        self.shared.room.end();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        // Answers the ticket that was durable at the end.
        self.watch = None;
    }
}

/// The receiver of durable tickets, until the first failure.
struct Report<F> {
    durable: Mutex<Option<F>>,
}

impl<F: FnMut(Result<Ticket, WalError>)> Report<F> {
    fn tell(&self, result: Result<Ticket, WalError>) {
        let mut durable = self.durable.lock().unwrap_or_else(PoisonError::into_inner);
        let failed = result.is_err();
        if let Some(tell) = durable.as_mut() {
            tell(result);
        }
        if failed {
            *durable = None;
        }
    }
}

impl Claim {
    /// Makes these durable, in their order, before this returns; answers the last one's ticket.
    ///
    /// # Errors
    /// As [`Wal::append`] and [`Wal::sync`].
    pub fn write(mut self, persists: &[Persist]) -> Result<Ticket, WalError> {
        let wal = self.wal.as_mut().expect("it is given back when this is dropped");
        let mut ticket = Ticket::default();
        for persist in persists {
            wal.append(persist)?;
            ticket = persist.ticket;
        }
        wal.sync()?;
        if wal.is_to_be_prepared() {
            self.shared.busy.fetch_add(1, Ordering::AcqRel);
            // As above.
            let _ = self.sender.send(Job::Prepare);
        }
        Ok(ticket)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Some(wal) = self.wal.take() {
            self.shared.give_back(wal);
        }
        self.shared.done(1);
    }
}

fn run<F: FnMut(Result<Ticket, WalError>)>(
    shared: &Shared,
    receiver: &mpsc::Receiver<Job>,
    report: &Report<F>,
) {
    while let Ok(first) = receiver.recv() {
        let mut wal = shared.take();
        let mut jobs = 1;
        let result = match first {
            Job::Append(persist) => {
                let result = commit_group(&mut wal, persist, receiver, &mut jobs);
                let failed = result.is_err();
                report.tell(result);
                if failed {
                    return;
                }
                // No thread waits for the rest.
                wal.prepare()
            }
            Job::Prepare => wal.prepare(),
        };
        if let Err(error) = result {
            report.tell(Err(error));
            return;
        }
        shared.give_back(wal);
        shared.done(jobs);
    }
}

fn commit_group(
    wal: &mut Wal,
    first: Persist,
    receiver: &mpsc::Receiver<Job>,
    jobs: &mut usize,
) -> Result<Ticket, WalError> {
    let mut bytes = 0;
    let mut next = Some(first);
    let mut ticket = Ticket::default();
    while let Some(persist) = next.take() {
        wal.append(&persist)?;
        ticket = persist.ticket;
        bytes += persist.entries.iter().map(|entry| entry.payload.len()).sum::<usize>();
        while next.is_none() && bytes < GROUP_BYTES {
            match receiver.try_recv() {
                // It is done after each group.
                Ok(Job::Prepare) => *jobs += 1,
                Ok(Job::Append(persist)) => {
                    *jobs += 1;
                    next = Some(persist);
                }
                Err(_) => break,
            }
        }
    }
    wal.sync()?;
    Ok(ticket)
}
