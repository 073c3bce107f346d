//! Test bench for a server: sets knobs through the seam, samples counters after a settling time, and restores all knobs
//! when it is dropped, also after an error.
//!
//! Must not know what is measured.

use std::sync::atomic::{AtomicBool, Ordering};
use waykeeper_host::{
    Applied, Host, HostError, Interval, Inventory, Knob, KnobSetting, KnobValues, Plan, Reading, Snapshot,
    Workload,
};
use waykeeper_units::{PortId, WayMask};

/// Durations of measurements, on the host's clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MeasurementTimes {
    /// Settling time between setting a knob and a sample, ns. A cache turns over in tens of milliseconds
    /// (microarchitecture.md 9); lines outside a narrowed mask stay until their room is needed.
    pub settle_ns: u64,
    /// Length of a sample, ns.
    pub sample_ns: u64,
    /// Number of repetitions, in the order A, B, A, B, so that drift of the load is not taken for an effect.
    pub rounds: u32,
}

impl MeasurementTimes {
    /// The default: four samples of 0.8 s each with settling (assumption: two orders above what a cache takes to turn
    /// over).
    pub const USUAL: MeasurementTimes =
        MeasurementTimes { settle_ns: 400_000_000, sample_ns: 400_000_000, rounds: 4 };
    /// For a quick result: three samples of half the length.
    pub const QUICK: MeasurementTimes =
        MeasurementTimes { settle_ns: 200_000_000, sample_ns: 200_000_000, rounds: 3 };
}

/// Why a procedure ended early.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The host could not be read or set.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The user interrupted it.
    #[error("interrupted")]
    Interrupted,
    /// A knob cannot be read, so it could not be restored.
    #[error("{0} cannot be read, so it could not be restored; it is not changed")]
    Unreadable(String),
    /// After restoring, a knob reads back another value.
    #[error("not restored: {0}")]
    NotRestored(String),
    /// The load could not be set to a sweep's value.
    #[error("{0}")]
    Load(String),
}

/// Longest wait between checks for an interrupt, ns. Assumption: a reaction within 0.1 s feels immediate.
const INTERRUPT_CHECK_NS: u64 = 100_000_000;

/// How often a sample is lengthened by its length where the counters' clock lags. Assumption: a virtual host on a busy
/// machine catches up within seconds.
const LENGTHENED_MOST: u32 = 20;

/// A server under test.
pub struct ProbeExperiment<'h> {
    host: &'h mut dyn Host,
    pace: MeasurementTimes,
    stop: &'h AtomicBool,
    original_knobs: KnobValues,
    /// The values to restore: the original ones of all knobs set since.
    to_restore: Plan,
    on_wait: &'h mut dyn FnMut(u64),
}

