//! The accepted programs, how they are found and hashed, and the message of each refusal.

mod support;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use skein_sandbox::{Exit, Program, ProgramError, Search, inspect};
use support::*;

const HELLO: &str = "#include <stdio.h>\nint main(void) { puts(\"hello\"); }\n";

#[test]
fn every_test_passes_as_an_ordinary_user() {
    rerun_as_user();
}

fn refused(program: &Path) -> ProgramError {
    let error = look_up(program.as_os_str(), Path::new("/")).expect_err("must be refused");
    assert!(!error.to_string().contains('\n'), "{error}");
    error
}

fn write(path: &Path, text: &[u8], mode: u32) {
    let draft = path.with_extension("draft");
    fs::write(&draft, text).unwrap();
    copy_program(&draft, path, mode);
}

fn with_env(program: &Path, name: &str, value: &Path) -> Result<Program, ProgramError> {
    let env: Vec<(OsString, OsString)> = vec![(name.into(), value.into())];
    let search = Search { cwd: Path::new("/"), path: OsStr::new("/usr/bin"), env: &env };
    inspect(program.as_os_str(), &search)
}

#[test]
fn a_dynamic_program_is_found_with_its_libraries() {
    let dir = workspace();
    let path = compile(dir.path(), "hello", HELLO, &["-lm", "-Wl,--no-as-needed"]);
    let program = look_up(path.as_os_str(), Path::new("/")).unwrap();
    assert_eq!(program.path, path);
    assert_eq!(program.loader, Path::new("/lib64/ld-linux-x86-64.so.2"));
    assert!(program.libraries.iter().any(|path| path.ends_with("libc.so.6")));
    assert!(program.glibc >= (2, 35));
    assert_eq!(program.argv(&["x".into(), "y".into()]), ["x", "y"]);
    // By a relative name, from another directory, and through PATH.
    assert_eq!(look_up(OsStr::new("./hello"), dir.path()).unwrap().hash, program.hash);
    let path_env = OsString::from(format!("/nowhere::{}", dir.path().display()));
    for cwd in ["/", dir.path().to_str().unwrap()] {
        let search = Search { cwd: Path::new(cwd), path: &path_env, env: &[] };
        assert_eq!(inspect(OsStr::new("hello"), &search).unwrap().hash, program.hash);
    }
}

#[test]
fn the_hash_is_of_contents_not_of_places() {
    let dir = workspace();
    let flags = ["-shared", "-fPIC"];
    let library = compile(dir.path(), "libone.so", "int one(void) { return 1; }", &flags);
    let source = "int one(void); int main(void) { return one(); }";
    let search = format!("-L{}", dir.path().display());
    let program = compile(dir.path(), "uses", source, &[&search, "-l:libone.so"]);
    let other = dir.path().join("other");
    fs::create_dir(&other).unwrap();
    fs::copy(&library, other.join("libone.so")).unwrap();

    let first = with_env(&program, "LD_LIBRARY_PATH", dir.path()).unwrap();
    assert!(first.libraries.contains(&library));
    let moved = with_env(&program, "LD_LIBRARY_PATH", &other).unwrap();
    assert!(moved.libraries.contains(&other.join("libone.so")));
    assert_eq!(first.hash, moved.hash);
    compile(&other, "libone.so", "int one(void) { return 2; }", &flags);
    assert_ne!(with_env(&program, "LD_LIBRARY_PATH", &other).unwrap().hash, first.hash);

    let error = refused(&program);
    let ProgramError::LibraryMissing { library, .. } = &error else { panic!("{error}") };
    assert_eq!(library, "libone.so");
    assert_eq!(error.exit_code(), 127);
}

