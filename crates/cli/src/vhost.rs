//! `waykeeper vhost`: the virtual server as a file tree in wall-clock time, and commands run inside it. Must not know
//! how a file is served (`vhost`).

use crate::duration;
use crate::exit::{self, Failure};
use crate::number::within;
use crate::out;
use crate::run::{assignment, change};
use clap::{Args, Subcommand};
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use waykeeper_lab::registry;
use waykeeper_machine::RunOptions;
use waykeeper_silicon::Sampling;
use waykeeper_vhost::enter::{self, EnterError, EnterOptions};
use waykeeper_vhost::machine_clock::{ClockSpeed, MachineClock};
use waykeeper_vhost::mounted::MountError;
use waykeeper_vhost::resctrl::description::Kernel;
use waykeeper_vhost::trees::{MountedTree, mounted_trees};
use waykeeper_vhost::virtual_host::{VirtualHost, VirtualHostError, VirtualHostOptions};
use waykeeper_view::Turn;

/// Examples of the whole subcommand.
pub const EXAMPLES: &str = "\
Examples:
  mkdir /tmp/host                                  the mount point
  waykeeper vhost /tmp/host                        the flagship's server, until Ctrl-C
  waykeeper vhost /tmp/host --scenario a4-fig5     another scenario's server
  waykeeper vhost /tmp/host --set chip=gold-5320   the same programs on an Ice Lake
  waykeeper vhost enter -- pqos -I -s              in another terminal: run an unmodified tool
  waykeeper vhost enter /tmp/host -- bash          or a shell
  waykeeper vhost /tmp/host --wait                 return when another process has mounted it
  waykeeper vhost /tmp/b --name b --ready-fd 3     tell a script through file descriptor 3
  lspci -A linux-sysfs -O sysfs.path=/tmp/host/sys/bus/pci    a tool that takes a path

Each program of the scenario appears as processes (DIR/proc) and a control group
(DIR/sys/fs/cgroup) while it runs; resctrl groups steer it by CPU or by task. docs/vhost.md lists
what is modelled and what is not. vhost notifies systemd when the host is
mounted (Type=notify).";

/// Lag above which a note is printed, ns of the server's clock.
const LATE_NS: u64 = 1_000_000_000;

/// Command-line arguments of `vhost`.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct VhostArgs {
    #[command(subcommand)]
    command: Option<VhostCommand>,
    /// Empty directory to mount the tree on
    #[arg(required = true)]
    dir: Option<PathBuf>,
    /// Scenario: a built-in name (see `waykeeper scenario list`) or the path of a file
    #[arg(long, value_name = "NAME", default_value = registry::FLAGSHIP)]
    scenario: OsString,
    /// Seconds of the server's clock per second of wall-clock time, from 0.001 to 1000
    #[arg(long, value_name = "X", default_value_t = 1.0)]
    speed: f64,
    /// Seed of the virtual server's random numbers
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = within(0, u64::MAX))]
    seed: u64,
    /// Share of the LLC's sets to simulate: exact (all), 1/2, 1/4, ... 1/256
    #[arg(long, value_name = "1/N|exact", default_value_t = Sampling::DEFAULT)]
    sets: Sampling,
    /// Linux release whose resctrl is modelled, such as 6.1 or 6.12
    #[arg(long, value_name = "MAJOR.MINOR", default_value = "6.12", value_parser = release)]
    kernel: Kernel,
    /// Mount resctrl with separate masks for code and data (`-o cdp`)
    #[arg(long)]
    cdp: bool,
    /// Boot without memory bandwidth allocation (`rdt=!mba`), so that all L3 classes of service are available
    #[arg(long)]
    no_mba: bool,
    /// Change a key of the scenario, such as workload.fio.block=64k; may be given several times
    #[arg(long, value_name = "KEY=VALUE", value_parser = assignment)]
    set: Vec<(String, toml::Value)>,
    /// Name of this host for `vhost enter` [default: the scenario's]
    #[arg(long, value_name = "NAME", value_parser = name)]
    name: Option<String>,
    /// Write the line `ready` to this file descriptor when the host is mounted
    #[arg(long, value_name = "FD", value_parser = clap::value_parser!(u16).range(1..))]
    ready_fd: Option<u16>,
    /// Mount nothing: wait until another process has mounted a host on DIR, at most TIME [default: 60s]
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true, default_missing_value = "60s",
        value_parser = duration::above_zero,
        conflicts_with_all = ["scenario", "speed", "seed", "sets", "kernel", "cdp", "no_mba", "set", "name", "ready_fd"])]
    wait: Option<Duration>,
}

