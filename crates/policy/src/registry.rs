//! The list of policies. A new policy is one file beside this one and one line in [`registry`]. It must not know how a
//! policy decides.

use crate::settings::nearest;
use crate::{
    Policy, PolicyError, a4, baseline, core_only, ddio_off, ddio_ways, default, dma_dynamic, fixed, iat,
    io_iso, isolate, none, resq, waykeeper,
};
use toml::Table;

/// A policy that users can select.
#[derive(Clone, Copy, Debug)]
pub struct PolicyEntry {
    /// The name by which users select it.
    pub name: &'static str,
    /// Its idea in one line.
    pub idea: &'static str,
    /// Builds it from its settings.
    pub build: fn(&Table) -> Result<Box<dyn Policy>, PolicyError>,
}

/// All policies, in the order of the listing.
pub fn registry() -> &'static [PolicyEntry] {
    use a4::Variant;
    const {
        &[
            PolicyEntry { name: "waykeeper", idea: waykeeper::twin::IDEA, build: waykeeper::twin::build },
            PolicyEntry { name: "waykeeper-search", idea: waykeeper::IDEA, build: waykeeper::build },
            PolicyEntry { name: "default", idea: default::IDEA, build: default::build },
            PolicyEntry { name: "isolate", idea: isolate::IDEA, build: isolate::build },
            PolicyEntry {
                name: "a4-a",
                idea: Variant::A.idea(),
                build: |s| a4::build("a4-a", Variant::A, s),
            },
            PolicyEntry {
                name: "a4-b",
                idea: Variant::B.idea(),
                build: |s| a4::build("a4-b", Variant::B, s),
            },
            PolicyEntry {
                name: "a4-c",
                idea: Variant::C.idea(),
                build: |s| a4::build("a4-c", Variant::C, s),
            },
            PolicyEntry {
                name: "a4-d",
                idea: Variant::D.idea(),
                build: |s| a4::build("a4-d", Variant::D, s),
            },
            PolicyEntry { name: "a4", idea: Variant::D.idea(), build: |s| a4::build("a4", Variant::D, s) },
            PolicyEntry { name: "iat", idea: iat::IDEA, build: iat::build },
            PolicyEntry { name: "core-only", idea: core_only::IDEA, build: core_only::build },
            PolicyEntry { name: "io-iso", idea: io_iso::IDEA, build: io_iso::build },
            PolicyEntry { name: "baseline", idea: baseline::IDEA, build: baseline::build },
            PolicyEntry { name: "fixed", idea: fixed::IDEA, build: fixed::build },
            PolicyEntry { name: "ddio-ways", idea: ddio_ways::IDEA, build: ddio_ways::build },
            PolicyEntry { name: "ddio-off", idea: ddio_off::IDEA, build: ddio_off::build },
            PolicyEntry { name: "resq", idea: resq::IDEA, build: resq::build },
            PolicyEntry { name: "dmadynamic", idea: dma_dynamic::IDEA, build: dma_dynamic::build },
            PolicyEntry { name: "none", idea: none::IDEA, build: none::build },
        ]
    }
}

/// Builds the policy `name` with `settings`; an empty table means all defaults.
///
/// # Errors
/// An unknown name, an unknown setting, a value of the wrong kind or out of range; each message names the
/// nearest known word and what is accepted.
pub fn build(name: &str, settings: &Table) -> Result<Box<dyn Policy>, PolicyError> {
    match registry().iter().find(|entry| entry.name == name) {
        Some(entry) => (entry.build)(settings),
        None => Err(PolicyError::UnknownPolicy {
            name: name.to_owned(),
            nearest: nearest(name, registry().iter().map(|entry| entry.name)),
            known: registry().iter().map(|entry| entry.name.to_owned()).collect(),
        }),
    }
}

/// The best static layout that a search found, as a policy of a run.
pub const BEST_POLICY: &str = "best";

/// Checks the name of a user's own policy: under that of another one its results would be taken for the other's, and as
/// `default` it would be the baseline.
///
/// # Errors
/// [`PolicyError::TakenName`].
pub fn check_own_name(name: &str) -> Result<(), PolicyError> {
    if name == BEST_POLICY || registry().iter().any(|entry| entry.name == name) {
        return Err(PolicyError::TakenName { name: name.to_owned() });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_own_policy_has_a_name_of_its_own() {
        assert!(["mine", "a4x", "Default"].iter().all(|name| check_own_name(name).is_ok()));
        for name in ["default", "a4", "best"] {
            let wanted = format!("the name {name} is that of a built-in policy; give it another name");
            assert_eq!(check_own_name(name).unwrap_err().to_string(), wanted);
        }
    }

    #[test]
    fn every_entry_builds_under_its_own_name_and_describes_itself() {
        for entry in registry() {
            let policy = build(entry.name, &Table::new()).unwrap();
            assert_eq!(policy.name(), entry.name);
            let description = policy.describe();
            assert_eq!(description.name, entry.name);
            assert!(!entry.idea.is_empty() && !description.idea.is_empty() && !description.source.is_empty());
            assert!(!description.knobs.is_empty() && !description.states.is_empty());
        }
    }

    /// A setting that takes a number refuses what no range contains, and names the unit that was meant.
    #[test]
    fn every_number_has_a_range() {
        let with = |name: &str, key: &str, value: toml::Value| {
            build(name, &Table::from_iter([(key.to_owned(), value)])).map(drop)
        };
        let mut tried = 0;
        for entry in registry() {
            let accepted = match with(entry.name, "zzz", toml::Value::Integer(1)) {
                Err(PolicyError::UnknownSetting { accepted, .. }) => accepted,
                other => panic!("{}: {other:?}", entry.name),
            };
            for key in accepted {
                for value in [1e300, -1e300, f64::NAN].map(toml::Value::Float) {
                    assert!(with(entry.name, &key, value).is_err(), "{}: {key}", entry.name);
                }
                for value in [i64::MAX, i64::MIN].map(toml::Value::Integer) {
                    assert!(with(entry.name, &key, value).is_err(), "{}: {key}", entry.name);
                }
                tried += 1;
            }
        }
        assert!(tried > 50, "{tried}");
        let said = with("a4", "monitor_interval_s", toml::Value::Integer(5000)).unwrap_err().to_string();
        assert!(said.ends_with("give s from 0.001 to 3600; 5000 ms are 5 s"), "{said}");
        let said = with("a4", "hpw_llc_hit_thr", toml::Value::Integer(20)).unwrap_err().to_string();
        assert!(said.ends_with("from 0 to 1; 20 % are 0.2"), "{said}");
    }

    #[test]
    fn an_unknown_name_is_refused_with_the_nearest_one() {
        let error = build("isolat", &Table::new()).err().unwrap().to_string();
        assert!(
            error.starts_with("unknown policy `isolat`; did you mean `isolate`?; known are waykeeper,"),
            "{error}"
        );
    }
}
