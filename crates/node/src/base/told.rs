//! What the other replicas say of the commands of a cluster that was upgraded: to one that begins without a past, and whose configuration may name the current command.
//!
//! The identity of a log is that of its first command, which such a replica cannot know otherwise.

use super::Base;
use super::edition::Commands;
use super::wire::{Answer, Question, What};
use crate::config::NodeConfig;
use crate::error::NodeError;
use crate::key;
use crate::transport::wire::{BASE, Wire};
use skein_log::ClusterId;
use std::io;

/// The commands that the others know, by the newest of their editions; `None`: none that can be reached knows of an upgrade.
///
/// # Errors
/// The key cannot be read.
pub fn commands(config: &NodeConfig) -> Result<Option<Commands>, NodeError> {
    let key = key::configured(config)?;
    let mut newest: Option<Commands> = None;
    for (peer, address) in Base::open(&config.data_dir)?.others(config) {
        let connected = Wire::connect(BASE, &address, key.as_ref(), ClusterId(config.cluster()));
        match connected.and_then(ask) {
            Ok(Some(told)) if newest.as_ref().is_none_or(|newest| newest.number < told.number) => {
                newest = Some(told);
            }
            Ok(_) => {}
            Err(error) => {
                tracing::info!(event = "commands_not_told", peer, %error);
            }
        }
    }
    Ok(newest)
}

fn ask(mut wire: Wire) -> io::Result<Option<Commands>> {
    wire.send(&Question { what: What::Commands, from: 0 }.encode())?;
    let answer = Answer::decode(&wire.receive()?);
    let answer = answer.ok_or_else(|| io::Error::other("its answer is none"))?;
    match answer.whole {
        None => Ok(None),
        Some(_) => serde_json::from_slice(&answer.bytes).map(Some).map_err(io::Error::other),
    }
}

impl Base {
    /// What this replica knows of them.
    pub(super) fn tell_commands(&self) -> Answer {
        let known = self.node().and_then(|node| match Commands::read(&node.data_dir) {
            Ok(commands) => commands,
            Err(error) => {
                tracing::warn!(event = "commands_not_told", %error);
                None
            }
        });
        let bytes = known.map(|commands| {
            serde_json::to_vec(&commands).expect("texts and numbers have a JSON form")
        });
        let whole = bytes.as_ref().map(|bytes| bytes.len() as u64);
        Answer { whole, bytes: bytes.unwrap_or_default() }
    }
}
