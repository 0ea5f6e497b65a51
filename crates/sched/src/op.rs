//! Operations: which thread does what to which object. Every policy sees them; those that record write them down.

use core::fmt;

/// The object of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Object {
    /// The numbers of a process's descriptors.
    Descriptors,
    /// An open file description, by its number in the arena.
    File(u32),
    /// Part of the server's memory, by its address: a mutex, a futex, a condition variable.
    Memory(usize),
    /// A thread, by its number in the arena; 0: a new one.
    Thread(u32),
    /// The processes, their groups and sessions.
    Processes,
    /// Signals: masks, actions, what is pending.
    Signals,
    /// Timers that send signals.
    Timers,
    /// The clocks.
    Clock,
    /// The stream of random bytes.
    Randomness,
    /// Files of the replica's own layer, and their locks.
    Files,
    /// Semaphores, message queues and shared memory that have a key or a name.
    Ipc,
    /// Facts about the machine that the server may ask for.
    Machine,
    /// Several objects at a time.
    Several,
}

/// The kind of operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Kind {
    /// A new object.
    Create,
    /// The object is released.
    Destroy,
    /// The object is found by a name or a key, or created.
    Open,
    /// A descriptor is closed.
    Close,
    /// A descriptor gets another or an additional number.
    Duplicate,
    /// Bytes, messages or events are read.
    Read,
    /// Bytes, messages or events are written.
    Write,
    /// Bytes move from one file to another.
    Move,
    /// A connection is accepted.
    Accept,
    /// A connection is begun.
    Connect,
    /// A socket gets an address, or begins to listen.
    Bind,
    /// A connection ends, in one direction or both.
    Shutdown,
    /// A property of the object is read.
    Ask,
    /// A property of the object is changed.
    Set,
    /// A watch on an object begins or ends.
    Watch,
    /// Waits for one of several events.
    Wait,
    /// A lock is taken.
    Lock,
    /// A lock is released.
    Unlock,
    /// Waiting threads are woken.
    Wake,
    /// A signal is sent.
    Send,
    /// A thread or a process ends.
    Exit,
    /// Waits for the end of a thread or a process.
    Join,
    /// The thread lets others run.
    Yield,
    /// Another program replaces this one.
    Execute,
    /// A call that is refused.
    Refuse,
}

impl Object {
    /// The object as two numbers: its variant and the variant's value.
    // Where the variant is known at compile time, the compiler removes this code.
    #[inline(always)]
    #[must_use]
    pub const fn numbers(self) -> (u8, u64) {
        match self {
            Self::Descriptors => (0, 0),
            Self::File(file) => (1, file as u64),
            Self::Memory(address) => (2, address as u64),
            Self::Thread(thread) => (3, thread as u64),
            Self::Processes => (4, 0),
            Self::Signals => (5, 0),
            Self::Timers => (6, 0),
            Self::Clock => (7, 0),
            Self::Randomness => (8, 0),
            Self::Files => (9, 0),
            Self::Ipc => (10, 0),
            Self::Machine => (11, 0),
            Self::Several => (12, 0),
        }
    }

    /// The object with these [`numbers`](Self::numbers).
    #[must_use]
    pub const fn from_numbers(variant: u8, value: u64) -> Option<Self> {
        Some(match variant {
            0 => Self::Descriptors,
            1 => Self::File(value as u32),
            2 => Self::Memory(value as usize),
            3 => Self::Thread(value as u32),
            4 => Self::Processes,
            5 => Self::Signals,
            6 => Self::Timers,
            7 => Self::Clock,
            8 => Self::Randomness,
            9 => Self::Files,
            10 => Self::Ipc,
            11 => Self::Machine,
            12 => Self::Several,
            _ => return None,
        })
    }
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match *self {
            Self::Descriptors => "the descriptors",
            Self::File(file) => return write!(f, "open file {file}"),
            Self::Memory(address) => return write!(f, "memory at {address:#x}"),
            Self::Thread(0) => "a thread",
            Self::Thread(thread) => return write!(f, "thread {thread}"),
            Self::Processes => "the processes",
            Self::Signals => "the signals",
            Self::Timers => "the timers",
            Self::Clock => "the clock",
            Self::Randomness => "the random bytes",
            Self::Files => "the files",
            Self::Ipc => "an object with a key or a name",
            Self::Machine => "the machine",
            Self::Several => "several objects",
        })
    }
}

impl Kind {
    /// All of them; each at its own number.
    pub const ALL: [Self; 25] = [
        Self::Create,
        Self::Destroy,
        Self::Open,
        Self::Close,
        Self::Duplicate,
        Self::Read,
        Self::Write,
        Self::Move,
        Self::Accept,
        Self::Connect,
        Self::Bind,
        Self::Shutdown,
        Self::Ask,
        Self::Set,
        Self::Watch,
        Self::Wait,
        Self::Lock,
        Self::Unlock,
        Self::Wake,
        Self::Send,
        Self::Exit,
        Self::Join,
        Self::Yield,
        Self::Execute,
        Self::Refuse,
    ];

    /// The kind with this number.
    #[must_use]
    pub fn from_number(number: u16) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// The kind in one word.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Destroy => "destroy",
            Self::Open => "open",
            Self::Close => "close",
            Self::Duplicate => "duplicate",
            Self::Read => "read",
            Self::Write => "write",
            Self::Move => "move",
            Self::Accept => "accept",
            Self::Connect => "connect",
            Self::Bind => "bind",
            Self::Shutdown => "shutdown",
            Self::Ask => "ask",
            Self::Set => "set",
            Self::Watch => "watch",
            Self::Wait => "wait",
            Self::Lock => "lock",
            Self::Unlock => "unlock",
            Self::Wake => "wake",
            Self::Send => "send",
            Self::Exit => "exit",
            Self::Join => "join",
            Self::Yield => "yield",
            Self::Execute => "execute",
            Self::Refuse => "refuse",
        }
    }
}

/// An operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Op {
    /// The thread, by its number in the arena.
    pub thread: u32,
    /// The object.
    pub object: Object,
    /// The kind.
    pub kind: Kind,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_at_its_number() {
        for (number, kind) in Kind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, number);
            assert_eq!(Kind::from_number(number as u16), Some(kind));
        }
        assert_eq!(Kind::from_number(Kind::ALL.len() as u16), None);
    }

    #[test]
    fn objects_survive_the_way_through_numbers() {
        for variant in 0..=u8::MAX {
            let Some(object) = Object::from_numbers(variant, 7) else {
                assert!(variant > 12, "{variant}");
                continue;
            };
            let (same, value) = object.numbers();
            assert_eq!(same, variant);
            assert_eq!(Object::from_numbers(same, value), Some(object));
        }
    }
}
