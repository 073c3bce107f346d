//! Runs the suite of `linux::resctrl` on a mounted resctrl: `resctrl_suite [ROOT]`. A root's own mount,
//! `ROOT/sys/fs/resctrl`, will do as well.
//!
//! One line a case, then `N passed, N failed`; exit code 1 if one failed. A case that the
//! host lacks something for is told as skipped and counts as neither. Links statically, so that
//! `make test-oracle` can run it in a guest that has nothing else. It must not know where it runs.

#![allow(clippy::print_stdout)]

#[path = "../tests/suite/resctrl_suite/mod.rs"]
mod suite;

use std::process::ExitCode;
use suite::Trouble;
use waykeeper_linux::root::Root;

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
