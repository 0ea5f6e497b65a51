//! Intrusive doubly linked lists over pool handles: run queue, wait queues, watchers.

use crate::pool::{ArenaObject, Handle, Link, Pool};

/// An object's place in one list.
#[repr(C)]
pub struct Node<T> {
    prev: Link<T>,
    next: Link<T>,
}

impl<T> Default for Node<T> {
    fn default() -> Self {
        Self { prev: Link::default(), next: Link::default() }
    }
}

/// Selects the node of an object that a list uses.
pub trait In<L>: ArenaObject + Sized {
    /// The node.
    fn node(&self) -> &Node<Self>;
}

/// A list of `T`s by the node `In<L>`. All-zero bytes are an empty list.
#[repr(C)]
pub struct List<T, L> {
    head: Link<T>,
    tail: Link<T>,
    len: core::cell::Cell<u32>,
    kind: core::marker::PhantomData<fn() -> L>,
}

impl<T, L> Default for List<T, L> {
    fn default() -> Self {
        Self {
            head: Link::default(),
            tail: Link::default(),
            len: core::cell::Cell::new(0),
            kind: core::marker::PhantomData,
        }
    }
}

impl<T: In<L>, L> List<T, L> {
    /// The first element.
    pub fn front(&self) -> Option<Handle<T>> {
        self.head.get()
    }

    /// The number of elements.
    pub fn len(&self) -> u32 {
        self.len.get()
    }

    /// Whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.len.get() == 0
    }

    /// All elements, from the first on. The current element may be removed during the iteration, because the next one is known by then.
    pub fn iter<'a>(
        &self,
        pool: &'a Pool<T>,
    ) -> impl Iterator<Item = (Handle<T>, &'a T)> + use<'a, T, L> {
        let mut at = self.head.get();
        core::iter::from_fn(move || {
            let handle = at?;
            let element = pool.get(handle);
            at = element.node().next.get();
            Some((handle, element))
        })
    }

    /// The element behind `of`.
    pub fn next(&self, pool: &Pool<T>, of: Handle<T>) -> Option<Handle<T>> {
        pool.get(of).node().next.get()
    }

    /// Puts an object at the front. It must be in no list of this kind.
    pub fn push_front(&self, pool: &Pool<T>, handle: Handle<T>) {
        let node = pool.get(handle).node();
        debug_assert!(node.prev.get().is_none() && node.next.get().is_none());
        let head = self.head.get();
        node.prev.set(None);
        node.next.set(head);
        match head {
            Some(head) => pool.get(head).node().prev.set(Some(handle)),
            None => self.tail.set(Some(handle)),
        }
        self.head.set(Some(handle));
        self.len.set(self.len.get() + 1);
    }

    /// Adds at the end. The element is in no list by this node.
    pub fn push_back(&self, pool: &Pool<T>, handle: Handle<T>) {
        let node = pool.get(handle).node();
        debug_assert!(node.prev.get().is_none() && node.next.get().is_none());
        let tail = self.tail.get();
        node.prev.set(tail);
        node.next.set(None);
        match tail {
            Some(tail) => pool.get(tail).node().next.set(Some(handle)),
            None => self.head.set(Some(handle)),
        }
        self.tail.set(Some(handle));
        self.len.set(self.len.get() + 1);
    }

    /// Takes the first element out.
    pub fn pop_front(&self, pool: &Pool<T>) -> Option<Handle<T>> {
        let handle = self.head.get()?;
        self.remove(pool, handle);
        Some(handle)
    }

    /// Takes an element out that is in this list.
    pub fn remove(&self, pool: &Pool<T>, handle: Handle<T>) {
        let node = pool.get(handle).node();
        let (prev, next) = (node.prev.take(), node.next.take());
        match prev {
            Some(prev) => pool.get(prev).node().next.set(next),
            None => self.head.set(next),
        }
        match next {
            Some(next) => pool.get(next).node().prev.set(prev),
            None => self.tail.set(prev),
        }
        self.len.set(self.len.get() - 1);
    }
}
