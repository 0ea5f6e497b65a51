//! Socket options: stored, answered as by Linux, and applied where they have a meaning here.

use super::bytes::{array, word};
use super::unix::rights::Cred;
use super::{Socket, State, multicast, netlink};
use crate::abi::{
    self, AF_INET6, AF_NETLINK, AF_UNIX, IPPROTO_IP, IPPROTO_IPV6, IPPROTO_TCP, SO_LINGER,
    SO_RCVTIMEO, SO_SNDTIMEO, SOL_NETLINK, SOL_SOCKET,
};
use crate::errno::{Result, fail};
use crate::host::Host;
use crate::state::net::OPTIONS;
pub use crate::state::net::Options;
use skein_arena::pool::Handle;

/// Bytes of the longest value: of a `tcp_info`.
pub const MAX_BYTES: usize = 280;
/// Bytes of a `linger`.
const LINGER_BYTES: usize = 8;
/// Bytes of a `timeval`.
const TIME_BYTES: usize = 16;

/// The meaning of a number.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// On or off.
    Flag,
    /// A number within bounds.
    Number(i32, i32),
    /// A buffer's size, of which Linux keeps the double, at least this.
    Buffer(i32),
    /// A number; values below 1 mean something else, 0 being 1.
    LowMark,
}

/// An option that is a number.
struct Spec {
    level: i32,
    name: i32,
    default: i32,
    kind: Kind,
}

const fn flag(level: i32, name: i32) -> Spec {
    Spec { level, name, default: 0, kind: Kind::Flag }
}
const fn number(level: i32, name: i32, default: i32, least: i32, most: i32) -> Spec {
    Spec { level, name, default, kind: Kind::Number(least, most) }
}

/// Positions in [`SPECS`] of the options with an effect.
const REUSE_ADDRESS: usize = 0;
const REUSE_PORT: usize = 1;
const RECEIVE_LEAST: usize = 2;
const ONLY_V6: usize = 3;
const SEND_BUFFER: usize = 4;
const RECEIVE_BUFFER: usize = 5;
const FREE_BIND: usize = 6;
const BROADCAST: usize = 8;
const TIMESTAMP: usize = 12;
const TIMESTAMP_NS: usize = 13;
const PASS_CRED: usize = 14;
const PACKET_INFO: usize = 41;
const PACKET_INFO_V6: usize = 46;

/// Those about groups, from here on: IPv4's first.
const GROUPS: usize = 47;
const GROUP_ADDRESS: usize = GROUPS;
const GROUP_LOOP: usize = GROUPS + 1;
const HEARS_ALL: usize = GROUPS + 2;
const GROUP_INTERFACE: usize = GROUPS + 3;
const GROUP_LOOP_V6: usize = GROUPS + 4;
const HEARS_ALL_V6: usize = GROUPS + 5;

/// Those of netlink, from here on.
const NETLINK: usize = GROUPS + 8;

const COUNT: usize = NETLINK + 6;
const _: () = assert!(COUNT == OPTIONS, "there is room for all");
/// `IPV6_MULTICAST_ALL`, which C libraries do not name.
const IPV6_MULTICAST_ALL: i32 = 29;
/// Linux's `wmem_max` and `rmem_max`, and the default of socket pairs.
const MAX_BUFFER: i32 = 212_992;
/// `SO_BUSY_POLL` and friends that C libraries do not name.
const SO_INCOMING_NAPI_ID: i32 = 56;

