//! Hosts of every generation: their identity, what a kernel would find on them, and that they mount.

use crate::common;

use common::{Host, ROOT, SCENARIO, UNPRIVILEGED, manual_clock, scenario};
use rustix::io::Errno;
use std::fs;
use std::time::Instant;
use waykeeper_generations::{Generation, Signature, Vendor};
use waykeeper_silicon::ChipSpec;
use waykeeper_testbed::wait_for;
use waykeeper_vhost::machine_clock::ClockSpeed;
use waykeeper_vhost::resctrl::description::Kernel;
use waykeeper_vhost::virtual_host::{VirtualHost, VirtualHostError, VirtualHostOptions, tree};

const CHIPS: [(&str, &str); 13] = [
    ("gold-6140", "skx"),
    ("gold-6134", "skx"),
    ("gold-5320", "icx"),
    ("gold-6430", "spr"),
    ("e5-2667v3", "hsx"),
    ("e5-2630v3", "hsx"),
    ("platinum-8570", "emr"),
    ("xeon-6980p", "gnr"),
    ("xeon-6780e", ""),
    ("epyc-7763", ""),
    ("epyc-9554", "zen4"),
    ("epyc-9755", "zen5"),
    ("e3-1230", ""),
];

/// The characters in words of CPUID.
fn letters(words: &[u32]) -> String {
    let bytes = words.iter().flat_map(|word| word.to_le_bytes()).filter(|byte| *byte != 0);
    String::from_utf8(bytes.collect()).unwrap()
}

#[test]
fn cpuid_names_the_chip_of_the_file_and_its_generation() {
    for (chip, generation) in CHIPS {
        let host = Host::new(chip);
        let identity = ChipSpec::built_in(chip).unwrap().identity.unwrap();
        let [_, b, c, d] = host.cpuid(0, 0, 0);
        let vendor = letters(&[b, d, c]);
        assert_eq!(vendor, identity.vendor);
        // SDM vol. 2, CPUID leaf 1: model from bits 7:4 and 19:16, family from bits 11:8 and 27:20.
        let signature = host.cpuid(0, 1, 0)[0];
        let signature = Signature {
            vendor: Vendor::from_id(&vendor).unwrap(),
            family: ((signature >> 8 & 15) + (signature >> 20 & 255)) as u16,
            model: ((signature >> 4 & 15) | (signature >> 12 & 0xf0)) as u16,
            stepping: (signature & 15) as u8,
        };
        let found = Generation::find(&signature).map_or("", |generation| generation.id.as_str());
        assert_eq!(found, generation, "{chip}: {signature}");
        let brand: Vec<u32> = (2..5).flat_map(|leaf| host.cpuid(0, 0x8000_0000 + leaf, 0)).collect();
        assert_eq!(letters(&brand), identity.brand);
        let info = host.text("proc/cpuinfo");
        assert!(info.contains(&format!("model\t\t: {}\n", identity.model)), "{info}");
        assert!(info.contains(&format!("model name\t: {}\n", identity.brand)));
    }
}

#[test]
fn caches_and_cpus_are_those_of_the_chip_file() {
    for (chip, _) in CHIPS {
        let host = Host::new(chip);
        let spec = ChipSpec::built_in(chip).unwrap();
        let cpus = spec.cores as usize;
        assert_eq!(host.text("sys/devices/system/cpu/possible"), format!("0-{}\n", cpus - 1));
        assert_eq!(host.text("proc/cpuinfo").matches("processor\t").count(), cpus);
        let cache = "sys/devices/system/cpu/cpu1/cache/index3";
        assert_eq!(host.text(&format!("{cache}/size")), format!("{}K\n", spec.llc_bytes() / 1024));
        assert_eq!(host.text(&format!("{cache}/id")), "0\n");
        assert_eq!(host.text(&format!("{cache}/shared_cpu_list")), format!("0-{}\n", cpus - 1));
        assert!(
            host.has("sys/bus/cpu/devices/cpu1/topology/core_id")
                && host.has(&format!("dev/cpu/{}/msr", cpus - 1))
        );
        let leaf = if spec.identity.as_ref().unwrap().vendor == "AuthenticAMD" { 0x8000_001d } else { 4 };
        let [a, b, c, _] = host.cpuid(1, leaf, 3);
        let bytes = u64::from((b >> 22) + 1) * u64::from(c + 1) * 64;
        assert_eq!((a >> 5 & 7, bytes), (3, spec.llc_bytes()), "{chip}");
        assert_eq!(host.cpuid(1, leaf, 4), [0; 4]);
        assert_eq!(host.cpuid(1, 0xb, 0)[3], 1, "APIC id");
    }
}

