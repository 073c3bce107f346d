//! What `doctor` says of a host, as the lines that snapshots hold. Must not know which host it is.

use std::fmt::Write;
use std::path::Path;
use waykeeper_linux::doctor::Report;

/// A line a subject, the tree's own place taken out.
pub fn told(root: &Path, report: &Report) -> String {
    let mut out = String::new();
    for check in &report.checks {
        let _ =
            writeln!(out, "{} {}: {}", check.name, format!("{:?}", check.state).to_lowercase(), check.value);
        if let Some(remedy) = &check.remedy {
            let _ = writeln!(out, "    -> {remedy}");
        }
    }
    let _ = writeln!(out, "manageable: {}", report.is_manageable());
    out.replace(&root.display().to_string(), "ROOT")
}
