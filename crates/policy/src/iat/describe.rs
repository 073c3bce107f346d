//! IAT's text for `waykeeper policy describe`. Decides nothing.

use super::config::Config;
use crate::Description;
use crate::describe::{StateDescription, lines};

/// The description with `config`.
pub(super) fn describe(config: &Config) -> Description {
    Description {
        name: "iat".to_owned(),
        idea: "DDIO's hits and misses show whether devices or cores need ways; IAT gives them one way at a \
               time and lets the best-effort tenants with the fewest LLC references share ways with devices."
            .to_owned(),
        source: "IAT: Don't Forget the I/O When Allocating Your LLC, ISCA 2021, s4-s5".to_owned(),
        inputs: lines(&[
            "priority, kind, stack flag and first mask of each tenant",
            "instructions and cycles per tenant (IPC)",
            "LLC hits and misses per tenant (references and misses)",
            "DDIO hits and misses, chip-wide (device writes that updated or allocated)",
            "the DDIO ways, read back",
        ]),
        knobs: lines(&["way mask per tenant", "DDIO ways"]),
        settings: config.describe(),
        states: STATES.iter().map(|(name, meaning)| StateDescription::new(name, meaning)).collect(),
        deviations: lines(DEVIATIONS),
    }
}

const STATES: &[(&str, &str)] = &[
    (
        "LowKeep",
        "I/O does not press the LLC and no mask changes; ends in CoreDemand (3) or IODemand (1) when DDIO \
         misses exceed threshold_miss_low",
    ),
    (
        "IODemand",
        "DDIO gains a way per interval; ends when its misses fall severely (6 Reclaim), its hits fall (7 \
         CoreDemand) or it has ddio_ways_max (10 HighKeep)",
    ),
    (
        "CoreDemand",
        "the stack or the I/O tenant with the greatest need gains a way per interval; ends when DDIO misses \
         fall (8 Reclaim) or rise without fewer hits (4 IODemand)",
    ),
    (
        "HighKeep",
        "DDIO has ddio_ways_max and no mask changes; ends as IODemand does (11 Reclaim, 12 CoreDemand)",
    ),
    (
        "Reclaim",
        "a tenant or DDIO gives back a way per interval; ends when DDIO misses rise again (5 IODemand, 9 \
         CoreDemand) or no way is left to take (2 LowKeep)",
    ),
];

/// Where this IAT differs from the paper or fills a gap in it.
const DEVIATIONS: &[&str] = &[
    "changes count in either direction, against the larger of the last value and a floor; s4.B speaks of an \
     increment, but Reclaim needs falls",
    "an interval without changes in the counters changes no mask, so growth without effect stops by itself",
    "a severe fall of DDIO misses is one to threshold_miss_low or to severe_fall of their number on entering \
     the state (s4.C gives no size); a bare 3 % would make IODemand and Reclaim alternate",
    "in Reclaim a rise of DDIO misses counts only if they also exceed threshold_miss_low",
    "Reclaim ends in LowKeep only when no tenant is above its grant either",
    "the fewest DDIO ways are the larger of ddio_ways_min and ddio_ways_floor",
    "tenants declared with overlapping masks form one slot and share its ways; s5 shares none, s6 does",
    "tenants declared without a mask share the ways outside DDIO's in proportion to their cores",
    "skip case 2 gives one way per interval to the tenant whose LLC miss ratio rose most, until its misses \
     stop falling or are back at their old level (s4.B leaves the mechanism open)",
    "in LowKeep, with DDIO misses below threshold_miss_low, the stack gains ways likewise: in s6.B it gains \
     ways when its flow table grows, which causes fewer DDIO hits and hardly any misses",
    "without ddio_sizing, changes of DDIO counts do not end skip case 2, because the states cannot give ways",
    "skip case 3: if no shuffle is needed, the state machine decides at once; after a shuffle it decides in \
     the next interval",
    "CoreDemand ranks I/O tenants by the relative rise of LLC misses, ties by miss ratio, then PC before BE",
    "if the idle pool is empty, a tenant whose LLC misses rose by threshold_stable takes a way from the \
     best-effort tenant with the fewest LLC references that is above its grant; no tenant falls below its \
     grant",
    "Reclaim takes first from tenants above their grant whose LLC references fell since their last growth, the \
     stack before others, then from DDIO",
    "a shuffle moves as few tenants as possible: slots that need not overlap DDIO keep their order, so that \
     the manual change of s6.B at 15 s affects the grown tenant as in the paper",
    "a best-effort tenant gives its overlap to another only if that one has fewer LLC references by \
     threshold_stable",
    "DDIO ways that another program sets are followed from the next interval on",
    "when a tenant starts or ends, all ways return to the grants and the state stays",
    "a missing counter causes no decision: an event without numbers counts as unchanged, and without DDIO \
     misses the state stays",
    "IAT does not consider the inclusive ways, as in the paper",
    "guarded mode only: a reclaim followed by a demand of I/O or cores is not repeated for guard_intervals, \
     longer each time",
    "the interval is the control loop's (s4.E: 1 s); hits and misses are those of the whole chip, where s5 \
     multiplies those of one slice",
];