#[test]
fn resource_control_is_announced_as_each_generation_does() {
    let skylake = Host::new("gold-6140");
    assert_eq!(skylake.cpuid(0, 7, 0)[1] & (1 << 12 | 1 << 15), 1 << 12 | 1 << 15);
    assert_eq!(skylake.cpuid(0, 0x10, 0)[1], 0b1010, "L3 and bandwidth");
    // 11 ways, ways 9 and 10 shared with devices, separate masks for code and data, 16 classes; 8 classes of bandwidth.
    assert_eq!(skylake.cpuid(0, 0x10, 1), [10, 0x600, 1 << 2, 15]);
    assert_eq!(skylake.cpuid(0, 0x10, 3)[3], 7);
    assert_eq!(skylake.cpuid(0, 0xf, 0), [0, 127, 0, 2]);
    assert_eq!(skylake.cpuid(0, 0xf, 1)[3], 0b111);
    let flags = |host: &Host| {
        let info = host.text("proc/cpuinfo");
        info.lines().find(|line| line.starts_with("flags")).map(|line| format!("{line} ")).unwrap()
    };
    for flag in ["cat_l3", "cdp_l3", "cqm", "rdt_a", "cqm_llc", "cqm_occup_llc", "cqm_mbm_total", "mba"] {
        assert!(flags(&skylake).contains(&format!(" {flag} ")), "{flag}");
    }
    assert!(skylake.text("proc/cmdline").contains(" rdt=cmt,mbmtotal,mbmlocal,l3cat,l3cdp,mba\n"));
    let without =
        Host::with("gold-6140", SCENARIO, &VirtualHostOptions { bandwidth: false, ..manual_clock(16) });
    assert_eq!(without.cpuid(0, 0x10, 0)[1], 0b10);
    assert_eq!(without.read_msr(0, 0xd50), Err(Errno::IO));
    // hardware.md 7.2: Haswell has four classes of at least two ways, and CPUID does not announce them.
    let haswell = Host::new("e5-2667v3");
    assert_eq!(haswell.cpuid(0, 7, 0)[1] & (1 << 12 | 1 << 15), 1 << 12);
    assert_eq!(haswell.cpuid(0, 0x10, 0), [0; 4]);
    assert!(!flags(&haswell).contains("cat_l3") && !flags(&haswell).contains("mbm"));
    let epyc = Host::new("epyc-9554");
    assert_eq!(epyc.cpuid(0, 0x10, 1), [15, 0, 1 << 3 | 1 << 2, 15]);
    assert!(!flags(&epyc).contains("0x") && !epyc.text("proc/cmdline").contains("rdt="));
    let sandy = Host::new("e3-1230");
    assert_eq!((sandy.cpuid(0, 0x10, 1), sandy.cpuid(0, 0xf, 0)), ([0; 4], [0; 4]));
    assert!(!sandy.has("sys/fs/resctrl") && !sandy.text("proc/filesystems").contains("resctrl"));
    assert!(!sandy.text("proc/mounts").contains("/sys/fs/resctrl resctrl"));
}

