//! What a command prints when it is done.

use std::io::{self, Write};

use serde::Serialize;

/// As `--json` prints it.
pub fn json(what: &impl Serialize) -> String {
    serde_json::to_string_pretty(what).expect("plain values have a JSON form") + "\n"
}

/// Prints it. A reader that closed the pipe wants no more, which changes no result.
pub fn print(text: &str) {
    let _ = io::stdout().write_all(text.as_bytes());
}
