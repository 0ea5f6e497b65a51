//! The shared libraries of a program, as the dynamic loader itself would choose them, and the C library's version.
//!
//! The loader is asked (`ld.so --list`) rather than imitated: run paths, `$ORIGIN`, the cache and hardware-specific
//! directories are the loader's business. It maps the program but runs none of its code; its environment is empty except for the
//! two variables that change its choice.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use memchr::memmem;

/// The loader's answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Listing {
    /// Every library with the path it would be loaded from.
    Found(Vec<PathBuf>),
    /// A library that it cannot find.
    Missing(String),
}

/// Variables of the server's environment that decide which libraries the loader takes.
pub(super) const LOADER_VARIABLES: [&str; 2] = ["LD_LIBRARY_PATH", "GLIBC_TUNABLES"];

/// Asks `loader` for the libraries of `program`. The error is one line.
pub(super) fn list(
    loader: &Path,
    program: &Path,
    cwd: &Path,
    env: &[(OsString, OsString)],
) -> Result<Listing, String> {
    let chosen = env.iter().filter(|(name, _)| LOADER_VARIABLES.iter().any(|v| name == v));
    let output = Command::new(loader)
        .arg("--list")
        .arg(program)
        .env_clear()
        .envs(chosen.map(|(name, value)| (name, value)))
        .current_dir(cwd)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| match cwd.metadata() {
            Ok(_) => format!("{}: {error}", loader.display()),
            Err(error) => format!("the working directory {}: {error}", cwd.display()),
        })?;
    let listing = parse(&output.stdout);
    if output.status.success() || matches!(listing, Listing::Missing(_)) {
        return Ok(listing);
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let line = text.lines().next().unwrap_or("no message");
    match missing_in(line) {
        Some(name) => Ok(Listing::Missing(name.to_owned())),
        None => Err(format!("{} --list failed: {line}", loader.display())),
    }
}

/// The library in "PROGRAM: error while loading shared libraries: NAME: cannot open shared object file: ...".
fn missing_in(line: &str) -> Option<&str> {
    let (_, rest) = line.rsplit_once(": error while loading shared libraries: ")?;
    rest.split_once(": cannot open shared object file").map(|(name, _)| name)
}

fn parse(output: &[u8]) -> Listing {
    let mut found = Vec::new();
    for line in output.split(|byte| *byte == b'\n') {
        let line = line.trim_ascii();
        // "NAME => PATH (0xADDRESS)", "NAME => not found" or, for the loader and the vDSO, "NAME (0xADDRESS)".
        let Some(arrow) = memmem::find(line, b" => ") else { continue };
        let target = &line[arrow + 4..];
        if target == b"not found" {
            return Listing::Missing(String::from_utf8_lossy(&line[..arrow]).into_owned());
        }
        let end = memmem::rfind(target, b" (0x").unwrap_or(target.len());
        let path = OsStr::from_bytes(&target[..end]);
        if path.as_bytes().starts_with(b"/") {
            found.push(PathBuf::from(OsString::from_vec(path.as_bytes().to_vec())));
        }
    }
    found.sort();
    found.dedup();
    Listing::Found(found)
}

/// The version in the banner of a C library: "... stable release version 2.36.".
pub(super) fn glibc_version(libc: &[u8]) -> Option<(u32, u32)> {
    let banner = memmem::find(libc, b"GNU C Library ")?;
    let text = &libc[banner..libc.len().min(banner + 256)];
    let version = &text[memmem::find(text, b" release version ")? + 17..];
    let number = |bytes: &[u8]| {
        let digits = bytes.iter().take_while(|byte| byte.is_ascii_digit()).count();
        std::str::from_utf8(&bytes[..digits]).ok()?.parse::<u32>().ok().map(|value| (value, digits))
    };
    let (major, digits) = number(version)?;
    let (minor, _) = number(version.get(digits..)?.strip_prefix(b".")?)?;
    Some((major, minor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loaders_lines_are_understood() {
        let text =
            b"\tlinux-vdso.so.1 (0x00007ffd)\n\tlibc.so.6 => /lib/x (1)/libc.so.6 (0x00007f)\n\
            \tliba.so => /a b/liba.so (0x1)\n\t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n";
        let expected = ["/a b/liba.so", "/lib/x (1)/libc.so.6"].map(PathBuf::from).to_vec();
        assert_eq!(parse(text), Listing::Found(expected));
        let missing = b"\tlibno.so.1 => not found\n\tlibc.so.6 => /lib/libc.so.6 (0x7f)\n";
        assert_eq!(parse(missing), Listing::Missing("libno.so.1".to_owned()));
        let line = "/a: b: error while loading shared libraries: libno.so.1: cannot open shared object file: No";
        assert_eq!(missing_in(line), Some("libno.so.1"));
        assert_eq!(missing_in("segmentation fault"), None);
        assert_eq!(parse(b"\tstatically linked\n"), Listing::Found(Vec::new()));
    }

    #[test]
    fn a_working_directory_that_is_gone_is_named() {
        let gone = Path::new("/no/such/directory");
        let loader = Path::new("/lib64/ld-linux-x86-64.so.2");
        let said = list(loader, Path::new("/bin/sh"), gone, &[]).map(drop).unwrap_err();
        assert!(said.starts_with("the working directory /no/such/directory: "), "{said}");
        let said = list(gone, Path::new("/bin/sh"), Path::new("/"), &[]).map(drop).unwrap_err();
        assert!(said.starts_with("/no/such/directory: "), "{said}");
    }

    #[test]
    fn the_version_is_read_from_the_banner() {
        let debian =
            b"\0GNU C Library (Debian GLIBC 2.36-9+deb12u14) stable release version 2.36.\n";
        assert_eq!(glibc_version(debian), Some((2, 36)));
        assert_eq!(glibc_version(b"GNU C Library (x) release release version 2.4"), Some((2, 4)));
        assert_eq!(glibc_version(b"GNU C Library (x) development"), None);
        assert_eq!(glibc_version(b"GNU C Library release version x.y"), None);
        assert_eq!(glibc_version(b"musl libc"), None);
    }
}
