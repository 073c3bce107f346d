//! rdmsr and wrmsr (msr-tools), and cpuid: the devices of the kernel's msr and cpuid modules.

use crate::third_party::host::{Host, has, needed, reported};

fn rdmsr() -> String {
    needed("rdmsr", "msr-tools")
}

#[test]
fn the_ddio_ways_are_read_and_written_for_the_whole_package() {
    let host = Host::start(&[]);
    assert_eq!(host.good(&[&rdmsr(), "-p", "0", "0xc8b"]).trim(), "600");
    host.good(&[&needed("wrmsr", "msr-tools"), "-p", "0", "0xc8b", "0x780"]);
    assert_eq!(host.good(&[&rdmsr(), "-a", "0xc8b"]), "780\n".repeat(18));
    // And back on all CPUs at once.
    host.good(&[&needed("wrmsr", "msr-tools"), "-a", "0xc8b", "0x600"]);
    assert_eq!(host.good(&[&rdmsr(), "-p", "17", "0xc8b"]).trim(), "600");
}

#[test]
fn bitfields_and_masks_of_classes_are_read() {
    let host = Host::start(&[]);
    assert_eq!(host.good(&[&rdmsr(), "-p", "3", "-f", "10:9", "0xc8b"]).trim(), "3");
    assert_eq!(host.good(&[&rdmsr(), "-p", "3", "-X", "-0", "0xc90"]).trim(), "00000000000007FF");
}

#[test]
fn what_the_cpu_has_not_is_refused() {
    let host = Host::start(&[]);
    let done = host.run(&[&rdmsr(), "-p", "0", "0x9999"]);
    assert_eq!(done.status.code(), Some(4));
    has(&reported(&done), &["CPU 0 cannot read MSR 0x00009999"]);
    let done = host.run(&[&needed("wrmsr", "msr-tools"), "-p", "0", "0xc90", "0x5"]);
    assert_eq!(done.status.code(), Some(4), "a mask with holes: {}", reported(&done));
    has(&reported(&done), &["CPU 0 cannot set MSR 0x00000c90"]);
    let done = host.run(&[&rdmsr(), "-p", "18", "0xc8b"]);
    assert!(!done.status.success(), "there is no CPU 18");
    has(&reported(&done), &["No such file or directory"]);
}

#[test]
fn cpuid_decodes_a_skylake() {
    let host = Host::start(&[]);
    let said = host.good(&[&needed("cpuid", "cpuid"), "-k", "-1"]);
    has(&said, &["vendor_id = \"GenuineIntel\"", "Intel(R) Xeon(R) Gold 6140 CPU @ 2.30GHz"]);
    has(&said, &["{Skylake}, 14nm", "RDT-CMT/PQoS cache monitoring            = true"]);
    has(&said, &["RDT-CAT/PQE cache allocation             = true"]);
    let raw = host.good(&[&needed("cpuid", "cpuid"), "-k", "-r", "-1", "-l", "0x10", "-s", "1"]);
    // 11 ways (less one), shared ones 0x600, 16 classes (less one).
    has(&raw, &["eax=0x0000000a ebx=0x00000600", "edx=0x0000000f"]);
}
