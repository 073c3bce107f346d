//! The state machine of resctrl against recordings of real kernels, and rules that the recordings do not cover.

use crate::transcript;

use rustix::io::Errno;
use std::sync::{Arc, Mutex};
use transcript::{Answer, Explained, Subject, amd, intel, recorded, replay};
use waykeeper_vhost::node::{Caller, OpenAccess};
use waykeeper_vhost::resctrl::VirtualResctrl;
use waykeeper_vhost::resctrl::description::{Cdp, IoAllocSupport, Kernel, ResctrlDescription};
use waykeeper_vhost::resctrl::groups::DirOwner;
use waykeeper_vhost::resctrl::hardware::{Hardware, Idle, LimitedTraffic, MaskedLines, Monitored, RmidEvent};
use waykeeper_vhost::resctrl::places::Place;
use waykeeper_vhost::resctrl::tasks::{Task, Tasks};

/// Differences from the recordings: none.
const EXPLAINED: &[Explained] = &[];

const MAKER: DirOwner = DirOwner { mode: 0o755, uid: 0, gid: 0 };

/// A list of tasks that a test changes.
#[derive(Clone, Default)]
struct Processes(Arc<Mutex<Vec<(Task, u32)>>>);

impl Processes {
    fn with(tasks: &[(u32, u32, u32, u64)]) -> Self {
        let task = |&(id, process, parent, started): &(u32, u32, u32, u64)| {
            (Task { id, process, parent, started }, 0)
        };
        Processes(Arc::new(Mutex::new(tasks.iter().map(task).collect())))
    }

    fn add(&self, id: u32, process: u32, parent: u32, started: u64, owner: u32) {
        self.0.lock().unwrap().push((Task { id, process, parent, started }, owner));
    }

    fn end(&self, id: u32) {
        self.0.lock().unwrap().retain(|(task, _)| task.id != id);
    }
}

impl Tasks for Processes {
    fn list(&mut self) -> Vec<Task> {
        self.0.lock().unwrap().iter().map(|(task, _)| *task).collect()
    }

    fn owner(&mut self, task: u32) -> Option<u32> {
        self.0.lock().unwrap().iter().find(|(it, _)| it.id == task).map(|(_, owner)| *owner)
    }
}

/// Calls the state machine as the mount does.
struct Nodes {
    resctrl: VirtualResctrl,
    task: u32,
    uid: u32,
}

impl Nodes {
    fn new(host: ResctrlDescription, hardware: impl Hardware + 'static, tasks: Processes, task: u32) -> Self {
        Nodes { resctrl: VirtualResctrl::new(host, Box::new(hardware), Box::new(tasks)), task, uid: 0 }
    }

    fn of(host: ResctrlDescription) -> Self {
        Nodes::new(host, Idle, Processes::with(&[(1, 1, 0, 1), (50, 50, 1, 2)]), 50)
    }

    fn place(&self, path: &str) -> Result<Place, Errno> {
        path.split('/')
            .filter(|part| !matches!(*part, "" | "."))
            .try_fold(Place::ROOT, |folder, name| self.resctrl.lookup(folder, name).ok_or(Errno::NOENT))
    }

    fn split<'a>(&self, path: &'a str) -> Result<(Place, &'a str), Errno> {
        let (folder, name) = path.rsplit_once('/').unwrap_or((".", path));
        Ok((self.place(folder)?, name))
    }

    /// Writes, and returns the status afterwards.
    fn put(&mut self, path: &str, data: &str) -> (Result<usize, Errno>, String) {
        let outcome = self.write(path, data).map_err(|(_, errno)| errno);
        (outcome, self.get("info/last_cmd_status"))
    }

    fn get(&mut self, path: &str) -> String {
        self.read(path).unwrap_or_else(|error| panic!("{path}: {error:?}"))
    }
}

fn plain<T>(outcome: Result<T, Errno>) -> Answer<T> {
    outcome.map_err(|errno| ("", errno))
}

impl Subject for Nodes {
    fn own_task(&self) -> u32 {
        self.task
    }

    fn stat(&mut self, path: &str) -> Answer<(u32, u64, u64)> {
        let attributes = plain(self.place(path).and_then(|place| self.resctrl.attributes(place)))?;
        let kind = if attributes.directory { 0o40000 } else { 0o100000 };
        Ok((kind | attributes.mode, 0, u64::from(attributes.links)))
    }

