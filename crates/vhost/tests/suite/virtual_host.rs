//! The virtual host as a tree of files: the effect of registers on the machine, and the files' content.
//!
//! The clock is stopped, so every test sees the same numbers each time.

use crate::common;

use common::{Host, SCENARIO, manual_clock, scenario};
use rustix::io::Errno;
use std::sync::Arc;
use waykeeper_vhost::rdt::Driver;
use waykeeper_vhost::resctrl::hardware::{Hardware, MaskedLines, Monitored, RmidEvent};

/// ms of the server's clock.
const MS: u64 = 1_000_000;

#[test]
fn core_counters_through_msrs_equal_what_the_machine_counts() {
    let host = Host::new("gold-6140");
    // hardware.md 6.1: instructions, LLC references and misses, L2 references and misses; fixed 0 and 1.
    for (index, event) in (0..).zip([0xc0_u64, 0x4f2e, 0x412e, 0xff24, 0x3f24]) {
        host.write_msr(3, 0x186 + index, 0x43_0000 | event).unwrap();
    }
    host.write_msr(3, 0x38d, 0x333).unwrap();
    host.run_to(20 * MS);
    let counts = host.machine(|server| server.bare().cores(3..4));
    assert!(counts.instructions > 1_000_000 && counts.llc_misses > 1000, "{counts:?}");
    let read = |address| host.read_msr(3, address).unwrap();
    let counted: Vec<u64> = (0..5).map(|index| read(0xc1 + index)).collect();
    let llc = counts.llc_hits + counts.llc_misses;
    let expected =
        [counts.instructions, llc, counts.llc_misses, counts.mlc_hits + counts.mlc_misses, counts.mlc_misses];
    assert_eq!(counted, expected);
    assert_eq!((read(0x309), read(0x30a), read(0x30b)), (counts.instructions, counts.cycles, counts.cycles));
    assert_eq!((read(0xe7), read(0x10)), (counts.cycles, 46_000_000), "20 ms at 2.3 GHz");
    // A counter just below its end wraps at 48 bits.
    host.write_msr(3, 0xc1, (1 << 48) - 1).unwrap();
    host.run_to(21 * MS);
    let more = host.machine(|server| server.bare().cores(3..4)).instructions - counts.instructions;
    assert_eq!(read(0xc1), more - 1);
    assert_eq!(host.read_msr(4, 0xc1).unwrap(), 0, "no counter of core 4 was programmed");
}

#[test]
fn uncore_counters_through_msrs_add_up_to_what_devices_did() {
    let host = Host::new("gold-6140");
    // The sequence of pqos on all 18 CHAs: ItoM hits and misses (hardware.md 3.2, 3.3).
    for cha in 0..18 {
        let base = 0xe00 + 0x10 * cha;
        for (offset, value) in [
            (0, 0x10100),
            (0, 0x10101),
            (0, 0x10102),
            (5, 0),
            (6, 0x49033),
            (1, 0x40_1435),
            (2, 0x40_2435),
            (0, 0x10000),
        ] {
            host.write_msr(0, base + offset, value).unwrap();
        }
    }
    assert_eq!(host.read_msr(7, 0x702).unwrap(), 18, "how many CHAs there are");
    // Bytes into part 0 of stack 1, where nic0 is: event 0x83, umask 1, all kinds of requests.
    host.write_msr(0, 0xa48 + 0x20, 0x40_0083 | 1 << 8 | 1 << 36 | 7 << 44).unwrap();
    host.write_msr(0, 0xa40 + 0x20, 0x10000).unwrap();
    host.run_to(20 * MS);
    let (dca, port) = host.machine(|server| (server.bare().dca(), server.bare().port(0)));
    let sum = |offset: u32| {
        (0..18_u32).map(|cha| host.read_msr(0, 0xe00 + 0x10 * cha + offset).unwrap()).sum::<u64>()
    };
    assert_eq!((sum(8), sum(9)), (dca.write_hits, dca.write_misses));
    assert!(dca.write_hits > 10_000 && dca.write_misses > 0, "{dca:?}");
    assert_eq!(host.read_msr(0, 0xa41 + 0x20).unwrap(), port.inbound / 4);
    // Free-running: 36 bits of four bytes, stack 1, part 0; and the buses of the stacks.
    assert_eq!(host.read_msr(0, 0xb10).unwrap(), (port.inbound / 4) & 0xf_ffff_ffff);
    assert_eq!(host.read_msr(0, 0xb14).unwrap(), (port.outbound / 4) & 0xf_ffff_ffff);
    assert_eq!(host.read_msr(0, 0x300).unwrap(), 1 << 63 | 0x5d << 16 | 0x16 << 8);
}

