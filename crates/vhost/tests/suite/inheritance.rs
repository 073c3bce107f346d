//! Which group a new task has: from records of forks, and from processes of this machine.
//!
//! The tests with processes need root, /dev/fuse and perf_event_open(2); without them they fail.

use crate::common;
use crate::transcript;

use common::{SCENARIO, manual_clock, scenario};
use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use tempfile::TempDir;
use transcript::intel;
use waykeeper_vhost::fork_records::{Fork, Forks};
use waykeeper_vhost::node::Caller;
use waykeeper_vhost::resctrl::VirtualResctrl;
use waykeeper_vhost::resctrl::description::Kernel;
use waykeeper_vhost::resctrl::groups::DirOwner;
use waykeeper_vhost::resctrl::hardware::Idle;
use waykeeper_vhost::resctrl::places::Place;
use waykeeper_vhost::resctrl::tasks::{Task, Tasks};
use waykeeper_vhost::virtual_host::VirtualHost;

/// Tasks and records that a test sets.
#[derive(Default)]
struct Machine {
    listed: Vec<Task>,
    forks: Vec<Fork>,
    lost: bool,
    /// How often the tasks were listed.
    lists: usize,
}

#[derive(Clone, Default)]
struct Scripted(Arc<Mutex<Machine>>);

impl Scripted {
    /// Processes in the list: id, parent, start.
    fn list(&self, processes: &[(u32, u32, u64)]) {
        let task = |&(id, parent, started): &(u32, u32, u64)| Task { id, process: id, parent, started };
        self.0.lock().unwrap().listed = processes.iter().map(task).collect();
    }

    /// A fork that was recorded.
    fn fork(&self, from: u32, task: u32) {
        self.0.lock().unwrap().forks.push(Fork { task, from });
    }
}

impl Tasks for Scripted {
    fn list(&mut self) -> Vec<Task> {
        let mut machine = self.0.lock().unwrap();
        machine.lists += 1;
        machine.listed.clone()
    }

    fn forks(&mut self) -> Forks {
        let mut machine = self.0.lock().unwrap();
        Forks { seen: std::mem::take(&mut machine.forks), complete: !machine.lost }
    }

    fn owner(&mut self, task: u32) -> Option<u32> {
        self.0.lock().unwrap().listed.iter().any(|listed| listed.id == task).then_some(0)
    }
}

/// A resctrl with the groups a and b.
struct Groups {
    resctrl: VirtualResctrl,
    a: Place,
    b: Place,
}

impl Groups {
    fn of(tasks: &Scripted) -> Groups {
        let mut resctrl = VirtualResctrl::new(intel(Kernel(6, 12)), Box::new(Idle), Box::new(tasks.clone()));
        let owner = DirOwner { mode: 0o755, uid: 0, gid: 0 };
        let a = resctrl.mkdir(Place::ROOT, "a", owner).unwrap();
        let b = resctrl.mkdir(Place::ROOT, "b", owner).unwrap();
        Groups { resctrl, a, b }
    }

    fn file(&self, group: Place) -> Place {
        self.resctrl.lookup(group, "tasks").unwrap()
    }

    fn move_to(&mut self, group: Place, task: u32) {
        let (file, caller) = (self.file(group), Caller { pid: 1, uid: 0 });
        self.resctrl.write(file, format!("{task}\n").as_bytes(), caller).unwrap();
    }

    fn of_group(&mut self, group: Place) -> String {
        let file = self.file(group);
        String::from_utf8(self.resctrl.read(file).unwrap()).unwrap().replace('\n', " ")
    }
}

/// pqos -R writes every task of the machine and reads the tasks of every group before each: with a list for each it took
/// 50 s on a busy machine of 133 processes.
#[test]
fn writes_and_empty_groups_list_no_tasks_while_no_record_is_missing() {
    let tasks = Scripted::default();
    tasks.list(&[(1, 0, 1), (10, 1, 5), (11, 10, 6)]);
    let mut groups = Groups::of(&tasks);
    let (a, b) = (groups.a, groups.b);
    let lists = || tasks.0.lock().unwrap().lists;
    let before = lists();
    groups.move_to(a, 10);
    groups.move_to(a, 11);
    assert_eq!(groups.of_group(b), "");
    // A task that has not been listed yet: its record says whose class it has.
    tasks.fork(10, 12);
    tasks.list(&[(1, 0, 1), (10, 1, 5), (11, 10, 6), (12, 10, 7)]);
    groups.move_to(b, 10);
    assert_eq!(lists(), before);
    assert_eq!((groups.of_group(a).as_str(), groups.of_group(b).as_str()), ("11 12 ", "10 "));
    assert_eq!(lists(), before + 2);
    // With a missing record all calls list, and so does the first one after it.
    tasks.0.lock().unwrap().lost = true;
    groups.move_to(a, 10);
    assert_eq!((lists(), groups.of_group(b).as_str()), (before + 3, ""));
    tasks.0.lock().unwrap().lost = false;
    assert_eq!(lists(), before + 4);
    groups.move_to(b, 12);
    groups.move_to(a, 12);
    assert_eq!((lists(), groups.of_group(b).as_str()), (before + 5, ""));
    assert_eq!(lists(), before + 5);
}