impl<'h> ProbeExperiment<'h> {
    /// Records the knob values of the server. `on_wait` is called at each wait with its length, ns of the host's clock;
    /// `stop` ends the procedure at the next wait.
    ///
    /// # Errors
    /// If the host cannot be read.
    pub fn new(
        host: &'h mut dyn Host,
        pace: MeasurementTimes,
        stop: &'h AtomicBool,
        on_wait: &'h mut dyn FnMut(u64),
    ) -> Result<ProbeExperiment<'h>, ProbeError> {
        let original_knobs = host.sample()?.knobs;
        Ok(ProbeExperiment { host, pace, stop, original_knobs, to_restore: Plan::default(), on_wait })
    }

    /// The host's inventory.
    pub fn inventory(&self) -> &Inventory {
        self.host.inventory()
    }

    /// The running groups.
    pub fn workloads(&self) -> Vec<Workload> {
        self.host.workloads()
    }

    /// Durations of measurements.
    pub fn pace(&self) -> MeasurementTimes {
        self.pace
    }

    /// The original value of every knob.
    pub fn original_knobs(&self) -> &KnobValues {
        &self.original_knobs
    }

    /// Sets knobs and notes their original values to be restored.
    ///
    /// # Errors
    /// A knob whose value cannot be read; host errors.
    pub fn set_knobs(&mut self, plan: &Plan) -> Result<Applied, ProbeError> {
        for knob in plan.knobs() {
            match (self.original_knobs.get(knob), knob) {
                (Some(original), _) => self.to_restore.insert(knob, *original),
                (None, Knob::Mask(group)) => {
                    return Err(ProbeError::Unreadable(format!("the mask of {group}")));
                }
                (None, Knob::DcaWays) => return Err(ProbeError::Unreadable("the ways of devices".into())),
                // A port's knob that reads nothing refuses to be set, in the host's words.
                (None, Knob::Dca(_) | Knob::RxRing(_) | Knob::RxBurst(_)) => {}
            }
        }
        Ok(self.host.apply(plan)?)
    }

    /// Sets the DCA ways.
    ///
    /// # Errors
    /// As [`ProbeExperiment::set_knobs`].
    pub fn set_ways(&mut self, mask: WayMask) -> Result<Applied, ProbeError> {
        self.set_knobs(&Plan::from([(Knob::DcaWays, mask)]))
    }

    /// Switches DCA of ports.
    ///
    /// # Errors
    /// As [`ProbeExperiment::set_knobs`].
    pub fn switch(
        &mut self,
        ports: impl IntoIterator<Item = PortId>,
        on: bool,
    ) -> Result<Applied, ProbeError> {
        self.set_knobs(&Plan::of_dca(ports.into_iter().map(|port| (port, on))))
    }

    /// Waits `ns`, and checks for an interrupt.
    ///
    /// # Errors
    /// [`ProbeError::Interrupted`]; host errors.
    pub fn wait(&mut self, ns: u64) -> Result<(), ProbeError> {
        let until = self.host.now_ns().saturating_add(ns);
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return Err(ProbeError::Interrupted);
            }
            let now = self.host.now_ns();
            if now >= until {
                return Ok(());
            }
            let next = until.min(now.saturating_add(INTERRUPT_CHECK_NS));
            self.host.wait_until(next)?;
            (self.on_wait)(next - now);
        }
    }

    /// Waits for the settling time.
    ///
    /// # Errors
    /// As [`ProbeExperiment::wait`].
    pub fn settle(&mut self) -> Result<(), ProbeError> {
        self.wait(self.pace.settle_ns)
    }

    /// Rates over one sample. Where the counters' clock lags behind the host's, as on a virtual host of a busy machine, the
    /// sample lasts until they have counted.
    ///
    /// # Errors
    /// As [`ProbeExperiment::wait`]; a clock that does not advance.
    pub fn sample(&mut self) -> Result<Interval, ProbeError> {
        let before = self.host.sample()?;
        let mut seen = None;
        for _ in 0..=LENGTHENED_MOST {
            self.wait(self.pace.sample_ns)?;
            let after = self.host.sample()?;
            seen = Interval::between(&before, &after);
            if seen.as_ref().is_none_or(|seen| !is_uncounted(&before, &after, seen)) {
                break;
            }
        }
        seen.ok_or_else(|| {
            let why = "the host's clock did not advance between two samples".to_owned();
            HostError::Failed { what: "reading counters".to_owned(), why }.into()
        })
    }

    /// Waits for the settling time, then samples.
    ///
    /// # Errors
    /// As [`ProbeExperiment::sample`].
    pub fn settle_and_sample(&mut self) -> Result<Interval, ProbeError> {
        self.settle()?;
        self.sample()
    }

    /// Restores all knobs that were set; no effect if there are none.
    ///
    /// # Errors
    /// A knob that reads back another value; host errors.
    pub fn restore(&mut self) -> Result<(), ProbeError> {
        if self.to_restore.is_empty() {
            return Ok(());
        }
        let alive: Vec<_> = self.host.workloads().iter().map(|group| group.id).collect();
        // After an error the next call tries again.
        let mut plan = self.to_restore.clone();
        plan.retain(|knob, _| knob.workload().is_none_or(|workload| alive.contains(&workload)));
        self.host.apply(&plan)?;
        let now = self.host.sample()?.knobs;
        let wrong = plan.settings().filter(|wanted| now.get(wanted.knob) != Some(&wanted.setting));
        let text = |KnobSetting { knob, setting }: KnobSetting| match knob {
            Knob::Mask(group) => format!("the mask of {group}, which was {setting}"),
            Knob::DcaWays => format!("the ways of devices, which were {setting}"),
            Knob::Dca(port) => format!("DCA of {port}, which was {setting}"),
            Knob::RxRing(port) => format!("the ring of {port}, which was {setting}"),
            Knob::RxBurst(port) => format!("the burst of {port}, which was {setting}"),
        };
        let wrong: Vec<String> = wrong.map(text).collect();
        if !wrong.is_empty() {
            return Err(ProbeError::NotRestored(wrong.join("; ")));
        }
        self.to_restore = Plan::default();
        Ok(())
    }
}

/// Whether counts of the socket were read at both ends and none of them has a rate: their clock hardly moved.
fn is_uncounted(before: &Snapshot, after: &Snapshot, seen: &Interval) -> bool {
    let is_known = |counter| [before, after].iter().all(|end| end.socket[counter].value().is_some());
    let mut rates = seen.socket.counts().filter(|(counter, _)| is_known(*counter)).peekable();
    rates.peek().is_some() && rates.all(|(_, rate)| rate == Reading::Unavailable)
}

impl Drop for ProbeExperiment<'_> {
    fn drop(&mut self) {
        // After an error or a panic a failure cannot be reported; a host with a journal still has the original values.
        let _ = self.restore();
    }
}
