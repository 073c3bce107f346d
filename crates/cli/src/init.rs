//! `waykeeper init`: the first configuration of a host, written from what is found on it, and what managing it would be
//! worth.
//!
//! Must not search or guess (`waykeeper_tenants::discovery`), nor write the text (`waykeeper_service::first_config`).

use crate::doctor::{as_called, can, verdict as doctor_verdict};
use crate::exit::{self, Failure};
use crate::progress::PartBar;
use crate::{daemon, duration, listing, out, outputs, restore};
use clap::Args;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use waykeeper_host::Priority;
use waykeeper_kernel::root::Root;
use waykeeper_kernel::system;
use waykeeper_operator::doctor::{self, Check, CheckState, DoctorReport, Family, HostUse};
use waykeeper_output_file::OutputFile;
use waykeeper_service::Observation;
use waykeeper_service::config::{Config, Flag, Inputs};
use waykeeper_service::daemon::RunningDaemon;
use waykeeper_service::engine::SignalRequest;
use waykeeper_tenants::discovery::{Discovery, discover};

const EXAMPLES: &str = "\
Examples:
  waykeeper init                                   look at this host, write waykeeper.toml, observe for a minute
  waykeeper init --out /etc/waykeeper/waykeeper.toml    write the file that the daemon reads
  waykeeper init --root /tmp/host --program-counters    the same for a virtual host, which perf does not count
  waykeeper init --out - --observe-for 0           only print the configuration

init finds pods, containers, virtual machines, units with CPUs of their own or much CPU time, and
pinned programs, and guesses their priorities; the comment beside each guess has its reason. It turns
no knob. While it observes, the policy says what it would set and what that would be worth. An
existing file is only replaced with --force.

Exit codes: 2 bad usage or the file exists, 3 this host cannot be observed, 4 permission denied,
5 another manager has the counters.";

/// How often the observed state is read: several times per period, so that no step is missed.
const LOOK: Duration = Duration::from_millis(100);

/// Arguments of `waykeeper init`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct InitArgs {
    /// File to write; `-` prints the configuration and nothing else
    #[arg(long, value_name = "FILE", default_value = "waykeeper.toml")]
    out: PathBuf,
    /// Replace the file if it exists
    #[arg(long)]
    force: bool,
    /// Directory where the host's file tree begins
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
    /// How long to observe the host; 0 observes nothing
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration::any, allow_negative_numbers = true)]
    observe_for: Duration,
    /// While observing, program counter registers where perf does not count the host, and restore them
    #[arg(long)]
    program_counters: bool,
}

/// Runs the subcommand.
pub fn init(args: &InitArgs) -> Result<(), Failure> {
    let root = restore::root_at(&args.root)?;
    let prints = args.out.as_os_str() == "-";
    let output = if prints { None } else { Some(Output::begin(&args.out, args.force)?) };
    restore::check_host_tree(&root)?;
    let report = doctor::examine(&root);
    let host_use = report.best_use();
    if host_use == HostUse::Simulate {
        let why = doctor_verdict(&report, &root).replace('\n', "; ");
        if !prints {
            return Err(Failure::new(exit::UNSUPPORTED, format!("no configuration is written: {why}")));
        }
        // It may be for another machine.
        exit::eprint_line(&format!("warning: {why}"));
    }
    let discovery = discover(&root);
    // The commands in its comments name the file: what is printed has no name yet.
    let name = if prints { Path::new("FILE") } else { &args.out };
    let text = waykeeper_service::first_config(&root, &discovery, name, args.program_counters);
    let Some(output) = output else { return out::text(&text) };
    let file = output.write_checked(&text)?;
    out::text(&found(&discovery, &args.out))?;
    let observed = match args.observe_for.is_zero() {
        true => Ok(true),
        false => observe(&file, args, &report),
    };
    out::text(&missing(&report))?;
    out::text(&next(&args.out, discovery.tenants.is_empty(), &report, &root))?;
    match observed {
        Ok(true) => Ok(()),
        Ok(false) => Err(Failure::silent(exit::INTERRUPTED)),
        Err(why) => Err(why.about("the configuration is written, but this host could not be observed")),
    }
}