/// All options that are numbers.
static SPECS: [Spec; COUNT] = TABLE;
const TABLE: [Spec; COUNT] = [
    flag(SOL_SOCKET, abi::SO_REUSEADDR),
    flag(SOL_SOCKET, abi::SO_REUSEPORT),
    Spec { level: SOL_SOCKET, name: abi::SO_RCVLOWAT, default: 1, kind: Kind::LowMark },
    flag(IPPROTO_IPV6, abi::IPV6_V6ONLY),
    Spec { level: SOL_SOCKET, name: abi::SO_SNDBUF, default: 16_384, kind: Kind::Buffer(4608) },
    Spec { level: SOL_SOCKET, name: abi::SO_RCVBUF, default: 131_072, kind: Kind::Buffer(2304) },
    flag(IPPROTO_IP, abi::IP_FREEBIND),
    flag(SOL_SOCKET, abi::SO_KEEPALIVE),
    flag(SOL_SOCKET, abi::SO_BROADCAST),
    flag(SOL_SOCKET, abi::SO_OOBINLINE),
    flag(SOL_SOCKET, abi::SO_DONTROUTE),
    flag(SOL_SOCKET, abi::SO_DEBUG),
    flag(SOL_SOCKET, abi::SO_TIMESTAMP),
    flag(SOL_SOCKET, abi::SO_TIMESTAMPNS),
    flag(SOL_SOCKET, abi::SO_PASSCRED),
    flag(SOL_SOCKET, abi::SO_NO_CHECK),
    flag(SOL_SOCKET, abi::SO_RXQ_OVFL),
    flag(SOL_SOCKET, abi::SO_ZEROCOPY),
    number(SOL_SOCKET, abi::SO_PRIORITY, 0, 0, 6),
    number(SOL_SOCKET, abi::SO_MARK, 0, i32::MIN, i32::MAX),
    number(SOL_SOCKET, abi::SO_BUSY_POLL, 0, 0, i32::MAX),
    number(SOL_SOCKET, abi::SO_INCOMING_CPU, 0, 0, i32::MAX),
    flag(IPPROTO_TCP, abi::TCP_NODELAY),
    flag(IPPROTO_TCP, abi::TCP_CORK),
    number(IPPROTO_TCP, abi::TCP_MAXSEG, 536, 88, 32_767),
    number(IPPROTO_TCP, abi::TCP_KEEPIDLE, 7200, 1, 32_767),
    number(IPPROTO_TCP, abi::TCP_KEEPINTVL, 75, 1, 32_767),
    number(IPPROTO_TCP, abi::TCP_KEEPCNT, 9, 1, 127),
    number(IPPROTO_TCP, abi::TCP_SYNCNT, 6, 1, 127),
    number(IPPROTO_TCP, abi::TCP_LINGER2, 60, i32::MIN, i32::MAX),
    number(IPPROTO_TCP, abi::TCP_DEFER_ACCEPT, 0, i32::MIN, i32::MAX),
    number(IPPROTO_TCP, abi::TCP_WINDOW_CLAMP, 0, 0, i32::MAX),
    number(IPPROTO_TCP, abi::TCP_QUICKACK, 1, i32::MIN, i32::MAX),
    number(IPPROTO_TCP, abi::TCP_USER_TIMEOUT, 0, 0, i32::MAX),
    number(IPPROTO_TCP, abi::TCP_FASTOPEN, 0, 0, i32::MAX),
    number(IPPROTO_TCP, abi::TCP_NOTSENT_LOWAT, 0, i32::MIN, i32::MAX),
    flag(IPPROTO_TCP, abi::TCP_THIN_LINEAR_TIMEOUTS),
    number(IPPROTO_IP, abi::IP_TOS, 0, 0, 255),
    number(IPPROTO_IP, abi::IP_TTL, 64, 1, 255),
    number(IPPROTO_IP, abi::IP_MTU_DISCOVER, 1, 0, 5),
    flag(IPPROTO_IP, abi::IP_RECVERR),
    flag(IPPROTO_IP, abi::IP_PKTINFO),
    flag(IPPROTO_IP, abi::IP_BIND_ADDRESS_NO_PORT),
    number(IPPROTO_IPV6, abi::IPV6_UNICAST_HOPS, 64, -1, 255),
    number(IPPROTO_IPV6, abi::IPV6_TCLASS, 0, -1, 255),
    number(IPPROTO_IPV6, abi::IPV6_MTU_DISCOVER, 1, 0, 5),
    flag(IPPROTO_IPV6, abi::IPV6_RECVPKTINFO),
    number(IPPROTO_IP, abi::IP_MULTICAST_IF, 0, i32::MIN, i32::MAX),
    Spec { level: IPPROTO_IP, name: abi::IP_MULTICAST_LOOP, default: 1, kind: Kind::Flag },
    Spec { level: IPPROTO_IP, name: abi::IP_MULTICAST_ALL, default: 1, kind: Kind::Flag },
    number(IPPROTO_IPV6, abi::IPV6_MULTICAST_IF, 0, 0, i32::MAX),
    number(IPPROTO_IPV6, abi::IPV6_MULTICAST_LOOP, 1, 0, 1),
    number(IPPROTO_IPV6, IPV6_MULTICAST_ALL, 1, 0, 1),
    number(IPPROTO_IP, abi::IP_MULTICAST_TTL, 1, 0, 255),
    number(IPPROTO_IPV6, abi::IPV6_MULTICAST_HOPS, 1, -1, 255),
    flag(SOL_NETLINK, abi::NETLINK_PKTINFO),
    flag(SOL_NETLINK, abi::NETLINK_BROADCAST_ERROR),
    flag(SOL_NETLINK, abi::NETLINK_NO_ENOBUFS),
    flag(SOL_NETLINK, abi::NETLINK_CAP_ACK),
    flag(SOL_NETLINK, abi::NETLINK_EXT_ACK),
    flag(SOL_NETLINK, abi::NETLINK_GET_STRICT_CHK),
];

