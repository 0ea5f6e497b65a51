//! The network interfaces that the server sees, the same on every replica: the loopback interface, and the configured one, if any.

use crate::abi;
use core::ffi::CStr;
use skein_model::Interface;

/// The number of the loopback interface.
pub const LOOPBACK_INDEX: u32 = 1;
/// The number of the configured interface.
pub const GIVEN_INDEX: u32 = 2;

/// An interface.
#[derive(Clone, Copy)]
pub struct Face {
    /// Its name.
    pub name: &'static CStr,
    /// Its number.
    pub index: u32,
    /// Its address.
    pub address: [u8; 4],
    /// The network's mask.
    pub mask: [u8; 4],
    /// The broadcast address of its network; the loopback interface has none.
    pub broadcast: [u8; 4],
    /// `IFF_UP` and others.
    pub flags: i32,
    /// The longest packet (MTU).
    pub mtu_bytes: i32,
    /// Its hardware type, and its hardware address.
    pub hardware: (u16, [u8; 6]),
}

impl Face {
    /// Whether it is the loopback interface.
    pub const fn is_loopback(&self) -> bool {
        self.index == LOOPBACK_INDEX
    }

    /// The number of leading bits of its address that are the network's.
    pub const fn bits(&self) -> u8 {
        u32::from_be_bytes(self.mask).leading_ones() as u8
    }

    /// The first address of its network.
    pub const fn network(&self) -> [u8; 4] {
        (u32::from_be_bytes(self.address) & u32::from_be_bytes(self.mask)).to_be_bytes()
    }

    /// The last address of its network.
    pub const fn last(&self) -> [u8; 4] {
        (u32::from_be_bytes(self.address) | !u32::from_be_bytes(self.mask)).to_be_bytes()
    }
}

const LOOPBACK: Face = Face {
    name: c"lo",
    index: LOOPBACK_INDEX,
    address: [127, 0, 0, 1],
    mask: [255, 0, 0, 0],
    broadcast: [0; 4],
    flags: abi::IFF_UP | abi::IFF_LOOPBACK | abi::IFF_RUNNING,
    mtu_bytes: 65_536,
    hardware: (abi::ARPHRD_LOOPBACK, [0; 6]),
};
/// Packets that an interface's queue holds.
pub const QUEUE_LEN: i32 = 1000;

/// The interfaces of a server.
#[derive(Clone, Copy)]
pub struct Interfaces {
    given: Interface,
}

impl Interfaces {
    /// The loopback interface, and the configured one, if any.
    pub const fn of(given: Interface) -> Self {
        Self { given }
    }

    fn given(&self) -> Option<Face> {
        let given = self.given;
        let [a, b, c, d] = given.address;
        (!given.is_none()).then(|| Face {
            name: c"eth0",
            index: GIVEN_INDEX,
            address: given.address,
            mask: given.mask(),
            broadcast: given.broadcast(),
            flags: abi::IFF_UP | abi::IFF_BROADCAST | abi::IFF_RUNNING | abi::IFF_MULTICAST,
            mtu_bytes: 1500,
            // A locally administered hardware address: the bit for that is set.
            hardware: (abi::ARPHRD_ETHER, [2, 0, a, b, c, d]),
        })
    }

    /// All of them, in the order of their numbers.
    pub fn all(&self) -> impl Iterator<Item = Face> + use<> {
        [Some(LOOPBACK), self.given()].into_iter().flatten()
    }
}
