//! All guests: native = Skein as leader = Skein as follower. Arguments choose guests by parts of their names.

use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.iter().any(|word| word == "--list") {
        return ExitCode::SUCCESS;
    }
    let words: Vec<String> = words.into_iter().filter(|word| !word.starts_with("--")).collect();
    skein_harness::judge::all(&words)
}