#[test]
fn a_root_port_switches_its_device_where_the_register_is_and_shows_a_capability_where_it_is_not() {
    let skylake = Host::new("gold-6140");
    let port = "0000:16:00.0";
    assert_eq!(skylake.read_config(port, 0x180, 4).unwrap(), [0x80, 0, 0, 0]);
    assert_eq!(skylake.read_config(port, 0x100, 4).unwrap(), [1, 0, 1, 0], "no capability follows the first");
    skylake.run_to(20_000_000);
    let before = skylake.machine(|server| server.bare().dca());
    assert_eq!(skylake.write_config(port, 0x180, &[0]), Ok(1));
    assert_eq!(skylake.write_config("0000:5d:00.0", 0x180, &[0x08, 0, 0, 0]), Ok(4));
    assert_eq!(skylake.read_config("0000:5d:00.0", 0x180, 1).unwrap(), [0x08]);
    skylake.run_to(40_000_000);
    let after = skylake.machine(|server| server.bare().dca());
    assert_eq!((before.write_hits, before.write_misses), (after.write_hits, after.write_misses));

    // Ice Lake: root ports begin at device 2; the dword at 0x180 is 0x1901000b and ignores writes.
    let ice_lake = Host::new("gold-5320");
    let port = "0000:16:02.0";
    let dword = |at| u32::from_le_bytes(ice_lake.read_config(port, at, 4).unwrap().try_into().unwrap());
    assert_eq!((dword(0x00), dword(0x180)), (0x347a_8086, 0x1901_000b));
    assert_eq!((dword(0x100) >> 20, dword(0x190) >> 20), (0x180, 0), "it is on the chain");
    assert_eq!(ice_lake.write_config(port, 0x180, &[0; 4]), Ok(4));
    assert_eq!(dword(0x180), 0x1901_000b);
    // SAD_CONTROL of the root bus: its stack is number 1, which is PMU 0.
    assert_eq!(ice_lake.read_config("0000:16:00.0", 0x3f4, 4).unwrap(), [0x10, 0, 0, 0]);
}

#[test]
fn configuration_space_has_the_kernels_manners() {
    let host = Host::new("gold-6140");
    let config = host.file("sys/bus/pci/devices/0000:16:00.0/config");
    assert_eq!((config.size(), config.mode()), (4096, 0o644));
    assert_eq!(config.read(0, 8192, ROOT).unwrap().len(), 4096);
    assert_eq!(config.read(4090, 16, ROOT).unwrap().len(), 6);
    assert!(config.read(4096, 16, ROOT).unwrap().is_empty());
    assert_eq!(config.read(0, 4096, UNPRIVILEGED).unwrap().len(), 64);
    assert!(config.read(0x180, 4, UNPRIVILEGED).unwrap().is_empty());
    assert_eq!(config.write(4096, &[0], ROOT), Err(Errno::FBIG));
    assert_eq!(config.write(4094, &[0; 4], ROOT), Ok(2));
    assert_eq!(config.write(0, &[0; 4], ROOT), Ok(4));
    assert_eq!(config.read(0, 4, ROOT).unwrap(), [0x86, 0x80, 0x30, 0x20], "ids swallow writes");
    config.write(4, &[0x02, 0x00], ROOT).unwrap();
    assert_eq!(config.read(4, 2, ROOT).unwrap(), [0x02, 0x00], "the command register does not");
}

