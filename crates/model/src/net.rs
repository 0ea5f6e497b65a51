//! Socket addresses in entries and frames: 20 bytes, the same for both families; and the network interface of a server.

use core::net::{IpAddr, SocketAddr};

/// An internet address and port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SockAddr {
    /// The address; IPv4 is stored as an IPv4-mapped IPv6 address.
    pub ip: [u8; 16],
    /// The port.
    pub port: u16,
    /// Whether the socket's family is IPv6.
    pub v6: bool,
    /// Always 0. Without this field one byte would stay unwritten and differ between replicas wherever an address is kept.
    pub unused: u8,
}

const _: () = assert!(size_of::<SockAddr>() == 16 + 2 + 1 + 1);

const MAPPED: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];
/// `64:ff9b::/96`, the prefix of addresses that hold an IPv4 address (RFC 6052).
const TRANSLATED: [u8; 12] = [0, 0x64, 0xff, 0x9b, 0, 0, 0, 0, 0, 0, 0, 0];

impl From<SocketAddr> for SockAddr {
    fn from(address: SocketAddr) -> Self {
        match address.ip() {
            IpAddr::V4(ip) => Self::v4(ip.octets(), address.port()),
            IpAddr::V6(ip) => Self::v6(ip.octets(), address.port()),
        }
    }
}

impl From<SockAddr> for SocketAddr {
    fn from(address: SockAddr) -> Self {
        let ip = match address.ipv4() {
            Some(ip) => IpAddr::from(ip),
            None => IpAddr::from(address.ip),
        };
        Self::new(ip, address.port)
    }
}

impl SockAddr {
    /// No address.
    pub const NOWHERE: Self = Self { ip: [0; 16], port: 0, v6: false, unused: 0 };

    /// Bytes of an encoded address.
    pub const WIRE_BYTES: usize = 20;

    /// An IPv4 address.
    #[must_use]
    pub fn v4(ip: [u8; 4], port: u16) -> Self {
        let mut all = [0; 16];
        all[..12].copy_from_slice(&MAPPED);
        all[12..].copy_from_slice(&ip);
        Self { ip: all, port, ..Self::NOWHERE }
    }

    /// An IPv6 address.
    #[must_use]
    pub const fn v6(ip: [u8; 16], port: u16) -> Self {
        Self { ip, port, v6: true, ..Self::NOWHERE }
    }

    /// The IPv4 address, when this is one (also when mapped into IPv6).
    #[must_use]
    pub fn ipv4(&self) -> Option<[u8; 4]> {
        (self.ip[..12] == MAPPED).then(|| [self.ip[12], self.ip[13], self.ip[14], self.ip[15]])
    }

    /// Whether this is the wildcard address of its family.
    #[must_use]
    pub fn is_unspecified(&self) -> bool {
        self.ip == [0; 16] || self.ipv4() == Some([0; 4])
    }

    /// Whether this is an address of the loopback interface.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        self.ipv4().map_or(self.ip == Self::loopback_v6(0).ip, |ip| ip[0] == 127)
    }

    /// `::1`.
    #[must_use]
    pub const fn loopback_v6(port: u16) -> Self {
        Self::v6([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1], port)
    }

    /// This host's address as a socket of the other IP version sees it: a loopback address as the other one, IPv4 behind the prefix `64:ff9b::/96`. `None` for other
    /// addresses of IPv6.
    #[must_use]
    pub fn translated(&self) -> Option<Self> {
        match self.ipv4() {
            Some([127, ..]) => Some(Self::loopback_v6(self.port)),
            Some(v4) => {
                let mut ip = [0; 16];
                ip[..12].copy_from_slice(&TRANSLATED);
                ip[12..].copy_from_slice(&v4);
                Some(Self::v6(ip, self.port))
            }
            None if self.is_loopback() => Some(Self::v4([127, 0, 0, 1], self.port)),
            None if self.ip[..12] == TRANSLATED => {
                let v4 = [self.ip[12], self.ip[13], self.ip[14], self.ip[15]];
                Some(Self::v4(v4, self.port))
            }
            None => None,
        }
    }

    /// Encodes the address.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::WIRE_BYTES] {
        let mut out = [0; Self::WIRE_BYTES];
        out[..16].copy_from_slice(&self.ip);
        out[16..18].copy_from_slice(&self.port.to_le_bytes());
        out[18] = u8::from(self.v6);
        out
    }

    /// Encodes two addresses, as in front of a datagram's bytes.
    #[must_use]
    pub fn encode_pair(first: Self, second: Self) -> [u8; 2 * Self::WIRE_BYTES] {
        let mut out = [0; 2 * Self::WIRE_BYTES];
        out[..Self::WIRE_BYTES].copy_from_slice(&first.encode());
        out[Self::WIRE_BYTES..].copy_from_slice(&second.encode());
        out
    }

    /// Splits two addresses off the front of `bytes`; `None` when they are not there.
    #[must_use]
    pub fn split_pair(bytes: &[u8]) -> Option<(Self, Self, &[u8])> {
        let (first, rest) = bytes.split_at_checked(Self::WIRE_BYTES)?;
        let (second, rest) = rest.split_at_checked(Self::WIRE_BYTES)?;
        Some((Self::decode(first)?, Self::decode(second)?, rest))
    }

    /// Decodes an address; `None` when the length or the family byte is wrong.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        if bytes.len() != Self::WIRE_BYTES || bytes[18] > 1 || bytes[19] != 0 {
            return None;
        }
        let mut ip = [0; 16];
        ip.copy_from_slice(&bytes[..16]);
        let port = u16::from_le_bytes([bytes[16], bytes[17]]);
        Some(Self { ip, port, v6: bytes[18] == 1, ..Self::NOWHERE })
    }
}

