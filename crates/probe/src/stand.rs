//! The stand a server is measured on: knobs turned through the seam, counters looked at after things have settled, and
//! everything as it was found when the stand goes, whatever ended it.
//!
//! Must not know what is measured.

use std::sync::atomic::{AtomicBool, Ordering};
use waykeeper_host::{Applied, Group, Host, HostError, Interval, Inventory, KnobValues, Plan};
use waykeeper_units::{PortId, WayMask};

/// How long things take, on the host's clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pace {
    /// From turning a knob until counters are believed, ns. A cache turns over in tens of milliseconds
    /// (microarchitecture.md 9); lines of a narrowed mask stay until somebody needs the room.
    pub settle_ns: u64,
    /// Length of a sample, ns.
    pub sample_ns: u64,
    /// How often everything is measured: A, B, A, B, so that a load that drifts does not pass for an effect.
    pub rounds: u32,
}

impl Pace {
    /// The usual pace: 0.8 s for each of four looks (assumption: two orders above what a cache takes to turn over).
    pub const USUAL: Pace = Pace { settle_ns: 400_000_000, sample_ns: 400_000_000, rounds: 4 };
    /// For a first impression: three looks of half the length.
    pub const QUICK: Pace = Pace { settle_ns: 200_000_000, sample_ns: 200_000_000, rounds: 3 };
}

/// Why a procedure ended before its time.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The host could not be read or turned.
    #[error(transparent)]
    Host(#[from] HostError),
    /// Somebody asked for the end.
    #[error("interrupted")]
    Interrupted,
    /// A knob reads no value, so it could not be brought back.
    #[error("{0} cannot be read, so it could not be restored; it is not changed")]
    Unreadable(String),
    /// Something else reads back after everything was to be as it was found.
    #[error("not restored: {0}")]
    NotRestored(String),
    /// The load could not be set to what a sweep asks for.
    #[error("{0}")]
    Load(String),
}

/// Longest wait without a look at whether the end is asked for, ns. Assumption: an interrupt that is seen within 0.1
/// s is felt at once.
const BREATH_NS: u64 = 100_000_000;

/// A server under measurement.
pub struct Stand<'h> {
    host: &'h mut dyn Host,
    pace: Pace,
    stop: &'h AtomicBool,
    found: KnobValues,
    /// What is to be brought back: the values found, of the knobs turned since.
    owed: Plan,
    told: &'h mut dyn FnMut(u64),
}

