//! `docs/interposition.md`, printed from the table that the runtime is built with (`crates/interpose`).
//!
//! `--runtime` first brings the rows "hooked" of `crates/interpose/symbols.txt` in line with what a built `libskein.so` exports; a name that is
//! hooked no longer must be given a row by hand, because only a reader of libc's code knows its calls.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use object::{Object, ObjectSymbol};
use skein_interpose::symbols::{self, Class};
use skein_interpose::{Family, SYSCALLS, Treatment, Why};

use skein_testkit::workspace;
use skein_testkit::{Failure, Outcome};

/// The printed page.
pub const PAGE: &str = "docs/interposition.md";
const SYMBOLS: &str = "crates/interpose/symbols.txt";
const WIDTH: usize = 150;

/// Options.
#[derive(clap::Args)]
pub struct Options {
    /// A built libskein.so: its hooks become the rows "hooked" of the table of symbols
    #[arg(long, value_name = "FILE")]
    runtime: Option<PathBuf>,
}

/// Writes the page.
pub fn run(options: &Options) -> Outcome {
    let root = workspace::root();
    let table = root.join(SYMBOLS);
    let mut text =
        fs::read_to_string(&table).map_err(|error| Failure::of(table.display(), error))?;
    if let Some(runtime) = &options.runtime {
        text = with_hooks(&text, &exports(runtime)?)?;
        fs::write(&table, &text).map_err(|error| Failure::of(table.display(), error))?;
    }
    let rows: Vec<_> = symbols::parse(&text).map(|s| (s.library, s.class, s.name)).collect();
    let page = root.join(PAGE);
    fs::write(&page, print(&rows)).map_err(|error| Failure::of(page.display(), error))
}

/// The page as it must be.
pub fn page() -> String {
    print(&symbols::all().map(|s| (s.library, s.class, s.name)).collect::<Vec<_>>())
}

fn exports(path: &Path) -> Outcome<BTreeSet<String>> {
    let bytes = fs::read(path).map_err(|error| Failure::of(path.display(), error))?;
    let file = object::File::parse(&*bytes).map_err(|error| Failure::of(path.display(), error))?;
    let defined = file.dynamic_symbols().filter(|symbol| !symbol.is_undefined());
    Ok(defined.filter_map(|symbol| symbol.name().ok()).map(str::to_owned).collect())
}

/// The table with other rows "hooked".
fn with_hooks(text: &str, exported: &BTreeSet<String>) -> Outcome<String> {
    let mut out: String =
        text.lines().take_while(|line| line.starts_with('#')).flat_map(|l| [l, "\n"]).collect();
    let mut libraries: Vec<&str> = Vec::new();
    let mut groups: BTreeMap<(&str, Class), BTreeSet<&str>> = BTreeMap::new();
    for symbol in symbols::parse(text) {
        if !libraries.contains(&symbol.library) {
            libraries.push(symbol.library);
        }
        let class = if exported.contains(symbol.name) {
            Class::Hooked
        } else if symbol.class == Class::Hooked {
            let what = format!("{SYMBOLS}: {} is hooked no longer", symbol.name);
            return Err(Failure::of(what, "move it to the row that says what libc's own does"));
        } else {
            symbol.class
        };
        groups.entry((symbol.library, class)).or_default().insert(symbol.name);
    }
    for library in libraries {
        let _ = write!(out, "\n[{library}]\n");
        for class in Class::ALL {
            if let Some(names) = groups.get(&(library, class)) {
                let _ = writeln!(out, "{}:", class.name());
                out.push_str(&wrap(names.iter().copied(), "  "));
            }
        }
    }
    Ok(out)
}

/// Words in lines of bounded width.
fn wrap<'a>(words: impl Iterator<Item = &'a str>, indent: &str) -> String {
    let mut text = String::new();
    let mut width = WIDTH;
    for word in words {
        if width + 1 + word.len() > WIDTH {
            text.push_str(if text.is_empty() { indent } else { "\n" });
            if text.ends_with('\n') {
                text.push_str(indent);
            }
            width = indent.len();
        } else {
            text.push(' ');
            width += 1;
        }
        text.push_str(word);
        width += word.len();
    }
    text.push('\n');
    text
}

const HEAD: &str = "\
# What is interposed

