//! A server's arena as far as these modules read it, and files that are written while they are read.

use super::*;
use crate::{FilesCopied, Plain};
use skein_arena::inodes::{FLAGS_AT, ID_AT, MADE, MAPPED, NUMBER_AT};
use skein_arena::layout::HEADER_BYTES;
use skein_arena::writes::{TO_THE_END, WRITE_BYTES, Write as Noted};
use std::collections::BTreeSet;

const SIZES: Sizes = Sizes { input: 4 << 20, output: 4 << 20, heap: 64 << 20 };
const TABLE_AT: u64 = 0x1_0800;
const RECORD_AT: u64 = 0x200_0010;
const NUMBER: u64 = 77;

/// A server with one file.
struct Server {
    arena: File,
    file: File,
    /// How often it has noted a write.
    noted: u64,
}

impl Server {
    /// Its file has so many pages, no two of which are equal.
    fn new(pages: u64) -> Self {
        let [arena, file] = [(); 2].map(|()| tempfile::tempfile().unwrap());
        arena.set_len(SIZES.file_bytes() as u64).unwrap();
        let mut header = vec![0; HEADER_BYTES];
        for (at, word) in
            [(offset_of!(Header, inodes_at), TABLE_AT), (offset_of!(Header, writes_at), RECORD_AT)]
        {
            header[at..at + 8].copy_from_slice(&word.to_ne_bytes());
        }
        arena.write_all_at(&header, 0).unwrap();
        let mut server = Self { arena, file, noted: 0 };
        server.row(MADE);
        (0..pages).for_each(|n| server.write(n, n));
        server
    }

    fn plain(&self) -> Plain {
        Plain::new(self.file.try_clone().unwrap()).unwrap()
    }

    fn heap(&self, at: u64, bytes: &[u8]) {
        let heap_at = (SIZES.file_bytes() - SIZES.heap) as u64;
        self.arena.write_all_at(bytes, heap_at + at).unwrap();
    }

    /// What its table says about the file.
    fn row(&self, flags: u32) {
        let about = self.file.metadata().unwrap();
        let mut row = [0; INODE_BYTES];
        row[ID_AT..ID_AT + 8].copy_from_slice(&about.dev().to_ne_bytes());
        row[ID_AT + 8..ID_AT + 16].copy_from_slice(&about.ino().to_ne_bytes());
        row[NUMBER_AT..NUMBER_AT + 8].copy_from_slice(&NUMBER.to_ne_bytes());
        row[FLAGS_AT..FLAGS_AT + 4].copy_from_slice(&flags.to_ne_bytes());
        self.heap(TABLE_AT + 9 * INODE_BYTES as u64, &row);
    }

    fn write(&mut self, page: u64, what: u64) {
        let mut bytes = [0; PAGE];
        bytes.as_chunks_mut().0[..100].fill((what + 1).to_le_bytes());
        self.file.write_all_at(&bytes, page * PAGE_BYTES).unwrap();
        self.note(page, page + 1);
    }

    fn note(&mut self, from: u64, to: u64) {
        let [number, pages] = Noted { number: NUMBER, from: from as u32, to: to as u32 }.words();
        let at = RECORD_AT + (1 + self.noted % WRITES as u64) * WRITE_BYTES as u64;
        self.heap(at, &[number.to_ne_bytes(), pages.to_ne_bytes()].concat());
        self.noted += 1;
        self.heap(RECORD_AT, &self.noted.to_ne_bytes());
    }

    fn survey(&self, ahead: Option<&Ahead>) -> Unread {
        let mut survey = Survey::new(&self.arena, SIZES, None, ahead).unwrap();
        survey.contents(&self.plain(), 0, self.file.metadata().unwrap().len());
        survey.finish()
    }

    /// The pages that an image would read; those that it would not are as they are in the file.
    fn read_by_image(&self, ahead: &Ahead) -> BTreeSet<u64> {
        let record = Record::of(&self.arena, SIZES).unwrap();
        let heap = record.pages().unwrap();
        let table = InodeTable::new(&heap, TABLE_AT);
        let now = Rewritten::read(&self.arena, &table, RECORD_AT, None, Some(ahead)).unwrap();
        let mut listed = Before::list(None, Some(ahead), now);
        let about = self.file.metadata().unwrap();
        let known = listed.begin(&self.plain());
        let (mut at, to, mut read) = (0, about.len() / PAGE_BYTES, BTreeSet::new());
        while at < to {
            match listed.next(&known, at, to) {
                Next::Read(pages) => {
                    read.extend(at..at + pages);
                    at += pages;
                }
                Next::Known(hashes) => {
                    for known in hashes {
                        assert_eq!(*known, self.hash(at), "page {at}");
                        at += 1;
                    }
                }
            }
        }
        read
    }

    fn hash(&self, page: u64) -> u128 {
        let mut bytes = [0; PAGE];
        self.file.read_exact_at(&mut bytes, page * PAGE_BYTES).unwrap();
        hash(&bytes)
    }
}

/// A pack's file; the server goes on whenever something is written to it.
struct Out<F: FnMut()>(F);

