//! The steps of a restore that can fail, in words: by their numbers, since the code that fails reads no variables of the runtime's, which are being replaced.

use super::{HEAD_AT, IS_REPLACED_AT, RESTORE_AT, decimal};
use crate::fatal::{fatal, line, stderr};
use crate::sys::{self, args};
use crate::turn::output;
use skein_libos::errno::Errno;

/// What a step was to do.
const fn words(step: i32) -> &'static str {
    match step {
        1 => "read the image",
        2 => "read the image, which is too short",
        4 => "empty the arena's heap",
        5 => "read the arena's header",
        6 => "make memory that processes share",
        7 => "size memory that processes share",
        8 | 9 => "map memory that processes share",
        10 => "open a file that was open",
        11 | 25 | 26 | 27 => "place a descriptor",
        12 | 13 => "set the number of a process (ns_last_pid)",
        14 => "make a process or a thread",
        15 => "unmap memory",
        16 => "size the data segment",
        17 => "enter the working directory",
        18 => "map memory",
        19 => "map shared memory",
        20 => "open a file that was mapped",
        21 => "map a file",
        22 => "empty the data segment",
        23 => "write to the runtime's memory",
        28 => "make a process of the number that it had: another one has it",
        29 => "set the number of a process: init does not answer",
        30 => "make room for a removed file",
        31 | 53 => "make a removed file",
        32 => "remove a removed file",
        33 => "give a removed file its owner",
        34 => "give a removed file its permissions",
        35 => "give a removed file its times",
        36 => "seal a memory file",
        37 | 38 => "lock a file",
        39 => "set a limit",
        40 => "enter the root directory",
        41 => "find the rights of this process in the image",
        42 | 46 | 48 | 49 => "set capabilities",
        43..=45 => "become another user",
        47 => "ask for the user",
        50 => "advise about memory",
        51 => "seal memory",
        52 => "look at a removed file",
        3 => "find this process in the image",
        54 => "find the program of this process in the image",
        55 => "find memory for a program's arguments",
        56 => "execute a program",
        57 => "find libskein.so where a program is to load it from",
        58 => "execute a program with its stack where that was",
        62 => "give a removed file its extended attributes",
        61 => "remove the kernel's own memory",
        60 => "read the name of the running program",
        59 => "leave the stack",
        _ => "do a step without a name",
    }
}

/// A step failed, by what it found.
pub fn fail(step: i32) -> ! {
    failed(step, Errno(0))
}

/// A step failed, by an error of the kernel's.
pub fn failed(step: i32, Errno(errno): Errno) -> ! {
    let what = words(step);
    if is_replaced() {
        bare(step, what, errno);
    }
    let mut text = line!("the server cannot continue from its image: step {step}, {what}");
    if errno != 0 {
        text.append(line!(": errno {errno}").bytes());
    }
    if output::is_held() {
        // The image is of a server that waited for room in the ring.
        stderr(text.bytes());
        sys::exit_group(125);
    }
    // The ring's end may be the one that is in the image.
    output::catch_up();
    fatal(text.bytes())
}

/// Whether the memory of this process is being replaced: then it is on the stack that is no part of the image.
fn is_replaced() -> bool {
    let here = 0u8;
    let at = &raw const here as usize;
    // SAFETY: the other end of the stack that this runs on.
    (RESTORE_AT..HEAD_AT).contains(&at) && unsafe { (IS_REPLACED_AT as *const bool).read() }
}

/// Says so without libc, whose functions may lie elsewhere in the image than they did at the start, and ends.
fn bare(step: i32, what: &str, errno: i32) -> ! {
    let (mut of_step, mut of_errno) = ([0; 10], [0; 10]);
    let parts = [
        b"skein: the server cannot continue from its image: step ",
        decimal(step.unsigned_abs(), &mut of_step),
        b", ",
        what.as_bytes(),
        b": errno ",
        decimal(errno.unsigned_abs(), &mut of_errno),
        b"\n",
    ];
    for part in parts {
        // SAFETY: the buffer is valid for its length.
        unsafe { sys::raw(libc::SYS_write, args([2, part.as_ptr() as usize, part.len()])) };
    }
    sys::exit_group(125)
}
