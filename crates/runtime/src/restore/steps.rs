//! The steps of a restore that can fail, in words: by their numbers, since the code that fails reads no variables of the runtime's, which are being replaced.

use crate::fatal::{fatal, line, stderr};
use crate::sys;
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
        24 => "place a descriptor where the restore keeps its own",
        28 => "make a process of the number that it had: another one has it",
        29 => "set the number of a process: init does not answer",
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
