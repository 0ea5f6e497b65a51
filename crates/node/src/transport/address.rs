//! A node's address for the others.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

/// A node's listening address for the others: as text `10.0.0.1:7100`, or the path of a unix socket (with a slash in front).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// Over TCP.
    Tcp(SocketAddr),
    /// On this machine, in a directory of the user's own.
    Unix(PathBuf),
}

impl Address {
    /// Whether only processes of this machine can reach it.
    #[must_use]
    pub const fn is_local(&self) -> bool {
        match self {
            Self::Tcp(address) => address.ip().is_loopback(),
            Self::Unix(_) => true,
        }
    }

    /// The address on the network.
    #[must_use]
    pub const fn tcp(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(address) => Some(*address),
            Self::Unix(_) => None,
        }
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Self::Tcp(address)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => path.display().fmt(f),
        }
    }
}

impl FromStr for Address {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.starts_with('/') {
            return Ok(Self::Unix(text.into()));
        }
        text.parse().map(Self::Tcp).map_err(
            |_| "expected ADDRESS:PORT, as in 10.0.0.1:7100, or the absolute path of a unix socket",
        )
    }
}

impl Serialize for Address {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_its_text() {
        for text in ["10.0.0.1:7100", "[::1]:1", "/run/skein/a/peer-1.sock"] {
            let address: Address = text.parse().unwrap();
            assert_eq!(address.to_string(), text);
            assert_eq!(address.is_local(), text != "10.0.0.1:7100");
        }
        assert!("localhost:1".parse::<Address>().is_err() && "".parse::<Address>().is_err());
    }
}
