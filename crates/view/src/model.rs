//! The model of a view: takes the events of a source, keeps what pictures and time lines need, and nothing that grows.
//!
//! A function of the events alone. Must not know the source, nor what is drawn.

use crate::history::{History, HistoryColumns, Series};
use crate::picture::{
    DevicePicture, LlcPicture, Picture, ProgressPicture, SocketPicture, TenantPicture, WorthPicture,
};
use crate::pollution::Pollution;
use crate::source::{SourceEvent, SourceInfo};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::time::{Duration, SystemTime};
use waykeeper_control::{Estimate, Worth};
use waykeeper_drawing::{Mark, Marks};
use waykeeper_host::{
    HostCounter, Interval, KnobOutcome, PortCounter, Reading, Readings, RootPort, SocketCounter, Support,
    Workload, WorkloadCounter, WorkloadRates,
};
use waykeeper_service::naming::HostNames;
use waykeeper_service::protocol::{LoggedEvent, plain_time};
use waykeeper_service::recorder::{Header, RecordedStep};
use waykeeper_units::LINE_BYTES;

/// Takes events and gives pictures.
#[derive(Clone, Debug, Default)]
pub struct ViewModel {
    header: Option<Header>,
    step: Option<RecordedStep<'static>>,
    /// The last interval with counters. It stays when only the policy has changed since.
    seen: Option<Interval>,
    lost: Option<String>,
    ended: bool,
    decisions: VecDeque<LoggedEvent>,
    knobs_turned: u64,
    marks: Marks,
    /// Plays a step when its picture is wanted; steps that are only counted cost nothing.
    pollution: RefCell<Pollution>,
    history: History,
}

impl ViewModel {
    /// A model that has seen nothing.
    pub fn new() -> ViewModel {
        ViewModel::default()
    }

    /// Takes an event.
    pub fn take(&mut self, event: SourceEvent) {
        match event {
            SourceEvent::Begin(header) => {
                (self.lost, self.ended) = (None, false);
                self.header = Some(*header);
            }
            SourceEvent::Step(step) => self.take_step(*step),
            SourceEvent::Lost { why } => self.lost = Some(why),
            SourceEvent::End => self.ended = true,
        }
    }

    /// The header and the step that the next picture shows.
    pub fn present(&self) -> Option<(&Header, &RecordedStep<'static>)> {
        self.header.as_ref().zip(self.step.as_ref())
    }

    /// The picture of the present step; `None` before the first.
    pub fn picture(&self, source: SourceInfo) -> Option<Picture> {
        let (header, step) = self.present()?;
        let tenants = step.groups.as_deref().unwrap_or_default();
        let inventory = &header.inventory;
        let knobs = &step.record.knobs;
        let at = since_1970(step.at);
        Some(Picture {
            source,
            lost: self.lost.clone(),
            ended: self.ended,
            step: step.step,
            at: plain_time(step.at),
            at_s: at.as_secs_f64(),
            time_s: step.at.duration_since(header.started).unwrap_or_default().as_secs_f64(),
            period_s: Duration::from_nanos(header.period_ns).as_secs_f64(),
            mode: header.mode,
            policy: header.policy.clone(),
            state: step.record.state.clone(),
            paused: step.paused,
            chip: inventory.platform.chip.clone(),
            host: inventory.platform.host.clone(),
            llc: inventory.llc.map(|llc| LlcPicture {
                ways: llc.ways,
                min_ways: llc.min_ways,
                bytes: llc.bytes,
                clos: llc.clos_count,
                inclusive_ways: llc.inclusive_ways,
                dca_ways: knobs.dca_ways(),
                dca_ways_default: inventory.dca_ways_default,
                dca_ways_switch: inventory.dca_ways_switch == Support::Yes,
            }),
            tenants: tenants.iter().map(|tenant| self.tenant(header, step, tenant)).collect(),
            devices: self.devices(header, step, tenants),
            socket: self.seen.as_ref().map_or_else(SocketPicture::default, socket),
            worth: worth(&step.record.worth),
            worst: step.worst.clone().unwrap_or_default(),
            hurts: self.pollution.borrow_mut().of(header, step),
            decisions: self.decisions.iter().cloned().collect(),
            knobs_turned: self.knobs_turned,
            problems: step.active_problems.to_vec(),
        })
    }

    /// A part of the history of a series; times are seconds since 1970.
    pub fn history(&self, series: Series, from_s: f64, to_s: f64) -> HistoryColumns {
        let mut columns = self.history.columns(series, from_s, to_s);
        for column in &mut columns.columns {
            column.colour = self.marks.get(&column.name).map(|mark| mark.colour);
        }
        columns
    }

    /// The last `count` values of one column of a series, oldest first.
    pub fn tail(&self, series: Series, name: &str, count: usize) -> Vec<Option<f32>> {
        self.history.tail(series, name, count)
    }

