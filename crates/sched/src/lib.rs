//! Ordering policies: who has the turn, when an entry is admitted.
