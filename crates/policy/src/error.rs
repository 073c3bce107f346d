//! Why a policy could not be built: bad names, bad settings.
//!
//! Every message contains the value, the nearest accepted word and what is accepted. It must not know any policy.

use waykeeper_units::{MaskError, Unit, one_line, shown};

/// Why a policy was refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PolicyError {
    /// No policy of that name.
    #[error("unknown policy `{}`{}; known are {}", shown(.name), hint(.nearest), .known.join(", "))]
    UnknownPolicy {
        /// The name that the user gave.
        name: String,
        /// The known name most like it, if one is similar.
        nearest: Option<String>,
        /// All known names.
        known: Vec<String>,
    },
    /// The policy has no such setting.
    #[error("policy {policy} has no setting `{}`{}; {}", shown(.key), hint(.nearest), accepted_keys(.accepted))]
    UnknownSetting {
        /// The policy.
        policy: String,
        /// The key that the user gave.
        key: String,
        /// The setting most like it, if one is similar.
        nearest: Option<String>,
        /// All its settings.
        accepted: Vec<String>,
    },
    /// A value of the wrong kind.
    #[error("{policy}: `{key}` must be {wanted}, not {}", one_line(.found))]
    WrongType {
        /// The policy.
        policy: String,
        /// The setting.
        key: String,
        /// What it accepts.
        wanted: String,
        /// The kind that was given.
        found: String,
    },
    /// A number outside the accepted range.
    #[error(
        "{policy}: `{key}` = {value} is out of range; give {unit} from {low} to {high}{}",
        Unit::of_key(key).meant(*value, |here| (*low..=*high).contains(&here))
    )]
    OutOfRange {
        /// The policy.
        policy: String,
        /// The setting.
        key: String,
        /// The value that was given.
        value: f64,
        /// Smallest accepted value.
        low: f64,
        /// Largest accepted value.
        high: f64,
        /// Unit of all three.
        unit: String,
    },
    /// A word that is not one of the choices.
    #[error("{policy}: `{key}` cannot be `{}`{}; accepted are {}", shown(.value), hint(.nearest), .accepted.join(", "))]
    UnknownChoice {
        /// The policy.
        policy: String,
        /// The setting.
        key: String,
        /// The value that was given.
        value: String,
        /// The choice most like it, if one is similar.
        nearest: Option<String>,
        /// All choices.
        accepted: Vec<String>,
    },
    /// A name of a workload or device that the server does not have.
    #[error("{policy}: unknown {kind} `{}`{}; known are {}", shown(.name), hint(.nearest), .known.join(", "))]
    UnknownTarget {
        /// The policy.
        policy: String,
        /// The expected kind: `workload` or `device`.
        kind: String,
        /// The name that was given.
        name: String,
        /// The name most like it, if one is similar.
        nearest: Option<String>,
        /// All names of that kind.
        known: Vec<String>,
    },
    /// A knob that this server does not have.
    #[error("{policy}: `{key}` cannot be set on this server: {why}")]
    NoKnob {
        /// The policy.
        policy: String,
        /// The setting.
        key: String,
        /// Why it cannot be set.
        why: String,
    },
    /// A way mask that cannot be read.
    #[error("{policy}: mask of workload `{}`: {source}", shown(.workload))]
    BadMask {
        /// The policy.
        policy: String,
        /// The workload whose mask it is.
        workload: String,
        /// What is wrong with it.
        source: MaskError,
    },
    /// The name of a user's own policy is taken.
    #[error("the name {} is that of a built-in policy; give it another name", shown(.name))]
    TakenName {
        /// The name.
        name: String,
    },
    /// A policy from a file that cannot be made.
    #[error("policy {}: {why}", shown(.policy))]
    OwnPolicy {
        /// The policy.
        policy: String,
        /// What is wrong, with the file and its line.
        why: String,
    },
}

/// `; did you mean ...?` or nothing.
fn hint(nearest: &Option<String>) -> String {
    nearest.as_ref().map(|name| format!("; did you mean `{name}`?")).unwrap_or_default()
}

/// The list of settings, or that there is none.
fn accepted_keys(accepted: &[String]) -> String {
    if accepted.is_empty() {
        "it has no settings".to_owned()
    } else {
        format!("accepted are {}", accepted.join(", "))
    }
}
