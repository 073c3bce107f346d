//! The first configuration: its text is accepted by the daemon, and tenants on another L3 are commented out.

use std::path::Path;
use waykeeper_host::Priority;
use waykeeper_kernel::root::Root;
use waykeeper_service::config::tenants_in;
use waykeeper_service::first_config;
use waykeeper_tenants::discovery::{Discovery, FoundTenant, Guess, LeftOut, discover};
use waykeeper_testbed::plain_tree::PlainTree;

fn tenant(name: &str, cores: &str, priority: Priority) -> FoundTenant {
    FoundTenant {
        name: name.to_owned(),
        key: "unit",
        selected: format!("{name}.service"),
        about: "1 process".to_owned(),
        cores: cores.parse().unwrap_or_default(),
        priority: Guess { value: priority, why: "a reason with\na line end".to_owned() },
        kind: None,
        devices: None,
    }
}

#[test]
fn the_daemon_accepts_what_is_written_and_each_guess_has_its_reason() {
    let tree = PlainTree::skylake();
    let root = Root::at(tree.root());
    let left_out = vec![LeftOut { name: "ssh.service".to_owned(), why: "has no CPUs of its own" }];
    let discovery = Discovery {
        tenants: vec![
            tenant("web", "0,4", Priority::High),
            tenant("db", "2", Priority::High),
            tenant("batch", "1", Priority::Low),
            tenant("anywhere", "", Priority::Low),
        ],
        left_out,
        ..discover(&root)
    };
    let text = first_config(&root, &discovery, Path::new("w.toml"), false);
    let accepted = tenants_in(Path::new("w.toml"), &text).unwrap();
    // CPUs 0-1 and 4-5 share the L3 of two of three tenants with CPUs; db is on the other.
    let names: Vec<&str> = accepted.iter().map(|spec| spec.name.as_str()).collect();
    assert_eq!(names, ["web", "batch", "anywhere"], "{text}");
    for wanted in [
        "waykeeper daemon --config w.toml --check",
        "# This host: 2 sockets with 8 CPUs online, 2 L3s.",
        "#   NUMA node 1: CPUs 2-3,6-7",
        "#   root port 0000:3a:00.0, node 0: ens1f0 (network, 0000:3b:00.0), ens1f1 (network, 0000:3b:00.1)",
        "domain = 0 ",
        "priority = \"high\"                  # a reason with\\na line end",
        "# On L3 1, which this daemon does not manage:\n#[[tenant]]\n#name = \"db\"",
        "# No tenant above has ens1f0, ens1f1, nvme0.",
        "# Not declared, because each has no CPUs of its own: ssh.service.",
    ] {
        assert!(text.contains(wanted), "{wanted}\n{text}");
    }
    assert!(!text.contains("program_counters"), "{text}");
}

#[test]
fn a_host_without_tenants_gets_a_file_that_says_what_to_do() {
    let tree = PlainTree::skylake();
    let root = Root::at(tree.root());
    let text = first_config(&root, &discover(&root), Path::new("w.toml"), true);
    assert!(text.contains("# Nothing was found that could be a tenant"), "{text}");
    assert!(text.contains("\nprogram_counters = true "), "{text}");
    assert!(tenants_in(Path::new("w.toml"), &text).unwrap_err().to_string().contains("no tenant"));
}
