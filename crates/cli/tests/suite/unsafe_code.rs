//! Where the code is `unsafe`: a list of files with the number of places in each, so that a new one is noticed in review.
//!
//! Clippy refuses a place without a comment that says why it is sound (`undocumented_unsafe_blocks` in `Cargo.toml`).

use crate::common::sources::SOURCES;
use proc_macro2::{TokenStream, TokenTree};
use std::collections::BTreeMap;

/// Every file with an `unsafe` block, function or implementation, and how many it has. A place that is added belongs into
/// its row with a reason in the commit; code that can be safe is not added.
const PLACES: &[(&str, usize)] = &[
    ("crates/kernel/src/perf/call.rs", 2),
    ("crates/memload/src/buffer.rs", 12),
    ("crates/memload/src/engine/direct.rs", 1),
    ("crates/memload/src/engine/ioctl.rs", 1),
    ("crates/memload/src/engine/passthrough.rs", 2),
    ("crates/memload/src/engine/ring.rs", 9),
    ("crates/memload/src/run.rs", 1),
    ("crates/memload/src/target.rs", 2),
    ("crates/memload/tests/suite/served.rs", 1),
    ("crates/memload/tests/suite/served_runs.rs", 1),
    ("crates/service/src/socket/access.rs", 1),
    ("crates/service/tests/notify.rs", 1),
    ("crates/silicon/src/bytes.rs", 3),
    ("crates/silicon/src/simd.rs", 5),
    ("crates/silicon/src/table.rs", 2),
    ("crates/view/src/scenario_source.rs", 1),
    ("crates/vhost/src/apart.rs", 1),
    ("crates/vhost/src/enter.rs", 1),
    ("crates/vhost/src/fork_records.rs", 7),
    ("crates/vhost/src/mount_calls/listener.rs", 6),
    ("crates/vhost/src/namespace.rs", 1),
    ("crates/vhost/tests/suite/inheritance.rs", 4),
    ("crates/vhost/tests/suite/mounted.rs", 1),
];

/// The places in code.
pub fn count(tokens: TokenStream) -> usize {
    let places = tokens.into_iter().map(|token| match token {
        TokenTree::Ident(word) => usize::from(word == "unsafe"),
        TokenTree::Group(group) => count(group.stream()),
        TokenTree::Punct(_) | TokenTree::Literal(_) => 0,
    });
    places.sum()
}

#[test]
fn every_unsafe_place_is_in_the_list() {
    let sources = SOURCES.iter().filter(|source| source.unsafe_places > 0);
    let found: BTreeMap<String, usize> =
        sources.map(|source| (source.path.display().to_string(), source.unsafe_places)).collect();
    let known: BTreeMap<String, usize> =
        PLACES.iter().map(|(name, places)| ((*name).to_owned(), *places)).collect();
    let row = |(name, places): (&String, &usize)| format!("    ({name:?}, {places}),");
    let new: Vec<_> =
        found.iter().filter(|(name, places)| known.get(*name) != Some(places)).map(row).collect();
    let old: Vec<_> =
        known.iter().filter(|(name, places)| found.get(*name) != Some(places)).map(row).collect();
    let (new, old) = (new.join("\n"), old.join("\n"));
    assert!(
        new.is_empty() && old.is_empty(),
        "found and not in the list:\n{new}\nin the list and not found:\n{old}"
    );
}