#[test]
fn memory_counters_stand_in_configuration_space() {
    let host = Host::new("gold-6140");
    let channels = ["0a.2", "0a.6", "0b.2", "0c.2", "0c.6", "0d.2"].map(|place| format!("0000:3a:{place}"));
    for channel in &channels {
        host.write_config(channel, 0xd8, &0x40_0304_u32.to_le_bytes()).unwrap();
        host.write_config(channel, 0xdc, &0x40_0c04_u32.to_le_bytes()).unwrap();
    }
    host.run_to(20 * MS);
    let bytes = host.machine(|server| server.bare().memory());
    let sum = |at: u64| -> u64 {
        let counter = |channel: &String| {
            let bytes = host.read_config(channel, at, 8).unwrap();
            u64::from_le_bytes(bytes.try_into().unwrap())
        };
        channels.iter().map(counter).sum()
    };
    assert_eq!((sum(0xa0) * 64, sum(0xa8) * 64), (bytes.read, bytes.written));
    assert!(bytes.read > 1_000_000);
}

#[test]
fn masks_are_the_same_in_resctrl_and_in_registers_and_act() {
    let host = Host::new("gold-6140");
    let mut driver = Driver::new(host.clock.clone());
    driver.set_cpu(3, 2, 5);
    driver.set_mask(0, 2, MaskedLines::All, 0x003);
    assert_eq!(host.read_msr(0, 0xc92), Ok(0x003));
    assert_eq!(host.read_msr(3, 0xc8f), Ok(2 << 32 | 5));
    host.run_to(60 * MS);
    let Monitored::Value(narrow) = driver.monitor(0, 5, RmidEvent::LlcOccupancy) else { panic!("no value") };
    // Two of 11 ways of 24.75 MiB are 4.5 MiB; the scan has 24 MiB.
    assert!((2 << 20..=9 << 19).contains(&narrow), "{narrow}");
    host.write_msr(17, 0xc92, 0x0ff).unwrap();
    host.run_to(160 * MS);
    let Monitored::Value(wide) = driver.monitor(0, 5, RmidEvent::LlcOccupancy) else { panic!("no value") };
    assert!(wide > 2 * narrow, "{narrow} to {wide}");
    // The same through IA32_QM_EVTSEL and IA32_QM_CTR, in units of 64 KiB.
    host.write_msr(9, 0xc8d, 5 << 32 | 1).unwrap();
    assert_eq!(host.read_msr(9, 0xc8e).unwrap() * 65536, wide);
    host.write_msr(9, 0xc8d, 5 << 32 | 9).unwrap();
    assert_eq!(host.read_msr(9, 0xc8e), Ok(1 << 63), "no such event");
    for refused in [0, 0x005, 0x800, 1 << 40] {
        assert_eq!(host.write_msr(0, 0xc92, refused), Err(Errno::IO), "{refused:#x}");
    }
    assert_eq!(host.write_msr(0, 0xc8f, 16 << 32), Err(Errno::IO), "16 classes");
    assert_eq!(host.write_msr(0, 0xca0, 1), Err(Errno::IO));
}

#[test]
fn code_and_data_masks_stand_side_by_side() {
    let host = Host::new("gold-6140");
    let mut driver = Driver::new(host.clock.clone());
    driver.set_cpu(3, 1, 1);
    driver.set_mask(0, 1, MaskedLines::Data, 0x003);
    driver.set_mask(0, 1, MaskedLines::Code, 0x7f0);
    assert_eq!([0xc81, 0xc92, 0xc93].map(|address| host.read_msr(0, address).unwrap()), [1, 0x003, 0x7f0]);
    host.run_to(60 * MS);
    let occupied = host.machine(|server| server.occupancy(0, 1));
    assert!(occupied <= 9 << 19, "programs of the model read data: {occupied}");
}

