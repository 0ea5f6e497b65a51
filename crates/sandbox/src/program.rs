//! Finds the server's program as a shell would, checks it, and hashes it with all its libraries.
//!
//! Replicas compare the hash before they take part: two replicas with different builds of a program or of a
//! library would execute the same inputs differently. It covers contents and library names, not directories, so hosts
//! may lay their file systems out differently.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::fcntl::{AT_FDCWD, AtFlags};
use nix::unistd::{AccessFlags, faccessat};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use xxhash_rust::xxh3::xxh3_128;

use super::elf::{self, Refusal};
use super::error::ProgramError;
use super::libraries::{self, Listing};
use super::sys;

/// The oldest glibc that has the functions that the runtime uses (`_dl_find_object`, `__rseq_offset`).
pub const MIN_GLIBC: (u32, u32) = (2, 35);

/// The newest known glibc.
pub const MAX_GLIBC: (u32, u32) = (2, 43);

/// The longest chain of `#!` files; the kernel's own limit is 5.
const MAX_SCRIPT_DEPTH: usize = 4;

/// The part of a first line that the kernel reads (`BINPRM_BUF_SIZE`).
const SCRIPT_LINE_BYTES: usize = 256;

/// Search paths of a program and its libraries.
#[derive(Debug, Clone, Copy)]
pub struct Search<'a> {
    /// The directory that relative names start from: the server's working directory.
    pub cwd: &'a Path,
    /// The value of `PATH`.
    pub path: &'a OsStr,
    /// The server's environment: `LD_LIBRARY_PATH` and `GLIBC_TUNABLES` decide which libraries are loaded.
    pub env: &'a [(OsString, OsString)],
}

impl<'a> Search<'a> {
    /// The variables that decide which libraries are loaded.
    pub fn chosen_env(&self) -> impl Iterator<Item = &'a (OsString, OsString)> + use<'a> {
        self.env.iter().filter(|(name, _)| libraries::LOADER_VARIABLES.iter().any(|v| name == v))
    }
}

/// A program that the runtime can be loaded into.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// The executed file, absolute. For a script, its interpreter (for `#!/usr/bin/env NAME`, the resolved NAME).
    pub path: PathBuf,
    /// For a script: the arguments that take the place of the given `argv[0]` (interpreter, its argument, the script).
    pub script_args: Vec<OsString>,
    /// The dynamic loader (`PT_INTERP`).
    pub loader: PathBuf,
    /// Every shared library, as the loader finds them, sorted by path.
    pub libraries: Vec<PathBuf>,
    /// The C library's version.
    pub glibc: (u32, u32),
    /// SHA-256 over the program, its scripts, its loader and its libraries.
    pub hash: [u8; 32],
    /// All of these files, each with the XXH3 of its contents, 128 bits.
    pub files: Vec<(PathBuf, u128)>,
}

impl Program {
    /// The argument vector for executing [`Self::path`] when the user gave `argv` (including its first element).
    pub fn argv(&self, argv: &[OsString]) -> Vec<OsString> {
        if self.script_args.is_empty() {
            return argv.to_vec();
        }
        self.script_args.iter().chain(argv.iter().skip(1)).cloned().collect()
    }
}

/// Resolves, checks and hashes `program`.
///
/// # Errors
/// The reason in one line why the program cannot be replicated; [`ProgramError::exit_code`] is the exit code of a shell.
pub fn inspect(program: &OsStr, search: &Search<'_>) -> Result<Program, ProgramError> {
    let mut hasher = FileHasher::new();
    let mut path = resolve(program, search)?;
    let mut script_args: Vec<OsString> = Vec::new();
    let mut data = read_checked(&path)?;
    let mut depth = 0;
    while data.starts_with(b"#!") {
        depth += 1;
        if depth > MAX_SCRIPT_DEPTH {
            return Err(ProgramError::ScriptLoop { path });
        }
        hasher.add("script", OsStr::new(""), &path, &data);
        let line = script_line(&data, &path, search)?;
        // The kernel replaces argv[0] by: interpreter, its one argument, the path of the script.
        let rest = script_args.drain(..).skip(1).collect::<Vec<_>>();
        script_args = line.args;
        script_args.push(path.clone().into_os_string());
        script_args.extend(rest);
        path = line.interpreter;
        data = read_checked(&path)?;
    }
    let loader = PathBuf::from(check_elf(&data, &path)?);
    hasher.add("program", OsStr::new(""), &path, &data);
    let loader_data = fs::read(&loader).map_err(|error| ProgramError::LibraryMissing {
        path: path.clone(),
        library: format!("{} ({error})", loader.display()),
    })?;
    hasher.add("loader", file_name(&loader), &loader, &loader_data);
    let libraries = match libraries::list(&loader, &path, search.cwd, search.env) {
        Ok(Listing::Found(libraries)) => libraries,
        Ok(Listing::Missing(library)) => {
            return Err(ProgramError::LibraryMissing { path, library });
        }
        Err(reason) => return Err(ProgramError::Loader { path, reason }),
    };
    let glibc = hash_libraries(&libraries, &path, &mut hasher)?;
    let (hash, files) = hasher.finish();
    Ok(Program { path, script_args, loader, libraries, glibc, hash, files })
}