/// The configuration that is being written.
struct Output {
    /// Its absolute path.
    path: PathBuf,
    file: OutputFile,
    /// Where the text is until it is checked.
    draft: PathBuf,
}

impl Output {
    fn begin(path: &Path, replace: bool) -> Result<Output, Failure> {
        let mut file = outputs::begin("--out", path, replace)?;
        let path = std::path::absolute(path).map_err(|why| Failure::io(path.display(), &why))?;
        let draft = file.draft_path().map_err(|why| failed(&path, &why))?.map(Path::to_owned);
        let Some(draft) = draft else {
            return Err(Failure::bad_input(format!(
                "--out {}: it is no regular file, which a daemon reads; --out - prints the configuration",
                path.display()
            )));
        };
        // Whatever the umask allows: a daemon refuses a file that other users may write.
        let mode = fs::metadata(&draft).map(|found| found.permissions().mode() & !0o022);
        mode.and_then(|mode| fs::set_permissions(&draft, Permissions::from_mode(mode)))
            .map_err(|why| failed(&path, &why))?;
        Ok(Output { path, file, draft })
    }

    /// Writes the text beside the file, checks it as the daemon does, and gives it its name. Returns the absolute path.
    fn write_checked(mut self, text: &str) -> Result<PathBuf, Failure> {
        self.file.write_all(text.as_bytes()).map_err(|why| failed(&self.path, &why))?;
        checked(&self.draft)?;
        self.file.keep().map_err(|why| failed(&self.path, &why))?;
        Ok(self.path)
    }
}

fn failed(path: &Path, why: &io::Error) -> Failure {
    Failure::io(format!("cannot write {}", path.display()), why)
}

/// What `waykeeper daemon --check` checks.
fn checked(file: &Path) -> Result<(), Failure> {
    let config = Config::load(&inputs(file, Vec::new()))?;
    config.check_policy()?;
    Ok(config.check_places(system::real().as_ref())?)
}

fn inputs(file: &Path, flags: Vec<Flag>) -> Inputs {
    Inputs { file: Some(file.to_owned()), environment: daemon::environment(), flags }
}

/// What was found, as a table.
fn found(discovery: &Discovery, file: &Path) -> String {
    let high = discovery.tenants.iter().filter(|own| own.priority.value == Priority::High).count();
    let mut text = format!(
        "{} is written: {} tenants, {high} of them of high priority; each priority is a guess\n",
        file.display(),
        discovery.tenants.len()
    );
    if discovery.tenants.is_empty() {
        text.push_str("  nothing was found that could be a tenant; the file says what to do\n");
        return text;
    }
    let mut rows = vec![["  tenant", "priority", "CPUs", "because"].map(str::to_owned).to_vec()];
    for tenant in &discovery.tenants {
        let priority = if tenant.priority.value == Priority::High { "high" } else { "low" };
        rows.push(vec![
            format!("  {}", tenant.name),
            priority.to_owned(),
            listing::or_dash(&tenant.cores.to_string()),
            tenant.priority.why.clone(),
        ]);
    }
    text.push_str(&listing::columns(&rows));
    text
}

