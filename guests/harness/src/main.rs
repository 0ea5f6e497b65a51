//! `skein-harness [--leader] [WORD...]`: runs the guests whose names contain one of the words, or all.
//!
//! With `--leader`, only the leader's run, and everything that it wrote is shown: to look at one guest.

use skein_harness::catalogue;
use skein_harness::images::Images;
use skein_harness::node::{ORDINARY, Role};
use skein_harness::runner;
use std::process::ExitCode;

fn main() -> ExitCode {
    let (flags, words): (Vec<String>, Vec<String>) =
        std::env::args().skip(1).partition(|arg| arg.starts_with("--"));
    if let Some(flag) = flags.iter().find(|flag| *flag != "--leader") {
        eprintln!(
            "skein-harness: unknown option {flag}; usage: skein-harness [--leader] [WORD...]"
        );
        return ExitCode::from(2);
    }
    if flags.is_empty() {
        return skein_harness::runner::all(&words);
    }
    match show(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("skein-harness: {e}");
            ExitCode::FAILURE
        }
    }
}

fn show(words: &[String]) -> std::io::Result<()> {
    let images = Images::build()?;
    for guest in catalogue::all(&images.guests)? {
        if !words.iter().any(|word| guest.name.contains(word)) {
            continue;
        }
        let script = guest.script.clone().unwrap_or_default();
        let run =
            runner::skein(&guest.program, &images.library, Role::Leader(script, ORDINARY), false)?;
        println!("== {}: {:?}, {:?}", guest.name, run.account.end, run.account.counts);
        println!("-- standard output\n{}", String::from_utf8_lossy(&run.stdout));
        println!("-- standard error\n{}", String::from_utf8_lossy(&run.stderr));
        for line in &run.account.advice {
            println!("-- {line}");
        }
    }
    Ok(())
}