#[test]
fn what_is_not_a_program_is_named() {
    let dir = workspace();
    let path = |name: &str| dir.path().join(name);
    let error = look_up(OsStr::new("skein-no-such-program"), Path::new("/")).unwrap_err();
    assert!(matches!(error, ProgramError::NotFound { .. }), "{error}");
    assert_eq!(error.exit_code(), 127);
    let error = refused(&path("gone"));
    assert!(matches!(error, ProgramError::NotFound { .. }), "{error}");
    let error = refused(dir.path());
    assert!(matches!(error, ProgramError::Directory { .. }), "{error}");
    assert_eq!(error.exit_code(), 126);
    write(&path("plain"), b"#!/bin/sh\n", 0o644);
    assert!(matches!(refused(&path("plain")), ProgramError::NotExecutable { .. }));
    // Found through PATH, but not executable.
    let search = Search { cwd: Path::new("/"), path: dir.path().as_os_str(), env: &[] };
    let error = inspect(OsStr::new("plain"), &search).unwrap_err();
    assert!(matches!(error, ProgramError::NotExecutable { .. }), "{error}");
    for (name, text) in [("empty", &b""[..]), ("text", b"echo hello\n"), ("torn", b"\x7fELF\x02")] {
        write(&path(name), text, 0o755);
        let error = refused(&path(name));
        assert!(matches!(error, ProgramError::Format { .. }), "{name}: {error}");
        assert_eq!(error.exit_code(), 126);
    }
    if !is_root() {
        write(&path("hidden"), b"#!/bin/sh\n", 0o111);
        assert!(matches!(refused(&path("hidden")), ProgramError::Unreadable { .. }));
    }
}

#[test]
fn what_the_runtime_cannot_enter_is_refused_by_name() {
    let dir = workspace();
    for (name, flag) in [("static", "-static"), ("pie", "-static-pie")] {
        let program = compile(dir.path(), name, HELLO, &[flag]);
        assert!(matches!(refused(&program), ProgramError::Static { .. }), "{name}");
    }
    let musl = "-Wl,--dynamic-linker=/lib/ld-musl-x86_64.so.1";
    let error = refused(&compile(dir.path(), "musl", HELLO, &[musl]));
    assert!(matches!(error, ProgramError::OtherLibc { .. }), "{error}");
    // The note by which the Go tool chain marks what it links: name "Go", type 4.
    let go = format!(
        "__asm__(\".section .note.go.buildid,\\\"a\\\",@note\\n.long 3,4,4\\n.asciz \\\"Go\\\"\\n.byte 0\\n.long 7\\n.text\");\n{HELLO}"
    );
    for (name, flags) in [("go", &["-s"][..]), ("static-go", &["-static"])] {
        let error = refused(&compile(dir.path(), name, &go, flags));
        assert!(matches!(error, ProgramError::Go { .. }), "{name}: {error}");
    }
    let mut bytes = fs::read(compile(dir.path(), "hello", HELLO, &[])).unwrap();
    bytes[18] = 183;
    write(&dir.path().join("arm"), &bytes, 0o755);
    let error = refused(&dir.path().join("arm"));
    assert!(matches!(&error, ProgramError::Architecture { machine, .. } if machine == "arm64"));
}

#[test]
fn a_privileged_program_is_refused() {
    let dir = workspace();
    let program = compile(dir.path(), "hello", HELLO, &[]);
    for mode in [0o4755, 0o2755] {
        fs::set_permissions(&program, fs::Permissions::from_mode(mode)).unwrap();
        let error = refused(&program);
        assert!(matches!(error, ProgramError::Privileged { .. }), "{mode:o}: {error}");
    }
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    look_up(program.as_os_str(), Path::new("/")).unwrap();
    if !is_root() {
        return;
    }
    // struct vfs_cap_data, version 2, effective: CAP_NET_BIND_SERVICE.
    let words: [u32; 5] = [0x0200_0001, 1 << 10, 0, 0, 0];
    let value: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let path = std::ffi::CString::new(program.as_os_str().as_bytes()).unwrap();
    // SAFETY: both strings are terminated, the value's pointer and length are those of a live vector.
    let result = unsafe {
        let name = c"security.capability".as_ptr();
        libc::setxattr(path.as_ptr(), name, value.as_ptr().cast(), value.len(), 0)
    };
    assert_eq!(result, 0);
    let error = refused(&program);
    assert!(matches!(error, ProgramError::Privileged { .. }), "{error}");
}

#[test]
fn an_old_or_unknown_glibc_is_refused() {
    let dir = workspace();
    let program = compile(dir.path(), "hello", HELLO, &[]);
    let found = look_up(program.as_os_str(), Path::new("/")).unwrap();
    let libc = found.libraries.iter().find(|path| path.ends_with("libc.so.6")).unwrap();
    let mut bytes = fs::read(libc).unwrap();
    let text = b"release version 2.";
    let at = bytes.windows(text.len()).position(|window| window == text).unwrap() + text.len();
    bytes[at..at + 2].copy_from_slice(b"17");
    fs::write(dir.path().join("libc.so.6"), &bytes).unwrap();
    let error = with_env(&program, "LD_LIBRARY_PATH", dir.path()).unwrap_err();
    assert!(matches!(error, ProgramError::GlibcTooOld { major: 2, minor: 17, .. }), "{error}");
    bytes[at - 3] = b'?';
    fs::write(dir.path().join("libc.so.6"), &bytes).unwrap();
    let error = with_env(&program, "LD_LIBRARY_PATH", dir.path()).unwrap_err();
    assert!(matches!(error, ProgramError::GlibcUnknown { .. }), "{error}");
}

