//! Counts as a person reads them.

/// `1 entry`, `1,234 entries`.
pub fn entries(count: u64) -> String {
    match count {
        1 => "1 entry".into(),
        n => format!("{} entries", number(n)),
    }
}

/// `once`, `12 times`.
pub fn times(count: u64) -> String {
    match count {
        1 => "once".into(),
        n => format!("{} times", number(n)),
    }
}

/// `1 step`, `12 steps`.
pub fn plural(count: u64, what: &str) -> String {
    let s = if count == 1 { "" } else { "s" };
    format!("{} {what}{s}", number(count))
}

/// `1,234,567`.
pub fn number(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// `12 KB`.
pub fn bytes(n: u64) -> String {
    match n {
        0..10_000 => plural(n, "byte"),
        10_000..10_000_000 => format!("{} KB", number(n / 1000)),
        _ => format!("{} MB", number(n / 1_000_000)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_readable() {
        assert_eq!([0, 999, 1000, 1_234_567].map(number), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([1, 12_345, 12_345_678].map(bytes), ["1 byte", "12 KB", "12 MB"]);
        assert_eq!((times(1), times(2)), ("once".into(), "2 times".into()));
    }
}
