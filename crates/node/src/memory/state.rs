//! What only the kernel has of the server's processes ([`skein_image::state`]), as replicas tell it.

use super::{Result, ServerMemory};
use serde::{Deserialize, Serialize};
use skein_image::{processes, state};
use std::os::fd::BorrowedFd;
use std::time::Instant;
use xxhash_rust::xxh3::Xxh3;

/// What the kernel has of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessState {
    /// Its number, as the server sees it.
    pub pid: u32,
    /// Its command line.
    pub command: String,
    /// What the kernel has of it.
    pub facts: Vec<Fact>,
}

/// A fact, as [`state::Fact`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fact {
    /// Its name: `descriptor 7`, `umask`.
    pub name: String,
    /// Of a descriptor, its file; empty where that is not known.
    #[serde(default)]
    pub file: String,
    /// Its value.
    pub value: String,
}

impl ServerMemory {
    /// What the kernel has of all processes of the server, which stands still and was `given` this to print into. `None`: this kernel does not tell it.
    ///
    /// # Errors
    /// As for [`survey`](Self::survey).
    pub fn state(
        &self,
        given: BorrowedFd<'_>,
        deadline: Instant,
    ) -> Result<Option<Vec<ProcessState>>> {
        let processes = processes::below(self.init)?;
        let all = state::of(&processes, given, deadline)?;
        let fact = |state::Fact { name, file, value }| Fact { name, file, value };
        let told = |(process, facts): (skein_image::Process, Vec<_>)| {
            let (pid, command) = (process.pid, process.command);
            ProcessState { pid, command, facts: facts.into_iter().map(fact).collect() }
        };
        Ok(all.map(|all| processes.into_iter().zip(all).map(told).collect()))
    }
}

/// One hash of all that is compared.
#[must_use]
pub fn state_root(all: &[ProcessState]) -> u64 {
    let mut root = Xxh3::new();
    let mut add = |text: &str| {
        root.update(&(text.len() as u64).to_le_bytes());
        root.update(text.as_bytes());
    };
    for ProcessState { pid, facts, .. } in all {
        add(&format!("{pid} {}", facts.len()));
        for Fact { name, file, value } in facts {
            [name, file, value].into_iter().for_each(|text| add(text));
        }
    }
    root.digest()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_root_is_of_each_fact() {
        let fact = |name: &str, file: &str, value: &str| Fact {
            name: name.into(),
            file: file.into(),
            value: value.into(),
        };
        let process = |pid, facts: &[Fact]| ProcessState {
            pid,
            command: "server".into(),
            facts: facts.to_vec(),
        };
        let one = fact("descriptor 3", "/a", "position 1");
        let all = [
            vec![process(2, std::slice::from_ref(&one))],
            vec![process(3, std::slice::from_ref(&one))],
            vec![process(2, &[one.clone(), one.clone()])],
            vec![process(2, &[fact("descriptor 4", "/a", "position 1")])],
            vec![process(2, &[fact("descriptor 3", "/b", "position 1")])],
            vec![process(2, &[fact("descriptor 3", "/a", "position 2")])],
            vec![process(2, &[fact("descriptor 3", "/ap", "osition 1")])],
            vec![process(2, &[one]), process(3, &[])],
            vec![],
        ];
        let different: BTreeSet<u64> = all.iter().map(|all| state_root(all)).collect();
        assert_eq!(different.len(), all.len());
    }
}