/// The options that have a place by name.
const PLACES: [(usize, i32, i32); 20] = [
    (REUSE_ADDRESS, SOL_SOCKET, abi::SO_REUSEADDR),
    (REUSE_PORT, SOL_SOCKET, abi::SO_REUSEPORT),
    (RECEIVE_LEAST, SOL_SOCKET, abi::SO_RCVLOWAT),
    (ONLY_V6, IPPROTO_IPV6, abi::IPV6_V6ONLY),
    (SEND_BUFFER, SOL_SOCKET, abi::SO_SNDBUF),
    (RECEIVE_BUFFER, SOL_SOCKET, abi::SO_RCVBUF),
    (FREE_BIND, IPPROTO_IP, abi::IP_FREEBIND),
    (BROADCAST, SOL_SOCKET, abi::SO_BROADCAST),
    (TIMESTAMP, SOL_SOCKET, abi::SO_TIMESTAMP),
    (TIMESTAMP_NS, SOL_SOCKET, abi::SO_TIMESTAMPNS),
    (PASS_CRED, SOL_SOCKET, abi::SO_PASSCRED),
    (PACKET_INFO, IPPROTO_IP, abi::IP_PKTINFO),
    (PACKET_INFO_V6, IPPROTO_IPV6, abi::IPV6_RECVPKTINFO),
    (GROUP_ADDRESS, IPPROTO_IP, abi::IP_MULTICAST_IF),
    (GROUP_LOOP, IPPROTO_IP, abi::IP_MULTICAST_LOOP),
    (HEARS_ALL, IPPROTO_IP, abi::IP_MULTICAST_ALL),
    (GROUP_INTERFACE, IPPROTO_IPV6, abi::IPV6_MULTICAST_IF),
    (GROUP_LOOP_V6, IPPROTO_IPV6, abi::IPV6_MULTICAST_LOOP),
    (HEARS_ALL_V6, IPPROTO_IPV6, IPV6_MULTICAST_ALL),
    (NETLINK, SOL_NETLINK, abi::NETLINK_PKTINFO),
];
const _: () = {
    let mut at = 0;
    while at < PLACES.len() {
        let (place, level, name) = PLACES[at];
        assert!(TABLE[place].level == level && TABLE[place].name == name);
        at += 1;
    }
};

impl Options {
    fn get(&self, place: usize) -> i32 {
        self.changed[place].get() ^ SPECS[place].default
    }

    fn set(&self, place: usize, value: i32) {
        self.changed[place].set(value ^ SPECS[place].default);
    }

    /// `SO_REUSEADDR`.
    pub fn reuse_address(&self) -> bool {
        self.changed[REUSE_ADDRESS].get() != 0
    }

    /// `SO_REUSEPORT`.
    pub fn reuse_port(&self) -> bool {
        self.changed[REUSE_PORT].get() != 0
    }

    /// `IPV6_V6ONLY`.
    pub fn only_v6(&self) -> bool {
        self.changed[ONLY_V6].get() != 0
    }

    /// `IP_FREEBIND`.
    pub fn free_bind(&self) -> bool {
        self.changed[FREE_BIND].get() != 0
    }

    /// `SO_BROADCAST`.
    pub fn broadcast(&self) -> bool {
        self.changed[BROADCAST].get() != 0
    }

    /// `SO_PASSCRED`.
    pub fn pass_cred(&self) -> bool {
        self.changed[PASS_CRED].get() != 0
    }

    /// Turns `SO_PASSCRED` on.
    pub fn set_pass_cred(&self) {
        self.changed[PASS_CRED].set(1);
    }

    /// `IP_PKTINFO`.
    pub fn packet_info_v4(&self) -> bool {
        self.changed[PACKET_INFO].get() != 0
    }

