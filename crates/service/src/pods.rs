//! Pods' tenants on their way from the NRI plugin to the control thread, and what the plugin asks about the machine.
//!
//! A mailbox with room for one message: all tenants of all pods, of which the last message counts. The plugin may wait for
//! the groups, the control thread never waits. Must not know the runtime, nor policies.

use crossbeam_channel::{Receiver, Sender, bounded};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use waykeeper_host::LlcGeometry;
use waykeeper_kernel::resctrl::{GROUP_PREFIX, Group, MOUNT};
use waykeeper_kernel::root::Root;
use waykeeper_nri::{PodHost, PodTenants};
use waykeeper_tenants::discovery::devices_of_file;
use waykeeper_tenants::{DeviceName, find_devices, has_cgroup};
use waykeeper_units::WayMask;

#[derive(Debug, Default)]
struct MailboxState {
    /// Messages so far.
    sent: u64,
    /// The last one, until it is taken.
    latest: Option<PodTenants>,
    /// The message up to which the groups are there.
    done: u64,
    /// The control thread has ended.
    closed: bool,
}

type Shared = Arc<(Mutex<MailboxState>, Condvar)>;

fn lock(shared: &Shared) -> MutexGuard<'_, MailboxState> {
    shared.0.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The plugin's end of the mailbox.
#[derive(Clone, Debug)]
pub struct PodSender {
    shared: Shared,
    wake: Sender<()>,
}

/// The control thread's end of the mailbox.
#[derive(Debug)]
pub struct PodReceiver {
    shared: Shared,
    wake: Receiver<()>,
}

/// A mailbox for the tenants of pods.
pub fn pod_mailbox() -> (PodSender, PodReceiver) {
    let shared = Shared::default();
    let (wake, woken) = bounded(1);
    (PodSender { shared: shared.clone(), wake }, PodReceiver { shared, wake: woken })
}

impl PodSender {
    /// Replaces the tenants of all pods, and waits at most `at_most` until their groups are there; false if they are not by
    /// then.
    pub fn declare(&self, pods: PodTenants, at_most: Duration) -> bool {
        let number = {
            let mut state = lock(&self.shared);
            state.sent += 1;
            state.latest = Some(pods);
            state.sent
        };
        // A wake-up that waits there already is enough.
        let _ = self.wake.try_send(());
        let is_open = |state: &mut MailboxState| state.done < number && !state.closed;
        let waited = self.shared.1.wait_timeout_while(lock(&self.shared), at_most, is_open);
        waited.unwrap_or_else(PoisonError::into_inner).0.done >= number
    }
}

impl PodReceiver {
    /// Gets a message when there is something to take.
    pub fn wake(&self) -> &Receiver<()> {
        &self.wake
    }

    /// The tenants, if they are others than at the last call, and the number of their message.
    pub fn take(&self) -> Option<(u64, PodTenants)> {
        let mut state = lock(&self.shared);
        state.latest.take().map(|pods| (state.sent, pods))
    }

    /// The first tenants and the number of their message, if they come within `at_most`.
    pub fn wait(&self, at_most: Duration) -> Option<(u64, PodTenants)> {
        self.wake.recv_timeout(at_most).ok().and_then(|()| self.take())
    }

    /// The groups of a message are there.
    pub fn done(&self, number: u64) {
        let mut state = lock(&self.shared);
        state.done = state.done.max(number);
        self.shared.1.notify_all();
    }
}

impl Drop for PodReceiver {
    fn drop(&mut self) {
        lock(&self.shared).closed = true;
        self.shared.1.notify_all();
    }
}

/// The machine of the daemon, for the plugin.
#[derive(Clone, Debug)]
pub struct NodeFacts {
    /// The root of the host's file tree.
    pub root: Root,
    /// The LLC, if it is known.
    pub llc: Option<LlcGeometry>,
    /// The way to the control thread.
    pub sender: PodSender,
}

impl PodHost for NodeFacts {
    fn check_mask(&self, text: &str) -> Result<(), String> {
        let llc = self.llc.ok_or("the ways of the LLC are not known")?;
        let mask = WayMask::parse(text, llc.ways).and_then(|mask| llc.check(mask));
        mask.map(drop).map_err(|why| why.to_string())
    }

    fn ways(&self) -> Option<u32> {
        self.llc.map(|llc| llc.ways)
    }

    fn has_class(&self, class: &str) -> bool {
        let Ok(group) = Group::control(class) else { return false };
        !class.starts_with(GROUP_PREFIX) && self.root.exists(group.directory(Path::new(MOUNT)).join("tasks"))
    }

    fn has_cgroup(&self, path: &str) -> bool {
        has_cgroup(&self.root, path)
    }

    fn devices_of_file(&self, path: &str) -> Vec<DeviceName> {
        devices_of_file(&self.root, path).iter().filter_map(|name| name.parse().ok()).collect()
    }

    fn functions(&self, name: &DeviceName) -> Result<Vec<String>, String> {
        let found = find_devices(&self.root, name).map_err(|why| why.to_string())?;
        Ok(found.iter().map(|device| device.address.to_string()).collect())
    }

    fn declare(&mut self, pods: PodTenants, at_most: Duration) -> bool {
        self.sender.declare(pods, at_most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(problem: &str) -> PodTenants {
        PodTenants { problems: vec![problem.to_owned()], ..PodTenants::default() }
    }

    #[test]
    fn the_last_message_counts_and_its_sender_waits_for_it() {
        let (sender, receiver) = pod_mailbox();
        assert!(!sender.declare(of("first"), Duration::ZERO));
        let second = sender.clone();
        let waiting = std::thread::spawn(move || second.declare(of("second"), Duration::from_secs(60)));
        let (number, pods) = loop {
            receiver.wake().recv().unwrap();
            match receiver.take() {
                Some(taken) if taken.1 == of("second") => break taken,
                Some((number, _)) => receiver.done(number),
                None => {}
            }
        };
        assert_eq!((number, pods), (2, of("second")));
        assert!(!waiting.is_finished());
        receiver.done(number);
        assert!(waiting.join().unwrap());
        assert_eq!(receiver.take(), None);
    }

    #[test]
    fn a_control_thread_that_ended_holds_up_no_sender() {
        let (sender, receiver) = pod_mailbox();
        let waiting = std::thread::spawn(move || sender.declare(of("x"), Duration::from_secs(60)));
        receiver.wake().recv().unwrap();
        drop(receiver);
        assert!(!waiting.join().unwrap());
    }
}
