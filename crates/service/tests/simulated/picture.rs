//! What a machine's knobs are, by name: groups, masks, the group of every CPU and task, the DCA ways and switches.
//!
//! Read past all faults. Must not know who changed anything.

use crate::world::CALLER;
use std::collections::BTreeMap;
use waykeeper_vhost::file_tree::{EntryKind, FileTree};
use waykeeper_vhost::node::OpenAccess;

/// resctrl's mount point in the tree.
pub const MOUNT: &str = "sys/fs/resctrl";

/// All values, by name.
pub type Picture = BTreeMap<String, String>;

/// The register of the DCA ways (hardware.md 1.1).
pub const WAYS: u64 = 0xc8b;

/// The name of the DCA ways in a picture.
pub const WAYS_NAME: &str = "DCA ways";

/// The name of a root port's DCA switch in a picture.
pub fn port_name(address: &str) -> String {
    format!("port {address}")
}

/// The byte and bit of a root port's DCA switch (hardware.md 2.1).
pub const SWITCH: (u64, u8) = (0x180, 1 << 7);

/// The names in a directory.
pub fn names(files: &FileTree, path: &str) -> Vec<String> {
    let entries = files.walk(path, true).and_then(|number| files.entries(number)).unwrap_or_default();
    entries.into_iter().skip(2).map(|(name, _)| name).collect()
}

/// The bytes of a file; `None` if it cannot be read.
pub fn bytes(files: &FileTree, path: &str, offset: u64, most: usize) -> Option<Vec<u8>> {
    let number = files.walk(path, true).ok()?;
    let handle = files.open(number, OpenAccess { read: true, write: false }, CALLER).ok()?;
    let mut all = Vec::new();
    while all.len() < most {
        match files.read(number, handle, offset + all.len() as u64, most - all.len(), CALLER) {
            Ok(more) if !more.is_empty() => all.extend(more),
            _ => break,
        }
    }
    files.release(handle);
    Some(all)
}

/// A text file; empty if it cannot be read.
pub fn text(files: &FileTree, path: &str) -> String {
    String::from_utf8_lossy(&bytes(files, path, 0, 1 << 20).unwrap_or_default()).into_owned()
}

/// Writes a file, as another program does; false if the kernel refuses.
pub fn write(files: &FileTree, path: &str, offset: u64, data: &[u8]) -> bool {
    let Ok(number) = files.walk(path, true) else { return false };
    let Ok(handle) = files.open(number, OpenAccess { read: false, write: true }, CALLER) else {
        return false;
    };
    let done = files.write(number, offset, data, CALLER);
    files.release(handle);
    done.is_ok()
}

/// Switches a CPU on or off, or to the other state; false if the kernel refuses.
pub fn switch_cpu(files: &FileTree, cpu: u16, on: Option<bool>) -> bool {
    let path = format!("sys/devices/system/cpu/cpu{cpu}/online");
    let on = on.unwrap_or_else(|| text(files, &path) == "0\n");
    write(files, &path, 0, if on { b"1\n" } else { b"0\n" })
}

/// The online CPUs.
pub fn online(files: &FileTree) -> Vec<u16> {
    cpus(&text(files, "sys/devices/system/cpu/online"))
}

/// The control groups, by their directories below the mount; the first is the default group, "".
pub fn control_groups(files: &FileTree) -> Vec<String> {
    let is_group = |name: &String| {
        let is_dir = files
            .walk(&format!("{MOUNT}/{name}"), true)
            .is_ok_and(|number| files.kind(number) == EntryKind::Directory);
        is_dir && !["info", "mon_groups", "mon_data"].contains(&name.as_str())
    };
    std::iter::once(String::new()).chain(names(files, MOUNT).into_iter().filter(is_group)).collect()
}

/// A path in a group.
pub fn in_group(group: &str, file: &str) -> String {
    if group.is_empty() { format!("{MOUNT}/{file}") } else { format!("{MOUNT}/{group}/{file}") }
}

/// CPUs in a list as the kernel prints it.
pub fn cpus(list: &str) -> Vec<u16> {
    let parts = list.trim().split(',').filter(|part| !part.is_empty());
    let run = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| text.trim().parse::<u16>().ok();
        number(first).zip(number(last)).map_or(0..0, |(first, last)| first..last + 1)
    };
    parts.flat_map(run).collect()
}

/// Addresses of the root ports of the devices.
pub fn ports(files: &FileTree, server: &waykeeper_vhost::machine_clock::MachineClock) -> Vec<String> {
    let ports = server.with(|server| {
        server.layout().ports.iter().map(|port| port.address.to_string()).collect::<Vec<String>>()
    });
    let there = |address: &String| files.walk(&config(address), true).is_ok();
    ports.unwrap_or_default().into_iter().filter(there).collect()
}

/// The path of a device's config space.
pub fn config(address: &str) -> String {
    format!("sys/bus/pci/devices/{address}/config")
}

/// The picture now.
pub fn take(files: &FileTree, clock: &waykeeper_vhost::machine_clock::MachineClock) -> Picture {
    let mut picture = Picture::new();
    for group in control_groups(files) {
        let shown = if group.is_empty() { "default" } else { &group };
        picture.insert(format!("group {shown} schemata"), text(files, &in_group(&group, "schemata")));
        picture.insert(format!("group {shown} mode"), text(files, &in_group(&group, "mode")));
        for cpu in cpus(&text(files, &in_group(&group, "cpus_list"))) {
            picture.insert(format!("CPU {cpu}"), group.clone());
        }
        for task in text(files, &in_group(&group, "tasks")).lines() {
            picture.insert(format!("task {task}"), group.clone());
        }
        for monitor in names(files, &in_group(&group, "mon_groups")) {
            let path = in_group(&group, &format!("mon_groups/{monitor}/cpus_list"));
            picture.insert(format!("monitor {monitor} of {shown}"), text(files, &path));
        }
    }
    if let Some(value) = bytes(files, "dev/cpu/0/msr", WAYS, 8).filter(|value| value.len() == 8) {
        picture.insert(WAYS_NAME.to_owned(), format!("{value:x?}"));
    }
    for port in ports(files, clock) {
        let byte = bytes(files, &config(&port), SWITCH.0, 1).unwrap_or_default();
        picture.insert(port_name(&port), format!("{byte:x?}"));
    }
    picture
}