    /// `IPV6_RECVPKTINFO`.
    pub fn packet_info_v6(&self) -> bool {
        self.changed[PACKET_INFO_V6].get() != 0
    }

    /// `IP_MULTICAST_IF`: the address of the interface by which it sends to groups; all-zero is the default.
    pub fn group_address(&self) -> [u8; 4] {
        self.get(GROUP_ADDRESS).to_ne_bytes()
    }

    /// Sets [`group_address`](Self::group_address).
    pub fn set_group_address(&self, to: [u8; 4]) {
        self.set(GROUP_ADDRESS, i32::from_ne_bytes(to));
    }

    /// Sets [`group_interface`](Self::group_interface).
    pub fn set_group_interface(&self, to: u32) {
        self.set(GROUP_INTERFACE, to as i32);
    }

    /// `IPV6_MULTICAST_IF`: the number of that interface; 0 is the default.
    pub fn group_interface(&self) -> u32 {
        self.get(GROUP_INTERFACE) as u32
    }

    /// `IP_MULTICAST_LOOP`, `IPV6_MULTICAST_LOOP`.
    pub fn group_loop(&self, v4: bool) -> bool {
        self.get(if v4 { GROUP_LOOP } else { GROUP_LOOP_V6 }) != 0
    }

    /// `IP_MULTICAST_ALL`, `IPV6_MULTICAST_ALL`: groups that another socket has joined, too.
    pub fn hears_all_groups(&self, v4: bool) -> bool {
        self.get(if v4 { HEARS_ALL } else { HEARS_ALL_V6 }) != 0
    }

    /// An option of netlink.
    pub fn netlink(&self, name: i32) -> bool {
        let place = SPECS[NETLINK..].iter().position(|spec| spec.name == name);
        place.is_some_and(|place| self.changed[NETLINK + place].get() != 0)
    }

    /// How many ns the smaller unit of a time stamp has, if one is asked for (`SO_TIMESTAMP`, `SO_TIMESTAMPNS`).
    pub fn time_stamp_ns(&self) -> Option<u64> {
        if self.changed[TIMESTAMP_NS].get() != 0 {
            return Some(1);
        }
        (self.changed[TIMESTAMP].get() != 0).then_some(1000)
    }

    /// `SO_RCVLOWAT`.
    #[inline]
    pub fn receive_least(&self) -> usize {
        (self.changed[RECEIVE_LEAST].get() ^ 1) as usize
    }

    /// Whether `close` resets (`SO_LINGER` of no time).
    pub fn hard_close(&self) -> bool {
        self.linger_on.get() != 0 && self.linger_s.get() == 0
    }

    /// When a receive that begins now gives up (`SO_RCVTIMEO`).
    pub fn receive_deadline<H: Host>(&self, k: &H) -> Option<u64> {
        deadline(k, self.receive_timeout_us.get())
    }

    /// When a send that begins now gives up (`SO_SNDTIMEO`).
    pub fn send_deadline<H: Host>(&self, k: &H) -> Option<u64> {
        deadline(k, self.send_timeout_us.get())
    }

    /// An accepted socket has its listener's options.
    pub fn inherit(&self, from: &Self) {
        for (to, from) in self.changed.iter().zip(&from.changed) {
            to.set(from.get());
        }
        self.linger_on.set(from.linger_on.get());
        self.linger_s.set(from.linger_s.get());
        self.receive_timeout_us.set(from.receive_timeout_us.get());
        self.send_timeout_us.set(from.send_timeout_us.get());
    }
}

fn deadline<H: Host>(k: &H, timeout_us: u64) -> Option<u64> {
    (timeout_us != 0).then(|| k.after(timeout_us.saturating_mul(1000)))
}

fn find(level: i32, name: i32) -> Option<usize> {
    SPECS.iter().position(|spec| spec.level == level && spec.name == name)
}

/// Whether the socket has options of this level at all.
fn check_level(s: &Socket, level: i32) -> Result<()> {
    match (level, s.family.get()) {
        (SOL_SOCKET, _) => Ok(()),
        (_, AF_UNIX) => fail(abi::EOPNOTSUPP),
        (SOL_NETLINK, AF_NETLINK) => Ok(()),
        (_, AF_NETLINK) => fail(abi::ENOPROTOOPT),
        (IPPROTO_TCP, _) if s.is_datagram() => fail(abi::ENOPROTOOPT),
        (IPPROTO_TCP | IPPROTO_IP, _) | (IPPROTO_IPV6, AF_INET6) => Ok(()),
        _ => fail(abi::ENOPROTOOPT),
    }
}

