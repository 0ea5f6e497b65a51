//! One server of the zoo: the file `zoo/NAME.toml`.
//!
//! Texts in it may name `{port}` (the server's port), `{dir}` (an empty directory of its own, which holds its files and is its working
//! directory), and `{backend}` (a port where pages are served, for proxies). Shell commands find the server at `$SKEIN_HOST` and `$SKEIN_PORT`, and the number of
//! the value to write or ask for in `$N`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use skein_testkit::workspace;
use skein_testkit::{Failure, Outcome};

/// The files' directory.
pub const FOLDER: &str = "zoo";

/// The content of one file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Species {
    /// The file's name without its end.
    #[serde(skip)]
    pub name: String,
    /// The kind of server, for the table.
    pub title: String,
    /// Debian's packages: the server and its usual client.
    pub packages: Vec<String>,
    /// Whether `make test` runs it: small and quick servers.
    #[serde(default)]
    pub in_tests: bool,
    /// The reason why it does not run yet; such a server is listed and not run.
    pub not_yet: Option<String>,
    /// Options of `skein run` and `skein check`.
    #[serde(default)]
    pub options: Vec<String>,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Other distributions on which it runs, with their differences.
    #[serde(default)]
    pub on: BTreeMap<String, Elsewhere>,
    /// Files, by their names in `{dir}`.
    #[serde(default)]
    pub files: BTreeMap<String, String>,
    /// Servers of this repository, by their files in `crates/cli/tests/servers`; each is compiled to its name without the end in `{dir}`.
    #[serde(default)]
    pub sources: Vec<String>,
    /// A shell command that prepares files that are no text: keys, an empty database.
    pub prepare: Option<String>,
    /// Changes the server's state by `$N`; exit status 0 is the acknowledgement.
    pub write: Option<String>,
    /// Asks for `$N`.
    pub ask: String,
    /// The expected part of the answer; `{n}` is the number.
    pub answer: String,
    /// A request in two parts, for `cargo xtask soak`.
    pub half: Option<Half>,
    /// Clients at one time.
    #[serde(default = "default_clients")]
    pub clients: u64,
    /// Acknowledged requests to wait for before the leader dies, and again afterwards.
    #[serde(default = "default_requests")]
    pub requests: u64,
}

/// A request in two parts: servers are restored between them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Half {
    /// The bytes that the server has while it is restored.
    pub begin: String,
    /// The bytes that follow.
    pub rest: String,
    /// A part of the answer.
    pub answer: String,
}

/// Differences on another distribution.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Elsewhere {
    /// The reason why it does not run there yet.
    pub not_yet: Option<String>,
    packages: Option<Vec<String>>,
    command: Option<Vec<String>>,
    prepare: Option<String>,
}

fn default_clients() -> u64 {
    4
}

fn default_requests() -> u64 {
    60
}

impl Species {
    /// Reads one file's text.
    pub fn parse(name: &str, text: &str) -> Outcome<Self> {
        let read: Self = toml::from_str(text)
            .map_err(|error| Failure::of(format!("{FOLDER}/{name}.toml"), error))?;
        Ok(Self { name: name.to_owned(), ..read })
    }

    /// The same on another distribution; `None` when the file does not name that, unless it is to be tried `anyway`.
    pub fn on(mut self, distribution: &str, anyway: bool) -> Option<Self> {
        let there = match self.on.remove(distribution) {
            Some(there) => there,
            None if anyway => Elsewhere::default(),
            None => return None,
        };
        Some(Self {
            not_yet: there.not_yet,
            packages: there.packages.unwrap_or(self.packages),
            command: there.command.unwrap_or(self.command),
            prepare: there.prepare.or(self.prepare),
            ..self
        })
    }

    /// Whether the server itself is one of this repository.
    pub fn is_own(&self) -> bool {
        self.command.first().is_some_and(|program| program.starts_with("{dir}/"))
    }

