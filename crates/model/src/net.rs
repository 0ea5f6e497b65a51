//! Socket addresses as they stand in entries and frames: 20 bytes, the same for both families.

/// An internet address and port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SockAddr {
    /// The address; IPv4 is stored as an IPv4-mapped IPv6 address.
    pub ip: [u8; 16],
    /// The port.
    pub port: u16,
    /// Whether the socket's family is IPv6.
    pub v6: bool,
}

const MAPPED: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];

impl SockAddr {
    /// Bytes that an encoded address takes.
    pub const WIRE_BYTES: usize = 20;

    /// An IPv4 address.
    #[must_use]
    pub fn v4(ip: [u8; 4], port: u16) -> Self {
        let mut all = [0; 16];
        all[..12].copy_from_slice(&MAPPED);
        all[12..].copy_from_slice(&ip);
        Self { ip: all, port, v6: false }
    }

    /// An IPv6 address.
    #[must_use]
    pub const fn v6(ip: [u8; 16], port: u16) -> Self {
        Self { ip, port, v6: true }
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

    /// Encodes the address.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::WIRE_BYTES] {
        let mut out = [0; Self::WIRE_BYTES];
        out[..16].copy_from_slice(&self.ip);
        out[16..18].copy_from_slice(&self.port.to_le_bytes());
        out[18] = u8::from(self.v6);
        out
    }

    /// Encodes two addresses, as they stand before a datagram's bytes.
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
        Some(Self { ip, port: u16::from_le_bytes([bytes[16], bytes[17]]), v6: bytes[18] == 1 })
    }
}