    fn take_step(&mut self, step: RecordedStep<'static>) {
        let Some(header) = self.header.clone() else { return };
        (self.lost, self.ended) = (None, false);
        let at_s = since_1970(step.at).as_secs_f64();
        if self.history.last_s().is_some_and(|last_s| at_s < last_s) {
            // Another place in a recording, or a clock that was set back: what follows is no continuation.
            self.history = History::default();
            self.decisions.clear();
            self.knobs_turned = 0;
        }
        let tenants = step.groups.as_deref().unwrap_or_default();
        let names = HostNames::new(tenants, &header.inventory);
        self.decisions.extend(LoggedEvent::of_record(
            &step.record,
            step.step,
            step.at,
            &header.policy,
            names,
        ));
        let surplus = self.decisions.len().saturating_sub(Picture::DECISIONS);
        self.decisions.drain(..surplus);
        let turned = step.record.applied.values().filter(|outcome| **outcome == KnobOutcome::Applied);
        self.knobs_turned += turned.count() as u64;
        let is_new = step.seen.is_some();
        if is_new || !step.record.problems.is_empty() {
            self.seen = step.seen.as_deref().cloned();
        }
        self.mark_names(&header, tenants);
        self.step = Some(step);
        if is_new {
            self.remember(at_s);
        }
    }

    /// Marks the names of tenants and ports.
    fn mark_names(&mut self, header: &Header, tenants: &[Workload]) {
        let ports = header.inventory.ports.iter().map(|port| port_key(header, port, tenants));
        self.marks.show(tenants.iter().map(|tenant| tenant.name.clone()).chain(ports));
    }

    /// The mark of a name. Every name of the present step has one.
    fn mark(&self, name: &str) -> Mark {
        self.marks.get(name).unwrap_or(Mark { colour: 0, letter: '-' })
    }

    /// Adds the present step to the history.
    fn remember(&mut self, at_s: f64) {
        let Some((header, step)) = self.present() else { return };
        let mut row: Vec<(Series, String, f64)> = Vec::new();
        let mut note = |series: Series, name: &str, value: Option<f64>| {
            row.extend(value.map(|value| (series, name.to_owned(), value)));
        };
        let tenants = step.groups.as_deref().unwrap_or_default();
        for tenant in tenants {
            let tenant = self.tenant(header, step, tenant);
            note(Series::LlcHitRatio, &tenant.name, tenant.llc_hit_ratio);
            note(Series::Ipc, &tenant.name, tenant.ipc);
            note(Series::MlcMissRatio, &tenant.name, tenant.mlc_miss_ratio);
            note(Series::OccupancyBytes, &tenant.name, tenant.occupancy_bytes);
            note(Series::MemoryBytesPerS, &tenant.name, tenant.memory_bytes_per_s);
            note(Series::Ways, &tenant.name, tenant.ways.map(f64::from));
        }
        for device in self.devices(header, step, tenants) {
            note(Series::InboundBytesPerS, &device.name, device.inbound_bytes_per_s);
            note(Series::OutboundBytesPerS, &device.name, device.outbound_bytes_per_s);
            note(Series::Dca, &device.name, device.dca.map(|on| f64::from(u8::from(on))));
        }
        let socket = self.seen.as_ref().map_or_else(SocketPicture::default, socket);
        let worth = worth(&step.record.worth);
        let ways = step.record.knobs.dca_ways().map(|ways| f64::from(ways.count()));
        for (series, value) in [
            (Series::DcaWriteHitRatio, socket.dca_write_hit_ratio),
            (Series::DcaWriteMissesPerS, socket.dca_write_misses_per_s),
            (Series::MemoryReadBytesPerS, socket.memory_read_bytes_per_s),
            (Series::MemoryWriteBytesPerS, socket.memory_write_bytes_per_s),
            (Series::DcaWays, ways),
            (Series::HpwProgress, worth.hpw.map(|hpw| hpw.value)),
            (Series::LpwProgress, worth.lpw.map(|lpw| lpw.value)),
        ] {
            note(series, "socket", value);
        }
        self.history.push(at_s, row);
    }

    fn tenant(&self, header: &Header, step: &RecordedStep<'_>, tenant: &Workload) -> TenantPicture {
        let rates = self.seen.as_ref().and_then(|seen| seen.groups.get(&tenant.id));
        let value = |counter| rates.and_then(|rates| value(rates, counter));
        let mask = step.record.knobs.mask(tenant.id);
        let devices = tenant.devices.iter().filter_map(|id| header.inventory.devices.get(id.index()));
        let known = step.record.worth.known();
        let grouping = step.groupings.as_deref().unwrap_or_default();
        let grouping = grouping.iter().find(|own| own.tenant == tenant.name);
        let misses = value(WorkloadCounter::LlcMisses);
        let mark = self.mark(&tenant.name);
        TenantPicture {
            id: tenant.id.0,
            name: tenant.name.clone(),
            priority: tenant.priority,
            kind: tenant.kind,
            cores: tenant.cores.clone(),
            devices: devices.map(|device| device.name.clone()).collect(),
            mask,
            ways: mask.map(|mask| mask.count()),
            colour: mark.colour,
            letter: mark.letter,
            llc_hit_ratio: rates.and_then(WorkloadRates::llc_hit_ratio),
            ipc: rates.and_then(WorkloadRates::ipc),
            mlc_miss_ratio: rates.and_then(WorkloadRates::mlc_miss_ratio),
            occupancy_bytes: value(WorkloadCounter::OccupancyBytes),
            llc_references_per_s: rates.and_then(WorkloadRates::llc_references),
            llc_misses_per_s: misses,
            memory_bytes_per_s: misses.map(|misses| misses * LINE_BYTES as f64),
            progress: known.and_then(|known| known.tenants.get(&tenant.id)).copied().map(progress),
            grouped_with: grouping.map(|own| own.with.clone()).unwrap_or_default(),
        }
    }

