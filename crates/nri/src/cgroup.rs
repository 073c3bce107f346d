//! The path of a container's control group, from what its specification says.
//!
//! With systemd's driver a specification has `SLICE:PREFIX:NAME` (runc, docs/systemd.md), else the path itself. Must not
//! read the tree.

use waykeeper_tenants::slice_path;

/// The path from the root of the tree, without a leading slash; `None` if there is none.
pub fn path(written: &str) -> Option<String> {
    let mut parts = written.split(':');
    let path = match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some(slice), Some(prefix), Some(name), None) if slice.ends_with(".slice") => {
            format!("{}/{prefix}-{name}.scope", slice_path(slice))
        }
        _ => written.trim_matches('/').to_owned(),
    };
    let is_path = path.split('/').all(|part| !matches!(part, "" | "." | ".."));
    is_path.then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_drivers_name_a_path() {
        let systemd = path("kubepods-burstable-pod1_2.slice:cri-containerd:0af1").unwrap();
        assert_eq!(
            systemd,
            "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_2.slice/cri-containerd-0af1.scope"
        );
        assert_eq!(path("/kubepods/burstable/pod1-2/0af1").unwrap(), "kubepods/burstable/pod1-2/0af1");
        for none in ["", "/", "a//b", "../a", "a/./b"] {
            assert_eq!(path(none), None, "{none}");
        }
    }
}