/// Runs `name` with arguments "one two" natively and in the sandbox; both must print the same.
fn same_as_native(dir: &Path, name: &str) -> Program {
    let path = dir.join(name);
    let args = ["one", "two three"];
    let env = [("PATH", "/usr/bin:/bin")];
    let native = std::process::Command::new(&path).args(args).env_clear().envs(env).output();
    let native = native.unwrap_or_else(|error| panic!("{name}: {error}"));
    let program = look_up(path.as_os_str(), Path::new("/")).unwrap_or_else(|e| panic!("{e}"));
    let given: Vec<OsString> =
        [path.as_os_str(), OsStr::new(args[0]), OsStr::new(args[1])].map(OsStr::to_owned).into();
    let mut setup = Setup::new(&program.path, &[]);
    setup.argv = program.argv(&given);
    let ran = setup.run();
    assert_eq!(ran.stderr, "");
    assert_eq!(ran.exit, Exit::Code(0));
    assert_eq!(ran.stdout, String::from_utf8_lossy(&native.stdout), "{name}");
    program
}

#[test]
fn scripts_run_as_the_kernel_would_run_them() {
    let dir = workspace();
    let path = |name: &str| dir.path().join(name);
    const SHOW: &str = "import sys; print(sys.argv)";
    write(&path("plain"), b"#!/bin/sh\necho \"$0\" \"$#\" \"$@\"\n", 0o755);
    write(&path("option"), b"#! /bin/sh -e \nfalse || echo \"$-\" \"$0\" \"$@\"\n", 0o755);
    write(&path("env"), b"#!/usr/bin/env bash\necho \"$0\" \"$@\"\n", 0o755);
    write(&path("split"), b"#!/usr/bin/env -S bash -e\necho \"$-\" \"$0\" \"$@\"\n", 0o755);
    let line = format!("#!{} --first\n{SHOW}\n", path("plain").display());
    write(&path("nested"), line.as_bytes(), 0o755);
    let plain = same_as_native(dir.path(), "plain");
    assert_eq!(plain.path, Path::new("/bin/sh"));
    for name in ["option", "env", "split", "nested"] {
        let program = same_as_native(dir.path(), name);
        assert_ne!(program.hash, plain.hash, "{name}");
        assert_ne!(program.path, Path::new("/usr/bin/env"));
    }
}

#[test]
fn scripts_that_cannot_run_are_named() {
    let dir = workspace();
    let path = |name: &str| dir.path().join(name);
    let long = [b"#!/bin/sh ".as_slice(), &[b'x'; 300], b"\n"].concat();
    for (name, text) in [
        ("nothing", &b"#!\n"[..]),
        ("long", &long),
        ("assigns", b"#!/usr/bin/env A=1 sh\n"),
        ("option", b"#!/usr/bin/env -i sh\n"),
        ("quotes", b"#!/usr/bin/env -S sh -c 'x'\n"),
    ] {
        write(&path(name), text, 0o755);
        let error = refused(&path(name));
        assert!(matches!(error, ProgramError::Format { .. }), "{name}: {error}");
    }
    let itself = format!("#!{}\n", path("loop").display());
    write(&path("loop"), itself.as_bytes(), 0o755);
    assert!(matches!(refused(&path("loop")), ProgramError::ScriptLoop { .. }));
    write(&path("gone"), b"#!/no/such/interpreter\n", 0o755);
    assert!(matches!(refused(&path("gone")), ProgramError::NotFound { .. }));
}

#[test]
fn a_symbolic_link_keeps_its_name() {
    let dir = workspace();
    let program = compile(dir.path(), "hello", HELLO, &[]);
    let link = dir.path().join("link");
    symlink(&program, &link).unwrap();
    assert_eq!(look_up(link.as_os_str(), Path::new("/")).unwrap().path, PathBuf::from(&link));
    let dangling = dir.path().join("dangling");
    symlink("nowhere", &dangling).unwrap();
    assert!(matches!(refused(&dangling), ProgramError::NotFound { .. }));
}
