//! Runs the suite of `kernel::resctrl` on a mounted resctrl: `resctrl_suite [ROOT]`. The mount itself,
//! `ROOT/sys/fs/resctrl`, is accepted too.
//!
//! One line per case, then `N passed, N failed`; exit code 1 if one failed. A case that needs something the host
//! lacks is printed as skipped and not counted. Links statically, so that `make test-oracle` can run it in a guest
//! without libraries. Must not know which host it runs on.

#![allow(clippy::print_stdout)]

#[path = "../tests/suite/resctrl_suite/mod.rs"]
mod suite;

use std::process::ExitCode;
use suite::Trouble;
use waykeeper_kernel::root::Root;

fn main() -> ExitCode {
    let given = std::env::args().nth(1).unwrap_or_else(|| "/".to_owned());
    let root = Root::at(given.strip_suffix("sys/fs/resctrl").unwrap_or(&given));
    let (mut passed, mut failed) = (0, 0);
    for case in suite::cases() {
        match suite::run(case, &root) {
            Ok(()) => {
                passed += 1;
                println!("ok {}", case.name);
            }
            Err(Trouble::Lacking(what)) => println!("skipped {}: {what}", case.name),
            Err(Trouble::Failed(why)) => {
                failed += 1;
                println!("FAILED {}: {why}", case.name);
            }
        }
    }
    println!("{passed} passed, {failed} failed");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
