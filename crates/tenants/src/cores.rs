//! Decides whether a list of CPUs pins what may run on them.
//!
//! A tenant has cores of its own only if the kernel limits it to a part of one socket's CPUs: core counters say nothing
//! about a tenant if every process may run there. Must not know tenants.

use super::reader::Reader;
use super::roster::{About, Notes};
use waykeeper_kernel::topology::Topology;
use waykeeper_units::{CoreId, CoreList};

const ONLINE: &str = "/sys/devices/system/cpu/online";

/// Longest list of CPUs: 4096 numbers with commas are shorter.
const LIST_BYTES: usize = 1 << 15;

/// The online CPUs of each socket.
#[derive(Clone, Debug, Default)]
pub(super) struct Cores {
    /// The kernel's list when it was last read, to detect changes.
    online: Option<String>,
    sockets: Vec<CoreList>,
}

impl Cores {
    /// Checks whether CPUs went online or offline; one read if not.
    pub fn look(&mut self, reader: &mut Reader, notes: &mut Notes) {
        let online = reader.text(ONLINE, LIST_BYTES).ok().flatten();
        if online.is_some() && online == self.online {
            return;
        }
        match Topology::read(reader.root()) {
            Ok(topology) => {
                self.sockets =
                    topology.sockets().into_iter().map(|socket| topology.cpus_of(socket)).collect();
                self.online = online;
            }
            Err(error) => {
                (self.sockets, self.online) = (Vec::new(), None);
                notes.tell(None, About::Unreadable, "cores", || {
                    format!("{error}; tenants have only the cores that are declared for them")
                });
            }
        }
    }

    /// The online CPUs of a list; the whole list if the online CPUs are not known.
    pub fn online(&self, cores: &CoreList) -> CoreList {
        if self.sockets.is_empty() {
            return cores.clone();
        }
        let is_online = |core: &&CoreId| self.sockets.iter().any(|socket| has(socket, **core));
        cores.cores().iter().filter(is_online).copied().collect::<Vec<_>>().into()
    }

    /// The online CPUs of a list, if they are a part of one socket's CPUs and not all of them.
    pub fn pinned(&self, cores: &CoreList) -> Option<CoreList> {
        let cores = self.online(cores);
        let first = cores.cores().first()?;
        let socket = self.sockets.iter().find(|socket| has(socket, *first))?;
        let within = cores.cores().iter().all(|core| has(socket, *core));
        (within && cores.len() < socket.len()).then_some(cores)
    }
}

fn has(list: &CoreList, core: CoreId) -> bool {
    list.cores().binary_search(&core).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_cpus_of_one_socket_pin_and_all_of_them_do_not() {
        let list = |text: &str| text.parse::<CoreList>().unwrap();
        let cores = Cores { online: None, sockets: vec![list("0-1,4-5"), list("2-3,6-7")] };
        let pinned = |text| cores.pinned(&list(text)).map(|cores| cores.to_string());
        assert_eq!(pinned("0,4"), Some("0,4".to_owned()));
        assert_eq!(pinned("2-3,6"), Some("2-3,6".to_owned()));
        assert_eq!(pinned("0-1,4-5"), None, "a whole socket");
        assert_eq!(pinned("1-2"), None, "two sockets");
        assert_eq!(pinned("0-1,100-200"), Some("0-1".to_owned()), "what is offline runs nothing");
        assert_eq!(pinned("100"), None);
        assert_eq!(Cores::default().pinned(&list("0")), None, "nothing is known of the machine");
        assert_eq!(Cores::default().online(&list("0")), list("0"));
    }
}
