//! The addresses that the server may connect to: a list of rules, checked by the node that makes the connection.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

/// The addresses outside that the server may reach.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OutgoingConfig {
    /// What it may connect and send datagrams to: `any`, `loopback`, or `ADDRESS[/BITS][:PORT]` with an IPv6 address in
    /// brackets. One rule that fits is enough. Default: `any`; an empty list allows nothing.
    pub allow: Vec<Rule>,
}

impl Default for OutgoingConfig {
    fn default() -> Self {
        Self { allow: vec![Rule::Any] }
    }
}

impl OutgoingConfig {
    /// Whether the server may reach an address.
    #[must_use]
    pub fn allows(&self, to: SocketAddr) -> bool {
        let ip = to.ip().to_canonical();
        self.allow.iter().any(|rule| match *rule {
            Rule::Any => true,
            Rule::Loopback => ip.is_loopback(),
            Rule::Net { address, bits, port } => {
                port.is_none_or(|p| p == to.port()) && prefix(address, bits) == prefix(ip, bits)
            }
        })
    }
}

/// The part of an address that a rule compares: family and leading bits.
fn prefix(ip: IpAddr, bits: u8) -> (bool, u128) {
    let rest = |width: u32| (u128::MAX >> (128 - width)).checked_shr(u32::from(bits)).unwrap_or(0);
    let kept = |all: u128, width: u32| all & !rest(width);
    match ip {
        IpAddr::V4(v4) => (false, kept(u128::from(u32::from(v4)), 32)),
        IpAddr::V6(v6) => (true, kept(u128::from(v6), 128)),
    }
}

/// One rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Rule {
    /// Every address.
    Any,
    /// The machine's own loopback addresses.
    Loopback,
    /// Addresses that begin with the same bits, at one port or all.
    Net {
        /// The address.
        address: IpAddr,
        /// The number of its bits that count.
        bits: u8,
        /// The port; `None` for all.
        port: Option<u16>,
    },
}

/// A text that is no rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is no address: write any, loopback, or ADDRESS[/BITS][:PORT], an IPv6 address in brackets"
)]
pub struct NoRule(String);

impl FromStr for Rule {
    type Err = NoRule;

    fn from_str(text: &str) -> Result<Self, NoRule> {
        match text {
            "any" => return Ok(Self::Any),
            "loopback" => return Ok(Self::Loopback),
            _ => {}
        }
        let bad = || NoRule(text.into());
        let number = |text: &str| text.parse::<u16>().ok().filter(|port| *port > 0).ok_or_else(bad);
        let (net, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (address, rest) = rest.split_once(']').ok_or_else(bad)?;
                let (bits, port) = rest.split_once(':').map_or((rest, None), |(b, p)| (b, Some(p)));
                (format!("{address}{bits}"), port)
            }
            None => match text.split_once(':') {
                Some((net, port)) if !port.contains(':') => (net.into(), Some(port)),
                _ => (text.into(), None),
            },
        };
        let (address, bits) =
            net.split_once('/').map_or((net.as_str(), None), |(a, b)| (a, Some(b)));
        let address: IpAddr = address.parse().map_err(|_| bad())?;
        let width = if address.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            None => width,
            Some(bits) => bits.parse().ok().filter(|b| *b <= width).ok_or_else(bad)?,
        };
        Ok(Self::Net { address, bits, port: port.map(number).transpose()? })
    }
}

impl TryFrom<String> for Rule {
    type Error = NoRule;

    fn try_from(text: String) -> Result<Self, NoRule> {
        text.parse()
    }
}

impl From<Rule> for String {
    fn from(rule: Rule) -> Self {
        rule.to_string()
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("any"),
            Self::Loopback => f.write_str("loopback"),
            Self::Net { address, bits, port } => {
                match address {
                    IpAddr::V4(v4) => write!(f, "{v4}/{bits}")?,
                    IpAddr::V6(v6) => write!(f, "[{v6}]/{bits}")?,
                }
                port.map_or(Ok(()), |port| write!(f, ":{port}"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allows(rules: &[&str], to: &str) -> bool {
        let allow = rules.iter().map(|r| r.parse().unwrap()).collect();
        OutgoingConfig { allow }.allows(to.parse().unwrap())
    }

    #[test]
    fn rules_are_compared_by_bits_and_port() {
        assert!(OutgoingConfig::default().allows("8.8.8.8:53".parse().unwrap()));
        assert!(!allows(&[], "127.0.0.1:80"));
        assert!(allows(&["loopback"], "127.9.0.1:80") && allows(&["loopback"], "[::1]:80"));
        assert!(allows(&["loopback"], "[::ffff:127.0.0.1]:80"));
        assert!(!allows(&["loopback"], "10.0.0.1:80"));
        assert!(allows(&["10.1.0.0/16:443"], "10.1.200.3:443"));
        assert!(!allows(&["10.1.0.0/16:443"], "10.1.200.3:80"));
        assert!(!allows(&["10.1.0.0/16"], "10.2.0.1:80"));
        assert!(allows(&["loopback", "10.2.0.1"], "10.2.0.1:80"));
        assert!(!allows(&["10.2.0.1"], "10.2.0.2:80"));
        assert!(allows(&["0.0.0.0/0"], "1.2.3.4:5") && !allows(&["0.0.0.0/0"], "[2001:db8::1]:5"));
        assert!(allows(&["[2001:db8::]/32:5"], "[2001:db8:7::1]:5"));
        assert!(!allows(&["[2001:db8::]/32:5"], "[2001:db9::1]:5"));
        assert!(allows(&["2001:db8::1"], "[2001:db8::1]:5"));
    }

    #[test]
    fn rules_are_read_and_shown() {
        for (text, shown) in [
            ("any", "any"),
            ("loopback", "loopback"),
            ("10.0.0.1", "10.0.0.1/32"),
            ("10.0.0.0/8:443", "10.0.0.0/8:443"),
            ("2001:db8::/32", "[2001:db8::]/32"),
            ("[::1]/128:5", "[::1]/128:5"),
            ("[::1]:5", "[::1]/128:5"),
        ] {
            let rule: Rule = text.parse().unwrap();
            assert_eq!(rule.to_string(), shown);
            assert_eq!(shown.parse(), Ok(rule));
        }
        for bad in
            ["", "none", "10.0.0.1/33", "10.0.0.1:0", "10.0.0.1:x", "host:80", "[::1", "::1/129"]
        {
            assert_eq!(bad.parse::<Rule>(), Err(NoRule(bad.into())), "{bad}");
        }
    }
}
