//! The source of an installed Debian package, and files of packages that are not installed.
//!
//! Everything is below one directory, `apt`'s lists too: the machine's own state is unchanged.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::command::{bounded, output};
use crate::interrupt::Interrupt;
use skein_testkit::{Failure, Outcome};

/// The origin of sources and packages: Debian's archives, unless `SKEIN_DEBIAN_MIRROR` names another one for the first.
const MIRROR: &str = "http://deb.debian.org/debian";
const SECURITY: &str = "http://deb.debian.org/debian-security";

/// The longest command of `apt` or `dpkg`.
const FETCH_MAX: Duration = Duration::from_secs(300);

/// A directory with its own `apt`.
pub struct Source<'a> {
    dir: PathBuf,
    interrupt: &'a Interrupt,
}

impl<'a> Source<'a> {
    /// Fetches the lists into `dir`, which exists.
    pub fn new(dir: &Path, interrupt: &'a Interrupt) -> Outcome<Self> {
        let source = Self { dir: dir.to_path_buf(), interrupt };
        let failed = |error| Failure::of("cannot write apt's configuration", error);
        for name in ["lists/partial", "cache/archives/partial"] {
            fs::create_dir_all(dir.join(name)).map_err(failed)?;
        }
        let mirror = std::env::var("SKEIN_DEBIAN_MIRROR").unwrap_or_else(|_| MIRROR.to_owned());
        let mut lists = String::new();
        for (at, suite) in [(mirror.as_str(), "bookworm"), (SECURITY, "bookworm-security")] {
            for kind in ["deb", "deb-src"] {
                lists += &format!("{kind} {at} {suite} main\n");
            }
        }
        fs::write(dir.join("sources.list"), lists).map_err(failed)?;
        let dir = dir.display();
        let configuration = format!(
            "Dir::Etc::sourcelist \"{dir}/sources.list\";\nDir::Etc::sourceparts \"/dev/null\";\n\
             Dir::State::lists \"{dir}/lists\";\nDir::Cache \"{dir}/cache\";\nAPT::Sandbox::User \"root\";\n"
        );
        fs::write(source.dir.join("apt.conf"), configuration).map_err(failed)?;
        source.apt(&["update"])?;
        Ok(source)
    }

    /// The version of an installed package.
    pub fn installed(&self, package: &str) -> Outcome<String> {
        output(&["dpkg-query", "-W", "-f", "${Version}", package], FETCH_MAX, self.interrupt)
    }

    /// Unpacks the source of `package=version`; answers its path.
    pub fn unpack(&self, package: &str, version: &str) -> Outcome<PathBuf> {
        self.apt(&["source", "--download-only", &format!("{package}={version}")])?;
        let described = self.downloaded(".dsc")?;
        let to = self.dir.join("source");
        let words =
            ["dpkg-source", "--no-check", "-x", &described, to.to_str().unwrap_or_default()];
        output(&words, FETCH_MAX, self.interrupt)?;
        Ok(to)
    }

    /// Unpacks the binary `package=version`; answers its path.
    pub fn unpack_binary(&self, package: &str, version: &str) -> Outcome<PathBuf> {
        self.apt(&["download", &format!("{package}={version}")])?;
        let to = self.dir.join("binary");
        let words = ["dpkg", "-x", &self.downloaded(".deb")?, &to.to_string_lossy()];
        output(&words, FETCH_MAX, self.interrupt)?;
        Ok(to)
    }

    fn apt(&self, words: &[&str]) -> Outcome {
        let command: Vec<String> =
            ["apt-get", "--quiet"].iter().chain(words).map(ToString::to_string).collect();
        let said = bounded(&command, FETCH_MAX, self.interrupt, |command| {
            command.env("APT_CONFIG", self.dir.join("apt.conf")).current_dir(&self.dir);
        })?;
        if said.code == Some(0) {
            return Ok(());
        }
        Err(Failure::of(format!("{} failed", command.join(" ")), said.text.trim()))
    }

    /// The one file with this ending.
    fn downloaded(&self, end: &str) -> Outcome<String> {
        let names = fs::read_dir(&self.dir).into_iter().flatten().flatten().map(|file| file.path());
        let mut found = names.map(|path| path.to_string_lossy().into_owned());
        found
            .find(|name| name.ends_with(end))
            .ok_or_else(|| Failure(format!("apt-get has not left a file *{end}")))
    }
}
