//! What a user or a kernel wrote, inside a message of ours: a message is one line. It must not know any message.

/// Most characters of a word that [`shown`] keeps: they hold every schemata line of a two-socket server.
const MOST: usize = 60;

/// A text in one line: control characters are escaped.
pub fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for letter in text.chars() {
        if letter.is_control() { line.extend(letter.escape_default()) } else { line.push(letter) }
    }
    line
}

/// A word that was refused, in one line: its first characters if it is long.
pub fn shown(word: &str) -> String {
    match word.char_indices().nth(MOST) {
        Some((end, _)) => one_line(&word[..end]) + "…",
        None => one_line(word),
    }
}

/// The first of many names, in one line.
pub fn few(names: &[String]) -> String {
    const MOST: usize = 6;
    let first = names[..names.len().min(MOST)].join(", ");
    if names.len() > MOST { format!("{first} and {} more", names.len() - MOST) } else { first }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_is_one_line_and_short() {
        assert_eq!(shown("0-3,8"), "0-3,8");
        assert_eq!(shown("a\nb\u{7}é"), "a\\nb\\u{7}é");
        assert_eq!(shown(&"é".repeat(61)), "é".repeat(60) + "…");
        assert_eq!(one_line(&"x\r".repeat(100)), "x\\r".repeat(100));
        let names: Vec<String> = (1..=8).map(|number| format!("COS{number}")).collect();
        assert_eq!(few(&names[..2]), "COS1, COS2");
        assert_eq!(few(&names), "COS1, COS2, COS3, COS4, COS5, COS6 and 2 more");
    }
}
