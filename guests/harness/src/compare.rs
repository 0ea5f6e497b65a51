//! Compares runs and reports the first difference.

use skein_model::OutFrame;

/// How many lines of each side a report shows.
const SHOWN: usize = 6;

/// The lines around the first difference of two texts, as `-`/`+` lines; `None` when they are equal.
#[must_use]
pub fn text(what: &str, left: (&str, &[u8]), right: (&str, &[u8])) -> Option<String> {
    if left.1 == right.1 {
        return None;
    }
    let lines = |bytes: &[u8]| -> Vec<String> {
        String::from_utf8_lossy(bytes).lines().map(str::to_owned).collect()
    };
    Some(sequences(what, (left.0, &lines(left.1)), (right.0, &lines(right.1))))
}

/// The first difference of two runs' frames; `None` when they are equal.
#[must_use]
pub fn frames(left: (&str, &[Vec<u8>]), right: (&str, &[Vec<u8>])) -> Option<String> {
    if left.1 == right.1 {
        return None;
    }
    let words = |frames: &[Vec<u8>]| -> Vec<String> {
        let describe = |bytes: &Vec<u8>| match OutFrame::parse(bytes) {
            Ok(Some((OutFrame::Send { conn, bytes }, _))) => {
                format!("Send {conn} {:?}", String::from_utf8_lossy(bytes))
            }
            Ok(Some((frame, _))) => format!("{frame:?}"),
            other => format!("{other:?}"),
        };
        frames.iter().map(describe).collect()
    };
    Some(sequences("output frames", (left.0, &words(left.1)), (right.0, &words(right.1))))
}

fn sequences(what: &str, left: (&str, &[String]), right: (&str, &[String])) -> String {
    let same = left.1.iter().zip(right.1).take_while(|(a, b)| a == b).count();
    let mut report =
        format!("{what} differ from line {} on ({} -, {} +)", same + 1, left.0, right.0);
    for (sign, lines) in [('-', left.1), ('+', right.1)] {
        for line in lines.iter().skip(same).take(SHOWN) {
            report += &format!("\n    {sign} {line:.160}");
        }
        if lines.len() <= same {
            report += &format!("\n    {sign} (ends)");
        }
    }
    report
}

/// Where two files differ first.
#[must_use]
pub fn bytes(left: &[u8], right: &[u8]) -> Option<usize> {
    let common = left.iter().zip(right).position(|(a, b)| a != b);
    common.or((left.len() != right.len()).then_some(left.len().min(right.len())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_shown_from_its_first_line_on() {
        assert_eq!(text("stdout", ("a", b"x\ny\n"), ("b", b"x\ny\n")), None);
        let report = text("stdout", ("native", b"x\ny\nz\n"), ("skein", b"x\nw\n")).unwrap();
        assert_eq!(
            report,
            "stdout differ from line 2 on (native -, skein +)\n    - y\n    - z\n    + w"
        );
        let report = text("stdout", ("native", b"x\n"), ("skein", b"")).unwrap();
        assert!(report.ends_with("- x\n    + (ends)"), "{report}");
    }
}