/// `setsockopt`.
///
/// # Errors
/// Those of `setsockopt`.
pub fn set<H: Host>(
    k: &H,
    socket: Handle<Socket>,
    level: i32,
    name: i32,
    value: &[u8],
) -> Result<usize> {
    let s = k.net.sockets.get(socket);
    check_level(s, level)?;
    match (level, name) {
        (SOL_SOCKET, SO_LINGER | SO_RCVTIMEO | SO_SNDTIMEO) => set_struct(s, name, value),
        (SOL_SOCKET, abi::SO_SNDBUFFORCE) => set_number(s, SEND_BUFFER, value),
        (SOL_SOCKET, abi::SO_RCVBUFFORCE) => set_number(s, RECEIVE_BUFFER, value),
        (IPPROTO_TCP, abi::TCP_CONGESTION) => set_congestion(value),
        (IPPROTO_IP | IPPROTO_IPV6, _) if multicast::is_about(level, name) => {
            multicast::set(k, socket, level, name, value)
        }
        (SOL_NETLINK, abi::NETLINK_ADD_MEMBERSHIP | abi::NETLINK_DROP_MEMBERSHIP) => {
            netlink::change_groups(value)
        }
        _ => match find(level, name) {
            Some(ONLY_V6) if s.local.get().port != 0 => fail(abi::EINVAL),
            Some(place) => set_number(s, place, value),
            None => {
                k.refused(format_args!("setsockopt level {level} option {name}"));
                fail(abi::ENOPROTOOPT)
            }
        },
    }
}

/// Only the algorithm that is always available may be chosen; it changes nothing here.
fn set_congestion(value: &[u8]) -> Result<usize> {
    if value.is_empty() {
        return fail(abi::EINVAL);
    }
    let name = value[..value.len().min(16)].split(|b| *b == 0).next().unwrap_or_default();
    if matches!(name, b"cubic" | b"reno") { Ok(0) } else { fail(abi::ENOENT) }
}

fn set_number(s: &Socket, place: usize, value: &[u8]) -> Result<usize> {
    let spec = &SPECS[place];
    let value = match value.len() {
        4.. => word(value, 0) as i32,
        // IP alone takes bytes.
        1.. if spec.level == IPPROTO_IP => i32::from(value[0]),
        _ => return fail(abi::EINVAL),
    };
    let kept = match spec.kind {
        Kind::Flag => i32::from(value != 0),
        Kind::Number(least, most) => {
            // -1 and 0 give some their defaults back.
            let default = (value == -1
                && matches!(spec.name, abi::IP_TTL | abi::IP_MULTICAST_TTL)
                && spec.level == IPPROTO_IP)
                || (value == -1 && spec.level == IPPROTO_IPV6)
                || (value == 0 && spec.level == IPPROTO_TCP && spec.name == abi::TCP_MAXSEG);
            if default {
                spec.default
            } else if value < least || value > most {
                return fail(abi::EINVAL);
            } else {
                value
            }
        }
        Kind::Buffer(least) => {
            // As an unsigned number, so that a negative one is the largest.
            let bounded = (value as u32).min(MAX_BUFFER as u32) as i32;
            (bounded * 2).max(least)
        }
        Kind::LowMark => match value {
            ..0 => i32::MAX,
            0 => 1,
            _ => value,
        },
    };
    s.options.set(place, kept);
    Ok(0)
}

/// A `linger` or a `timeval`.
fn set_struct(s: &Socket, name: i32, value: &[u8]) -> Result<usize> {
    if name == SO_LINGER {
        if value.len() < LINGER_BYTES {
            return fail(abi::EINVAL);
        }
        let on = word(value, 0) != 0;
        s.options.linger_on.set(i32::from(on));
        if on {
            s.options.linger_s.set(word(value, 4) as i32);
        }
        return Ok(0);
    }
    if value.len() < TIME_BYTES {
        return fail(abi::EINVAL);
    }
    let (seconds, us) = (i64::from_ne_bytes(array(value, 0)), i64::from_ne_bytes(array(value, 8)));
    if !(0..1_000_000).contains(&us) {
        return fail(abi::EDOM);
    }
    // A negative time does not wait; the shortest does nearly the same.
    let us = if seconds < 0 { 1 } else { (seconds as u64).saturating_mul(1_000_000) + us as u64 };
    let place = if name == SO_RCVTIMEO {
        &s.options.receive_timeout_us
    } else {
        &s.options.send_timeout_us
    };
    place.set(us);
    Ok(0)
}

