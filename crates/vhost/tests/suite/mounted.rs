//! The mounted tree against recordings of real kernels, with the system calls of tools.
//!
//! It needs root and /dev/fuse; without them it fails.

use crate::transcript;

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::thread::{Gid, Uid};
use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use transcript::{Answer, Explained, Subject, intel, name, recorded, replay};
use waykeeper_vhost::faults::Faults;
use waykeeper_vhost::host_tasks::HostTasks;
use waykeeper_vhost::mounted::{MountError, Mounted};
use waykeeper_vhost::node::{Caller, Node, Tree};
use waykeeper_vhost::resctrl::VirtualResctrl;
use waykeeper_vhost::resctrl::description::{Kernel, ResctrlDescription};
use waykeeper_vhost::resctrl::hardware::Idle;

/// Differences from the recordings of ops.txt: none.
const EXPLAINED: &[Explained] = &[];

/// Differences from the recorded edge cases.
const EXPLAINED_EDGES: &[(&str, &str)] = &[(
    "pwrite(schemata,0,0) = -1 EINVAL",
    "Linux never asks a FUSE server for a write of 0 bytes (fs/fuse/file.c: generic_write_checks); it answers 0 itself",
)];

/// A virtual server with only resctrl.
struct Server {
    folder: TempDir,
    mounted: Option<Mounted>,
}

impl Server {
    fn new(host: ResctrlDescription) -> Self {
        let mut tree = Tree::new();
        let resctrl = VirtualResctrl::new(host, Box::new(Idle), Box::new(HostTasks::new("/proc")));
        tree.add("sys/fs/resctrl", Node::Resctrl(resctrl.shared()));
        tree.text("sys/devices/system/cpu/online", "0-3\n");
        tree.link("sys/bus/cpu/devices/cpu0", "../../../devices/system/cpu");
        tree.file("dev/cpu/0/msr", Register);
        Server::of(tree)
    }

    fn of(tree: Tree) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        assert!(rustix::process::geteuid().is_root(), "not run: needs root and /dev/fuse");
        let mounted = Mounted::new(tree, folder.path(), Faults::new())
            .unwrap_or_else(|error| panic!("not run: needs root and /dev/fuse: {error}"));
        Server { folder, mounted: Some(mounted) }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    fn resctrl(&self, path: &str) -> PathBuf {
        self.at("sys/fs/resctrl").join(path)
    }
}

/// Registers by offset, unlike the bytes of a plain file.
struct Register;

impl waykeeper_vhost::node::File for Register {
    fn read(&self, offset: u64, len: usize, _: Caller) -> Result<Vec<u8>, Errno> {
        if !len.is_multiple_of(8) { Err(Errno::INVAL) } else { Ok(offset.to_le_bytes().repeat(len / 8)) }
    }

    fn write(&self, offset: u64, data: &[u8], caller: Caller) -> Result<usize, Errno> {
        match (offset, caller.uid) {
            (0x10, 0) => Ok(data.len()),
            _ => Err(Errno::IO),
        }
    }

    fn open(&self, access: waykeeper_vhost::node::OpenAccess, _: Caller) -> Result<(), Errno> {
        if access.read { Ok(()) } else { Err(Errno::NXIO) }
    }

    fn mode(&self) -> u32 {
        0o600
    }
}

fn errno(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or_else(|| panic!("{error} has no number"))
}

fn at<T>(step: &'static str, outcome: std::io::Result<T>) -> Answer<T> {
    outcome.map_err(|error| (step, errno(&error)))
}

impl Subject for Server {
    fn own_task(&self) -> u32 {
        // Tests run in threads: this is the id of the task that writes.
        rustix::thread::gettid().as_raw_nonzero().get() as u32
    }

    fn stat(&mut self, path: &str) -> Answer<(u32, u64, u64)> {
        let it = at("", fs::symlink_metadata(self.resctrl(path)))?;
        Ok((it.mode(), it.size(), it.nlink()))
    }

    fn list(&mut self, path: &str) -> Answer<Vec<String>> {
        let entries = at("", fs::read_dir(self.resctrl(path)))?;
        Ok(entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect())
    }

    fn read(&mut self, path: &str) -> Answer<String> {
        let mut file = at("open", File::open(self.resctrl(path)))?;
        let mut content = String::new();
        at("read", file.read_to_string(&mut content))?;
        Ok(content)
    }

    fn write(&mut self, path: &str, data: &str) -> Answer<usize> {
        let file = at("open", OpenOptions::new().write(true).truncate(true).open(self.resctrl(path)))?;
        rustix::io::write(&file, data.as_bytes()).map_err(|errno| ("write", errno))
    }

