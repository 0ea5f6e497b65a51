//! The thread of a node that copies what its server prints to where operators read it, when it may be read
//! ([`Passage`](skein_replica::server::Passage)).

use crate::server::Cause;
use skein_model::LogIndex;
use skein_replica::server::Passage;

/// What one generation of a server has printed.
#[derive(Debug, Default)]
pub struct Keeper {
    lines: Vec<Cause>,
    copied: usize,
    /// So many lines were there at the last look, and the server had been given this entry.
    waiting: Option<(usize, LogIndex)>,
}

impl Keeper {
    /// The server printed these.
    pub fn add(&mut self, lines: &mut Vec<Cause>) {
        self.lines.append(lines);
    }

    /// The lines that may be read now and could not before.
    pub fn copy(&mut self, passage: &Passage) -> Vec<Cause> {
        let from = self.copied;
        while self.copied < self.lines.len() {
            let at = self.waiting.get_or_insert((self.lines.len(), passage.given()));
            // What was planned then, and was withdrawn, the server did not get.
            at.1 = at.1.min(passage.given());
            let at = *at;
            if !passage.lets_out(at.1, 0) {
                break;
            }
            self.waiting = None;
            self.copied = at.0;
        }
        self.lines[from..self.copied].to_vec()
    }
}
