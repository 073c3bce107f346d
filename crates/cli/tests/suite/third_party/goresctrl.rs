//! goresctrl's `rdt`, which container runtimes use. `.ci/run` builds it into target/tools; Debian has no package.

use crate::third_party::host::{Host, has};
use std::fs;
use std::path::Path;

const CONFIG: &str = r#"
options:
  mb:
    optional: true
partitions:
  reserved:
    l3Allocation: "60%"
    mbAllocation: ["50%"]
    classes:
      exclusive:
        l3Allocation: "100%"
        mbAllocation: ["100%"]
  shared:
    l3Allocation: "40%"
    mbAllocation: ["100%"]
    classes:
      normal:
        l3Allocation: "100%"
        mbAllocation: ["100%"]
      limited:
        l3Allocation: "50%"
        mbAllocation: ["40%"]
"#;

#[track_caller]
fn rdt() -> String {
    let here = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/tools"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(here.to_path_buf()).chain(std::env::split_paths(&path));
    let found = folders.map(|folder| folder.join("rdt")).find(|place| place.is_file());
    let install = "GOBIN=$PWD/target/tools go install github.com/intel/goresctrl/cmd/rdt@v0.8.0";
    let place = found.unwrap_or_else(|| {
        panic!("not run: needs rdt: build goresctrl's with {install} (Go is in golang-go)")
    });
    place.display().to_string()
}

#[test]
fn it_finds_the_filesystem_and_its_classes() {
    let host = Host::start(&[]);
    fs::create_dir(host.path("sys/fs/resctrl/mine")).unwrap();
    let said = host.good(&[&rdt(), "info"]);
    has(&said, &["detected resctrl filesystem at \"/sys/fs/resctrl\"", "Monitoring supported: true"]);
    has(&said, &["llc_occupancy, mbm_local_bytes, mbm_total_bytes", "- mine", "- system/default"]);
}

#[test]
fn it_makes_the_partitions_of_its_settings() {
    let host = Host::start(&[]);
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), CONFIG).unwrap();
    host.good(&[&rdt(), "configure", "-config-file", file.path().to_str().unwrap()]);
    // 60 % of 11 ways are 7, the other 4 are shared's; half of those are 2 (rounded by goresctrl).
    has(&host.read("sys/fs/resctrl/exclusive/schemata"), &["L3:0=07f", "MB:0= 50"]);
    has(&host.read("sys/fs/resctrl/normal/schemata"), &["L3:0=780", "MB:0=100"]);
    has(&host.read("sys/fs/resctrl/limited/schemata"), &["L3:0=180", "MB:0= 40"]);
    let said = host.good(&[&rdt(), "info"]);
    has(&said, &["- exclusive", "- limited", "- normal"]);
}
