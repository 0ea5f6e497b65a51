//! Images of a cluster's replicas, and what nodes wrote into their logs about servers that continue from them.

use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use super::Cluster;
use crate::{Failure, Outcome};

/// Events of a node that no replica may have whose server is like the others', and can be restored.
const DIFFERENCES: [&str; 10] = [
    "diverged",
    "undecided",
    "undecidable",
    "stands",
    "differs",
    "differs_again",
    "not_restored",
    "image_unusable",
    "pack_unusable",
    "server_broken",
];

/// How a server ends that a test kills.
const KILLED: &str = "signal 9";

/// An image that a replica has taken.
#[derive(Debug, Clone, Copy, Deserialize)]
pub struct Taken {
    /// The last entry that its server had executed.
    pub index: u64,
    /// How long its server stood for it [us].
    pub stood_us: u64,
}

#[derive(Deserialize)]
struct Listed {
    replica: u64,
    images: Vec<Image>,
}

#[derive(Deserialize)]
struct Image {
    index: u64,
    confirmed: bool,
}

impl Cluster {
    /// Has a replica take an image of its server; or its reason why it has not.
    pub fn take_image(&self, replica: u64) -> Outcome<Result<Taken, String>> {
        let id = replica.to_string();
        let words = ["checkpoint", "create", "--json", "--name", &self.name, "--replica", &id];
        let output = self.skein(&words)?;
        if !output.status.success() {
            return Ok(Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
        }
        serde_json::from_slice(&output.stdout)
            .map(Ok)
            .map_err(|error| Failure::of("cannot read skein checkpoint create --json", error))
    }

    /// Something, once a replica has an image of this entry or a later one that counts.
    pub fn image_counts(&self, replica: u64, index: u64) -> Outcome<Option<()>> {
        let output = self.skein(&["checkpoint", "ls", "--json", "--name", &self.name])?;
        // A node that is starting does not answer yet.
        let Ok(all) = serde_json::from_slice::<Vec<Listed>>(&output.stdout) else {
            return Ok(None);
        };
        let own = all.iter().filter(|listed| listed.replica == replica);
        let mut images = own.flat_map(|listed| &listed.images);
        Ok(images.any(|image| image.confirmed && image.index >= index).then_some(()))
    }

    /// Copies the newest image of a replica that counts into a new file; or the reason why that cannot be.
    pub fn export_image(&self, replica: u64, file: &Path) -> Outcome<Result<(), String>> {
        let (id, file) = (replica.to_string(), file.display().to_string());
        let output =
            self.skein(&["checkpoint", "export", "--name", &self.name, "--replica", &id, &file])?;
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Ok(if output.status.success() { Ok(()) } else { Err(said) })
    }

    /// The entries of the images from which a replica's server has continued, in order.
    pub fn restored(&self, replica: u64) -> Outcome<Vec<u64>> {
        let events = self.events(replica)?;
        let restored = events.iter().filter(|event| event["event"] == "restoring");
        Ok(restored.filter_map(|event| event["index"].as_u64()).collect())
    }

    /// Fails when a replica's server differed from the others', could not be restored, or ended without having been killed.
    pub fn no_difference(&self) -> Outcome {
        for replica in 1..=self.replicas {
            let events = self.events(replica)?;
            if let Some(event) = events.iter().find(|event| is_difference(event)) {
                return Err(Failure(format!("replica {replica}: {event}")));
            }
        }
        Ok(())
    }

    /// What a node has written into its log.
    fn events(&self, replica: u64) -> Outcome<Vec<Value>> {
        self.node_dir(replica).map_or(Ok(Vec::new()), |dir| events(&dir.join("node.log")))
    }
}

/// The first event in a node's log that no replica may have whose server is like the others', and can be restored; ends of servers are none.
///
/// # Errors
/// The log cannot be read.
pub fn difference(log: &Path) -> Outcome<Option<Value>> {
    Ok(events(log)?.into_iter().find(differs))
}

fn events(log: &Path) -> Outcome<Vec<Value>> {
    let text = std::fs::read_to_string(log)
        .map_err(|error| Failure::of(format!("cannot read {}", log.display()), error))?;
    // The last line may be half written.
    Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
}

fn differs(event: &Value) -> bool {
    DIFFERENCES.contains(&event["event"].as_str().unwrap_or_default())
}

fn is_difference(event: &Value) -> bool {
    differs(event) || event["event"] == "server_ended" && event["how"] != KILLED
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::is_difference;

    #[test]
    fn a_server_that_ends_by_itself_is_a_difference() {
        assert!(!is_difference(&json!({"event": "server_ended", "how": "signal 9"})));
        assert!(is_difference(&json!({"event": "server_ended", "how": "signal 11"})));
        assert!(is_difference(&json!({"event": "diverged", "replica": 2})));
        assert!(!is_difference(&json!({"event": "restoring", "index": 7})));
    }
}
