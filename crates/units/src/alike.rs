//! The known word most like a mistyped one, for the hint "did you mean". It must not know any message.

/// How similar two words are, from 0 to 1. A hint with a word that is not similar enough would mislead; the limits are
/// our choice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Likeness {
    /// 1 minus the number of edits over the longer length; similar from 0.4 on.
    Edits,
    /// Jaro's measure; similar above 0.7.
    Jaro,
    /// Jaro's measure, higher for words that begin alike; similar above 0.7.
    JaroWinkler,
}

impl Likeness {
    fn of(self, a: &str, b: &str) -> f64 {
        match self {
            Likeness::Edits => strsim::normalized_damerau_levenshtein(a, b),
            Likeness::Jaro => strsim::jaro(a, b),
            Likeness::JaroWinkler => strsim::jaro_winkler(a, b),
        }
    }

    /// Whether words of these lengths can be similar. Comparing a word takes time in proportion to its length and to that of
    /// each known one, and a file of a user may have one of a mebibyte.
    fn fits(self, a: &str, b: &str) -> bool {
        let (a, b) = (a.chars().count(), b.chars().count());
        let ratio = a.min(b) as f64 / a.max(b).max(1) as f64;
        let most = match self {
            // There are at least as many edits as the lengths differ.
            Likeness::Edits => ratio,
            // The three terms of Jaro's mean are at most 1, 1 and the ratio. Winkler's part is added only above 0.7.
            Likeness::Jaro | Likeness::JaroWinkler => (2.0 + ratio) / 3.0,
        };
        self.is_similar(most)
    }

    fn is_similar(self, likeness: f64) -> bool {
        match self {
            Likeness::Edits => likeness >= 0.4,
            Likeness::Jaro | Likeness::JaroWinkler => likeness > 0.7,
        }
    }
}

/// The word of `known` most like `word`, if it is similar; the last one of equals.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>, by: Likeness) -> Option<&'a str> {
    let known = known.into_iter().filter(|candidate| by.fits(word, candidate));
    most_alike(word, known, by).filter(|(_, likeness)| by.is_similar(*likeness)).map(|(near, _)| near)
}

/// The word of `known` most like `word`, and how similar it is; the last one of equals.
pub fn most_alike<'a>(
    word: &str,
    known: impl IntoIterator<Item = &'a str>,
    by: Likeness,
) -> Option<(&'a str, f64)> {
    let all = known.into_iter().map(|candidate| (candidate, by.of(word, candidate)));
    all.max_by(|a, b| a.1.total_cmp(&b.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_named_only_if_it_is_similar() {
        let known = ["default", "isolate", "a4", "iat"];
        assert_eq!(nearest("defualt", known, Likeness::Edits), Some("default"));
        assert_eq!(nearest("qqqqqqqq", known, Likeness::Edits), None);
        // Three edits of five letters are 0.4, four are 0.2.
        assert_eq!(nearest("abxyz", ["abcde"], Likeness::Edits), Some("abcde"));
        assert_eq!(nearest("axyzv", ["abcde"], Likeness::Edits), None);
        // Of five letters two are there, 0.4, and of six 0.33.
        assert_eq!(nearest("ab", ["abcdef", "abcde"], Likeness::Edits), Some("abcde"));
        assert_eq!(nearest("abcde", ["ab"], Likeness::Edits), Some("ab"));
        assert_eq!(nearest("abcdef", ["ab"], Likeness::Edits), None);
        // Eleven letters of one kind and one: Jaro is (1/11 + 1 + 1) / 3 = 0.697, too little; with nine it is 0.704.
        assert_eq!(nearest("aaaaaaaaaaa", ["a"], Likeness::JaroWinkler), None);
        assert_eq!(nearest("aaaaaaaaa", ["a"], Likeness::JaroWinkler), Some("a"));
        // One of two letters: Jaro is (1/2 + 1/2 + 1) / 3 = 0.667, too little.
        assert_eq!(nearest("ab", ["ac"], Likeness::Jaro), None);
        assert_eq!(most_alike("ab", ["ac"], Likeness::Jaro).map(|(near, _)| near), Some("ac"));
    }

    #[test]
    fn the_last_of_equals_is_named() {
        assert_eq!(nearest("a4-e", ["a4-a", "a4-b", "a4"], Likeness::Edits), Some("a4-b"));
        assert_eq!(nearest("a", [], Likeness::Jaro), None);
    }
}
