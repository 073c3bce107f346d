//! The suite of `kernel::resctrl`: its behaviour on any resctrl, a kernel's or the virtual host's.
//!
//! Every case reads the host's features from `info/` and expects what follows from them, so one list of cases covers
//! Intel and AMD, with and without CDP, MBA and sub-NUMA clustering. `tests/suite/suite_on_vhost.rs` runs it on the
//! virtual host, `examples/resctrl_suite.rs` anywhere (in a guest under `make test-oracle`). It must not know which. No
//! other program may use resctrl meanwhile; groups with its prefix are removed before and after each case.

mod cpus_and_tasks;
mod groups;
pub mod manners;
mod monitoring;
mod shares;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use waykeeper_kernel::resctrl::{
    DomainSetting, Group, Info, Resctrl, ResctrlError, ResctrlErrorKind, Resource, ResourceSettings, Schemata,
};
use waykeeper_kernel::root::Root;
use waykeeper_units::WayMask;

/// The prefix of the suite's groups.
pub const PREFIX: &str = "wk-suite-";

/// Why a case did not pass.
#[derive(Debug)]
pub enum Trouble {
    /// A check failed.
    Failed(String),
    /// This host lacks the feature under test.
    Lacking(String),
}

impl From<ResctrlError> for Trouble {
    fn from(error: ResctrlError) -> Trouble {
        Trouble::Failed(error.to_string())
    }
}

impl From<String> for Trouble {
    fn from(text: String) -> Trouble {
        Trouble::Failed(text)
    }
}

/// A case's result.
pub type Result<T = (), E = Trouble> = std::result::Result<T, E>;

/// One case.
pub struct Case {
    /// The property that it checks.
    pub name: &'static str,
    run: fn(&Bench) -> Result,
}

/// Fails the case, with position and message, unless a condition holds.
macro_rules! check {
    ($condition:expr, $($words:tt)+) => {
        if !$condition {
            let words = format!($($words)+);
            return Err($crate::suite::Trouble::Failed(format!("{}:{}: {words}", file!(), line!())));
        }
    };
}

/// Fails the case unless two values are equal.
macro_rules! same {
    ($found:expr, $wanted:expr) => {{
        let (found, wanted) = (&$found, &$wanted);
        check!(*found == *wanted, "{} is {found:?}, not {wanted:?}", stringify!($found));
    }};
}

pub(crate) use {check, same};

/// A list of cases from functions.
macro_rules! list {
    ($($name:literal => $run:path),+ $(,)?) => {
        &[$($crate::suite::Case { name: $name, run: $run }),+]
    };
}

pub(crate) use list;

/// All cases, basic ones first, so that the first failure is the most informative.
pub fn cases() -> Vec<&'static Case> {
    let all = [groups::CASES, shares::CASES, cpus_and_tasks::CASES, monitoring::CASES, manners::CASES];
    all.into_iter().flatten().collect()
}

/// Runs one case on the host under `root`, and removes its groups.
///
/// # Errors
/// The failed check, or the feature that the host lacks.
pub fn run(case: &Case, root: &Root) -> Result {
    let resctrl = Resctrl::open(root, PREFIX)?;
    sweep(&resctrl)?;
    let info = resctrl.info()?;
    let before = resctrl.schemata(&Group::DEFAULT)?;
    let bench = Bench { root: root.clone(), resctrl, info, before };
    let result = (case.run)(&bench);
    let swept = sweep(&bench.resctrl).and_then(|()| bench.open_default());
    result.and(swept)
}

fn sweep(resctrl: &Resctrl) -> Result {
    let parents = resctrl.control_groups()?;
    for group in parents.iter().filter(|group| resctrl.is_ours(group)) {
        resctrl.remove(group)?;
    }
    for group in resctrl.monitor_groups(&Group::DEFAULT)?.iter().filter(|group| resctrl.is_ours(group)) {
        resctrl.remove(group)?;
    }
    Ok(())
}

/// The environment of a case.
pub struct Bench {
    /// The host.
    pub root: Root,
    /// Its resctrl.
    pub resctrl: Resctrl,
    /// Its `info/`.
    pub info: Info,
    /// The default group's shares before the case.
    before: Schemata,
}

