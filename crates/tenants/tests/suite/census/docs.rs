//! The declarations in docs/tenants.md are valid.

use std::path::Path;
use waykeeper_tenants::parse;

#[test]
fn every_example_is_read() {
    let page = include_str!("../../../../../docs/tenants.md");
    let blocks = page.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next());
    let names: Vec<Vec<String>> = blocks
        .map(|block| {
            let specs =
                parse(Path::new("docs/tenants.md"), block).unwrap_or_else(|error| panic!("{error}\n{block}"));
            specs.into_iter().map(|spec| spec.name).collect()
        })
        .collect();
    let expected: [&[&str]; 4] = [
        &["fastclick", "redis", "pod-{name}"],
        &["db", "container-{name}"],
        &["storage", "{name}"],
        &["guest7", "vm-{name}"],
    ];
    assert_eq!(names, expected);
}