impl<'h> Stand<'h> {
    /// Takes the server as it is. `told` hears how many ns of the host's clock have passed at each wait; `stop` ends what
    /// goes on at the next wait.
    ///
    /// # Errors
    /// If nothing can be read.
    pub fn new(
        host: &'h mut dyn Host,
        pace: Pace,
        stop: &'h AtomicBool,
        told: &'h mut dyn FnMut(u64),
    ) -> Result<Stand<'h>, ProbeError> {
        let found = host.sample()?.knobs;
        Ok(Stand { host, pace, stop, found, owed: Plan::default(), told })
    }

    /// What there is.
    pub fn inventory(&self) -> &Inventory {
        self.host.inventory()
    }

    /// Who runs.
    pub fn groups(&self) -> Vec<Group> {
        self.host.groups()
    }

    /// How long things take.
    pub fn pace(&self) -> Pace {
        self.pace
    }

    /// What every knob read before any was turned.
    pub fn found(&self) -> &KnobValues {
        &self.found
    }

    /// Turns knobs; what they held is owed from then on.
    ///
    /// # Errors
    /// A knob whose value cannot be read; the host.
    pub fn turn(&mut self, plan: &Plan) -> Result<Applied, ProbeError> {
        for group in plan.masks.keys() {
            let found = self.found.masks.get(group);
            let found = *found.ok_or_else(|| ProbeError::Unreadable(format!("the mask of {group}")))?;
            self.owed.masks.insert(*group, found);
        }
        if plan.dca_ways.is_some() {
            let found = self.found.dca_ways;
            self.owed.dca_ways =
                Some(found.ok_or_else(|| ProbeError::Unreadable("the ways of devices".into()))?);
        }
        for port in plan.dca.keys() {
            // A port whose switch reads nothing refuses to be turned, in its own words.
            self.owed.dca.extend(self.found.dca.get(port).map(|on| (*port, *on)));
        }
        for (port, ring) in
            plan.rx_ring.keys().filter_map(|port| Some((*port, *self.found.rx_ring.get(port)?)))
        {
            self.owed.rx_ring.insert(port, ring);
        }
        Ok(self.host.apply(plan)?)
    }

    /// Turns the ways of devices.
    ///
    /// # Errors
    /// As [`Stand::turn`].
    pub fn turn_ways(&mut self, mask: WayMask) -> Result<Applied, ProbeError> {
        self.turn(&Plan { dca_ways: Some(mask), ..Plan::default() })
    }

    /// Switches DCA of ports.
    ///
    /// # Errors
    /// As [`Stand::turn`].
    pub fn switch(
        &mut self,
        ports: impl IntoIterator<Item = PortId>,
        on: bool,
    ) -> Result<Applied, ProbeError> {
        self.turn(&Plan { dca: ports.into_iter().map(|port| (port, on)).collect(), ..Plan::default() })
    }

    /// Waits, and listens for the end.
    ///
    /// # Errors
    /// [`ProbeError::Interrupted`]; the host.
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
            let next = until.min(now.saturating_add(BREATH_NS));
            self.host.wait_until(next)?;
            (self.told)(next - now);
        }
    }

    /// Lets things settle.
    ///
    /// # Errors
    /// As [`Stand::wait`].
    pub fn settle(&mut self) -> Result<(), ProbeError> {
        self.wait(self.pace.settle_ns)
    }

    /// What happens during one sample.
    ///
    /// # Errors
    /// As [`Stand::wait`]; a clock that stands still.
    pub fn sample(&mut self) -> Result<Interval, ProbeError> {
        let before = self.host.sample()?;
        self.wait(self.pace.sample_ns)?;
        let after = self.host.sample()?;
        Interval::between(&before, &after).ok_or_else(|| {
            let why = "the host's clock did not advance between two samples".to_owned();
            HostError::Failed { what: "reading counters".to_owned(), why }.into()
        })
    }

    /// Lets things settle, and looks.
    ///
    /// # Errors
    /// As [`Stand::sample`].
    pub fn look(&mut self) -> Result<Interval, ProbeError> {
        self.settle()?;
        self.sample()
    }

    /// Everything as it was found. Without anything owed it does nothing.
    ///
    /// # Errors
    /// What does not read back as it was found; the host.
    pub fn restore(&mut self) -> Result<(), ProbeError> {
        let owed = std::mem::take(&mut self.owed);
        if owed.is_empty() {
            return Ok(());
        }
        let alive: Vec<_> = self.host.groups().iter().map(|group| group.id).collect();
        let mut plan = owed;
        plan.masks.retain(|group, _| alive.contains(group));
        self.host.apply(&plan)?;
        let now = self.host.sample()?.knobs;
        let mut wrong: Vec<String> = Vec::new();
        for (group, mask) in plan.masks.iter().filter(|(group, mask)| now.masks.get(group) != Some(mask)) {
            wrong.push(format!("the mask of {group}, which was {mask}"));
        }
        if let Some(ways) = plan.dca_ways.filter(|ways| now.dca_ways != Some(*ways)) {
            wrong.push(format!("the ways of devices, which were {ways}"));
        }
        for (port, on) in plan.dca.iter().filter(|(port, on)| now.dca.get(port) != Some(on)) {
            wrong.push(format!("DCA of {port}, which was {}", if *on { "on" } else { "off" }));
        }
        for (port, ring) in plan.rx_ring.iter().filter(|(port, ring)| now.rx_ring.get(port) != Some(ring)) {
            wrong.push(format!("the ring of {port}, which was {ring}"));
        }
        if wrong.is_empty() { Ok(()) } else { Err(ProbeError::NotRestored(wrong.join("; "))) }
    }
}

impl Drop for Stand<'_> {
    fn drop(&mut self) {
        // On the way out of an error or a panic nobody can be told; a host with a journal keeps what is still owed.
        let _ = self.restore();
    }
}
