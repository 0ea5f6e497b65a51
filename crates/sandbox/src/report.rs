//! The records that init and the server (until its exec) send to the node, one per `SOCK_SEQPACKET` message.

/// Size of a record: four native 32-bit words.
pub(super) const RECORD_BYTES: usize = 16;

/// Steps that can fail. The number travels, so the order is between processes of one program only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Stage {
    Init,
    HostName,
    /// A step of the mount plan; the record's index says which.
    Plan,
    Fork,
    IdMaps,
    Session,
    Descriptors,
    Stdin,
    WorkingDirectory,
    LimitFiles,
    LimitStack,
    LimitCore,
    Personality,
    NoNewPrivileges,
    TraceMe,
    Capabilities,
    Filter,
    Exec,
    TraceStop,
    TraceRegisters,
    TraceStack,
    TraceDetach,
    Watch,
}

impl Stage {
    const ALL: [Self; 23] = [
        Self::Init,
        Self::HostName,
        Self::Plan,
        Self::Fork,
        Self::IdMaps,
        Self::Session,
        Self::Descriptors,
        Self::Stdin,
        Self::WorkingDirectory,
        Self::LimitFiles,
        Self::LimitStack,
        Self::LimitCore,
        Self::Personality,
        Self::NoNewPrivileges,
        Self::TraceMe,
        Self::Capabilities,
        Self::Filter,
        Self::Exec,
        Self::TraceStop,
        Self::TraceRegisters,
        Self::TraceStack,
        Self::TraceDetach,
        Self::Watch,
    ];

    /// The step in words, for a message.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Init => "execute this program again, as the server's init",
            Self::HostName => "set the host name",
            Self::Plan => "prepare the file system",
            Self::Fork => "clone3",
            Self::IdMaps => "map the server's ids",
            Self::Session => "start a session",
            Self::Descriptors => "place the descriptors",
            Self::Stdin => "open /dev/null",
            Self::WorkingDirectory => "enter the working directory",
            Self::LimitFiles => "limit open files",
            Self::LimitStack => "limit the stack",
            Self::LimitCore => "limit core files",
            Self::Personality => "switch off address randomisation (personality)",
            Self::NoNewPrivileges => "set no_new_privs",
            Self::TraceMe => "PTRACE_TRACEME",
            Self::Capabilities => "drop capabilities",
            Self::Filter => "forbid system calls (seccomp)",
            Self::Exec => "exec",
            Self::TraceStop => "wait for exec",
            Self::TraceRegisters => "PTRACE_GETREGS",
            Self::TraceStack => "rewrite the auxiliary vector",
            Self::TraceDetach => "PTRACE_DETACH",
            Self::Watch => "watch the server",
        }
    }
}

/// One message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Record {
    /// From init, which is a program of its own now.
    Init,
    /// From the server before its exec; the message's credentials carry its pid.
    Hello,
    /// Setting up failed, with an errno; nothing was started.
    Failed { stage: Stage, index: u32, errno: i32 },
    /// A descriptor of the layer comes with it.
    Layer,
    /// The program is executing.
    Started,
    /// The server ended, with its `wait` status.
    Exited { status: i32 },
}

impl Record {
    pub(super) fn encode(self) -> [u8; RECORD_BYTES] {
        let words: [u32; 4] = match self {
            Self::Hello => [1, 0, 0, 0],
            Self::Failed { stage, index, errno } => [2, stage as u32, index, errno.cast_unsigned()],
            Self::Started => [3, 0, 0, 0],
            Self::Exited { status } => [4, 0, 0, status.cast_unsigned()],
            Self::Layer => [5, 0, 0, 0],
            Self::Init => [6, 0, 0, 0],
        };
        let mut bytes = [0; RECORD_BYTES];
        for (slot, word) in bytes.chunks_exact_mut(4).zip(words) {
            slot.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; RECORD_BYTES] = bytes.try_into().ok()?;
        let mut words = [0u32; 4];
        for (word, slot) in words.iter_mut().zip(bytes.chunks_exact(4)) {
            *word = u32::from_ne_bytes(slot.try_into().ok()?);
        }
        let [kind, stage, index, value] = words;
        let value = value.cast_signed();
        match kind {
            1 => Some(Self::Hello),
            2 => {
                let stage = *Stage::ALL.get(usize::try_from(stage).ok()?)?;
                Some(Self::Failed { stage, index, errno: value })
            }
            3 => Some(Self::Started),
            4 => Some(Self::Exited { status: value }),
            5 => Some(Self::Layer),
            6 => Some(Self::Init),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_survive_the_way() {
        for (place, stage) in Stage::ALL.into_iter().enumerate() {
            assert_eq!(stage as usize, place);
            let record = Record::Failed { stage, index: 7, errno: libc::ENOENT };
            assert_eq!(Record::decode(&record.encode()), Some(record));
        }
        for record in [
            Record::Init,
            Record::Hello,
            Record::Layer,
            Record::Started,
            Record::Exited { status: -1 },
        ] {
            assert_eq!(Record::decode(&record.encode()), Some(record));
        }
        assert_eq!(Record::decode(&[0; RECORD_BYTES]), None);
        assert_eq!(Record::decode(&[1; 3]), None);
    }
}
