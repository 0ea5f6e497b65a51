//! `skein check`: its verdict on programs that are each kind of good and bad.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use common::cluster::free_port;
use common::{Place, gerbera, processes_naming, wait_for};
use serde_json::Value;

/// A server that answers each line: `answer`, C statements, fills `out` from the line `in`.
fn server_source(prelude: &str, answer: &str) -> String {
    format!(
        r#"#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <arpa/inet.h>
#include <sys/socket.h>
{prelude}
int main(void) {{
    int s = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    struct sockaddr_in a = {{ .sin_family = AF_INET, .sin_port = htons(7070) }};
    setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(s, (void *)&a, sizeof a) || listen(s, 16)) return 9;
    for (;;) {{
        int c = accept(s, 0, 0);
        char in[256], out[512] = "";
        ssize_t n;
        while ((n = read(c, in, sizeof in - 1)) > 0) {{
            in[n] = 0;
            {answer}
            if (write(c, out, strlen(out)) < 0) break;
        }}
        close(c);
    }}
}}
"#
    )
}

/// Compiles C; `flags` behind the source.
fn compile(place: &Place, name: &str, source: &str, flags: &[&str]) -> PathBuf {
    let text = place.file(&format!("{name}.c"), source, 0o644);
    let out = place.path(name);
    let made = Command::new("cc")
        .args(["-O1", "-pthread", "-w", "-o"])
        .arg(&out)
        .arg(&text)
        .args(flags)
        .output()
        .unwrap();
    assert!(made.status.success(), "cc {name}: {}", String::from_utf8_lossy(&made.stderr));
    out
}

/// A client command: sends a line and expects an answer.
const ASK: &str = r#"exec 3<>/dev/tcp/$SKEIN_HOST/$SKEIN_PORT; echo hello >&3; read -r answer <&3; test -n "$answer""#;

fn ask(times: usize) -> String {
    format!("bash -c 'for i in $(seq {times}); do {ASK} || exit 1; done'")
}

fn run(place: &Place, options: &[&str], program: &[&str]) -> Output {
    let mut command = place.skein_with_runtime();
    command.arg("check").args(options).arg("--").args(program);
    command.current_dir(place.dir.path()).output().unwrap()
}

/// Runs a check with `--json`; asserts that the answer is whole and has this verdict.
#[track_caller]
fn check(place: &Place, verdict: &str, options: &[&str], program: &[&str]) -> Value {
    let output = run(place, &[&["--json"], options].concat(), program);
    let text = String::from_utf8_lossy(&output.stdout);
    let said = String::from_utf8_lossy(&output.stderr);
    let found: Value =
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}\n{said}"));
    assert_eq!(found["verdict"], verdict, "{found:#}");
    let code = match verdict {
        "deterministic" => 0,
        "not_deterministic" => 1,
        _ => 2,
    };
    assert_eq!(output.status.code(), Some(code), "{found:#}");
    assert_eq!(found["exit_code"], code);
    assert_form(&found);
    let left = processes_naming(place.dir.path().to_str().unwrap());
    assert!(left.is_empty(), "processes are left: {left:?}");
    found
}

/// Every field that docs/check.md names is there with its type, and docs/check.md names every field.
#[track_caller]
fn assert_form(found: &Value) {
    assert_eq!(found["skein_check"], 1);
    for name in ["program", "verdict", "reason"] {
        assert!(found[name].is_string(), "{name}: {found:#}");
    }
    for name in ["args", "listeners", "used", "refused", "net", "warnings", "output"] {
        assert!(found[name].is_array(), "{name}: {found:#}");
    }
    let text =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/check.md"))
            .unwrap();
    named(found, &text);
}

fn named(value: &Value, text: &str) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                assert!(text.contains(&format!("`{name}`")), "docs/check.md has no `{name}`");
                named(value, text);
            }
        }
        Value::Array(all) => all.iter().for_each(|value| named(value, text)),
        _ => {}
    }
}

#[track_caller]
fn assert_reason(found: &Value, words: &[&str]) {
    let reason = found["reason"].as_str().unwrap();
    for word in words {
        assert!(reason.contains(word), "'{word}' is not in: {reason}\n{found:#}");
    }
}