    fn list(&mut self, path: &str) -> Answer<Vec<String>> {
        let place = plain(self.place(path))?;
        Ok(self.resctrl.list(place).into_iter().map(|(name, _)| name).collect())
    }

    fn read(&mut self, path: &str) -> Answer<String> {
        let place = self.place(path).map_err(|errno| ("open", errno))?;
        self.resctrl.open(place, OpenAccess { read: true, write: false }).map_err(|errno| ("open", errno))?;
        let content = self.resctrl.read(place).map_err(|errno| ("read", errno))?;
        Ok(String::from_utf8(content).unwrap())
    }

    fn write(&mut self, path: &str, data: &str) -> Answer<usize> {
        let place = self.place(path).map_err(|errno| ("open", errno))?;
        self.resctrl.open(place, OpenAccess { read: false, write: true }).map_err(|errno| ("open", errno))?;
        let caller = Caller { pid: self.task, uid: self.uid };
        self.resctrl.write(place, data.as_bytes(), caller).map_err(|errno| ("write", errno))
    }

    fn open_for_writing(&mut self, path: &str) -> Answer<()> {
        let place = plain(self.place(path))?;
        plain(self.resctrl.open(place, OpenAccess { read: false, write: true }))
    }

    fn mkdir(&mut self, path: &str) -> Answer<()> {
        let (folder, name) = plain(self.split(path))?;
        plain(self.resctrl.mkdir(folder, name, MAKER).map(|_| ()))
    }

    fn rmdir(&mut self, path: &str) -> Answer<()> {
        let (folder, name) = plain(self.split(path))?;
        plain(self.resctrl.rmdir(folder, name))
    }

    fn unlink(&mut self, path: &str) -> Answer<()> {
        let (folder, name) = plain(self.split(path))?;
        Err(("", self.resctrl.unlink(folder, name)))
    }

    fn create(&mut self, path: &str) -> Answer<()> {
        let (folder, _) = plain(self.split(path))?;
        Err(("", self.resctrl.create(folder)))
    }

    fn rename(&mut self, from: &str, to: &str) -> Answer<()> {
        let (folder, name) = plain(self.split(from))?;
        let (target, new_name) = plain(self.split(to))?;
        plain(self.resctrl.rename(folder, name, target, new_name))
    }

    fn chmod(&mut self, path: &str, mode: u32) -> Answer<()> {
        let place = plain(self.place(path))?;
        plain(self.resctrl.change(place, Some(mode), None, None))
    }
}

#[test]
fn all_recorded_operations_get_the_recorded_answers() {
    for recording in recorded() {
        let tasks = Processes::with(&[(1, 1, 0, 1), (recording.own_task, recording.own_task, 1, 2)]);
        let mut nodes = Nodes::new(recording.host.clone(), Idle, tasks, recording.own_task);
        replay(&recording, &mut nodes, EXPLAINED);
    }
}

/// Records the calls to the hardware; a test sets its counters.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<ToldState>>);

#[derive(Default)]
struct ToldState {
    calls: Vec<String>,
    occupancy: u64,
    traffic: u64,
    refuse: Option<Monitored>,
}

impl Told {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap().calls)
    }

    fn say(&self, call: String) {
        self.0.lock().unwrap().calls.push(call);
    }
}

impl Hardware for Told {
    fn set_mask(&mut self, domain: u32, closid: u32, lines: MaskedLines, mask: u64) {
        self.say(format!("mask {domain} {closid} {lines:?} {mask:x}"));
    }

    fn set_bandwidth(&mut self, domain: u32, closid: u32, traffic: LimitedTraffic, value: u32) {
        self.say(format!("bandwidth {domain} {closid} {traffic:?} {value}"));
    }

    fn set_cpu(&mut self, cpu: u32, closid: u32, rmid: u32) {
        self.say(format!("cpu {cpu} {closid} {rmid}"));
    }

    fn set_task(&mut self, task: u32, closid: u32, rmid: u32) {
        self.say(format!("task {task} {closid} {rmid}"));
    }

    fn set_io_alloc(&mut self, closid: Option<u32>) {
        self.say(format!("io_alloc {closid:?}"));
    }

