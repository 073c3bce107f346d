//! Names of tenants that are matches of a glob: unique, valid, and the same at every look.
//!
//! A match's own name replaces `{name}`: of a cgroup, the last component of its path without the unit kind that the
//! glob ends in. Invalid characters become `_`. If a replaced character, a cut or another path could lead to an equal
//! name, the CRC-32 of the whole path is appended. Must not know what is matched.

use super::cgroups::unit_name;
use super::declaration::{NAME_LIMIT, OWN_NAME, is_plain};
use super::glob::CgroupSelector;

/// Kinds of units. A glob that ends in one matches only that kind, so the names leave it out.
const KINDS: [&str; 6] = [".scope", ".service", ".slice", ".socket", ".mount", ".swap"];

/// A text as the name of a tenant: the text itself, or where that is no valid name one that only this text has.
pub fn plain_name(text: &str) -> String {
    own(OWN_NAME, text, text, text.is_empty())
}

/// The name of the tenant whose match has the name `own`.
pub(super) fn named(template: &str, own: &str) -> String {
    template.replacen(OWN_NAME, own, 1)
}

/// A cgroup's own name.
pub(super) fn of_cgroup(template: &str, selector: &CgroupSelector, path: &str) -> String {
    let last = path.rsplit('/').next().unwrap_or(path);
    let last = if matches!(selector, CgroupSelector::Path(_)) { last } else { unit_name(last) };
    let kind = KINDS.iter().find(|kind| selector.glob().text().ends_with(**kind));
    let stem = kind.and_then(|kind| last.strip_suffix(kind)).filter(|stem| !stem.is_empty()).unwrap_or(last);
    own(template, stem, path, selector.may_repeat_names())
}

/// `stem` made valid and cut to length; a hash of `whole` makes it unique.
fn own(template: &str, stem: &str, whole: &str, repeats: bool) -> String {
    let most = NAME_LIMIT.saturating_sub(template.len() - OWN_NAME.len());
    let valid: String = stem.chars().map(|c| if is_plain(c) { c } else { '_' }).collect();
    if !repeats && valid == stem && valid.len() <= most {
        return valid;
    }
    let mark = format!("-{:08x}", crc32fast::hash(whole.as_bytes()));
    // All characters are ASCII now, so any byte is a character boundary.
    let short = &valid[..valid.len().min(most.saturating_sub(mark.len()))];
    format!("{short}{mark}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_are_short_where_they_can_be_and_marked_where_not() {
        let name =
            |glob: &str, path: &str| of_cgroup("pod-{name}", &CgroupSelector::path(glob).unwrap(), path);
        assert_eq!(name("redis.slice/redis@*.service", "redis.slice/redis@1.service"), "redis_1-cd066df7");
        assert_eq!(name("a/x*", "a/x1.service"), "x1.service");
        assert_eq!(name("a/x*.service", "a/x1.service"), "x1");
        let long = format!("cri-containerd-{}.scope", "0123456789abcdef".repeat(4));
        let path = format!("kubepods.slice/kubepods-podx.slice/{long}");
        let made = name("kubepods.slice/**/cri-*.scope", &path);
        assert!(made.starts_with("cri-containerd-0123456789abcdef0123") && made.len() == 60, "{made}");
        let two = ["b/init.scope", "c/init.scope"].map(|path| name("*/init.scope", path));
        assert!(two[0] != two[1] && two[0].starts_with("init-"), "{two:?}");
    }

    #[test]
    fn a_plain_name_is_kept_and_another_is_marked() {
        assert_eq!(plain_name("default.web-0"), "default.web-0");
        // The CRC-32 (IEEE 802.3, as zlib's crc32) of `a/b`.
        assert_eq!(plain_name("a/b"), "a_b-07f4401c");
        let long = "x".repeat(65);
        assert_eq!(
            (plain_name(&long).len(), plain_name(&long) == plain_name(&format!("{long}y"))),
            (64, false)
        );
        assert_eq!(plain_name(""), "-00000000");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]
        #[test]
        fn every_name_is_valid_and_the_same_again(path in "\\PC{1,90}", repeats: bool) {
            let stem = path.rsplit('/').next().unwrap();
            let made = named("pods-{name}", &own("pods-{name}", stem, &path, repeats));
            prop_assert!(made.len() <= NAME_LIMIT && made.chars().all(is_plain), "{}", made);
            prop_assert_eq!(made, named("pods-{name}", &own("pods-{name}", stem, &path, repeats)));
        }
    }
}
