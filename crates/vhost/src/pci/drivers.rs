//! What the drivers of the server's NICs and drives show in sysfs: network interfaces, InfiniBand devices, NVMe
//! controllers and their namespaces.
//!
//! Only facts that do not change: no statistics, and nothing that a driver lets a user set. Sources: linux
//! Documentation/ABI/testing/sysfs-class-net, stable/sysfs-class-infiniband and stable/sysfs-block,
//! drivers/nvme/host/sysfs.c. It must not know addresses of other devices.

use crate::class::{ClassDevice, DeviceNumber};
use crate::layout::Address;
use crate::node::Tree;

/// Majors of disks, of NVMe controllers and of their generic devices. Linux assigns none from 512 on (linux
/// block/blk.h: BLKDEV_MAJOR_MAX, include/linux/fs.h: CHRDEV_MAJOR_MAX), so that no device file of the machine on
/// which the tree is mounted leads to a device of the tree.
const BLOCK_MAJOR: u32 = 1259;
const NVME_MAJOR: u32 = 1240;
const GENERIC_MAJOR: u32 = 1241;

/// Sectors of 512 bytes of a drive of 1 TB (IDEMA LBA1-03: 97696368 + 1953504 for each GB above 50).
const SECTORS: u64 = 97_696_368 + 1_953_504 * (1000 - 50);

/// Model and firmware of the drives.
const MODEL: &str = "Samsung SSD 980 PRO 1TB";
const FIRMWARE: &str = "5B2QGXA7";

/// Index of the first interface after `lo`.
const FIRST_INDEX: usize = 2;

/// An interface of a NIC.
#[derive(Clone, Debug)]
pub struct Interface<'n> {
    /// Its name.
    pub name: &'n str,
    /// Number of interfaces before it.
    pub number: usize,
    /// The function that has it.
    pub address: Address,
    /// Line rate, Gb/s.
    pub gbps: f64,
}

fn texts<const N: usize>(files: [(&'static str, &str); N]) -> [(&'static str, String); N] {
    files.map(|(name, text)| (name, text.to_owned()))
}

impl Interface<'_> {
    /// The last two bytes of its hardware address: bus, device and function.
    fn own_bytes(&self) -> [u8; 2] {
        let Address { bus, device, function, .. } = self.address;
        [bus, device << 3 | function]
    }

    /// The network interface, as the driver mlx5_core registers it.
    pub fn net(&self) -> ClassDevice {
        let index = FIRST_INDEX + self.number;
        let [bus, slot] = self.own_bytes();
        let files = texts([
            ("addr_len", "6"),
            ("broadcast", "ff:ff:ff:ff:ff:ff"),
            ("carrier", "1"),
            ("dev_id", "0x0"),
            ("dev_port", "0"),
            ("duplex", "full"),
            ("flags", "0x1003"),
            ("mtu", "1500"),
            ("operstate", "up"),
            ("tx_queue_len", "1000"),
            ("type", "1"),
        ]);
        ClassDevice::new("net", self.name).with(files).with([
            // Locally administered (IEEE 802), so that it is the address of no real card.
            ("address", format!("02:00:00:00:{bus:02x}:{slot:02x}")),
            ("ifindex", index.to_string()),
            ("iflink", index.to_string()),
            ("speed", format!("{:.0}", 1000.0 * self.gbps)),
            ("uevent", format!("INTERFACE={}\nIFINDEX={index}", self.name)),
        ])
    }

    /// The InfiniBand device with RoCE on this interface, as the driver mlx5_ib registers it.
    pub fn infiniband(&self) -> ClassDevice {
        let name = format!("mlx5_{}", self.number);
        let [bus, slot] = self.own_bytes();
        let guid = format!("0000:00ff:fe00:{bus:02x}{slot:02x}");
        let files = texts([
            ("node_type", "1: CA"),
            ("hca_type", "MT4119"),
            ("fw_ver", "16.35.3502"),
            ("hw_rev", "0"),
            ("board_id", "MT_0000000008"),
            ("ports/1/state", "4: ACTIVE"),
            ("ports/1/phys_state", "5: LinkUp"),
            ("ports/1/link_layer", "Ethernet"),
            ("ports/1/lid", "0x0"),
            ("ports/1/sm_lid", "0x0"),
            ("ports/1/sm_sl", "0"),
            ("ports/1/lid_mask_count", "0"),
            ("ports/1/cap_mask", "0x04010000"),
            ("ports/1/gid_attrs/types/0", "IB/RoCE v1"),
        ]);
        ClassDevice::new("infiniband", name.as_str()).with(files).with([
            ("node_desc", name.clone()),
            ("node_guid", guid.clone()),
            ("sys_image_guid", guid.clone()),
            ("ports/1/rate", format!("{:.0} Gb/sec (4X EDR)", self.gbps)),
            ("ports/1/gids/0", format!("fe80:0000:0000:0000:{guid}")),
            ("ports/1/gid_attrs/ndevs/0", self.name.to_owned()),
        ])
    }
}

/// The loopback interface.
pub fn loopback() -> ClassDevice {
    let files = texts([
        ("address", "00:00:00:00:00:00"),
        ("flags", "0x9"),
        ("ifindex", "1"),
        ("iflink", "1"),
        ("mtu", "65536"),
        ("operstate", "unknown"),
        ("type", "772"),
        ("uevent", "INTERFACE=lo\nIFINDEX=1"),
    ]);
    ClassDevice::new("net", "lo").with(files)
}

/// The serial number of a drive.
fn serial(number: u32) -> String {
    format!("WK{number:013}")
}