    /// Root ports with devices behind them, and those with traffic.
    fn devices(&self, header: &Header, step: &RecordedStep<'_>, tenants: &[Workload]) -> Vec<DevicePicture> {
        let knobs = &step.record.knobs;
        let ports = header.inventory.ports.iter().map(|port| {
            let all = header.inventory.devices.iter().filter(|device| device.ports.contains(&port.id));
            let all: Vec<_> = all.collect();
            let rates = self.seen.as_ref().and_then(|seen| seen.ports.get(&port.id));
            let value = |counter| rates.and_then(|rates| value(rates, counter));
            let uses = |tenant: &&Workload| all.iter().any(|device| tenant.devices.contains(&device.id));
            let mark = self.mark(&port_key(header, port, tenants));
            DevicePicture {
                port: port.id.0,
                address: port.address.clone(),
                devices: all.iter().map(|device| device.name.clone()).collect(),
                kind: all.first().map(|device| device.kind),
                colour: mark.colour,
                letter: mark.letter,
                name: port_name(header, port),
                dca: knobs.dca(port.id),
                dca_switch: port.dca_switch == Support::Yes,
                inbound_bytes_per_s: value(PortCounter::InboundBytes),
                outbound_bytes_per_s: value(PortCounter::OutboundBytes),
                rx_ring: knobs.rx_ring(port.id),
                tenants: tenants.iter().filter(uses).map(|tenant| tenant.name.clone()).collect(),
            }
        });
        let has_traffic = |port: &DevicePicture| {
            [port.inbound_bytes_per_s, port.outbound_bytes_per_s]
                .into_iter()
                .flatten()
                .any(|bytes| bytes > 0.0)
        };
        ports.filter(|port| !port.devices.is_empty() || has_traffic(port)).collect()
    }
}

/// The names of the devices behind a port, or its address.
fn port_name(header: &Header, port: &RootPort) -> String {
    let devices = header.inventory.devices.iter().filter(|device| device.ports.contains(&port.id));
    let names: Vec<&str> = devices.map(|device| device.name.as_str()).collect();
    if names.is_empty() { port.address.clone() } else { names.join(", ") }
}

/// What a port is marked by: its name, with its address if another port or a tenant has this name too.
fn port_key(header: &Header, port: &RootPort, tenants: &[Workload]) -> String {
    let name = port_name(header, port);
    let others = header.inventory.ports.iter().filter(|other| other.id != port.id);
    let is_shared = others.map(|other| port_name(header, other)).any(|other| other == name)
        || tenants.iter().any(|tenant| tenant.name == name);
    if is_shared { format!("{name} {}", port.address) } else { name }
}

fn since_1970(at: SystemTime) -> Duration {
    at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

/// A finite value of a counter.
fn value<K: HostCounter<N>, const N: usize>(rates: &Readings<K, f64, N>, counter: K) -> Option<f64> {
    match rates[counter] {
        Reading::Value(value) => Some(value).filter(|value: &f64| value.is_finite()),
        _ => None,
    }
}

fn socket(seen: &Interval) -> SocketPicture {
    let value = |counter| value(&seen.socket, counter);
    SocketPicture {
        dca_write_hit_ratio: seen.socket.dca_write_miss_ratio().map(|miss| 1.0 - miss),
        dca_write_misses_per_s: value(SocketCounter::DcaWriteMisses),
        dca_read_hit_ratio: seen.socket.dca_read_miss_ratio().map(|miss| 1.0 - miss),
        memory_read_bytes_per_s: value(SocketCounter::MemoryReadBytes),
        memory_write_bytes_per_s: value(SocketCounter::MemoryWriteBytes),
    }
}

fn progress(estimate: Estimate) -> ProgressPicture {
    ProgressPicture { value: estimate.value, error: estimate.error }
}

fn worth(worth: &Worth) -> WorthPicture {
    match worth {
        Worth::Unknown(why) => WorthPicture { why_unknown: Some(why.to_string()), ..WorthPicture::default() },
        Worth::Known(known) => WorthPicture {
            hpw: known.hpw.map(progress),
            lpw: known.lpw.map(progress),
            source: Some(known.from),
            why_unknown: None,
        },
    }
}
