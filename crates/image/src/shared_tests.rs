//! Memory that two processes share and write to, as they are told, while it is read.

use super::*;
use crate::pages::is_zero;
use crate::raw::merged;
use skein_arena::layout::{HEADER_BYTES, WRITTEN_FD};
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::ptr;

const PAGES: usize = 1500;
const BYTES: usize = PAGES * PAGE;
const PAGE: usize = PAGE_BYTES as usize;
/// `UFFD_USER_MODE_ONLY`.
const USER_MODE_ONLY: i32 = 1;

/// What a process is told to do with a page.
#[derive(Clone, Copy)]
#[repr(u8)]
enum Do {
    Write,
    Clear,
    Drop,
    Unmap,
    End,
}

/// Two processes below one that waits for them.
struct Server {
    memory: *mut u8,
    init: libc::pid_t,
    told: [UnixStream; 2],
    arena: File,
}

impl Server {
    fn new() -> Self {
        let kind = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: new memory.
        let memory = unsafe { libc::mmap(ptr::null_mut(), BYTES, access, kind, -1, 0) };
        assert_ne!(memory, libc::MAP_FAILED);
        let memory = memory.cast::<u8>();
        let (told, mut ends): (Vec<_>, Vec<_>) =
            [(); 2].map(|()| UnixStream::pair().unwrap()).into_iter().unzip();
        let fds: Vec<_> = told.iter().map(AsRawFd::as_raw_fd).collect();
        // SAFETY: the child makes system calls only.
        let init = unsafe { libc::fork() };
        if init == 0 {
            // SAFETY: as above.
            unsafe {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                for fd in fds {
                    libc::close(fd);
                }
                for end in &ends {
                    if libc::fork() == 0 {
                        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                        obey(end.as_raw_fd(), memory);
                    }
                }
                while libc::wait(ptr::null_mut()) > 0 {}
                libc::_exit(0);
            }
        }
        assert!(init > 0, "{}", io::Error::last_os_error());
        // Each has said that it is there.
        let told: [UnixStream; 2] = told.try_into().unwrap();
        ends.clear();
        for mut told in &told {
            told.read_exact(&mut [0]).unwrap();
        }
        let arena = tempfile::tempfile().unwrap();
        arena.set_len(HEADER_BYTES as u64).unwrap();
        let server = Self { memory, init, told, arena };
        server.changes(1);
        server
    }

    /// The runtime has counted so many changes.
    fn changes(&self, count: u32) {
        let at = offset_of!(Header, shared_changes) as u64;
        self.arena.write_all_at(&count.to_ne_bytes(), at).unwrap();
    }

    fn header(&self) -> Vec<u8> {
        let mut header = vec![0; HEADER_BYTES];
        self.arena.read_exact_at(&mut header, 0).unwrap();
        header
    }

    fn tell(&self, process: usize, what: Do, page: usize) {
        let mut told = &self.told[process];
        let page = (page as u16).to_le_bytes();
        told.write_all(&[what as u8, page[0], page[1]]).unwrap();
        if !matches!(what, Do::End) {
            told.read_exact(&mut [0]).unwrap();
        }
    }

    fn read(&self) -> Option<SharedAhead> {
        let (arena, init) = (&self.arena, self.init.cast_unsigned());
        SharedAhead::read(arena, init, &mut Before::default(), 0, &mut None, &mut || true)
    }

    /// The memory and its mappings. Other tests of this process may have some, too.
    fn object(&self) -> Option<(FileId, Places)> {
        let start = self.memory.addr() as u64;
        let objects = objects(self.init.cast_unsigned()).unwrap();
        objects.into_iter().find(|(_, places)| places[0].1.start == start)
    }

    /// What counts of that when they stand.
    fn take(&self, read: &mut SharedAhead) -> Option<Counts> {
        let (id, places) = self.object().expect("memory");
        let places: Vec<_> = places.iter().map(|(p, mapping)| (p.host_pid, mapping)).collect();
        read.take(id, &places, &mut None)
    }