    fn set_event_kinds(&mut self, domain: u32, event: RmidEvent, kinds: u32) {
        self.say(format!("kinds {domain} {event:?} {kinds:x}"));
    }

    fn monitor(&mut self, domain: u32, rmid: u32, event: RmidEvent) -> Monitored {
        let state = self.0.lock().unwrap();
        match (state.refuse, event) {
            (Some(refusal), _) if rmid != 0 => refusal,
            (_, RmidEvent::LlcOccupancy) => Monitored::Value(state.occupancy),
            _ => Monitored::Value(state.traffic * u64::from(domain + 1)),
        }
    }
}

#[test]
fn the_hardware_hears_of_changes_only() {
    let reported = Told::default();
    let mut nodes = Nodes::new(intel(Kernel(6, 12)), reported.clone(), Processes::default(), 50);
    let start = reported.take();
    // 2 domains × (16 masks + 8 bandwidths), and 4 CPUs.
    assert_eq!(start.len(), 2 * (16 + 8) + 4);
    assert!(start.contains(&"mask 1 15 All 7ff".to_owned()) && start.contains(&"cpu 3 0 0".to_owned()));
    nodes.mkdir("g1").unwrap();
    assert_eq!(reported.take(), [""; 0], "a new group has what the class had");
    nodes.write("g1/schemata", "L3:0=f;1=7ff\nMB:1=55\n").unwrap();
    assert_eq!(reported.take(), ["bandwidth 1 1 Memory 60", "mask 0 1 All f"]);
    nodes.write("g1/schemata", "L3:0=f\n").unwrap();
    assert_eq!(reported.take(), [""; 0]);
    nodes.write("g1/cpus_list", "2\n").unwrap();
    assert_eq!(reported.take(), ["cpu 2 1 1"]);
    nodes.mkdir("g1/mon_groups/m").unwrap();
    nodes.write("g1/mon_groups/m/cpus_list", "2\n").unwrap();
    assert_eq!(reported.take(), ["cpu 2 1 2"]);
    nodes.rmdir("g1/mon_groups/m").unwrap();
    assert_eq!(reported.take(), ["cpu 2 1 1"]);
    nodes.rmdir("g1").unwrap();
    assert_eq!(reported.take(), ["cpu 2 0 0"]);
}

#[test]
fn tasks_take_their_class_along_and_their_children_inherit() {
    let reported = Told::default();
    let tasks = Processes::with(&[(1, 1, 0, 1), (40, 40, 1, 5), (41, 40, 1, 6)]);
    let mut nodes = Nodes::new(intel(Kernel(6, 12)), reported.clone(), tasks.clone(), 1);
    reported.take();
    nodes.mkdir("g1").unwrap();
    nodes.write("g1/tasks", "40\n").unwrap();
    assert_eq!(reported.take(), ["task 40 1 1"]);
    assert_eq!(nodes.get("g1/tasks"), "40\n", "the thread that was there stays");
    // Later tasks: a thread, a child process, and an unrelated process.
    tasks.add(42, 40, 1, 7, 0);
    tasks.add(50, 50, 40, 8, 0);
    tasks.add(51, 51, 50, 9, 0);
    tasks.add(60, 60, 1, 9, 0);
    assert_eq!(nodes.get("g1/tasks"), "40\n42\n50\n51\n");
    assert_eq!(nodes.get("tasks"), "1\n41\n60\n");
    assert_eq!(reported.take(), ["task 42 1 1", "task 50 1 1", "task 51 1 1"]);
    // The id is reused by another process.
    tasks.end(50);
    tasks.add(50, 50, 1, 99, 0);
    assert_eq!(nodes.get("g1/tasks"), "40\n42\n51\n");
    nodes.mkdir("g1/mon_groups/m").unwrap();
    nodes.write("g1/mon_groups/m/tasks", "40,42\n").unwrap();
    assert_eq!(nodes.get("g1/mon_groups/m/tasks"), "40\n42\n");
    assert_eq!(nodes.get("g1/tasks"), "40\n42\n51\n");
    // Moved with their monitoring group, from 6.5 on.
    nodes.mkdir("g2").unwrap();
    nodes.rename("g1/mon_groups/m", "g2/mon_groups/n").unwrap();
    assert_eq!(nodes.get("g2/tasks"), "40\n42\n");
    nodes.rmdir("g2/mon_groups/n").unwrap();
    assert_eq!(nodes.get("g2/tasks"), "40\n42\n", "back to the parent");
    nodes.rmdir("g2").unwrap();
    assert_eq!(nodes.get("tasks"), "1\n40\n41\n42\n60\n50\n");
}

