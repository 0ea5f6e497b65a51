//! Which kinds of replicas can form a cluster.

use crate::{places::Kind, types::majority};

/// The reason why replicas of these kinds cannot form a cluster, if they cannot: a witness has no server, and forgets the log behind others' images. So of the
/// replicas that are left after the losses that the cluster is to survive, one must be able to have a server.
#[must_use]
pub fn unfit_kinds(kinds: &[Kind]) -> Option<UnfitKinds> {
    let replicas = kinds.len();
    let needed = replicas - majority(replicas) + 1;
    let can_serve = kinds.iter().filter(|kind| kind.can_serve()).count();
    if !kinds.contains(&Kind::Active) {
        return Some(UnfitKinds::NoActive);
    }
    (can_serve < needed).then_some(UnfitKinds::Witnesses { replicas, needed, can_serve })
}

/// See [`unfit_kinds`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnfitKinds {
    /// Nobody has a server without leading.
    #[error("no replica would be active, and a cluster needs one")]
    NoActive,
    /// Too many witnesses.
    #[error(
        "of {replicas} replicas only {can_serve} would be active or passive, and {needed} must be: the others lost, only witnesses could be left, which cannot serve"
    )]
    Witnesses {
        /// All of them.
        replicas: usize,
        /// So many must be able to have a server.
        needed: usize,
        /// So many can.
        can_serve: usize,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_can_have_a_server_is_left_after_every_loss_to_be_survived() {
        use Kind::{Active, Passive, Witness};
        let fits = |kinds: &[Kind]| unfit_kinds(kinds).is_none();
        assert!(fits(&[Active]) && fits(&[Active, Witness]) && fits(&[Active, Passive]));
        assert!(fits(&[Active, Passive, Witness]) && fits(&[Active, Active, Witness]));
        assert!(fits(&[Active, Passive, Passive, Witness, Witness]));
        assert!(!fits(&[Active, Witness, Witness]) && !fits(&[Passive, Passive, Witness]));
        assert!(!fits(&[Active, Active, Witness, Witness, Witness]) && !fits(&[Witness]));
    }
}
