//! IAT's page: idea, inputs, knobs, states and deviations, in words. Decides nothing.

use super::config::Config;
use crate::Description;
use crate::describe::{StateDescription, lines};

/// The description with `config`.
pub(super) fn describe(config: &Config) -> Description {
    Description {
        name: "iat".to_owned(),
        idea: "Find out from DDIO's hits and misses whether devices or cores need ways, give them one at a time, \
               and let the best-effort tenants with the fewest LLC references share with devices."
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
        "I/O does not press the LLC and nothing moves; left to CoreDemand (3) or IODemand (1) when DDIO misses \
         exceed threshold_miss_low",
    ),
    (
        "IODemand",
        "DDIO gains a way an interval; left when its misses fall severely (6 Reclaim), its hits fall (7 \
         CoreDemand) or it has ddio_ways_max (10 HighKeep)",
    ),
    (
        "CoreDemand",
        "the stack or the neediest I/O tenant gains a way an interval; left when DDIO misses fall (8 Reclaim) or \
         rise without fewer hits (4 IODemand)",
    ),
    (
        "HighKeep",
        "DDIO has all it may have and nothing moves; left as IODemand is (11 Reclaim, 12 CoreDemand)",
    ),
    (
        "Reclaim",
        "a way an interval comes back from a tenant or DDIO; left when DDIO misses rise again (5 IODemand, 9 \
         CoreDemand) or nothing is left to take (2 LowKeep)",
    ),
];

/// What differs from the paper, or settles what it leaves open.
const DEVIATIONS: &[&str] = &[
    "changes count in either direction, against the larger of the last value and a floor; s4.B speaks of an \
     increment, but Reclaim needs falls",
    "an interval in which nothing changed moves nothing, so growth without effect stops by itself",
    "a severe fall of DDIO misses is one to threshold_miss_low or to severe_fall of their number on entering \
     the state (s4.C gives no size); a bare 3 % would make IODemand and Reclaim alternate",
    "Reclaim takes a rise of DDIO misses for meaningful when they also exceed threshold_miss_low",
    "Reclaim ends in LowKeep only when no tenant is above its grant either",
    "the fewest DDIO ways are the larger of ddio_ways_min and ddio_ways_floor",
    "tenants declared with overlapping masks form one slot and share its ways; s5 shares none, s6 does",
    "tenants declared without a mask divide the ways beside DDIO's by cores",
    "skip case 2 feeds, one way an interval, the tenant whose LLC miss ratio rose most, until its misses stop \
     falling or are back where they were (s4.B leaves the mechanism open)",
    "in LowKeep, with DDIO misses below threshold_miss_low, the same is done for the stack: s6.B feeds it when its flow \
     table grows, which brings fewer DDIO hits and hardly a miss",
    "without ddio_sizing changes of DDIO counts do not end skip case 2: the states have nothing to give",
    "skip case 3: when there is nothing to shuffle the states are asked at once; after a shuffle the next \
     interval goes to the states",
    "CoreDemand ranks I/O tenants by the relative rise of LLC misses, ties by miss ratio, then PC before BE",
    "with the idle pool empty, growth takes from the best-effort tenant with the fewest LLC references that is \
     above its grant, for a tenant whose LLC misses rose by threshold_stable; nobody goes below its grant",
    "Reclaim takes first from tenants above their grant whose LLC references fell since their last growth, the \
     stack before others, then from DDIO",
    "a shuffle moves only whom it must: slots that need not overlap DDIO keep their order, which makes the hand \
     change of s6.B at 15 s meet the grown tenant as it does in the paper",
    "a best-effort tenant gives its overlap to another only if that one has fewer LLC references by \
     threshold_stable",
    "DDIO ways that somebody else sets are followed from the next interval on",
    "when tenants come or go, ways start from the grants again and the state stays",
    "a reading that is missing makes no decision: an event without numbers did not change, and without DDIO \
     misses the state stays",
    "the inclusive ways are unknown to it, as they are to the paper",
    "guarded mode only: a reclaim that a demand of I/O or cores follows is not repeated for guard_intervals, longer each time",
    "the interval is the control loop's (s4.E: 1 s); hits and misses are those of the whole chip, where s5 \
     multiplies those of one slice",
];
