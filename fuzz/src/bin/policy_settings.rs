//! `policy_settings` for libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| waykeeper_fuzz_targets::policy_settings::read(data));
