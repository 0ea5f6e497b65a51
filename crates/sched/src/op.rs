//! Operations: which thread does what to which object. Every policy sees them; those that record write them down.

/// What an operation is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Object {
    /// The numbers of a process's descriptors.
    Descriptors,
    /// An open file description, by its number in the arena.
    File(u32),
    /// Something of the server's memory, by its address: a mutex, a futex, a condition variable.
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
    /// Files of the replica's own, and their locks.
    Files,
    /// Semaphores, message queues and shared memory that have a key or a name.
    Ipc,
    /// What the server may ask about its machine.
    Machine,
    /// Several objects at a time.
    Several,
}

/// What is done to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Kind {
    /// A new object.
    Create,
    /// The object is given up.
    Destroy,
    /// It is found by a name or a key, or made.
    Open,
    /// A descriptor is closed.
    Close,
    /// A descriptor gets another number, or one more.
    Duplicate,
    /// Bytes, messages or events are taken.
    Read,
    /// Bytes, messages or events are added.
    Write,
    /// Bytes pass from one file to another.
    Move,
    /// Connections: one is taken.
    Accept,
    /// Connections: one is made.
    Connect,
    /// A socket gets an address, or begins to listen.
    Bind,
    /// A connection's end, in one direction or both.
    Shutdown,
    /// What the object says about itself.
    Ask,
    /// What the object says about itself is changed.
    Set,
    /// An object is watched, or no more.
    Watch,
    /// Waits for one of several events.
    Wait,
    /// A lock is taken.
    Lock,
    /// A lock is let go.
    Unlock,
    /// Others that wait are woken.
    Wake,
    /// A signal is sent.
    Send,
    /// A thread or a process ends.
    Exit,
    /// Waits for the end of a thread or a process.
    Join,
    /// The holder lets others run.
    Yield,
    /// A program takes the place of another.
    Execute,
    /// A call that is refused.
    Refuse,
}

/// An operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Op {
    /// The thread, by its number in the arena.
    pub thread: u32,
    /// What it is on.
    pub object: Object,
    /// What is done.
    pub kind: Kind,
}
