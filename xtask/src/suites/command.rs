//! Commands with a deadline, which an interruption ends at once.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::interrupt::Interrupt;
use skein_testkit::{Failure, Outcome};

/// Exit status of `timeout` when time was up.
const TOO_LONG: i32 = 124;

/// The output of a command on both streams, and its exit status.
pub struct Said {
    /// Its exit code.
    pub code: Option<i32>,
    /// Its whole output.
    pub text: String,
}

/// Runs `words`, which end within `max` or are ended with all their children; `adapt` sets directory and environment.
pub fn bounded(
    words: &[String],
    max: Duration,
    interrupt: &Interrupt,
    adapt: impl FnOnce(&mut Command),
) -> Outcome<Said> {
    let failed = |error: std::io::Error| Failure::of(format!("cannot run {}", words[0]), error);
    let out = tempfile::NamedTempFile::new().map_err(failed)?;
    let mut command = Command::new("timeout");
    command.args(["-k", "5", &max.as_secs().to_string()]).args(words);
    command.stdin(Stdio::null());
    command.stdout(out.reopen().map_err(failed)?).stderr(out.reopen().map_err(failed)?);
    adapt(&mut command);
    let mut child = Ended(command.spawn().map_err(failed)?);
    let status = interrupt.wait_at_most(max * 2, &words[0], || child.0.try_wait().map_err(failed));
    let code = status?.code();
    let text = std::fs::read(out.path()).map_err(failed)?;
    let text = String::from_utf8_lossy(&text).into_owned();
    if code == Some(TOO_LONG) {
        let last: Vec<&str> = text.trim_end().lines().rev().take(3).collect();
        let last: Vec<&str> = last.into_iter().rev().collect();
        let (name, seconds) = (&words[0], max.as_secs());
        return Err(Failure(format!(
            "{name} had not ended after {seconds} s: {}",
            last.join("\n")
        )));
    }
    Ok(Said { code, text })
}

/// The same for a command that must succeed.
pub fn output(words: &[&str], max: Duration, interrupt: &Interrupt) -> Outcome<String> {
    let words: Vec<String> = words.iter().map(ToString::to_string).collect();
    let said = bounded(&words, max, interrupt, |_| ())?;
    if said.code == Some(0) {
        return Ok(said.text);
    }
    Err(Failure::of(format!("{} failed", words.join(" ")), said.text.trim()))
}

/// A `timeout` that is asked to end, and ends its command, when it is dropped.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(None)) {
            let _ = kill(Pid::from_raw(self.0.id().cast_signed()), Signal::SIGTERM);
            let _ = self.0.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_end_is_ended() {
        let interrupt = Interrupt::default();
        let error = output(&["sleep", "60"], Duration::from_secs(1), &interrupt).unwrap_err();
        assert!(error.to_string().contains("had not ended after 1 s"), "{error}");
        let said = output(&["echo", "x"], Duration::from_secs(60), &interrupt).unwrap();
        assert_eq!(said, "x\n");
    }
}
