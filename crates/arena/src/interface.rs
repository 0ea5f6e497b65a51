//! The number of what a node and a runtime have in common, which a runtime's file carries: a node may drive the runtime of another version of Skein.
//!
//! It stands for the layout of the arena and of the rings' frames, the restore file ([`crate::restore`]), the descriptors and variables that a server is started
//! with, and what the supervisor's init and the runtime say to each other. Whoever changes any of these incompatibly raises [`INTERFACE`]; whoever can still
//! drive the runtimes of before leaves [`OLDEST_INTERFACE`].

/// What a runtime of this version has.
pub const INTERFACE: u32 = 1;
/// The oldest that nodes of this version drive.
pub const OLDEST_INTERFACE: u32 = 1;

/// What stands before the digits in a runtime's file.
pub const NAME: [u8; 27] = *b"\0Skein runtime, interface \0";
const DIGITS: usize = 4;
/// The length of [`mark`].
pub const MARK_BYTES: usize = NAME.len() + DIGITS;

/// What a runtime has in its file.
#[must_use]
pub const fn mark() -> [u8; MARK_BYTES] {
    let mut mark = [0; MARK_BYTES];
    let mut at = 0;
    while at < NAME.len() {
        mark[at] = NAME[at];
        at += 1;
    }
    let mut rest = INTERFACE;
    at = MARK_BYTES;
    while at > NAME.len() {
        at -= 1;
        mark[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    mark
}

/// The number behind [`NAME`].
#[must_use]
pub fn number(digits: &[u8]) -> Option<u32> {
    let digits = digits.get(..DIGITS)?;
    digits.iter().try_fold(0, |number, digit| {
        digit.is_ascii_digit().then(|| number * 10 + u32::from(digit - b'0'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_has_its_number() {
        let mark = mark();
        assert!(mark.starts_with(&NAME));
        assert_eq!(number(&mark[NAME.len()..]), Some(INTERFACE));
        assert_eq!(number(b"12"), None);
        assert_eq!(number(b"00x1"), None);
        assert_eq!(number(b"0120"), Some(120));
    }
}
