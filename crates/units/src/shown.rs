//! What a user, a file or a kernel wrote, inside a text of ours: in one line, not too long, and without characters that a
//! terminal obeys. It must not know any message.

use std::borrow::Cow;

/// Most characters of a word that [`shown`] keeps: they hold every schemata line of a two-socket server.
const MOST: usize = 60;
/// Most characters between two quotes of a [`message`], and of a word; of more it keeps the first [`KEPT`]. Assumption: the
/// longest command or list that we quote has 150, and a path rarely a thousand.
const QUOTE_MOST: usize = 200;
const WORD_MOST: usize = 1000;
const KEPT: usize = 120;
/// Most characters of a [`message`], of which a longer one keeps the first and the last. Assumption: lists of what is
/// accepted have up to two thousand.
const MESSAGE_MOST: usize = 4000;
const MESSAGE_FIRST: usize = 2500;
const MESSAGE_LAST: usize = 1000;

/// True for a character that is obeyed and not shown: control characters, and those of Unicode that turn the direction of
/// writing or have no width. Joiners stay: scripts and emoji need them.
fn is_obeyed(letter: char) -> bool {
    letter.is_control()
        || matches!(letter,
            '\u{61c}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// A text in one line: characters that are obeyed are escaped.
pub fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for letter in text.chars() {
        if is_obeyed(letter) { line.extend(letter.escape_default()) } else { line.push(letter) }
    }
    line
}

/// A text for a table, whose columns have a width: each character that is obeyed becomes `?`.
pub fn printable(text: &str) -> String {
    text.chars().map(|letter| if is_obeyed(letter) { '?' } else { letter }).collect()
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

/// An error or a note in one line of bounded length, whatever it repeats of a file: long quotes and words are shortened, and
/// what is still too long lacks its middle. Its end, which says what is accepted, stays.
pub fn message(text: &str) -> String {
    let text = one_line(text);
    let (mut line, mut rest) = (String::new(), text.as_str());
    while let Some(start) = rest.find(['`', '"']) {
        let (before, quote) = rest.split_at(start);
        let mark = &quote[..1];
        let Some(length) = quote[1..].find(mark) else { break };
        let quoted = beginning(&quote[1..=length], QUOTE_MOST);
        line.extend([before, mark, &quoted, mark]);
        rest = &quote[length + 2..];
    }
    line.push_str(rest);
    let words: Vec<_> = line.split(' ').map(|word| beginning(word, WORD_MOST)).collect();
    let line = words.join(" ");
    let length = line.chars().count();
    if length <= MESSAGE_MOST {
        return line;
    }
    let (first, last) = (line.chars().take(MESSAGE_FIRST), line.chars().skip(length - MESSAGE_LAST));
    first.chain(" … ".chars()).chain(last).collect()
}

/// A text, or the first characters of one that has more than `most`.
fn beginning(text: &str, most: usize) -> Cow<'_, str> {
    match text.chars().nth(most) {
        Some(_) => text.chars().take(KEPT).chain(['…']).collect::<String>().into(),
        None => text.into(),
    }
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

    #[test]
    fn what_turns_or_hides_a_text_is_not_obeyed() {
        // A right-to-left override, the end of an isolate, a byte order mark, an escape, a tag.
        let text = "a\u{202e}b\u{2069}c\u{feff}d\u{1b}[31me\u{e0041}";
        assert_eq!(printable(text), "a?b?c?d?[31me?");
        assert_eq!(one_line(text), "a\\u{202e}b\\u{2069}c\\u{feff}d\\u{1b}[31me\\u{e0041}");
        let others = "é 中文 עברית 👩\u{200d}🔬 \u{a0}|";
        assert_eq!((printable(others), one_line(others)), (others.to_owned(), others.to_owned()));
    }

    #[test]
    fn a_message_keeps_its_beginning_and_what_is_accepted() {
        assert_eq!(message("`a` is not\na key"), "`a` is not\\na key");
        let long = format!("w.toml:3: `{}` is no size, like `4k`", "é".repeat(200_000));
        assert_eq!(message(&long), format!("w.toml:3: `{}…` is no size, like `4k`", "é".repeat(120)));
        let quote = format!("try `{}`", "x".repeat(200));
        assert_eq!(message(&quote), quote);
        let other = format!("`k` is \"{}\"; it must be \"a\"", "x".repeat(200_000));
        assert_eq!(message(&other), format!("`k` is \"{}…\"; it must be \"a\"", "x".repeat(120)));
        let word = format!("no {}, and a single \" quote", "x".repeat(200_000));
        assert_eq!(message(&word), format!("no {}… and a single \" quote", "x".repeat(120)));
        // Nothing says where this value ends.
        let long = message(&format!("begin {} end", "x ".repeat(100_000)));
        assert_eq!(long.chars().count(), 2500 + 3 + 1000);
        assert!(long.starts_with("begin x x") && long.contains(" … ") && long.ends_with("x x  end"));
        let fits = "x ".repeat(2000);
        assert_eq!(message(&fits), fits);
    }
}