    fn open_for_writing(&mut self, path: &str) -> Answer<()> {
        at("", OpenOptions::new().write(true).open(self.resctrl(path)).map(|_| ()))
    }

    fn mkdir(&mut self, path: &str) -> Answer<()> {
        at("", fs::create_dir(self.resctrl(path)))
    }

    fn rmdir(&mut self, path: &str) -> Answer<()> {
        at("", fs::remove_dir(self.resctrl(path)))
    }

    fn unlink(&mut self, path: &str) -> Answer<()> {
        at("", fs::remove_file(self.resctrl(path)))
    }

    fn create(&mut self, path: &str) -> Answer<()> {
        let mut options = OpenOptions::new();
        at("", options.write(true).create(true).mode(0o644).open(self.resctrl(path)).map(|_| ()))
    }

    fn rename(&mut self, from: &str, to: &str) -> Answer<()> {
        at("", fs::rename(self.resctrl(from), self.resctrl(to)))
    }

    fn chmod(&mut self, path: &str, mode: u32) -> Answer<()> {
        at("", fs::set_permissions(self.resctrl(path), fs::Permissions::from_mode(mode)))
    }
}

#[test]
fn all_recorded_operations_get_the_recorded_answers() {
    for recording in recorded() {
        replay(&recording, &mut Server::new(recording.host.clone()), EXPLAINED);
    }
}

/// `= N` or `= -1 NAME`, as the recorder wrote it.
fn outcome(outcome: rustix::io::Result<usize>) -> String {
    outcome.map_or_else(|errno| format!("= -1 {}", name(errno)), |count| format!("= {count}"))
}

fn ok<T>(outcome: Result<T, Errno>) -> String {
    outcome.map_or_else(name, |_| "ok".to_owned())
}

fn io<T>(outcome: std::io::Result<T>) -> Result<T, Errno> {
    outcome.map_err(|error| errno(&error))
}

/// Repeats the recorded edge cases of resctrl.
fn edges(server: &Server) -> Vec<String> {
    let mut lines = Vec::new();
    io(fs::create_dir(server.resctrl("e"))).unwrap();
    let path = server.resctrl("e/schemata");
    let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    for (len, offset, reported) in [(4, 0, "0"), (4096, 4, "0x4"), (4096, 100_000, "0x186a0")] {
        let read = rustix::io::pread(&file, &mut vec![0; len], offset);
        lines.push(format!("pread(schemata,{len},{reported}) {}", outcome(read)));
    }
    let line = b"L3:0=7ff\n";
    for (data, offset, reported) in [
        (&[b'x'; 4096][..], 0, "0"),
        (&[b'x'; 4097], 0, "0"),
        (line, 0, "0"),
        (line, 500, "0x1f4"),
        (b"", 0, "0"),
    ] {
        let written = rustix::io::pwrite(&file, data, offset);
        lines.push(format!("pwrite(schemata,{},{reported}) {}", data.len(), outcome(written)));
    }
    lines.push(format!("lseek end {}", rustix::fs::seek(&file, rustix::fs::SeekFrom::End(0)).unwrap()));
    lines.push(format!("ftruncate {}", ok(rustix::fs::ftruncate(&file, 0))));
    lines.push(format!("mmap {}", name(shared_mapping(&file))));
    lines.push(format!("flock {}", ok(rustix::fs::flock(&file, FlockOperation::LockExclusive))));
    let mut polled = [rustix::event::PollFd::new(&file, rustix::event::PollFlags::IN)];
    let ready = rustix::event::poll(&mut polled, Some(&rustix::event::Timespec::default())).unwrap();
    lines.push(format!("poll {ready} revents={:#x}", polled[0].revents().bits()));
    let appending = OpenOptions::new().append(true).open(&path).unwrap();
    lines.push(format!("O_APPEND write {}", ok(rustix::io::write(&appending, line))));
    let excluding = rustix::fs::open(&path, OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY, Mode::RUSR);
    lines.push(format!("O_CREAT|O_EXCL {}", ok(excluding)));
    let folder = File::open(server.resctrl(".")).unwrap();
    lines.push(format!("flock dir {}", ok(rustix::fs::flock(&folder, FlockOperation::LockExclusive))));
    lines.push(format!("rmdir with open fd {}", ok(io(fs::remove_dir(server.resctrl("e"))))));
    lines.push(format!(
        "pread(schemata(removed),64,0) {}",
        outcome(rustix::io::pread(&file, &mut [0; 64], 0))
    ));
    lines.push(format!(
        "pwrite(schemata(removed),7,0) {}",
        outcome(rustix::io::pwrite(&file, b"L3:0=f\n", 0))
    ));
    lines.push(format!("mkdir 'a b' {}", ok(io(fs::create_dir(server.resctrl("a b"))))));
    lines.push(format!("mkdir with newline {}", ok(io(fs::create_dir(server.resctrl("a\nb"))))));
    lines.push(format!("mkdir 255 chars {}", ok(io(fs::create_dir(server.resctrl(&"x".repeat(255)))))));
    lines.push(format!("symlink {}", ok(io(std::os::unix::fs::symlink("x", server.resctrl("link"))))));
    lines.push(format!("link {}", ok(io(fs::hard_link(server.resctrl("schemata"), server.resctrl("link"))))));
    lines
        .push(format!("chown {}", ok(io(std::os::unix::fs::chown(server.resctrl("a b"), Some(1), Some(1))))));
    let folder = fs::metadata(server.resctrl(".")).unwrap();
    lines.push(format!("statfs? dir size/blksize: {} {}", folder.size(), folder.blksize()));
    lines
}

