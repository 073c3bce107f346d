//! Control groups and processes: three censuses of declared tenants on a host.

use crate::{host, one_line};
use std::path::Path;
use std::sync::LazyLock;
use waykeeper_tenants::{Census, MOST_READS, TenantSpec, parse};

const TENANTS: &str = r#"
[[tenant]]
name = "redis"
unit = "redis-server.service"
[[tenant]]
name = "pod-{name}"
each = true
cgroup = "kubepods.slice/**/cri-*.scope"
[[tenant]]
name = "dpdk"
process = ["dpdk*", "worker"]
devices = ["ens1f0", "0000:3b:00.1/vf*"]
[[tenant]]
name = "init"
pids = [1, 100]
[[tenant]]
name = "disk"
slice = "system.slice"
devices = ["nvme0"]
"#;

static SPECS: LazyLock<Vec<TenantSpec>> =
    LazyLock::new(|| parse(Path::new("tenants.toml"), TENANTS).expect("the target's own tenants"));

/// Reads that [`MOST_READS`] does not count: at most 16 for a declared device, of which there are three; two for each of
/// the 256 virtual functions that a PCI function can have and for each component of the declared paths; and 64 for CPUs.
const UNCOUNTED: usize = 3 * 16 + 2 * 256 + 2 * 16 + 64;

/// Reads an input. Panics for a finding.
pub fn read(data: &[u8]) {
    let root = host(data);
    let mut census = Census::new(SPECS.clone());
    let mut first = census.take(&root);
    for _ in 0..2 {
        let roster = census.take(&root);
        assert!(roster.reads <= MOST_READS + UNCOUNTED, "{} reads", roster.reads);
        roster.standing.iter().for_each(|note| one_line(&note.text));
        roster.absent.iter().for_each(|absent| one_line(&absent.why));
        first = roster;
    }
    let mut names: Vec<&str> = first.tenants.iter().map(|tenant| tenant.name.as_str()).collect();
    let all = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all, "two tenants have one name");
}
