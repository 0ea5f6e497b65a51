//! Which contents a server's report of a changed file is about.

use super::Base;
use super::index::Kept;
use super::store::Digest;
use std::collections::BTreeSet;
use std::path::{Component, Path};

/// How the runtime's reports begin.
const REPORT: &str = "the host's file ";
/// Longer paths are cut in reports.
const PATH_BYTES_MAX: usize = 200;

impl Base {
    /// The server has met another file than the log has, and this is its report: what is noted about the contents does not count any more, and the next start reads them. All
    /// contents, if it cannot be told which.
    pub fn doubt(&self, report: &str) {
        let digests = self.reported(report);
        if let Err(error) = self.objects.doubt(digests) {
            tracing::warn!(event = "base_unwritten", %error, "the next start does not read what it should");
        }
    }

    /// The contents that any edition has at the path of a report; `None`: it cannot be told.
    pub(super) fn reported(&self, report: &str) -> Option<BTreeSet<Digest>> {
        let rest = report.strip_prefix(REPORT)?;
        // A path may have a colon, too.
        let ends = rest.match_indices(": ").map(|(at, _)| at);
        let paths: Vec<&str> = ends.map(|at| &rest[..at]).collect();
        let first = paths.first()?;
        if first.len() >= PATH_BYTES_MAX || first.contains([' ', char::REPLACEMENT_CHARACTER]) {
            // Bytes that cannot be printed were replaced.
            return None;
        }
        let mut digests = BTreeSet::new();
        for name in self.names().ok()? {
            let index = self.with_index(&name).ok()?.index();
            for path in paths.iter().map(Path::new) {
                let is_link = |at: &Path| matches!(index.files.get(at), Some(Kept::Link { .. }));
                let leads_up = path.components().any(|part| part == Component::ParentDir);
                if !path.is_absolute() || leads_up || path.ancestors().any(is_link) {
                    return None;
                }
                if let Some(Kept::File { digest, .. }) = index.files.get(path) {
                    digests.insert(*digest);
                }
            }
        }
        // The host's own, or the server has made a link that leads to something pinned.
        let is_hosts = |path: &&str| {
            let path = Path::new(path);
            path.is_file() && path.canonicalize().is_ok_and(|place| place == path)
        };
        (!digests.is_empty() || paths.iter().any(is_hosts)).then_some(digests)
    }
}