/// Why a shared mapping of a file is refused.
fn shared_mapping(file: &File) -> Errno {
    use std::os::fd::AsRawFd;
    // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours; it is expected to fail
    // and would stay unused.
    let mapping = unsafe {
        libc::mmap(std::ptr::null_mut(), 4096, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), 0)
    };
    assert_eq!(mapping, libc::MAP_FAILED);
    errno(&std::io::Error::last_os_error())
}

/// Runs `work` as an ordinary user on a separate thread, since ids are per thread.
fn as_unprivileged_user<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let (uid, gid) = (Uid::from_raw(65534), Gid::from_raw(65534));
            rustix::thread::set_thread_groups(&[]).unwrap();
            rustix::thread::set_thread_res_gid(gid, gid, gid).unwrap();
            rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
            work()
        });
        thread.join().unwrap()
    })
}

#[test]
fn edge_cases_are_those_of_the_recording() {
    let server = Server::new(intel(Kernel(6, 1)));
    let mut answers = edges(&server);
    answers.extend(as_unprivileged_user(|| {
        let open = |write: bool, path: &str| {
            ok(io(OpenOptions::new().read(!write).write(write).open(server.at(path))))
        };
        [
            format!("open msr {}", open(false, "dev/cpu/0/msr")),
            format!("open schemata RDONLY {}", open(false, "sys/fs/resctrl/schemata")),
            format!("open schemata WRONLY {}", open(true, "sys/fs/resctrl/schemata")),
            format!("mkdir {}", ok(io(fs::create_dir(server.resctrl("no"))))),
        ]
    }));
    let text = include_str!("../transcripts/edge-linux-6.1.txt");
    let section = |title: &str| -> Vec<&str> {
        let rest = text.split_once(&format!("# {title}")).unwrap().1;
        rest.lines().skip(1).take_while(|line| !line.starts_with('#')).map(str::trim).collect()
    };
    let mut expected = section("resctrl schemata");
    expected.extend(section("as uid 65534").into_iter().filter(|line| !line.contains("cfg")));
    assert_eq!(answers.len(), expected.len());
    let mut differing = Vec::new();
    for (answer, expected) in answers.iter().zip(&expected) {
        if answer != expected {
            let explained = EXPLAINED_EDGES.iter().any(|(line, _)| line == expected);
            assert!(explained, "recorded: {expected}\nanswered: {answer}");
            differing.push(*expected);
        }
    }
    assert_eq!(
        differing,
        EXPLAINED_EDGES.iter().map(|(line, _)| *line).collect::<Vec<_>>(),
        "no longer differs"
    );
}

