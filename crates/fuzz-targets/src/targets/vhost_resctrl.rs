//! Commands of a client to the virtual host's resctrl, one a line: `mkdir PATH`, `rmdir PATH`, `rename PATH TO`, or
//! `PATH TEXT`, which writes the text and a newline.

use waykeeper_kernel::resctrl::Schemata;
use waykeeper_vhost::node::Caller;
use waykeeper_vhost::resctrl::VirtualResctrl;
use waykeeper_vhost::resctrl::description::{
    Bandwidth, Cdp, Domain, IoAllocSupport, Kernel, L3Resource, MonitoringResource, ResctrlDescription,
};
use waykeeper_vhost::resctrl::groups::DirOwner;
use waykeeper_vhost::resctrl::hardware::Idle;
use waykeeper_vhost::resctrl::places::Place;
use waykeeper_vhost::resctrl::tasks::{Task, Tasks};

const ROOT: Caller = Caller { pid: 1, uid: 0 };

struct FewTasks;

impl Tasks for FewTasks {
    fn list(&mut self) -> Vec<Task> {
        (1..6).map(|id| Task { id, process: id.min(4), parent: id / 2, started: u64::from(id) }).collect()
    }

    fn owner(&mut self, task: u32) -> Option<u32> {
        (1..6).contains(&task).then_some(0)
    }
}

fn place(resctrl: &VirtualResctrl, path: &str) -> Option<Place> {
    let mut parts = path.split('/').filter(|part| !part.is_empty());
    parts.try_fold(Place::ROOT, |at, part| resctrl.lookup(at, part))
}

fn command(resctrl: &mut VirtualResctrl, line: &str) {
    let owner = DirOwner { mode: 0o755, uid: 0, gid: 0 };
    let Some((word, rest)) = line.split_once(' ') else { return };
    let split = |path: &str| {
        let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
        (above.to_owned(), name.to_owned())
    };
    match word {
        "mkdir" | "rmdir" => {
            let (above, name) = split(rest);
            let Some(above) = place(resctrl, &above) else { return };
            let _ = match word {
                "mkdir" => resctrl.mkdir(above, &name, owner).map(drop),
                _ => resctrl.rmdir(above, &name),
            };
        }
        "rename" => {
            let Some((from, to)) = rest.split_once(' ') else { return };
            let ((above, name), (other, new)) = (split(from), split(to));
            if let (Some(above), Some(other)) = (place(resctrl, &above), place(resctrl, &other)) {
                let _ = resctrl.rename(above, &name, other, &new);
            }
        }
        path => {
            if let Some(place) = place(resctrl, path) {
                let _ = resctrl.write(place, format!("{rest}\n").as_bytes(), ROOT);
            }
        }
    }
}

/// A socket with everything that a client can write to.
fn description() -> ResctrlDescription {
    ResctrlDescription {
        kernel: Kernel(6, 12),
        possible_cpus: 8,
        domains: vec![Domain { id: 0, cpus: vec![0, 1, 2, 3] }, Domain { id: 1, cpus: vec![4, 5, 6] }],
        l3: None,
        mb: Some(Bandwidth::intel(8)),
        smba: None,
        monitoring: Some(MonitoringResource {
            rmids: 16,
            unit_bytes: 65_536,
            largest_threshold: 25_952_256,
            llc_occupancy: true,
            mbm_total: true,
            mbm_local: true,
            configurable: true,
        }),
    }
}

fn l3() -> L3Resource {
    L3Resource {
        cbm_bits: 11,
        shareable: 0x600,
        min_bits: 1,
        sparse: false,
        closids: 16,
        size_bytes: 25_952_256,
        cdp: Cdp::Off,
        io_alloc: IoAllocSupport::Supported,
    }
}

/// Reads every file; each group's schemata must be what our own parser accepts.
fn read_all(resctrl: &mut VirtualResctrl, folder: Place) {
    for (name, place) in resctrl.list(folder) {
        if place.is_directory() {
            read_all(resctrl, place);
        } else if let Ok(content) = resctrl.read(place)
            && name == "schemata"
        {
            let text = String::from_utf8(content).expect("schemata are text");
            match Schemata::parse(&text) {
                Ok(schemata) => assert_eq!(schemata.strange, [], "{text:?}"),
                Err(why) => panic!("{text:?}: {why}"),
            }
        }
    }
}

/// Reads an input. Panics for a finding.
pub fn read(data: &[u8]) {
    let Some((choice, commands)) = data.split_first() else { return };
    let l3 = L3Resource { cdp: if choice & 1 == 0 { Cdp::Off } else { Cdp::On }, ..l3() };
    let description = ResctrlDescription { l3: Some(l3), ..description() };
    let mut resctrl = VirtualResctrl::new(description, Box::new(Idle), Box::new(FewTasks));
    for line in String::from_utf8_lossy(commands).split('\n').take(64) {
        command(&mut resctrl, line);
    }
    read_all(&mut resctrl, Place::ROOT);
}
