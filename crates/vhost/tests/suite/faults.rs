//! Faults in a mounted tree: each kind on each operation, and each operation of a client in turn.
//!
//! It needs root and /dev/fuse; without them it fails.

use crate::transcript;

use rustix::io::Errno;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use transcript::intel;
use waykeeper_vhost::faults::{Calls, FaultRule, Faults, FileFault, Operation};
use waykeeper_vhost::host_tasks::HostTasks;
use waykeeper_vhost::mounted::Mounted;
use waykeeper_vhost::node::{Node, Tree};
use waykeeper_vhost::resctrl::VirtualResctrl;
use waykeeper_vhost::resctrl::description::Kernel;
use waykeeper_vhost::resctrl::hardware::Idle;

struct Server {
    // Unmounted before its directory is removed.
    _mounted: Mounted,
    folder: TempDir,
    faults: Faults,
}

impl Server {
    fn new() -> Self {
        let mut tree = Tree::new();
        let resctrl =
            VirtualResctrl::new(intel(Kernel(6, 12)), Box::new(Idle), Box::new(HostTasks::new("/proc")));
        tree.add("resctrl", Node::Resctrl(resctrl.shared()));
        tree.text("online", "0-3\n");
        tree.link("link", "online");
        let folder = tempfile::tempdir().unwrap();
        let faults = Faults::new();
        assert!(rustix::process::geteuid().is_root(), "not run: needs root and /dev/fuse");
        let mounted = Mounted::new(tree, folder.path(), faults.clone())
            .unwrap_or_else(|error| panic!("not run: needs root and /dev/fuse: {error}"));
        Server { _mounted: mounted, folder, faults }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    fn inject(&self, path: &str, operation: Operation, fault: FileFault) {
        self.faults.lift();
        self.faults.inject(FaultRule {
            path: path.into(),
            operation: Some(operation),
            calls: Calls::All,
            fault,
        });
    }
}

fn number<T>(outcome: io::Result<T>) -> Option<Errno> {
    outcome.err().map(|error| Errno::from_io_error(&error).expect("an error of the system"))
}

fn write(path: &Path, text: &str) -> io::Result<usize> {
    OpenOptions::new().write(true).open(path)?.write(text.as_bytes())
}

#[test]
fn every_operation_fails_as_its_rule_demands_and_changes_nothing() {
    let server = Server::new();
    let schemata = server.at("resctrl/g/schemata");
    fs::create_dir(server.at("resctrl/g")).unwrap();
    fs::create_dir(server.at("resctrl/mon_groups/m")).unwrap();
    type Act<'a> = Box<dyn Fn() -> Option<Errno> + 'a>;
    let mut acts: Vec<(&str, Operation, Act)> = vec![
        ("resctrl/g/schemata", Operation::Open, Box::new(|| number(File::open(&schemata)))),
        ("resctrl/g/schemata", Operation::Read, Box::new(|| number(fs::read(&schemata)))),
        ("resctrl/g/schemata", Operation::Write, Box::new(|| number(write(&schemata, "L3:0=1\n")))),
        ("resctrl/g", Operation::List, Box::new(|| number(fs::read_dir(server.at("resctrl/g"))))),
        (
            "resctrl/new",
            Operation::MakeDirectory,
            Box::new(|| number(fs::create_dir(server.at("resctrl/new")))),
        ),
        (
            "resctrl/g",
            Operation::RemoveDirectory,
            Box::new(|| number(fs::remove_dir(server.at("resctrl/g")))),
        ),
        (
            "resctrl/mon_groups/m",
            Operation::Rename,
            Box::new(|| {
                number(fs::rename(server.at("resctrl/mon_groups/m"), server.at("resctrl/mon_groups/n")))
            }),
        ),
        (
            "resctrl/g/schemata",
            Operation::Change,
            Box::new(|| number(std::os::unix::fs::chown(&schemata, Some(7), None))),
        ),
        ("link", Operation::ReadLink, Box::new(|| number(fs::read_link(server.at("link"))))),
        ("online", Operation::Read, Box::new(|| number(fs::read(server.at("online"))))),
    ];
    for (path, operation, act) in &acts {
        for errno in [Errno::IO, Errno::BUSY, Errno::NOSPC, Errno::NODEV, Errno::ACCESS] {
            server.inject(path, *operation, FileFault::Refuse(errno));
            assert_eq!(act(), Some(errno), "{path} {operation:?}");
        }
        server.inject("elsewhere", *operation, FileFault::Refuse(Errno::IO));
    }
    server.faults.lift();
    assert_eq!(fs::read_to_string(&schemata).unwrap(), "    MB:0=100;1=100\n    L3:0=7ff;1=7ff\n");
    assert!(!server.at("resctrl/new").exists() && server.at("resctrl/mon_groups/m").exists());
    // Removals come last, since removed directories allow no further operation.
    acts.sort_by_key(|(_, operation, _)| *operation == Operation::RemoveDirectory);
    for (path, operation, act) in acts {
        assert_eq!(act(), None, "{path} {operation:?} works again");
    }
}

#[test]
fn reads_are_short_or_garbage_and_writes_are_short() {
    let server = Server::new();
    let schemata = server.at("resctrl/schemata");
    server.inject("resctrl/*", Operation::Read, FileFault::ShortRead(7));
    let mut file = File::open(&schemata).unwrap();
    let mut part = [0; 64];
    assert_eq!(file.read(&mut part).unwrap(), 7);
    assert_eq!(
        fs::read_to_string(&schemata).unwrap(),
        "    MB:0=100;1=100\n    L3:0=7ff;1=7ff\n",
        "piece by piece"
    );
    server.inject("resctrl/*", Operation::Read, FileFault::Garbage(vec![0xff; 5]));
    assert_eq!(fs::read(&schemata).unwrap(), [0xff; 5]);
    server.inject("resctrl/*", Operation::Read, FileFault::Garbage(Vec::new()));
    assert_eq!(fs::read(&schemata).unwrap(), b"");
    server.inject("resctrl/*", Operation::Write, FileFault::ShortWrite(3));
    assert_eq!(write(&schemata, "L3:0=1\n").unwrap(), 3);
    server.faults.lift();
    assert_eq!(fs::read_to_string(&schemata).unwrap(), "    MB:0=100;1=100\n    L3:0=7ff;1=7ff\n");
}

/// A client that creates a group, writes its schemata and reads them back.
fn client(server: &Server) -> io::Result<()> {
    let group = server.at("resctrl/c");
    fs::create_dir(&group)?;
    write(&group.join("schemata"), "L3:0=f\n")?;
    if !fs::read_to_string(group.join("schemata"))?.contains("L3:0=00f") {
        return Err(io::Error::from_raw_os_error(libc::EPROTO));
    }
    fs::remove_dir(&group)
}

#[test]
fn a_test_can_enumerate_what_a_client_does_and_fail_each_in_turn() {
    let server = Server::new();
    client(&server).unwrap();
    let seen = server.faults.seen();
    let of = |path: &str, operation| seen.get(&(path.to_owned(), operation)).copied();
    assert_eq!(of("resctrl/c", Operation::MakeDirectory), Some(1));
    assert_eq!(of("resctrl/c/schemata", Operation::Open), Some(2));
    assert_eq!(of("resctrl/c/schemata", Operation::Write), Some(1));
    assert_eq!(of("resctrl/c", Operation::RemoveDirectory), Some(1));
    // One read for the content and one for the end of file.
    assert!(of("resctrl/c/schemata", Operation::Read).unwrap() >= 2);
    let mut failed = 0;
    for ((path, operation), times) in seen {
        for nth in 1..=times {
            server.faults.lift();
            server.faults.forget();
            let fault = FileFault::Refuse(Errno::IO);
            let rule =
                FaultRule { path: path.clone(), operation: Some(operation), calls: Calls::Nth(nth), fault };
            server.faults.inject(rule);
            assert_eq!(number(client(&server)), Some(Errno::IO), "{path} {operation:?} {nth}");
            assert_eq!(server.faults.struck(), 1);
            server.faults.lift();
            let _ = fs::remove_dir(server.at("resctrl/c"));
            failed += 1;
        }
    }
    assert!(failed >= 7, "{failed}");
}
