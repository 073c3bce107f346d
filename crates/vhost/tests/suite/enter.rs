//! Commands in a namespace with the tree at the usual paths, as root and as an ordinary user.
//!
//! It needs root, /dev/fuse and namespaces; without them it fails.

use crate::transcript;

use rustix::thread::{Gid, Uid};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tempfile::TempDir;
use transcript::intel;
use waykeeper_vhost::enter::{EnterError, EnterOptions, exit_code, run};
use waykeeper_vhost::faults::Faults;
use waykeeper_vhost::host_tasks::HostTasks;
use waykeeper_vhost::mount_calls::{MountCalls, MountSwitch};
use waykeeper_vhost::mounted::Mounted;
use waykeeper_vhost::node::{Node, Tree};
use waykeeper_vhost::proc_mounts::ProcMounts;
use waykeeper_vhost::resctrl::VirtualResctrl;
use waykeeper_vhost::resctrl::description::Kernel;
use waykeeper_vhost::resctrl::hardware::Idle;

/// A signal to this process reaches the commands of all running tests.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

struct Server {
    _turn: MutexGuard<'static, ()>,
    // Unmounted before its directory is removed.
    _mounted: Mounted,
    folder: TempDir,
}

fn server() -> Server {
    let turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let mut tree = Tree::new();
    let resctrl =
        VirtualResctrl::new(intel(Kernel(6, 12)), Box::new(Idle), Box::new(HostTasks::new("/proc"))).shared();
    tree.add("sys/fs/resctrl", Node::Resctrl(resctrl.clone()));
    tree.directory("sys/fs/cgroup");
    tree.text("proc/cpuinfo", "flags\t\t: rdt_a cat_l3\n");
    tree.text("proc/filesystems", "nodev\tresctrl\n");
    tree.text("proc/sys/kernel/osrelease", "6.12.0-virtual\n");
    tree.text("proc/not-on-the-host", "");
    tree.file("waykeeper/resctrl", MountSwitch::new(resctrl.clone()));
    tree.file("waykeeper/calls", MountCalls::new(resctrl.clone()));
    tree.file("proc/mounts", ProcMounts::new(Some("/proc".into()), Some(resctrl)));
    tree.text("dev/cpu/0/cpuid", "0123456789abcdef");
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    assert!(rustix::process::geteuid().is_root(), "not run: needs root and /dev/fuse");
    let mounted = Mounted::new(tree, folder.path(), Faults::new())
        .unwrap_or_else(|error| panic!("not run: needs root and /dev/fuse: {error}"));
    Server { _turn: turn, _mounted: mounted, folder }
}

/// Runs a shell script on the tree; its output is written to a file, as the command's own output is ours.
fn shell(tree: &Path, script: &str) -> Result<(u8, String), EnterError> {
    shell_with(tree, EnterOptions::default(), script)
}

fn shell_with(tree: &Path, options: EnterOptions, script: &str) -> Result<(u8, String), EnterError> {
    let output = tempfile::NamedTempFile::new().unwrap();
    fs::set_permissions(output.path(), fs::Permissions::from_mode(0o666)).unwrap();
    let script = format!("exec > {} 2>&1; {script}", output.path().display());
    let status = run(tree, options, OsStr::new("sh"), &["-c", &script])?;
    Ok((exit_code(status), fs::read_to_string(output.path()).unwrap()))
}

const LOOK: &str = "cat /sys/fs/resctrl/schemata; grep resctrl /proc/mounts; grep -c rdt_a /proc/cpuinfo; \
                    cat /proc/filesystems /proc/sys/kernel/osrelease; cat /dev/cpu/0/cpuid; echo; ls /sys";

const SEEN: &str = "    MB:0=100;1=100\n    L3:0=7ff;1=7ff\nresctrl /sys/fs/resctrl resctrl rw,relatime 0 0\n1\n\
                    nodev\tresctrl\n6.12.0-virtual\n0123456789abcdef\nfs\n";

