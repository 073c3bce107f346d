//! Plain lists: aligned columns without borders, and `key  value` pages. Must not know their content.

use std::fmt::Write;
use waykeeper_units::printable;

/// Rows of cells with aligned columns; the last column is not padded. The first row is the heading. Cells may come from a
/// file or a host: characters that a terminal obeys are replaced.
pub fn columns(rows: &[Vec<String>]) -> String {
    let rows: Vec<Vec<String>> =
        rows.iter().map(|row| row.iter().map(|cell| printable(cell)).collect()).collect();
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width =
        |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|c| c.chars().count()).max();
    let widths: Vec<usize> = (0..count).map(|column| width(column).unwrap_or(0)).collect();
    let mut out = String::new();
    for row in &rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            let _ = write!(line, "{cell:<width$}  ");
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// Names and values, one pair per line.
pub fn facts(facts: &[(&str, String)]) -> String {
    let rows: Vec<Vec<String>> =
        facts.iter().map(|(name, value)| vec![(*name).to_owned(), value.clone()]).collect();
    columns(&rows)
}

/// The text, or a dash for an empty one.
pub fn or_dash(text: &str) -> String {
    if text.is_empty() { "-".to_owned() } else { text.to_owned() }
}

/// A count in groups of three digits: 12 345 678.
pub fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let first = digits.len() % 3;
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && index % 3 == first {
            out.push(' ');
        }
        out.push(digit);
    }
    out
}

/// A number of bytes in a suitable unit.
pub fn bytes(count: u64) -> String {
    match count {
        0..=9_999 => format!("{count} B"),
        10_000..=9_999_999 => format!("{:.1} KiB", count as f64 / 1024.0),
        _ => format!("{:.1} MiB", count as f64 / (1024.0 * 1024.0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_end_without_blanks() {
        let rows = [["name", "about"], ["a", ""], ["longer", "x"]].map(|row| row.map(str::to_owned).to_vec());
        assert_eq!(columns(&rows), "name    about\na\nlonger  x\n");
    }

    #[test]
    fn a_cell_does_not_turn_its_line() {
        let rows = [["name"], ["\u{202e}evil\u{1b}[2J"]].map(|row| row.map(str::to_owned).to_vec());
        assert_eq!(columns(&rows), "name\n?evil?[2J\n");
    }

    #[test]
    fn counts_are_grouped_by_three() {
        assert_eq!([0, 999, 1_000, 12_345_678].map(grouped), ["0", "999", "1 000", "12 345 678"]);
    }
}
