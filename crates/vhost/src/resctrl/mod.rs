//! The kernel's resctrl as a state machine: every answer, text and refusal of Linux 6.1 and 6.12 on Intel and AMD.
//!
//! Sources: the recordings in `tests/transcripts`, linux arch/x86/kernel/cpu/resctrl at 6.1 and 6.12, hardware.md 7.
//! It must not know files, mounts or FUSE: it is asked for places and answers with bytes or an error number.

pub mod description;
pub mod hardware;
pub mod tasks;

use description::Description;
use hardware::Hardware;
use std::sync::{Arc, Mutex};
use tasks::Tasks;

/// A resctrl as the mount, the machine and the tests share it.
pub type Shared = Arc<Mutex<Resctrl>>;

/// One host's resctrl, mounted.
#[allow(dead_code)]
pub struct Resctrl {
    description: Description,
    hardware: Box<dyn Hardware>,
    tasks: Box<dyn Tasks>,
}

impl Resctrl {
    /// Mounts resctrl on a host: one group, all ways, all bandwidth.
    pub fn new(description: Description, hardware: Box<dyn Hardware>, tasks: Box<dyn Tasks>) -> Self {
        Resctrl { description, hardware, tasks }
    }

    /// For the mount and the machine together.
    pub fn shared(self) -> Shared {
        Arc::new(Mutex::new(self))
    }
}
