//! Numbers within bytes that the server gives: addresses, options, control messages.

/// The 32-bit number at `at`, in the machine's order.
pub fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(array(bytes, at))
}

/// The 16-bit number at `at`, in the machine's order.
pub fn half(bytes: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes(array(bytes, at))
}

/// The `N` bytes at `at`, which are there.
pub fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("as many bytes")
}
