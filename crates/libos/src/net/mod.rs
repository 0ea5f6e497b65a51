//! The network as the server sees it.

pub mod interface;
pub mod netlink;