#[test]
fn a_grandchild_inherits_through_parents_that_are_gone() {
    let tasks = Scripted::default();
    tasks.list(&[(1, 0, 1), (10, 1, 5)]);
    let mut groups = Groups::of(&tasks);
    let (a, b) = (groups.a, groups.b);
    groups.move_to(a, 10);
    // 10 forks 11, 11 forks 12, 10 and 11 end; process 1 adopts 12.
    tasks.fork(10, 11);
    tasks.fork(11, 12);
    tasks.list(&[(1, 0, 1), (12, 1, 6)]);
    assert_eq!(groups.of_group(a), "12 ");
    // It is moved; a child from before and a child from after that have the class of their time.
    tasks.fork(12, 13);
    tasks.list(&[(1, 0, 1), (12, 1, 6), (13, 12, 7)]);
    groups.move_to(b, 12);
    tasks.fork(12, 14);
    tasks.list(&[(1, 0, 1), (12, 1, 6), (13, 12, 7), (14, 12, 8)]);
    assert_eq!((groups.of_group(a), groups.of_group(b)), ("13 ".into(), "12 14 ".into()));
    assert_eq!(groups.of_group(Place::ROOT), "1 ");
}

#[test]
fn the_caller_of_clone_decides_and_not_the_parent() {
    let tasks = Scripted::default();
    tasks.list(&[(1, 0, 1), (10, 1, 5), (20, 1, 5)]);
    let mut groups = Groups::of(&tasks);
    let (a, b) = (groups.a, groups.b);
    groups.move_to(a, 10);
    groups.move_to(b, 20);
    // CLONE_PARENT: 10 makes 11, whose parent is 10's.
    tasks.fork(10, 11);
    tasks.list(&[(1, 0, 1), (10, 1, 5), (11, 1, 6), (20, 1, 5)]);
    assert_eq!(groups.of_group(a), "10 11 ");
    // 11 ends and its id is used again, below 20.
    tasks.fork(20, 11);
    tasks.list(&[(1, 0, 1), (10, 1, 5), (11, 20, 9), (20, 1, 5)]);
    assert_eq!((groups.of_group(a), groups.of_group(b)), ("10 ".into(), "11 20 ".into()));
}

#[test]
fn a_task_that_is_recorded_before_it_is_listed_keeps_its_class() {
    let tasks = Scripted::default();
    tasks.list(&[(1, 0, 1), (10, 1, 5)]);
    let mut groups = Groups::of(&tasks);
    let (a, b) = (groups.a, groups.b);
    groups.move_to(a, 10);
    tasks.fork(10, 11);
    // The list was made just before the fork.
    assert_eq!(groups.of_group(a), "10 ");
    tasks.list(&[(1, 0, 1), (10, 1, 5), (11, 10, 6)]);
    groups.move_to(b, 10);
    assert_eq!((groups.of_group(a), groups.of_group(b)), ("11 ".into(), "10 ".into()));
}

#[test]
fn without_its_record_a_task_gets_the_group_of_its_parent() {
    let tasks = Scripted::default();
    tasks.list(&[(1, 0, 1), (10, 1, 5)]);
    let mut groups = Groups::of(&tasks);
    let a = groups.a;
    groups.move_to(a, 10);
    tasks.0.lock().unwrap().lost = true;
    // 12 is a child of 10, 13 a grandchild whose parent ended.
    tasks.list(&[(1, 0, 1), (10, 1, 5), (12, 10, 6), (13, 1, 7)]);
    assert_eq!((groups.of_group(a), groups.of_group(Place::ROOT)), ("10 12 ".into(), "1 13 ".into()));
}

#[test]
fn tasks_of_a_group_that_is_removed_do_not_come_back_with_its_class() {
    let tasks = Scripted::default();
    tasks.list(&[(1, 0, 1), (10, 1, 5)]);
    let mut groups = Groups::of(&tasks);
    let a = groups.a;
    groups.move_to(a, 10);
    tasks.fork(10, 11);
    groups.resctrl.rmdir(Place::ROOT, "a").unwrap();
    let owner = DirOwner { mode: 0o755, uid: 0, gid: 0 };
    // The new group has the class of the old one.
    let c = groups.resctrl.mkdir(Place::ROOT, "c", owner).unwrap();
    tasks.list(&[(1, 0, 1), (10, 1, 5), (11, 10, 6)]);
    assert_eq!((groups.of_group(c), groups.of_group(Place::ROOT)), (String::new(), "1 10 11 ".into()));
}

/// A mounted virtual host with a group `g`.
struct Mounted {
    host: VirtualHost,
    _folder: TempDir,
}