const ENTER_EXAMPLES: &str = "\
Examples:
  One tool, in the only mounted tree
    waykeeper vhost enter -- lscpu
  The same where several trees are mounted
    waykeeper vhost enter a4-fig5 -- lscpu
  Make a resctrl group in the tree mounted on /tmp/host
    waykeeper vhost enter /tmp/host -- bash -c 'mkdir /sys/fs/resctrl/a; ls /sys/fs/resctrl/a'
  Start a container with a class of cache (linux.intelRdt in its config.json)
    waykeeper vhost enter --mount-calls --own-cgroups -- runc run NAME

The exit code is the command's own, or 128 plus the signal's number if a signal ended the command.";

/// What else can be done with a virtual host.
#[derive(Subcommand, Debug)]
enum VhostCommand {
    /// Run a command that sees the mounted tree's files at /sys, /proc and /dev/cpu
    #[command(after_help = ENTER_EXAMPLES)]
    Enter {
        /// Directory where the tree is mounted, or its name [default: the only mounted tree]
        host: Option<PathBuf>,
        /// Answer calls about mounts too: mountinfo, statfs, mount and umount know resctrl as a kernel does. Opening a
        /// file takes longer; processes that outlive the command need the virtual host
        #[arg(long)]
        mount_calls: bool,
        /// Keep this machine's own control groups at /sys/fs/cgroup instead of the virtual server's
        #[arg(long)]
        own_cgroups: bool,
        /// Command to run and its arguments
        #[arg(last = true, required = true, value_name = "COMMAND")]
        command: Vec<OsString>,
    },
}

/// Parses a kernel release: `6.12`.
fn release(text: &str) -> Result<Kernel, String> {
    let number = |part: &str| {
        part.parse().map_err(|_| format!("`{text}` is not a Linux release; write for example 6.1 or 6.12"))
    };
    let (major, minor) = text.split_once('.').unwrap_or((text, "0"));
    Ok(Kernel(number(major)?, number(minor)?))
}

/// Runs the subcommand.
pub fn vhost(mut args: VhostArgs) -> Result<(), Failure> {
    if let Some(VhostCommand::Enter { host, mount_calls, own_cgroups, command }) = args.command.take() {
        return enter(host.as_deref(), EnterOptions { mount_calls, own_cgroups }, &command);
    }
    let dir = args
        .dir
        .take()
        .ok_or_else(|| Failure::bad_input("no directory; give the empty directory to mount the tree on"))?;
    match args.wait {
        Some(longest) => wait(&dir, longest),
        None => mount(&dir, args),
    }
}

/// The speed of a server's clock.
pub fn speed(speed: f64) -> Result<ClockSpeed, Failure> {
    let (least, most) = (Turn::SPEED_LEAST, Turn::SPEED_MOST);
    if !(least..=most).contains(&speed) {
        let why = format!("`--speed` is {speed}; it must be from {least} to {most}");
        return Err(Failure::bad_input(why));
    }
    Ok(ClockSpeed::Wall(speed))
}

/// A name that needs no quotes in a shell.
fn name(text: &str) -> Result<String, String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if (1..=64).contains(&text.len()) && text.chars().all(is_plain) {
        return Ok(text.to_owned());
    }
    Err(format!("`{}` is not a name; write 1 to 64 letters, digits, `-`, `_` and `.`", text.escape_debug()))
}

