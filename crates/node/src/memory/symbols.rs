//! Names an address of a process: the program or library, and its symbol.
//!
//! A file's mappings give its load address; its segments give its extent, including variables that are in no file. The files are read as the
//! server sees them, and may hold anything.

use super::{Kind, PAGE_BYTES, Thing};
use object::{Object, ObjectSegment, ObjectSymbol, SymbolKind};
use skein_image::Mapping;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;

/// The largest file whose symbols are read.
const MAX_FILE_BYTES: u64 = 256 << 20;
/// The most symbols of one page.
const MAX_THINGS: usize = 512;

/// The programs and libraries that were read.
#[derive(Default)]
pub struct Objects {
    known: BTreeMap<(u64, u64), Option<Known>>,
}

/// A program or library.
struct Known {
    /// The lowest and the highest address, as linked.
    range: (u64, u64),
    /// Address as linked, length, name.
    symbols: Vec<(u64, u64, String)>,
}

impl Objects {
    /// The objects in the page at `address`.
    pub fn things(&mut self, host_pid: u32, mappings: &[Mapping], address: u64) -> Vec<Thing> {
        // The last object that begins before: mappings behind it without a file may be its.
        let before =
            mappings.iter().rev().filter(|m| m.start <= address && m.offset == 0 && m.is_of_file());
        for mapping in before {
            let known = self.known.entry(mapping.file);
            let known = known.or_insert_with(|| Known::read(host_pid, mapping));
            let Some(known) = known else { continue };
            let base = mapping.start.wrapping_sub(known.range.0 / PAGE_BYTES * PAGE_BYTES);
            let linked = address.wrapping_sub(base);
            if !(known.range.0 / PAGE_BYTES * PAGE_BYTES..known.range.1).contains(&linked) {
                continue;
            }
            let name = mapping.name.rsplit('/').next().unwrap_or_default().to_owned();
            let len = known.range.1 - known.range.0;
            let mut things = vec![Thing {
                kind: Kind::Object,
                address: base.wrapping_add(known.range.0),
                len,
                name,
            }];
            let page = linked..linked + PAGE_BYTES;
            let within = known
                .symbols
                .iter()
                .filter(|(at, len, _)| *at < page.end && at.saturating_add(*len) > page.start);
            things.extend(within.take(MAX_THINGS).map(|(at, len, name)| Thing {
                kind: Kind::Symbol,
                address: base.wrapping_add(*at),
                len: *len,
                name: name.clone(),
            }));
            return things;
        }
        Vec::new()
    }
}

impl Known {
    fn read(host_pid: u32, mapping: &Mapping) -> Option<Self> {
        let path = format!("/proc/{host_pid}/root{}", mapping.name);
        let mut data = Vec::new();
        File::open(path).ok()?.take(MAX_FILE_BYTES).read_to_end(&mut data).ok()?;
        Self::parse(&data)
    }

    fn parse(data: &[u8]) -> Option<Self> {
        let file = object::File::parse(data).ok()?;
        let ends = |segment: object::Segment<'_, '_>| {
            Some((segment.address(), segment.address().checked_add(segment.size())?))
        };
        let segments: Vec<_> = file.segments().filter_map(ends).collect();
        let range = (segments.iter().map(|s| s.0).min()?, segments.iter().map(|s| s.1).max()?);
        let named = |symbol: object::Symbol<'_, '_>| {
            let told =
                matches!(symbol.kind(), SymbolKind::Text | SymbolKind::Data | SymbolKind::Unknown)
                    && symbol.is_definition()
                    && symbol.size() > 0;
            told.then(|| Some((symbol.address(), symbol.size(), symbol.name().ok()?.to_owned())))?
        };
        let mut symbols: Vec<_> =
            file.symbols().chain(file.dynamic_symbols()).filter_map(named).collect();
        symbols.sort();
        symbols.dedup_by(|a, b| (a.0, a.1) == (b.0, b.1));
        Some(Self { range, symbols })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[unsafe(no_mangle)]
    static SKEIN_TEST_OF_SYMBOLS: [u64; 4] = [1, 2, 3, 4];

    #[test]
    fn a_variable_is_found_by_its_address() {
        let at = SKEIN_TEST_OF_SYMBOLS.as_ptr().addr() as u64;
        let arena = tempfile::tempfile().unwrap();
        let mappings = skein_image::maps::of(std::process::id(), &arena).unwrap();
        let page = at / PAGE_BYTES * PAGE_BYTES;
        let things = Objects::default().things(std::process::id(), &mappings, page);
        let of = |kind| things.iter().filter(move |thing| thing.kind == kind);
        let found = of(Kind::Symbol).find(|thing| thing.name == "SKEIN_TEST_OF_SYMBOLS").unwrap();
        assert_eq!((found.address, found.len), (at, 32));
        let object = of(Kind::Object).next().unwrap();
        let test = std::env::current_exe().unwrap();
        assert_eq!(object.name, test.file_name().unwrap().to_str().unwrap());
        assert!((object.address..object.address + object.len).contains(&at));
    }

    #[test]
    fn files_that_are_none_name_nothing() {
        assert!(Known::parse(b"").is_none());
        assert!(Known::parse(&[0x7f; 4096]).is_none());
        let data = std::fs::read("/proc/self/exe").unwrap();
        for len in [4, 16, 63, 64, 500, 4096, data.len() / 2] {
            // Any result is fine, but no panic.
            let _ = Known::parse(&data[..len]);
        }
    }
}
