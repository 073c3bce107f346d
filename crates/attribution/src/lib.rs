//! Who evicts whose lines from the LLC, estimated from counters alone.
//!
//! An [`Attributor`] takes one interval after another and gives an [`Attribution`]: for each pair of a polluter and a victim
//! the share of the victim's loss, with an error band, a confidence and the numbers behind it. It plays the rates that
//! counters show on a sample of LLC sets, by the rules of microarchitecture.md 4 and 5. docs/attribution.md defines every
//! term and says how good it is. Nothing here depends on a model of a server or on a policy.

mod attributor;
mod evidence;
mod flows;
mod mlc;
mod pairs;
mod play;
mod port_flows;
mod rates;
mod sets;

pub use attributor::{Attributor, LEAST_LOSS, LEAST_LOSS_PART, TRUE_SHARE};
pub use pairs::{Attribution, LineLoss, PollutionPair, PollutionSource, UntoldVictim};
