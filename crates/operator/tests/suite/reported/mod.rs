//! `doctor`'s report as lines for snapshots. Must not know which host it is.

use std::fmt::Write;
use std::path::Path;
use waykeeper_kernel::root::Root;
use waykeeper_operator::doctor::DoctorReport;

/// One line per check, without the tree's own path.
pub fn reported(root: &Path, report: &DoctorReport) -> String {
    let mut out = String::new();
    for check in &report.checks {
        let _ =
            writeln!(out, "{} {}: {}", check.name, format!("{:?}", check.state).to_lowercase(), check.value);
        if let Some(remedy) = &check.remedy {
            let _ = writeln!(out, "    -> {remedy}");
        }
    }
    let _ = writeln!(out, "next: {}", report.next_command(&Root::at(root)));
    out.replace(&root.display().to_string(), "ROOT")
}
