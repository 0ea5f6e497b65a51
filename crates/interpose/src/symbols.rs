//! The rows for symbols: every name that the C library exports, read from `symbols.txt`.

/// The text of the table.
pub const TEXT: &str = include_str!("../symbols.txt");

/// The treatment of a symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// The runtime exports the same name; the loader finds it first.
    Hooked,
    /// Makes no system call.
    Computes,
    /// libc's own code, which reaches the kernel by system calls only; the table of system calls decides on those.
    Kernel,
    /// A wrapper of refused system calls.
    Refused,
    /// Data that the kernel and the loader give to a process at its start.
    Start,
    /// Not a function.
    Data,
    /// For the C library's own parts (version GLIBC_PRIVATE).
    Private,
}

impl Class {
    /// All classes, in the order of the table.
    pub const ALL: [Self; 7] = [
        Self::Hooked,
        Self::Computes,
        Self::Kernel,
        Self::Refused,
        Self::Start,
        Self::Data,
        Self::Private,
    ];

    /// Its name in the table.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hooked => "hooked",
            Self::Computes => "computes",
            Self::Kernel => "kernel",
            Self::Refused => "refused",
            Self::Start => "start",
            Self::Data => "data",
            Self::Private => "private",
        }
    }

    /// The treatment of such a symbol.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Hooked => {
                "the runtime's own function is found before libc's: virtual, agreed through the log, or refused, as the system calls of the same purpose"
            }
            Self::Computes => {
                "passed through: the code makes no system call, so its result depends on its arguments and the process's memory only"
            }
            Self::Kernel => {
                "passed through: libc's own code, which reaches the kernel by system calls only; the net treats each as the table of system calls says"
            }
            Self::Refused => "passed through to a system call that the net refuses",
            Self::Start => {
                "passed through: words that the supervisor and the loader set, equal on all replicas; the runtime takes kernel-supplied CPU numbers (rseq) away"
            }
            Self::Data => "passed through: not a function",
            Self::Private => {
                "passed through: called by other parts of the C library only, and by system calls like those above"
            }
        }
    }
}

/// A symbol of a library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Symbol<'a> {
    /// The library's file name.
    pub library: &'a str,
    /// Its treatment.
    pub class: Class,
    /// Its name, without a version.
    pub name: &'a str,
}

/// Every row, in the order of the text. A malformed line ends the table: a test finds that.
pub fn all() -> impl Iterator<Item = Symbol<'static>> {
    parse(TEXT)
}

/// The rows of a text like [`TEXT`].
pub fn parse(text: &str) -> impl Iterator<Item = Symbol<'_>> {
    let mut library = "";
    let mut class = Class::Data;
    text.lines().flat_map(move |line| {
        let mut names = "";
        if let Some(rest) = line.strip_prefix('[') {
            library = rest.trim_end_matches(']');
        } else if let Some(title) = line.strip_suffix(':') {
            if let Some(known) = Class::ALL.into_iter().find(|class| class.name() == title) {
                class = known;
            }
        } else if line.starts_with(' ') {
            names = line;
        }
        let (library, class) = (library, class);
        names.split_whitespace().map(move |name| Symbol { library, class, name })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_can_be_read() {
        for line in TEXT.lines() {
            let title = Class::ALL.iter().any(|class| line == format!("{}:", class.name()));
            let library = line.starts_with('[') && line.ends_with(']');
            let other = line.is_empty() || line.starts_with('#') || line.starts_with("  ");
            assert!(title || library || other, "{line}");
        }
    }

    #[test]
    fn every_symbol_has_one_row() {
        let mut rows: Vec<_> = all().map(|s| (s.library, s.name)).collect();
        let count = rows.len();
        rows.sort_unstable();
        rows.dedup();
        assert_eq!(rows.len(), count);
        assert!(count > 3000, "{count}");
    }
}
