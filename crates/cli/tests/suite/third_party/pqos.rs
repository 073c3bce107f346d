//! Intel's pqos (Debian's intel-cmt-cat), through resctrl and through MSRs.
//!
//! It executes the CPUID instruction, which no file can replace, so it runs under qemu-user as a Skylake.

use crate::common::output;
use crate::third_party::host::{Host, has, needed};

/// pqos as it runs on a Skylake.
fn pqos(arguments: &[&str]) -> Vec<String> {
    let qemu = needed("qemu-x86_64", "qemu-user");
    let pqos = needed("pqos", "intel-cmt-cat");
    let fixed = [qemu, "-cpu".to_owned(), "Skylake-Server".to_owned(), pqos];
    fixed.into_iter().chain(arguments.iter().map(|argument| (*argument).to_owned())).collect()
}

/// Its output, without the emulator's warnings.
#[track_caller]
fn reported(host: &Host, arguments: &[&str]) -> String {
    let tool = pqos(arguments);
    let said = host.good(&tool.iter().map(String::as_str).collect::<Vec<_>>());
    said.lines()
        .filter(|line| !line.starts_with("qemu-x86_64: warning"))
        .map(|line| format!("{line}\n"))
        .collect()
}

#[test]
fn it_sees_what_the_host_has() {
    let host = Host::start(&[]);
    let said = reported(&host, &["-I", "-d"]);
    has(
        &said,
        &[
            "Cache Monitoring Technology (CMT)",
            "Local Memory Bandwidth",
            "L3 CAT",
            "Memory Bandwidth Allocation",
        ],
    );
    let said = reported(&host, &["-I", "-D"]);
    // Its values about the cache come from the emulated CPUID, not from the host.
    has(&said, &["max rmid: 128", "Num COS: 8", "Ways contention bit-mask: 0x600", "Max CBM bits: 11"]);
}

/// An Emerald Rapids: 20 ways, of which devices write to the two leftmost, and 15 classes without MBA, which has eight.
#[test]
fn it_shows_and_sets_masks_of_twenty_ways() {
    let host = Host::start(&["--no-mba", "--set", "chip=\"platinum-8570\""]);
    let said = reported(&host, &["-I", "-s"]);
    has(&said, &["L3CA COS0 => MASK 0xfffff", "L3CA COS14 => MASK 0xfffff", "Core 55, "]);
    assert!(!said.contains("COS15"), "{said}");
    has(&reported(&host, &["-I", "-d"]), &["L3 CAT", "Num COS: 15"]);
    has(&reported(&host, &["-I", "-e", "llc:14=0xf0000"]), &["Allocation configuration altered"]);
    has(&host.read("sys/fs/resctrl/COS14/schemata"), &["L3:0=f0000"]);
    let doctor = output(&["doctor", "--root", host.root().to_str().unwrap()]);
    has(
        &doctor,
        &["1 of 300 MiB, 20 ways", "20 ways (0xfffff), at least 1 per mask; 0xc0000 is shared", "15 classes"],
    );
}

#[test]
fn it_shows_and_sets_masks_and_classes() {
    let host = Host::start(&[]);
    has(
        &reported(&host, &["-I", "-s"]),
        &["L3CA COS0 => MASK 0x7ff", "MBA COS7 => 100% available", "Core 17, "],
    );
    has(&reported(&host, &["-I", "-e", "llc:1=0x0f;mba:2=50"]), &["Allocation configuration altered"]);
    has(&reported(&host, &["-I", "-a", "llc:1=3"]), &["Allocation configuration altered"]);
    has(&host.read("sys/fs/resctrl/COS1/schemata"), &["L3:0=00f"]);
    has(&host.read("sys/fs/resctrl/COS2/schemata"), &["MB:0= 50"]);
    assert_eq!(host.read("sys/fs/resctrl/COS1/cpus_list"), "3");
    let said = reported(&host, &["-I", "-s"]);
    has(&said, &["L3CA COS1 => MASK 0xf", "MBA COS2 => 50% available", "Core 3, L2ID 3, L3ID 0 => COS1"]);
    has(&reported(&host, &["-I", "-R"]), &["Allocation reset successful"]);
    has(&host.read("sys/fs/resctrl/COS1/schemata"), &["L3:0=7ff"]);
    assert_eq!(host.read("sys/fs/resctrl/COS1/cpus_list"), "");
}

#[test]
fn a_mask_that_the_kernel_refuses_is_refused_to_it() {
    let host = Host::start(&[]);
    let tool = pqos(&["-I", "-e", "llc:1=0x5"]);
    let done = host.run(&tool.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(!done.status.success(), "{}", crate::third_party::host::reported(&done));
    assert_eq!(host.read("sys/fs/resctrl/schemata").lines().last().unwrap().trim(), "L3:0=7ff");
}

#[test]
fn it_monitors_cores() {
    let host = Host::start(&[]);
    // No perf events on a virtual host: the two columns that need them are turned off.
    let events = ["--disable-mon-ipc", "--disable-mon-llc_miss"];
    let said = reported(&host, &[&["-I"], &events[..], &["-m", "all:0-3", "-t", "2", "-i", "5"]].concat());
    has(&said, &["CORE", "LLC[KB]", "MBL[MB/s]", "MBR[MB/s]"]);
    let numbers =
        |line: &str| -> Vec<f64> { line.split_whitespace().map_while(|word| word.parse().ok()).collect() };
    let rows: Vec<Vec<f64>> = said.lines().map(numbers).filter(|row| row.len() == 4).collect();
    assert!(rows.len() >= 8, "{said}");
    let occupied: f64 = rows.iter().map(|row| row[1]).sum();
    let moved: f64 = rows.iter().map(|row| row[2]).sum();
    assert!(occupied > 0.0 && moved > 0.0, "the programs of the scenario use the LLC and memory:\n{said}");
}

#[test]
fn through_msrs_it_sets_the_same_masks() {
    let host = Host::start(&[]);
    has(&reported(&host, &["--iface=msr", "-s"]), &["L3CA COS0 => MASK 0x7ff", "L3CA COS15 => MASK 0x7ff"]);
    has(&reported(&host, &["--iface=msr", "-e", "llc:1=0x0f"]), &["SOCKET 0 L3CA COS1 => MASK 0xf"]);
    let rdmsr = needed("rdmsr", "msr-tools");
    assert_eq!(host.good(&[&rdmsr, "-p", "5", "0xc91"]).trim(), "f");
    // The class has no group; a real kernel would not know it either.
    assert!(!host.path("sys/fs/resctrl/COS1").exists());
}