#[test]
fn devices_stand_behind_their_ports() {
    let host = Host::new("gold-6140");
    let devices = "sys/bus/pci/devices";
    assert_eq!(host.text(&format!("{devices}/0000:17:00.0/class")), "0x020000\n");
    assert_eq!(host.text(&format!("{devices}/0000:17:00.0/numa_node")), "0\n");
    assert!(host.has("sys/devices/pci0000:16/0000:16:00.0/0000:17:00.0/net/nic0"));
    // Four drives behind a switch: port 5d, switch 5e and 5f, drives 60 to 63.
    let bus = |device: &str, at| host.read_config(device, at, 1).unwrap()[0];
    let port = "0000:5d:00.0";
    assert_eq!((bus(port, 0x18), bus(port, 0x19), bus(port, 0x1a)), (0x5d, 0x5e, 0x63));
    for drive in 0x60..=0x63 {
        assert_eq!(host.text(&format!("{devices}/0000:{drive:x}:00.0/class")), "0x010802\n");
    }
    assert!(
        host.has("sys/devices/pci0000:5d/0000:5d:00.0/0000:5e:00.0/0000:5f:03.0/0000:63:00.0/nvme/nvme3")
    );
    assert!(host.has("sys/bus/pci/drivers/nvme/0000:63:00.0"));
    // The PCI Express capability of the port says that it is a root port.
    assert_eq!(bus(port, u64::from(bus(port, 0x34)) + 2) >> 4, 4);
    // Sapphire Rapids: the set bits of two words count 32 slices.
    let host = Host::new("gold-6430");
    assert_eq!(host.read_config("0000:3a:1e.3", 0x9c, 8).unwrap(), [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]);
}

#[test]
fn a_scenario_that_cannot_be_shown_says_what_would_do() {
    let why = |chip: &str, text: &str| match tree(scenario(chip, text), &manual_clock(16)) {
        Err(error) => error.to_string(),
        Ok(_) => panic!("it can be shown"),
    };
    // The chip `idio` has only two cores.
    let (small, _) = SCENARIO.split_once("[[workload]]\nname = \"fio\"").unwrap();
    assert!(why("idio", small).contains("the chip `idio` has no table [identity]"));
    let port = |text: &str| SCENARIO.replace("ring = 2048", &format!("ring = 2048\nport = \"{text}\""));
    assert!(why("gold-6140", &port("16:00")).contains("`nic0` is at `16:00`; it must be a PCI address"));
    let shared = why("gold-6140", &port("0000:5d:00.0"));
    assert!(shared.contains("`raid0` and `nic0` are both at 0000:5d:00.0"), "{shared}");
}

#[test]
fn every_host_mounts_and_a_mask_written_through_resctrl_is_seen_in_occupancy() {
    assert!(rustix::process::geteuid().is_root(), "not run: needs root and /dev/fuse");
    for (chip, generation) in CHIPS {
        let folder = tempfile::tempdir().unwrap();
        let spec = ChipSpec::built_in(chip).unwrap();
        let two_ways = spec.llc_bytes() / u64::from(spec.llc.ways) * 2;
        // The scan of 24 MiB is so many times larger on the large chips, and has as much more time.
        let times = (two_ways / (5 << 20)).max(1);
        let text = SCENARIO.replace("\"24M\"", &format!("\"{}M\"", 24 * times));
        let kernel = if generation == "hsx" { Kernel(6, 1) } else { Kernel(6, 12) };
        let host = VirtualHost::mount(
            folder.path(),
            scenario(chip, &text),
            VirtualHostOptions { kernel, ..manual_clock(16) },
        );
        let host = host.unwrap_or_else(|error| panic!("not run: needs root and /dev/fuse: {chip}: {error}"));
        let root = folder.path();
        assert!(fs::read_to_string(root.join("proc/cpuinfo")).unwrap().starts_with("processor\t: 0\n"));
        let resctrl = root.join("sys/fs/resctrl");
        if generation.is_empty() {
            assert!(!resctrl.exists());
            continue;
        }
        let group = resctrl.join("scan");
        fs::create_dir(&group).unwrap();
        fs::write(group.join("cpus_list"), "3\n").unwrap();
        fs::write(group.join("schemata"), "L3:0=3\n").unwrap();
        host.clock().run_until(times * 40_000_000).unwrap();
        let occupancy = || -> u64 {
            let text = fs::read_to_string(group.join("mon_data/mon_L3_00/llc_occupancy")).unwrap();
            text.trim().parse().unwrap()
        };
        let narrow = occupancy();
        assert!(narrow <= two_ways && narrow > two_ways / 4, "{chip}: {narrow} of {two_ways}");
        fs::write(group.join("schemata"), "L3:0=ff\n").unwrap();
        host.clock().run_until(times * 140_000_000).unwrap();
        assert!(occupancy() > 2 * narrow, "{chip}: {narrow}, then {}", occupancy());
        drop(host);
        assert!(!resctrl.exists(), "unmounted");
    }
}

