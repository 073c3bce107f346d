//! The five states and twelve numbered transitions of Fig. 6 (IAT s4.C, algorithms.md 2.4).
//!
//! A pure function of the counters' changes: it must not know masks and takes no action.

use super::poll::Trend;

/// The states of Fig. 6.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// I/O does not need more of the LLC.
    LowKeep,
    /// I/O needs more ways than DDIO has.
    IoDemand,
    /// Cores evict the receive buffers.
    CoreDemand,
    /// DDIO has its maximum of ways.
    HighKeep,
    /// I/O is not intensive and ways are probably wasted.
    Reclaim,
}

impl State {
    /// The paper's name.
    pub fn name(self) -> &'static str {
        match self {
            State::LowKeep => "LowKeep",
            State::IoDemand => "IODemand",
            State::CoreDemand => "CoreDemand",
            State::HighKeep => "HighKeep",
            State::Reclaim => "Reclaim",
        }
    }
}

/// Inputs of the transitions.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Signals {
    /// DDIO misses per second.
    pub misses: f64,
    /// Their trend.
    pub misses_trend: Trend,
    /// Trend of DDIO hits.
    pub hits_trend: Trend,
    /// Trend of the LLC references of all tenants.
    pub refs_trend: Trend,
    /// THRESHOLD_MISS_LOW.
    pub miss_low: f64,
    /// DDIO misses at or below this are a severe fall, besides `miss_low`.
    pub severe_fall: f64,
    /// DDIO ways.
    pub ways: u32,
    /// Fewest DDIO ways.
    pub ways_min: u32,
    /// Most DDIO ways.
    pub ways_max: u32,
    /// Whether any tenant holds ways beyond its first grant.
    pub tenant_above_grant: bool,
}

/// A transition: its number in Fig. 6, its target and its reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Edge {
    /// 1 to 12.
    pub number: u8,
    /// The state it leads to.
    pub to: State,
    /// The reason, for messages.
    pub why: &'static str,
}

/// The transition out of `state`; `None` is its self loop.
pub(super) fn next(state: State, seen: &Signals) -> Option<Edge> {
    let many = seen.misses > seen.miss_low;
    let fell_severely = !many || seen.misses <= seen.severe_fall;
    let fewer_hits = seen.hits_trend == Trend::Down;
    let (up, down) = (seen.misses_trend == Trend::Up, seen.misses_trend == Trend::Down);
    let edge = |number, to, why| Some(Edge { number, to, why });
    match state {
        State::LowKeep if many && fewer_hits && seen.refs_trend == Trend::Up => edge(
            3,
            State::CoreDemand,
            "many DDIO misses, fewer hits and more LLC references: cores evict buffers",
        ),
        State::LowKeep if many => edge(1, State::IoDemand, "many DDIO misses: I/O outgrows its ways"),
        State::IoDemand if fell_severely => {
            edge(6, State::Reclaim, "DDIO misses fell severely: its ways are more than it needs")
        }
        State::IoDemand if fewer_hits && !down => {
            edge(7, State::CoreDemand, "fewer DDIO hits and no fewer misses: cores compete")
        }
        State::IoDemand if seen.ways >= seen.ways_max => {
            edge(10, State::HighKeep, "DDIO has the most ways it may have")
        }
        State::CoreDemand if down => edge(8, State::Reclaim, "DDIO misses fall: the system is balanced"),
        State::CoreDemand if up && !fewer_hits => {
            edge(4, State::IoDemand, "more DDIO misses and no fewer hits: cores no longer compete")
        }
        State::HighKeep if fell_severely => {
            edge(11, State::Reclaim, "DDIO misses fell severely: its ways are more than it needs")
        }
        State::HighKeep if fewer_hits && !down => {
            edge(12, State::CoreDemand, "fewer DDIO hits and no fewer misses: cores compete")
        }
        State::Reclaim if up && many && fewer_hits => {
            edge(9, State::CoreDemand, "many DDIO misses again, and fewer hits: cores compete")
        }
        State::Reclaim if up && many => edge(5, State::IoDemand, "many DDIO misses again: I/O needs ways"),
        State::Reclaim if seen.ways <= seen.ways_min && !seen.tenant_above_grant => {
            edge(2, State::LowKeep, "nothing is left to reclaim")
        }
        _ => None,
    }
}
