//! A C library with unknown internals: one line that says so, and no crash.

mod common;

use std::process::Command;

use common::Place;

/// A `setjmp` that stores something else than glibc's.
const ODD: &str = "__asm__(\".globl __sigsetjmp\\n.type __sigsetjmp, @function\\n\"
        \"__sigsetjmp: movq $1, (%rdi)\\nxorl %eax, %eax\\nret\\n\");\n";
const PROGRAM: &str = "int main(void) { return 0; }\n";

#[test]
fn a_c_library_with_another_setjmp_is_named_with_its_version() {
    let place = Place::new();
    let compile = |name: &str, text: &str, flags: &[&str]| {
        let source = place.file(&format!("{name}.c"), text, 0o644);
        let out = place.path(name);
        let mut command = Command::new("cc");
        command.arg("-O1").arg("-o").arg(&out).arg(source).args(flags);
        assert!(command.status().unwrap().success(), "cc {name}");
        out.to_str().unwrap().to_string()
    };
    let library = compile("libodd.so", ODD, &["-shared", "-fPIC"]);
    let program = compile("program", PROGRAM, &["-Wl,--no-as-needed", &library]);
    let output = place
        .skein_with_runtime()
        .args(["check", "--", &program])
        .current_dir(place.dir.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    let verdict = said.lines().find(|line| line.contains("verdict")).unwrap_or_default();
    for words in
        ["cannot run: the runtime stopped the server: this glibc (2.", ") is not known: its setjmp"]
    {
        assert!(verdict.contains(words), "{said}");
    }
}
