//! The procedures by name, and a run of some of them.
//!
//! After each procedure all knobs are restored. An error of the host affects only the procedure in which it happens; an
//! interrupt ends the run. Must not know files or the terminal.

use crate::experiment::{MeasurementTimes, ProbeError, ProbeExperiment};
use crate::findings::{Curve, Findings};
use crate::ports;
use crate::register;
use crate::roles::{self, Named, RoleError, Roles};
use crate::sensitivity;
use crate::slide::{self, Slide};
use crate::sweep::{self, AdjustableLoad, LoadSweep, SweptParameter};
use crate::verdict::ProbeVerdict;
use crate::ways;
use std::sync::atomic::AtomicBool;
use waykeeper_host::Host;
use waykeeper_units::{Likeness, nearest};

/// A procedure.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Procedure {
    /// Finds the DCA ways.
    DcaWays,
    /// Finds the inclusive ways.
    InclusiveWays,
    /// Tests the register of the DCA ways: its effect and accepted values.
    Register,
    /// Tests each port's switch, and whether its devices write into this LLC.
    Ports,
    /// Measures how sensitive each application is to DCA.
    Sensitivity,
    /// Measures hit rates over ways, rings, packet sizes and rates.
    Sweeps,
}

impl Procedure {
    /// All procedures, in the order in which they run.
    pub const ALL: [Procedure; 6] = [
        Procedure::Ports,
        Procedure::DcaWays,
        Procedure::InclusiveWays,
        Procedure::Register,
        Procedure::Sensitivity,
        Procedure::Sweeps,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Procedure::DcaWays => "dca-ways",
            Procedure::InclusiveWays => "inclusive-ways",
            Procedure::Register => "ways-register",
            Procedure::Ports => "ports",
            Procedure::Sensitivity => "sensitivity",
            Procedure::Sweeps => "sweeps",
        }
    }

    /// A short description with its source.
    pub fn about(self) -> &'static str {
        match self {
            Procedure::DcaWays => {
                "which ways devices fill: a co-runner's mask slides over the LLC (ddio-bench s4.1, 4.2)"
            }
            Procedure::InclusiveWays => {
                "into which ways lines move when cores read them: where a co-runner loses hits (A4 s3.1)"
            }
            Procedure::Register => {
                "whether register 0xC8B has an effect, and which values it accepts (ddio-bench s4.4)"
            }
            Procedure::Ports => {
                "the effect of DCA off per root port, and which devices are on another socket (s4.3)"
            }
            Procedure::Sensitivity => {
                "how sensitive each tenant is to DCA: Low up to 5 %, else High (ddio-bench s7)"
            }
            Procedure::Sweeps => {
                "hit rates over DCA ways, ring sizes, packet sizes and rates (ddio-bench Figs. 5 to 8)"
            }
        }
    }

    /// The procedure with this name.
    ///
    /// # Errors
    /// If there is none; the error names a similar one.
    pub fn find(name: &str) -> Result<Procedure, NoProcedure> {
        let found = Procedure::ALL.into_iter().find(|procedure| procedure.name() == name);
        found.ok_or_else(|| {
            let names = Procedure::ALL.map(Procedure::name);
            let near = nearest(name, names, Likeness::Jaro);
            let near = near.map_or_else(String::new, |near| format!(", did you mean `{near}`?"));
            NoProcedure { name: name.to_owned(), near, known: names.join(", ") }
        })
    }
}

/// The error for an unknown procedure.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("unknown procedure `{name}`{near}; known are {known}, and all")]
pub struct NoProcedure {
    name: String,
    near: String,
    known: String,
}

/// Progress of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProbeProgress {
    /// The current procedure.
    pub procedure: Procedure,
    /// Elapsed time on the host's clock, ns.
    pub done_ns: u64,
    /// Estimate of the total time, ns.
    pub total_ns: u64,
}

/// Options of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProbeOptions {
    /// The procedures.
    pub procedures: Vec<Procedure>,
    /// Groups that the operator named for a role.
    pub named: Named,
    /// Durations of measurements.
    pub pace: MeasurementTimes,
    /// Measure fewer points of sweeps.
    pub quick: bool,
}