/// A network interface of a server beside the loopback one: an IPv4 address, and the number of its leading bits that are the
/// network's. All-zero bytes are none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    /// Its address.
    pub address: [u8; 4],
    /// The number of leading bits that are the network's; 0: there is no interface.
    pub bits: u8,
}

impl Interface {
    /// The bits of an address without `/BITS`.
    const USUAL_BITS: u8 = 24;

    /// Reads `ADDRESS[/BITS]`; `None` when it is no address that a host can have, or the network has less than 8 or more than 30 bits.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, bits.parse().ok()?),
            None => (text, Self::USUAL_BITS),
        };
        let address: core::net::Ipv4Addr = address.parse().ok()?;
        let found = Self { address: address.octets(), bits };
        let fits = (8..=30).contains(&bits)
            && !matches!(found.address[0], 0 | 127 | 224..)
            && found.address != found.broadcast();
        fits.then_some(found)
    }

    /// Whether there is no interface.
    #[must_use]
    pub const fn is_none(&self) -> bool {
        self.bits == 0
    }

    fn mask_bits(&self) -> u32 {
        u32::MAX.checked_shl(32 - u32::from(self.bits)).unwrap_or(0)
    }

    /// The network's mask.
    #[must_use]
    pub fn mask(&self) -> [u8; 4] {
        self.mask_bits().to_be_bytes()
    }

    /// The network's own address.
    #[must_use]
    pub fn network(&self) -> [u8; 4] {
        (u32::from_be_bytes(self.address) & self.mask_bits()).to_be_bytes()
    }

    /// The network's broadcast address.
    #[must_use]
    pub fn broadcast(&self) -> [u8; 4] {
        (u32::from_be_bytes(self.address) | !self.mask_bits()).to_be_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_seen_by_the_other_ip_version_and_found_again() {
        let far = SockAddr::v4([192, 0, 2, 7], 5);
        let seen = far.translated().unwrap();
        assert_eq!(seen.ip[..4], [0, 0x64, 0xff, 0x9b]);
        assert_eq!(seen.translated(), Some(far));
        let near = SockAddr::v4([127, 0, 0, 1], 5);
        assert_eq!(near.translated(), Some(SockAddr::loopback_v6(5)));
        assert_eq!(SockAddr::loopback_v6(5).translated(), Some(near));
        assert_eq!(SockAddr::v6([0x20; 16], 5).translated(), None);
    }

    #[test]
    fn an_interface_is_an_address_with_its_network() {
        let found = Interface::parse("192.0.2.9/28").unwrap();
        assert_eq!((found.address, found.mask()), ([192, 0, 2, 9], [255, 255, 255, 240]));
        assert_eq!((found.network(), found.broadcast()), ([192, 0, 2, 0], [192, 0, 2, 15]));
        assert_eq!(Interface::parse("10.1.2.3"), Interface::parse("10.1.2.3/24"));
        assert!(Interface::default().is_none());
        for bad in [
            "",
            "10.1.2",
            "10.1.2.3/31",
            "10.1.2.3/7",
            "127.0.0.1",
            "224.0.0.1",
            "::1",
            "10.1.2.255",
            "10.1.2.3/",
        ] {
            assert_eq!(Interface::parse(bad), None, "{bad}");
        }
    }
}
