//! Key `cgroup`: the control group of a workload's process.
//!
//! Paths are relative to the root of cgroup v2, as in `/proc/PID/cgroup` without the first slash. Must not know the
//! content of a control group's files.

use std::fmt::Write;

/// The slice of workloads without a `cgroup` key.
const SLICE: &str = "tenants.slice";

/// Longest name of a directory (NAME_MAX).
const LONGEST: usize = 255;

/// Default control group: a service of its own in [`SLICE`], named as systemd names it.
pub(super) fn usual(workload: &str) -> String {
    format!("{SLICE}/{}.service", escaped(workload))
}

/// systemd.unit(5), "string escaping for inclusion in unit names": `/` becomes `-`, and every byte except letters,
/// digits, `:`, `_` and `.` becomes `\xNN`; so does a leading dot.
fn escaped(name: &str) -> String {
    let mut text = String::new();
    for (place, byte) in name.bytes().enumerate() {
        match byte {
            b'/' => text.push('-'),
            b'.' if place == 0 => text.push_str("\\x2e"),
            b':' | b'_' | b'.' | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => text.push(char::from(byte)),
            // Writing to a String cannot fail.
            _ => drop(write!(text, "\\x{byte:02x}")),
        }
    }
    text
}

/// Whether mkdir(2) could have made this path in a tree of control groups.
pub(super) fn legal(path: &str) -> bool {
    path.split('/').all(|part| {
        // Every control group's directory contains these files.
        let taken = ["cgroup.", "cpuset.", "cpu.", "io.", "memory."].iter().any(|own| part.starts_with(own));
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

    #[test]
    fn names_of_services_are_escaped_as_systemd_does() {
        assert_eq!(usual("redis"), "tenants.slice/redis.service");
        assert_eq!(usual("bully.1"), "tenants.slice/bully.1.service");
        // systemd-escape 'x-mem a/b' and '.x', Debian 12.
        assert_eq!(escaped("x-mem a/b"), "x\\x2dmem\\x20a-b");
        assert_eq!(escaped(".x"), "\\x2ex");
        assert!(legal(&usual(". ..\n")));
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
