//! The wall clock stamps of entries: strictly growing along the log, whatever the leaders' clocks do.

use skein_model::WallNs;

/// Gives out stamps.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stamper {
    last: WallNs,
}

impl Stamper {
    /// A stamp for an entry made now.
    pub fn stamp(&mut self, now: WallNs) -> WallNs {
        self.last = now.max(self.last.next());
        self.last
    }

    /// An entry of the log has this stamp: later ones must be greater.
    pub fn observe(&mut self, wall: WallNs) {
        self.last = self.last.max(wall);
    }

    /// The newest stamp.
    #[must_use]
    pub const fn last(&self) -> WallNs {
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_grow_even_when_the_clock_goes_back() {
        let mut stamper = Stamper::default();
        assert_eq!(stamper.stamp(WallNs(100)), WallNs(100));
        assert_eq!(stamper.stamp(WallNs(40)), WallNs(101));
        stamper.observe(WallNs(500));
        assert_eq!(stamper.stamp(WallNs(200)), WallNs(501));
        assert_eq!(stamper.stamp(WallNs(900)), WallNs(900));
    }
}
