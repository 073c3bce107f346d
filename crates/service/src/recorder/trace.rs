//! A recording as a trace of Perfetto: decisions and states as slices, counters as tracks.
//!
//! The times of the trace are nanoseconds since the start of the daemon that wrote the first segment. A counter has a value
//! where the step has one, so a gap in a recording is a gap in its time, not a zero. Must not know where the recording comes
//! from.

use super::{Header, RecordedStep};
use crate::naming::HostNames;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::{Duration, SystemTime};
use waykeeper_control::Worth;
use waykeeper_host::{Interval, PortCounter, SocketCounter, WorkloadCounter};
use waykeeper_perfetto::{NoteValue, Notes, PerfettoUnit, PerfettoWriter, Track};

/// The tracks that every recording has.
#[derive(Clone, Copy, Debug)]
struct CommonTracks {
    state: Track,
    decisions: Track,
    problems: Track,
    worth: Track,
    tenants: Track,
    devices: Track,
    socket: Track,
}

/// Writes a recording as a trace.
#[derive(Debug)]
pub struct RecordingTrace<W> {
    to: PerfettoWriter<W>,
    /// Time 0 of the trace.
    zero: Option<SystemTime>,
    header: Option<Box<Header>>,
    common: Option<CommonTracks>,
    /// Tracks of tenants, devices and counters, by what is above them and their name.
    named: BTreeMap<(Track, String), Track>,
    /// The slice of the state that has not ended: policy and state.
    state: Option<String>,
    /// The time of the last step, ns.
    last_ns: u64,
    steps: u64,
}

impl<W: Write> RecordingTrace<W> {
    /// A trace without steps.
    pub fn new(to: W) -> RecordingTrace<W> {
        RecordingTrace {
            to: PerfettoWriter::new(to),
            zero: None,
            header: None,
            common: None,
            named: BTreeMap::new(),
            state: None,
            last_ns: 0,
            steps: 0,
        }
    }

    /// A segment begins.
    pub fn segment(&mut self, header: &Header) {
        self.zero.get_or_insert(header.started);
        self.header = Some(Box::new(header.clone()));
    }

