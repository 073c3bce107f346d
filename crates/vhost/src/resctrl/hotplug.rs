//! CPUs that go offline and return.
//!
//! Like linux rdtgroup.c (`resctrl_offline_cpu`, `resctrl_online_cpu`). Domains stay, also without an online CPU. It must
//! not know who switches a CPU.

use super::VirtualResctrl;
use super::cpus::Cpus;
use super::groups::GroupId;

impl VirtualResctrl {
    /// An offline CPU is in no group. One that returns is in the default group.
    pub fn switch_cpu(&mut self, cpu: u32, online: bool) {
        match online {
            true => {
                self.online.insert(cpu);
                self.group_mut(GroupId::DEFAULT).cpus.insert(cpu);
            }
            false => {
                self.online.remove(&cpu);
                for group in self.groups.values_mut() {
                    group.cpus.remove(&cpu);
                }
            }
        }
        // The kernel clears the CPU's register in both cases (`resctrl_arch_online_cpu`, `clear_closid_rmid`).
        self.assign_cpus(&Cpus::from([cpu]), GroupId::DEFAULT);
    }
}

#[cfg(test)]
mod tests {
    use crate::node::Caller;
    use crate::resctrl::fixture::resctrl;
    use crate::resctrl::groups::DirOwner;
    use crate::resctrl::places::Place;
    use rustix::io::Errno;

    const OWNER: DirOwner = DirOwner { mode: 0o755, uid: 0, gid: 0 };
    const CALLER: Caller = Caller { pid: 1, uid: 0 };

    #[test]
    fn a_cpu_leaves_its_groups_and_returns_to_the_default_group() {
        let shared = resctrl();
        let mut host = shared.lock().unwrap();
        let group = host.mkdir(Place::ROOT, "a", OWNER).unwrap();
        let [default, class] = [Place::ROOT, group].map(|place| host.lookup(place, "cpus_list").unwrap());
        host.write(class, b"0\n", CALLER).unwrap();
        let all = [default, class];
        let text = |host: &mut crate::resctrl::VirtualResctrl| {
            all.map(|place| String::from_utf8(host.read(place).unwrap()).unwrap())
        };
        assert_eq!(text(&mut host), ["1-2\n", "0\n"]);
        host.switch_cpu(0, false);
        assert_eq!(text(&mut host), ["1-2\n", "\n"]);
        assert_eq!(host.write(class, b"0\n", CALLER), Err(Errno::INVAL));
        let info = host.lookup(Place::ROOT, "info").unwrap();
        let status = host.lookup(info, "last_cmd_status").unwrap();
        assert_eq!(host.read(status).unwrap(), b"Can only assign online CPUs\n");
        host.switch_cpu(0, true);
        assert_eq!(text(&mut host), ["0-2\n", "\n"]);
    }
}
