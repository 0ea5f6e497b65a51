//! Is the disk under the log as fast as it should be?
//!
//! A write that is not done after [`LATE`] counts as hanging; a disk whose last [`SLOW_WRITES`] writes all took [`SLOW`] or longer is
//! slow. A write beside the log can hang, too. Time counts from when the log's thread gets a write, so a write that waits behind another counts its wait.

use super::{Fault, seconds};
use skein_log::Ticket;
use std::collections::VecDeque;
use std::time::Duration;

/// A write that takes longer is named.
const LATE: Duration = Duration::from_secs(1);
/// A write that takes longer is slow;
const SLOW: Duration = Duration::from_millis(25);
/// the disk is slow when this many in a row are,
const SLOW_WRITES: usize = 8;
/// and the last of them is not older than this.
const FRESH: Duration = Duration::from_secs(3);

/// The writes of the log that are not done, and the durations of the last ones.
#[derive(Debug, Default)]
pub struct Disk {
    unsynced: VecDeque<(Ticket, Duration)>,
    beside: Option<Duration>,
    took: VecDeque<Duration>,
    last: Duration,
}

impl Disk {
    /// The disk got the write of this ticket.
    pub fn began(&mut self, ticket: Ticket, now: Duration) {
        self.unsynced.push_back((ticket, now));
    }

    /// The writes of this ticket, and of all before it, are durable.
    pub fn done(&mut self, ticket: Ticket, now: Duration) {
        let mut since = None;
        while let Some((_, began)) = self.unsynced.pop_front_if(|(at, _)| *at <= ticket) {
            // The newest of a group waited for nothing but this write.
            since = Some(began);
        }
        if let Some(since) = since {
            self.took.push_back(now.saturating_sub(since));
            if self.took.len() > SLOW_WRITES {
                self.took.pop_front();
            }
            self.last = now;
        }
    }

    /// The time since when a write beside the log has been waited for, if there is one.
    pub const fn beside(&mut self, since: Option<Duration>) {
        self.beside = since;
    }

    /// The waiting time of the oldest write.
    #[must_use]
    pub fn waits(&self, now: Duration) -> Option<Duration> {
        let unsynced = self.unsynced.front().map(|(_, since)| *since);
        let since = unsynced.into_iter().chain(self.beside).min();
        since.map(|since| now.saturating_sub(since))
    }

    /// The disk's fault.
    #[must_use]
    pub fn fault(&self, now: Duration) -> Option<Fault> {
        if let Some(waits) = self.waits(now).filter(|waits| *waits >= LATE) {
            let why =
                format!("its disk has not finished a write of the log for {}", seconds(waits));
            return Some(Fault::new("disk_hangs", why));
        }
        let fresh = now.saturating_sub(self.last) < FRESH;
        let least = self.took.iter().min().filter(|_| self.took.len() == SLOW_WRITES && fresh)?;
        (*least >= SLOW).then(|| {
            let why =
                format!("its disk takes {} ms and more for a write of the log", least.as_millis());
            Fault::new("disk_slow", why)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn name(disk: &Disk, now: Duration) -> Option<String> {
        disk.fault(now).map(|fault| fault.name)
    }

    #[test]
    fn a_write_that_hangs_is_named_until_it_is_done() {
        let mut disk = Disk::default();
        disk.began(Ticket(1), 10 * MS);
        disk.began(Ticket(2), 500 * MS);
        assert_eq!(name(&disk, 1000 * MS), None);
        assert_eq!(name(&disk, 1010 * MS).unwrap(), "disk_hangs");
        assert_eq!(disk.waits(1010 * MS), Some(1000 * MS));
        disk.done(Ticket(1), 1200 * MS);
        assert_eq!(disk.waits(1200 * MS), Some(700 * MS));
        disk.done(Ticket(2), 1200 * MS);
        assert_eq!((name(&disk, 9000 * MS), disk.waits(9000 * MS)), (None, None));
        disk.beside(Some(8000 * MS));
        disk.began(Ticket(3), 8500 * MS);
        assert_eq!(disk.waits(9000 * MS), Some(1000 * MS));
        assert_eq!(name(&disk, 9000 * MS).unwrap(), "disk_hangs");
        disk.beside(None);
        assert_eq!(disk.waits(9000 * MS), Some(500 * MS));
    }

    #[test]
    fn a_disk_is_slow_while_every_write_is() {
        let mut disk = Disk::default();
        let mut now = Duration::ZERO;
        let mut write = |disk: &mut Disk, number: u64, takes: Duration| {
            disk.began(Ticket(number), now);
            now += takes;
            disk.done(Ticket(number), now);
            now
        };
        for number in 1..8 {
            let now = write(&mut disk, number, 50 * MS);
            assert_eq!(name(&disk, now), None);
        }
        let now = write(&mut disk, 8, 50 * MS);
        let fault = disk.fault(now).unwrap();
        assert_eq!(fault.name, "disk_slow");
        assert!(fault.why.contains("50 ms"), "{}", fault.why);
        assert_eq!(name(&disk, now + FRESH), None, "nothing is known any more");
        let now = write(&mut disk, 9, MS);
        assert_eq!(name(&disk, now), None);
    }
}
