//! This machine's own /proc and /sys/fs/cgroup: programs that the test starts, forks, moves and ends.
#![expect(
    clippy::print_stderr,
    reason = "a group that a test could not remove is named, and a Drop cannot fail"
)]

use crate::census::machine::{census, check, show};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use waykeeper_kernel::root::Root;
use waykeeper_tenants::{Census, Roster};
use waykeeper_testbed::PATIENCE;

/// A copy of a program under a unique name.
struct Program {
    folder: tempfile::TempDir,
    name: String,
}

impl Program {
    fn copy(of: &str, name: &str) -> Program {
        let folder = tempfile::tempdir().unwrap();
        let own = folder.path().file_name().unwrap().to_str().unwrap();
        let tag: String = own.chars().filter(char::is_ascii_alphanumeric).collect();
        let name = format!("{name}{tag}");
        // A process of its own writes the copy: one that another test's thread starts meanwhile would inherit this
        // process's open file, and a file that is open for writing cannot be executed.
        let copied = Command::new("cp").arg(of).arg(folder.path().join(&name)).status().unwrap();
        assert!(copied.success(), "{copied}");
        Program { name, folder }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join(&self.name)
    }
}

/// A child process that is ended with the test.
struct Guest(Child);

impl Guest {
    fn start(command: &mut Command) -> Guest {
        Guest(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap())
    }

