//! Everything that `waykeeper doctor` reads of a host.
#![no_main]

use libfuzzer_sys::fuzz_target;
use waykeeper_fuzz::{host, one_line};
use waykeeper_operator::doctor::examine;

fuzz_target!(|data: &[u8]| {
    for check in examine(&host(data)).checks {
        one_line(&check.name);
        one_line(&check.value);
        check.remedy.iter().for_each(|remedy| one_line(remedy));
    }
});
