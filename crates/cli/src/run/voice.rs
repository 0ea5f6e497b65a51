//! The messages of `skein run`: lines on standard error, and the same in `run.log` as JSON with the time (UTC).
//!
//! Under `--detach` the lines go through a pipe to the command that waits in the foreground, until the cluster is ready;
//! the byte [`DONE`] and an exit code end that.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::time::SystemTime;

use skein_node::rolling::{LogFiles, Rolling};

/// Ends the lines in the pipe to the foreground; the exit code follows.
pub const DONE: u8 = 4;

enum Ear {
    Terminal,
    /// The command in the foreground waits for readiness.
    Pipe(File),
    /// No process listens any more; the log remains.
    Nobody,
}

/// The destinations of lines.
pub struct Voice {
    ear: Ear,
    log: Option<Rolling>,
}

impl Voice {
    /// Speaks to the user, or into the pipe of the foreground command.
    pub fn new(pipe: Option<File>) -> Self {
        Self { ear: pipe.map_or(Ear::Terminal, Ear::Pipe), log: None }
    }

    /// Writes a log as well from now on.
    pub fn log_to(&mut self, path: &Path) -> io::Result<()> {
        self.log = Some(Rolling::open(path, LogFiles::default())?);
        Ok(())
    }

    /// Says a line.
    pub fn say(&mut self, line: &str) {
        let text = format!("{line}\n");
        let heard = match &mut self.ear {
            Ear::Terminal => io::stderr().write_all(text.as_bytes()),
            Ear::Pipe(pipe) => pipe.write_all(text.as_bytes()),
            Ear::Nobody => Ok(()),
        };
        if heard.is_err() {
            // The terminal is closed or the foreground command was interrupted; a signal follows.
            self.ear = Ear::Nobody;
        }
        if let Some(log) = &mut self.log {
            let line = serde_json::json!({
                "timestamp": humantime::format_rfc3339_millis(SystemTime::now()).to_string(),
                "message": line,
            });
            // A full disk must not stop the cluster; the line was said above.
            let _ = log.write_all(format!("{line}\n").as_bytes());
        }
    }

    /// Tells the foreground command, if there is one, that it may return with `code`.
    pub fn release(&mut self, code: u8) {
        if let Ear::Pipe(pipe) = &mut self.ear {
            // The foreground command may be gone; the cluster stays.
            let _ = pipe.write_all(&[DONE, code]);
            self.ear = Ear::Nobody;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_line_is_json() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("run.log");
        let mut voice = Voice { ear: Ear::Nobody, log: None };
        voice.log_to(&path).unwrap();
        voice.say("say \"this\"");
        let text = std::fs::read_to_string(&path).unwrap();
        let line: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(line["message"], "say \"this\"");
    }
}
