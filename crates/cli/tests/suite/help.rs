//! Help is part of the interface: a snapshot shows every change for review.

use crate::common;

use common::output;

#[test]
fn help_says_what_it_said() {
    let pages: &[&[&str]] = &[
        &[],
        &["run"],
        &["best"],
        &["scenario"],
        &["scenario", "list"],
        &["scenario", "show"],
        &["scenario", "check"],
        &["policy"],
        &["policy", "list"],
        &["policy", "describe"],
        &["policy", "new"],
        &["policy", "set"],
        &["chip"],
        &["chip", "list"],
        &["chip", "show"],
        &["chip", "compare"],
        &["trace"],
        &["trace", "record"],
        &["trace", "info"],
        &["trace", "convert"],
        &["capture"],
        &["capture", "info"],
        &["doctor"],
        &["ddio"],
        &["ddio", "show"],
        &["ddio", "set"],
        &["ddio", "on"],
        &["ddio", "off"],
        &["replay"],
        &["fleet"],
        &["fleet", "plan"],
        &["probe"],
        &["probe", "list"],
        &["probe", "run"],
        &["memload"],
        &["memload", "interfere"],
        &["restore"],
        &["daemon"],
        &["status"],
        &["tenants"],
        &["pause"],
        &["resume"],
        &["reload"],
        &["hand-over"],
        &["vhost"],
        &["vhost", "enter"],
        &["completions"],
        &["man"],
    ];
    let mut all = String::new();
    for page in pages {
        let text = output(&[page, &["--help"][..]].concat());
        all.push_str(&format!("$ waykeeper {}\n\n{text}\n", [page, &["--help"][..]].concat().join(" ")));
    }
    insta::assert_snapshot!("help", all);
}