#[test]
fn the_tree_is_at_its_paths_for_the_command_and_for_no_other_process() {
    let server = server();
    let before = fs::read_to_string("/proc/self/mounts").unwrap();
    assert_eq!(shell(server.folder.path(), LOOK).unwrap(), (0, SEEN.to_owned()));
    let (code, text) = shell(
        server.folder.path(),
        "mkdir /sys/fs/resctrl/waykeeper-g && echo L3:0=3 > /sys/fs/resctrl/waykeeper-g/schemata",
    )
    .unwrap();
    assert_eq!((code, text.as_str()), (0, ""));
    let schemata =
        fs::read_to_string(server.folder.path().join("sys/fs/resctrl/waykeeper-g/schemata")).unwrap();
    assert_eq!(schemata, "    MB:0=100;1=100\n    L3:0=003;1=7ff\n");
    let own = |text: &str| {
        text.lines().filter(|line| line.contains(server.folder.path().to_str().unwrap())).count()
    };
    assert_eq!(own(&fs::read_to_string("/proc/self/mounts").unwrap()), own(&before));
    assert!(!Path::new("/sys/fs/resctrl/waykeeper-g").exists());
}

#[test]
fn an_ordinary_user_enters_as_root_of_a_user_namespace() {
    let server = server();
    let words = ["--reuid=65534", "--clear-groups", "unshare", "--user", "--map-root-user", "true"];
    let made = std::process::Command::new("setpriv").args(words).status();
    assert!(made.is_ok_and(|status| status.success()), "not run: needs user namespaces and setpriv");
    let outcome = std::thread::scope(|scope| {
        // Ids are per thread, and the command is a child of this thread.
        let thread = scope.spawn(|| {
            let (uid, gid) = (Uid::from_raw(65534), Gid::from_raw(65534));
            rustix::thread::set_thread_groups(&[]).unwrap();
            rustix::thread::set_thread_res_gid(gid, gid, gid).unwrap();
            rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
            // After a change of ids a process cannot read its own /proc/self, unlike that of a user who logged in.
            rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::Dumpable).unwrap();
            shell(server.folder.path(), &format!("{LOOK}; id -u; touch /run/lock/x && echo locked"))
        });
        thread.join().unwrap()
    });
    let (code, text) = outcome.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((code, text), (0, format!("{SEEN}0\nlocked\n")));
    assert!(!Path::new("/run/lock/x").exists());
}

#[test]
fn exit_statuses_are_passed_on_and_errors_say_what_is_missing() {
    let server = server();
    let tree = server.folder.path();
    assert_eq!(shell(tree, "exit 7").unwrap().0, 7);
    assert_eq!(shell(tree, "kill -9 $$").unwrap().0, 137);
    let none: [&str; 0] = [];
    let error = run(tree, EnterOptions::default(), OsStr::new("no-such-command"), &none).unwrap_err();
    assert!(matches!(&error, EnterError::NotRun(name, _) if name == "no-such-command"), "{error}");
    let empty = tempfile::tempdir().unwrap();
    let error =
        run(empty.path(), EnterOptions::default(), OsStr::new("true"), &none).unwrap_err().to_string();
    let expected = format!(
        "{0}/sys is missing: {0} is not the tree of a running virtual server",
        empty.path().display()
    );
    assert_eq!(error, expected);
}

#[test]
fn signals_reach_the_command() {
    let server = server();
    let script = "trap 'echo term; exit 3' TERM; kill -TERM $PPID; i=0; while [ $i -lt 300 ]; do i=$((i+1)); sleep 0.1; done";
    // The parent of the command is this process, which forwards the signal and does not end.
    assert_eq!(shell(server.folder.path(), script).unwrap(), (3, "term\n".to_owned()));
}

const CALLS: EnterOptions = EnterOptions { mount_calls: true, own_cgroups: false };

