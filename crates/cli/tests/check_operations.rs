//! `skein check --operations`: the first operation that differs is named, and only then.

mod common;

use std::process::Command;

use common::{Place, processes_naming};
use serde_json::Value;

/// A server that lets `serve(which)` answer each client; `which` is what the file CHOICE says.
const SERVER: &str = r#"#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
#include <arpa/inet.h>
#include <sys/socket.h>
#include <sys/wait.h>
static pthread_mutex_t locks[2] = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER };
__attribute__((noinline)) void take(int which) {
    pthread_mutex_lock(&locks[which]);
    pthread_mutex_unlock(&locks[which]);
    __asm__ volatile("");
}
__attribute__((noinline)) void *worker(void *which) {
    take(*(int *)which);
    __asm__ volatile("");
    return 0;
}
static void serve(int which) {
    SERVE
}
int main(void) {
    int s = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(7070) };
    if (bind(s, (void *)&a, sizeof a) || listen(s, 16)) return 9;
    for (;;) {
        int c = accept(s, 0, 0), which = 0;
        char line[256];
        if (read(c, line, sizeof line) <= 0) return 8;
        FILE *f = fopen(CHOICE, "r");
        if (!f || fscanf(f, "%d", &which) != 1) return 7;
        fclose(f);
        serve(which);
        write(c, "done\n", 5);
        close(c);
    }
}
"#;

const IN_A_THREAD: &str = "pthread_t t; pthread_create(&t, 0, worker, &which); pthread_join(t, 0);";

/// Checks a server whose clients make it `serve` while the file says 0; `then` is the file's content when the program runs again.
#[track_caller]
fn check(serve: &str, then: u32, options: &[&str]) -> Value {
    let place = Place::new();
    let choice = place.file("choice", "0\n", 0o666);
    let source =
        SERVER.replace("SERVE", serve).replace("CHOICE", &format!("\"{}\"", choice.display()));
    let (text, program) = (place.file("server.c", &source, 0o644), place.path("server"));
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-pthread", "-w", "-o"]).args([&program, &text]);
    let made = compiler.output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let ask = r#"exec 3<>/dev/tcp/$SKEIN_HOST/$SKEIN_PORT; echo hello >&3; read -r answer <&3; test "$answer" = done"#;
    let drive = format!("bash -c '{ask}' && echo {then} > {}", choice.display());
    let mut command = place.skein_with_runtime();
    command.args(["check", "--json", "--drive", &drive]).args(options).arg("--").arg(&program);
    let output = command.output().unwrap();
    let left = processes_naming(place.dir.path().to_str().unwrap());
    assert!(left.is_empty(), "processes are left: {left:?}");
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&output.stderr)))
}

#[track_caller]
fn assert_names(side: &Value, functions: &[&str]) {
    let frames = side["backtrace"].as_array().unwrap().iter();
    let frames: Vec<&str> = frames.map(|frame| frame.as_str().unwrap()).collect();
    let mut rest = frames.iter();
    for function in functions {
        let wanted = format!("({function})");
        assert!(rest.any(|frame| frame.ends_with(&wanted)), "no {wanted} in order: {side:#}");
    }
}

#[test]
fn the_thread_object_and_function_that_differ_first_are_named() {
    let found = check(IN_A_THREAD, 1, &["--operations"]);
    assert_eq!(found["verdict"], "not_deterministic", "{found:#}");
    let different = &found["operations"]["difference"];
    let (first, second) = (&different["first"], &different["second"]);
    assert!(different["index"].as_u64().unwrap() > 1, "{found:#}");
    for side in [first, second] {
        assert_eq!(side["operation"], "lock", "{different:#}");
        assert_eq!(side["result"], Value::Null);
        // The main thread is the first.
        assert_eq!(side["thread"], 2, "{different:#}");
    }
    assert_eq!(first["process"], second["process"]);
    let address = |side: &Value| {
        let text = side["object"].as_str().unwrap().strip_prefix("memory at 0x").unwrap();
        u64::from_str_radix(text, 16).unwrap()
    };
    assert_eq!(address(second) - address(first), 40, "the other of two mutexes: {different:#}");
    assert_names(second, &["take", "worker"]);
    // The file has changed for good: no further run repeats the first one.
    assert_names(first, &["take"]);
    assert_eq!(first["backtrace"].as_array().unwrap().len(), 1);
    assert!(!different["before"].as_array().unwrap().is_empty());
}

#[test]
fn a_result_that_differs_is_named_with_both_backtraces() {
    let serve = r#"int ends[2]; pipe(ends); write(ends[1], "abc", which + 1); close(ends[0]); close(ends[1]);"#;
    let found = check(serve, 2, &["--operations"]);
    let different = &found["operations"]["difference"];
    let (first, second) = (&different["first"], &different["second"]);
    assert_eq!((&first["operation"], &first["result"]), (&"write".into(), &"1".into()));
    assert_eq!((&second["operation"], &second["result"]), (&"write".into(), &"3".into()));
    assert_eq!(first["thread"], 1);
    for side in [first, second] {
        assert_names(side, &["main"]);
    }
}

#[test]
fn an_operation_of_a_forked_process_is_named() {
    let serve = "if (fork() == 0) { take(which); _exit(0); } wait(0);";
    let found = check(serve, 1, &["--operations"]);
    let second = &found["operations"]["difference"]["second"];
    assert_eq!(second["operation"], "lock", "{found:#}");
    assert!(second["process"].as_u64().unwrap() > 2, "a child of the first process: {second:#}");
    assert_names(second, &["take", "main"]);
}

#[test]
fn equal_runs_have_no_difference() {
    let found = check(IN_A_THREAD, 0, &["--operations"]);
    assert_eq!(found["verdict"], "deterministic", "{found:#}");
    let operations = &found["operations"];
    assert_eq!((&operations["difference"], &operations["not_compared"]), (&Value::Null, &0.into()));
    assert!(operations["compared"].as_u64().unwrap() > 20, "{operations:#}");
}

#[test]
fn operations_are_compared_only_when_asked_for() {
    let found = check(IN_A_THREAD, 1, &[]);
    assert_eq!(found["operations"], Value::Null);
    assert_ne!(found["difference"]["kind"], "operation");
}
