//! The head of a guest's source: the first comment of the file, with its expectations.
//!
//! Prose comes first. From the line that begins with `expect:` to the end of the comment every line is one of these:
//!
//! ```text
//! expect: same                     standard output is the same as natively
//! expect: spin                     a thread that keeps the turn is named; natively it ends
//! refused: WORD | WORD             for each word the node is told of a refused call with it in its name
//! or fatal: WORD | WORD            or the runtime stops, with one of these words in its message
//! finest: quantum N                the finer of the two schedules has this many operations a turn, not one
//! net: 2 places, 3 of libc, 600 executions, 4 programs, 5 trapped
//!                                  traps that the safety net may and must see: see `Net::of`
//! outside: played by the harness   it connects to the harness (`outside.h`), so it does not run natively
//! client: STEPS                    a server's client; `clients 10:` are ten: see `clients`
//! idle: no entry but the inputs of its clients
//! sequences: 5000                  it makes this many random sequences of calls (`sequence.h`): see `sequences`
//! image: refused: WORD             no image of it can be taken: the reason has this word
//! image: not yet: REASON           a process that continues from an image of it goes on differently
//! ```

use crate::clients;
use crate::node::{FINEST, Schedule};
use crate::script::Script;

/// The expected result of a run under Skein.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expect {
    /// The same as natively.
    Same,
    /// The same as natively, and the node is told of a refused call with each of these words in its name.
    SameAndRefused(Vec<String>),
    /// The same as natively, or the runtime stops with a line that has one of these words in it. Never unseen.
    SameOrFatal(Vec<String>),
    /// A thread that keeps the turn is named.
    Spin,
}

/// What an image of a guest is good for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Image {
    /// A process that continues from it goes on as the guest does.
    Continues,
    /// None can be taken at some entries: the reason has this word.
    Refused(String),
    /// A process that continues from it may go on differently, for this reason.
    NotYet(String),
}

/// The expectations of a guest.
#[derive(Clone, Debug)]
pub struct Head {
    /// The expected result of a run.
    pub expect: Expect,
    /// The second schedule that it is run with.
    pub finest: Schedule,
    /// Its other end: clients of a server, or the outside; such a guest is not run natively.
    pub script: Option<Script>,
    /// The expected numbers of traps; nothing for most guests.
    pub net: Option<Net>,
    /// It costs no entries besides its clients' inputs.
    pub idle: bool,
    /// Its images.
    pub image: Image,
    /// How many random sequences of calls it makes, if it is such a guest.
    pub sequences: Option<u64>,
}

impl Head {
    /// Its arguments.
    #[must_use]
    pub fn arguments(&self) -> Vec<String> {
        self.sequences.map_or(Vec::new(), |count| vec!["1".into(), count.to_string()])
    }
}

/// The expected numbers of a guest's calls and instructions that go around the interposed functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Net {
    /// The most traps.
    pub most_trapped: u64,
    /// The fewest executions of replaced places; with none, no place may be replaced.
    pub least_patched: u64,
    /// The fewest traps.
    pub least_trapped: u64,
}

/// Executions of a place that trap before the runtime replaces it: in a guest's text and in libc's.
const PATIENCE: u64 = 4 + 1;
const PATIENCE_IN_LIBC: u64 = 4 + 10 + 1;
/// Trapped calls of a program's start and end.
const AROUND: u64 = 24;

impl Net {
    /// Of a list of numbers, each with its name: `places` of the guest's, and places `of libc`, which are replaced;
    /// `executions` of them all; `programs` that are executed, each of which may begin with a trap; and `trapped`:
    /// executions of places that are never replaced.
    fn of(list: &str) -> Result<Self, String> {
        let (mut places, mut libc, mut executions, mut programs, mut trapped) = (0, 0, 0, 0, 0);
        for item in list.split(", ") {
            let (count, name) = item.split_once(' ').unwrap_or((item, ""));
            let to = match name {
                "places" => &mut places,
                "of libc" => &mut libc,
                "executions" => &mut executions,
                "programs" => &mut programs,
                "trapped" => &mut trapped,
                _ => return Err(format!("`{item}` is no number of the net's")),
            };
            *to = count.parse::<u64>().map_err(|_| format!("`{count}` is no number"))?;
        }
        let before = places * PATIENCE + libc * PATIENCE_IN_LIBC;
        Ok(Self {
            most_trapped: before + programs + trapped + AROUND,
            least_patched: executions.checked_sub(before).ok_or("too few executions")?,
            least_trapped: trapped,
        })
    }
}

