//! Answers of the command to input that it cannot use: one clear line each, with its exit code. The lines
//! stand in `docs/errors.md`.

mod common;

use std::fs;
use std::process::Command;

use common::{Place, assert_line};

fn run_code(args: &[&str], code: i32, words: &[&str]) -> String {
    let place = Place::new();
    assert_line(&place.run(args), code, words)
}

#[test]
fn wrong_arguments() {
    run_code(&[], 2, &["arguments", "a command is missing", "skein --help"]);
    run_code(&["fly"], 2, &["arguments", "unrecognized subcommand 'fly'"]);
    run_code(&["run"], 125, &["arguments", "PROGRAM", "skein run --help"]);
    run_code(&["run", "--replicas", "0", "--", "x"], 125, &["'0'", "--replicas", "1..=9"]);
    run_code(&["run", "--durability", "tape", "--", "x"], 125, &["tape", "fsync, memory"]);
    run_code(&["run", "--publish", "6379", "--", "x"], 125, &["HOST:PORT[:SERVERPORT]"]);
    run_code(&["run", "--publish", "[::1:80", "--", "x"], 125, &["HOST:PORT[:SERVERPORT]"]);
    run_code(&["run", "--name", "a/b", "--", "x"], 125, &["--name", "letters"]);
    run_code(&["run", "--env", "LD_PRELOAD=x", "--", "x"], 125, &["LD_PRELOAD"]);
    run_code(&["run", "--election-timeout-ms", "1", "--", "x"], 125, &["50..=60000"]);
    run_code(&["run", "--set", "keep=1", "--", "x"], 125, &["--set", "SECTION.KEY=VALUE"]);
    run_code(&["run", "--set", "server.cwd=1", "--", "x"], 125, &["[server] cannot be set here"]);
    let unknown = ["run", "--set", "checkpoint.kept=1", "--", "x"];
    run_code(&unknown, 125, &["--set checkpoint", "unknown field `kept`", "docs/skein.toml"]);
    run_code(&["run", "--report-fd", "7", "--", "x"], 125, &["--detach"]);
    run_code(&["status", "--xml"], 2, &["--xml", "skein status --help"]);
    run_code(&["node"], 2, &["--config"]);
    run_code(&["logs", "--replica", "none"], 2, &["none"]);
}

#[test]
fn modes_that_are_not_there_yet() {
    for mode in ["trace", "sync"] {
        run_code(&["run", "--mode", mode, "--", "/bin/true"], 125, &[mode, "use --mode order"]);
    }
}

#[test]
fn programs_that_cannot_run() {
    let place = Place::new();
    let say = |program: &str, code: i32, words: &[&str]| {
        let data = place.data();
        let args = ["run", "--data", &data, "--name", "x", "--", program];
        assert_line(&place.run(&args), code, words);
        assert!(!place.path("data").exists(), "nothing was made for {program}");
    };
    say("no-such-program-anywhere", 127, &["no-such-program-anywhere", "no such program"]);
    say("/no/such/program", 127, &["/no/such/program"]);
    let plain = place.file("plain", "hello\n", 0o644);
    say(plain.to_str().unwrap(), 126, &["not executable", "chmod"]);
    say(place.dir.path().to_str().unwrap(), 126, &["directory"]);
    let text = place.file("text", "hello\n", 0o755);
    say(text.to_str().unwrap(), 126, &["x86-64"]);
}

#[test]
fn a_static_program_is_refused() {
    let place = Place::new();
    place.file("s.c", "int main(void) { return 0; }\n", 0o644);
    let out = place.path("static");
    let made =
        Command::new("cc").arg("-static").arg("-o").arg(&out).arg(place.path("s.c")).status();
    assert!(made.unwrap().success());
    let args = ["run", "--data", &place.data(), "--", out.to_str().unwrap()];
    assert_line(&place.run(&args), 126, &["statically linked"]);
}

#[test]
fn a_taken_address_that_was_named() {
    let place = Place::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let args = ["run", "--publish", &address, "--data", &place.data(), "--", "/bin/true"];
    assert_line(&place.run(&args), 125, &[&address, "already in use", "--publish HOST:PORT"]);
    assert!(!place.path("data").exists());
    let args = ["run", "--publish", "192.0.2.1:7", "--data", &place.data(), "--", "/bin/true"];
    assert_line(&place.run(&args), 125, &["192.0.2.1:7", "address of this machine"]);
}

