//! Making and mapping an arena.

use crate::layout::{HEADER_BYTES, Header, MAGIC, SERVER_BASE, Sizes};
use crate::ring::{Consumer, Producer};
use crate::sync::Ordering;

/// Why an arena could not be made or mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapError {
    /// The sizes cannot be used.
    Sizes(Sizes),
    /// A system call failed with this errno.
    System(&'static str, i32),
    /// The file is not an arena of this version.
    Magic(u64),
}

impl core::fmt::Display for MapError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Sizes(s) => write!(
                f,
                "arena too small or not usable: heap {} bytes (at least {}), rings {} and {} bytes (powers of two, at least {} and {})",
                s.heap,
                Sizes::MIN_HEAP,
                s.input,
                s.output,
                4 * skein_model::entry::MAX_ENTRY_BYTES,
                16 * skein_model::frame::MAX_SEND_BYTES
            ),
            Self::System(call, errno) => write!(f, "cannot map the arena: {call}: errno {errno}"),
            Self::Magic(found) => write!(f, "not an arena of this version (magic {found:#x})"),
        }
    }
}

impl core::error::Error for MapError {}

/// A mapped arena. Unmapped when dropped.
#[derive(Debug)]
pub struct Arena {
    base: *mut u8,
    sizes: Sizes,
    keep_heap: bool,
}

// SAFETY: the arena is plain memory; the types of its parts decide which accesses are allowed.
unsafe impl Send for Arena {}
// SAFETY: the header holds atomics only, and the rings' ends are handed out by unsafe functions.
unsafe impl Sync for Arena {}

fn errno() -> i32 {
    // SAFETY: always a valid pointer to this thread's errno.
    unsafe { *libc::__errno_location() }
}

impl Arena {
    /// Node: makes an arena in `fd` (an empty memfd that the caller owns and that may be sealed), sizes it and maps its header and rings.
    ///
    /// The size is sealed: the server has the descriptor too, and a node that reads truncated memory dies of SIGBUS.
    ///
    /// # Errors
    /// The sizes cannot be used, or there is no memory.
    pub fn create(fd: i32, sizes: Sizes) -> Result<Self, MapError> {
        Self::make(fd, sizes, libc::MAP_POPULATE)
    }