/// The reason why a head cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complaint {
    /// The line of the file, from 1.
    pub line: usize,
    /// The defect.
    pub what: String,
}

/// The head of a source.
///
/// # Errors
/// It has none, or one of its lines is unknown.
pub fn parse(source: &str) -> Result<Head, Complaint> {
    let mut lines = comment(source).into_iter().enumerate().map(|(n, text)| (n + 1, text));
    let none = || Complaint { line: 1, what: "has no head: a first comment with `expect:`".into() };
    let (line, first) = lines.find(|(_, text)| text.starts_with("expect:")).ok_or_else(none)?;
    let expect = match first["expect:".len()..].trim() {
        "same" => Expect::Same,
        "spin" => Expect::Spin,
        other => return Err(Complaint { line, what: format!("`{other}` cannot be expected") }),
    };
    let mut head = Head {
        expect,
        finest: FINEST,
        script: None,
        net: None,
        idle: false,
        image: Image::Continues,
        sequences: None,
    };
    let mut clients = Vec::new();
    for (line, text) in lines.filter(|(_, text)| !text.is_empty()) {
        statement(text, &mut head, &mut clients).map_err(|what| Complaint { line, what })?;
    }
    if !clients.is_empty() {
        head.script = Some(Script::new(clients::then_quit(clients)));
    }
    Ok(head)
}

fn statement(
    text: &str,
    head: &mut Head,
    clients: &mut Vec<Vec<crate::script::Step>>,
) -> Result<(), String> {
    let (key, value) = text.split_once(':').ok_or_else(|| format!("`{text}` has no colon"))?;
    let value = value.trim();
    let words = || value.split('|').map(|word| word.trim().to_owned()).collect::<Vec<_>>();
    if value.is_empty() || value.split('|').any(|word| word.trim().is_empty()) {
        return Err(format!("`{key}:` says nothing"));
    }
    match key {
        "refused" | "or fatal" if head.expect != Expect::Same => {
            return Err(format!("`{key}:` goes with `expect: same`, and only one of its kind"));
        }
        "refused" => head.expect = Expect::SameAndRefused(words()),
        "or fatal" => head.expect = Expect::SameOrFatal(words()),
        "finest" => {
            let quantum = value.strip_prefix("quantum ").and_then(|digits| digits.parse().ok());
            let quantum = quantum.ok_or_else(|| format!("`{value}` is no `quantum N`"))?;
            head.finest = Schedule { quantum, ..FINEST };
        }
        "sequences" => {
            let count = value.parse().ok().filter(|count| *count > 0);
            head.sequences =
                Some(count.ok_or_else(|| format!("`{value}` is no number of sequences"))?);
        }
        "net" => head.net = Some(Net::of(value)?),
        "outside" if value == "played by the harness" => head.script = Some(Script::default()),
        "image" => {
            let (key, value) = value.split_once(": ").unwrap_or((value, ""));
            head.image = match key {
                "refused" if !value.is_empty() => Image::Refused(value.to_owned()),
                "not yet" if !value.is_empty() => Image::NotYet(value.to_owned()),
                _ => return Err(format!("`{key}` is no `refused: WORD` or `not yet: REASON`")),
            };
        }
        "idle" if value == "no entry but the inputs of its clients" => head.idle = true,
        "client" => clients.extend(clients::parse(value, clients.len(), 1)?),
        _ => {
            let count = key.strip_prefix("clients ").and_then(|digits| digits.parse().ok());
            let count = count.ok_or_else(|| format!("`{text}` is no line of a head"))?;
            clients.extend(clients::parse(value, clients.len(), count)?);
        }
    }
    Ok(())
}