#[test]
fn the_ways_of_ddio_act_where_they_act() {
    let misses = |chip: &str, ways: Option<u64>| {
        let host = Host::new(chip);
        if let Some(ways) = ways {
            host.write_msr(0, 0xc8b, ways).unwrap();
            assert_eq!(host.read_msr(1, 0xc8b), Ok(ways), "one register a package");
        }
        host.run_to(60 * MS);
        let dca = host.machine(|server| server.bare().dca());
        dca.write_misses as f64 / (dca.write_hits + dca.write_misses) as f64
    };
    let (two, eight) = (misses("gold-6140", None), misses("gold-6140", Some(0x7f8)));
    assert!(eight < 0.8 * two, "Skylake: {two} with 2 ways, {eight} with 8");
    let (two, eight) = (misses("gold-5320", None), misses("gold-5320", Some(0xff0)));
    assert_eq!(two, eight, "Ice Lake's register answers and does nothing");
}

#[test]
fn registers_that_are_not_there_fault() {
    let skylake = Host::new("gold-6140");
    assert_eq!(skylake.read_msr(0, 0xc8b), Ok(0x600));
    assert_eq!(skylake.write_msr(0, 0xc8b, 0x680), Err(Errno::IO), "holes");
    for address in [0xdead, 0x2000, 0xc001_0200, 0xe00 + 0x10 * 18] {
        assert_eq!(skylake.read_msr(0, address), Err(Errno::IO), "{address:#x}");
        assert_eq!(skylake.write_msr(0, address, 0), Err(Errno::IO), "{address:#x}");
    }
    assert_eq!(skylake.write_msr(0, 0x702, 0), Err(Errno::IO), "a number that never changes");
    let haswell = Host::new("e5-2667v3");
    assert_eq!(haswell.read_msr(0, 0xc8b), Ok(0x60000));
    assert_eq!(haswell.read_msr(0, 0xd50), Err(Errno::IO), "no bandwidth allocation");
    let epyc = Host::new("epyc-9554");
    assert_eq!(epyc.read_msr(0, 0xc8b), Err(Errno::IO));
    assert_eq!(epyc.write_msr(0, 0xc91, 0x8421), Ok(()), "AMD's masks may have holes");
    assert_eq!(Host::new("e3-1230").read_msr(0, 0xc90), Err(Errno::IO), "no CAT");
}

#[test]
fn software_switches_the_prefetchers_of_a_core() {
    let host = Host::new("gold-6140");
    let on = |core: usize| host.machine(|server| server.bare().prefetchers_on(core));
    assert_eq!((host.read_msr(3, 0x1a4), on(3)), (Ok(0), true), "on at power-on");
    host.write_msr(3, 0x1a4, 0xf).unwrap();
    assert_eq!((host.read_msr(3, 0x1a4), on(3)), (Ok(0xf), false));
    assert_eq!((host.read_msr(4, 0x1a4), on(4)), (Ok(0), true), "one register a core");
    host.write_msr(3, 0x1a4, 0xe).unwrap();
    assert!(on(3), "the L2 streamer is on again");
    assert_eq!(host.write_msr(3, 0x1a4, 0x10), Err(Errno::IO), "a reserved bit");
    assert_eq!(Host::new("epyc-9554").read_msr(0, 0x1a4), Err(Errno::IO), "Intel's register");
}

#[test]
fn the_msr_device_has_the_kernels_manners() {
    let host = Host::new("gold-6140");
    let msr = host.file("dev/cpu/0/msr");
    assert_eq!(msr.read(0xc8b, 4, common::ROOT), Err(Errno::INVAL));
    assert_eq!(msr.read(0xc8b, 16, common::ROOT).unwrap(), [0, 6, 0, 0, 0, 0, 0, 0].repeat(2));
    assert_eq!(msr.write(0xc8b, &[0; 7], common::ROOT), Err(Errno::INVAL));
    let both = [0x700_u64, 0x7c0].map(u64::to_le_bytes).concat();
    assert_eq!(msr.write(0xc8b, &both, common::ROOT), Ok(16), "the same register, one value after the other");
    assert_eq!(host.read_msr(0, 0xc8b), Ok(0x7c0));
    assert_eq!((msr.mode(), msr.size()), (0o600, 0));
    let cpuid = host.file("dev/cpu/0/cpuid");
    assert_eq!(cpuid.read(0, 8, common::ROOT), Err(Errno::INVAL));
    assert_eq!(cpuid.read(0, 32, common::ROOT).unwrap().len(), 32);
}

