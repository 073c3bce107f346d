//! Cases about CPUs and tasks of groups.

use super::{Bench, Case, Result, check, lacking, list, refused, same};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};
use waykeeper_kernel::resctrl::{Group, MovedTasks, ResctrlErrorKind};
use waykeeper_units::{CoreId, CoreList};

pub const CASES: &[Case] = list![
    "a CPU moves and comes back" => a_cpu_moves,
    "CPUs move between two groups" => cpus_move_between_groups,
    "CPUs that are not there are refused" => cpus_that_are_not_there,
    "the default group keeps its CPUs" => the_default_group_keeps_its_cpus,
    "tasks move, and threads are tasks" => tasks_move,
    "a vanished task is told and the others move" => a_vanished_task,
    "tasks go back when their group goes" => tasks_go_back,
];

/// No pid reaches this (PID_MAX_LIMIT of 64-bit kernels is 4 * 1024 * 1024).
const NO_PID: u32 = 4 * 1024 * 1024 + 1;
/// No machine has this CPU, and every kernel's mask of possible CPUs is smaller (4096 is our own limit).
const NO_CPU: CoreId = CoreId(4095);

fn a_cpu_moves(bench: &Bench) -> Result {
    let resctrl = &bench.resctrl;
    let group = bench.group("cpu")?;
    let all = resctrl.cpus(&Group::DEFAULT)?;
    let last = *all.cores().last().ok_or_else(|| lacking("CPU"))?;
    let one = CoreList::from(vec![last]);
    resctrl.set_cpus(&group, &one)?;
    same!(resctrl.cpus(&group)?, one);
    same!(resctrl.cpus_by_mask(&group)?, one);
    check!(!resctrl.cpus(&Group::DEFAULT)?.cores().contains(&last), "the default group still has {last}");
    resctrl.set_cpus(&group, &CoreList::default())?;
    check!(resctrl.cpus(&group)?.is_empty(), "the group still has {last}");
    same!(resctrl.cpus(&Group::DEFAULT)?, all);
    resctrl.set_cpus(&group, &one)?;
    resctrl.remove(&group)?;
    same!(resctrl.cpus(&Group::DEFAULT)?, all);
    Ok(())
}

fn cpus_move_between_groups(bench: &Bench) -> Result {
    let resctrl = &bench.resctrl;
    let all = resctrl.cpus(&Group::DEFAULT)?;
    let (a, b) = (bench.group("a")?, bench.group("b")?);
    resctrl.set_cpus(&a, &all)?;
    same!(resctrl.cpus(&a)?, all);
    check!(resctrl.cpus(&Group::DEFAULT)?.is_empty(), "the default group has CPUs left");
    let some = CoreList::from(all.cores()[..all.len().div_ceil(2)].to_vec());
    resctrl.set_cpus(&b, &some)?;
    same!(resctrl.cpus(&a)?, CoreList::from(all.cores()[some.len()..].to_vec()));
    same!(resctrl.cpus(&b)?, some);
    resctrl.remove(&a)?;
    resctrl.remove(&b)?;
    same!(resctrl.cpus(&Group::DEFAULT)?, all);
    Ok(())
}

fn cpus_that_are_not_there(bench: &Bench) -> Result {
    let group = bench.group("cpus")?;
    let wrong = CoreList::from(vec![NO_CPU]);
    for _ in 0..2 {
        // cpus appends to the status (virtual-host.md 3.4); an error has only its own part.
        let error =
            refused(bench.resctrl.set_cpus(&group, &wrong), ResctrlErrorKind::Refused, "Bad CPU list/mask")?;
        same!(error.status.as_deref(), Some("Bad CPU list/mask"));
        check!(error.to_string().contains("CPUs that are online"), "{error}");
    }
    check!(bench.resctrl.cpus(&group)?.is_empty(), "the group has CPUs");
    Ok(())
}