    fn sleeper(program: &Program) -> Guest {
        Guest::start(Command::new(program.path()).arg("600"))
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Looks until `done`.
fn until(census: &mut Census, what: &str, done: impl Fn(&Roster) -> bool) -> Roster {
    let begun = Instant::now();
    loop {
        let roster = census.take(&Root::at("/"));
        check(&roster);
        if done(&roster) {
            return roster;
        }
        let last: Vec<_> = roster.tenants.iter().map(show).collect();
        assert!(begun.elapsed() < PATIENCE, "never {what}; at last {last:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn pids(roster: &Roster) -> Vec<u32> {
    roster.tenants.iter().flat_map(|tenant| tenant.pids.clone()).collect()
}

#[test]
fn programs_that_are_started_and_ended_come_and_go() {
    // Longer than the 15 bytes that the kernel keeps of a name.
    let program = Program::copy("/bin/sleep", "census-of-long-names-");
    let mut census = census(&format!("[[tenant]]\nname = \"s\"\nprocess = \"{}\"\n", program.name));
    let roster = census.take(&Root::at("/"));
    assert_eq!((roster.tenants.len(), roster.absent.len()), (0, 1));
    let one = Guest::sleeper(&program);
    let roster = until(&mut census, "one there", |roster| pids(roster) == [one.pid()]);
    let started = roster.started[&one.pid()];
    let two = Guest::sleeper(&program);
    let mut both = vec![one.pid(), two.pid()];
    both.sort_unstable();
    let roster = until(&mut census, "both there", |roster| pids(roster) == both);
    assert_eq!(roster.started[&one.pid()], started, "a start stays");
    drop(one);
    until(&mut census, "one left", |roster| pids(roster) == [two.pid()]);
    drop(two);
    let roster = until(&mut census, "none left", |roster| roster.tenants.is_empty());
    assert_eq!(roster.absent[0].name, "s");
}

#[test]
fn what_a_declared_process_starts_is_its_tenants() {
    let parent = Guest::start(Command::new("sh").args(["-c", "sleep 600 & sleep 601 & wait"]));
    let mut census = census(&format!("[[tenant]]\nname = \"s\"\npids = [{}]\n", parent.pid()));
    let roster = until(&mut census, "three of them", |roster| pids(roster).len() == 3);
    let children: Vec<u32> = pids(&roster).into_iter().filter(|pid| *pid != parent.pid()).collect();
    // Their parent ends: init is their new parent, and they stay members.
    drop(parent);
    let roster = until(&mut census, "the children alone", |roster| pids(roster) == children);
    assert_eq!(roster.notes.len(), 1, "{:?}", roster.notes);
    for child in children {
        let done = Command::new("kill").arg(child.to_string()).status().unwrap();
        assert!(done.success());
    }
    until(&mut census, "all gone", |roster| roster.tenants.is_empty());
}

#[test]
fn a_program_that_is_kept_to_one_cpu_has_it_for_its_core() {
    let online = fs::read_to_string("/sys/devices/system/cpu/online").unwrap();
    if online.trim() == "0" {
        panic!("not run: needs 2 CPUs: a program that may use all CPUs has no core of its own");
    }
    let program = Program::copy("/bin/sleep", "cpu");
    let guest = Guest::sleeper(&program);
    let mut cpus = rustix::thread::CpuSet::new();
    cpus.set(0);
    let pid = rustix::process::Pid::from_raw(guest.pid() as i32);
    rustix::thread::sched_setaffinity(pid, &cpus).unwrap();
    let mut census = census(&format!("[[tenant]]\nname = \"s\"\nprocess = \"{}\"\n", program.name));
    until(&mut census, "on core 0", |roster| {
        roster.tenants.iter().any(|tenant| tenant.cores.to_string() == "0")
    });
}

/// A directory of the cgroup tree, removed with the test; its processes must have ended before.
struct Cgroup(PathBuf);

impl Cgroup {
    fn make(path: &Path) -> std::io::Result<Cgroup> {
        fs::create_dir(path)?;
        Ok(Cgroup(path.to_owned()))
    }

    fn write(&self, file: &str, text: &str) {
        fs::write(self.0.join(file), text).unwrap_or_else(|why| panic!("{}/{file}: {why}", self.0.display()));
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // A process that was just killed may not have ended yet.
        for _ in 0..100 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        eprintln!("{} could not be removed", self.0.display());
    }
}

/// The first of these trees that is mounted.
fn tree(folders: &[&str]) -> Option<PathBuf> {
    if Path::new("/sys/fs/cgroup/cgroup.controllers").exists() {
        return Some("/sys/fs/cgroup".into());
    }
    folders.iter().map(PathBuf::from).find(|folder| folder.exists())
}

fn unwritable(tree: Option<&Path>, why: &std::io::Error) -> ! {
    panic!("not run: needs control groups: none can be made in {tree:?}, {why}");
}

#[test]
fn a_slice_that_is_made_filled_and_removed() {
    let folder = tree(&["/sys/fs/cgroup/systemd", "/sys/fs/cgroup/unified"]);
    let program = Program::copy("/bin/sleep", "s");
    let name = format!("wk{}", program.name);
    let made = match &folder {
        Some(folder) => Cgroup::make(&folder.join(format!("{name}.slice"))),
        None => Err(std::io::ErrorKind::NotFound.into()),
    };
    let outer = match made {
        Ok(outer) => outer,
        Err(why) => unwritable(folder.as_deref(), &why),
    };
    let inner = Cgroup::make(&outer.0.join(format!("{name}-in.slice"))).unwrap();
    let unit = Cgroup::make(&inner.0.join(format!("{name}@1.service"))).unwrap();
    let other = Cgroup::make(&inner.0.join(format!("{name}@2.service"))).unwrap();
    let mut slices = census(&format!("[[tenant]]\nname = \"s\"\nslice = \"{name}-in.slice\"\n"));
    let mut units = census(&format!("[[tenant]]\nname = \"u\"\neach = true\nunit = \"{name}@*.service\"\n"));
    assert!(slices.take(&Root::at("/")).tenants.is_empty());
    let (one, two) = (Guest::sleeper(&program), Guest::sleeper(&program));
    unit.write("cgroup.procs", &one.pid().to_string());
    other.write("cgroup.procs", &two.pid().to_string());
    let mut both = vec![one.pid(), two.pid()];
    both.sort_unstable();
    until(&mut slices, "both in the slice", |roster| pids(roster) == both);
    until(&mut units, "two units", |roster| roster.tenants.len() == 2);
    drop(two);
    drop(other);
    let roster = until(&mut units, "one unit", |roster| roster.tenants.len() == 1);
    assert_eq!(roster.tenants[0].pids, [one.pid()]);
    drop(one);
    drop((unit, inner, outer));
    until(&mut slices, "nothing left", |roster| roster.tenants.is_empty());
    assert!(units.take(&Root::at("/")).tenants.is_empty());
}

#[test]
fn a_cgroup_that_is_kept_to_one_cpu_has_it_for_its_core() {
    let folder = tree(&["/sys/fs/cgroup/cpuset"]);
    let program = Program::copy("/bin/sleep", "c");
    let name = format!("wk{}", program.name);
    let made = match &folder {
        Some(folder) => Cgroup::make(&folder.join(&name)),
        None => Err(std::io::ErrorKind::NotFound.into()),
    };
    let outer = match made {
        Ok(outer) => outer,
        Err(why) => unwritable(folder.as_deref(), &why),
    };
    if !outer.0.join("cpuset.cpus").exists() {
        panic!("not run: needs control groups: cpuset is not delegated to {}", outer.0.display());
    }
    outer.write("cpuset.cpus", "0");
    outer.write("cpuset.mems", "0");
    let guest = Guest::sleeper(&program);
    outer.write("cgroup.procs", &guest.pid().to_string());
    let mut census =
        census(&format!("[[tenant]]\nname = \"s\"\ncgroup = \"{}*\"\n", &name[..name.len() - 1]));
    let is_one = fs::read_to_string("/sys/devices/system/cpu/online").unwrap().trim() == "0";
    let cores = if is_one { "" } else { "0" };
    let roster = until(&mut census, "in the cgroup", |roster| pids(roster) == [guest.pid()]);
    assert_eq!(roster.tenants[0].cores.to_string(), cores);
    drop(guest);
    drop(outer);
    until(&mut census, "gone", |roster| roster.tenants.is_empty());
}