#[test]
fn a_list_of_tasks_stops_at_the_first_that_fails() {
    let tasks = Processes::with(&[(1, 1, 0, 1), (40, 40, 1, 5), (41, 41, 1, 6)]);
    let mut nodes = Nodes::new(intel(Kernel(6, 12)), Idle, tasks.clone(), 1);
    nodes.mkdir("g1").unwrap();
    let (outcome, status) = nodes.put("g1/tasks", "40, 7777,41\n");
    assert_eq!(
        (outcome, status.as_str()),
        (Err(Errno::SRCH), "No task 7777\nError while processing task 7777\n")
    );
    assert_eq!(nodes.get("g1/tasks"), "40\n", "the first stays moved");
    tasks.add(70, 70, 1, 9, 1000);
    nodes.uid = 2000;
    let (outcome, status) = nodes.put("g1/tasks", "70\n");
    assert_eq!(outcome, Err(Errno::PERM));
    assert_eq!(status, "No permission to move task 70\nError while processing task 70\n");
    nodes.uid = 1000;
    assert_eq!(nodes.put("g1/tasks", "70\n"), (Ok(3), "ok\n".to_owned()));
}

#[test]
fn counters_are_a_groups_own_and_refusals_are_texts() {
    let reported = Told::default();
    let mut nodes = Nodes::new(intel(Kernel(6, 12)), reported.clone(), Processes::default(), 1);
    reported.0.lock().unwrap().traffic = 10 * 90112;
    nodes.mkdir("g1").unwrap();
    assert_eq!(
        nodes.get("g1/mon_data/mon_L3_00/mbm_total_bytes"),
        "0\n",
        "what was before is not the group's"
    );
    reported.0.lock().unwrap().traffic = 12 * 90112 + 5;
    // 2 × 90112 and 5 bytes more, in whole counts.
    assert_eq!(nodes.get("g1/mon_data/mon_L3_00/mbm_total_bytes"), "180224\n");
    nodes.mkdir("g1/mon_groups/m").unwrap();
    reported.0.lock().unwrap().traffic += 90112;
    // The second domain has twice as much: 2 × (2 + 1) counts of its own and 2 of its monitoring group.
    assert_eq!(nodes.get("g1/mon_data/mon_L3_01/mbm_local_bytes"), format!("{}\n", 8 * 90112));
    reported.0.lock().unwrap().occupancy = 90112 * 3 + 90111;
    assert_eq!(nodes.get("g1/mon_groups/m/mon_data/mon_L3_00/llc_occupancy"), "270336\n");
    for (refusal, text) in [(Monitored::Unavailable, "Unavailable\n"), (Monitored::Error, "Error\n")] {
        reported.0.lock().unwrap().refuse = Some(refusal);
        assert_eq!(nodes.get("g1/mon_data/mon_L3_00/llc_occupancy"), text);
        assert_eq!(nodes.get("mon_data/mon_L3_00/llc_occupancy"), "270336\n");
    }
}

#[test]
fn rmids_rest_until_their_lines_are_gone() {
    let reported = Told::default();
    let mut host = intel(Kernel(6, 12));
    host.monitoring.as_mut().unwrap().rmids = 3;
    let mut nodes = Nodes::new(host, reported.clone(), Processes::default(), 1);
    nodes.mkdir("mon_groups/a").unwrap();
    nodes.mkdir("mon_groups/b").unwrap();
    assert_eq!(nodes.mkdir("mon_groups/c"), Err(("", Errno::NOSPC)));
    assert_eq!(nodes.get("info/last_cmd_status"), "Out of RMIDs\n");
    reported.0.lock().unwrap().occupancy = 6 << 20;
    nodes.rmdir("mon_groups/a").unwrap();
    // 16 MiB / 3 = 5592405, in whole counts of 90112: 62 of them.
    assert_eq!(nodes.get("info/L3_MON/max_threshold_occupancy"), format!("{}\n", 62 * 90112));
    assert_eq!(nodes.mkdir("mon_groups/c"), Err(("", Errno::BUSY)));
    assert_eq!(nodes.mkdir("c"), Err(("", Errno::BUSY)), "its class goes back");
    reported.0.lock().unwrap().occupancy = 62 * 90112;
    nodes.mkdir("c").unwrap();
    nodes.write("c/schemata", "L3:0=1\n").unwrap();
    assert!(reported.take().contains(&"mask 0 1 All 1".to_owned()));
}