    /// Adds a step of the segment.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn step(&mut self, step: &RecordedStep<'_>) -> io::Result<()> {
        let Some(header) = self.header.take() else { return Ok(()) };
        let written = self.write(&header, step);
        self.header = Some(header);
        written
    }

    /// Ends the trace. Returns the destination and the number of steps.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn finish(mut self) -> io::Result<(W, u64)> {
        if let (Some(common), Some(_)) = (self.common, &self.state) {
            self.to.end(common.state, self.last_ns)?;
        }
        Ok((self.to.finish()?, self.steps))
    }

    fn write(&mut self, header: &Header, step: &RecordedStep<'_>) -> io::Result<()> {
        let zero = *self.zero.get_or_insert(header.started);
        let since = step.at.duration_since(zero).unwrap_or(Duration::ZERO);
        let at_ns = u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
        let common = self.common(header)?;
        let names = HostNames::recorded(Some(header), step.groups.as_deref().unwrap_or_default());
        self.state(common, at_ns, &state(header, step))?;
        for event in &step.record.events {
            let mut notes: Notes = vec![("reason".to_owned(), NoteValue::Text(names.text(&event.text)))];
            if let Some(tenant) = &event.group {
                notes.push(("tenant".to_owned(), NoteValue::Text(tenant.clone())));
            }
            for cause in &event.causes {
                notes.push((cause.what.clone(), NoteValue::Number(cause.value)));
                if let Some((limit, value)) = &cause.limit {
                    notes.push((limit.clone(), NoteValue::Number(*value)));
                }
            }
            // It lasts for a period: a viewer shows its name, which it does not for an instant.
            self.to.begin(common.decisions, at_ns, &event.action, notes)?;
        }
        for problem in &step.record.problems {
            self.to.instant(common.problems, at_ns, &names.text(&problem.to_string()), Notes::new())?;
        }
        self.worth(common, at_ns, &step.record.worth)?;
        if let Some(seen) = &step.seen {
            self.tenants(common, at_ns, seen, &names, step)?;
            self.devices(common, at_ns, header, seen, &names)?;
            self.socket(common, at_ns, seen)?;
        }
        for _ in &step.record.events {
            self.to.end(common.decisions, at_ns.saturating_add(header.period_ns))?;
        }
        (self.last_ns, self.steps) = (at_ns, self.steps + 1);
        Ok(())
    }

    /// The tracks of every recording; they are described before the first event.
    fn common(&mut self, header: &Header) -> io::Result<CommonTracks> {
        if let Some(common) = self.common {
            return Ok(common);
        }
        let platform = &header.inventory.platform;
        let top = self.to.track(&format!("Waykeeper on {} ({})", platform.chip, platform.host), None)?;
        let mut below = |name: &str| self.to.track(name, Some(top));
        let common = CommonTracks {
            state: below("policy and state")?,
            decisions: below("decisions")?,
            problems: below("problems")?,
            worth: below("progress since the state as found")?,
            tenants: below("tenants")?,
            devices: below("devices")?,
            socket: below("socket")?,
        };
        self.common = Some(common);
        Ok(common)
    }

    /// A slice for as long as policy and state are the same.
    fn state(&mut self, common: CommonTracks, at_ns: u64, state: &str) -> io::Result<()> {
        if self.state.as_deref() == Some(state) {
            return Ok(());
        }
        if self.state.replace(state.to_owned()).is_some() {
            self.to.end(common.state, at_ns)?;
        }
        self.to.begin(common.state, at_ns, state, Notes::new())
    }

    fn worth(&mut self, common: CommonTracks, at_ns: u64, worth: &Worth) -> io::Result<()> {
        let Worth::Known(known) = worth else { return Ok(()) };
        for (name, progress) in [("HPWs", known.hpw), ("LPWs", known.lpw)] {
            let value = progress.map(|progress| progress.value);
            self.value(common.worth, at_ns, name, PerfettoUnit::Named("ratio"), value)?;
        }
        Ok(())
    }

    fn tenants(
        &mut self,
        common: CommonTracks,
        at_ns: u64,
        seen: &Interval,
        names: &HostNames<'_>,
        step: &RecordedStep<'_>,
    ) -> io::Result<()> {
        for (id, rates) in &seen.groups {
            let own = self.below(common.tenants, &names.workload(*id))?;
            let mask = seen.knobs.mask(*id).or(step.record.knobs.mask(*id));
            let ratio = PerfettoUnit::Named("ratio");
            self.value(own, at_ns, "LLC hit ratio", ratio, rates.llc_hit_ratio())?;
            self.value(own, at_ns, "instructions per cycle", ratio, rates.ipc())?;
            let misses = rates[WorkloadCounter::LlcMisses].value();
            self.value(own, at_ns, "LLC misses per second", PerfettoUnit::Count, misses)?;
            let occupied = rates[WorkloadCounter::OccupancyBytes].value();
            self.value(own, at_ns, "LLC occupancy", PerfettoUnit::Bytes, occupied)?;
            self.value(own, at_ns, "ways", PerfettoUnit::Count, mask.map(|mask| f64::from(mask.count())))?;
        }
        Ok(())
    }

    fn devices(
        &mut self,
        common: CommonTracks,
        at_ns: u64,
        header: &Header,
        seen: &Interval,
        names: &HostNames<'_>,
    ) -> io::Result<()> {
        for (id, rates) in &seen.ports {
            let own = self.below(common.devices, &names.port(*id))?;
            let written = rates[PortCounter::InboundBytes].value();
            self.value(own, at_ns, "bytes written to the host per second", PerfettoUnit::Bytes, written)?;
            let read = rates[PortCounter::OutboundBytes].value();
            self.value(own, at_ns, "bytes read from the host per second", PerfettoUnit::Bytes, read)?;
            let dca = seen.knobs.dca(*id).map(|on| f64::from(u8::from(on)));
            self.value(own, at_ns, "DCA", PerfettoUnit::Named("on"), dca)?;
        }
        let ways = seen.knobs.dca_ways().or(header.inventory.dca_ways_default);
        let ways = ways.map(|ways| f64::from(ways.count()));
        self.value(common.devices, at_ns, "DCA ways", PerfettoUnit::Count, ways)
    }

    fn socket(&mut self, common: CommonTracks, at_ns: u64, seen: &Interval) -> io::Result<()> {
        let missed = seen.socket.dca_write_miss_ratio();
        self.value(common.socket, at_ns, "DCA write miss ratio", PerfettoUnit::Named("ratio"), missed)?;
        for (name, counter) in [
            ("bytes read from memory per second", SocketCounter::MemoryReadBytes),
            ("bytes written to memory per second", SocketCounter::MemoryWriteBytes),
        ] {
            self.value(common.socket, at_ns, name, PerfettoUnit::Bytes, seen.socket[counter].value())?;
        }
        Ok(())
    }

    /// The track of this name below another.
    fn below(&mut self, above: Track, name: &str) -> io::Result<Track> {
        if let Some(track) = self.named.get(&(above, name.to_owned())) {
            return Ok(*track);
        }
        let track = self.to.track(name, Some(above))?;
        self.named.insert((above, name.to_owned()), track);
        Ok(track)
    }

    /// The value of a counter; none is written for one that could not be read.
    fn value(
        &mut self,
        above: Track,
        at_ns: u64,
        name: &str,
        unit: PerfettoUnit,
        value: Option<f64>,
    ) -> io::Result<()> {
        let Some(value) = value else { return Ok(()) };
        let track = match self.named.get(&(above, name.to_owned())) {
            Some(track) => *track,
            None => {
                let track = self.to.counter(name, unit, above)?;
                self.named.insert((above, name.to_owned()), track);
                track
            }
        };
        self.to.count(track, at_ns, value)
    }
}

/// Policy and state, in words.
fn state(header: &Header, step: &RecordedStep<'_>) -> String {
    let paused = if step.paused.is_some() { ", paused" } else { "" };
    match step.record.state.as_str() {
        "" => format!("{}{paused}", header.policy),
        state => format!("{}: {state}{paused}", header.policy),
    }
}
