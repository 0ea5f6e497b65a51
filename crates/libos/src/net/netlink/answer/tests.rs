//! Requests and their answers, message by message.

use super::*;
use skein_model::Interface;

/// A request: its kind, its flags beside `NLM_F_REQUEST`, its body.
fn question(kind: u16, flags: i32, body: &[u8]) -> Vec<u8> {
    let mut bytes = ((HEADER + body.len()) as u32).to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(((flags | NLM_F_REQUEST) as u16).to_ne_bytes());
    bytes.extend(7u32.to_ne_bytes());
    bytes.extend([0; 4]);
    bytes.extend(body);
    bytes.resize(bytes.len().next_multiple_of(ALIGN), 0);
    bytes
}

/// A family, and zeros up to the length of the body of such a request.
fn of_family(family: i32, len: usize) -> Vec<u8> {
    let mut body = vec![0; len];
    body[0] = family as u8;
    body
}

/// The kinds of the answering messages, one list a datagram, and all bytes.
fn ask_with(bytes: &[u8], rules: Rules) -> (Vec<Vec<u16>>, Vec<u8>) {
    let given = Interface { address: [10, 0, 0, 5], bits: 24 };
    let (mut kinds, mut seen) = (Vec::new(), Vec::new());
    all(bytes, 99, rules, Interfaces::of(given), |datagram| {
        let (mut of_one, mut rest) = (Vec::new(), datagram);
        while let Some(len) = word(rest, 0) {
            of_one.push(half(rest, 4).unwrap());
            assert_eq!((word(rest, 8), word(rest, 12)), (Some(7), Some(99)));
            rest = &rest[(len as usize).next_multiple_of(ALIGN)..];
        }
        kinds.push(of_one);
        seen.extend(datagram);
    });
    (kinds, seen)
}

fn ask(bytes: &[u8]) -> Vec<Vec<u16>> {
    ask_with(bytes, Rules::default()).0
}

/// The error that answers a request.
fn error(bytes: &[u8]) -> i32 {
    let (kinds, seen) = ask_with(bytes, Rules::default());
    assert_eq!(kinds, [[NLMSG_ERROR as u16]]);
    -(word(&seen, HEADER).unwrap() as i32)
}

const DONE: u16 = NLMSG_DONE as u16;

#[test]
fn all_interfaces_and_their_addresses_are_told() {
    let links = question(RTM_GETLINK, NLM_F_DUMP, &of_family(0, 16));
    let (kinds, seen) = ask_with(&links, Rules::default());
    assert_eq!(kinds, [vec![RTM_NEWLINK; 2], vec![DONE]]);
    for name in [&b"lo\0"[..], b"eth0\0"] {
        assert!(seen.windows(name.len()).any(|part| part == name));
    }
    let addresses = question(RTM_GETADDR, NLM_F_DUMP, &of_family(0, 8));
    assert_eq!(ask(&addresses), [vec![RTM_NEWADDR; 3], vec![DONE]]);
    let v4 = question(RTM_GETADDR, NLM_F_DUMP, &of_family(AF_INET, 8));
    let (kinds, seen) = ask_with(&v4, Rules::default());
    assert_eq!(kinds, [vec![RTM_NEWADDR; 2], vec![DONE]]);
    assert!(seen.windows(4).any(|part| part == [10, 0, 0, 255]), "the broadcast address");
}

#[test]
fn a_strict_question_chooses_by_the_interface() {
    let mut body = of_family(AF_INET, 8);
    body[4] = 2;
    let bytes = question(RTM_GETADDR, NLM_F_DUMP, &body);
    assert_eq!(ask(&bytes)[0].len(), 2);
    let strict = Rules { strict: true, ..Rules::default() };
    assert_eq!(ask_with(&bytes, strict).0[0].len(), 1);
}

#[test]
fn one_link_is_found_by_its_number_or_name() {
    let number = |index: u32| {
        let mut body = of_family(0, 16);
        body[4..8].copy_from_slice(&index.to_ne_bytes());
        question(RTM_GETLINK, 0, &body)
    };
    assert_eq!(ask(&number(2)), [[RTM_NEWLINK]]);
    assert_eq!(error(&number(3)), abi::ENODEV);
    assert_eq!(error(&number(0)), abi::EINVAL);
    let mut body = of_family(0, 16);
    body.extend(9u16.to_ne_bytes());
    body.extend(abi::IFLA_IFNAME.to_ne_bytes());
    body.extend(b"eth0\0");
    assert_eq!(ask(&question(RTM_GETLINK, 0, &body)), [[RTM_NEWLINK]]);
}

#[test]
fn a_route_is_found_for_what_is_near() {
    let to = |ip: [u8; 4]| {
        let mut body = of_family(AF_INET, 12);
        body.extend(8u16.to_ne_bytes());
        body.extend(abi::RTA_DST.to_ne_bytes());
        body.extend(ip);
        question(RTM_GETROUTE, 0, &body)
    };
    assert_eq!(ask(&to([10, 0, 0, 77])), [[RTM_NEWROUTE]]);
    assert_eq!(error(&to([8, 8, 8, 8])), abi::ENETUNREACH);
    let every = question(RTM_GETROUTE, NLM_F_DUMP, &of_family(AF_INET, 12));
    assert_eq!(ask(&every)[0], [RTM_NEWROUTE; 6]);
}

#[test]
fn nothing_is_changed() {
    assert_eq!(error(&question(RTM_NEWLINK, 0, &of_family(0, 16))), abi::EPERM);
    assert_eq!(error(&question(RTM_MAX + 1, 0, &of_family(0, 16))), abi::EOPNOTSUPP);
    assert_eq!(ask(&question(RTM_GETNEIGH, NLM_F_DUMP, &of_family(0, 12))), [[DONE]]);
}

#[test]
fn torn_questions_and_cut_errors() {
    let whole = question(RTM_NEWLINK, 0, &of_family(0, 16));
    for len in 0..whole.len() {
        assert_eq!(ask(&whole[..len]), [[0u16; 0]; 0], "{len} bytes");
    }
    let long = ask_with(&whole, Rules::default()).1.len();
    let capped = Rules { capped: true, ..Rules::default() };
    assert_eq!(ask_with(&whole, capped).1.len(), long - 16);
}
