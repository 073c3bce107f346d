//! Key `cgroup`: the control group of a workload's process.
//!
//! Paths are relative to the root of cgroup v2, as in `/proc/PID/cgroup` without the first slash. Must not know the
//! content of a control group's files.

use std::fmt::Write;

/// The slice of workloads without a `cgroup` key.
const SLICE: &str = "tenants.slice";

/// Longest name of a directory (NAME_MAX).
const LONGEST: usize = 255;

/// Names of a control group's own files in version 1. systemd puts `_` before a unit of such a name
/// (systemd:src/basic/cgroup-util.c, cg_needs_escape).
const FILES: [&str; 3] = ["notify_on_release", "release_agent", "tasks"];

/// Prefixes of such files: the core's, and one per controller.
const FILE_PREFIXES: [&str; 9] =
    ["cgroup", "cpu", "cpuacct", "cpuset", "io", "blkio", "memory", "devices", "pids"];

/// Default control group: a service of its own in [`SLICE`], named as systemd names it.
pub(super) fn usual(workload: &str) -> String {
    format!("{SLICE}/{}", directory(&service(workload)))
}

/// The service that `systemd-run --unit=NAME` starts. systemd.unit(5) allows letters, digits and `:-_.\@` in a unit's
/// name, so a dash stays; `/` becomes `-` and any other byte `\xNN` (systemd-escape(1), --mangle). Only
/// text that is not a name, such as the path of a mount, has its dashes escaped.
fn service(name: &str) -> String {
    let mut unit = String::new();
    for byte in name.bytes() {
        match byte {
            b'/' => unit.push('-'),
            b':' | b'-' | b'_' | b'.' | b'\\' | b'@' => unit.push(char::from(byte)),
            b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => unit.push(char::from(byte)),
            // Writing to a String cannot fail.
            _ => drop(write!(unit, "\\x{byte:02x}")),
        }
    }
    if !unit.ends_with(".service") {
        unit.push_str(".service");
    }
    unit
}

/// The directory of a unit's control group: its name, with `_` before one that a file could have.
fn directory(unit: &str) -> String {
    let is_taken = unit.starts_with(['_', '.'])
        || FILES.contains(&unit)
        || FILE_PREFIXES.iter().any(|prefix| has_prefix(unit, prefix));
    if is_taken { format!("_{unit}") } else { unit.to_owned() }
}

/// Whether a dot follows the prefix.
fn has_prefix(name: &str, prefix: &str) -> bool {
    name.strip_prefix(prefix).is_some_and(|rest| rest.starts_with('.'))
}

/// The first slice of a path that is not in the slice that its name says: systemd puts `a-b.slice` into `a.slice`
/// (systemd.slice(5)). Returns its name and that of the slice it belongs in.
pub(super) fn misplaced_slice(path: &str) -> Option<(&str, String)> {
    let mut above = "";
    for part in path.split('/') {
        let within = part.strip_suffix(".slice").and_then(|stem| stem.rsplit_once('-'));
        if let Some((outer, _)) = within.filter(|(outer, _)| !outer.is_empty()) {
            let outer = format!("{outer}.slice");
            if above != outer {
                return Some((part, outer));
            }
        }
        above = part;
    }
    None
}

/// Whether mkdir(2) could have made this path in a tree of control groups.
pub(super) fn legal(path: &str) -> bool {
    path.split('/').all(|part| {
        // Every control group's directory contains such files.
        let taken = FILE_PREFIXES.iter().any(|prefix| has_prefix(part, prefix));
        let printable = part.chars().all(|letter| !letter.is_control());
        !part.is_empty() && part.len() <= LONGEST && ![".", ".."].contains(&part) && printable && !taken
    })
}

/// Whether `upper` is an ancestor of `lower`: with a controller enabled, only leaf control groups may contain processes
/// (linux Documentation/admin-guide/cgroup-v2.rst, "No Internal Process Constraint").
pub(super) fn is_above(upper: &str, lower: &str) -> bool {
    lower.strip_prefix(upper).is_some_and(|rest| rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The right column is what `systemd-escape --mangle NAME` of systemd 252 prints.
    #[test]
    fn a_service_is_named_as_systemd_names_it() {
        for (name, unit) in [
            ("redis-server", "redis-server.service"),
            ("bully.1", "bully.1.service"),
            ("x-mem a/b", r"x-mem\x20a-b.service"),
            (".x", ".x.service"),
            ("a@b", "a@b.service"),
            (r"a\b", r"a\b.service"),
            ("größe", r"gr\xc3\xb6\xc3\x9fe.service"),
            ("x:y_z.1", "x:y_z.1.service"),
            ("foo.service", "foo.service"),
        ] {
            assert_eq!(service(name), unit, "{name}");
        }
        assert_eq!(usual("redis-server"), "tenants.slice/redis-server.service");
    }

    #[test]
    fn a_unit_with_the_name_of_a_file_has_an_underscore_before_it() {
        for (unit, folder) in [
            ("io.service", "_io.service"),
            ("cpuset.service", "_cpuset.service"),
            ("cgroup.service", "_cgroup.service"),
            ("_x.service", "__x.service"),
            (".x.service", "_.x.service"),
            // Not a prefix of a file: the dot does not follow.
            ("io-heavy.service", "io-heavy.service"),
            ("memory2.service", "memory2.service"),
        ] {
            assert_eq!(directory(unit), folder);
        }
        for name in ["io", "cpu", "memory", ". ..\n"] {
            assert!(legal(&usual(name)), "{name}");
        }
    }

    #[test]
    fn a_slice_is_in_the_slice_that_its_name_says() {
        for good in [
            "system.slice/x.service",
            "data.slice/data-redis.slice/x.service",
            "a.slice/a-b.slice/a-b-c.slice",
            // An escaped dash is no level.
            r"system.slice/system-a\x2db.slice/a\x2db@1.service",
            // The slices of a user's own manager begin below its service.
            "user.slice/user-1000.slice/user@1000.service/app.slice/app-x.slice/x.scope",
            "-.slice/x",
        ] {
            assert_eq!(misplaced_slice(good), None, "{good}");
        }
        for (bad, slice, outer) in [
            ("data-redis.slice/x.service", "data-redis.slice", "data.slice"),
            ("a.slice/a-b-c.slice", "a-b-c.slice", "a-b.slice"),
            ("b.slice/a-b.slice", "a-b.slice", "a.slice"),
        ] {
            assert_eq!(misplaced_slice(bad), Some((slice, outer.to_owned())));
        }
    }

    #[test]
    fn paths_are_those_of_directories() {
        for good in ["a.slice/b.scope", "a", "user.slice/user-1000.slice/c d", "x..y"] {
            assert!(legal(good), "{good}");
        }
        for bad in ["", "/a", "a/", "a//b", "a/../b", ".", "a\nb", "a/cgroup.procs", "cpuset.x"] {
            assert!(!legal(bad), "{bad}");
        }
        assert!(!legal(&"x".repeat(256)));
        assert!(is_above("a", "a/b") && !is_above("a", "ab") && !is_above("a", "a") && !is_above("a/b", "a"));
    }
}
