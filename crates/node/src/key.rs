//! The key that all nodes of a cluster have ([`Key`]), as this node's configuration names it.

use crate::config::NodeConfig;
use crate::error::NodeError;
use crate::transport::Key;

/// The configured key; none: nodes are on one machine, or no stranger can reach their network.
///
/// # Errors
/// Its file cannot be read, is open to others, or is malformed.
pub fn configured(config: &NodeConfig) -> Result<Option<Key>, NodeError> {
    let Some(path) = &config.key_file else { return Ok(None) };
    Key::read(path).map(Some).map_err(|error| NodeError::Key { path: path.clone(), error })
}