#[test]
fn amd_counts_by_its_own_registers() {
    let host = Host::new("epyc-9554");
    // PERF_CTL0 to 2: instructions, fills from beyond the CCX; L3 PMU: misses of all cores.
    host.write_msr(3, 0xc001_0200, 0x43_00c0).unwrap();
    host.write_msr(3, 0xc001_0202, 0x43_dc44).unwrap();
    host.write_msr(0, 0xc001_0230, 0x0300_c000_0040_0104).unwrap();
    host.run_to(20 * MS);
    let (core, all) = host.machine(|server| (server.bare().cores(3..4), server.bare().cores(0..8)));
    let read = |cpu, address| host.read_msr(cpu, address).unwrap();
    assert_eq!((read(3, 0xc001_0201), read(3, 0xc001_0203)), (core.instructions, core.llc_misses));
    assert_eq!(read(0, 0xc001_0231), all.llc_misses);
    assert!(core.llc_misses > 0);
}

#[test]
fn a_device_on_another_socket_brings_a_second_package() {
    let text = SCENARIO.replace("ring = 2048", "ring = 2048\nremote = true");
    let host = Host::of("gold-6140", &text);
    assert_eq!(host.text("sys/devices/system/cpu/online"), "0-35\n");
    assert_eq!(host.text("sys/devices/system/cpu/cpu20/topology/physical_package_id"), "1\n");
    assert_eq!(host.text("sys/devices/system/cpu/cpu20/cache/index3/id"), "1\n");
    assert_eq!(host.text("sys/bus/pci/devices/0000:16:00.0/numa_node"), "1\n");
    host.write_msr(20, 0xc8b, 0x700).unwrap();
    assert_eq!((host.read_msr(35, 0xc8b), host.read_msr(0, 0xc8b)), (Ok(0x700), Ok(0x600)));
    host.write_msr(20, 0x38d, 0x333).unwrap();
    host.run_to(20 * MS);
    assert_eq!(host.read_msr(20, 0x309), Ok(0), "nothing runs there");
    let port = host.machine(|server| server.bare().port(0));
    assert!(port.inbound > 0);
    assert_eq!(host.read_msr(18, 0xb10), Ok(port.inbound / 4), "its bytes are counted where it hangs");
    let array = host.machine(|server| server.bare().port(1));
    assert_eq!(host.read_msr(0, 0xb10), Ok(array.inbound / 4), "stack 1 of package 0 is raid0's now");
}

#[test]
fn resctrl_is_unmounted_and_mounted_by_a_file_of_the_tree() {
    let host = Host::new("gold-6140");
    let switch = host.file("waykeeper/resctrl");
    let caller = |uid| waykeeper_vhost::node::Caller { pid: 1, uid };
    let mounted = || host.text("proc/mounts").lines().any(|line| line.starts_with("resctrl "));
    assert_eq!((host.text("waykeeper/resctrl").as_str(), mounted()), ("mounted\n", true));
    assert_eq!(switch.write(0, b"mount\n", caller(0)), Err(Errno::BUSY));
    assert_eq!(switch.write(0, b"umount\n", caller(1000)), Err(Errno::PERM));
    assert_eq!(switch.write(0, b"remount\n", caller(0)), Err(Errno::INVAL));
    // A mask that a tool wrote past resctrl.
    host.write_msr(0, 0xc90, 0x3).unwrap();
    assert_eq!(switch.write(0, b"umount\n", caller(0)), Ok(7));
    assert_eq!((host.text("waykeeper/resctrl").as_str(), mounted()), ("unmounted\n", false));
    assert_eq!(host.read_msr(0, 0xc90), Ok(0x7ff));
    assert_eq!(switch.write(0, b"mount", caller(0)), Ok(5));
    assert!(mounted());
}

#[test]
fn a_host_that_is_dropped_leaves_nothing_behind() {
    let text = scenario("gold-6140", SCENARIO);
    let (tree, clock, thread) = waykeeper_vhost::virtual_host::tree(text.clone(), &manual_clock(16)).unwrap();
    // The machine and the programs hold the scenario.
    assert!(Arc::strong_count(&text) > 1);
    drop((tree, clock, thread));
    assert_eq!(Arc::strong_count(&text), 1);
}