fn hash_libraries(
    libraries: &[PathBuf],
    program: &Path,
    hasher: &mut FileHasher,
) -> Result<(u32, u32), ProgramError> {
    let mut glibc = None;
    let mut ordered: Vec<&PathBuf> = libraries.iter().collect();
    ordered.sort_by_key(|path| (file_name(path), *path));
    for library in ordered {
        let data = fs::read(library).map_err(|error| ProgramError::LibraryMissing {
            path: program.to_owned(),
            library: format!("{} ({error})", library.display()),
        })?;
        if file_name(library) == "libc.so.6" {
            glibc = libraries::glibc_version(&data);
        }
        hasher.add("library", file_name(library), library, &data);
    }
    known(glibc, program)
}

fn known(glibc: Option<(u32, u32)>, program: &Path) -> Result<(u32, u32), ProgramError> {
    let path = program.to_owned();
    match glibc {
        Some((major, minor)) if (major, minor) < MIN_GLIBC => {
            Err(ProgramError::GlibcTooOld { path, major, minor })
        }
        Some((major, minor)) if (major, minor) > MAX_GLIBC => {
            Err(ProgramError::GlibcTooNew { path, major, minor })
        }
        Some(version) => Ok(version),
        None => Err(ProgramError::GlibcUnknown { path }),
    }
}

fn file_name(path: &Path) -> &OsStr {
    path.file_name().unwrap_or_default()
}

/// Finds a program as `execvp` does: a name with a slash is a path, any other is looked for in `PATH`.
fn resolve(program: &OsStr, search: &Search<'_>) -> Result<PathBuf, ProgramError> {
    if program.as_bytes().contains(&b'/') {
        return Ok(search.cwd.join(program));
    }
    let not_found = || ProgramError::NotFound { program: program.to_string_lossy().into_owned() };
    if program.is_empty() {
        return Err(not_found());
    }
    let mut refused = None;
    for directory in search.path.as_bytes().split(|byte| *byte == b':') {
        // An empty element of PATH is the working directory.
        let candidate = search.cwd.join(OsStr::from_bytes(directory)).join(program);
        match fs::metadata(&candidate) {
            Ok(meta) if meta.is_file() && executable(&candidate) => return Ok(candidate),
            Ok(meta) if meta.is_file() => refused = refused.or(Some(candidate)),
            _ => {}
        }
    }
    Err(refused.map_or_else(not_found, |path| ProgramError::NotExecutable { path }))
}

fn executable(path: &Path) -> bool {
    faccessat(AT_FDCWD, path, AccessFlags::X_OK, AtFlags::AT_EACCESS).is_ok()
}

/// Reads an executable file, after checking that it may be executed.
fn read_checked(path: &Path) -> Result<Vec<u8>, ProgramError> {
    let path = path.to_owned();
    let meta = match fs::metadata(&path) {
        Ok(meta) => meta,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Err(ProgramError::NotFound { program: path.to_string_lossy().into_owned() });
        }
        Err(error) => return Err(ProgramError::Unreadable { path, error }),
    };
    if meta.is_dir() {
        return Err(ProgramError::Directory { path });
    }
    if !meta.is_file() || !executable(&path) {
        return Err(ProgramError::NotExecutable { path });
    }
    if meta.mode() & (libc::S_ISUID | libc::S_ISGID) != 0 {
        return Err(ProgramError::Privileged { path, what: "setuid or setgid" });
    }
    if sys::has_file_capabilities(&path) {
        return Err(ProgramError::Privileged { path, what: "given file capabilities" });
    }
    fs::read(&path).map_err(|error| ProgramError::Unreadable { path, error })
}

fn check_elf(data: &[u8], path: &Path) -> Result<String, ProgramError> {
    let path = path.to_owned();
    if !elf::is_elf(data) {
        return Err(ProgramError::Format {
            path,
            what: "neither an ELF file nor a script with #!",
        });
    }
    elf::check_program(data).map_err(|refusal| match refusal {
        Refusal::Damaged => ProgramError::Format { path, what: "a damaged ELF file" },
        Refusal::NotExecutable => ProgramError::Format { path, what: "an ELF file but no program" },
        Refusal::Architecture(machine) => ProgramError::Architecture { path, machine },
        Refusal::Go => ProgramError::Go { path },
        Refusal::Static => ProgramError::Static { path },
        Refusal::OtherLibc(loader) => ProgramError::OtherLibc { path, loader },
    })
}

