//! Questions of `NETLINK_ROUTE` and their answers, as Linux's rtnetlink gives them for the interfaces that the server sees.
//!
//! | request | answer |
//! |---|---|
//! | `RTM_GETLINK` | all interfaces, or the one of a number or name |
//! | `RTM_GETADDR` | all addresses, those of a family, or (`IPv6`) one |
//! | `RTM_GETROUTE` | the routes that follow from the addresses, or the one to a destination |
//! | `RTM_GETNEIGH` | that there are no neighbours |
//! | other `RTM_GET*` | `EOPNOTSUPP` |
//! | everything else | `EPERM` |

use crate::abi::{
    self, AF_BRIDGE, AF_INET, AF_INET6, NLM_F_ACK, NLM_F_DUMP, NLM_F_MULTI, NLM_F_REQUEST,
    NLMSG_DONE, NLMSG_ERROR, RTM_GETADDR, RTM_GETLINK, RTM_GETNEIGH, RTM_GETROUTE, RTM_NEWADDR,
    RTM_NEWLINK, RTM_NEWROUTE,
};
use crate::errno::{Errno, Result, fail};
use crate::net::interface::{Face, Interfaces, LOOPBACK_INDEX, QUEUE_LEN};

/// Bytes of a message's header; lengths are rounded up to a multiple of four.
const HEADER: usize = 16;
const ALIGN: usize = 4;
/// More than the longest answer: each interface takes less than 512 bytes, an address or a route less than 100.
const ROOM: usize = 8192;

/// The first message about routing, and the last that Linux may have.
const RTM_BASE: u16 = 16;
const RTM_MAX: u16 = 127;
/// The third of each four messages about a subject is the request.
const ASKS: u16 = 2;
const NLM_F_CAPPED: u16 = 0x100;
const RTM_F_CLONED: u32 = 0x200;
const RTM_F_LOOKUP_TABLE: u32 = 0x1000;
const IFF_LOWER_UP: u32 = 1 << 16;
/// `operstate`: not known (of a loopback interface), up.
const IF_OPER: [u8; 2] = [0, 6];
const IFA_F_PERMANENT: u8 = 0x80;
/// `struct rtnl_link_stats64` and `struct rtnl_link_stats` of Linux 5.16.
const STATS64_BYTES: usize = 25 * 8;
const STATS_BYTES: usize = 24 * 4;
const FOR_EVER: u32 = u32::MAX;
/// The metric of IPv6 routes of the kernel's own.
const METRIC_V6: u32 = 256;

/// `::1`.
const LOOPBACK_V6: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];

// Attributes and values that libc does not name for this target.
const IFLA_EXT: Link =
    Link { promiscuity: 30, tx_queues: 31, rx_queues: 32, carrier: 33, group: 27, alt_name: 53 };
struct Link {
    promiscuity: u16,
    tx_queues: u16,
    rx_queues: u16,
    carrier: u16,
    group: u16,
    alt_name: u16,
}
const IFA_FLAGS: u16 = 8;

/// One request.
struct Request<'a> {
    kind: u16,
    flags: u16,
    seq: u32,
    /// The port id of the requesting socket.
    id: u32,
    /// The server's interfaces.
    interfaces: Interfaces,
    /// With its header.
    whole: &'a [u8],
    /// Behind the header.
    body: &'a [u8],
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

impl<'a> Request<'a> {
    /// The first one in `bytes`.
    fn first(bytes: &'a [u8], id: u32, interfaces: Interfaces) -> Option<Self> {
        let whole = bytes.get(..word(bytes, 0)? as usize)?;
        Some(Self {
            kind: half(whole, 4)?,
            flags: half(whole, 6)?,
            seq: word(whole, 8)?,
            id,
            interfaces,
            body: whole.get(HEADER..)?,
            whole,
        })
    }

    fn is_for_all(&self) -> bool {
        self.flags & NLM_F_DUMP as u16 == NLM_F_DUMP as u16
    }

    fn family(&self) -> i32 {
        self.body.first().map_or(0, |family| i32::from(*family))
    }

    /// The data of an attribute behind `skip` bytes of the body.
    fn attribute(&self, skip: usize, kind: u16) -> Option<&'a [u8]> {
        let mut rest = self.body.get(skip..)?;
        loop {
            let len = usize::from(half(rest, 0)?);
            let data = rest.get(4..len)?;
            if half(rest, 2)? & 0x3fff == kind {
                return Some(data);
            }
            rest = rest.get(len.next_multiple_of(ALIGN)..)?;
        }
    }
}