impl<F: FnMut()> Write for Out<F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (self.0)();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn read(unread: Unread, meanwhile: impl FnMut()) -> (Ahead, Option<PackId>) {
    let (earlier, path) = (Earlier::default(), Path::new("/pack"));
    unread.read(&earlier, &mut Out(meanwhile), path, &|| true).unwrap()
}

#[test]
fn what_is_written_meanwhile_is_read_again() {
    let mut server = Server::new(5000);
    assert_eq!(noted(&server.arena, SIZES, None, None).unwrap(), None);
    let unread = server.survey(None);
    assert_eq!(unread.pages(), 5000);
    let mut seed = 7_u64;
    let mut draw = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) % below
    };
    // The newest notes are told again: they may have grown.
    let mut written: BTreeSet<u64> = (5000 - GROWING..5000).collect();
    let (ahead, own) = read(unread, || {
        let (page, what) = (draw(5000), 1_000_000 + draw(1000));
        server.write(page, what);
        written.insert(page);
    });
    assert!(own.is_some() && written.len() > 50);
    assert_eq!(server.read_by_image(&ahead), written);
    let about = noted(&server.arena, SIZES, None, Some(&ahead)).unwrap();
    assert_eq!(about, Some(written.len() as u64));
    server.write(1, 1);
    written.insert(1);
    assert_eq!(server.read_by_image(&ahead), written);

    // Read ahead once more, nothing is left.
    let unread = server.survey(Some(&ahead));
    assert_eq!(unread.pages(), written.len() as u64);
    let (ahead, _) = read(unread, || ());
    drop(written);
    let left = server.read_by_image(&ahead);
    assert!(left.len() <= GROWING as usize, "the newest notes may grow: {left:?}");
}

#[test]
fn an_image_takes_what_was_read_ahead_by_its_hash() {
    let mut server = Server::new(100);
    let (ahead, _) = read(server.survey(None), || ());
    server.write(50, 9);
    let record = Record::of(&server.arena, SIZES).unwrap();
    let heap = record.pages().unwrap();
    let table = InodeTable::new(&heap, TABLE_AT);
    let now = Rewritten::read(&server.arena, &table, RECORD_AT, None, Some(&ahead)).unwrap();
    let mut copied = FilesCopied::new(None, Some(&ahead), now, None);
    let about = server.file.metadata().unwrap();
    copied.contents(&server.plain(), 0, about.len()).unwrap();
    let (copied, _) = copied.finish();
    let expected: Vec<_> = (0..100).map(|page| server.hash(page)).collect();
    let of = |page| match page {
        crate::copied::Page::Here(page) => hash(page),
        crate::copied::Page::Known(hash) => hash,
    };
    assert_eq!(copied.each().map(of).collect::<Vec<_>>(), expected);
    assert!(copied.fresh() <= 1 + GROWING as usize, "{} pages", copied.fresh());
}

#[test]
fn what_cannot_be_followed_does_not_count() {
    let mut server = Server::new(1000);
    // More notes than the record keeps.
    let unread = server.survey(None);
    let mut is_first = true;
    let (ahead, own) = read(unread, || {
        if std::mem::take(&mut is_first) {
            (0..=WRITES as u64).for_each(|_| server.note(1, 2));
        }
    });
    assert!(own.is_none() && !ahead.is_of(&server.arena).unwrap());
    assert_eq!(server.read_by_image(&ahead).len(), 1000);

    // A file that became shorter meanwhile, and grew again.
    let unread = server.survey(None);
    server.file.set_len(300 * PAGE_BYTES).unwrap();
    server.note(300, TO_THE_END.into());
    let (ahead, _) = read(unread, || ());
    (300..1000).for_each(|page| server.write(page, page));
    assert!((300..1000).all(|page| server.read_by_image(&ahead).contains(&page)));

    // One that was mapped to be written to since.
    let (ahead, _) = read(server.survey(None), || ());
    assert!(server.read_by_image(&ahead).len() < 1000);
    server.row(MADE | MAPPED);
    assert_eq!(server.read_by_image(&ahead).len(), 1000);
    assert_eq!(server.survey(None).pages(), 0);
    server.row(MADE);

    // Another server's.
    let other = Server { arena: Server::new(0).arena, file: server.file, noted: 0 };
    other.row(MADE);
    assert_eq!(other.read_by_image(&ahead).len(), 1000);
}

#[test]
fn a_file_is_followed_unless_it_was_mapped() {
    let mut server = Server::new(100);
    let (ahead, _) = read(server.survey(None), || ());
    server.note(30, 31);
    let listed = |ahead: Option<&Ahead>| {
        let (record, before) = (Record::of(&server.arena, SIZES).unwrap(), None);
        let now = record.rewritten(&server.arena, &record.pages().unwrap(), before, ahead).unwrap();
        let listed = Before::list(None, None, now);
        (listed.follows(&server.plain().about()), listed.written(NUMBER, 100))
    };
    let (followed, written) = listed(Some(&ahead));
    assert_eq!(followed, Some((NUMBER, server.noted)));
    // The newest notes are told again: they may have grown.
    assert_eq!(written, Some(vec![(30, 31), (96, 100)]));
    assert_eq!(listed(None).1, None);
    server.row(MADE | MAPPED);
    assert_eq!(listed(None).0, None);
}