fn used(found: &Value, kind: &str) -> u64 {
    let all = found["used"].as_array().unwrap();
    let row = all.iter().find(|row| row["name"] == kind);
    row.unwrap_or_else(|| panic!("no {kind}: {found:#}"))["count"].as_u64().unwrap()
}

#[test]
fn a_server_that_answers_is_deterministic() {
    let place = Place::new();
    let server = compile(&place, "good", &server_source("", "strcpy(out, in);"), &[]);
    let found = check(&place, "deterministic", &["--drive", &ask(20)], &[server.to_str().unwrap()]);
    assert_eq!(found["drive"]["exit_code"], 0);
    assert_eq!(found["drive"]["connections"], 20);
    assert_eq!(found["compared"]["sent_bytes"], 20 * 6);
    assert_eq!(found["compared"]["complete"], true);
    assert_eq!(found["listeners"][0]["server"], "0.0.0.0:7070");
    assert_eq!(used(&found, "tcp_sockets"), 1);
    assert_eq!(
        (&found["difference"], &found["recommend"]["mode"]),
        (&Value::Null, &"order".into())
    );
    assert!(found["figures"]["operations_per_second"].as_f64().unwrap() > 0.0);
}

#[test]
fn the_report_is_for_people() {
    let place = Place::new();
    let server = compile(&place, "good", &server_source("", "strcpy(out, in);"), &[]);
    let output = run(&place, &["--drive", &ask(3)], &[server.to_str().unwrap()]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{text}");
    for words in [
        "verdict    deterministic",
        "exit status 0",
        "3 connections",
        "0.0.0.0:7070",
        "--mode order",
    ] {
        assert!(text.contains(words), "'{words}' is not in\n{text}");
    }
    assert!(text.lines().count() <= 24, "more than a screen:\n{text}");
}

#[test]
fn what_a_host_file_says_is_found_when_it_changes() {
    let place = Place::new();
    // The client command changes the file after its answers: the second run reads another text.
    let file = place.file("changing", "1\n", 0o666);
    let prelude = format!("#define FILE_NAME \"{}\"", file.display());
    let answer =
        r#"FILE *f = fopen(FILE_NAME, "r"); if (!fgets(out, sizeof out, f)) return 8; fclose(f);"#;
    let server = compile(&place, "reads", &server_source(&prelude, answer), &[]);
    let drive = format!("{} && echo 2 > {}", ask(5), file.display());
    let found =
        check(&place, "not_deterministic", &["--drive", &drive], &[server.to_str().unwrap()]);
    let difference = &found["difference"];
    assert_eq!((&difference["kind"], &difference["connection"]), (&"output".into(), &1.into()));
    assert!(difference["index"].as_u64().unwrap() > 1, "{found:#}");
    assert!(difference["first"].as_str().unwrap().contains("\"1\\n\""), "{found:#}");
    assert!(difference["second"].as_str().unwrap().contains("\"2\\n\""), "{found:#}");
}

#[test]
fn what_is_printed_differently_is_found() {
    if !has_rdrand() {
        return;
    }
    let place = Place::new();
    let answer = format!(r#"{RANDOM} printf("%llu\n", r); fflush(stdout); strcpy(out, in);"#);
    let server = compile(&place, "prints", &server_source("", &answer), &[]);
    let found =
        check(&place, "not_deterministic", &["--drive", &ask(1)], &[server.to_str().unwrap()]);
    let difference = &found["difference"];
    assert_eq!((&difference["kind"], &difference["index"]), (&"printed".into(), &Value::Null));
    assert_ne!(difference["first"], difference["second"]);
}

#[test]
fn a_host_file_that_changes_is_named() {
    let place = Place::new();
    let link = place.path("link");
    std::os::unix::fs::symlink("one", &link).unwrap();
    let prelude = format!("#define LINK \"{}\"", link.display());
    let answer = r#"char to[64] = ""; readlink(LINK, to, sizeof to - 1); puts(to); fflush(stdout); strcpy(out, in);"#;
    let server = compile(&place, "links", &server_source(&prelude, answer), &[]);
    let drive = format!("{} && ln -sfn two {}", ask(1), link.display());
    let found =
        check(&place, "not_deterministic", &["--drive", &drive], &[server.to_str().unwrap()]);
    let difference = &found["difference"];
    assert_eq!(difference["kind"], "host_file");
    let second = difference["second"].as_str().unwrap();
    assert!(second.contains("/link: its"), "{second}");
    assert!(second.contains("target was one and is two"), "{second}");
}

/// The instruction itself, without asking cpuid: nothing can hide it.
const RANDOM: &str = r#"unsigned long long r; unsigned char ok; __asm__ volatile("rdrand %0; setc %1" : "=r"(r), "=qm"(ok));"#;

fn has_rdrand() -> bool {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap();
    let has = info.split_ascii_whitespace().any(|word| word == "rdrand");
    if !has {
        println!("not tested: this processor has no rdrand");
    }
    has
}

#[test]
fn randomness_that_cannot_be_hidden_is_found() {
    if !has_rdrand() {
        return;
    }
    let place = Place::new();
    let answer = format!(r#"{RANDOM} sprintf(out, "%llu\n", r);"#);
    let server = compile(&place, "random", &server_source("", &answer), &[]);
    let found =
        check(&place, "not_deterministic", &["--drive", &ask(1)], &[server.to_str().unwrap()]);
    assert_eq!(found["difference"]["kind"], "output");
}

#[test]
fn a_file_that_is_written_differently_is_found() {
    let place = Place::new();
    // Answers are the same, but not the bytes of a file.
    let keeps = |name: &str, random: &str| {
        let answer = format!(
            r#"{random} FILE *f = fopen("/tmp/same", "w"); fputs(in, f); fclose(f);
            f = fopen("/tmp/kept", "w"); fwrite(&r, sizeof r, 1, f); fclose(f); strcpy(out, in);"#
        );
        compile(&place, name, &server_source("", &answer), &[]).to_str().unwrap().to_string()
    };
    let found = check(
        &place,
        "deterministic",
        &["--drive", &ask(2)],
        &[&keeps("same", "unsigned long long r = 1;")],
    );
    assert_eq!(found["compared"]["files"], 2, "{found:#}");
    if !has_rdrand() {
        return;
    }
    let random = keeps("keeps", RANDOM);
    let found = check(&place, "not_deterministic", &["--drive", &ask(2)], &[&random]);
    let difference = &found["difference"];
    assert_eq!((&difference["kind"], &difference["index"]), (&"files".into(), &Value::Null));
    let (first, second) =
        (difference["first"].as_str().unwrap(), difference["second"].as_str().unwrap());
    assert!(first.contains("/tmp/kept: file of 8 bytes"), "{found:#}");
    assert!(second.contains("/tmp/kept: file of 8 bytes"), "{found:#}");
    assert!(!first.contains("/tmp/same"), "{found:#}");
    assert_reason(&found, &["the files that they left"]);
}

#[test]
fn what_is_used_and_what_goes_through_the_net_is_counted() {
    let place = Place::new();
    let source = r#"#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
static void nothing(int signo) {}
int main(int argc, char **argv) {
    if (argc == 1) { execl(argv[0], argv[0], "again", (char *)0); return 9; }
    signal(SIGUSR1, nothing); signal(SIGUSR2, nothing); signal(SIGPIPE, SIG_IGN);
    struct itimerval far = { .it_value.tv_sec = 1000 };
    setitimer(ITIMER_REAL, &far, 0);
    timer_t timer;
    if (timer_create(CLOCK_MONOTONIC, 0, &timer)) return 8;
    for (int i = 0; i < 3; i++) { long r; char name[512]; __asm__ volatile("syscall" : "=a"(r) : "a"(63L), "D"(name) : "rcx", "r11", "memory"); }
    return 0;
}
"#;
    let program = compile(&place, "counts", source, &[]);
    let found = check(&place, "deterministic", &[], &[program.to_str().unwrap()]);
    assert_eq!(used(&found, "programs"), 1, "{found:#}");
    assert_eq!(used(&found, "signal_handlers"), 2, "{found:#}");
    assert_eq!(used(&found, "timers"), 2, "{found:#}");
    let net = found["net"].as_array().unwrap();
    let uname = net.iter().find(|call| call["name"] == "uname");
    assert_eq!(uname.unwrap_or_else(|| panic!("{found:#}"))["count"], 3);
}

#[test]
fn a_racy_server_is_deterministic_under_serial() {
    let place = Place::new();
    let prelude = r#"#include <pthread.h>
static volatile unsigned mix[16], stop;
static void *race(void *arg) {
    for (unsigned i = 0; i < 20000; i++) { unsigned j = (i * (long)arg) % 16; mix[j] = mix[j] * 31 + mix[(j + 1) % 16] + i; if (i % 512 == 0) sched_yield(); }
    return 0;
}"#;
    let answer = r#"pthread_t t[4]; unsigned sum = 0;
        for (long i = 0; i < 4; i++) pthread_create(&t[i], 0, race, (void *)(i + 3));
        for (int i = 0; i < 4; i++) pthread_join(t[i], 0);
        for (int i = 0; i < 16; i++) sum = sum * 7 + mix[i];
        sprintf(out, "%u\n", sum);"#;
    let server = compile(&place, "racy", &server_source(prelude, answer), &[]);
    let found = check(&place, "deterministic", &["--drive", &ask(10)], &[server.to_str().unwrap()]);
    assert_eq!(used(&found, "threads"), 40);
}

#[test]
fn answers_that_depend_on_the_schedule_are_told() {
    let place = Place::new();
    let prelude = r#"#include <pthread.h>
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned mix;
static void *step(void *arg) {
    for (int i = 0; i < 300; i++) { pthread_mutex_lock(&lock); mix = mix * 31 + (long)arg; pthread_mutex_unlock(&lock); }
    return 0;
}"#;
    let answer = |what: &str| {
        format!(
            "pthread_t t[3]; mix = 0;
            for (long i = 0; i < 3; i++) pthread_create(&t[i], 0, step, (void *)(i + 3));
            for (int i = 0; i < 3; i++) pthread_join(t[i], 0);
            sprintf(out, \"%u\\n\", {what});"
        )
    };
    for (what, sensitive) in [("mix", true), ("3u", false)] {
        let source = server_source(prelude, &answer(what));
        let server = compile(&place, &format!("order_{sensitive}"), &source, &[]);
        let options = ["--drive", &ask(4)];
        let found = check(&place, "deterministic", &options, &[server.to_str().unwrap()]);
        assert_eq!(found["schedule_sensitive"], sensitive, "{found:#}");
        let warned = found["warnings"].to_string().contains("order of its threads");
        assert_eq!(warned, sensitive, "{found:#}");
    }
}

#[test]
fn programs_that_cannot_be_started_are_told_with_the_reason() {
    let place = Place::new();
    const HELLO: &str = "#include <stdio.h>\nint main(void) { puts(\"hello\"); }\n";
    let go = format!(
        "__asm__(\".section .note.go.buildid,\\\"a\\\",@note\\n.long 3,4,4\\n.asciz \\\"Go\\\"\\n.byte 0\\n.long 7\\n.text\");\n{HELLO}"
    );
    let plain = compile(&place, "plain", HELLO, &[]);
    let mut bytes = fs::read(&plain).unwrap();
    // ELFCLASS32 and EM_386.
    (bytes[4], bytes[18], bytes[19]) = (1, 3, 0);
    let narrow = place.path("narrow");
    fs::write(&narrow, &bytes).unwrap();
    fs::set_permissions(&narrow, fs::Permissions::from_mode(0o755)).unwrap();
    let setuid = compile(&place, "setuid", HELLO, &[]);
    fs::set_permissions(&setuid, fs::Permissions::from_mode(0o4755)).unwrap();
    let fixed = compile(&place, "static", HELLO, &["-static"]);
    let line = format!("#!{}\n", fixed.display());
    let musl = "-Wl,--dynamic-linker=/lib/ld-musl-x86_64.so.1";
    let cases = [
        (place.path("missing"), "no such program"),
        (place.file("text", "#!/bin/sh\n", 0o644), "not executable"),
        (place.dir.path().to_path_buf(), "directory"),
        (fixed, "statically linked"),
        (compile(&place, "go", &go, &[]), "Go program"),
        (setuid, "setuid"),
        (narrow, "32-bit x86"),
        (place.file("script", &line, 0o755), "statically linked"),
        (compile(&place, "musl", HELLO, &[musl]), "not glibc"),
    ];
    for (program, word) in cases {
        let found = check(&place, "cannot_run", &[], &[program.to_str().unwrap()]);
        assert_reason(&found, &[word]);
    }
}

#[test]
fn a_program_that_crashes_cannot_run() {
    let place = Place::new();
    let source = "#include <stdio.h>\nint main(void) { fputs(\"about to fail\\n\", stderr); *(volatile int *)0 = 1; }\n";
    let program = compile(&place, "crash", source, &[]);
    let found = check(&place, "cannot_run", &["--drive", "true"], &[program.to_str().unwrap()]);
    assert_reason(&found, &["SIGSEGV"]);
    assert!(found["output"].as_array().unwrap().contains(&"about to fail".into()), "{found:#}");
    let program = compile(&place, "fail", "int main(void) { return 3; }\n", &[]);
    let found = check(&place, "cannot_run", &[], &[program.to_str().unwrap()]);
    assert_reason(&found, &["exit status 3"]);
}

#[test]
fn a_server_that_its_client_kills_cannot_run() {
    let place = Place::new();
    let server = compile(&place, "dies", &server_source("", "abort();"), &[]);
    let drive = format!("{}; true", ask(1));
    let found = check(&place, "cannot_run", &["--drive", &drive], &[server.to_str().unwrap()]);
    assert_reason(&found, &["SIGABRT", "while the client command ran"]);
}

#[test]
fn a_program_that_ends_at_once_is_deterministic_and_no_server() {
    let place = Place::new();
    let found = check(&place, "deterministic", &[], &["/bin/true"]);
    assert_eq!(found["ended"], "ended with exit status 0");
    let warnings = found["warnings"].to_string();
    assert!(warnings.contains("no server"), "{warnings}");
    let found = check(&place, "cannot_tell", &["--drive", "true"], &["/bin/true"]);
    assert_reason(&found, &["before the client command"]);
}

#[test]
fn a_program_that_never_listens() {
    let place = Place::new();
    let source = "#include <unistd.h>\nint main(void) { for (;;) pause(); }\n";
    let program = compile(&place, "silent", source, &[]);
    let program = program.to_str().unwrap();
    let found = check(&place, "cannot_tell", &["--drive", "true"], &[program]);
    assert_reason(&found, &["did not listen"]);
    let found = check(&place, "deterministic", &["--observe", "1"], &[program]);
    assert!(found["warnings"].to_string().contains("no TCP port"), "{found:#}");
}

/// Appends to a file again and again.
const RESTLESS: &str = r#"
#include <fcntl.h>
#include <pthread.h>
static void *tick(void *at) {
    int file = open("ticks", O_CREAT | O_WRONLY | O_APPEND, 0600);
    for (;;) {
        for (int i = 0; i < 500; i++) if (write(file, "tick", 4) != 4) exit(8);
        usleep(200);
    }
}
__attribute__((constructor)) static void start(void) {
    pthread_t thread;
    if (pthread_create(&thread, 0, tick, 0)) exit(9);
}
"#;

#[test]
fn a_server_that_is_never_still_is_compared_to_its_end() {
    let place = Place::new();
    let server = compile(&place, "restless", &server_source(RESTLESS, "strcpy(out, in);"), &[]);
    for _ in 0..3 {
        let found =
            check(&place, "deterministic", &["--drive", &ask(2)], &[server.to_str().unwrap()]);
        assert_eq!(found["compared"]["complete"], true, "{found:#}");
        assert!(found["compared"]["files"].as_u64() >= Some(1), "{found:#}");
    }
}

/// Listens at once on one port, and later on the port at which it serves.
const TWO_PORTS: &str = r#"
__attribute__((constructor)) static void early(void) {
    int s = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(7071) };
    if (bind(s, (void *)&a, sizeof a) || listen(s, 16)) exit(9);
    usleep(1500 * 1000);
}
"#;

#[test]
fn a_client_waits_for_the_ports_that_are_named() {
    let place = Place::new();
    let server = compile(&place, "late", &server_source(TWO_PORTS, "strcpy(out, in);"), &[]);
    let server = server.to_str().unwrap();
    let port = free_port();
    let publish = format!("127.0.0.1:{port}:7070");
    let drive = format!("test $SKEIN_PORTS = 7070:{port} && {}", ask(2));
    let options = ["--publish", &publish, "--drive", &drive];
    let found = check(&place, "deterministic", &options, &[server]);
    let places: Vec<_> = found["listeners"].as_array().unwrap().iter().collect();
    assert_eq!(places[0]["server"], "0.0.0.0:7071");
    assert_eq!(places[0]["reached_at"], Value::Null);
    assert_eq!(places[1]["reached_at"], format!("127.0.0.1:{port}"));
    // The first that is named is the first for the client.
    let (first, second) =
        (format!("127.0.0.1:{port}:7070"), format!("127.0.0.1:{}:7071", free_port()));
    let drive = format!("test $SKEIN_PORT = {port} && {}", ask(1));
    let options = ["--publish", &first, "--publish", &second, "--drive", &drive];
    check(&place, "deterministic", &options, &[server]);
    let publish = format!("127.0.0.1:{port}:7072");
    let found =
        check(&place, "cannot_tell", &["--publish", &publish, "--drive", "true"], &[server]);
    assert_reason(&found, &["did not listen on port 7072", "--publish"]);
}

#[test]
fn a_port_that_is_taken_is_one_line() {
    let place = Place::new();
    let server = compile(&place, "good", &server_source("", "strcpy(out, in);"), &[]);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = taken.local_addr().unwrap();
    let output = run(
        &place,
        &["--publish", &format!("{at}:7070"), "--drive", "true"],
        &[server.to_str().unwrap()],
    );
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains(&at.to_string()) && said.lines().count() == 1, "{said}");
}

#[test]
fn a_program_for_io_uring_only_cannot_run() {
    let place = Place::new();
    let source = "#include <stdio.h>\n#include <sys/syscall.h>\n#include <unistd.h>\nchar params[512];\n\
        int start(void) { return syscall(SYS_io_uring_setup, 8, params); }\n\
        int main(void) { if (start() < 0) { perror(\"io_uring\"); return 1; } for (;;) pause(); }\n";
    let program = compile(&place, "uring", source, &[]);
    let found = check(&place, "cannot_run", &[], &[program.to_str().unwrap()]);
    assert_reason(&found, &["exit status 1", "io_uring_setup"]);
    let refused = &found["refused"][0];
    assert_eq!((&refused["call"], &refused["count"]), (&"io_uring_setup".into(), &1.into()));
    assert!(refused["from"].as_str().unwrap().starts_with("uring+0x"), "{found:#}");
    // The same, but it goes on and waits for ever.
    let stays = source.replace("return 1;", "");
    let program = compile(&place, "uring2", &stays, &[]);
    let found = check(&place, "cannot_run", &["--observe", "1"], &[program.to_str().unwrap()]);
    assert_reason(&found, &["never listened", "io_uring_setup"]);
}

#[test]
fn a_program_that_spins_cannot_run() {
    let place = Place::new();
    let source = "#include <pthread.h>\nvolatile int go;\n\
        static void *other(void *arg) { go = 1; return 0; }\n\
        int main(void) { pthread_t t; pthread_create(&t, 0, other, 0);\n\
        unsigned long n = 1; while (!go) n = n * 6364136223846793005 + 1; return n == 0; }\n";
    let program = compile(&place, "spins", source, &[]);
    let found = check(&place, "cannot_run", &["--timeout", "20"], &[program.to_str().unwrap()]);
    assert_reason(&found, &["spins at spins+0x"]);
    let alone = compile(
        &place,
        "alone",
        "int main(void) { for (volatile long i = 1;;) i = i * 5 + 1; }\n",
        &[],
    );
    let found = check(&place, "cannot_run", &["--timeout", "2"], &[alone.to_str().unwrap()]);
    assert_reason(&found, &["without a call"]);
}

#[test]
fn a_client_command_that_fails_says_nothing_about_the_program() {
    let place = Place::new();
    let server = compile(&place, "good", &server_source("", "strcpy(out, in);"), &[]);
    let server = server.to_str().unwrap();
    let drive = format!("{}; echo broken; exit 5", ask(1));
    let found = check(&place, "cannot_tell", &["--drive", &drive], &[server]);
    assert_reason(&found, &["exit status 5"]);
    assert_eq!(found["drive"]["output"][0], "broken");
    let found = check(&place, "cannot_tell", &["--drive", "true"], &[server]);
    assert_reason(&found, &["never connected", "$SKEIN_PORT"]);
    let drive = "sleep 1000 & sleep 1000";
    let found = check(&place, "cannot_tell", &["--timeout", "8", "--drive", drive], &[server]);
    assert_reason(&found, &["did not end in 8 s"]);
    assert_eq!(found["drive"]["exit_code"], Value::Null);
}

#[test]
fn nothing_is_left_when_it_is_interrupted_or_killed() {
    let place = Place::new();
    let server = compile(&place, "good", &server_source("", "strcpy(out, in);"), &[]);
    let marker = place.path("driving");
    for (signal, code) in [("INT", Some(130)), ("TERM", Some(130)), ("KILL", None)] {
        let drive = format!("touch {}; sleep 1000", marker.display());
        let mut command = place.skein_with_runtime();
        command.args(["check", "--drive", &drive, "--"]).arg(&server);
        let mut child = command.current_dir(place.dir.path()).spawn().unwrap();
        wait_for("the client command to run", || marker.exists().then_some(()));
        fs::remove_file(&marker).unwrap();
        let sent =
            Command::new("kill").arg(format!("-{signal}")).arg(child.id().to_string()).status();
        assert!(sent.unwrap().success());
        assert_eq!(child.wait().unwrap().code(), code, "SIG{signal}");
        let name = place.dir.path().to_str().unwrap().to_owned();
        wait_for("all processes to be gone", || processes_naming(&name).is_empty().then_some(()));
    }
    let left: Vec<_> = fs::read_dir(place.path("run")).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn wrong_arguments_are_one_line() {
    let place = Place::new();
    for (args, word) in [
        (&["check"][..], "PROGRAM"),
        (&["check", "--timeout", "0", "--", "/bin/true"], "--timeout"),
        (&["check", "--env", "LD_PRELOAD=x", "--", "/bin/true"], "LD_PRELOAD"),
    ] {
        common::assert_line(&place.run(args), 2, &[word]);
    }
}

#[test]
fn redis_and_memcached_are_deterministic() {
    let place = Place::new();
    let drive =
        "redis-benchmark -h $SKEIN_HOST -p $SKEIN_PORT -c 20 -n 5000 -q -t set,get,incr,lpush,sadd";
    let redis = ["/usr/bin/redis-server", "--port", "6379"];
    let found = check(&place, "deterministic", &["--drive", drive], &redis);
    assert!(found["compared"]["frames"].as_u64().unwrap() > 20_000, "{found:#}");
    assert!(used(&found, "threads") >= 1, "{found:#}");
    let ask = "exec 3<>/dev/tcp/$SKEIN_HOST/$SKEIN_PORT; printf \"set k$i 0 0 3\\r\\nabc\\r\\nget k$i\\r\\nstats\\r\\nquit\\r\\n\" >&3; cat <&3 | grep -q \"^VALUE k$i\"";
    let drive =
        format!("bash -c 'for i in $(seq 30); do {} || exit 1; done'", ask.replace('\'', "'\\''"));
    let memcached = ["/usr/bin/memcached", "-u", "root", "-t", "4", "-p", "11211"];
    let found = check(&place, "deterministic", &["--drive", &drive], &memcached);
    assert_eq!(found["drive"]["connections"], 30);
    assert!(used(&found, "threads") >= 4, "{found:#}");
}

/// The start of libupnp: it looks for an interface with other machines behind it, joins a group there and sends to it.
const ANNOUNCER: &str = r#"
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/socket.h>
int main(int argc, char **argv) {
    struct ifaddrs *all, *at;
    int found = 0, s = socket(AF_INET, SOCK_DGRAM, 0);
    if (getifaddrs(&all)) return 9;
    for (at = all; at; at = at->ifa_next) {
        if (at->ifa_flags & IFF_LOOPBACK || !(at->ifa_flags & IFF_MULTICAST)) continue;
        found = 1;
    }
    if (!found && argc < 2) { puts("no interface with multicast"); return 3; }
    struct ip_mreq group = {.imr_multiaddr.s_addr = inet_addr("239.255.255.250"), .imr_interface.s_addr = INADDR_ANY};
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(1900), .sin_addr = group.imr_multiaddr};
    int joined = !setsockopt(s, IPPROTO_IP, IP_ADD_MEMBERSHIP, &group, sizeof group);
    int sent = sendto(s, "NOTIFY", 6, 0, (void *)&to, sizeof to) == 6;
    printf("joined %d sent %d\n", joined, sent);
    return joined && sent ? 0 : 4;
}
"#;

#[test]
fn a_server_that_announces_itself_by_multicast_needs_an_interface() {
    let place = Place::new();
    let server = compile(&place, "announcer", ANNOUNCER, &[]);
    let server = server.to_str().unwrap();
    let found = check(&place, "cannot_run", &[], &[server]);
    assert_reason(&found, &["exit status 3"]);
    assert_eq!(used(&found, "interfaces"), 1);
    let warnings = found["warnings"].to_string();
    assert!(warnings.contains("it is told of lo alone, which has no multicast"), "{warnings}");
    assert!(warnings.contains("--interface"), "{warnings}");

    // A program that does not look at the interfaces meets the calls themselves.
    let found = check(&place, "cannot_run", &[], &[server, "anyway"]);
    assert_reason(&found, &["exit status 4", "refused: "]);
    let refused = found["refused"].to_string();
    for call in ["setsockopt", "sendto"] {
        assert!(refused.contains(call), "{refused}");
    }
    assert!(found["output"].to_string().contains("joined 0 sent 0"), "{found:#}");

    let options = ["--interface", "192.0.2.9"];
    let found = check(&place, "deterministic", &options, &[server]);
    assert!(found["output"].to_string().contains("joined 1 sent 1"), "{found:#}");
    assert_eq!(found["refused"].as_array().unwrap().len(), 0, "{found:#}");
    let warnings = found["warnings"].to_string();
    assert!(
        !warnings.contains("lo alone") && warnings.contains("its own sockets only"),
        "{warnings}"
    );
}

/// gerbera with its defaults, without an interface that it would serve at, and with one.
#[test]
fn gerbera_needs_an_interface() {
    common::real::installed(gerbera::PROGRAM);
    let place = Place::new();
    let server = gerbera::command(&place);
    let server: Vec<&str> = server.iter().map(String::as_str).collect();
    let found = check(&place, "cannot_run", &[], &server);
    assert_reason(&found, &["exit status"]);
    // UPNP_E_INVALID_INTERFACE
    assert!(found["output"].to_string().contains("upnp error -121"), "{found:#}");
    assert_eq!(used(&found, "interfaces"), 1);
    assert!(found["warnings"].to_string().contains("--interface"), "{found:#}");

    let drive = "curl -sS -m 20 http://$SKEIN_HOST:$SKEIN_PORT/description.xml | grep -q urn:schemas-upnp-org:device:MediaServer:1";
    let options = ["--interface", gerbera::INTERFACE, "--drive", drive];
    let found = check(&place, "deterministic", &options, &server);
    let listeners = found["listeners"].to_string();
    assert!(listeners.contains("\"192.0.2.9:49152\""), "{found:#}");
    let refused = found["refused"].to_string();
    assert!(!refused.contains("inotify") && !refused.contains("sockopt"), "{found:#}");
}