#[test]
fn code_and_data_apart_halve_the_classes() {
    let mut host = intel(Kernel(6, 1));
    host.l3.as_mut().unwrap().cdp = Cdp::On;
    host.mb = None;
    let reported = Told::default();
    let mut nodes = Nodes::new(host, reported.clone(), Processes::default(), 1);
    assert_eq!(nodes.list("info").unwrap(), ["L3CODE", "L3DATA", "L3_MON", "last_cmd_status"]);
    assert_eq!(nodes.get("info/L3CODE/num_closids"), "8\n");
    assert_eq!(nodes.get("schemata"), "L3DATA:0=7ff;1=7ff\nL3CODE:0=7ff;1=7ff\n");
    for group in 1..8 {
        nodes.mkdir(&format!("g{group}")).unwrap();
    }
    assert_eq!(nodes.mkdir("g8"), Err(("", Errno::NOSPC)));
    reported.take();
    nodes.write("g1/schemata", "L3CODE:0=3\nL3DATA:0=c\n").unwrap();
    assert_eq!(reported.take(), ["mask 0 1 Data c", "mask 0 1 Code 3"]);
    // An exclusive group keeps other groups' code away from its data.
    for group in ["", "g2/", "g3/", "g4/", "g5/", "g6/", "g7/"] {
        nodes.write(&format!("{group}schemata"), "L3CODE:0=f0;1=f0\nL3DATA:0=f0;1=f0\n").unwrap();
    }
    nodes.write("g1/schemata", "L3CODE:0=3;1=3\nL3DATA:0=c;1=c\n").unwrap();
    nodes.write("g1/mode", "exclusive\n").unwrap();
    let (outcome, status) = nodes.put("g2/schemata", "L3CODE:0=c\n");
    assert_eq!((outcome, status.as_str()), (Err(Errno::INVAL), "Overlaps with exclusive group\n"));
    assert_eq!(nodes.put("g2/mode", "pseudo-locksetup\n").1, "CDP enabled\n");
    assert!(nodes.get("info/L3CODE/bit_usage").starts_with("0=HH0SSSS00EE;"));
}

#[test]
fn devices_get_the_highest_class_where_the_chip_lets_them() {
    let mut host = amd(Kernel(6, 19));
    let mut nodes = Nodes::of(host.clone());
    assert_eq!(nodes.read("info/L3/io_alloc"), Err(("open", Errno::NOENT)));
    host.l3.as_mut().unwrap().io_alloc = IoAllocSupport::Unsupported;
    let mut nodes = Nodes::of(host.clone());
    assert_eq!(nodes.get("info/L3/io_alloc"), "not supported\n");
    let (outcome, status) = nodes.put("info/L3/io_alloc", "1\n");
    assert_eq!((outcome, status.as_str()), (Err(Errno::NODEV), "io_alloc is not supported on L3\n"));
    assert_eq!(nodes.read("info/L3/io_alloc_cbm"), Err(("read", Errno::NODEV)));

    host.l3.as_mut().unwrap().io_alloc = IoAllocSupport::Supported;
    let reported = Told::default();
    let mut nodes = Nodes::new(host.clone(), reported.clone(), Processes::default(), 1);
    assert_eq!(nodes.get("info/L3/io_alloc"), "disabled\n");
    let (outcome, status) = nodes.put("info/L3/io_alloc_cbm", "0=f\n");
    assert_eq!((outcome, status.as_str()), (Err(Errno::INVAL), "io_alloc is not enabled on L3\n"));
    reported.take();
    nodes.write("info/L3/io_alloc", "on\n").unwrap();
    assert_eq!(reported.take(), ["io_alloc Some(15)"]);
    assert_eq!(nodes.get("info/L3/io_alloc_cbm"), "0=ffff;1=ffff;2=ffff;3=ffff\n");
    nodes.write("info/L3/io_alloc_cbm", "1=ff\n").unwrap();
    assert_eq!(reported.take(), ["mask 1 15 All ff"]);
    assert_eq!(nodes.get("info/L3/io_alloc_cbm"), "0=ffff;1=00ff;2=ffff;3=ffff\n");
    nodes.write("schemata", "L3:1=ff00\n").unwrap();
    assert!(nodes.get("info/L3/bit_usage").contains(";1=SSSSSSSSHHHHHHHH;"));
    for group in 1..15 {
        nodes.mkdir(&format!("g{group}")).unwrap();
    }
    assert_eq!(nodes.mkdir("g15"), Err(("", Errno::NOSPC)), "its class is taken");
    nodes.write("info/L3/io_alloc", "0\n").unwrap();
    nodes.mkdir("g15").unwrap();
    let (outcome, status) = nodes.put("info/L3/io_alloc", "1\n");
    assert_eq!(outcome, Err(Errno::NOSPC));
    assert_eq!(status, "CLOSID (ctrl_hw_id) 15 for io_alloc is used by g15 group\n");

    // Bandwidth has fewer classes than the highest of the cache.
    host.mb.as_mut().unwrap().closids = 8;
    let (outcome, status) = Nodes::of(host).put("info/L3/io_alloc", "1\n");
    assert_eq!(
        (outcome, status.as_str()),
        (Err(Errno::INVAL), "io_alloc CLOSID (ctrl_hw_id) 15 is not available\n")
    );
}

