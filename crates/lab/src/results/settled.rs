//! When a policy came to rest: the last moment it turned a knob and then let all of them stand.
//!
//! Policies look away for a moment now and then (A4's Revert goes back to the first masks for one interval): such an
//! excursion, which ends where it began, does not count. Must not know what a knob is, only whether two states of
//! all of them are the same.

/// For so many intervals the knobs must stand (a choice of ours: A4 waits ten between two looks).
const STANDS_FROM: f64 = 5.0;

/// An excursion that takes no longer than so many intervals is momentary (ours: A4's take one).
const MOMENTARY: f64 = 3.0;

/// Intervals are counted with so much slack: their ends are sums of decimal fractions.
const SLACK: f64 = 1e-6;

/// The knobs' states over a run, each with the moment it began.
#[derive(Clone, Debug)]
pub struct Standing<K> {
    spans: Vec<Span<K>>,
}

/// From when the knobs stood so.
#[derive(Clone, Debug)]
struct Span<K> {
    from_s: f64,
    knobs: K,
    /// The policy brought it about, not somebody else.
    turned: bool,
}

impl<K> Default for Standing<K> {
    fn default() -> Standing<K> {
        Standing { spans: Vec::new() }
    }
}

impl<K: PartialEq + Clone> Standing<K> {
    /// From `at_s` on the knobs read like this; `turned` says whether the policy turned one then.
    pub fn push(&mut self, at_s: f64, knobs: &K, turned: bool) {
        match self.spans.last() {
            Some(last) if last.knobs == *knobs => {}
            _ => self.spans.push(Span { from_s: at_s, knobs: knobs.clone(), turned }),
        }
    }

    /// When the last of the knobs was turned that then stood for five intervals. None if that never happened.
    pub fn settled_s(&self, end_s: f64, interval_s: f64) -> Option<f64> {
        let from = |index: usize| self.spans.get(index).map_or(end_s, |span| span.from_s);
        let intervals = |from_s: f64, to_s: f64| (to_s - from_s) / interval_s;
        let mut settled = None;
        let mut at = 0;
        while let Some(span) = self.spans.get(at) {
            // The state stands on through every excursion that comes back to it.
            let mut last = at;
            while let Some(back) = (last + 2..self.spans.len())
                .take_while(|back| intervals(from(last + 1), from(*back)) <= MOMENTARY + SLACK)
                .find(|back| self.spans[*back].knobs == span.knobs)
            {
                last = back;
            }
            if span.turned && intervals(span.from_s, from(last + 1)) >= STANDS_FROM - SLACK {
                settled = Some(span.from_s);
            }
            at = last + 1;
        }
        settled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Knobs are letters; capitals are turned by the policy. Ten intervals of 1 s each are ten letters.
    fn settled(states: &str) -> Option<f64> {
        let mut standing = Standing::default();
        for (at, state) in states.chars().enumerate() {
            standing.push(at as f64, &state.to_ascii_lowercase(), state.is_ascii_uppercase());
        }
        standing.settled_s(states.len() as f64, 1.0)
    }

    #[test]
    fn the_last_state_that_stood_counts() {
        assert_eq!(settled("aaaaaaaaaa"), None, "nothing was turned");
        assert_eq!(settled("Aaaaa"), Some(0.0));
        assert_eq!(settled("Aaaa"), None, "four intervals are no rest");
        assert_eq!(settled("aBCDdddd"), Some(3.0));
        assert_eq!(settled("ABbbbbbCcc"), Some(1.0), "what came too late to stand does not undo it");
        assert_eq!(settled("Abbbbbb"), None, "somebody else turned it");
    }

    #[test]
    fn momentary_excursions_do_not_count_and_longer_ones_do() {
        // B from 1 on; away for one interval at 4 and for three at 7, and back each time.
        assert_eq!(settled("ABbbCBbCDEBbbb"), Some(1.0));
        // Away for four intervals: the state before stood for three, the one after for five.
        assert_eq!(settled("ABbbCcccBbbbb"), Some(8.0));
        assert_eq!(settled("ABbbCcccBbb"), None);
    }
}