    /// As [`create`](Self::create), but the rings take memory only when they are first written: for tests with thousands of short-lived arenas.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub fn create_sparse(fd: i32, sizes: Sizes) -> Result<Self, MapError> {
        Self::make(fd, sizes, 0)
    }

    fn make(fd: i32, sizes: Sizes, populate: i32) -> Result<Self, MapError> {
        if !sizes.valid() {
            return Err(MapError::Sizes(sizes));
        }
        // SAFETY: plain system call on a descriptor that the caller owns.
        if unsafe { libc::ftruncate(fd, sizes.file_bytes() as libc::off_t) } != 0 {
            return Err(MapError::System("ftruncate", errno()));
        }
        let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
        // SAFETY: as above. A second arena in the same file finds it sealed already.
        let sealed = unsafe {
            libc::fcntl(fd, libc::F_GET_SEALS) & seals == seals
                || libc::fcntl(fd, libc::F_ADD_SEALS, seals) == 0
        };
        if !sealed {
            return Err(MapError::System("seal", errno()));
        }
        let arena = Self::map(fd, sizes, None, false, populate)?;
        let header = arena.header();
        header.input_bytes.store(sizes.input as u64, Ordering::Relaxed);
        header.output_bytes.store(sizes.output as u64, Ordering::Relaxed);
        header.heap_bytes.store(sizes.heap as u64, Ordering::Relaxed);
        header.deadline_ns.store(u64::MAX, Ordering::Relaxed);
        header.magic.store(MAGIC, Ordering::Release);
        Ok(arena)
    }

    /// Server: maps the whole arena at [`SERVER_BASE`].
    ///
    /// # Errors
    /// `fd` is no arena, or the address range is taken.
    pub fn attach(fd: i32) -> Result<Self, MapError> {
        Self::map(fd, Self::sizes_of(fd)?, Some(SERVER_BASE), true, libc::MAP_POPULATE)
    }

    /// Maps header and rings anywhere: for a simulated server in the node's own process.
    ///
    /// # Errors
    /// `fd` is no arena, or there is no memory.
    pub fn share(fd: i32) -> Result<Self, MapError> {
        Self::map(fd, Self::sizes_of(fd)?, None, false, 0)
    }

    fn sizes_of(fd: i32) -> Result<Sizes, MapError> {
        // SAFETY: maps one page of the file, read and unmapped again below.
        let page = unsafe {
            libc::mmap(core::ptr::null_mut(), 4096, libc::PROT_READ, libc::MAP_SHARED, fd, 0)
        };
        if page == libc::MAP_FAILED {
            return Err(MapError::System("mmap", errno()));
        }
        // SAFETY: the page was just mapped and is larger than the fields read.
        let (magic, sizes) = unsafe {
            let header = &*page.cast::<Header>();
            let load = |v: &crate::sync::AtomicU64| v.load(Ordering::Acquire) as usize;
            let magic = header.magic.load(Ordering::Acquire);
            let sizes = Sizes {
                input: load(&header.input_bytes),
                output: load(&header.output_bytes),
                heap: load(&header.heap_bytes),
            };
            libc::munmap(page, 4096);
            (magic, sizes)
        };
        if magic != MAGIC {
            return Err(MapError::Magic(magic));
        }
        if !sizes.valid() {
            return Err(MapError::Sizes(sizes));
        }
        Ok(sizes)
    }

    fn map(
        fd: i32,
        sizes: Sizes,
        at: Option<usize>,
        heap: bool,
        populate: i32,
    ) -> Result<Self, MapError> {
        let span = if heap { sizes.span_bytes() } else { sizes.span_bytes() - sizes.heap };
        let fixed = if at.is_some() { libc::MAP_FIXED_NOREPLACE } else { 0 };
        // SAFETY: reserves address space; NOREPLACE keeps existing mappings.
        let base = unsafe {
            libc::mmap(
                at.unwrap_or(0) as *mut libc::c_void,
                span,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | fixed,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(MapError::System("mmap", errno()));
        }
        let arena = Self { base: base.cast(), sizes, keep_heap: heap };
        if at.is_some_and(|want| want != base as usize) {
            return Err(MapError::System("mmap", libc::EEXIST));
        }
        let (input, output) = (sizes.input, sizes.output);
        let mut address = 0;
        let file = [0, HEADER_BYTES, HEADER_BYTES, HEADER_BYTES + input, HEADER_BYTES + input];
        let lens = [HEADER_BYTES, input, input, output, output];
        for (offset, len) in file.into_iter().zip(lens) {
            arena.place(fd, address, offset, len, populate)?;
            address += len;
        }
        if heap {
            arena.place(fd, address, HEADER_BYTES + input + output, sizes.heap, 0)?;
        }
        Ok(arena)
    }

    fn place(
        &self,
        fd: i32,
        at: usize,
        from: usize,
        len: usize,
        flags: i32,
    ) -> Result<(), MapError> {
        // SAFETY: replaces a part of this arena's own reservation.
        let got = unsafe {
            libc::mmap(
                self.base.add(at).cast(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_FIXED | flags,
                fd,
                from as libc::off_t,
            )
        };
        if got == libc::MAP_FAILED { Err(MapError::System("mmap", errno())) } else { Ok(()) }
    }

    /// The header.
    #[must_use]
    pub fn header(&self) -> &Header {
        // SAFETY: the header is mapped as long as `self`, page-aligned, zero-initialised, and all its fields are atomics.
        unsafe { &*self.base.cast::<Header>() }
    }

    /// The sizes, as checked when it was mapped.
    #[must_use]
    pub const fn sizes(&self) -> Sizes {
        self.sizes
    }

    /// The heap's first byte and size; only where the heap is mapped (in the server).
    #[must_use]
    pub fn heap(&self) -> Option<(*mut u8, usize)> {
        let before = self.sizes.span_bytes() - self.sizes.heap;
        // SAFETY: the offset lies within the mapping when the heap is mapped.
        self.keep_heap.then(|| (unsafe { self.base.add(before) }, self.sizes.heap))
    }

    fn input_data(&self) -> *mut u8 {
        // SAFETY: within the mapping.
        unsafe { self.base.add(HEADER_BYTES) }
    }

    fn output_data(&self) -> *mut u8 {
        // SAFETY: within the mapping.
        unsafe { self.base.add(HEADER_BYTES + 2 * self.sizes.input) }
    }

    /// Node's ends of the rings: producer of the input, consumer of the output.
    ///
    /// # Safety
    /// Call once per arena and process, in the node; the arena outlives what is returned.
    #[must_use]
    pub unsafe fn node_ends(&self) -> (Producer, Consumer) {
        let header = self.header();
        // SAFETY: the pointers are valid as long as the arena; single ends by this function's contract.
        unsafe {
            (
                Producer::new(&header.input, self.input_data(), self.sizes.input),
                Consumer::new(&header.output, self.output_data(), self.sizes.output),
            )
        }
    }

    /// Server's ends of the rings: consumer of the input, producer of the output.
    ///
    /// # Safety
    /// Call once per arena and process, in the server; the arena outlives what is returned.
    #[must_use]
    pub unsafe fn server_ends(&self) -> (Consumer, Producer) {
        let header = self.header();
        // SAFETY: as above.
        unsafe {
            (
                Consumer::new(&header.input, self.input_data(), self.sizes.input),
                Producer::new(&header.output, self.output_data(), self.sizes.output),
            )
        }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        let span = self.sizes.span_bytes() - if self.keep_heap { 0 } else { self.sizes.heap };
        // SAFETY: unmaps what `map` reserved.
        unsafe { libc::munmap(self.base.cast(), span) };
    }
}
