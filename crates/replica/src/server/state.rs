//! What a replica knows of its server at an entry, beside the server itself: a part of an image, from which another server continues.

use crate::editions::Edition;
use crate::verdicts::digest::DigestState;
use serde::{Deserialize, Serialize};
use skein_model::{ConnId, LogIndex, SockAddr, Term, WallNs};
use std::collections::BTreeSet;

/// See the [module](self). All of it but [`processor`](Self::processor) is a function of the log up to the entry, so it is equal on all replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerState {
    /// The last entry that it has executed.
    pub index: LogIndex,
    /// That entry's term.
    pub term: Term,
    /// Where a log begins that continues from here, as [`skein_log::Base`] encodes itself.
    pub base: Vec<u8>,
    /// That entry's stamp: virtual time continues from it.
    pub wall: WallNs,
    /// The log's first entry: every server begins with it, and is restored then.
    pub start: Vec<u8>,
    /// The digest of its output.
    pub digest: DigestState,
    /// Its listening addresses.
    pub listening: BTreeSet<SockAddr>,
    /// Its datagram addresses.
    pub receiving: BTreeSet<SockAddr>,
    /// The paths of the host's files that were agreed on.
    pub paths: BTreeSet<Vec<u8>>,
    /// What it was started as.
    pub edition: Edition,
    /// It has ended with this status: there are its files, on which the next edition begins, and no processes.
    pub ended: Option<i32>,
    /// What the processor that it ran on can do for programs; empty: not known.
    pub processor: Vec<String>,
}

/// The form in which it is stored.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    index: u64,
    term: u64,
    base: Vec<u8>,
    wall_ns: u64,
    start: Vec<u8>,
    digest: u64,
    connections: Vec<(u64, u64)>,
    listening: Vec<Address>,
    receiving: Vec<Address>,
    paths: Vec<Vec<u8>>,
    #[serde(default, skip_serializing_if = "Edition::is_first")]
    edition: Edition,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ended: Option<i32>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    processor: Vec<String>,
}

/// IP address, port, and whether the socket is an IPv6 one.
type Address = ([u8; 16], u16, bool);

fn stored(addresses: &BTreeSet<SockAddr>) -> Vec<Address> {
    addresses.iter().map(|at| (at.ip, at.port, at.v6)).collect()
}

fn read(addresses: Vec<Address>) -> BTreeSet<SockAddr> {
    let address = |(ip, port, v6)| SockAddr { ip, port, v6, unused: 0 };
    addresses.into_iter().map(address).collect()
}

impl ServerState {
    /// As bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let stored = Stored {
            index: self.index.0,
            term: self.term.0,
            base: self.base.clone(),
            wall_ns: self.wall.0,
            start: self.start.clone(),
            digest: self.digest.value,
            connections: self.digest.connections.iter().map(|(c, d)| (c.0, *d)).collect(),
            listening: stored(&self.listening),
            receiving: stored(&self.receiving),
            paths: self.paths.iter().cloned().collect(),
            edition: self.edition.clone(),
            ended: self.ended,
            processor: self.processor.clone(),
        };
        serde_json::to_vec(&stored).expect("numbers and lists have a JSON form")
    }

    /// From bytes; `None` when they are not what [`encode`](Self::encode) made.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let stored: Stored = serde_json::from_slice(bytes).ok()?;
        let connections = stored.connections.into_iter().map(|(c, d)| (ConnId(c), d)).collect();
        Some(Self {
            index: LogIndex(stored.index),
            term: Term(stored.term),
            base: stored.base,
            wall: WallNs(stored.wall_ns),
            start: stored.start,
            digest: DigestState { value: stored.digest, connections },
            listening: read(stored.listening),
            receiving: read(stored.receiving),
            paths: stored.paths.into_iter().collect(),
            edition: stored.edition,
            ended: stored.ended,
            processor: stored.processor,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_read_as_it_was_written() {
        let state = ServerState {
            index: LogIndex(70),
            term: Term(3),
            base: vec![1, 2],
            wall: WallNs(u64::MAX),
            start: vec![0, 255],
            digest: DigestState { value: u64::MAX, connections: vec![(ConnId(u64::MAX), 7)] },
            listening: [SockAddr::v4([127, 0, 0, 1], 6379)].into(),
            receiving: [SockAddr::v6([9; 16], 53)].into(),
            paths: [b"/etc/\xff".to_vec()].into(),
            edition: Edition { number: 2, since: 60, about: "two".into() },
            ended: Some(9),
            processor: vec!["avx2".into()],
        };
        let bytes = state.encode();
        assert_eq!(ServerState::decode(&bytes).as_ref(), Some(&state));
        assert_eq!(ServerState::decode(&bytes[..bytes.len() - 1]), None);
        assert_eq!(ServerState::decode(b"{}"), None);
        // Without these the form is that of versions that do not know them.
        let first = ServerState {
            edition: Edition::default(),
            ended: None,
            processor: Vec::new(),
            ..state
        };
        let text = String::from_utf8(first.encode()).unwrap();
        assert!(
            ["edition", "ended", "processor"].iter().all(|name| !text.contains(name)),
            "{text}"
        );
        assert_eq!(ServerState::decode(text.as_bytes()), Some(first));
    }
}