/// `getsockopt`: writes an option's value, and answers its size.
///
/// # Errors
/// Those of `getsockopt`.
pub fn get<H: Host>(
    k: &H,
    socket: Handle<Socket>,
    level: i32,
    name: i32,
    out: &mut [u8; MAX_BYTES],
) -> Result<usize> {
    let s = k.net.sockets.get(socket);
    check_level(s, level)?;
    let number = |out: &mut [u8; MAX_BYTES], value: i32| {
        out[..4].copy_from_slice(&value.to_ne_bytes());
        Ok(4)
    };
    let local = matches!(s.family.get(), AF_UNIX | AF_NETLINK);
    let large = local || s.is_datagram();
    let protocol = match s.is_datagram() {
        _ if local => 0,
        true => abi::IPPROTO_UDP,
        false => IPPROTO_TCP,
    };
    match (level, name) {
        (SOL_SOCKET, abi::SO_TYPE) => number(out, s.kind.get()),
        (SOL_SOCKET, abi::SO_DOMAIN) => number(out, s.family.get()),
        (SOL_SOCKET, abi::SO_PROTOCOL) => number(out, protocol),
        (SOL_SOCKET, abi::SO_ERROR) => number(out, s.take_error()),
        (SOL_SOCKET, abi::SO_ACCEPTCONN) => {
            number(out, i32::from(s.state.get() == State::Listening))
        }
        (SOL_SOCKET, abi::SO_SNDLOWAT) => number(out, 1),
        (SOL_SOCKET, SO_INCOMING_NAPI_ID) => number(out, 0),
        (SOL_SOCKET, abi::SO_SNDBUF) if large && s.options.changed[SEND_BUFFER].get() == 0 => {
            number(out, MAX_BUFFER)
        }
        (SOL_SOCKET, abi::SO_RCVBUF) if large && s.options.changed[RECEIVE_BUFFER].get() == 0 => {
            number(out, MAX_BUFFER)
        }
        (SOL_SOCKET, SO_LINGER) => {
            out[..4].copy_from_slice(&s.options.linger_on.get().to_ne_bytes());
            out[4..8].copy_from_slice(&s.options.linger_s.get().to_ne_bytes());
            Ok(8)
        }
        (SOL_SOCKET, SO_RCVTIMEO) => Ok(time_value(s.options.receive_timeout_us.get(), out)),
        (SOL_SOCKET, SO_SNDTIMEO) => Ok(time_value(s.options.send_timeout_us.get(), out)),
        (SOL_SOCKET, abi::SO_PEERCRED) => {
            let cred = s.cred.get();
            let nobody = Cred { pid: 0, uid: u32::MAX, gid: u32::MAX };
            let cred = if cred == Cred::default() { nobody } else { cred };
            out[..12].copy_from_slice(&cred.bytes());
            Ok(12)
        }
        (SOL_SOCKET, abi::SO_COOKIE) => {
            out[..8].copy_from_slice(&u64::from(socket.raw()).to_ne_bytes());
            Ok(8)
        }
        (SOL_SOCKET, abi::SO_BINDTODEVICE) => Ok(0),
        (IPPROTO_TCP, abi::TCP_CONGESTION) => {
            out[..5].copy_from_slice(b"cubic");
            Ok(16)
        }
        (IPPROTO_TCP, abi::TCP_INFO) => {
            out[0] = tcp_state(s);
            Ok(MAX_BYTES)
        }
        _ => match find(level, name) {
            Some(place) => number(out, s.options.get(place)),
            None => fail(abi::ENOPROTOOPT),
        },
    }
}

fn time_value(us: u64, out: &mut [u8; MAX_BYTES]) -> usize {
    out[..8].copy_from_slice(&(us / 1_000_000).to_ne_bytes());
    out[8..16].copy_from_slice(&(us % 1_000_000).to_ne_bytes());
    TIME_BYTES
}

/// The state's number in Linux's TCP.
fn tcp_state(s: &Socket) -> u8 {
    match s.state.get() {
        State::Fresh | State::Dead => 7,
        State::Listening => 10,
        State::Connecting => 2,
        State::Connected if s.ended.get() => 8,
        State::Connected if s.shut.get() & super::SHUT_SEND != 0 => 5,
        State::Connected => 1,
    }
}