fn the_default_group_keeps_its_cpus(bench: &Bench) -> Result {
    let all = bench.resctrl.cpus(&Group::DEFAULT)?;
    let fewer = CoreList::from(all.cores()[1..].to_vec());
    let words = "Can't drop CPUs from default group";
    refused(bench.resctrl.set_cpus(&Group::DEFAULT, &fewer), ResctrlErrorKind::Refused, words)?;
    same!(bench.resctrl.cpus(&Group::DEFAULT)?, all);
    bench.resctrl.set_cpus(&Group::DEFAULT, &all)?;
    Ok(())
}

/// A thread that waits until this is dropped, and its thread id.
struct Waiting {
    tid: u32,
    _end: mpsc::Sender<()>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Waiting {
    fn start() -> Result<Waiting> {
        let (end, ended) = mpsc::channel::<()>();
        let (tell, reported) = mpsc::channel();
        let thread = thread::spawn(move || {
            let tid = rustix::thread::gettid().as_raw_nonzero().get();
            let _ = tell.send(tid);
            let _ = ended.recv();
        });
        let tid = reported.recv().map_err(|error| error.to_string())?;
        Ok(Waiting { tid: tid.unsigned_abs(), _end: end, thread: Some(thread) })
    }

    /// Ends the thread and waits for it.
    fn finish(mut self) -> Result<u32> {
        let (thread, tid) = (self.thread.take(), self.tid);
        drop(self);
        thread.map_or(Ok(()), thread::JoinHandle::join).map_err(|_| "a thread died".to_owned())?;
        Ok(tid)
    }
}

fn tasks_move(bench: &Bench) -> Result {
    let resctrl = &bench.resctrl;
    let group = bench.group("tasks")?;
    let task = Waiting::start()?;
    check!(resctrl.tasks(&Group::DEFAULT)?.contains(&task.tid), "the default group lacks {}", task.tid);
    let moved = resctrl.assign(&group, &[task.tid])?;
    same!(moved, MovedTasks { moved: vec![task.tid], vanished: vec![] });
    same!(resctrl.tasks(&group)?, vec![task.tid]);
    check!(!resctrl.tasks(&Group::DEFAULT)?.contains(&task.tid), "it is in two groups");
    resctrl.assign(&Group::DEFAULT, &[task.tid])?;
    check!(resctrl.tasks(&group)?.is_empty(), "it is still in the group");
    refused(resctrl.assign(&group, &[0]), ResctrlErrorKind::Refused, "")?;
    task.finish()?;
    Ok(())
}

fn a_vanished_task(bench: &Bench) -> Result {
    let resctrl = &bench.resctrl;
    let group = bench.group("tasks")?;
    let (first, second) = (Waiting::start()?, Waiting::start()?);
    let moved = resctrl.assign(&group, &[first.tid, NO_PID, second.tid])?;
    same!(moved, MovedTasks { moved: vec![first.tid, second.tid], vanished: vec![NO_PID] });
    let mut inside = resctrl.tasks(&group)?;
    inside.sort_unstable();
    let mut wanted = vec![first.tid, second.tid];
    wanted.sort_unstable();
    same!(inside, wanted);
    let (first, second) = (first.finish()?, second.finish()?);
    // A thread can be joined shortly before the kernel removes it from its lists (mm_release before release_task).
    let patience = Instant::now() + Duration::from_secs(30);
    loop {
        let left = resctrl.tasks(&group)?;
        if !left.contains(&first) && !left.contains(&second) {
            return Ok(());
        }
        check!(Instant::now() < patience, "tasks that have ended are listed: {left:?}");
        thread::sleep(Duration::from_millis(5));
    }
}

fn tasks_go_back(bench: &Bench) -> Result {
    let resctrl = &bench.resctrl;
    let group = bench.group("tasks")?;
    let task = Waiting::start()?;
    resctrl.assign(&group, &[task.tid])?;
    resctrl.remove(&group)?;
    check!(resctrl.tasks(&Group::DEFAULT)?.contains(&task.tid), "{} is nowhere", task.tid);
    task.finish()?;
    Ok(())
}