    /// The command as a user would type it, in a directory that holds the server's files.
    pub fn typed(&self) -> String {
        let mut words = vec!["skein".to_owned(), "run".to_owned()];
        words.extend(self.options.iter().cloned());
        words.push("--".to_owned());
        let (program, arguments) = self.command.split_first().unzip();
        // Where no directory is named, it is looked for elsewhere.
        words.extend(program.map(|program| quoted(&program.replace("{dir}/", "./"))));
        let arguments = arguments.into_iter().flatten();
        words.extend(arguments.map(|word| quoted(&word.replace("{dir}/", ""))));
        words
            .join(" ")
            .replace("{port}", "PORT")
            .replace("{backend}", "PORT2")
            .replace("{dir}", ".")
    }
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@+{}".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// All servers, sorted by name.
pub fn all() -> Outcome<Vec<Species>> {
    let folder = workspace::root().join(FOLDER);
    let list = fs::read_dir(&folder).map_err(|error| Failure::of(folder.display(), error))?;
    let mut paths: Vec<PathBuf> = list.flatten().map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|end| end == "toml"));
    paths.sort();
    paths.iter().map(|path| read(path)).collect()
}

/// Those of `all` with these names; all when none is given.
pub fn named(mut all: Vec<Species>, names: &[String]) -> Outcome<Vec<Species>> {
    if let Some(name) = names.iter().find(|name| !all.iter().any(|one| one.name == **name)) {
        let known: Vec<&str> = all.iter().map(|one| one.name.as_str()).collect();
        return Err(Failure(format!("no server '{name}'; there are {}", known.join(", "))));
    }
    all.retain(|one| names.is_empty() || names.contains(&one.name));
    Ok(all)
}

fn read(path: &Path) -> Outcome<Species> {
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    let text = fs::read_to_string(path).map_err(|error| Failure::of(path.display(), error))?;
    Species::parse(&name, &text)
}

#[cfg(test)]
mod tests {
    use skein_testkit::servers;

    use super::*;

    #[test]
    fn every_file_can_be_read() {
        let all = all().expect("all files");
        assert!(all.len() > 10, "{}", all.len());
        for one in &all {
            assert!(!one.packages.is_empty() && !one.command.is_empty(), "{}", one.name);
            assert!(
                one.write.is_some() || !one.answer.is_empty(),
                "{}: nothing must hold",
                one.name
            );
            for source in &one.sources {
                let path = workspace::root().join(servers::FOLDER).join(source);
                assert!(path.is_file(), "{}: no {}", one.name, path.display());
            }
        }
        assert!(all.iter().any(|one| one.in_tests));
    }

    #[test]
    fn a_file_that_says_something_unknown_is_refused_by_name() {
        let refused = Species::parse("x", "title = 'a'\ncolour = 'b'").expect_err("unknown");
        assert!(refused.to_string().starts_with("zoo/x.toml"), "{refused}");
    }

    #[test]
    fn another_distribution_may_have_other_packages() {
        let text = "title='t'\npackages=['p']\ncommand=['s']\nask='true'\nanswer='x'\n\
                    [on.debian-13]\npackages=['q']\n";
        let parsed = || Species::parse("x", text).expect("a file");
        let there = parsed().on("debian-13", false).expect("named");
        assert_eq!((there.packages[0].as_str(), there.command[0].as_str()), ("q", "s"));
        assert!(parsed().on("sid", false).is_none());
        assert_eq!(parsed().on("sid", true).expect("tried").packages, ["p"]);
    }

    #[test]
    fn every_distribution_that_a_file_names_can_be_made() {
        for one in all().expect("all files") {
            for name in one.on.keys() {
                assert!(super::super::root::named(name).is_ok(), "{}: {name}", one.name);
            }
        }
    }

    #[test]
    fn the_typed_command_names_files_in_the_working_directory() {
        let text = "title='t'\npackages=['p']\ncommand=['s','-p','{port}','{dir}/a.conf','b c']\nask='true'\nanswer='x'\n";
        let one = Species::parse("x", text).expect("a file");
        assert_eq!(one.typed(), "skein run -- s -p PORT a.conf 'b c'");
        let own = text.replace("'s'", "'{dir}/s'");
        let own = Species::parse("x", &own).expect("a file");
        assert!(own.is_own() && !one.is_own());
        assert_eq!(own.typed(), "skein run -- ./s -p PORT a.conf 'b c'");
    }
}
