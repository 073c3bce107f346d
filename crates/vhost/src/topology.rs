//! CPUs, caches and nodes in sysfs and procfs, and the kernel's version and command line.
//!
//! Source: linux Documentation/ABI/stable/sysfs-devices-system-cpu, arch/x86/kernel/cpu/proc.c. Everything here is
//! fixed at start, except which CPUs are online. It must not know the running machine.

use crate::cpu_switches::{CpuSwitches, CpuText, OnlineCpus, OnlineDirectory, OnlineFile};
use crate::cpuid::{CacheLevel, caches, core_bits, highest};
use crate::layout::Layout;
use crate::node::Tree;
use crate::rdt::Features;
use crate::resctrl::description::Kernel;
use std::fmt::Write;
use std::ops::Range;
use std::sync::Arc;
use waykeeper_silicon::ChipSpec;

/// CPUs as the kernel lists them: `0-3,8`.
pub fn list(cpus: impl IntoIterator<Item = usize>) -> String {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for cpu in cpus {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == cpu => *last = cpu,
            _ => runs.push((cpu, cpu)),
        }
    }
    let run = |(first, last): &(usize, usize)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    runs.iter().map(run).collect::<Vec<_>>().join(",")
}

/// CPUs as the kernel's masks of `possible` CPUs: words of 32 bits, the highest first, with as few digits as needed.
pub fn map(cpus: impl IntoIterator<Item = usize>, possible: usize) -> String {
    let mut words = vec![0u32; possible.div_ceil(32).max(1)];
    for cpu in cpus.into_iter().filter(|cpu| *cpu < possible) {
        words[cpu / 32] |= 1 << (cpu % 32);
    }
    let digits = |word: usize| if word == words.len() - 1 { (possible - 32 * word).div_ceil(4) } else { 8 };
    let text =
        words.iter().enumerate().rev().map(|(place, word)| format!("{word:0width$x}", width = digits(place)));
    text.collect::<Vec<_>>().join(",")
}

/// What the virtual server's kernel reports about itself.
#[derive(Clone, Debug)]
pub struct Boot {
    /// Its release.
    pub kernel: Kernel,
    /// Its command line.
    pub command_line: String,
    /// The id of this boot, as `proc/sys/kernel/random/boot_id` prints it.
    pub id: String,
}

/// Adds all files of CPUs, caches and nodes.
pub fn add(
    tree: &mut Tree,
    layout: &Layout,
    spec: &ChipSpec,
    features: Features,
    boot: &Boot,
    switches: &Arc<CpuSwitches>,
) {
    let cpus = layout.cpus();
    let all = format!("{}\n", list(0..cpus));
    let root = "sys/devices/system/cpu";
    for name in ["possible", "present"] {
        tree.text(&format!("{root}/{name}"), all.as_str());
    }
    let online = |online: &OnlineCpus| format!("{}\n", list(online.iter().copied()));
    tree.file(&format!("{root}/online"), CpuText::new(switches, online));
    let offline =
        move |online: &OnlineCpus| format!("{}\n", list((0..cpus).filter(|cpu| !online.contains(cpu))));
    tree.file(&format!("{root}/offline"), CpuText::new(switches, offline));
    tree.text(&format!("{root}/kernel_max"), "8191\n");
    tree.text(&format!("{root}/smt/active"), "0\n");
    tree.text(&format!("{root}/smt/control"), "notsupported\n");
    for cpu in 0..cpus {
        let package = layout.package_of(cpu);
        let siblings = layout.cpus_of(package);
        let here = format!("{root}/cpu{cpu}");
        if cpu > 0 {
            tree.file(&format!("{here}/online"), OnlineFile::new(switches.clone(), cpu));
            for name in ["topology", "cache"] {
                tree.appears(&format!("{here}/{name}"), OnlineDirectory(switches.clone(), cpu));
            }
        }
        let mut file = |name: &str, text: String| tree.text(&format!("{here}/{name}"), format!("{text}\n"));
        file("topology/physical_package_id", package.to_string());
        file("topology/core_id", (cpu % layout.cores).to_string());
        file("topology/die_id", "0".to_owned());
        for name in ["thread_siblings_list", "core_cpus_list"] {
            file(&format!("topology/{name}"), cpu.to_string());
        }
        for name in ["thread_siblings", "core_cpus"] {
            file(&format!("topology/{name}"), map([cpu], cpus));
        }
        for (index, cache) in caches(spec).into_iter().enumerate() {
            for (name, text) in cache_files(cache, index, cpu, package, layout.cores) {
                file(&format!("cache/index{index}/{name}"), text);
            }
        }
        for name in ["core_siblings", "package_cpus", "die_cpus"] {
            let path = format!("{here}/topology/{name}");
            cpu_sets(tree, switches, [format!("{path}_list"), path], siblings.clone(), cpus);
        }
        for (index, cache) in caches(spec).into_iter().enumerate() {
            let path = format!("{here}/cache/index{index}/shared_cpu");
            let sharers = if cache.shared { siblings.clone() } else { cpu..cpu + 1 };
            cpu_sets(tree, switches, [format!("{path}_list"), format!("{path}_map")], sharers, cpus);
        }
        tree.link(&format!("{here}/node{package}"), format!("../../node/node{package}"));
        tree.link(&format!("{here}/subsystem"), "../../../../bus/cpu");
        tree.link(&format!("sys/bus/cpu/devices/cpu{cpu}"), format!("../../../devices/system/cpu/cpu{cpu}"));
    }
    nodes(tree, layout, switches);
    let cpuinfo = CpuInfo { layout: layout.clone(), spec: spec.clone(), features };
    tree.file("proc/cpuinfo", CpuText::new(switches, move |online| cpuinfo.text(online)));
    kernel(tree, features, boot);
}