/// The lines of the first comment of a file, without comment marks.
fn comment(source: &str) -> Vec<&str> {
    if let Some(rest) = source.strip_prefix("/*") {
        let Some((text, _)) = rest.split_once("*/") else { return Vec::new() };
        return text.lines().map(|line| line.trim().trim_start_matches('*').trim()).collect();
    }
    let lines = source.lines().map_while(|line| line.strip_prefix("//"));
    lines.map(|line| line.strip_prefix('!').unwrap_or(line).trim()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaint(source: &str) -> String {
        let Complaint { line, what } = parse(source).expect_err("it is wrong");
        format!("{line}: {what}")
    }

    #[test]
    fn each_kind_of_comment_may_be_a_head() {
        for source in [
            "/* expect: same */\nint a;\n",
            "/* Words: more.\n * Words.\n *\n * expect: same\n */\n",
            "// Words.\n//\n// expect: same\n#include <a>\n// net: 1\n",
            "//! Words.\n//! expect: same\n\nuse a;\n",
        ] {
            let head = parse(source).expect("a head");
            assert_eq!(head.expect, Expect::Same, "{source}");
            assert!(head.script.is_none() && head.net.is_none() && !head.idle, "{source}");
        }
    }

    #[test]
    fn a_source_without_a_head_is_named() {
        for source in ["", "int a;\n", "\n/* expect: same */", "/* Words. */", "/* expect: same"] {
            assert_eq!(complaint(source), "1: has no head: a first comment with `expect:`");
        }
    }

    #[test]
    fn every_line_says_what_it_should() {
        let of = |line: &str| parse(&format!("/* W.\n * expect: same\n * {line}\n */"));
        let good = |line: &str| of(line).expect(line);
        let two = vec!["a b".to_owned(), "c".to_owned()];
        assert_eq!(good("refused: a b | c").expect, Expect::SameAndRefused(two.clone()));
        assert_eq!(good("or fatal: a b | c").expect, Expect::SameOrFatal(two));
        assert_eq!(good("finest: quantum 2").finest, Schedule { quantum: 2, ..FINEST });
        assert!(good("outside: played by the harness").script.is_some());
        assert_eq!(good("sequences: 20").arguments(), ["1", "20"]);
        assert!(good("idle: no entry but the inputs of its clients").idle);
        assert_eq!(good("image: refused: a b").image, Image::Refused("a b".into()));
        assert_eq!(good("image: not yet: a: b").image, Image::NotYet("a: b".into()));
        let net = good("net: 2 places, 3 of libc, 600 executions, 4 programs, 5 trapped").net;
        let (most_trapped, least_patched) = (10 + 45 + 4 + 5 + 24, 600 - 10 - 45);
        assert_eq!(net, Some(Net { most_trapped, least_patched, least_trapped: 5 }));
        assert!(good("clients 2: open, fin, closed").script.is_some());
        for (line, why) in [
            ("nothing", "`nothing` has no colon"),
            ("refused:", "`refused:` says nothing"),
            ("refused: a | | b", "`refused:` says nothing"),
            ("image: refused", "`refused` is no `refused: WORD` or `not yet: REASON`"),
            ("sequences: 0", "`0` is no number of sequences"),
            ("finest: 2", "`2` is no `quantum N`"),
            ("net: 2 cats", "`2 cats` is no number of the net's"),
            ("net: x places", "`x` is no number"),
            ("net: 2 places, 3 executions", "too few executions"),
            ("outside: none", "`outside: none` is no line of a head"),
            ("client: jump", "`jump` is no step"),
            ("clients x: open", "`clients x: open` is no line of a head"),
        ] {
            let Complaint { line: at, what } = of(line).expect_err(line);
            assert_eq!((at, what.as_str()), (3, why));
        }
        assert_eq!(complaint("/* expect: cake */"), "1: `cake` cannot be expected");
        let twice = "// expect: spin\n// refused: a\n";
        assert!(complaint(twice).starts_with("2: `refused:` goes with `expect: same`"));
    }
}