#[test]
fn data_directories_of_something_else() {
    let place = Place::new();
    let data = place.data();
    let args = ["run", "--data", &data, "--name", "a", "--", "/bin/true"];
    fs::create_dir_all(place.path("data/node-1/log")).unwrap();
    place.file("data/node-1/log/0000000000000001.wal", "", 0o600);
    assert_line(&place.run(&args), 125, &[&data, "cluster.json"]);
    place.file("data/cluster.json", "not json", 0o644);
    assert_line(&place.run(&args), 125, &["cluster.json:1:", "no cluster's identity"]);
    let file = place.file("a-file", "", 0o644);
    let args = ["run", "--data", file.to_str().unwrap(), "--", "/bin/true"];
    assert_line(&place.run(&args), 125, &["data directory", "--data DIR"]);
}

#[test]
fn an_installation_without_the_runtime() {
    let place = Place::new();
    let args = ["run", "--data", &place.data(), "--", "/bin/true"];
    let output = place.skein().env("SKEIN_RUNTIME", "/no/libskein.so").args(args).output().unwrap();
    assert_line(&output, 125, &["libskein.so was not found at /no/libskein.so", "SKEIN_RUNTIME"]);
}

#[test]
fn an_arena_that_is_too_small() {
    run_code(&["run", "--arena-mib", "1", "--", "x"], 125, &["--arena-mib", "64..=65536"]);
}

#[test]
fn a_runtime_directory_that_is_not_ours() {
    let place = Place::new();
    let args = ["run", "--data", &place.data(), "--", "/bin/true"];
    let deep = place.path(&"d".repeat(100));
    let output = place.skein().env("SKEIN_RUN_DIR", &deep).args(args).output().unwrap();
    assert_line(&output, 125, &["too long", "SKEIN_RUN_DIR"]);
}

#[test]
fn what_does_not_run() {
    let place = Place::new();
    for command in ["status", "logs", "stop"] {
        let fix = if command == "logs" { "--data DIR" } else { "skein run" };
        assert_line(&place.run(&[command]), 3, &["none", fix]);
        assert_line(&place.run(&[command, "--name", "a"]), 3, &["cluster a", "does not run"]);
    }
}

#[test]
fn config_files() {
    let place = Place::new();
    let node = |text: &str, words: &[&str]| {
        let file = place.file("skein.toml", text, 0o644);
        assert_line(&place.run(&["node", "--config", file.to_str().unwrap()]), 2, words);
    };
    let good = "name = \"a\"\nid = 1\npeers = [{ id = 1, address = \"127.0.0.1:1\" }]\n\
                data_dir = \"/nonexistent/a\"\n[server]\nprogram = \"/bin/true\"\n";
    node("name = \n", &["skein.toml:1:"]);
    node(&good.replace("id = 1\np", "id = \"one\"\np"), &["skein.toml:2:6", "expected u64"]);
    node(&good.replace("name = \"a\"\n", "nom = \"a\"\n"), &["skein.toml:1:1", "nom"]);
    node(&good.replace("id = 1\np", "id = 2\np"), &["skein.toml:2:6", "peers"]);
    node(&good.replace("name = \"a\"", "name = \"a/b\""), &["skein.toml:1:8", "letters"]);
    node(&format!("{good}[tuning]\nquantum = -1\n"), &["skein.toml:8:11"]);
    node(&format!("{good}[tuning]\narena_heap_bytes = 4096\n"), &["skein.toml:8:20", "arena"]);
    assert_line(&place.run(&["node", "--config", "/no/file"]), 2, &["/no/file", "docs/skein.toml"]);
    assert_line(&place.run(&["node", "--config", "/proc"]), 2, &["/proc"]);
    fs::write(place.path("skein.toml"), b"name = \"\xff\"").unwrap();
    let file = place.path("skein.toml");
    let output = place.run(&["node", "--config", file.to_str().unwrap()]);
    assert_line(&output, 2, &["skein.toml:1:9", "UTF-8"]);
}
