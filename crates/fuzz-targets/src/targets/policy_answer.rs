//! The answers of a policy from a file.

use waykeeper_policy_process::PolicyAnswer;

/// Reads an input. Panics for a finding.
pub fn read(data: &[u8]) {
    if let Ok((_, PolicyAnswer::Decision(decision))) = PolicyAnswer::parse(data) {
        // The recorder writes the plan, and a replay reads it.
        let written = serde_json::to_string(&decision.plan).expect("a plan as JSON");
        assert_eq!(
            serde_json::from_str::<waykeeper_host::Plan>(&written).ok(),
            Some(decision.plan),
            "{written}"
        );
        assert!(decision.events.iter().flat_map(|event| &event.causes).all(|cause| cause.value.is_finite()));
    }
}
