//! The table of how each call of a server is treated. The runtime's net is built from it, `docs/interposition.md` is printed from it, and the node
//! takes names from it.
//!
//! A call is virtual, agreed through the log, a constant, ordered and passed through, checked, refused, or absent. A call without a row is refused
//! ([`treatment`]). One thread of a server runs at a time, which orders the calls that it passes to its kernel; the row of such a call
//! also says why the answer is the same on all replicas ([`Why`]).

#![cfg_attr(not(test), no_std)]

mod descriptors;
pub mod filter;
mod forbidden;
pub mod symbols;
mod syscalls;

pub use descriptors::descriptors;
pub use forbidden::forbidden;
pub use syscalls::SYSCALLS;

/// The treatment of a system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Treatment {
    /// Answered from the runtime's own objects.
    Virtual,
    /// Answered from data that all replicas have agreed on: the log's stamps and its first entry.
    Agreed,
    /// Always answered with this number.
    Constant(usize),
    /// Made by the server itself, in the order of the turns.
    Ordered(Why),
    /// The net looks at the arguments: the runtime answers virtual objects, refuses differences, and makes the call for the server otherwise.
    Checked(Why),
    /// Answered with this error number, and reported to the node.
    Refused(i32),
    /// Answered with this error number, as by a kernel without the call: the C library then makes an older call.
    Absent(i32),
}

/// The reason why a call that reaches the kernel brings in nothing that differs between replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Descriptors of the kernel.
    Kernels,
    /// Files of the replica's own layer.
    Files,
    /// Memory of the process itself.
    Memory,
    /// The answer depends on nothing but the arguments.
    Constant,
    /// Calls that libc makes when a thread begins or ends.
    Start,
    /// The kernel keeps the server's own setting.
    Settings,
    /// The namespaces and limits that the supervisor creates.
    Namespaces,
}

impl Why {
    /// All reasons.
    pub const ALL: [Self; 7] = [
        Self::Kernels,
        Self::Files,
        Self::Memory,
        Self::Constant,
        Self::Start,
        Self::Settings,
        Self::Namespaces,
    ];

    /// The reason in one or two words.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kernels => "kernel's descriptors",
            Self::Files => "own files",
            Self::Memory => "own memory",
            Self::Constant => "constant",
            Self::Start => "a thread's start and end",
            Self::Settings => "own settings",
            Self::Namespaces => "namespaces",
        }
    }

    /// The argument.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Kernels => {
                "a descriptor that is not virtual is a file of the replica's own layer or standard input and output, and the numbers are given out in the order of the turns"
            }
            Self::Files => {
                "files start equal on all replicas and are changed by the server only, in the order of the turns"
            }
            Self::Memory => {
                "addresses are given out in the order of the calls, with address randomisation off"
            }
            Self::Constant => "the answer depends on nothing but the arguments",
            Self::Start => {
                "the kernel notes an address for the end of a thread; nothing of it is answered to the server"
            }
            Self::Settings => "the kernel answers with the server's own setting",
            Self::Namespaces => {
                "the supervisor gives all replicas the same user, process, host and IPC namespaces and the same limits"
            }
        }
    }
}

/// The subject of a call; the chapters of the printed table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Reading, writing and copying descriptors, pipes.
    Descriptors,
    /// Sockets.
    Sockets,
    /// Waiting for descriptors.
    Readiness,
    /// Clocks, timers, sleeps.
    Time,
    /// Randomness.
    Random,
    /// Files and folders.
    Files,
    /// Address space.
    Memory,
    /// Threads and the objects that they wait for.
    Threads,
    /// Processes.
    Processes,
    /// Signals.
    Signals,
    /// Users, host, limits.
    Identity,
    /// System V and POSIX message passing.
    Ipc,
    /// Administration and observation of the machine, and calls that Linux never had or no longer has.
    Machine,
}