/// Adds the two files of a set of CPUs, of which those that are online count: as a list and as a mask of `possible` CPUs.
fn cpu_sets(
    tree: &mut Tree,
    switches: &Arc<CpuSwitches>,
    [list_path, map_path]: [String; 2],
    cpus: Range<usize>,
    possible: usize,
) {
    let set = cpus.clone();
    let text = move |online: &OnlineCpus| format!("{}\n", list(online.range(set.clone()).copied()));
    tree.file(&list_path, CpuText::new(switches, text));
    let text = move |online: &OnlineCpus| format!("{}\n", map(online.range(cpus.clone()).copied(), possible));
    tree.file(&map_path, CpuText::new(switches, text));
}

fn cache_files(
    cache: CacheLevel,
    index: usize,
    cpu: usize,
    package: usize,
    cores: usize,
) -> [(&'static str, String); 8] {
    let kind = ["Data", "Instruction", "Unified"][cache.kind as usize - 1];
    // The kernel numbers caches by the APIC ids that share them (arch/x86/kernel/cpu/cacheinfo.c: get_cache_id).
    let apic = package << core_bits(cores) | (cpu % cores);
    let id = if cache.shared { package } else { apic };
    debug_assert!(index < 4);
    [
        ("id", id.to_string()),
        ("level", cache.level.to_string()),
        ("type", kind.to_owned()),
        ("size", format!("{}K", cache.bytes() / 1024)),
        ("ways_of_associativity", cache.ways.to_string()),
        ("number_of_sets", cache.sets.to_string()),
        ("coherency_line_size", "64".to_owned()),
        ("physical_line_partition", "1".to_owned()),
    ]
}

fn nodes(tree: &mut Tree, layout: &Layout, switches: &Arc<CpuSwitches>) {
    let root = "sys/devices/system/node";
    let all = format!("{}\n", list(0..layout.packages));
    for name in ["possible", "online", "has_memory", "has_normal_memory"] {
        tree.text(&format!("{root}/{name}"), all.as_str());
    }
    let (cores, packages) = (layout.cores, layout.packages);
    let has_cpu = move |online: &OnlineCpus| {
        let has = |node: &usize| online.range(node * cores..(node + 1) * cores).next().is_some();
        format!("{}\n", list((0..packages).filter(has)))
    };
    tree.file(&format!("{root}/has_cpu"), CpuText::new(switches, has_cpu));
    for node in 0..layout.packages {
        let here = format!("{root}/node{node}");
        let cpus = layout.cpus_of(node);
        let paths = ["cpulist", "cpumap"].map(|name| format!("{here}/{name}"));
        cpu_sets(tree, switches, paths, cpus.clone(), layout.cpus());
        // Local 10, remote 21, as two-socket Xeons report (ACPI SLIT).
        let distance = |other| if other == node { "10" } else { "21" };
        let distances: Vec<&str> = (0..layout.packages).map(distance).collect();
        tree.text(&format!("{here}/distance"), format!("{}\n", distances.join(" ")));
        for cpu in cpus {
            tree.link(&format!("{here}/cpu{cpu}"), format!("../../cpu/cpu{cpu}"));
        }
    }
}

/// Flags that every chip here has, as `proc/cpuinfo` names CPUID's bits.
const FLAGS: &str = "fpu vme de pse tsc msr pae mce cx8 apic sep mtrr pge mca cmov pat pse36 clflush mmx fxsr sse sse2 \
                     ht syscall nx pdpe1gb rdtscp lm constant_tsc rep_good nopl xtopology nonstop_tsc \
                     cpuid aperfmperf pni pclmulqdq ssse3 cx16 sse4_1 sse4_2 x2apic popcnt aes xsave avx lahf_lm arat";

/// The flags of resource control (arch/x86/kernel/cpu/scattered.c, virtual-host.md 2).
fn resource_flags(features: Features) -> Vec<&'static str> {
    let mut flags = Vec::new();
    if features.announces_cat {
        flags.extend(["cat_l3", "rdt_a"]);
        if features.cdp {
            flags.push("cdp_l3");
        }
        if features.bandwidth_classes > 0 {
            flags.push("mba");
        }
    }
    if features.occupancy {
        flags.extend(["cqm", "cqm_llc", "cqm_occup_llc"]);
    }
    if features.traffic {
        flags.extend(["cqm_mbm_total", "cqm_mbm_local"]);
    }
    flags
}