/// Messages under construction.
struct Reply {
    bytes: [u8; ROOM],
    used: usize,
}

impl Reply {
    const fn new() -> Self {
        Self { bytes: [0; ROOM], used: 0 }
    }

    fn put(&mut self, bytes: &[u8]) {
        self.bytes[self.used..self.used + bytes.len()].copy_from_slice(bytes);
        self.used += bytes.len().next_multiple_of(ALIGN);
    }

    /// Adds a message: `body`, then what `more` adds.
    fn message(
        &mut self,
        to: &Request<'_>,
        (kind, flags): (u16, u16),
        body: &[u8],
        more: impl FnOnce(&mut Self),
    ) {
        let start = self.used;
        self.put(&[0; 4]);
        self.put(&(u32::from(flags) << 16 | u32::from(kind)).to_ne_bytes());
        self.put(&to.seq.to_ne_bytes());
        self.put(&to.id.to_ne_bytes());
        self.put(body);
        more(self);
        let len = (self.used - start) as u32;
        self.bytes[start..start + 4].copy_from_slice(&len.to_ne_bytes());
    }

    fn attribute(&mut self, kind: u16, data: &[u8]) {
        self.put(&((4 + data.len()) as u32 | u32::from(kind) << 16).to_ne_bytes());
        self.put(data);
    }

    fn number(&mut self, kind: u16, value: u32) {
        self.attribute(kind, &value.to_ne_bytes());
    }

    fn text(&mut self, kind: u16, text: &core::ffi::CStr) {
        self.attribute(kind, text.to_bytes_with_nul());
    }
}

/// Options of a socket that change its answers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rules {
    /// Fields of a request beside its family select, too (`NETLINK_GET_STRICT_CHK`).
    pub strict: bool,
    /// An error's message has only the header of the request (`NETLINK_CAP_ACK`).
    pub capped: bool,
}

/// Answers all requests in `bytes`, which the socket with port id `id` sends: `deliver` gets one datagram after the other. Answers whether all
/// interfaces were requested.
pub fn all(
    mut bytes: &[u8],
    id: u32,
    rules: Rules,
    interfaces: Interfaces,
    mut deliver: impl FnMut(&[u8]),
) -> bool {
    let mut listed = false;
    while let Some(request) = Request::first(bytes, id, interfaces) {
        let mut reply = Reply::new();
        let about = if request.flags & NLM_F_REQUEST as u16 == 0 || request.kind < RTM_BASE {
            Ok(())
        } else {
            listed |= request.kind == RTM_GETLINK && request.is_for_all();
            ask(&request, rules.strict, &mut reply)
        };
        if reply.used > 0 {
            deliver(&reply.bytes[..reply.used]);
        }
        let mut last = Reply::new();
        match about {
            Ok(()) if request.is_for_all() && request.kind >= RTM_BASE => {
                let kind = (NLMSG_DONE as u16, NLM_F_MULTI as u16);
                last.message(&request, kind, &0i32.to_ne_bytes(), |_| ());
            }
            Ok(()) if request.flags & NLM_F_ACK as u16 == 0 => {}
            outcome => {
                let Errno(errno) = outcome.err().unwrap_or(Errno(0));
                let capped = errno == 0 || rules.capped;
                let flags = if capped { NLM_F_CAPPED } else { 0 };
                let asked = if capped { &request.whole[..HEADER] } else { request.whole };
                let kind = (NLMSG_ERROR as u16, flags);
                last.message(&request, kind, &(-errno).to_ne_bytes(), |reply| reply.put(asked));
            }
        }
        if last.used > 0 {
            deliver(&last.bytes[..last.used]);
        }
        bytes = &bytes[request.whole.len().next_multiple_of(ALIGN).min(bytes.len())..];
    }
    listed
}

