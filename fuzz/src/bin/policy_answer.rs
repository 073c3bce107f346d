//! The answers of a policy from a file.
#![no_main]

use libfuzzer_sys::fuzz_target;
use waykeeper_policy_process::PolicyAnswer;

fuzz_target!(|data: &[u8]| {
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
});
