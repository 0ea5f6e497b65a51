//! The names of the signals that `skein signal` sends.

/// The kernel's names, from 1.
const NAMES: [&str; 31] = [
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2",
    "PIPE", "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG",
    "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
];
/// The first and the last real-time signal that programs may use.
const REALTIME: (u8, u8) = (34, 64);

/// The number of a signal that is given by name or number.
pub fn parse(text: &str) -> Result<u8, String> {
    let upper = text.to_ascii_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    let offset = |rest: &str| if rest.is_empty() { Some(0) } else { rest[1..].parse::<u8>().ok() };
    let number = if let Ok(number) = name.parse::<u8>() {
        Some(number)
    } else if let Some(at) = NAMES.iter().position(|known| *known == name) {
        Some(at as u8 + 1)
    } else if let Some(rest) =
        name.strip_prefix("RTMIN").filter(|r| r.is_empty() || r.starts_with('+'))
    {
        offset(rest).and_then(|n| REALTIME.0.checked_add(n))
    } else if let Some(rest) =
        name.strip_prefix("RTMAX").filter(|r| r.is_empty() || r.starts_with('-'))
    {
        offset(rest).and_then(|n| REALTIME.1.checked_sub(n)).filter(|n| *n >= REALTIME.0)
    } else {
        None
    };
    match number {
        Some(9) => Err("nothing can take it; 'skein stop' ends the cluster".into()),
        // A server has no terminal, so nothing would happen, as in Linux when no process could continue it.
        Some(20..=22) => Err("it is a terminal's, which a server has not; give STOP".into()),
        Some(31..=33 | 63) => Err("it is not for programs; give another".into()),
        Some(number @ 1..=64) => Ok(number),
        _ => Err(
            "there is no such signal; give a name like SIGHUP or USR1, or a number from 1 to 64"
                .into(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers() {
        for (text, number) in [
            ("SIGHUP", 1),
            ("hup", 1),
            ("USR1", 10),
            ("sigterm", 15),
            ("28", 28),
            ("STOP", 19),
            ("RTMIN", 34),
            ("SIGRTMIN+3", 37),
            ("RTMAX-2", 62),
        ] {
            assert_eq!(parse(text), Ok(number), "{text}");
        }
        for bad in [
            "", "SIG", "FOO", "0", "65", "KILL", "9", "TSTP", "SYS", "63", "RTMAX-40", "RTMIN+",
            "RTMINx", "-1",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        assert!(parse("KILL").unwrap_err().contains("skein stop"));
    }
}