fn mount(dir: &Path, args: VhostArgs) -> Result<(), Failure> {
    let speed = speed(args.speed)?;
    let ready = args.ready_fd.map(ready_file).transpose()?;
    let mut source = registry::open(&args.scenario)?;
    for (key, value) in &args.set {
        change(&mut source, key, value)?;
    }
    let scenario = Arc::new(source.read()?);
    let (name, chip, factor) = (scenario.name.clone(), scenario.chip.name.clone(), scenario.time_factor);
    let options = VirtualHostOptions {
        speed,
        run: RunOptions { seed: args.seed, sample_seed: args.seed, sampling: args.sets },
        kernel: args.kernel,
        cdp: args.cdp,
        bandwidth: !args.no_mba,
        name: args.name,
        ..VirtualHostOptions::default()
    };
    let host = VirtualHost::mount(dir, scenario, options)?;
    let path = host.path().display().to_string();
    out::text(&format!(
        "{name} on {chip} is mounted on {path}; one second of its clock carries {} ms of traffic.\n\
         In another terminal: waykeeper vhost enter {path} -- COMMAND\n\
         Ctrl-C unmounts it.\n",
        1000.0 / factor
    ))?;
    waykeeper_service::notify_ready(&format!("{name} is mounted on {path}"));
    if let Some(mut file) = ready {
        // The reader may have ended; the host serves others.
        let _ = file.write_all(b"ready\n");
    }
    let forks = std::fs::read_to_string(host.path().join("waykeeper/forks")).unwrap_or_default();
    if let Some(why) = forks.trim().strip_prefix("listed ") {
        exit::eprint_line(&format!(
            "note: forks of this machine's processes are not recorded ({why}): a process whose parent has ended before \
             `tasks` is read or written is in the default group; root or CAP_PERFMON helps"
        ));
    }
    let clock = host.clock().clone();
    std::thread::spawn(move || watch(&clock));
    Ok(host.serve()?)
}

/// Prints a note when the model falls behind, and an error when it stopped.
pub fn watch(clock: &MachineClock) {
    let mut next_lag = LATE_NS;
    loop {
        std::thread::sleep(Duration::from_secs(1));
        if let Some(why) = clock.failure() {
            exit::eprint_line(&format!("error: the machine stopped: {why}"));
            return;
        }
        let lag = clock.lag_ns();
        if lag >= next_lag {
            exit::eprint_line(&format!(
                "note: the model is {:.1} s behind its clock; a lower --speed or fewer --sets help",
                lag as f64 * 1e-9
            ));
            next_lag = lag * 2;
        }
    }
}

/// The file of a descriptor that the caller opened for us.
fn ready_file(descriptor: u16) -> Result<File, Failure> {
    let opened = OpenOptions::new().write(true).open(format!("/proc/self/fd/{descriptor}"));
    opened.map_err(|why| {
        Failure::bad_input(format!(
            "--ready-fd {descriptor} cannot be written: {why}; give a descriptor that is open for writing, as in 3>FILE"
        ))
    })
}

/// How often the list of mounts is read while waiting.
const LOOK: Duration = Duration::from_millis(50);
/// After this time a note says what is waited for.
const NOTE_AFTER: Duration = Duration::from_secs(2);

/// Waits until a host is mounted on a directory.
fn wait(dir: &Path, longest: Duration) -> Result<(), Failure> {
    let start = Instant::now();
    let mut has_note = false;
    loop {
        let trees = trees()?;
        let own = dir.canonicalize().ok().and_then(|path| trees.iter().find(|tree| tree.path == path));
        if own.is_some_and(|tree| tree.name().is_some()) {
            return Ok(());
        }
        if start.elapsed() >= longest {
            return Err(Failure::new(
                exit::FAILED,
                format!(
                    "no virtual host was mounted on {} within {}",
                    dir.display(),
                    humantime::format_duration(longest)
                ),
            ));
        }
        if !has_note && start.elapsed() >= NOTE_AFTER {
            has_note = true;
            exit::eprint_line(&format!("waiting for a virtual host on {}", dir.display()));
        }
        std::thread::sleep(LOOK);
    }
}

fn enter(host: Option<&Path>, options: EnterOptions, command: &[OsString]) -> Result<(), Failure> {
    let dir = match host {
        None => only_tree()?,
        Some(host) => named_tree(host)?,
    };
    let (program, arguments) =
        command.split_first().ok_or_else(|| Failure::bad_input("no command; give one after `--`"))?;
    match enter::exit_code(enter::run(&dir, options, program, arguments)?) {
        0 => Ok(()),
        code => Err(Failure::silent(code)),
    }
}

