//! `skein-harness [--leader] [WORD...]`: runs the guests whose names contain one of the words, or all. A word with a slash
//! looks at the family, too: `tcp/` are all guests of `guests/tcp`.
//!
//! With `--leader`, only the leader's run, and all its output is shown: to look at one guest. `--time PROGRAM [ARG...]` runs any program
//! as a leader and prints its run time in nanoseconds. `--sequences FIRST COUNT [WORD...]` has the guests that make random sequences of calls make
//! these, natively and as a leader only. `--images COUNT [WORD...]` takes images of guests at so many entries, and continues from each.

use skein_harness::catalogue;
use skein_harness::images::Images;
use skein_harness::node::{ORDINARY, Role};
use skein_harness::runner::{self, How};
use std::process::ExitCode;

/// A command; answers whether all was as it should be.
type Check = fn(&[String]) -> std::io::Result<bool>;

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some("--time") {
        let words: Vec<String> = std::env::args().skip(2).collect();
        return match time(&words) {
            Ok(ns) => {
                println!("{ns}");
                ExitCode::SUCCESS
            }
            Err(e) => {
                eprintln!("skein-harness: {e}");
                ExitCode::FAILURE
            }
        };
    }
    let checks: [(&str, Check); 2] = [("--sequences", sequences), ("--images", images)];
    for (flag, check) in checks {
        if std::env::args().nth(1).as_deref() != Some(flag) {
            continue;
        }
        let words: Vec<String> = std::env::args().skip(2).collect();
        return match check(&words) {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => ExitCode::FAILURE,
            Err(e) => {
                eprintln!("skein-harness: {e}");
                ExitCode::FAILURE
            }
        };
    }
    let (flags, words): (Vec<String>, Vec<String>) =
        std::env::args().skip(1).partition(|arg| arg.starts_with("--"));
    if let Some(flag) = flags.iter().find(|flag| *flag != "--leader") {
        eprintln!(
            "skein-harness: unknown option {flag}; usage: skein-harness [--leader] [WORD...], --time PROGRAM [ARG...], --sequences FIRST COUNT [WORD...], or --images COUNT [--sandboxed | --in-a-row | --forked] [WORD...]"
        );
        return ExitCode::from(2);
    }
    if flags.is_empty() {
        return skein_harness::judge::all(&words);
    }
    match show(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("skein-harness: {e}");
            ExitCode::FAILURE
        }
    }
}

fn images(words: &[String]) -> std::io::Result<bool> {
    let count = words.first().and_then(|word| word.parse().ok());
    let count = count.ok_or_else(|| std::io::Error::other("--images wants a number"))?;
    match words.get(1).map(String::as_str) {
        Some("--sandboxed") => {
            let went = skein_harness::restored::in_sandbox(&Images::build()?, count, &words[2..])?;
            Ok(went.is_some())
        }
        Some("--in-a-row") => {
            let how = runner::How::default();
            let rows = skein_harness::restored::rows(&Images::build()?, count, &words[2..], how)?;
            Ok(rows.is_some())
        }
        Some("--forked") => {
            let rows =
                skein_harness::restored::rows_of_forks(&Images::build()?, count, &words[2..])?;
            Ok(rows.is_some())
        }
        _ => Ok(skein_harness::restored::all(count, &words[1..])?.is_some()),
    }
}

fn sequences(words: &[String]) -> std::io::Result<bool> {
    let number = |at: usize| words.get(at).and_then(|word| word.parse().ok());
    let (Some(first), Some(count)) = (number(0), number(1)) else {
        return Err(std::io::Error::other("--sequences wants two numbers"));
    };
    skein_harness::sequences::all(first, count, &words[2..])
}

fn time(words: &[String]) -> std::io::Result<u128> {
    let [program, args @ ..] = words else {
        return Err(std::io::Error::other("--time wants a program"));
    };
    let run = runner::timed(program.as_ref(), args, &skein_harness::images::library()?)?;
    Ok(run.as_nanos())
}

fn show(words: &[String]) -> std::io::Result<()> {
    let images = Images::build()?;
    for guest in catalogue::all(&images.sources, &images.guests)? {
        if !words.iter().any(|word| guest.is_meant_by(word)) {
            continue;
        }
        let script = guest.head.script.clone().unwrap_or_default();
        let role = Role::Leader(script, ORDINARY);
        let run = runner::skein(
            &guest.program,
            &guest.head.arguments(),
            &images.library,
            role,
            How::default(),
        )?;
        println!("== {}: {:?}, {:?}", guest.name, run.account.end, run.account.counts);
        println!(
            "-- {} trapped, {} from replaced places",
            run.account.trapped, run.account.patched
        );
        println!("-- standard output\n{}", String::from_utf8_lossy(&run.stdout));
        println!("-- standard error\n{}", String::from_utf8_lossy(&run.stderr));
        for line in &run.account.advice {
            println!("-- {line}");
        }
    }
    Ok(())
}
