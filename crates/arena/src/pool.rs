//! Fixed tables of objects in the heap, addressed by small handles instead of pointers.
//!
//! Freed slots are used again last-in-first-out, so the handle that an allocation gets depends only on the allocations and frees
//! before it: the same on every replica.

use core::cell::Cell;
use core::marker::PhantomData;

/// An object that may live in the arena: valid when all its bytes are zero, no pointers, no drop.
///
/// # Safety
/// All-zero bytes are a valid value, and the type holds no pointers to process-private memory that another process would follow.
pub unsafe trait ArenaObject {}

/// A reference to an object of a pool; never 0.
pub struct Handle<T> {
    index: core::num::NonZeroU32,
    kind: PhantomData<fn() -> T>,
}

impl<T> Clone for Handle<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Handle<T> {}
impl<T> PartialEq for Handle<T> {
    fn eq(&self, other: &Self) -> bool {
        self.index == other.index
    }
}
impl<T> Eq for Handle<T> {}
impl<T> core::fmt::Debug for Handle<T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "#{}", self.index)
    }
}

impl<T> Handle<T> {
    /// The handle as a number, from 1; 0 stands for none.
    #[must_use]
    pub const fn raw(self) -> u32 {
        self.index.get()
    }

    /// The handle with this number.
    #[must_use]
    pub const fn from_raw(raw: u32) -> Option<Self> {
        match core::num::NonZeroU32::new(raw) {
            Some(index) => Some(Self { index, kind: PhantomData }),
            None => None,
        }
    }
}

/// An optional handle in a cell: the usual link between objects.
#[repr(transparent)]
pub struct Link<T> {
    raw: Cell<u32>,
    kind: PhantomData<fn() -> T>,
}

impl<T> Default for Link<T> {
    fn default() -> Self {
        Self { raw: Cell::new(0), kind: PhantomData }
    }
}

impl<T> Link<T> {
    /// The handle, if any.
    pub fn get(&self) -> Option<Handle<T>> {
        Handle::from_raw(self.raw.get())
    }

    /// Points to `to`, or to nothing.
    pub fn set(&self, to: Option<Handle<T>>) {
        self.raw.set(to.map_or(0, Handle::raw));
    }

    /// Takes the handle out, leaving none.
    pub fn take(&self) -> Option<Handle<T>> {
        Handle::from_raw(self.raw.replace(0))
    }
}

/// A table of up to `capacity` objects. All-zero bytes and then [`init`](Self::init) make one.
#[repr(C)]
pub struct Pool<T> {
    base: Cell<usize>,
    capacity: Cell<u32>,
    /// Slots ever used.
    high: Cell<u32>,
    /// Last freed slot; the slot's first four bytes name the one freed before it.
    free: Cell<u32>,
    used: Cell<u32>,
    kind: PhantomData<fn() -> T>,
}

impl<T: ArenaObject> Pool<T> {
    /// Bytes that a table of `capacity` objects takes.
    #[must_use]
    pub const fn bytes(capacity: u32) -> usize {
        capacity as usize * core::mem::size_of::<T>()
    }

    /// Makes the pool use the memory at `base`.
    ///
    /// # Safety
    /// `base` is aligned for `T`, `Pool::bytes(capacity)` long, all zero, used by nothing else, and mapped at this address
    /// as long as the pool is used.
    pub unsafe fn init(&self, base: *mut u8, capacity: u32) {
        const { assert!(core::mem::size_of::<T>() >= 4 && core::mem::align_of::<T>() >= 4) };
        assert!((base as usize).is_multiple_of(core::mem::align_of::<T>()), "pool not aligned");
        self.base.set(base as usize);
        self.capacity.set(capacity);
    }

    fn slot(&self, raw: u32) -> *mut T {
        debug_assert!(raw >= 1 && raw <= self.high.get());
        (self.base.get() as *mut T).wrapping_add(raw as usize - 1)
    }

    /// A new object, all its bytes zero; `None` when the table is full.
    pub fn alloc(&self) -> Option<Handle<T>> {
        // SAFETY: nothing is left out.
        unsafe { self.alloc_partly(size_of::<T>()) }
    }

    /// A new object of which the first `zeroed` bytes are zero. The others keep the content that the memory had.
    ///
    /// # Safety
    /// The caller reads no other byte before it has written it.
    // The length is a constant in each caller, so this is a few stores or one call.
    #[inline(always)]
    pub unsafe fn alloc_partly(&self, zeroed: usize) -> Option<Handle<T>> {
        let zeroed = zeroed.min(size_of::<T>());
        let raw = match self.free.get() {
            0 if self.high.get() < self.capacity.get() => {
                self.high.set(self.high.get() + 1);
                self.high.get()
            }
            0 => return None,
            raw => {
                let slot = self.slot(raw);
                // SAFETY: a free slot lies in the table; its first four bytes are the free list's link.
                unsafe {
                    self.free.set(slot.cast::<u32>().read());
                    slot.cast::<u8>().write_bytes(0, zeroed);
                }
                raw
            }
        };
        self.used.set(self.used.get() + 1);
        Handle::from_raw(raw)
    }

    /// Frees an object. The handle must not be used again.
    pub fn free(&self, handle: Handle<T>) {
        // SAFETY: the slot lies in the table and `T` has no drop (it is an arena object).
        unsafe { self.slot(handle.raw()).cast::<u32>().write(self.free.get()) };
        self.free.set(handle.raw());
        self.used.set(self.used.get() - 1);
    }

    /// The object.
    pub fn get(&self, handle: Handle<T>) -> &T {
        // SAFETY: handles come from `alloc` of this pool only, so the slot lies in the table and holds a valid (at least zeroed) `T`; objects
        // are changed through cells only.
        unsafe { &*self.slot(handle.raw()) }
    }

    /// The number of objects.
    pub fn used(&self) -> u32 {
        self.used.get()
    }

    /// The largest number of objects.
    pub fn capacity(&self) -> u32 {
        self.capacity.get()
    }

    /// Slots ever used: handles run from 1 to this.
    pub fn high(&self) -> u32 {
        self.high.get()
    }
}