impl Mounted {
    fn new() -> Mounted {
        assert!(rustix::process::geteuid().is_root(), "not run: needs root and /dev/fuse");
        let folder = tempfile::tempdir().unwrap();
        let host = VirtualHost::mount(folder.path(), scenario("gold-6140", SCENARIO), manual_clock(64))
            .unwrap_or_else(|error| panic!("not run: needs root and /dev/fuse: {error}"));
        let source = fs::read_to_string(folder.path().join("waykeeper/forks")).unwrap();
        assert_eq!(source, "recorded\n", "not run: needs CAP_PERFMON");
        fs::create_dir(folder.path().join("sys/fs/resctrl/g")).unwrap();
        Mounted { host, _folder: folder }
    }

    fn tasks_file(&self) -> PathBuf {
        self.host.path().join("sys/fs/resctrl/g/tasks")
    }

    fn tasks(&self) -> BTreeSet<u32> {
        let text = fs::read_to_string(self.tasks_file()).unwrap();
        text.lines().map(|line| line.parse().unwrap()).collect()
    }
}

/// Runs a shell script with the path of the group's tasks as its first argument. Returns what it prints, a pid.
fn shell(script: &str, tasks: &Path) -> u32 {
    let mut child =
        Command::new("sh").args(["-c", script, "sh"]).arg(tasks).stdout(Stdio::piped()).spawn().unwrap();
    let mut text = String::new();
    child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert!(child.wait().unwrap().success());
    text.trim().parse().unwrap_or_else(|_| panic!("{text:?} is no pid"))
}

fn kill(pid: u32) {
    let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

#[test]
fn the_grandchild_of_a_process_that_moved_itself_is_in_its_group() {
    let host = Mounted::new();
    let script = r#"echo $$ >"$1"; (sleep 60 >/dev/null 2>&1 & echo $!) & exit"#;
    let mut outside = 0;
    for _ in 0..200 {
        let grandchild = shell(script, &host.tasks_file());
        outside += u32::from(!host.tasks().contains(&grandchild));
        kill(grandchild);
    }
    assert_eq!(outside, 0, "of 200 grandchildren so many are outside of the group");
}

#[test]
fn a_clone_with_its_callers_parent_is_in_its_callers_group() {
    let host = Mounted::new();
    let tasks = fs::OpenOptions::new().write(true).open(host.tasks_file()).unwrap();
    let mut command = Command::new("true");
    let enter = move || {
        rustix::io::write(&tasks, b"0\n")?;
        // runc makes a container's first process like this. The new process only waits.
        // SAFETY: the process that std has just forked calls clone like fork; the child makes system calls only.
        let cloned =
            unsafe { libc::syscall(libc::SYS_clone, libc::CLONE_PARENT | libc::SIGCHLD, 0, 0, 0, 0) };
        if cloned == 0 {
            // SAFETY: both calls take numbers only. An open pipe of std would block the caller of `status`.
            unsafe { libc::close_range(0, libc::c_uint::MAX, 0) };
            loop {
                // SAFETY: as above.
                unsafe { libc::pause() };
            }
        }
        Ok(())
    };
    // SAFETY: between fork and exec the closure makes system calls only.
    unsafe { command.pre_exec(enter) };
    assert!(command.status().unwrap().success());
    let tasks = host.tasks();
    assert_eq!(tasks.len(), 1, "{tasks:?}");
    let cloned = *tasks.first().unwrap();
    kill(cloned);
    let pid = rustix::process::Pid::from_raw(cloned as i32);
    rustix::process::waitpid(pid, rustix::process::WaitOptions::empty()).unwrap();
    assert_eq!(host.tasks(), BTreeSet::new());
}

#[test]
fn a_thread_is_in_the_group_of_the_thread_that_started_it() {
    let host = Mounted::new();
    let path = host.tasks_file();
    let gettid = || rustix::thread::gettid().as_raw_nonzero().get() as u32;
    let mover = std::thread::spawn(move || {
        fs::write(&path, "0").unwrap();
        let (said, heard) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let inner = std::thread::spawn(move || {
            said.send(gettid()).unwrap();
            ended.recv().unwrap();
        });
        let ids = BTreeSet::from([gettid(), heard.recv().unwrap()]);
        let listed: BTreeSet<u32> =
            fs::read_to_string(&path).unwrap().lines().map(|line| line.parse().unwrap()).collect();
        end.send(()).unwrap();
        inner.join().unwrap();
        (ids, listed)
    });
    let (ids, listed) = mover.join().unwrap();
    assert_eq!(listed, ids, "the other threads of this process are in the default group");
}

#[test]
fn more_forks_than_the_rings_hold_are_followed() {
    let host = Mounted::new();
    // 20,000 records of forks and exits; the rings of two CPUs hold 16,384.
    let script = r#"echo $$ >"$1"; i=0; while [ $i -lt 10000 ]; do (:); i=$((i + 1)); done
        (sleep 60 >/dev/null 2>&1 & echo $!) & exit"#;
    let last = shell(script, &host.tasks_file());
    let tasks = host.tasks();
    kill(last);
    assert!(tasks.contains(&last), "{last} is not one of {tasks:?}");
    assert_eq!(fs::read_to_string(host.host.path().join("waykeeper/forks")).unwrap(), "recorded\n");
}
