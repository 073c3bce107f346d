//! CPUs that are switched off and on through `cpuN/online`, and the files whose contents follow.
//!
//! Source: linux drivers/base/cpu.c (which CPUs have the file, cpumask files), drivers/base/core.c (`online_store`). CPU 0
//! has no such file, as on x86 (arch/x86/kernel/topology.c). It must not know what a file says about the CPUs.

use crate::inodes::locked;
use crate::node::{Appearance, Caller, File, OpenAccess, slice};
use crate::resctrl::numbers::{c_string, kstrtobool};
use crate::resctrl::{SharedResctrl, VirtualResctrl};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, Weak};

/// The online CPUs.
pub type OnlineCpus = BTreeSet<usize>;

/// All CPUs of a server. At the start all are online.
pub struct CpuSwitches {
    state: Mutex<State>,
    /// Held during a whole switch, so that two are not mixed. Weak, because the tasks of that resctrl hold these switches.
    switching: Mutex<Weak<Mutex<VirtualResctrl>>>,
}

struct State {
    online: OnlineCpus,
    /// How often each CPU went online since the start.
    returns: Vec<u64>,
}

impl CpuSwitches {
    /// A server with this number of CPUs.
    pub fn new(cpus: usize) -> Arc<CpuSwitches> {
        let state = State { online: (0..cpus).collect(), returns: vec![0; cpus] };
        Arc::new(CpuSwitches { state: Mutex::new(state), switching: Mutex::new(Weak::new()) })
    }

    /// From now on this resctrl follows.
    pub fn connect(&self, resctrl: &SharedResctrl) {
        *locked(&self.switching) = Arc::downgrade(resctrl);
    }

    /// The online CPUs.
    pub fn online(&self) -> OnlineCpus {
        locked(&self.state).online.clone()
    }

    /// Whether a CPU is online.
    pub fn is_online(&self, cpu: usize) -> bool {
        locked(&self.state).online.contains(&cpu)
    }

    /// Switches a CPU. As in the kernel nothing happens if it is in that state.
    fn switch(&self, cpu: usize, online: bool) {
        let resctrl = locked(&self.switching);
        if self.is_online(cpu) == online {
            return;
        }
        if online {
            let mut state = locked(&self.state);
            state.online.insert(cpu);
            state.returns[cpu] += 1;
        }
        if let Some(resctrl) = resctrl.upgrade() {
            locked(&resctrl).switch_cpu(cpu as u32, online);
        }
        if !online {
            locked(&self.state).online.remove(&cpu);
        }
    }
}

/// `cpuN/online`.
pub struct OnlineFile {
    switches: Arc<CpuSwitches>,
    cpu: usize,
}

impl OnlineFile {
    /// The file of a CPU.
    pub fn new(switches: Arc<CpuSwitches>, cpu: usize) -> OnlineFile {
        OnlineFile { switches, cpu }
    }
}

impl File for OnlineFile {
    fn read(&self, offset: u64, len: usize, _: Caller) -> Result<Vec<u8>, Errno> {
        let text = if self.switches.is_online(self.cpu) { "1\n" } else { "0\n" };
        Ok(slice(text.as_bytes(), offset, len))
    }

    fn write(&self, _: u64, data: &[u8], _: Caller) -> Result<usize, Errno> {
        self.switches.switch(self.cpu, kstrtobool(&c_string(data))?);
        Ok(data.len())
    }

    fn open(&self, access: OpenAccess, caller: Caller) -> Result<(), Errno> {
        if access.write && !caller.is_privileged() { Err(Errno::ACCESS) } else { Ok(()) }
    }

    fn size(&self) -> u64 {
        2
    }

    fn mode(&self) -> u32 {
        0o644
    }
}

/// A text that depends on which CPUs are online.
pub struct CpuText {
    switches: Arc<CpuSwitches>,
    text: Box<dyn Fn(&OnlineCpus) -> String + Send + Sync>,
}

impl CpuText {
    /// The file with the text that `text` makes of the online CPUs.
    pub fn new(
        switches: &Arc<CpuSwitches>,
        text: impl Fn(&OnlineCpus) -> String + Send + Sync + 'static,
    ) -> CpuText {
        CpuText { switches: switches.clone(), text: Box::new(text) }
    }
}

impl File for CpuText {
    fn read(&self, offset: u64, len: usize, _: Caller) -> Result<Vec<u8>, Errno> {
        Ok(slice((self.text)(&self.switches.online()).as_bytes(), offset, len))
    }

    fn size(&self) -> u64 {
        (self.text)(&self.switches.online()).len() as u64
    }

    fn changes(&self) -> bool {
        true
    }
}

/// A directory of sysfs that a CPU has while it is online; the kernel makes it anew each time.
pub struct OnlineDirectory(pub Arc<CpuSwitches>, pub usize);

impl Appearance for OnlineDirectory {
    fn now(&self) -> Option<u64> {
        let state = locked(&self.0.state);
        state.online.contains(&self.1).then(|| state.returns[self.1])
    }

    fn gone(&self) -> Errno {
        Errno::NODEV
    }
}

/// The directory of a CPU's devices, which exist while it is online. An open device works again when the CPU is back
/// (linux arch/x86/kernel/msr.c: the file has only the CPU's number).
pub struct OnlineDevices(pub Arc<CpuSwitches>, pub usize);

impl Appearance for OnlineDevices {
    fn now(&self) -> Option<u64> {
        self.0.is_online(self.1).then_some(0)
    }

    fn gone(&self) -> Errno {
        Errno::NXIO
    }
}
