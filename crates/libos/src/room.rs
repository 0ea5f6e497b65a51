//! The positions of the library's and its host's objects in the arena's heap.

use skein_arena::parts::{Own, Parts, Threads};
use skein_arena::pool::{ArenaObject, Pool};

/// The rest of the heap while it is handed out to pools.
pub struct Room {
    at: *mut u8,
    heap: usize,
    end: usize,
    parts: &'static Parts,
}

impl Room {
    /// All of the heap from byte `used` on.
    ///
    /// # Safety
    /// `heap` is `len` bytes, zero from `used` on and used by nothing else, page-aligned as `used` is, for as long as what is laid out there.
    pub unsafe fn new(heap: *mut u8, used: usize, len: usize, parts: &'static Parts) -> Self {
        // SAFETY: the caller's contract.
        let at = unsafe { heap.add(used) };
        Self { at, heap: heap as usize, end: heap as usize + len, parts }
    }

    /// Gives `pool` room for `capacity` objects; answers where that is.
    pub fn pool<T: ArenaObject>(&mut self, pool: &Pool<T>, capacity: u32) -> *const u8 {
        let base = self.row::<T>(core::any::type_name::<T>(), capacity);
        // SAFETY: fresh zero bytes of the heap, page-aligned.
        unsafe { pool.init(base, capacity) };
        base
    }

    /// Hands out zero bytes for `count` objects of this type; `name` is for comparisons of heaps.
    pub fn row<T>(&mut self, name: &str, count: u32) -> *mut u8 {
        let bytes = (count as usize * size_of::<T>()).next_multiple_of(4096);
        assert!(self.at as usize + bytes <= self.end, "arena too small");
        let at = self.at;
        self.parts.note(name, self.offset(at), size_of::<T>(), count);
        // SAFETY: checked above.
        self.at = unsafe { at.add(bytes) };
        at
    }

    /// `len` bytes at `offset` in each of the `count` objects of this type at `row` may differ between replicas: no server can see them.
    pub fn own<T>(&self, row: *const u8, count: u32, offset: usize, len: usize) {
        let at = self.offset(row) + offset as u64;
        let (stride, count, len) = (size_of::<T>() as u64, count.into(), len as u64);
        self.parts.note_own(Own { at, stride, count, len });
    }

    /// The same for this one place of the heap.
    pub fn own_here<T>(&self, place: &T) {
        self.own::<T>(core::ptr::from_ref(place).cast(), 1, 0, size_of::<T>());
    }

    /// Sets where debuggers find the threads; `at` of both rows is set here.
    pub fn note_threads(&self, threads: *const u8, processes: *const u8, places: Threads) {
        let (at, processes_at) = (self.offset(threads), self.offset(processes));
        self.parts.note_threads(Threads { at, processes_at, ..places });
    }

    fn offset(&self, at: *const u8) -> u64 {
        (at as usize - self.heap) as u64
    }

    /// Bytes left.
    pub fn left(&self) -> usize {
        self.end - self.at as usize
    }
}