/// Observes the host with the written file; false if the user interrupted it.
fn observe(file: &Path, args: &InitArgs, report: &DoctorReport) -> Result<bool, Failure> {
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, interrupted.clone())
            .map_err(|why| Failure::io("listening to signals", &why))?;
    }
    let flag = |key: &str, value: &str| Flag {
        flag: "waykeeper init".to_owned(),
        key: key.to_owned(),
        value: value.to_owned(),
    };
    let inputs = inputs(
        file,
        vec![
            flag("daemon.mode", "observe"),
            flag("daemon.program_counters", if args.program_counters { "true" } else { "false" }),
            flag("socket.path", "off"),
            flag("metrics.listen", "off"),
            flag("recorder.dir", "off"),
        ],
    );
    let config = Config::load(&inputs)?;
    let daemon = RunningDaemon::start(config, inputs, Box::new(|| 0), || {})?;
    let mut observation = Observation::default();
    let bar = PartBar::new();
    // The time counts from the first sample: a host with many counters takes a while to start.
    let mut start: Option<Instant> = None;
    let mut observed = Duration::ZERO;
    while observed < args.observe_for && !interrupted.load(Ordering::Relaxed) && !daemon.has_ended() {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        bar.show(millis(observed), millis(args.observe_for), "observing");
        let status = daemon.status();
        if !status.state.is_empty() {
            observed = start.get_or_insert_with(Instant::now).elapsed();
        }
        observation.add(&status);
        std::thread::sleep(LOOK);
    }
    bar.clear();
    daemon.request(SignalRequest::Stop);
    daemon.wait()?;
    let mut text = format!("\nobserved for {:.0} s, {} steps\n", observed.as_secs_f64(), observation.steps());
    for line in observation.findings() {
        text.push_str(&format!("  {line}\n"));
    }
    let is = |name, states: &[CheckState]| report.check(name).is_some_and(|own| states.contains(&own.state));
    let may_program = is("msr", &[CheckState::Ok]) && is("msr-writes", &[CheckState::Ok, CheckState::Info]);
    if !observation.has_counters() && !args.program_counters && may_program {
        text.push_str(
            "  no counter of cores and caches runs on this host; --program-counters lets init program them, and restores \
             them at the end\n",
        );
    }
    out::text(&text)?;
    Ok(!interrupted.load(Ordering::Relaxed))
}

/// What this host lacks, in the doctor's words.
fn missing(report: &DoctorReport) -> String {
    let is_wanted = |check: &&Check| {
        matches!(check.family, Family::Access | Family::Watch | Family::Steer)
            && matches!(check.state, CheckState::Missing | CheckState::Degraded)
    };
    let lacks: Vec<&Check> = report.checks.iter().filter(is_wanted).collect();
    if lacks.is_empty() {
        return "\nthis host lacks nothing (waykeeper doctor)\n".to_owned();
    }
    let mut text = "\nthis host lacks (waykeeper doctor)\n".to_owned();
    let names = lacks.iter().map(|check| check.name.len()).max().unwrap_or(0);
    for check in lacks {
        text.push_str(&format!("  {:<names$}  {}\n", check.name, check.value));
        if let Some(remedy) = &check.remedy {
            text.push_str(&format!("  {:<names$}  -> {remedy}\n", ""));
        }
    }
    text
}

/// The commands that work on this host, with the file where they read one.
fn next(file: &Path, has_no_tenant: bool, report: &DoctorReport, root: &Root) -> String {
    let daemon = as_called(&format!("waykeeper daemon --config {}", file.display()));
    let observe = report.check("observe").filter(|check| check.state == CheckState::Ok);
    let observe = observe.map(|_| format!("{daemon} --observe"));
    match (report.best_use(), has_no_tenant) {
        (HostUse::Manage, false) => format!(
            "\nnext: correct the priorities in {}, then\n  {daemon} --check\n  {daemon} --dry-run\n",
            file.display()
        ),
        // Without a tenant the daemon only observes.
        (HostUse::Manage, true) => {
            format!(
                "\nnext: declare tenants in {}; what works without:\n  {daemon} --observe\n",
                file.display()
            )
        }
        (HostUse::Observe, _) if report.mount_command().is_none() => {
            format!("\n{}\nnext: {daemon} --observe\n", can(report))
        }
        _ => {
            let mut text = format!("\n{}\n", doctor_verdict(report, root));
            text.extend(observe.map(|command| format!("      {command}\n")));
            text
        }
    }
}
