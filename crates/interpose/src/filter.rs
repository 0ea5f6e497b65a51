//! The net's decision as a binary search: the caught numbers as a tree of comparisons that a classic BPF program can hold.
//!
//! Runs of numbers with the same answer become one comparison each. The number is compared before anything else, so Linux (since 5.11)
//! recognises calls that are always allowed and does not run the program for them.

use crate::{caught, descriptors};

/// Goes right when the number is at least `pivot`, left otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// The first number of the right side.
    pub pivot: u32,
    /// The branch for smaller numbers.
    pub left: Next,
    /// The branch for the others.
    pub right: Next,
}

/// The target of a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Another comparison, by its place in the tree; always a later one.
    Node(u16),
    /// The call is caught.
    Caught,
    /// The call is let through.
    Through,
    /// The call is let through unless this argument is a descriptor of the runtime's.
    Guarded(u8),
}

/// The places of arguments that [`Next::Guarded`] names.
pub const GUARDED: [u8; 2] = [0, 4];

/// The outcome for a call.
fn decision(nr: i64) -> Next {
    if caught(nr) {
        return Next::Caught;
    }
    descriptors(nr).first().map_or(Next::Through, |place| Next::Guarded(*place as u8))
}

/// The most comparisons that a program's short jumps can reach over.
pub const MAX_NODES: usize = 240;

/// A tree of comparisons; the first one is the root.
#[derive(Clone, Copy, Debug)]
pub struct Tree {
    nodes: [Node; MAX_NODES],
    len: usize,
}

impl Tree {
    /// The tree of the table.
    ///
    /// # Panics
    /// The table has more runs than fit, or only one (only a test has such a table).
    #[must_use]
    pub fn new() -> Self {
        let end = crate::SYSCALLS.last().map_or(0, |row| u32::from(row.nr) + 1);
        // Every number at which the answer changes. Numbers behind the table are caught: unknown ones and those of the x32 interface.
        let mut changes = [0u32; MAX_NODES];
        let mut count = 0;
        for nr in 1..=end {
            if decision(i64::from(nr)) != decision(i64::from(nr) - 1) {
                changes[count] = nr;
                count += 1;
            }
        }
        let none = Node { pivot: 0, left: Next::Caught, right: Next::Caught };
        let mut tree = Self { nodes: [none; MAX_NODES], len: 0 };
        assert!(matches!(tree.split(&changes[..count], 0), Next::Node(0)));
        tree
    }

    /// The comparisons.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes[..self.len]
    }

    /// Adds the tree over `changes`; `first` is a number below the first of them.
    fn split(&mut self, changes: &[u32], first: u32) -> Next {
        let Some(pivot) = changes.get(changes.len() / 2).copied() else {
            return decision(i64::from(first));
        };
        let at = self.len;
        self.len += 1;
        let (below, above) = changes.split_at(changes.len() / 2);
        let left = self.split(below, first);
        let right = self.split(&above[1..], pivot);
        self.nodes[at] = Node { pivot, left, right };
        Next::Node(at as u16)
    }
}

impl Default for Tree {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn walk(tree: &Tree, nr: u32) -> (Next, usize) {
        let (mut at, mut steps) = (Next::Node(0), 0);
        loop {
            match at {
                Next::Node(n) => {
                    let node = tree.nodes()[n as usize];
                    let next = if nr >= node.pivot { node.right } else { node.left };
                    if let Next::Node(later) = next {
                        assert!(later > n, "jumps go forward only");
                    }
                    at = next;
                    steps += 1;
                }
                end => return (end, steps),
            }
        }
    }

    #[test]
    fn the_tree_decides_as_the_table_does() {
        let tree = Tree::new();
        for nr in (0..2000).chain([1 << 30, (1 << 30) + 1, u32::MAX]) {
            assert_eq!(walk(&tree, nr).0, decision(i64::from(nr)), "{nr}");
        }
        assert_eq!(walk(&tree, 9).0, Next::Guarded(4), "mmap");
        assert_eq!(walk(&tree, 10).0, Next::Through, "mprotect");
    }

    #[test]
    fn all_guarded_places_are_known() {
        for nr in 0..512 {
            if let Next::Guarded(place) = decision(nr) {
                assert!(GUARDED.contains(&place), "{nr}");
            }
        }
    }

    #[test]
    fn every_call_is_decided_in_few_steps() {
        let tree = Tree::new();
        let most = (0..512).map(|nr| walk(&tree, nr).1).max();
        assert!(most <= Some(9), "{most:?}");
    }
}