impl Family {
    /// All families, in the order of the printed table.
    pub const ALL: [Self; 13] = [
        Self::Descriptors,
        Self::Sockets,
        Self::Readiness,
        Self::Time,
        Self::Random,
        Self::Files,
        Self::Memory,
        Self::Threads,
        Self::Processes,
        Self::Signals,
        Self::Identity,
        Self::Ipc,
        Self::Machine,
    ];

    /// Its heading.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Descriptors => "Descriptors and pipes",
            Self::Sockets => "Sockets",
            Self::Readiness => "Waiting for descriptors",
            Self::Time => "Time",
            Self::Random => "Randomness",
            Self::Files => "Files",
            Self::Memory => "Memory",
            Self::Threads => "Threads",
            Self::Processes => "Processes",
            Self::Signals => "Signals",
            Self::Identity => "Identity",
            Self::Ipc => "Messages and shared memory",
            Self::Machine => "The machine, and calls that no longer exist",
        }
    }
}

/// A system call of x86-64 Linux.
#[derive(Clone, Copy, Debug)]
pub struct Syscall {
    /// Its number.
    pub nr: u16,
    /// The kernel's name.
    pub name: &'static str,
    /// Its subject.
    pub family: Family,
    /// Its treatment.
    pub treatment: Treatment,
}

/// "No such function": the answer to a call without a row.
pub const ENOSYS: i32 = 38;
/// "Not permitted".
pub const EPERM: i32 = 1;
/// "Not supported".
pub const EOPNOTSUPP: i32 = 95;

/// The row of a system call.
#[must_use]
pub const fn syscall(nr: i64) -> Option<&'static Syscall> {
    let at = if nr < FIRST_OF_ALL { nr } else { nr - (FIRST_OF_ALL - OF_X86_64) };
    if at < 0 || at >= SYSCALLS.len() as i64 {
        return None;
    }
    let row = &SYSCALLS[at as usize];
    if row.nr as i64 == nr { Some(row) } else { None }
}

/// Numbers that x86-64 has before those shared by all architectures: the rows have no other gap.
const OF_X86_64: i64 = 337;
/// The first number shared by all architectures.
const FIRST_OF_ALL: i64 = 424;

/// The treatment of a system call. A call without a row is refused.
#[must_use]
pub const fn treatment(nr: i64) -> Treatment {
    match syscall(nr) {
        Some(row) => row.treatment,
        None => Treatment::Refused(ENOSYS),
    }
}

/// The name of a system call.
#[must_use]
pub fn name(nr: i64) -> Option<&'static str> {
    syscall(nr).map(|row| row.name)
}

/// Whether the net catches the call when it comes from code outside the runtime.
#[must_use]
pub fn caught(nr: i64) -> bool {
    !matches!(treatment(nr), Treatment::Ordered(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_sorted_and_named_once() {
        for pair in SYSCALLS.windows(2) {
            assert!(pair[0].nr < pair[1].nr, "{} and {}", pair[0].name, pair[1].name);
        }
        let mut names: Vec<_> = SYSCALLS.iter().map(|row| row.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), SYSCALLS.len());
    }

    #[test]
    fn numbers_are_those_of_linux() {
        // The gaps of x86-64: none up to 336, then the numbers shared by all architectures from 424.
        let numbers: Vec<u16> = SYSCALLS.iter().map(|row| row.nr).collect();
        assert_eq!(numbers, (0..=336).chain(424..=469).collect::<Vec<_>>());
        for (nr, name) in [(0, "read"), (202, "futex"), (318, "getrandom"), (435, "clone3")] {
            assert_eq!(super::name(nr), Some(name));
        }
    }

    #[test]
    fn what_is_in_no_row_is_refused() {
        for nr in [337, 423, 470, 999, 1 << 30, -1] {
            assert_eq!(treatment(nr), Treatment::Refused(ENOSYS));
            assert!(caught(nr));
        }
    }
}