fn trees() -> Result<Vec<MountedTree>, Failure> {
    mounted_trees().map_err(|why| Failure::io("/proc/self/mounts", &why))
}

/// Trees that are served, each as `name (directory)`.
fn listed(trees: &[MountedTree]) -> String {
    let named = trees.iter().filter_map(|tree| Some(format!("{} ({})", tree.name()?, tree.path.display())));
    named.collect::<Vec<_>>().join(", ")
}

/// The mount point of the only tree. A tree whose program has ended is none.
fn only_tree() -> Result<PathBuf, Failure> {
    let mut trees = trees()?;
    trees.retain(|tree| tree.name().is_some());
    match trees.as_slice() {
        [tree] => Ok(tree.path.clone()),
        [] => Err(Failure::bad_input("no virtual host is mounted; `waykeeper vhost DIR` mounts one")),
        several => Err(Failure::bad_input(format!(
            "several virtual hosts are mounted; give the name or the directory of one: {}",
            listed(several)
        ))),
    }
}

/// The mount point of the tree of this name, or this directory.
fn named_tree(host: &Path) -> Result<PathBuf, Failure> {
    let trees = trees()?;
    let path = host.canonicalize().ok();
    if path.as_ref().is_some_and(|path| trees.iter().any(|tree| tree.path == *path))
        || host.components().count() != 1
    {
        return Ok(host.to_owned());
    }
    let own: Vec<&MountedTree> =
        trees.iter().filter(|tree| tree.name().as_deref().map(Path::new) == Some(host)).collect();
    match own.as_slice() {
        [tree] => Ok(tree.path.clone()),
        // A directory whose files are a tree's, as inside `enter`.
        [] if path.is_some() => Ok(host.to_owned()),
        [] => {
            let known = listed(&trees);
            let known =
                if known.is_empty() { "none is mounted".to_owned() } else { format!("mounted are {known}") };
            Err(Failure::bad_input(format!("no virtual host is named `{}`; {known}", host.display())))
        }
        several => {
            let places: Vec<String> = several.iter().map(|tree| tree.path.display().to_string()).collect();
            Err(Failure::bad_input(format!(
                "several virtual hosts are named `{}`; give the directory of one: {}",
                host.display(),
                places.join(", ")
            )))
        }
    }
}

impl From<VirtualHostError> for Failure {
    fn from(error: VirtualHostError) -> Failure {
        let code = match &error {
            VirtualHostError::Scenario(_) | VirtualHostError::Layout(_) => exit::BAD_INPUT,
            VirtualHostError::Mount(MountError::NoFuse) => exit::UNSUPPORTED,
            VirtualHostError::Mount(MountError::NotEmpty(_) | MountError::Dead(_)) => exit::BAD_INPUT,
            VirtualHostError::Mount(MountError::Unusable(_, why))
                if matches!(why.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
            {
                exit::BAD_INPUT
            }
            VirtualHostError::Mount(MountError::Unusable(_, why) | MountError::Refused(_, why)) => {
                return Failure::new(exit::io_code(why), &error);
            }
            VirtualHostError::Mount(_) => exit::FAILED,
        };
        Failure::new(code, error)
    }
}

impl From<EnterError> for Failure {
    fn from(error: EnterError) -> Failure {
        let code = match &error {
            EnterError::NoTree(..) => exit::BAD_INPUT,
            EnterError::NoNamespace(_) => exit::NOT_PERMITTED,
            EnterError::NotMounted(_, why) | EnterError::NoCalls(_, why) => exit::io_code(why),
            EnterError::NotRun(..) | EnterError::Lost(..) => exit::FAILED,
        };
        Failure::new(code, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_has_two_numbers() {
        assert_eq!(release("6.12"), Ok(Kernel(6, 12)));
        assert_eq!(release("6"), Ok(Kernel(6, 0)));
        assert!(release("six").unwrap_err().contains("`six` is not a Linux release"));
        assert!(release("6.1.2").is_err());
    }
}
