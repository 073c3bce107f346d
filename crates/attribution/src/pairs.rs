//! What an attribution says. Must not know how it is found.

use serde::{Deserialize, Serialize};
use waykeeper_units::{PortId, WorkloadId};

/// What evicts lines of others.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PollutionSource {
    /// A tenant, by what its cores do.
    Tenant(WorkloadId),
    /// The devices behind a root port, by what they write and read.
    Port(PortId),
}

/// How much of a victim's loss one polluter causes.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PollutionPair {
    /// What evicts the lines.
    pub polluter: PollutionSource,
    /// The tenant whose lines they are.
    pub victim: WorkloadId,
    /// Its part of the lines that others evict, 0 to 1.
    pub share: f64,
    /// The share is not below this, with a probability of 90 %.
    pub low: f64,
    /// The share is not above this, with a probability of 90 %.
    pub high: f64,
    /// Lines of the victim that it evicts, per second.
    pub lines_per_s: f64,
    /// Probability that the share is at least [`TRUE_SHARE`](crate::TRUE_SHARE).
    pub confidence: f64,
    /// The numbers behind it, in one line.
    pub evidence: String,
}

/// A tenant that loses lines.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct LineLoss {
    /// The tenant.
    pub victim: WorkloadId,
    /// Its lines that others evict, per second.
    pub lines_per_s: f64,
    /// Its MLC misses and the lines that its devices write, per second.
    pub fills_per_s: f64,
    /// Whether the loss matters.
    pub matters: bool,
}

/// Why it cannot tell who evicts a tenant's lines.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct UntoldVictim {
    /// The tenant.
    pub victim: WorkloadId,
    /// The reason, in one line.
    pub reason: String,
}

/// Who evicts whose lines.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Attribution {
    /// Per victim, the largest share first.
    pub pairs: Vec<PollutionPair>,
    /// The loss of each victim of which it can tell.
    pub losses: Vec<LineLoss>,
    /// Victims of which it cannot tell.
    pub cannot_tell: Vec<UntoldVictim>,
}

impl Attribution {
    /// The pairs that it claims: a share of at least [`TRUE_SHARE`](crate::TRUE_SHARE) of a loss that matters.
    pub fn claims(&self) -> impl Iterator<Item = &PollutionPair> {
        let matters = |victim| self.losses.iter().any(|loss| loss.victim == victim && loss.matters);
        self.pairs.iter().filter(move |pair| pair.share >= crate::TRUE_SHARE && matters(pair.victim))
    }
}
