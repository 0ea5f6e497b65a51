//! Newtypes for the numbers that must not be mixed up.

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(transparent)]
        pub struct $name(pub u64);

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                self.0.fmt(f)
            }
        }

        impl $name {
            /// The id that comes after this one.
            #[must_use]
            pub const fn next(self) -> Self {
                Self(self.0 + 1)
            }
        }
    };
}

id! {
    /// A replica of the cluster, from 1.
    ReplicaId
}
id! {
    /// A consensus term.
    Term
}
id! {
    /// A position in the replicated log, from 1; 0 is "before the first entry".
    LogIndex
}
id! {
    /// The logical clock: how many turns the server has taken.
    Clock
}
id! {
    /// Nanoseconds since the Unix epoch: virtual time, as stamped by a leader, or a wall clock.
    WallNs
}
id! {
    /// A connection between the server and the outside. The upper 32 bits are the low 32 bits of the term whose leader has
    /// it, so that ids are never used twice and a connection's term can be read off its id. Of the lower 32 bits the
    /// highest says which side began it: the gateway numbers clients' connections, the runtime the server's outgoing ones.
    ConnId
}

impl ConnId {
    /// The `n`th connection that the leader of `term` accepted.
    #[must_use]
    pub const fn new(term: Term, n: u32) -> Self {
        Self((term.0 << 32) | n as u64)
    }

    /// The `n`th connection that the server began in `term`.
    #[must_use]
    pub const fn outgoing(term: Term, n: u32) -> Self {
        Self::new(term, n | Self::OUTGOING)
    }

    /// Numbers from here on are of connections that the server began; both kinds have equally many.
    pub const OUTGOING: u32 = 1 << 31;

    /// Whether the server began this connection.
    #[must_use]
    pub const fn is_outgoing(self) -> bool {
        self.0 as u32 & Self::OUTGOING != 0
    }

    /// The low 32 bits of the term whose leader has this connection.
    #[must_use]
    pub const fn term(self) -> Term {
        Term(self.0 >> 32)
    }
}