/// Answers one request. With `strict`, fields beside its family select, too.
fn ask(request: &Request<'_>, strict: bool, reply: &mut Reply) -> Result<()> {
    if request.kind > RTM_MAX {
        return fail(abi::EOPNOTSUPP);
    }
    if request.body.is_empty() {
        // As in Linux: no answer.
        return Ok(());
    }
    if (request.kind - RTM_BASE) & 3 != ASKS {
        return fail(abi::EPERM);
    }
    match (request.kind, request.is_for_all()) {
        (RTM_GETLINK, true) => {
            if request.family() != AF_BRIDGE {
                request.interfaces.all().for_each(|face| put_link(reply, request, face));
            }
            Ok(())
        }
        (RTM_GETLINK, false) => {
            put_link(reply, request, one_link(request)?);
            Ok(())
        }
        (RTM_GETADDR, every) => addresses(request, every, strict, reply),
        (RTM_GETROUTE, true) => {
            // The table.
            let wanted = if strict { request.body.get(4).copied().unwrap_or(0) } else { 0 };
            for route in routes(request.interfaces) {
                if of_family(request, route.family()) && (wanted == 0 || wanted == route.table) {
                    put_route(reply, request, &route);
                }
            }
            Ok(())
        }
        (RTM_GETROUTE, false) => way(request, reply),
        (RTM_GETNEIGH, true) => Ok(()),
        _ => fail(abi::EOPNOTSUPP),
    }
}

/// Whether `family` was requested.
fn of_family(request: &Request<'_>, family: i32) -> bool {
    let wanted = request.family();
    wanted == family || !matches!(wanted, AF_INET | AF_INET6)
}

const fn flags_of(request: &Request<'_>) -> u16 {
    if request.flags & NLM_F_DUMP as u16 == NLM_F_DUMP as u16 { NLM_F_MULTI as u16 } else { 0 }
}

fn one_link(request: &Request<'_>) -> Result<Face> {
    let index = word(request.body, 4).filter(|_| request.body.len() >= HEADER);
    let Some(index) = index else { return fail(abi::EINVAL) };
    let name = request
        .attribute(HEADER, abi::IFLA_IFNAME)
        .or_else(|| request.attribute(HEADER, IFLA_EXT.alt_name));
    let found = match (index, name) {
        (0, None) => return fail(abi::EINVAL),
        (0, Some(name)) => {
            let name = name.split(|b| *b == 0).next().unwrap_or_default();
            request.interfaces.all().find(|face| face.name.to_bytes() == name)
        }
        _ => request.interfaces.all().find(|face| face.index == index),
    };
    found.map_or(fail(abi::ENODEV), Ok)
}

fn put_link(reply: &mut Reply, to: &Request<'_>, face: Face) {
    let (hardware, address) = face.hardware;
    let up = !face.is_loopback();
    // struct ifinfomsg: the family, the kind, the number, flags, which of them have changed.
    let mut body = [0; 16];
    body[2..4].copy_from_slice(&hardware.to_ne_bytes());
    body[4..8].copy_from_slice(&face.index.to_ne_bytes());
    body[8..12].copy_from_slice(&(face.flags as u32 | IFF_LOWER_UP).to_ne_bytes());
    reply.message(to, (RTM_NEWLINK, flags_of(to)), &body, |r| {
        r.text(abi::IFLA_IFNAME, face.name);
        r.number(abi::IFLA_TXQLEN, QUEUE_LEN as u32);
        r.attribute(abi::IFLA_OPERSTATE, &[IF_OPER[usize::from(up)]]);
        r.attribute(abi::IFLA_LINKMODE, &[0]);
        r.number(abi::IFLA_MTU, face.mtu_bytes as u32);
        r.number(IFLA_EXT.group, 0);
        r.number(IFLA_EXT.promiscuity, 0);
        r.number(IFLA_EXT.tx_queues, 1);
        r.number(IFLA_EXT.rx_queues, 1);
        r.attribute(IFLA_EXT.carrier, &[1]);
        r.text(abi::IFLA_QDISC, c"noqueue");
        r.attribute(abi::IFLA_ADDRESS, &address);
        r.attribute(abi::IFLA_BROADCAST, &if up { [0xff; 6] } else { [0; 6] });
        r.attribute(abi::IFLA_STATS64, &[0; STATS64_BYTES]);
        r.attribute(abi::IFLA_STATS, &[0; STATS_BYTES]);
    });
}

fn addresses(request: &Request<'_>, every: bool, strict: bool, reply: &mut Reply) -> Result<()> {
    if !every {
        // Linux has no such request for IPv4.
        if request.family() != AF_INET6 {
            return fail(abi::EOPNOTSUPP);
        }
        let wanted = request.attribute(8, abi::IFA_ADDRESS);
        return match wanted.or_else(|| request.attribute(8, abi::IFA_LOCAL)) {
            None => fail(abi::EINVAL),
            Some(wanted) if wanted == LOOPBACK_V6 => {
                put_loopback_v6(reply, request);
                Ok(())
            }
            Some(_) => fail(abi::EADDRNOTAVAIL),
        };
    }
    let wanted = if strict { word(request.body, 4).unwrap_or(0) } else { 0 };
    let is_wanted = |face: &Face| wanted == 0 || wanted == face.index;
    if of_family(request, AF_INET) {
        for face in request.interfaces.all().filter(is_wanted) {
            put_address(reply, request, face);
        }
    }
    if of_family(request, AF_INET6) && request.interfaces.all().take(1).any(|face| is_wanted(&face))
    {
        put_loopback_v6(reply, request);
    }
    Ok(())
}

