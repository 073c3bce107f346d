//! The mark of each name that is shown: a colour and a letter.
//!
//! No two names of one picture have the same mark. Up to [`COLOURS`] names have a colour each, up to 62 a letter each, so
//! that readers who cannot distinguish the colours, and screens without colours, distinguish them too. Must not know what
//! a name means or how a mark is drawn.

use std::collections::BTreeMap;

/// How many colours there are. Each palette has as many.
pub const COLOURS: u8 = 12;

/// A colour and a letter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mark {
    /// Index into a palette, below [`COLOURS`].
    pub colour: u8,
    /// One of `A` to `Z`, `a` to `z`, `0` to `9`.
    pub letter: char,
}

/// The marks of the names that are shown. A name keeps its mark as long as it is shown.
#[derive(Clone, Debug, Default)]
pub struct Marks(BTreeMap<String, Mark>);

impl Marks {
    /// The marks of these names.
    pub fn of(names: impl IntoIterator<Item = String>) -> Marks {
        let mut marks = Marks::default();
        marks.show(names);
        marks
    }

    /// Takes the names that are shown now. A new one gets a mark that no other has; those that are gone lose theirs.
    pub fn show(&mut self, names: impl IntoIterator<Item = String>) {
        let mut before = std::mem::take(&mut self.0);
        let mut new = Vec::new();
        for name in names {
            match before.remove_entry(&name) {
                Some((name, mark)) => _ = self.0.insert(name, mark),
                None => new.push(name),
            }
        }
        // The order in which names are listed must not decide: two views of one host may list them differently.
        new.sort_unstable();
        for name in new {
            if !self.0.contains_key(&name) {
                let mark = self.free(&name);
                self.0.insert(name, mark);
            }
        }
    }

    /// The mark of a name that is shown.
    pub fn get(&self, name: &str) -> Option<Mark> {
        self.0.get(name).copied()
    }

    /// A mark that no name has. After 744 names there is none, and a pair of colour and letter is used again.
    fn free(&self, name: &str) -> Mark {
        let uses = |colour: u8| self.0.values().filter(|mark| mark.colour == colour).count();
        let first = (fnv(name) % u32::from(COLOURS)) as u8;
        let from_first = (0..COLOURS).map(|offset| (first + offset) % COLOURS);
        // Of the colours with equally few names, the first one.
        let colour = from_first.min_by_key(|colour| uses(*colour)).unwrap_or(first);
        let is_taken = |letter: &char| self.0.values().any(|mark| mark.letter == *letter);
        let is_pair = |letter: &char| self.0.values().any(|mark| *mark == Mark { colour, letter: *letter });
        let letter = letters(name).find(|letter| !is_taken(letter));
        let letter = letter.or_else(|| letters(name).find(|letter| !is_pair(letter)));
        Mark { colour, letter: letter.unwrap_or('A') }
    }
}

/// The letters for a name, the best first: the initials of its words, its other letters, then all.
fn letters(name: &str) -> impl Iterator<Item = char> {
    let words = name.split(|letter: char| !letter.is_ascii_alphanumeric());
    let initials = words.filter_map(|word| word.chars().next());
    let own = name.chars().filter(char::is_ascii_alphanumeric);
    let all = ('A'..='Z').chain('a'..='z').chain('0'..='9');
    initials.chain(own).map(|letter| letter.to_ascii_uppercase()).chain(all)
}

/// The hash FNV-1a (32 bits), which gives a name the same colour in every view.
fn fnv(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn numbered(count: usize) -> Vec<String> {
        (0..count).map(|number| format!("tenant-{number}")).collect()
    }

    #[test]
    fn no_two_names_have_the_same_mark() {
        for count in [1, 12, 13, 62, 63, 512] {
            let names = numbered(count);
            let marks = Marks::of(names.clone());
            let all: Vec<Mark> = names.iter().map(|name| marks.get(name).unwrap()).collect();
            let pairs: BTreeSet<(u8, char)> = all.iter().map(|mark| (mark.colour, mark.letter)).collect();
            assert_eq!(pairs.len(), count);
            let letters: BTreeSet<char> = all.iter().map(|mark| mark.letter).collect();
            assert_eq!(letters.len(), count.min(62));
            let colours: BTreeSet<u8> = all.iter().map(|mark| mark.colour).collect();
            assert_eq!(colours.len(), count.min(usize::from(COLOURS)));
        }
    }

    #[test]
    fn a_letter_comes_from_the_name_where_it_can() {
        let names = ["redis-server", "redis-client", "fastclick", "ffsb-heavy"].map(str::to_owned);
        let marks = Marks::of(names.clone());
        // In alphabetical order: fastclick takes F, ffsb-heavy its second initial, redis-client R, redis-server S.
        let letters = names.map(|name| marks.get(&name).unwrap().letter);
        assert_eq!(letters, ['S', 'R', 'F', 'H']);
        assert_eq!(Marks::of(["-".to_owned()]).get("-").unwrap().letter, 'A');
    }

    #[test]
    fn a_name_keeps_its_mark_while_others_come_and_go_and_the_order_does_not_matter() {
        let mut marks = Marks::of(numbered(20));
        let kept = marks.get("tenant-7").unwrap();
        marks.show(numbered(40));
        assert_eq!(marks.get("tenant-7").unwrap(), kept);
        marks.show(["tenant-7".to_owned(), "another".to_owned()]);
        assert_eq!(marks.get("tenant-7").unwrap(), kept);
        assert_eq!(marks.get("tenant-8"), None);
        let turned = Marks::of(numbered(30).into_iter().rev());
        assert_eq!(turned.0, Marks::of(numbered(30)).0);
    }
}
