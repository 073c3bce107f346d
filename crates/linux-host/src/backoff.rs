//! When something that failed is tried again: after twice the rounds of the last pause, at most about a minute.
//!
//! A round is one call of `LinuxHost::set_tenants`, once an interval. Arithmetic only; must not know what failed.

/// Longest pause, in rounds: about a minute at intervals of 1 s. Assumption: another tool's group or lock that lasts
/// longer does not need a shorter pause.
pub(super) const MOST_ROUNDS: u64 = 64;

/// The pause after a failure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Backoff {
    /// Rounds between the last try and the next.
    gap: u64,
    /// The round of the next try.
    again: u64,
}

impl Backoff {
    /// A failure in `round`, after the pause that an earlier one caused.
    pub fn after(before: Option<Backoff>, round: u64) -> Backoff {
        let gap = before.map_or(1, |before| (before.gap * 2).min(MOST_ROUNDS));
        Backoff { gap, again: round + gap }
    }

    /// Whether the pause lasts in `round`.
    pub fn waits(self, round: u64) -> bool {
        round < self.again
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_minute_of_seconds() {
        let mut backoff = None;
        let tried: Vec<u64> = (1..=200)
            .filter(|round| {
                let due = backoff.is_none_or(|own: Backoff| !own.waits(*round));
                if due {
                    backoff = Some(Backoff::after(backoff, *round));
                }
                due
            })
            .collect();
        // 1, then 1, 2, 4, ... rounds later, at most 64: 1 + 1 + 2 + 4 + 8 + 16 + 32 = 64, then 64 more each.
        assert_eq!(tried, [1, 2, 4, 8, 16, 32, 64, 128, 192]);
    }
}