/// `proc/cpuinfo`: a paragraph for each online CPU.
struct CpuInfo {
    layout: Layout,
    spec: ChipSpec,
    features: Features,
}

impl CpuInfo {
    fn text(&self, online: &OnlineCpus) -> String {
        let CpuInfo { layout, spec, features } = self;
        let identity = &layout.identity;
        let mut flags = vec![FLAGS];
        if !layout.is_amd() {
            flags.push("arch_perfmon");
        }
        if layout.generation.is_some() {
            flags.push("fma movbe f16c rdrand abm avx2 bmi1 bmi2"); // since Haswell
        }
        flags.extend(resource_flags(*features));
        let flags = flags.join(" ");
        let mhz = spec.ghz * 1000.0;
        let mut text = String::new();
        for cpu in online.iter().copied() {
            let package = layout.package_of(cpu);
            let core = cpu % layout.cores;
            let apic = package << core_bits(layout.cores) | core;
            // Cores here have one thread each.
            let siblings = online.range(layout.cpus_of(package)).count();
            let lines = [
                ("processor", cpu.to_string()),
                ("vendor_id", identity.vendor.clone()),
                ("cpu family", identity.family.to_string()),
                ("model", identity.model.to_string()),
                ("model name", identity.brand.clone()),
                ("stepping", identity.stepping.to_string()),
                ("microcode", "0x2006e05".to_owned()),
                ("cpu MHz", format!("{mhz:.3}")),
                ("cache size", format!("{} KB", spec.llc_bytes() / 1024)),
                ("physical id", package.to_string()),
                ("siblings", siblings.to_string()),
                ("core id", core.to_string()),
                ("cpu cores", siblings.to_string()),
                ("apicid", apic.to_string()),
                ("initial apicid", apic.to_string()),
                ("fpu", "yes".to_owned()),
                ("fpu_exception", "yes".to_owned()),
                ("cpuid level", highest(layout).to_string()),
                ("wp", "yes".to_owned()),
                ("flags", flags.clone()),
                ("bugs", String::new()),
                ("bogomips", format!("{:.2}", 2.0 * mhz)),
                ("clflush size", "64".to_owned()),
                ("cache_alignment", "64".to_owned()),
                ("address sizes", "46 bits physical, 48 bits virtual".to_owned()),
                ("power management", String::new()),
            ];
            for (key, value) in lines {
                // Keys are padded with tabs to two tab stops, as arch/x86/kernel/cpu/proc.c writes them.
                let tabs = if key.len() < 8 { "\t\t" } else { "\t" };
                // Writing to a String cannot fail.
                let _ = writeln!(text, "{key}{tabs}: {value}");
            }
            text.push('\n');
        }
        text
    }
}

fn kernel(tree: &mut Tree, features: Features, boot: &Boot) {
    let Kernel(major, minor) = boot.kernel;
    let mut systems = "nodev\tsysfs\nnodev\ttmpfs\nnodev\tproc\nnodev\tcgroup2\n\text4\n".to_owned();
    if features.any() {
        systems.push_str("nodev\tresctrl\n");
    }
    tree.text("proc/filesystems", systems);
    tree.text("proc/cmdline", format!("{}\n", boot.command_line));
    tree.text("proc/sys/kernel/osrelease", format!("{major}.{minor}.0-waykeeper\n"));
    tree.text(
        "proc/version",
        format!("Linux version {major}.{minor}.0-waykeeper (a virtual server of Waykeeper) #1 SMP\n"),
    );
    tree.text("proc/sys/kernel/random/boot_id", format!("{}\n", boot.id));
    tree.text("proc/sys/kernel/nmi_watchdog", "0\n");
    tree.text("sys/kernel/security/lockdown", "[none] integrity confidentiality\n");
    tree.directory("sys/module/msr");
    tree.directory("sys/module/cpuid");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_are_written_as_the_kernel_writes_them() {
        assert_eq!(list([0, 1, 2, 5, 7, 8]), "0-2,5,7-8");
        assert_eq!((list([]), list([4])), (String::new(), "4".to_owned()));
        // virtual-host.md 3.2: (possible CPUs + 3) / 4 digits.
        assert_eq!(map([0, 4], 18), "00011");
        assert_eq!(map([0, 33], 36), "2,00000001");
        assert_eq!(map([1], 4), "2");
    }
}