/// Runs the requested procedures. `load` is an adjustable load, if there is one. `on_progress` is called with the
/// progress.
///
/// # Errors
/// An interrupt; a host that cannot be read, or whose knobs cannot be restored.
pub fn run(
    host: &mut dyn Host,
    mut load: Option<&mut dyn AdjustableLoad>,
    options: &ProbeOptions,
    stop: &AtomicBool,
    on_progress: &dyn Fn(ProbeProgress),
) -> Result<Findings, ProbeError> {
    let mut findings = Findings::of(host.inventory());
    let total_ns = expected(host, load.as_deref(), options);
    let mut done_ns = 0;
    let mut cache = Cache::default();
    for procedure in Procedure::ALL.into_iter().filter(|one| options.procedures.contains(one)) {
        let mut on_wait = |ns: u64| {
            done_ns += ns;
            on_progress(ProbeProgress { procedure, done_ns, total_ns: total_ns.max(done_ns) });
        };
        let mut experiment = ProbeExperiment::new(host, options.pace, stop, &mut on_wait)?;
        let outcome = one(&mut experiment, procedure, options, &mut cache, &mut findings);
        let back = experiment.restore();
        drop(experiment);
        if let Err(error) = outcome {
            failed(&mut findings, procedure, &forgivable(error)?);
        }
        back?;
        if procedure == Procedure::Sweeps {
            for dial in [SweptParameter::PacketBytes, SweptParameter::OfferedGbps] {
                let sweep = match load.as_deref_mut().filter(|load| load.parameters().contains(&dial)) {
                    None => Ok(sweep::no_parameter(dial)),
                    Some(load) => sweep::load(load, dial, options.pace, options.quick, stop, &mut on_wait),
                };
                let sweep = match sweep {
                    Ok(sweep) => sweep,
                    Err(error) => LoadSweep { dial, points: Vec::new(), notes: vec![forgivable(error)?] },
                };
                findings.sweeps.push(sweep);
            }
        }
    }
    Ok(findings)
}

/// Results that several procedures share.
#[derive(Default)]
struct Cache {
    roles: Option<Result<Roles, RoleError>>,
    highest_miss_slide: Option<Result<Slide, String>>,
}

fn one(
    experiment: &mut ProbeExperiment<'_>,
    procedure: Procedure,
    options: &ProbeOptions,
    cache: &mut Cache,
    findings: &mut Findings,
) -> Result<(), ProbeError> {
    match procedure {
        Procedure::Ports => findings.ports = ports::measure(experiment)?,
        Procedure::DcaWays => dca_ways(experiment, options, cache, findings)?,
        Procedure::InclusiveWays => inclusive_ways(experiment, options, cache, findings)?,
        Procedure::Register => findings.register = Some(register::measure(experiment)?),
        Procedure::Sensitivity => findings.sensitivity = sensitivity::measure(experiment)?,
        Procedure::Sweeps => {
            findings.sweeps.push(sweep::ways(experiment)?);
            experiment.restore()?;
            findings.sweeps.push(sweep::rings(experiment, options.quick)?);
        }
    }
    Ok(())
}

/// Text of a failure of one procedure; an interrupt and unrestored knobs end the run.
fn forgivable(error: ProbeError) -> Result<String, ProbeError> {
    match error {
        ProbeError::Interrupted | ProbeError::NotRestored(_) => Err(error),
        other => Ok(other.to_string()),
    }
}

fn failed(findings: &mut Findings, procedure: Procedure, why: &str) {
    let help = "try again; `waykeeper doctor` lists what this host lacks";
    match procedure {
        Procedure::DcaWays => findings.dca_ways = Some(ProbeVerdict::cannot_tell(why, help)),
        Procedure::InclusiveWays => findings.inclusive_ways = Some(ProbeVerdict::cannot_tell(why, help)),
        Procedure::Register => {
            let (acts, floor) = (ProbeVerdict::cannot_tell(why, help), ProbeVerdict::cannot_tell(why, help));
            findings.register = Some(register::RegisterVerdict { acts, floor });
        }
        Procedure::Ports | Procedure::Sensitivity | Procedure::Sweeps => {
            findings.failures.push(format!("{}: {why}", procedure.name()));
        }
    }
}

const NO_VICTIM: &str = "a tenant that computes and owns no device, or a command to run as one: `-- COMMAND`";

fn roles(
    experiment: &mut ProbeExperiment<'_>,
    options: &ProbeOptions,
    cache: &mut Cache,
) -> Result<Result<Roles, RoleError>, ProbeError> {
    if cache.roles.is_none() {
        cache.roles = Some(roles::cast(experiment, &options.named)?);
    }
    Ok(cache.roles.clone().unwrap_or(Err(RoleError::NoVictim)))
}

