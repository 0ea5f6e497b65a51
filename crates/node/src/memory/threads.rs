//! The threads of a server, from its arena: for people and for debuggers.

use super::heap::Heap;
use super::{Result, ServerMemory};
use skein_arena::layout::{RUNTIME_BITS, RUNTIME_PLACE, SLOTS_AT};
use skein_arena::parts::Threads;
use std::os::unix::fs::FileExt;

/// Bytes of a thread's name.
const NAME_BYTES: usize = 16;

/// A thread that has not ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Thread {
    /// Its number, from 1.
    pub number: u32,
    /// Its process's number in the server.
    pub pid: u32,
    /// The kernel's number of it there.
    pub tid: u32,
    /// Its state.
    pub state: &'static str,
    /// Its name.
    pub name: String,
}

/// The heap's address in the server, and the position of the threads in it; all zero where the runtime does not tell.
///
/// # Errors
/// The arena cannot be read.
fn places(memory: &ServerMemory) -> Result<(u64, Threads)> {
    let heap = Heap::of(memory)?;
    Ok((heap.address(), heap.threads()))
}

/// The same, and the range of the runtime's addresses, in the form for a debugger's script: `name=number` with commas between.
///
/// # Errors
/// The arena cannot be read.
pub fn for_script(memory: &ServerMemory) -> Result<String> {
    let (heap, at) = places(memory)?;
    let fields: [(&str, u64); 15] = [
        ("threads", heap.wrapping_add(at.at)),
        ("stride", at.stride.into()),
        ("count", at.count.into()),
        ("life", at.life.into()),
        ("sp", at.sp.into()),
        ("fs", at.fs.into()),
        ("tid", at.tid.into()),
        ("pinned", at.pinned.into()),
        ("process", at.process.into()),
        ("name", at.name.into()),
        ("processes", heap.wrapping_add(at.processes_at)),
        ("process_stride", at.process_stride.into()),
        ("pid", at.pid.into()),
        ("place", RUNTIME_PLACE as u64),
        ("slots", SLOTS_AT as u64),
    ];
    let words = fields.map(|(name, number)| format!("{name}={number:#x}"));
    Ok(format!("{}, place_bits={RUNTIME_BITS}", words.join(", ")))
}

/// All threads.
///
/// # Errors
/// The arena cannot be read.
pub fn list(memory: &ServerMemory) -> Result<Vec<Thread>> {
    let (_, places) = places(memory)?;
    let mut found = Vec::new();
    // The server's data are not trusted: an unreadable thread is left out.
    for n in 0..places.count.min(1 << 16) {
        let at = places.at.saturating_add(u64::from(n) * u64::from(places.stride));
        let word = |at: u64, offset: u32| word(memory, at.saturating_add(offset.into()));
        let Some(life) = word(at, places.life) else { break };
        let process = word(at, places.process).unwrap_or(0);
        let state = match life {
            1 => "has the turn",
            2 => "can run",
            3 => "waits",
            5 => "is stopped",
            _ => continue,
        };
        let Some(process) = process.checked_sub(1).filter(|n| *n < places.processes) else {
            continue;
        };
        let of_process = u64::from(process) * u64::from(places.process_stride);
        let pid = word(places.processes_at.saturating_add(of_process), places.pid);
        let mut name = [0; NAME_BYTES];
        read(memory, at.saturating_add(places.name.into()), &mut name);
        let end = name.iter().position(|byte| *byte == 0).unwrap_or(NAME_BYTES);
        found.push(Thread {
            number: n + 1,
            pid: pid.unwrap_or(0),
            tid: word(at, places.tid).unwrap_or(0),
            state,
            name: name[..end].escape_ascii().to_string(),
        });
    }
    Ok(found)
}

fn word(memory: &ServerMemory, at: u64) -> Option<u32> {
    let mut bytes = [0; 4];
    read(memory, at, &mut bytes).then(|| u32::from_le_bytes(bytes))
}

/// Reads from the heap; false if the address is outside.
fn read(memory: &ServerMemory, at: u64, bytes: &mut [u8]) -> bool {
    let end = at.checked_add(bytes.len() as u64);
    let within = end.is_some_and(|end| end <= memory.sizes.heap as u64);
    let heap_at = (memory.sizes.file_bytes() - memory.sizes.heap) as u64;
    within && memory.arena.read_exact_at(bytes, heap_at + at).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use skein_arena::Sizes;

    /// An arena whose heap is empty except for the written words.
    fn memory(pieces: &[(u64, &[u8])]) -> ServerMemory {
        let sizes = Sizes { heap: Sizes::MIN_HEAP, ..Sizes::default() };
        let arena = tempfile::tempfile().unwrap();
        arena.set_len(sizes.file_bytes() as u64).unwrap();
        let heap = (sizes.file_bytes() - sizes.heap) as u64;
        for (at, bytes) in pieces {
            arena.write_all_at(bytes, heap + at).unwrap();
        }
        ServerMemory { init: 1, arena, sizes, parts_at: 4096 }
    }

    fn noted(places: Threads) -> Vec<u8> {
        use skein_arena::parts::{PARTS_BYTES, Parts};
        let parts = Parts::read(&[0; PARTS_BYTES]);
        parts.note_threads(places);
        // SAFETY: plain numbers without padding between them, read as bytes.
        unsafe { std::slice::from_raw_parts((&raw const parts).cast::<u8>(), PARTS_BYTES) }.to_vec()
    }

    #[test]
    fn threads_are_read_with_their_processes() {
        let places = Threads {
            at: 1 << 20,
            stride: 64,
            count: 3,
            life: 0,
            tid: 4,
            process: 8,
            name: 16,
            processes_at: 2 << 20,
            process_stride: 32,
            pid: 4,
            processes: 2,
            ..Threads::default()
        };
        let thread = |life: u32, tid: u32, process: u32, name: &[u8]| {
            let words = [life, tid, process, 0];
            let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            bytes.extend_from_slice(name);
            bytes
        };
        let (first, ended) = (thread(3, 2, 1, b"main"), thread(4, 9, 1, b""));
        let third = thread(1, 8, 2, b"worker\n");
        let memory = memory(&[
            (4096, &noted(places)),
            (1 << 20, &first),
            ((1 << 20) + 64, &ended),
            ((1 << 20) + 128, &third),
            ((2 << 20) + 4, &2u32.to_le_bytes()),
            ((2 << 20) + 36, &7u32.to_le_bytes()),
        ]);
        let found = list(&memory).unwrap();
        let name = |name: &str| name.to_owned();
        assert_eq!(
            found,
            [
                Thread { number: 1, pid: 2, tid: 2, state: "waits", name: name("main") },
                Thread {
                    number: 3,
                    pid: 7,
                    tid: 8,
                    state: "has the turn",
                    name: name("worker\\n")
                },
            ]
        );
    }

    #[test]
    fn impossible_places_are_no_threads() {
        let worst =
            Threads { at: u64::MAX - 3, stride: u32::MAX, count: u32::MAX, ..Threads::default() };
        assert_eq!(list(&memory(&[(4096, &noted(worst))])).unwrap(), []);
        assert_eq!(list(&memory(&[])).unwrap(), []);
    }
}
