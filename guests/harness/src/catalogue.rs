//! The list of guests: the sources in the folders of `guests/`, each with its [`head`](crate::head).

use crate::head::{self, Head};
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Folders of `guests/` that hold no guests.
const OTHER_FOLDERS: &[&str] = &["harness"];

/// Endings of sources that `build.sh` builds.
const SOURCES: &[&str] = &["c", "cc", "rs"];

/// One guest.
#[derive(Clone, Debug)]
pub struct Guest {
    /// Its family and its own name: `tcp/tcp_reset`.
    pub name: String,
    /// The binary.
    pub program: PathBuf,
    /// The head of its source.
    pub head: Head,
}

impl Guest {
    /// Its name without its family.
    #[must_use]
    pub fn own_name(&self) -> &str {
        self.name.rsplit('/').next().unwrap_or(&self.name)
    }

    /// Whether a word of the command line selects this guest: a part of its own name, or with a slash of the whole name.
    #[must_use]
    pub fn is_meant_by(&self, word: &str) -> bool {
        if word.contains('/') { &self.name } else { self.own_name() }.contains(word)
    }
}

/// All guests whose sources are below `sources`, by name; `binaries` has the programs that `build.sh` made of them.
///
/// # Errors
/// A directory or a source cannot be read; or sources that are in no family, or whose heads cannot be parsed:
/// each with file and line.
pub fn all(sources: &Path, binaries: &Path) -> io::Result<Vec<Guest>> {
    let (mut guests, mut wrong) = (Vec::new(), String::new());
    for (path, family) in sources_below(sources)? {
        let mut complain = |line: usize, what: &str| {
            let _ = write!(wrong, "\n{}:{line}: {what}", path.display());
        };
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        let Some(family) = family else {
            complain(1, "is in no family: move it into a folder of guests/");
            continue;
        };
        let name = format!("{family}/{stem}");
        match head::parse(&fs::read_to_string(&path)?) {
            Ok(head) if family == "servers" && head.script.is_none() => {
                complain(1, "is a server without clients: its head has no `client:`");
            }
            Ok(head) => guests.push(Guest { program: binaries.join(&name), name, head }),
            Err(complaint) => complain(complaint.line, &complaint.what),
        }
    }
    guests.sort_by(|a, b| a.name.cmp(&b.name));
    if wrong.is_empty() { Ok(guests) } else { Err(io::Error::other(wrong)) }
}

/// Every source with its folder, in one order; no folder for a source in `sources` itself.
fn sources_below(sources: &Path) -> io::Result<Vec<(PathBuf, Option<String>)>> {
    let mut found = Vec::new();
    let mut folders = vec![(sources.to_path_buf(), None)];
    while let Some((folder, family)) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() {
                if family.is_none() && !OTHER_FOLDERS.contains(&name.as_str()) {
                    folders.push((path, Some(name)));
                }
            } else if path.extension().is_some_and(|ending| SOURCES.iter().any(|s| ending == *s)) {
                found.push((path, family.clone()));
            }
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `all` of a directory with these files.
    fn all_of(files: &[(&str, &str)]) -> io::Result<Vec<Guest>> {
        let directory = tempfile::tempdir()?;
        for (path, text) in files {
            let path = directory.path().join(path);
            fs::create_dir_all(path.parent().expect("it is in the directory"))?;
            fs::write(path, text)?;
        }
        all(directory.path(), Path::new("/out"))
    }

    #[test]
    fn a_source_in_a_family_is_a_guest_and_nothing_else_is() {
        let good = "/* Words.\n *\n * expect: same\n */\n";
        let files = [
            ("tcp/a.c", good),
            ("tcp/b.h", ""),
            ("harness/c.rs", ""),
            ("build.sh", ""),
            ("d.h", ""),
        ];
        let guests = all_of(&files).expect("all good");
        assert_eq!(guests.len(), 1);
        assert_eq!(guests[0].name, "tcp/a");
        assert_eq!(guests[0].program, Path::new("/out/tcp/a"));
    }

    #[test]
    fn sources_without_a_family_or_a_head_are_named_with_their_lines() {
        let files = [
            ("a.c", "/* expect: same */"),
            ("tcp/b.c", "int b;\n"),
            ("tcp/c.c", "/* Words.\n *\n * expect: much\n */\n"),
            ("servers/d.c", "/* expect: same */"),
        ];
        let wrong = all_of(&files).expect_err("four are wrong").to_string();
        for line in [
            "a.c:1: is in no family",
            "tcp/b.c:1: has no head",
            "tcp/c.c:3: `much`",
            "servers/d.c:1: is a server without clients",
        ] {
            assert!(wrong.contains(line), "{line} in {wrong}");
        }
    }

    #[test]
    fn a_word_with_a_slash_means_a_family_too() {
        let guests = all_of(&[("thread/mutex_basic.c", "/* expect: same */")]).expect("good");
        for (word, meant) in [("mutex", true), ("thread", false), ("thread/", true), ("d/mu", true)]
        {
            assert_eq!(guests[0].is_meant_by(word), meant, "{word}");
        }
    }
}
