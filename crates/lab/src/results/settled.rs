//! When a policy settled: its last knob change, after which all knobs stayed as they were.
//!
//! A policy may change knobs briefly and undo that (A4's Revert sets the first masks for one interval): such an
//! excursion, which ends in the state in which it began, does not count. Must not know what a knob is, only whether two
//! states of all knobs are equal.

/// Number of intervals for which the knobs must not change (a choice of ours: A4 waits ten between two reverts).
const STANDS_FROM: f64 = 5.0;

/// An excursion of at most so many intervals is momentary (ours: A4's take one).
const MOMENTARY: f64 = 3.0;

/// Tolerance in counting intervals: their ends are sums of decimal fractions.
const SLACK: f64 = 1e-6;

/// The knobs' states over a run, each with the time at which it began.
#[derive(Clone, Debug)]
pub struct KnobHistory<K> {
    spans: Vec<Span<K>>,
}

/// A state of the knobs and the time at which it began.
#[derive(Clone, Debug)]
struct Span<K> {
    from_s: f64,
    knobs: K,
    /// The policy caused it, not an external change.
    turned: bool,
}

impl<K> Default for KnobHistory<K> {
    fn default() -> KnobHistory<K> {
        KnobHistory { spans: Vec::new() }
    }
}

impl<K: PartialEq + Clone> KnobHistory<K> {
    /// Adds the knobs' state from `at_s` on; `turned` says whether the policy set one then.
    pub fn push(&mut self, at_s: f64, knobs: &K, turned: bool) {
        match self.spans.last() {
            Some(last) if last.knobs == *knobs => {}
            _ => self.spans.push(Span { from_s: at_s, knobs: knobs.clone(), turned }),
        }
    }

    /// Time of the policy's last knob change after which the state lasted five intervals. None if there is none.
    pub fn settled_s(&self, end_s: f64, interval_s: f64) -> Option<f64> {
        let from = |index: usize| self.spans.get(index).map_or(end_s, |span| span.from_s);
        let intervals = |from_s: f64, to_s: f64| (to_s - from_s) / interval_s;
        let mut settled = None;
        let mut at = 0;
        while let Some(span) = self.spans.get(at) {
            // The state includes every excursion that ends in it.
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

    /// Knobs are letters; capitals are set by the policy. Ten intervals of 1 s each are ten letters.
    fn settled(states: &str) -> Option<f64> {
        let mut knob_history = KnobHistory::default();
        for (at, state) in states.chars().enumerate() {
            knob_history.push(at as f64, &state.to_ascii_lowercase(), state.is_ascii_uppercase());
        }
        knob_history.settled_s(states.len() as f64, 1.0)
    }

    #[test]
    fn the_last_state_that_stood_counts() {
        assert_eq!(settled("aaaaaaaaaa"), None, "nothing was turned");
        assert_eq!(settled("Aaaaa"), Some(0.0));
        assert_eq!(settled("Aaaa"), None, "four intervals are no rest");
        assert_eq!(settled("aBCDdddd"), Some(3.0));
        assert_eq!(settled("ABbbbbbCcc"), Some(1.0), "what came too late to stand does not undo it");
        assert_eq!(settled("Abbbbbb"), None, "another program turned it");
    }

    #[test]
    fn momentary_excursions_do_not_count_and_longer_ones_do() {
        // B from 1 on; excursions of one interval at 4 and of three at 7.
        assert_eq!(settled("ABbbCBbCDEBbbb"), Some(1.0));
        // An excursion of four intervals counts: the state before it lasts three, the one after it five.
        assert_eq!(settled("ABbbCcccBbbbb"), Some(8.0));
        assert_eq!(settled("ABbbCcccBbb"), None);
    }
}
