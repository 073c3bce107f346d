//! A virtual host with a stopped clock, and its files without a mount.

// Each test file uses a part of this.
#![allow(dead_code)]

use rustix::io::Errno;
pub use waykeeper_testbed::{SCENARIO, manual_clock, scenario};
use waykeeper_vhost::machine_clock::{MachineClock, MachineThread};
use waykeeper_vhost::node::{Caller, File, Node, Tree};
use waykeeper_vhost::package::Server;
use waykeeper_vhost::virtual_host::{VirtualHostOptions, tree};

/// A privileged reader.
pub const ROOT: Caller = Caller { pid: 1, uid: 0 };

/// An unprivileged user, also if that user runs the test.
pub const UNPRIVILEGED: Caller = Caller { pid: 1, uid: 65534 };

/// A host and its files.
pub struct Host {
    /// The machine.
    pub clock: MachineClock,
    tree: Tree,
    _running: MachineThread,
}

impl Host {
    /// [`SCENARIO`] on a chip.
    pub fn new(chip: &str) -> Host {
        Host::of(chip, SCENARIO)
    }

    /// A scenario on a chip.
    pub fn of(chip: &str, text: &str) -> Host {
        Host::with(chip, text, &manual_clock(16))
    }

    /// The same with other options.
    pub fn with(chip: &str, text: &str, options: &VirtualHostOptions) -> Host {
        let (tree, clock, thread) =
            tree(scenario(chip, text), options).unwrap_or_else(|error| panic!("{error}"));
        Host { clock, tree, _running: thread }
    }

    /// Advances the server's clock to a time, ns.
    pub fn run_to(&self, clock_ns: u64) {
        self.clock.run_until(clock_ns).expect("the model runs");
    }

    /// Calls `look` with the machine.
    pub fn machine<R>(&self, look: impl FnOnce(&mut Server) -> R) -> R {
        self.clock.with(look).expect("the model runs")
    }

    /// A file; follows the links in `sys/bus/pci/devices`.
    pub fn file(&self, path: &str) -> &dyn File {
        match self.tree.get(&self.resolved(path)) {
            Some(Node::File(file)) => file.as_ref(),
            _ => panic!("{path} is no file"),
        }
    }

    fn resolved(&self, path: &str) -> String {
        let mut done = String::new();
        for part in path.split('/') {
            let here = if done.is_empty() { part.to_owned() } else { format!("{done}/{part}") };
            done = match self.tree.get(&here) {
                Some(Node::Link(target)) => {
                    let mut folders: Vec<&str> = done.split('/').collect();
                    for step in target.split('/') {
                        match step {
                            ".." => drop(folders.pop()),
                            step => folders.push(step),
                        }
                    }
                    self.resolved(&folders.join("/"))
                }
                _ => here,
            };
        }
        done
    }

    /// Whether a path exists.
    pub fn has(&self, path: &str) -> bool {
        self.tree.get(&self.resolved(path)).is_some()
    }

    /// A file's text.
    pub fn text(&self, path: &str) -> String {
        let bytes = self.file(path).read(0, 1 << 20, ROOT).unwrap_or_else(|error| panic!("{path}: {error}"));
        String::from_utf8(bytes).expect("text")
    }

    /// Reads an MSR.
    pub fn read_msr(&self, cpu: usize, address: u32) -> Result<u64, Errno> {
        let bytes = self.file(&format!("dev/cpu/{cpu}/msr")).read(u64::from(address), 8, ROOT)?;
        Ok(u64::from_le_bytes(bytes.try_into().expect("eight bytes")))
    }

    /// Writes an MSR.
    pub fn write_msr(&self, cpu: usize, address: u32, value: u64) -> Result<(), Errno> {
        let file = self.file(&format!("dev/cpu/{cpu}/msr"));
        file.write(u64::from(address), &value.to_le_bytes(), ROOT).map(|taken| assert_eq!(taken, 8))
    }

    /// The answer of CPUID.
    pub fn cpuid(&self, cpu: usize, leaf: u32, subleaf: u32) -> [u32; 4] {
        let offset = u64::from(subleaf) << 32 | u64::from(leaf);
        let bytes = self.file(&format!("dev/cpu/{cpu}/cpuid")).read(offset, 16, ROOT).expect("CPUID");
        std::array::from_fn(|word| u32::from_le_bytes(bytes[4 * word..][..4].try_into().expect("four bytes")))
    }

    /// Reads configuration space.
    pub fn read_config(&self, device: &str, at: u64, len: usize) -> Result<Vec<u8>, Errno> {
        self.file(&format!("sys/bus/pci/devices/{device}/config")).read(at, len, ROOT)
    }

    /// Writes configuration space.
    pub fn write_config(&self, device: &str, at: u64, bytes: &[u8]) -> Result<usize, Errno> {
        self.file(&format!("sys/bus/pci/devices/{device}/config")).write(at, bytes, ROOT)
    }
}