fn subsystem_name(number: u32) -> String {
    format!("nqn.2014.08.org.nvmexpress:144d144d{:<20}{MODEL:<40}", serial(number))
}

/// The controller of a drive with its namespace, as the driver nvme registers them.
pub fn controller(number: u32, address: Address, node: usize) -> ClassDevice {
    let name = format!("nvme{number}");
    let files = texts([
        ("model", MODEL),
        ("firmware_rev", FIRMWARE),
        ("state", "live"),
        ("transport", "pcie"),
        ("cntrltype", "io"),
        ("cntlid", "6"),
        ("kato", "0"),
        ("sqsize", "1023"),
    ]);
    let controller = ClassDevice::new("nvme", name.as_str()).with(files).with([
        ("serial", serial(number)),
        ("address", address.to_string()),
        ("numa_node", node.to_string()),
        ("subsysnqn", subsystem_name(number)),
        ("uevent", uevent((NVME_MAJOR, number), &name)),
    ]);
    ClassDevice {
        number: Some((NVME_MAJOR, number)),
        below: vec![disk(number), generic(number)],
        ..controller
    }
}

fn uevent((major, minor): DeviceNumber, name: &str) -> String {
    format!("MAJOR={major}\nMINOR={minor}\nDEVNAME={name}")
}

/// The drive's only namespace as a disk.
fn disk(number: u32) -> ClassDevice {
    let name = format!("nvme{number}n1");
    let own = (BLOCK_MAJOR, number);
    let files = texts([
        ("nsid", "1"),
        ("ro", "0"),
        ("removable", "0"),
        ("hidden", "0"),
        ("range", "0"),
        ("ext_range", "256"),
        ("alignment_offset", "0"),
        ("discard_alignment", "0"),
        ("queue/rotational", "0"),
        ("queue/logical_block_size", "512"),
        ("queue/physical_block_size", "512"),
        ("queue/hw_sector_size", "512"),
        ("queue/minimum_io_size", "512"),
        ("queue/optimal_io_size", "0"),
        ("queue/max_sectors_kb", "1280"),
        ("queue/max_hw_sectors_kb", "2048"),
        ("queue/max_segments", "127"),
        ("queue/nr_requests", "1023"),
        ("queue/read_ahead_kb", "128"),
        ("queue/discard_granularity", "512"),
        ("queue/discard_max_bytes", "2199023255040"),
        ("queue/add_random", "0"),
        ("queue/scheduler", "[none] mq-deadline"),
        ("queue/write_cache", "write back"),
        ("queue/zoned", "none"),
        ("queue/dax", "0"),
    ]);
    let disk = ClassDevice::new("block", name.as_str()).with(files).with([
        ("size", SECTORS.to_string()),
        ("wwid", format!("eui.002538ff{number:08x}")),
        ("uevent", format!("{}\nDEVTYPE=disk", uevent(own, &name))),
    ]);
    ClassDevice { number: Some(own), ..disk }
}

/// The same namespace for commands of its own (`/dev/ng0n1`).
fn generic(number: u32) -> ClassDevice {
    let name = format!("ng{number}n1");
    let own = (GENERIC_MAJOR, number);
    let files = [("uevent", uevent(own, &name))];
    ClassDevice { number: Some(own), ..ClassDevice::new("nvme-generic", name).with(files) }
}

/// Adds the subsystem of a drive, with a link to its controller; `function` is the drive's path below `sys/devices`.
pub fn add_subsystem(tree: &mut Tree, number: u32, function: &str) {
    let files =
        texts([("model", MODEL), ("firmware_rev", FIRMWARE), ("subsystype", "nvm"), ("iopolicy", "numa")]);
    let subsystem = ClassDevice::new("nvme-subsystem", format!("nvme-subsys{number}"))
        .with(files)
        .with([("serial", serial(number)), ("subsysnqn", subsystem_name(number))]);
    let folder = subsystem.add_virtual(tree);
    let target = format!("../../../{function}/nvme/nvme{number}");
    tree.link(&format!("sys/devices/{folder}/nvme{number}"), target);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drive_has_the_size_of_a_terabyte_drive() {
        // A 980 PRO of 1 TB has 1,000,204,886,016 bytes.
        assert_eq!(SECTORS * 512, 1_000_204_886_016);
    }

    #[test]
    fn files_say_which_device_they_are_of() {
        let address = Address::new(0x17, 1, 2);
        let interface = Interface { name: "nic0", number: 3, address, gbps: 100.0 };
        let text = |device: &ClassDevice, file: &str| {
            device.files.iter().find(|(name, _)| name == file).map(|(_, text)| text.clone()).unwrap()
        };
        // Device 1, function 2: 1 << 3 | 2 = 0x0a.
        assert_eq!(text(&interface.net(), "address"), "02:00:00:00:17:0a");
        assert_eq!(text(&interface.net(), "uevent"), "INTERFACE=nic0\nIFINDEX=5");
        assert_eq!(text(&interface.net(), "speed"), "100000");
        let infiniband = interface.infiniband();
        assert_eq!(infiniband.name, "mlx5_3");
        assert_eq!(text(&infiniband, "ports/1/gid_attrs/ndevs/0"), "nic0");
        let controller = controller(2, address, 1);
        assert_eq!(text(&controller, "address"), "0000:17:01.2");
        assert_eq!(
            text(&controller.below[0], "uevent"),
            "MAJOR=1259\nMINOR=2\nDEVNAME=nvme2n1\nDEVTYPE=disk"
        );
    }
}