impl Bench {
    /// Makes a control group of the suite.
    pub fn group(&self, name: &str) -> Result<Group> {
        let group = self.resctrl.own(name)?;
        self.resctrl.create(&group)?;
        Ok(group)
    }

    /// The L3's resource (its data half with CDP), and its ways.
    pub fn l3(&self) -> Result<(Resource, WayMask)> {
        let resource = self.info.l3_resources().pop().ok_or_else(|| lacking("L3 CAT"))?;
        Ok((resource.clone(), self.info.caches[&resource].cbm_mask))
    }

    /// The domains of a resource.
    pub fn domains(&self, resource: &Resource) -> Result<Vec<u32>> {
        let line = self.before.line(resource).ok_or_else(|| format!("no line {resource} in schemata"))?;
        Ok(line.domains.iter().map(|(id, _)| *id).collect())
    }

    /// One mask in one domain of the L3.
    pub fn l3_line(&self, domain: u32, bits: u32) -> Result<ResourceSettings> {
        Ok(line(self.l3()?.0, domain, DomainSetting::Mask(WayMask::from_bits(bits))))
    }

    /// The smallest legal non-empty mask that starts at bit 0.
    pub fn least_bits(&self) -> Result<u32> {
        let (resource, _) = self.l3()?;
        Ok(WayMask::full(self.info.caches[&resource].min_cbm_bits.max(1)).bits())
    }

    /// How many more control groups classes of service and RMIDs allow.
    pub fn room(&self) -> Result<u32> {
        let limits = self.info.limits();
        let mut monitored = 1;
        let groups = self.resctrl.control_groups()?;
        for group in groups.iter().chain([&Group::DEFAULT]) {
            monitored += self.resctrl.monitor_groups(group)?.len() as u32;
        }
        let groups = groups.len() as u32;
        let by_class = limits.closids - 1 - groups;
        Ok(limits.rmids.map_or(by_class, |rmids| by_class.min(rmids - monitored - groups)))
    }

    /// Restores the default group's shares.
    fn open_default(&self) -> Result {
        let now = self.resctrl.schemata(&Group::DEFAULT)?;
        let changed = self.before.lines.iter().filter(|line| !now.differing(line).is_empty());
        let changed: Vec<ResourceSettings> = changed.cloned().collect();
        if !changed.is_empty() {
            let now = self.resctrl.set_schemata(&Group::DEFAULT, &changed)?;
            same!(now, self.before);
        }
        Ok(())
    }

    /// Skips the case if another tool has groups here.
    pub fn alone(&self) -> Result {
        match self.resctrl.control_groups()?.is_empty() {
            true => Ok(()),
            false => Err(lacking("a resctrl without other tools' groups")),
        }
    }
}

/// A unique path in the temporary directory: the suite may run on several hosts at a time.
pub fn place(name: &str) -> PathBuf {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("wk-suite-{name}-{}-{number}", std::process::id()))
}

/// One setting of one domain as a line.
pub fn line(resource: Resource, domain: u32, setting: DomainSetting) -> ResourceSettings {
    ResourceSettings::new(resource, vec![(domain, setting)])
}

/// The host lacks a feature.
pub fn lacking(what: &str) -> Trouble {
    Trouble::Lacking(format!("this host has no {what}"))
}

/// Checks for a refusal of this kind, whose kernel message contains these words (no message, if they are empty).
pub fn refused<T: std::fmt::Debug>(
    result: Result<T, ResctrlError>,
    kind: ResctrlErrorKind,
    words: &str,
) -> Result<ResctrlError> {
    let error = match result {
        Ok(value) => return Err(format!("it was taken ({value:?}), {kind:?} was due").into()),
        Err(error) => error,
    };
    check!(error.kind == kind, "{:?} was due, not {error}", kind);
    let status = error.status.as_deref().unwrap_or_default();
    check!(
        status.contains(words) && status.is_empty() == words.is_empty(),
        "status `{words}` was due: {error}"
    );
    Ok(error)
}