#[test]
fn calls_about_mounts_show_resctrl_as_a_kernel_does() {
    let server = server();
    let tree = server.folder.path();
    // The type of statfs(2) is that of resctrl, for the mount point and below, and for nothing else.
    let look = "stat -f -c %t /sys/fs/resctrl /sys/fs/resctrl/schemata /sys; cd /sys/fs/resctrl; stat -f -c %t .;
                grep -c ' / /sys/fs/resctrl rw,relatime - resctrl resctrl rw$' /proc/self/mountinfo /proc/$$/mountinfo;
                cd /proc/self; grep -c '^resctrl /sys/fs/resctrl resctrl rw,relatime 0 0$' mounts;
                sh -c 'findmnt -n -o TARGET -t resctrl'; tail -n 1 /proc/1/mountinfo | grep -c resctrl";
    let text = "7655821\n7655821\n65735546\n7655821\n/proc/self/mountinfo:1\n/proc/PID/mountinfo:1\n1\n\
                /sys/fs/resctrl\n0\n";
    let (code, seen) = shell_with(tree, CALLS, look).unwrap();
    let pid = seen.split_once("/proc/self/mountinfo:1\n/proc/").unwrap().1.split_once('/').unwrap().0;
    assert_eq!((code, seen.replace(pid, "PID").as_str()), (1, text));
    // Without the option the machine's kernel answers.
    let (_, plain) =
        shell(tree, "stat -f -c %t /sys/fs/resctrl; grep -c resctrl /proc/self/mountinfo").unwrap();
    assert_eq!(plain, "65735546\n0\n");
}

#[test]
fn resctrl_is_unmounted_and_mounted_with_the_system_calls() {
    let server = server();
    let script = "cd /; mkdir /sys/fs/resctrl/g; umount /sys/fs/resctrl && ls /sys/fs/resctrl;
        grep -c resctrl /proc/self/mountinfo; stat -f -c %t /sys/fs/resctrl;
        umount /sys/fs/resctrl 2>/dev/null; echo $?; ls /sys/fs/resctrl/g 2>&1;
        mount -t resctrl resctrl -o mba_MBps /sys/fs/resctrl 2>/dev/null; echo $?;
        mount -t resctrl resctrl -o cdp /sys/fs/resctrl; echo $?;
        grep -o 'resctrl rw,cdp' /proc/self/mountinfo; mount -t resctrl resctrl /sys/fs/resctrl 2>/dev/null; echo $?;
        umount /sys/fs/resctrl; mount -t resctrl resctrl /sys/fs/resctrl; cat /sys/fs/resctrl/schemata";
    let text = "0\n65735546\n32\nls: cannot access '/sys/fs/resctrl/g': No such file or directory\n32\n0\n\
                resctrl rw,cdp\n32\n    MB:0=100;1=100\n    L3:0=7ff;1=7ff\n";
    assert_eq!(shell_with(server.folder.path(), CALLS, script).unwrap(), (0, text.to_owned()));
}

#[test]
fn processes_that_outlive_the_command_are_still_answered() {
    let server = server();
    let folder = tempfile::tempdir().unwrap();
    let (go, seen) = (folder.path().join("go"), folder.path().join("seen"));
    let script = format!(
        "(until [ -e {0} ]; do sleep 0.05; done; stat -f -c %t /sys/fs/resctrl >{1}.part; mv {1}.part {1}) &",
        go.display(),
        seen.display()
    );
    assert_eq!(shell_with(server.folder.path(), CALLS, &script).unwrap(), (0, String::new()));
    fs::write(&go, "").unwrap();
    waykeeper_testbed::wait_for("the answer", || seen.exists());
    assert_eq!(fs::read_to_string(&seen).unwrap(), "7655821\n");
}

#[test]
fn this_machines_control_groups_can_stay_at_their_path() {
    let server = server();
    let list = |text: String| text.lines().map(str::to_owned).collect::<std::collections::BTreeSet<_>>();
    let options = EnterOptions { own_cgroups: true, ..EnterOptions::default() };
    let (code, seen) = shell_with(server.folder.path(), options, "ls /sys/fs/cgroup; ls /sys").unwrap();
    let own = fs::read_dir("/sys/fs/cgroup").unwrap().map(|entry| entry.unwrap().file_name());
    let mut expected: std::collections::BTreeSet<String> =
        own.map(|name| name.into_string().unwrap()).collect();
    expected.insert("fs".to_owned());
    assert_eq!((code, list(seen)), (0, expected));
}