Every system call of x86-64 Linux and every symbol of the C library (Debian 12's glibc 2.36), and how Skein treats it. This page is printed by
`cargo xtask interposition` from the table that the runtime itself is built with, `crates/interpose`; do not edit it.

There are six treatments:

| treatment | what it means |
|---|---|
| virtual | answered from the runtime's own objects, which only log entries and the server's own threads change |
| agreed | answered from what all replicas have agreed on: the stamps of log entries, and randomness from the first entry |
| constant | answered with the same number, whatever is asked |
| ordered | made by the server, in the order of the turns (one thread of a server runs at a time); *checked* if the net looks at the arguments first: what is virtual is answered by the runtime, what could differ is refused |
| refused | answered with an error; the node is told the call's name and where it was made |
| absent | answered with an error, as by an older kernel; the C library then makes another call |

A system call that is in no row is refused with `ENOSYS` by its number, as are 32-bit calls (`int 0x80`) and the x32 interface. What the runtime
does not pass is caught wherever it is made: by libc's own insides, by `syscall()`, by inline assembly. `skein status --calls` shows how often.

Two instructions bring in what no system call does: `rdtsc` and `rdtscp` are caught and answer virtual time, `cpuid` is trapped where the
processor can, and hides `rdrand` and `rdseed`; see [limitations](limitations.md). A place that is caught often is patched, and costs no trap any more.
";

const SYMBOLS_HEAD: &str = "
## Symbols

A hook is found by the loader before libc's function. All other symbols run libc's own code, of which nothing can differ but through a system
call (above) or one of the two instructions. Other libraries need no rows: what they do, they do by these symbols or by these calls. Of the C++
library, `std::random_device` is hooked, because it would use `rdrand`; `std::chrono`, `std::thread::hardware_concurrency`, `std::filesystem` and
all locks and threads come down to symbols below.
";

fn print(rows: &[(&str, Class, &str)]) -> String {
    let mut out = HEAD.to_owned();
    out.push_str(
        "\n## Why an ordered call brings in no difference\n\n| reason | because |\n|---|---|\n",
    );
    for why in Why::ALL {
        let _ = writeln!(out, "| {} | {} |", why.name(), why.text());
    }
    out.push_str("\n## System calls\n");
    for family in Family::ALL {
        let _ = write!(out, "\n### {}\n\n| treatment | calls |\n|---|---|\n", family.name());
        let mut groups: BTreeMap<(u8, String), Vec<String>> = BTreeMap::new();
        for row in SYSCALLS.iter().filter(|row| row.family == family) {
            let name = format!("`{}`", row.name);
            groups.entry(title(row.treatment)).or_default().push(name);
        }
        for ((_, treatment), calls) in groups {
            let _ = writeln!(out, "| {treatment} | {} |", calls.join(" "));
        }
    }
    out.push_str(SYMBOLS_HEAD);
    out.push_str("\n| class | what happens | symbols |\n|---|---|---|\n");
    for class in Class::ALL {
        let count = rows.iter().filter(|row| row.1 == class).count();
        let _ = writeln!(out, "| {} | {} | {count} |", class.name(), class.text());
    }
    for library in rows.iter().map(|row| row.0).collect::<BTreeSet<_>>() {
        let _ = write!(out, "\n### {library}\n");
        for class in Class::ALL {
            let of = |row: &&(&str, Class, &str)| row.0 == library && row.1 == class;
            let names: Vec<&str> = rows.iter().filter(of).map(|row| row.2).collect();
            if !names.is_empty() {
                let text = wrap(names.into_iter(), "");
                let _ = write!(out, "\n{}:\n\n```text\n{text}```\n", class.name());
            }
        }
    }
    out
}

/// A treatment's place and words in a table.
fn title(treatment: Treatment) -> (u8, String) {
    match treatment {
        Treatment::Virtual => (0, "virtual".into()),
        Treatment::Agreed => (1, "agreed".into()),
        Treatment::Constant(value) => (2, format!("constant: {value}")),
        Treatment::Checked(why) => (3, format!("ordered, checked: {}", why.name())),
        Treatment::Ordered(why) => (4, format!("ordered: {}", why.name())),
        Treatment::Refused(errno) => (5, format!("refused: {}", error_name(errno))),
        Treatment::Absent(errno) => (6, format!("absent: {}", error_name(errno))),
    }
}

fn error_name(errno: i32) -> String {
    match errno {
        skein_interpose::ENOSYS => "ENOSYS".into(),
        skein_interpose::EPERM => "EPERM".into(),
        skein_interpose::EOPNOTSUPP => "EOPNOTSUPP".into(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hooks_move_and_come_back_only_by_hand() {
        let text = "# head\n\n[libc.so.6]\nhooked:\n  a\nkernel:\n  b c\n";
        let both: BTreeSet<String> = ["a".into(), "b".into(), "other".into()].into();
        let moved = with_hooks(text, &both).unwrap();
        assert_eq!(moved, "# head\n\n[libc.so.6]\nhooked:\n  a b\nkernel:\n  c\n");
        let none = with_hooks(text, &BTreeSet::new()).unwrap_err();
        assert!(none.to_string().contains("a is hooked no longer"), "{none}");
    }

    #[test]
    fn lines_are_wrapped() {
        let words = vec!["abcdefghi"; 40];
        let text = wrap(words.iter().copied(), "  ");
        assert!(text.lines().all(|line| line.len() <= WIDTH && line.starts_with("  a")), "{text}");
        assert_eq!(text.split_whitespace().count(), 40);
    }
}
