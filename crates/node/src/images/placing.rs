//! The pages of a server's processes are unpacked into their memory, while they continue from an image: those of each when it has made its mappings and asks
//! ([`skein_arena::restore::placing`]). On several threads, since unpacking is most of the work.

use skein_arena::layout::Header;
use skein_arena::restore::Run;
use skein_arena::restore::placing::{FIRST, IN_FILE, NOT, OFFERED, PLACED};
use skein_image::file::ImageError;
use skein_image::futex;
use skein_image::placed::Placed;
use skein_image::processes::Memories;
use skein_image::restore_file::Private;
use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// A thread takes so many bytes at a time, or a little more.
const PART_BYTES: u64 = 1 << 20;
/// The most threads: more than these wait for memory.
const MAX_THREADS: usize = 4;
/// How often it is looked whether the server is still there while it asks for nothing.
const LOOK: Duration = Duration::from_millis(20);

/// Where the pages of a server's processes came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Came {
    /// All are in memory.
    Placed,
    /// The processes read them from the file.
    InFile,
    /// The server has ended or goes on without them, or is not wanted.
    Nowhere,
}

/// The node writes pages.
pub fn offer(header: &Header) {
    header.restore_asks.store(OFFERED, Ordering::Release);
}

/// Writes the pages of each process that asks, until all have theirs or nobody wants them.
///
/// # Errors
/// The image is damaged, or the system lacks something.
pub fn place(
    header: &Header,
    init: u32,
    processes: &[Private],
    placed: Placed,
    is_wanted: &dyn Fn() -> bool,
) -> Result<Came, ImageError> {
    let asks = &header.restore_asks;
    let numbers = processes.iter().enumerate().filter(|(_, process)| !process.runs.is_empty());
    let mut left: BTreeSet<usize> = numbers.map(|(number, _)| number).collect();
    let (mut memories, mut places) = (Memories::new(init), vec![placed]);
    let mut was_begun = false;
    while !left.is_empty() {
        let is_begun = header.restoring.load(Ordering::Acquire) != 0;
        if !is_wanted() || was_begun && !is_begun {
            return Ok(Came::Nowhere);
        }
        was_begun = is_begun;
        let asked = asks.load(Ordering::Acquire);
        // Whoever comes that far without having accepted is of before.
        if asked == OFFERED && is_begun || asked == NOT {
            return Ok(Came::InFile);
        }
        let Some(number) = asked.checked_sub(FIRST) else {
            futex::wait(asks, asked, LOOK);
            continue;
        };
        let (number, mut is_placed) = (number as usize, false);
        if left.remove(&number) {
            let Private { pid, runs } = &processes[number];
            if let Ok(memory) = memories.open(*pid) {
                is_placed = write(&mut places, runs, &memory, is_wanted)?;
            }
        }
        if is_placed {
            answer(asks, PLACED);
            continue;
        }
        answer(asks, IN_FILE);
        // What has ended is known a moment later.
        thread::sleep(LOOK);
        return Ok(if is_wanted() { Came::InFile } else { Came::Nowhere });
    }
    Ok(Came::Placed)
}

fn answer(asks: &AtomicU32, value: u32) {
    asks.store(value, Ordering::Release);
    futex::wake(asks);
}

/// Writes these pages; false: the memory cannot be written, or nobody wants it.
fn write(
    places: &mut Vec<Placed>,
    runs: &[Run],
    memory: &File,
    is_wanted: &dyn Fn() -> bool,
) -> Result<bool, ImageError> {
    let parts = parts(&places[0], runs)?;
    let threads = thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS);
    let threads = threads.min(parts.len()).max(1);
    while places.len() < threads
        && let Ok(more) = places[0].again()
    {
        places.push(more);
    }
    let (next, is_refused) = (AtomicUsize::new(0), AtomicBool::new(false));
    let work = |placed: &mut Placed, is_wanted: Option<&dyn Fn() -> bool>| {
        while let Some(part) = parts.get(next.fetch_add(1, Ordering::Relaxed)) {
            if is_wanted.is_some_and(|is_wanted| !is_wanted()) {
                is_refused.store(true, Ordering::Relaxed);
            }
            for run in part {
                if is_refused.load(Ordering::Relaxed) {
                    return Ok(());
                }
                if write_run(placed, *run, memory)?.is_err() {
                    is_refused.store(true, Ordering::Relaxed);
                }
            }
        }
        Ok(())
    };
    thread::scope(|scope| {
        let (own, others) = places.split_first_mut().expect("one is always there");
        // Where there are no more threads, fewer do it all.
        let start = |placed| {
            let thread = thread::Builder::new().name("skein-pages".to_owned());
            thread.spawn_scoped(scope, || work(placed, None)).ok()
        };
        let others: Vec<_> = others.iter_mut().take(threads - 1).filter_map(start).collect();
        let done = work(own, Some(is_wanted));
        let join = |other: thread::ScopedJoinHandle<'_, _>| {
            other.join().unwrap_or_else(|panic| resume_unwind(panic))
        };
        others.into_iter().map(join).fold(done, Result::and)
    })?;
    Ok(!is_refused.into_inner())
}

fn write_run(
    placed: &mut Placed,
    Run { mut address, mut at, bytes: mut left }: Run,
    memory: &File,
) -> Result<io::Result<()>, ImageError> {
    while left > 0 {
        let pages = placed.read(at, left)?;
        if let Err(error) = memory.write_all_at(pages, address) {
            return Ok(Err(error));
        }
        let bytes = pages.len() as u64;
        (address, at, left) = (address + bytes, at + bytes, left.saturating_sub(bytes));
    }
    Ok(Ok(()))
}

/// Divides pages among threads, so that few of them unpack the same.
fn parts(placed: &Placed, runs: &[Run]) -> Result<Vec<Vec<Run>>, ImageError> {
    let (mut parts, mut part, mut bytes) = (Vec::new(), Vec::new(), 0);
    for run in runs {
        let Run { mut address, mut at, bytes: mut left } = *run;
        while left > 0 {
            let end = placed.end_of_part(at, PART_BYTES - bytes, at + left)?;
            let now = end - at;
            part.push(Run { address, at, bytes: now });
            bytes += now;
            (address, at, left) = (address + now, end, left - now);
            if bytes >= PART_BYTES {
                parts.push(std::mem::take(&mut part));
                bytes = 0;
            }
        }
    }
    parts.extend(Some(part).filter(|part| !part.is_empty()));
    Ok(parts)
}

#[cfg(test)]
#[path = "placing_tests.rs"]
mod tests;
