//! Numbers and tables for people: as text on the terminal and as Markdown in the documents.

use std::fmt::Write as _;

use crate::stats::Spread;

/// A median, or a dash.
pub fn cell(spread: Option<Spread>, digits: usize) -> String {
    spread.map_or("-".to_owned(), |spread| number(spread.median, digits))
}

/// A median with the least and the most, or a dash.
pub fn wide(spread: Option<Spread>, digits: usize) -> String {
    spread.map_or("-".to_owned(), |spread| {
        let [median, min, max] =
            [spread.median, spread.min, spread.max].map(|value| number(value, digits));
        if min == max { median } else { format!("{median} ({min} to {max})") }
    })
}

/// A number for people: thousands apart, no -0.
pub fn number(value: f64, digits: usize) -> String {
    let plain = format!("{value:.digits$}");
    let (sign, plain) = plain.strip_prefix('-').map_or(("", plain.as_str()), |rest| ("-", rest));
    let sign = if plain.bytes().any(|digit| (b'1'..=b'9').contains(&digit)) { sign } else { "" };
    let (whole, rest) = plain.split_at(plain.find('.').unwrap_or(plain.len()));
    let mut spaced = String::new();
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            spaced.push(',');
        }
        spaced.push(digit);
    }
    format!("{sign}{spaced}{rest}")
}

/// A table that reads well as text and as Markdown; the first row is its head.
pub fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0).max(3)).collect();
    let mut text = String::new();
    for (number, row) in rows.iter().enumerate() {
        for (cell, width) in row.iter().zip(&widths) {
            let _ = write!(text, "| {cell:<width$} ");
        }
        text.push_str("|\n");
        if number == 0 {
            for width in &widths {
                let _ = write!(text, "|-{:-<width$}-", "");
            }
            text.push_str("|\n");
        }
    }
    text
}

/// Puts `new` between the marks; nothing when one is missing.
pub fn replace_between(text: &str, begin: &str, end: &str, new: &str) -> Option<String> {
    let from = text.find(begin)? + begin.len();
    let to = from + text[from..].find(end)?;
    Some(format!("{}\n{}{}", &text[..from], new.trim_start_matches('\n'), &text[to..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_for_people() {
        assert_eq!(number(1_234_567.8, 0), "1,234,568");
        assert_eq!(number(-0.4, 0), "0");
        assert_eq!(number(-1_000.25, 1), "-1,000.2");
        assert_eq!(number(0.5, 2), "0.50");
    }

    #[test]
    fn only_what_is_between_the_marks_is_replaced() {
        let text = "a\n<b>\nold\n<e>\nz\n";
        let new = replace_between(text, "<b>", "<e>", "\nnew\n").expect("both marks");
        assert_eq!(new, "a\n<b>\nnew\n<e>\nz\n");
        assert_eq!(replace_between(&new, "<b>", "<e>", "\nnew\n").as_deref(), Some(new.as_str()));
        assert_eq!(replace_between("a", "<b>", "<e>", ""), None);
    }
}