    /// The pages that are not zero.
    fn pages(&self) -> Vec<(u64, [u8; PAGE])> {
        // SAFETY: that memory, while nobody is told to change it.
        let all = unsafe { std::slice::from_raw_parts(self.memory, BYTES) };
        let all = all.as_chunks::<PAGE>().0.iter().enumerate();
        let all = all.filter(|(_, page)| !is_zero(*page));
        all.map(|(n, page)| (n as u64 * PAGE_BYTES, *page)).collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // SAFETY: this process's own child, and memory to which nothing refers.
        unsafe {
            libc::kill(self.init, libc::SIGKILL);
            libc::waitpid(self.init, ptr::null_mut(), 0);
            libc::munmap(self.memory.cast(), BYTES);
        }
    }
}

/// A process: system calls only.
unsafe fn obey(fd: i32, memory: *mut u8) -> ! {
    // SAFETY: the caller's contract.
    unsafe {
        let flags = libc::O_CLOEXEC | USER_MODE_ONLY;
        let made = libc::syscall(libc::SYS_userfaultfd, flags) as i32;
        libc::dup2(made, WRITTEN_FD);
        let mut word = [0_u8; 3];
        while libc::write(fd, word.as_ptr().cast(), 1) == 1
            && libc::read(fd, word.as_mut_ptr().cast(), 3) == 3
        {
            let page = memory.add(u16::from_le_bytes([word[1], word[2]]) as usize * PAGE);
            match word[0] {
                0 => *page.add(9) = (*page.add(9)).wrapping_add(1),
                1 => page.write_bytes(0, PAGE),
                2 => drop(libc::madvise(page.cast(), 4 * PAGE, libc::MADV_DONTNEED)),
                3 => drop(libc::munmap(page.cast(), PAGE)),
                _ => libc::_exit(0),
            }
        }
        libc::_exit(0)
    }
}

/// Only root may read it so, where the kernel tells what was written.
fn can_read() -> bool {
    nix::unistd::geteuid().is_root() && tells_of_shared()
}

#[test]
fn what_processes_write_meanwhile_is_read_again() {
    let server = Server::new();
    (0..PAGES - 100).for_each(|page| server.tell(page % 2, Do::Write, page));
    let Some(mut read) = server.read() else {
        assert!(!can_read(), "it can be read");
        return;
    };
    let changes = [
        (0, Do::Write, 0),
        (1, Do::Write, 7),
        (0, Do::Write, 7),
        (1, Do::Clear, 8),
        (0, Do::Write, 100),
        // Its page tables have nothing of it any more.
        (0, Do::Drop, 100),
        // Neither has used it before.
        (1, Do::Write, PAGES - 1),
        (0, Do::Write, PAGES - 40),
    ];
    for (process, what, page) in changes {
        server.tell(process, what, page);
    }
    assert!(read.counts(&server.header()));
    let counts = server.take(&mut read).expect("it counts");
    assert_eq!((counts.pages.len(), counts.since.len()), (PAGES - 100, 6));
    let found: Vec<_> =
        merged(&counts.pages, &counts.since).map(|(at, page)| (at, *page)).collect();
    assert!(found == server.pages());
    // From then on nothing is protected.
    drop(counts);
    let (process, mapping) = &server.object().unwrap().1[0];
    let pages = Pages::of(process).unwrap();
    let rows = unprotected(pages.pagemap(), mapping.start, mapping.end).unwrap();
    assert_eq!(rows, [(mapping.start, mapping.end)]);
}

#[test]
fn nothing_counts_when_what_is_mapped_has_changed() {
    for change in [Do::Unmap, Do::End] {
        let server = Server::new();
        (0..PAGES).for_each(|page| server.tell(0, Do::Write, page));
        let Some(mut read) = server.read() else {
            assert!(!can_read(), "it can be read");
            return;
        };
        server.tell(1, Do::Write, 3);
        server.tell(1, change, PAGES - 1);
        if matches!(change, Do::End) {
            let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
            while server.object().is_some_and(|(_, places)| places.len() > 1) {
                assert!(std::time::Instant::now() < deadline, "it ends");
                std::thread::yield_now();
            }
        }
        assert!(server.take(&mut read).is_none());
        // By the runtime alone, where nothing is to be seen.
        server.changes(2);
        assert!(!read.counts(&server.header()));
    }
    let server = Server::new();
    server.changes(0);
    assert!(server.read().is_none(), "a runtime that does not count");
}