/// `struct ifaddrmsg`.
fn address_body(family: i32, bits: u8, scope: u8, index: u32) -> [u8; 8] {
    let mut body = [family as u8, bits, IFA_F_PERMANENT, scope, 0, 0, 0, 0];
    body[4..].copy_from_slice(&index.to_ne_bytes());
    body
}

/// `struct ifa_cacheinfo`: valid for ever, since the interface was there.
fn put_validity(r: &mut Reply) {
    let mut info = [0; 16];
    info[..8].copy_from_slice([FOR_EVER; 2].map(u32::to_ne_bytes).as_flattened());
    r.attribute(abi::IFA_CACHEINFO, &info);
}

fn put_address(reply: &mut Reply, to: &Request<'_>, face: Face) {
    let scope = if face.is_loopback() { abi::RT_SCOPE_HOST } else { abi::RT_SCOPE_UNIVERSE };
    let body = address_body(AF_INET, face.bits(), scope, face.index);
    reply.message(to, (RTM_NEWADDR, flags_of(to)), &body, |r| {
        r.attribute(abi::IFA_ADDRESS, &face.address);
        r.attribute(abi::IFA_LOCAL, &face.address);
        if !face.is_loopback() {
            r.attribute(abi::IFA_BROADCAST, &face.broadcast);
        }
        r.text(abi::IFA_LABEL, face.name);
        r.number(IFA_FLAGS, u32::from(IFA_F_PERMANENT));
        put_validity(r);
    });
}

fn put_loopback_v6(reply: &mut Reply, to: &Request<'_>) {
    let index = LOOPBACK_INDEX;
    let body = address_body(AF_INET6, 128, abi::RT_SCOPE_HOST, index);
    reply.message(to, (RTM_NEWADDR, flags_of(to)), &body, |r| {
        r.attribute(abi::IFA_ADDRESS, &LOOPBACK_V6);
        put_validity(r);
        r.number(IFA_FLAGS, u32::from(IFA_F_PERMANENT));
    });
}

/// A route that the kernel makes.
struct Route {
    /// An address of IPv4 has its last 4 bytes.
    to: [u8; 16],
    v6: bool,
    bits: u8,
    table: u8,
    scope: u8,
    kind: u8,
    /// The source address of packets to that IPv4 destination.
    source: Option<[u8; 4]>,
    index: u32,
}

impl Route {
    const fn family(&self) -> i32 {
        if self.v6 { AF_INET6 } else { AF_INET }
    }

    fn destination(&self) -> &[u8] {
        if self.v6 { &self.to } else { &self.to[12..] }
    }
}

/// All routes: those of the table of IPv4's networks, of its own addresses, then of IPv6.
fn routes(interfaces: Interfaces) -> impl Iterator<Item = Route> {
    use crate::abi::{
        RT_SCOPE_HOST, RT_SCOPE_LINK, RT_SCOPE_UNIVERSE, RT_TABLE_LOCAL, RT_TABLE_MAIN,
        RTN_BROADCAST, RTN_LOCAL, RTN_UNICAST,
    };
    let v4 = |face: Face, ip: [u8; 4], bits, (table, scope, kind)| {
        let mut to = [0; 16];
        to[12..].copy_from_slice(&ip);
        let source = Some(face.address);
        Route { to, v6: false, bits, table, scope, kind, source, index: face.index }
    };
    let v6 = |table, kind| Route {
        to: LOOPBACK_V6,
        v6: true,
        bits: 128,
        table,
        scope: RT_SCOPE_UNIVERSE,
        kind,
        source: None,
        index: LOOPBACK_INDEX,
    };
    let networks = interfaces.all().map(move |face| {
        let how = if face.is_loopback() {
            (RT_TABLE_LOCAL, RT_SCOPE_HOST, RTN_LOCAL)
        } else {
            (RT_TABLE_MAIN, RT_SCOPE_LINK, RTN_UNICAST)
        };
        v4(face, face.network(), face.bits(), how)
    });
    let own = interfaces.all().flat_map(move |face| {
        [
            v4(face, face.address, 32, (RT_TABLE_LOCAL, RT_SCOPE_HOST, RTN_LOCAL)),
            v4(face, face.last(), 32, (RT_TABLE_LOCAL, RT_SCOPE_LINK, RTN_BROADCAST)),
        ]
    });
    networks.chain(own).chain([v6(RT_TABLE_MAIN, RTN_UNICAST), v6(RT_TABLE_LOCAL, RTN_LOCAL)])
}