#[test]
fn fixed_files_answer_call_by_call() {
    let server = Server::new(intel(Kernel(6, 12)));
    let online = server.at("sys/devices/system/cpu/online");
    assert_eq!(fs::read_to_string(&online).unwrap(), "0-3\n");
    assert_eq!(fs::metadata(&online).unwrap().permissions().mode(), 0o100444);
    assert_eq!(
        errno(&OpenOptions::new().write(true).open(&online).unwrap_err()),
        Errno::ACCESS,
        "not for root either"
    );
    assert_eq!(fs::read_to_string(server.at("sys/bus/cpu/devices/cpu0/online")).unwrap(), "0-3\n");
    assert_eq!(
        fs::read_link(server.at("sys/bus/cpu/devices/cpu0")).unwrap(),
        Path::new("../../../devices/system/cpu")
    );
    let msr = OpenOptions::new().read(true).write(true).open(server.at("dev/cpu/0/msr")).unwrap();
    let mut value = [0; 16];
    assert_eq!(msr.read_at(&mut value, 0x10).unwrap(), 16);
    assert_eq!(value, [0x10, 0, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(errno(&msr.read_at(&mut value[..4], 0x10).unwrap_err()), Errno::INVAL);
    // Overlapping offsets are different registers: no page cache is involved.
    assert_eq!(msr.read_at(&mut value[..8], 0x11).unwrap(), 8);
    assert_eq!(value[0], 0x11);
    assert_eq!(msr.write_at(&[1; 8], 0x10).unwrap(), 8);
    assert_eq!(errno(&msr.write_at(&[1; 8], 0x11).unwrap_err()), Errno::IO);
    assert_eq!(msr.metadata().unwrap().len(), 0);
    let write_only = OpenOptions::new().write(true).open(server.at("dev/cpu/0/msr"));
    assert_eq!(errno(&write_only.unwrap_err()), Errno::NXIO);
    for refused in [fs::create_dir(server.at("sys/x")), fs::remove_dir(server.at("sys/bus"))] {
        assert_eq!(errno(&refused.unwrap_err()), Errno::PERM);
    }
    assert_eq!(errno(&File::create(server.at("sys/x")).unwrap_err()), Errno::ACCESS);
    // Inode numbers stay the same while the tree is mounted.
    let number = |path: &str| fs::metadata(server.resctrl(path)).unwrap().ino();
    let before = number("schemata");
    fs::create_dir(server.resctrl("g1")).unwrap();
    assert_eq!(number("schemata"), before);
    assert_ne!(number("g1/schemata"), before);
    let listed =
        fs::read_dir(server.at("")).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert_eq!(listed.collect::<Vec<_>>(), ["dev", "sys"]);
}

#[test]
fn a_real_process_and_its_children_belong_to_the_group_it_was_put_into() {
    let mut server = Server::new(intel(Kernel(6, 12)));
    fs::create_dir(server.resctrl("g1")).unwrap();
    let tasks = server.resctrl("g1/tasks");
    let script = format!("echo $$ > {0}; cat {0}; true", tasks.display());
    let child = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
    let text = String::from_utf8(child.stdout).unwrap();
    // The shell moved itself, and the cat that it started then reads: exactly these two are in the group.
    assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stderr));
    assert_eq!(text.lines().count(), 2, "{text:?}");
    let own = std::process::id().to_string();
    assert!(!text.lines().any(|line| line == own));
    let everyone = server.read("tasks").unwrap();
    assert!(everyone.lines().any(|line| line == own));
    assert_eq!(server.read("g1/tasks").unwrap(), "", "all of them have ended");
}

#[test]
fn a_mount_ends_with_its_server_and_bad_mount_points_are_named() {
    let mut server = Server::new(intel(Kernel(6, 1)));
    let folder = server.folder.path().to_owned();
    assert!(
        matches!(Mounted::new(Tree::new(), &folder, Faults::new()), Err(MountError::NotEmpty(path)) if path == folder)
    );
    let missing = folder.join("no");
    let error = Mounted::new(Tree::new(), &missing, Faults::new()).err().expect("there is no such directory");
    assert!(error.to_string().contains(missing.to_str().unwrap()), "{error}");
    // Also while a file is open.
    let held = File::open(server.resctrl("schemata")).unwrap();
    server.mounted = None;
    assert!(fs::read_dir(&folder).unwrap().next().is_none());
    drop(held);
}

#[test]
fn a_server_ends_when_it_is_stopped_or_unmounted() {
    // Registered first, so that no signal of this test ends the process.
    let reported = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGTERM, reported).unwrap();
    let mut server = Server::new(intel(Kernel(6, 12)));
    let mounted = server.mounted.take().unwrap();
    let serving = std::thread::spawn(move || mounted.serve());
    rustix::mount::unmount(server.folder.path(), rustix::mount::UnmountFlags::empty()).unwrap();
    serving.join().unwrap().unwrap();

    let mut server = Server::new(intel(Kernel(6, 12)));
    let mounted = server.mounted.take().unwrap();
    let serving = std::thread::spawn(move || mounted.serve());
    while !serving.is_finished() {
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::TERM).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    serving.join().unwrap().unwrap();
    assert!(fs::read_dir(server.folder.path()).unwrap().next().is_none(), "unmounted");
}