/// The interpreter that the first line of a script names.
struct ScriptLine {
    interpreter: PathBuf,
    /// `argv[0]` of the interpreter and its argument, if any.
    args: Vec<OsString>,
}

fn script_line(
    data: &[u8],
    script: &Path,
    search: &Search<'_>,
) -> Result<ScriptLine, ProgramError> {
    let bad = |what| ProgramError::Format { path: script.to_owned(), what };
    let head = &data[2..data.len().min(SCRIPT_LINE_BYTES)];
    let Some(end) = head.iter().position(|byte| *byte == b'\n').or(match data.len() {
        len if len < SCRIPT_LINE_BYTES => Some(head.len()),
        _ => None,
    }) else {
        return Err(bad("a script whose first line is too long"));
    };
    let line = head[..end].trim_ascii();
    let split = line.iter().position(|byte| matches!(byte, b' ' | b'\t')).unwrap_or(line.len());
    let (name, argument) = (&line[..split], line[split..].trim_ascii());
    if name.is_empty() {
        return Err(bad("a script that names no interpreter"));
    }
    let interpreter = search.cwd.join(OsStr::from_bytes(name));
    if file_name(&interpreter) == "env" {
        return env_line(argument, search).ok_or_else(|| {
            bad("a script that uses more of env than a program's name; name its interpreter")
        })?;
    }
    let mut args = vec![OsStr::from_bytes(name).to_owned()];
    if !argument.is_empty() {
        args.push(OsStr::from_bytes(argument).to_owned());
    }
    Ok(ScriptLine { interpreter, args })
}

/// `#!/usr/bin/env NAME` and `#!/usr/bin/env -S NAME ARGS`: the program that env would execute. It is executed directly, because a
/// second exec would undo what `launch` does to the first one's auxiliary vector.
fn env_line(argument: &[u8], search: &Search<'_>) -> Option<Result<ScriptLine, ProgramError>> {
    let (words, split) = match argument.strip_prefix(b"-S") {
        Some(rest) => (rest.trim_ascii(), true),
        None => (argument, false),
    };
    let quoted = |byte: &u8| matches!(byte, b'\'' | b'"' | b'\\' | b'$' | b'#');
    if words.starts_with(b"-") || words.is_empty() || (split && words.iter().any(quoted)) {
        return None;
    }
    let args: Vec<OsString> = match split {
        true => words
            .split(|byte| matches!(byte, b' ' | b'\t'))
            .filter(|word| !word.is_empty())
            .map(|word| OsStr::from_bytes(word).to_owned())
            .collect(),
        false => vec![OsStr::from_bytes(words).to_owned()],
    };
    if args[0].as_bytes().contains(&b'=') {
        return None;
    }
    Some(resolve(&args[0], search).map(|interpreter| ScriptLine { interpreter, args }))
}

/// SHA-256 over a sequence of named files, each framed by its lengths.
struct FileHasher {
    all: Sha256,
    files: Vec<(PathBuf, u128)>,
}

impl FileHasher {
    fn new() -> Self {
        Self { all: Sha256::new_with_prefix(b"skein program 1\n"), files: Vec::new() }
    }

    fn add(&mut self, role: &str, name: &OsStr, path: &Path, data: &[u8]) {
        for part in [role.as_bytes(), name.as_bytes(), data] {
            self.all.update((part.len() as u64).to_le_bytes());
            self.all.update(part);
        }
        self.files.push((path.to_owned(), xxh3_128(data)));
    }

    fn finish(self) -> ([u8; 32], Vec<(PathBuf, u128)>) {
        (self.all.finalize().into(), self.files)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_glibc_that_is_known_will_do() {
        let program = Path::new("/bin/server");
        for version in [MIN_GLIBC, (2, 36), MAX_GLIBC] {
            assert_eq!(known(Some(version), program).unwrap(), version);
        }
        let refused = |version| {
            let error = known(version, program).unwrap_err();
            (error.to_string(), error.exit_code())
        };
        let (old, code) = refused(Some((2, 34)));
        assert!(old.ends_with("is glibc 2.34; Skein needs 2.35 or newer") && code == 126, "{old}");
        let (new, code) = refused(Some((2, 44)));
        assert!(new.ends_with("is glibc 2.44; Skein knows 2.35 to 2.43") && code == 126, "{new}");
        assert!(refused(Some((3, 0))).0.contains("3.0"));
        assert!(refused(None).0.contains("unknown"));
    }
}
