//! Runs a daemon of the real program for some time on a mounted host: its CPU time and its memory, as the kernel
//! reports them.
//!
//! Must not know what the host is.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use waykeeper_host::Priority;
use waykeeper_linux_host::LinuxHostOptions;
use waykeeper_service::config::{Config, Inputs};

/// Settling time of a daemon, and the measured time after it.
const SETTLING: Duration = Duration::from_secs(5);
const LOOKED_AT: Duration = Duration::from_secs(30);

/// The configuration for a host with these tenants; the policy and a period of 1 s.
pub fn config(folder: &Path, options: &LinuxHostOptions, policy: &str) -> PathBuf {
    let (root, journal) = (options.root.prefix(), &options.journal);
    let mut text = format!(
        "[daemon]\nroot = {root:?}\njournal = {journal:?}\nperiod_s = 1\n[socket]\npath = {:?}\n[policy]\nname = {policy:?}\n",
        folder.join("socket"),
    );
    for tenant in &options.tenants {
        let devices: Vec<String> = tenant.devices.iter().map(ToString::to_string).collect();
        let priority = if tenant.priority == Priority::High { "high" } else { "low" };
        let (name, cores) = (&tenant.name, &tenant.cores);
        write!(text, "[[tenant]]\nname = {name:?}\npriority = \"{priority}\"\ncores = \"{cores}\"\ndevices = {devices:?}\n")
            .expect("room");
    }
    let file = folder.join("bench.toml");
    std::fs::write(&file, text).expect("written");
    file
}

/// The same as the daemon reads it.
pub fn loaded(folder: &Path, options: &LinuxHostOptions, policy: &str) -> Config {
    let file = Some(config(folder, options, policy));
    Config::load(&Inputs { file, ..Inputs::default() }).unwrap_or_else(|error| panic!("{error}"))
}

/// Measurements of a daemon.
pub struct Life {
    /// CPU time an hour, s.
    pub cpu_s: f64,
    /// Resident at the end, KiB.
    pub resident_kib: u64,
}

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = Command::new("kill").arg(self.0.id().to_string()).status();
        let _ = self.0.wait();
    }
}

/// Starts a daemon; `pass` is called ten times a second, to advance the host's clock.
pub fn live(config: &Path, mut pass: impl FnMut()) -> Life {
    let child = Command::new(env!("CARGO_BIN_EXE_waykeeper"))
        .args(["daemon", "--config"])
        .arg(config)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program");
    let mut child = Running(child);
    let id = child.0.id();
    let mut wait = |time: Duration| {
        let begun = Instant::now();
        while begun.elapsed() < time {
            pass();
            std::thread::sleep(Duration::from_millis(100));
            let ended = child.0.try_wait().expect("a child");
            assert!(ended.is_none(), "the daemon ended: {ended:?}");
        }
    };
    wait(SETTLING);
    let (before, begun) = (cpu_s(id), Instant::now());
    wait(LOOKED_AT);
    let spent = cpu_s(id) - before;
    Life { cpu_s: spent / begun.elapsed().as_secs_f64() * 3600.0, resident_kib: resident_kib(id) }
}

/// User and system time of all threads, s; proc_pid_schedstat lacks threads that ended.
fn cpu_s(pid: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
    // Fields 14 and 15; the second may hold spaces, and ends with the last parenthesis (proc_pid_stat(5)).
    let after = stat.rsplit(')').next().expect("a parenthesis");
    let ticks: u64 =
        after.split_whitespace().skip(11).take(2).map(|field| field.parse::<u64>().expect("ticks")).sum();
    ticks as f64 / rustix::param::clock_ticks_per_second() as f64
}

fn resident_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("its line");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}
