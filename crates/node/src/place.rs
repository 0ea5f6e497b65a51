//! Names an address in one of the server's processes: object, offset, function.
//!
//! Used only for error reports: it reads the object's file.

use object::read::elf::ElfFile64;
use object::{Endianness, Object, ObjectSegment, ObjectSymbol};
use std::fs;

/// Objects larger than this are not read for their functions: 256 MiB.
const MOST_BYTES: u64 = 256 << 20;

/// The process whose number is `inner` in the server's namespace; `server`, the first one, if there is none.
#[must_use]
pub fn process(server: u32, inner: u32) -> u32 {
    let namespace = |pid: u32| fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
    let is_meant = |pid: u32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
        let last = numbers.and_then(|numbers| numbers.split_ascii_whitespace().last());
        last.and_then(|last| last.parse().ok()) == Some(inner)
    };
    let own = namespace(server);
    if own.is_none() || is_meant(server) {
        return server;
    }
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut all = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    all.find(|pid| is_meant(*pid) && namespace(*pid) == own).unwrap_or(server)
}

/// As in `libfoo.so+0x12ab (function)`; without a function if it is unknown, the bare address without an object.
#[must_use]
pub fn name(pid: u32, address: u64) -> String {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let Some((path, offset)) = maps.lines().find_map(|line| object_at(line, address)) else {
        return format!("{address:#x}");
    };
    let file = path.rsplit('/').next().unwrap_or(path);
    let function = function_at(&format!("/proc/{pid}/root{path}"), offset);
    let function = function.map(|name| format!(" ({name})")).unwrap_or_default();
    format!("{file}+{offset:#x}{function}")
}

/// The path and the offset in the file, if `address` lies in this line of a list of mappings.
fn object_at(line: &str, address: u64) -> Option<(&str, u64)> {
    let hex = |text| u64::from_str_radix(text, 16).ok();
    let (range, rest) = line.split_once(' ')?;
    let (from, to) = range.split_once('-')?;
    let from = hex(from)?;
    if !(from..hex(to)?).contains(&address) {
        return None;
    }
    let offset = hex(rest.split_ascii_whitespace().nth(1)?)?;
    let path = rest.get(rest.find('/')?..)?;
    Some((path, address - from + offset))
}

/// The function of an ELF file that lies at an offset.
fn function_at(path: &str, offset: u64) -> Option<String> {
    if fs::metadata(path).ok()?.len() > MOST_BYTES {
        return None;
    }
    let data = fs::read(path).ok()?;
    let file = ElfFile64::<Endianness>::parse(&*data).ok()?;
    let address = file.segments().find_map(|segment| {
        let (start, len) = segment.file_range();
        (start..start + len).contains(&offset).then(|| segment.address() + (offset - start))
    })?;
    let all = file.symbols().chain(file.dynamic_symbols());
    let around = |start: u64, len: u64| start <= address && address < start + len.max(1);
    let found = all.filter(|symbol| around(symbol.address(), symbol.size()));
    let name = found.filter_map(|symbol| symbol.name().ok().map(str::to_owned));
    name.into_iter().find(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_this_program_are_named() {
        #[unsafe(no_mangle)]
        extern "C" fn a_function_with_a_name() -> u32 {
            std::hint::black_box(7)
        }
        assert_eq!(a_function_with_a_name(), 7);
        let address = a_function_with_a_name as *const () as u64;
        let name = name(std::process::id(), address);
        assert!(name.contains("+0x") && name.ends_with(" (a_function_with_a_name)"), "{name}");
        assert_eq!(super::name(std::process::id(), 8), "0x8");
    }

    #[test]
    fn a_process_is_found_by_its_number() {
        let own = std::process::id();
        assert_eq!(process(own, own), own);
        assert_eq!(process(own, u32::MAX), own, "there is none");
    }
}
