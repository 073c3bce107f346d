//! The switch that mounts and unmounts the tree's resctrl.
//!
//! It must not know who writes to it.

use crate::inodes::locked;
use crate::node::{Caller, File, slice};
use crate::resctrl::SharedResctrl;
use rustix::io::Errno;

/// `waykeeper/resctrl`: `mounted` or `unmounted`; `mount`, `mount OPTIONS` and `umount` can be written to it. No kernel has
/// this file: it takes the place of two system calls that do not reach a file system which is mounted elsewhere.
pub struct MountSwitch(SharedResctrl);

impl MountSwitch {
    /// Of this resctrl.
    pub fn new(resctrl: SharedResctrl) -> MountSwitch {
        MountSwitch(resctrl)
    }
}

impl File for MountSwitch {
    fn read(&self, offset: u64, len: usize, _: Caller) -> Result<Vec<u8>, Errno> {
        let text = if locked(&self.0).is_mounted() { "mounted\n" } else { "unmounted\n" };
        Ok(slice(text.as_bytes(), offset, len))
    }

    fn write(&self, _: u64, data: &[u8], caller: Caller) -> Result<usize, Errno> {
        if !caller.is_privileged() {
            return Err(Errno::PERM);
        }
        let text = std::str::from_utf8(data).map_err(|_| Errno::INVAL)?.trim();
        match text.split_once(' ').unwrap_or((text, "")) {
            ("mount", options) => locked(&self.0).mount(options.parse()?)?,
            ("umount", "") => locked(&self.0).unmount()?,
            _ => return Err(Errno::INVAL),
        }
        Ok(data.len())
    }

    fn mode(&self) -> u32 {
        0o644
    }
}