#[test]
fn names_that_an_unmount_removes_are_gone_at_once_and_a_mount_with_cdp_brings_others() {
    let folder = tempfile::tempdir().unwrap();
    let host = VirtualHost::mount(folder.path(), scenario("gold-6140", SCENARIO), manual_clock(16));
    let host = host.unwrap_or_else(|error| panic!("not run: needs root and /dev/fuse: {error}"));
    let resctrl = folder.path().join("sys/fs/resctrl");
    let turn = |text: &str| fs::write(folder.path().join("waykeeper/resctrl"), text);
    let is = |name: &str| resctrl.join(name).exists();
    let names = ["a/schemata", "schemata", "mon_groups", "info/L3/cbm_mask", "info/L3CODE/cbm_mask"];
    fs::create_dir(resctrl.join("a")).unwrap();
    // The kernel caches what it has found here.
    assert_eq!(names.map(is), [true, true, true, true, false]);
    turn("umount\n").unwrap();
    assert_eq!(names.map(is), [false; 5]);
    assert_eq!(turn("mount cdpl2\n").unwrap_err().raw_os_error(), Some(Errno::INVAL.raw_os_error()));
    turn("mount cdp\n").unwrap();
    assert_eq!(names.map(is), [false, true, true, false, true]);
    let text = |name: &str| fs::read_to_string(resctrl.join(name)).unwrap();
    assert!(text("schemata").contains("L3CODE:0=7ff\n"), "{}", text("schemata"));
    // 16 classes in halves, and 8 of memory bandwidth.
    assert_eq!(text("info/L3DATA/num_closids"), "8\n");
    host.clock().with(|server| assert!(server.cdp(0))).unwrap();
    turn("umount\n").unwrap();
    host.clock().with(|server| assert!(!server.cdp(0))).unwrap();
    turn("mount\n").unwrap();
    assert_eq!(names.map(is), [false, true, true, true, false]);
    assert!(text("schemata").contains("L3:0=7ff\n"), "{}", text("schemata"));
}

#[test]
fn the_wall_clock_drives_the_machine_and_a_lag_is_reported() {
    let options = |speed| VirtualHostOptions { speed: ClockSpeed::Wall(speed), ..manual_clock(16) };
    // Taken before the host is created, since its clock begins during creation.
    let begun = Instant::now();
    let host = Host::with("gold-6140", SCENARIO, &options(0.5));
    wait_for("50 ms of the machine", || host.clock.now_ns() >= 50_000_000);
    assert!(2 * host.clock.now_ns() <= begun.elapsed().as_nanos() as u64, "half as fast as the wall clock");
    assert!(host.read_msr(0, 0x10).unwrap() > 0);
    // No machine computes a thousand times as fast as the wall clock.
    let late = Host::with("gold-6140", SCENARIO, &options(1000.0));
    wait_for("a lag", || late.clock.lag_ns() > 0);
    let clock = late.text("waykeeper/clock");
    assert!(clock.starts_with("clock_ns ") && clock.contains("\nlag_ns "), "{clock}");
}

#[test]
fn a_directory_that_is_in_use_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("file"), "").unwrap();
    let refused = VirtualHost::mount(folder.path(), scenario("gold-6140", SCENARIO), manual_clock(16));
    assert!(matches!(refused, Err(VirtualHostError::Mount(error)) if error.to_string().contains("empty")));
}