#[test]
fn events_of_amd_can_be_configured() {
    let reported = Told::default();
    let mut nodes = Nodes::new(amd(Kernel(6, 12)), reported.clone(), Processes::default(), 1);
    let file = "info/L3_MON/mbm_local_bytes_config";
    assert_eq!(nodes.get(file), "0=0x15;1=0x15;2=0x15;3=0x15\n");
    assert_eq!(nodes.get("info/L3_MON/mbm_total_bytes_config"), "0=0x7f;1=0x7f;2=0x7f;3=0x7f\n");
    reported.take();
    nodes.write(file, "0=0x33;2=1\n").unwrap();
    assert_eq!(reported.take(), ["kinds 0 MbmLocalBytes 33", "kinds 2 MbmLocalBytes 1"]);
    assert_eq!(nodes.get(file), "0=0x33;1=0x15;2=0x01;3=0x15\n");
    for (text, status) in [
        ("0=80\n", "Invalid event configuration: max valid mask is 0x7f\n"),
        ("0\n", "Non-numeric event configuration value\n"),
        ("x=1\n", "Missing '=' or non-numeric domain id\n"),
        ("9=1\n", "ok\n"),
    ] {
        assert_eq!(nodes.put(file, text), (Err(Errno::INVAL), status.to_owned()), "{text:?}");
    }
}

#[test]
fn masks_are_refused_with_the_kernels_words() {
    let mut host = intel(Kernel(6, 12));
    (host.l3.as_mut().unwrap().min_bits, host.l3.as_mut().unwrap().cdp) = (2, Cdp::Absent);
    let mut nodes = Nodes::of(host);
    // Without CDP on the chip, names are as wide as the longest one.
    assert_eq!(nodes.get("schemata"), "MB:0=100;1=100\nL3:0=7ff;1=7ff\n");
    nodes.mkdir("g1").unwrap();
    for (text, status) in [
        ("L3:0=1\n", "Need at least 2 bits in the mask\n"),
        ("L3:0=0x\n", "Non-hex character in the mask 0x\n"),
        ("L3:0=10000000000000000\n", "Non-hex character in the mask 10000000000000000\n"),
        ("L3:0=-1\n", "Non-hex character in the mask -1\n"),
        ("MB:0=4294967296\n", "Invalid MB value 4294967296\n"),
    ] {
        assert_eq!(nodes.put("g1/schemata", text), (Err(Errno::INVAL), status.to_owned()), "{text:?}");
    }
    assert_eq!(nodes.put("mode", "pseudo-locksetup\n").1, "Cannot pseudo-lock default group\n");
    assert_eq!(nodes.put("g1/mode", "pseudo-locksetup\n").1, "Pseudo-locking not supported\n");
    assert_eq!(nodes.put("g1/schemata", &"x".repeat(4097)).0, Err(Errno::TOOBIG));
    assert_eq!(nodes.put("g1/schemata", "").0, Err(Errno::INVAL));
    // No ways are left for a second group when an exclusive one has all but a bit.
    nodes.write("schemata", "L3:0=3;1=3\n").unwrap();
    nodes.write("g1/schemata", "L3:0=1fc;1=1fc\n").unwrap();
    nodes.write("g1/mode", "exclusive\n").unwrap();
    nodes.write("schemata", "L3:0=600;1=600\n").unwrap();
    nodes.write("g1/mode", "shareable\n").unwrap();
    nodes.write("g1/schemata", "L3:0=1ff;1=1ff\n").unwrap();
    nodes.write("g1/mode", "exclusive\n").unwrap();
    nodes.mkdir("g2").unwrap();
    assert_eq!(nodes.get("g2/schemata"), "MB:0=100;1=100\nL3:0=600;1=600\n");
}