/// `struct rtmsg` and what follows in any case.
fn put_route(reply: &mut Reply, to: &Request<'_>, route: &Route) {
    let family = route.family() as u8;
    let protocol = abi::RTPROT_KERNEL;
    let body =
        [family, route.bits, 0, 0, route.table, protocol, route.scope, route.kind, 0, 0, 0, 0];
    reply.message(to, (RTM_NEWROUTE, flags_of(to)), &body, |r| {
        r.number(abi::RTA_TABLE, u32::from(route.table));
        r.attribute(abi::RTA_DST, route.destination());
        if route.v6 {
            let local = route.kind == abi::RTN_LOCAL;
            r.number(abi::RTA_PRIORITY, if local { 0 } else { METRIC_V6 });
        }
        if let Some(source) = route.source {
            r.attribute(abi::RTA_PREFSRC, &source);
        }
        r.number(abi::RTA_OIF, route.index);
    });
}

/// The route to one destination: what is the machine's own goes by the loopback interface.
fn way(request: &Request<'_>, reply: &mut Reply) -> Result<()> {
    /// Bytes of `struct rtmsg`.
    const BODY: usize = 12;
    if request.body.len() < BODY {
        return fail(abi::EINVAL);
    }
    let wanted = request.attribute(BODY, abi::RTA_DST);
    let (family, found) = match request.family() {
        AF_INET => {
            let ip = match wanted {
                None => [127, 0, 0, 1],
                Some(ip) => <[u8; 4]>::try_from(ip).map_err(|_| Errno(abi::EINVAL))?,
            };
            let within = |face: &Face| {
                let masked = |ip: [u8; 4]| u32::from_ne_bytes(ip) & u32::from_ne_bytes(face.mask);
                masked(ip) == masked(face.address)
            };
            let own = request.interfaces.all().find(|face| face.address == ip);
            (AF_INET, own.or_else(|| request.interfaces.all().find(within)).map(|face| (face, ip)))
        }
        AF_INET6 => {
            if wanted.is_some_and(|ip| ip != LOOPBACK_V6) {
                return fail(abi::ENETUNREACH);
            }
            (AF_INET6, request.interfaces.all().next().map(|face| (face, [0; 4])))
        }
        _ => return fail(abi::EOPNOTSUPP),
    };
    let Some((face, ip)) = found else { return fail(abi::ENETUNREACH) };
    let local = face.is_loopback() || face.address == ip;
    let v6 = family == AF_INET6;
    let kind = if local { abi::RTN_LOCAL } else { abi::RTN_UNICAST };
    // For IPv4 Linux names the table on request.
    let named = v6 || word(request.body, 8).is_some_and(|flags| flags & RTM_F_LOOKUP_TABLE != 0);
    let table = if local && named { abi::RT_TABLE_LOCAL } else { abi::RT_TABLE_MAIN };
    let mut body = [0; BODY];
    body[..8].copy_from_slice(&[family as u8, if v6 { 128 } else { 32 }, 0, 0, table, 0, 0, kind]);
    body[8..].copy_from_slice(&RTM_F_CLONED.to_ne_bytes());
    let index = if local { LOOPBACK_INDEX } else { face.index };
    reply.message(request, (RTM_NEWROUTE, 0), &body, |r| {
        r.number(abi::RTA_TABLE, u32::from(table));
        r.attribute(abi::RTA_DST, if v6 { &LOOPBACK_V6 } else { &ip });
        r.number(abi::RTA_OIF, index);
        let source: &[u8] = if v6 {
            &LOOPBACK_V6
        } else if face.is_loopback() && ip != face.address {
            // Every address of the loopback network is its own source.
            &ip
        } else {
            &face.address
        };
        r.attribute(abi::RTA_PREFSRC, source);
    });
    Ok(())
}

#[cfg(test)]
mod tests;
