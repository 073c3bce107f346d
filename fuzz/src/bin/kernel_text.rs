//! `kernel_text` for libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| waykeeper_fuzz_targets::kernel_text::read(data));