#[test]
fn the_widest_value_sets_the_columns_of_all() {
    // Linux core.c, rdt_init_padding: 15 ways need four digits, so bandwidth has four too.
    let mut host = intel(Kernel(6, 12));
    (host.l3.as_mut().unwrap().cbm_bits, host.l3.as_mut().unwrap().shareable) = (15, 0x6000);
    assert_eq!(Nodes::of(host).get("schemata"), "    MB:0= 100;1= 100\n    L3:0=7fff;1=7fff\n");
}

#[test]
fn renaming_is_for_monitoring_groups() {
    let mut nodes = Nodes::of(intel(Kernel(6, 12)));
    for group in ["g1", "g2", "mon_groups/a", "mon_groups/b"] {
        nodes.mkdir(group).unwrap();
    }
    for (from, to, errno, status) in [
        ("g1", "g3", Errno::PERM, "Source must be a MON group\n"),
        ("mon_groups/a", "g3", Errno::PERM, "Destination must be a mon_groups subdirectory\n"),
        (
            "mon_groups/a",
            "mon_groups/mon_groups",
            Errno::PERM,
            "Destination must be a mon_groups subdirectory\n",
        ),
        ("mon_groups/a", "mon_groups/b", Errno::EXIST, "ok\n"),
        ("schemata", "x", Errno::PERM, "Source and destination must be directories"),
        ("nosuch", "x", Errno::NOENT, "Source and destination must be directories"),
    ] {
        assert_eq!(nodes.rename(from, to), Err(("", errno)), "{from} {to}");
        assert_eq!(nodes.get("info/last_cmd_status"), status, "{from} {to}");
    }
    nodes.write("mon_groups/a/cpus_list", "1\n").unwrap();
    assert_eq!(nodes.rename("mon_groups/a", "g1/mon_groups/a"), Err(("", Errno::PERM)));
    assert_eq!(nodes.get("info/last_cmd_status"), "Cannot move a MON group that monitors CPUs\n");
    nodes.rename("mon_groups/a", "mon_groups/c").unwrap();
    assert_eq!(nodes.list("mon_groups").unwrap(), ["b", "c"]);
}

#[test]
fn a_removed_groups_files_are_gone_for_good() {
    let mut nodes = Nodes::of(intel(Kernel(6, 1)));
    nodes.mkdir("g1").unwrap();
    let (folder, file) = (nodes.place("g1").unwrap(), nodes.place("g1/schemata").unwrap());
    nodes.rmdir("g1").unwrap();
    nodes.mkdir("g1").unwrap();
    assert_eq!(nodes.resctrl.read(file), Err(Errno::NODEV));
    assert_eq!(nodes.resctrl.write(file, b"L3:0=f\n", Caller { pid: 1, uid: 0 }), Err(Errno::NODEV));
    assert_eq!(nodes.resctrl.attributes(file), Err(Errno::NODEV));
    assert!(nodes.resctrl.list(folder).is_empty() && nodes.resctrl.path(file).is_none());
    assert_ne!(nodes.place("g1").unwrap(), folder);
    assert_eq!(nodes.rmdir("schemata"), Err(("", Errno::NOTDIR)));
    assert_eq!(nodes.mkdir("a\nb"), Err(("", Errno::INVAL)));
}