/// The slide of the co-runner with the most LLC misses.
fn highest_miss_slide(
    experiment: &mut ProbeExperiment<'_>,
    options: &ProbeOptions,
    cache: &mut Cache,
) -> Result<Result<Slide, String>, ProbeError> {
    if cache.highest_miss_slide.is_none() {
        let slid = match roles(experiment, options, cache)? {
            Err(error) => Err(error.to_string()),
            Ok(roles) => slide::slide(experiment, roles.highest_miss_corunner, &roles.io, None)?
                .map_err(|error| error.to_string()),
        };
        cache.highest_miss_slide = Some(slid);
    }
    Ok(cache.highest_miss_slide.clone().unwrap_or_else(|| Err(String::new())))
}

fn dca_ways(
    experiment: &mut ProbeExperiment<'_>,
    options: &ProbeOptions,
    cache: &mut Cache,
    findings: &mut Findings,
) -> Result<(), ProbeError> {
    let register = experiment.original_knobs().dca_ways().map(|ways| format!("the register holds {ways}"));
    let verdict = match highest_miss_slide(experiment, options, cache)? {
        Err(why) => ProbeVerdict::cannot_tell(why, NO_VICTIM),
        Ok(slide) => {
            findings.curves.push(Curve::of(
                "write-misses",
                "device writes that miss, by the co-runner's window",
                &slide,
                |s| s.write_miss,
            ));
            ways::dca_ways(&slide)
        }
    };
    findings.dca_ways = Some(verdict.beside(register));
    Ok(())
}

fn inclusive_ways(
    experiment: &mut ProbeExperiment<'_>,
    options: &ProbeOptions,
    cache: &mut Cache,
    findings: &mut Findings,
) -> Result<(), ProbeError> {
    let table = experiment
        .inventory()
        .known_llc()
        .inclusive_ways
        .map(|ways| format!("the table of this CPU lists {ways}"));
    let cast = roles(experiment, options, cache)?;
    let verdict = match (highest_miss_slide(experiment, options, cache)?, cast) {
        (Ok(highest_miss_slide), Ok(roles)) => {
            let dca = findings.dca_ways.clone().unwrap_or_else(|| ways::dca_ways(&highest_miss_slide));
            let feeling = match roles.victim == roles.highest_miss_corunner {
                true => Ok(highest_miss_slide),
                false => {
                    let slid =
                        slide::slide(experiment, roles.victim, &roles.io, Some(roles.highest_miss_corunner))?;
                    slid.map_err(|error| error.to_string())
                }
            };
            match feeling {
                Err(why) => ProbeVerdict::cannot_tell(why, NO_VICTIM),
                Ok(slide) => {
                    findings.curves.push(Curve::of(
                        "victim-misses",
                        "the co-runner's references that miss, by its window",
                        &slide,
                        |s| s.slider_miss,
                    ));
                    findings.curves.push(Curve::of(
                        "io-misses",
                        "the I/O applications' references that miss, by the co-runner's window",
                        &slide,
                        |s| s.io_miss,
                    ));
                    ways::inclusive_ways(&slide, &dca)
                }
            }
        }
        (Err(why), _) => ProbeVerdict::cannot_tell(why, NO_VICTIM),
        (_, Err(error)) => ProbeVerdict::cannot_tell(error.to_string(), NO_VICTIM),
    };
    findings.inclusive_ways = Some(verdict.beside(table));
    Ok(())
}

/// Estimated duration of a run on the host's clock, ns.
fn expected(host: &dyn Host, load: Option<&dyn AdjustableLoad>, options: &ProbeOptions) -> u64 {
    let inventory = host.inventory();
    let (llc, rounds) = (inventory.known_llc(), options.pace.rounds);
    let slid = |wash| slide::waits(llc.ways, llc.min_ways, wash, rounds);
    let has = |procedure| options.procedures.contains(&procedure);
    let mut waits = 0;
    if has(Procedure::DcaWays) || has(Procedure::InclusiveWays) {
        waits += slid(false);
    }
    if has(Procedure::InclusiveWays) {
        waits += slid(true);
    }
    if has(Procedure::Register) {
        waits += register::waits(rounds);
    }
    if has(Procedure::Ports) {
        waits += ports::waits(inventory.ports.len(), rounds);
    }
    if has(Procedure::Sensitivity) {
        waits += sensitivity::waits(rounds);
    }
    if has(Procedure::Sweeps) {
        waits += sweep::waits(llc.ways, load.map_or(1, |load| load.parameters().len()), options.quick);
    }
    waits * (options.pace.settle_ns + options.pace.sample_ns) / 2
}
