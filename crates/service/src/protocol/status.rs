//! The answers of the control socket: stable types, independent of the daemon's internal ones.
//!
//! Units are part of the names; an absent key means "not available", never 0. Must not know sockets.

use super::{WorthStatus, plain_time};
use crate::naming::HostNames;
use crate::twin::{TwinState, TwinStatus};
use crate::{ActiveProblem, DaemonMode, LastAction, Pause, Published, Worst};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};
use waykeeper_calibration::Candidate;
use waykeeper_control::StepRecord;
use waykeeper_host::{
    DeviceKind, Inventory, PortCounter, Priority, RootPort, SocketCounter, Workload, WorkloadCounter,
    WorkloadKind, WorkloadRates,
};
use waykeeper_policy::{Cause, registry};
use waykeeper_units::{CoreList, DeviceId, WayMask};

/// The whole status.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct DaemonStatus {
    /// Version of the daemon.
    pub waykeeper: String,
    /// Its mode.
    pub mode: DaemonMode,
    /// The current policy.
    pub policy: String,
    /// Its state, with the paper's name.
    pub state: String,
    /// Whether and how the policy is paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<Pause>,
    /// If the daemon is stopped within so many seconds, it leaves its knobs to the next one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hands_over_within_s: Option<f64>,
    /// Number of the last step.
    pub step: u64,
    /// Time of that step (RFC 3339, UTC).
    pub at: String,
    /// Seconds since that step. More than a few periods: the control thread hangs.
    pub age_s: f64,
    /// Time since the daemon started. It does not follow jumps of the wall clock.
    pub uptime_s: f64,
    /// Time between two steps.
    pub period_s: f64,
    /// The host.
    pub host: HostInfo,
    /// Traffic of devices and memory.
    pub io: IoStatus,
    /// What the policy is worth.
    #[serde(default)]
    pub worth: WorthStatus,
    /// The tenant that lost most since the state as found, and what fills most of its ways.
    #[serde(default)]
    pub worst: Worst,
    /// The tenants alive now.
    pub tenants: Vec<TenantStatus>,
    /// The root ports.
    pub ports: Vec<PortStatus>,
    /// The last decisions and problems, oldest first.
    pub recent: Vec<LoggedEvent>,
    /// The last three steps in which knobs were turned, oldest first.
    #[serde(default)]
    pub actions: Vec<ActionLine>,
    /// The model that answers the policy's questions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub twin: Option<TwinReport>,
    /// What a policy that sets no knob would do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advice: Option<Advice>,
    /// Problems that last.
    #[serde(rename = "standing")]
    pub active_problems: Vec<ActiveProblem>,
    /// Counts since the daemon started.
    pub totals: DaemonTotals,
}

/// The host.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct HostInfo {
    /// Its chip.
    pub chip: String,
    /// Its kernel.
    pub host: String,
    /// Cores of the managed socket.
    #[serde(default, skip_serializing_if = "CoreList::is_empty")]
    pub cores: CoreList,
    /// Bytes of its LLC, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub llc_bytes: Option<u64>,
    /// Ways of the LLC, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub llc_ways: Option<u32>,
    /// Classes of service, the root class included, if the LLC is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub classes: Option<u32>,
}

/// Traffic of devices and memory.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct IoStatus {
    /// Ways that devices may allocate in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dca_ways: Option<WayMask>,
    /// The same at power-on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dca_ways_default: Option<WayMask>,
    /// Share of device writes whose line was in no cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dca_write_miss_ratio: Option<f64>,
    /// Share of device reads that came from memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dca_read_miss_ratio: Option<f64>,
    /// Bytes read from memory by all cores and devices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_read_bytes_per_s: Option<f64>,
    /// Bytes written to memory by all cores and devices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_write_bytes_per_s: Option<f64>,
}

/// One tenant.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct TenantStatus {
    /// Its name.
    pub name: String,
    /// Its id, never reused while the daemon runs.
    pub id: u32,
    /// Declared priority.
    pub priority: Priority,
    /// Declared kind.
    pub kind: WorkloadKind,
    /// Cores it is pinned to; empty for a tenant with processes only.
    #[serde(default, skip_serializing_if = "CoreList::is_empty")]
    pub cores: CoreList,
    /// Devices it uses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<String>,
    /// Ways it may allocate in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mask: Option<WayMask>,
    /// Number of those ways.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ways: Option<u32>,
    /// Instructions per cycle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipc: Option<f64>,
    /// LLC hits / references.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub llc_hit_ratio: Option<f64>,
    /// LLC references per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub llc_references_per_s: Option<f64>,
    /// LLC bytes its lines occupy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub llc_occupancy_bytes: Option<u64>,
    /// Other tenants with the same mask, which share these ways.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shares_mask_with: Vec<String>,
    /// Other tenants in its class of service, because classes are too few: they have the same mask.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub grouped_with: Vec<String>,
    /// Why it has no class of service of its own; absent if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grouped_why: Option<String>,
}

/// One root port.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PortStatus {
    /// PCI address.
    pub address: String,
    /// Devices behind it.
    pub devices: Vec<String>,
    /// Kinds of traffic.
    pub kinds: Vec<DeviceKind>,
    /// Whether its devices' writes allocate in the LLC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dca: Option<bool>,
    /// Bytes that devices write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inbound_bytes_per_s: Option<f64>,
    /// Bytes that devices read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outbound_bytes_per_s: Option<f64>,
}

/// A decision or a problem.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct LoggedEvent {
    /// Its step.
    pub step: u64,
    /// Its time (RFC 3339, UTC).
    pub at: String,
    /// The policy at that time.
    pub policy: String,
    /// A stable name of the action; `problem` for a problem.
    pub action: String,
    /// The tenant, if it concerns one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// One readable line.
    pub text: String,
    /// The numbers behind it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<CauseValue>,
}

/// A step in which knobs were turned.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ActionLine {
    /// Its step.
    pub step: u64,
    /// Its time (RFC 3339, UTC).
    pub at: String,
    /// The policy at that time.
    pub policy: String,
    /// A stable name of the first action in it.
    pub action: String,
    /// One readable line.
    pub text: String,
}

/// One number that caused a decision.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CauseValue {
    /// What was measured.
    pub what: String,
    /// Its value; `null` if it is not finite.
    pub value: Option<f64>,
    /// The threshold it was compared with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
    /// The value of that threshold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_value: Option<f64>,
}

/// Counts since the daemon started.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct DaemonTotals {
    /// Steps.
    pub steps: u64,
    /// Steps in which nothing could be read.
    pub blind_steps: u64,
    /// Deadlines that were missed.
    pub missed_deadlines: u64,
    /// Actions of policies, by policy and action.
    pub actions: BTreeMap<String, BTreeMap<String, u64>>,
    /// Samples with an unusable value, by reason.
    pub samples_dropped: BTreeMap<String, u64>,
    /// Steps that the recorder dropped because its queue was full.
    pub unrecorded_steps: u64,
    /// Log lines that were lost because the log's reader is too slow.
    #[serde(default)]
    pub unlogged_lines: u64,
    /// Configurations that were accepted.
    pub reloads: u64,
    /// Configurations that were refused.
    pub reloads_refused: u64,
}

/// The model that answers the policy's questions.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct TwinReport {
    /// What it does.
    pub state: TwinState,
    /// Seconds since the last question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question_age_s: Option<f64>,
    /// CPU time of all answers since the daemon started.
    pub cpu_s: f64,
    /// Answers.
    pub answers: u64,
    /// Questions at which it panicked.
    pub panics: u64,
}

/// A layout that is foreseen to be better than the one in force. Progress is relative to the latter: 1.1 is 10 % more.
/// Errors are standard errors.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Advice {
    /// The knobs to set, a line each.
    pub knobs: Vec<String>,
    /// Progress of HPWs together.
    pub hpw_progress: f64,
    /// Its error.
    pub hpw_error: f64,
    /// Progress of LPWs together.
    pub lpw_progress: f64,
    /// Its error.
    pub lpw_error: f64,
}

/// Only the tenants.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Tenants {
    /// The tenants alive now.
    pub tenants: Vec<TenantStatus>,
}

/// The current policy, and the names of all policies.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PolicyState {
    /// Its name.
    pub policy: String,
    /// Its state.
    pub state: String,
    /// Whether and how it is paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<Pause>,
    /// The settings it was built with; others have their defaults.
    pub settings: toml::Table,
    /// Names of all policies.
    pub known: Vec<String>,
}

impl DaemonStatus {
    /// The status of `published` at the time `now` of the monotonic clock, with these `recent` decisions.
    pub fn of(
        published: &Published,
        recent: impl IntoIterator<Item = LoggedEvent>,
        now: Duration,
    ) -> DaemonStatus {
        let inventory = &published.inventory;
        let since = |then: Duration| now.saturating_sub(then).as_secs_f64();
        DaemonStatus {
            waykeeper: env!("CARGO_PKG_VERSION").to_owned(),
            mode: published.mode,
            policy: published.policy.clone(),
            state: published.record.state.clone(),
            paused: published.paused,
            hands_over_within_s: published
                .hands_over_until
                .and_then(|until| until.checked_sub(now))
                .map(|left| left.as_secs_f64()),
            step: published.step,
            at: plain_time(published.at),
            age_s: since(published.at_clock),
            uptime_s: since(published.started_clock),
            period_s: Duration::from_nanos(published.period_ns).as_secs_f64(),
            host: HostInfo::of(inventory),
            io: IoStatus::of(published),
            worth: WorthStatus::of(published),
            worst: Worst::of(published),
            tenants: tenants(published),
            ports: ports(published),
            recent: recent.into_iter().collect(),
            actions: published.last_actions.iter().map(ActionLine::of).collect(),
            twin: published.twin.as_ref().map(|twin| TwinReport::of(twin, now)),
            advice: published.advice.as_ref().map(|advice| Advice::of(advice, published)),
            active_problems: published.active_problems.clone(),
            totals: DaemonTotals::of(published),
        }
    }
}

impl TwinReport {
    fn of(twin: &TwinStatus, now: Duration) -> TwinReport {
        TwinReport {
            state: twin.state,
            question_age_s: twin.asked.map(|asked| now.saturating_sub(asked).as_secs_f64()),
            cpu_s: twin.cpu.as_secs_f64(),
            answers: twin.answers,
            panics: twin.panics,
        }
    }
}

impl Advice {
    fn of(advice: &Candidate, published: &Published) -> Advice {
        let names = HostNames::of(published);
        let in_force = &published.record.knobs;
        let changed = advice.plan.settings().filter(|knob| in_force.setting(knob.knob) != Some(*knob));
        Advice {
            knobs: changed.map(|knob| names.knob(knob)).collect(),
            hpw_progress: advice.hpw.value,
            hpw_error: advice.hpw.error,
            lpw_progress: advice.lpw.value,
            lpw_error: advice.lpw.error,
        }
    }
}

impl HostInfo {
    fn of(inventory: &Inventory) -> HostInfo {
        HostInfo {
            chip: inventory.platform.chip.clone(),
            host: inventory.platform.host.clone(),
            cores: CoreList::from(inventory.cores.clone()),
            llc_bytes: inventory.llc.map(|llc| llc.bytes),
            llc_ways: inventory.llc.map(|llc| llc.ways),
            classes: inventory.llc.map(|llc| llc.clos_count),
        }
    }
}

impl IoStatus {
    fn of(published: &Published) -> IoStatus {
        let rates = published.seen.as_ref().map(|seen| &seen.socket);
        IoStatus {
            dca_ways: published.record.knobs.dca_ways(),
            dca_ways_default: published.inventory.dca_ways_default,
            dca_write_miss_ratio: rates.and_then(|rates| rates.dca_write_miss_ratio()),
            dca_read_miss_ratio: rates.and_then(|rates| rates.dca_read_miss_ratio()),
            memory_read_bytes_per_s: rates.and_then(|rates| rates[SocketCounter::MemoryReadBytes].value()),
            memory_write_bytes_per_s: rates.and_then(|rates| rates[SocketCounter::MemoryWriteBytes].value()),
        }
    }
}

impl DaemonTotals {
    fn of(published: &Published) -> DaemonTotals {
        let totals = &published.totals;
        DaemonTotals {
            steps: totals.summary.steps,
            blind_steps: totals.summary.blind_steps,
            missed_deadlines: totals.summary.missed_deadlines,
            actions: totals.actions.clone(),
            samples_dropped: totals.dropped.clone(),
            unrecorded_steps: totals.unrecorded,
            unlogged_lines: totals.unlogged,
            reloads: totals.reloads[0],
            reloads_refused: totals.reloads[1],
        }
    }
}

impl Tenants {
    /// The tenants of `published`.
    pub fn of(published: &Published) -> Tenants {
        Tenants { tenants: tenants(published) }
    }
}

impl PolicyState {
    /// The policy of `published`.
    pub fn of(published: &Published) -> PolicyState {
        PolicyState {
            policy: published.policy.clone(),
            state: published.record.state.clone(),
            paused: published.paused,
            settings: (*published.settings).clone(),
            known: registry()
                .iter()
                .map(|entry| entry.name.to_owned())
                .chain(published.file_policy.clone())
                .collect(),
        }
    }
}

impl ActionLine {
    fn of(action: &LastAction) -> ActionLine {
        ActionLine {
            step: action.step,
            at: plain_time(action.at),
            policy: action.policy.clone(),
            action: action.action.clone(),
            text: action.text.clone(),
        }
    }
}

impl LoggedEvent {
    /// The decisions and problems of one step.
    pub fn all(published: &Published) -> Vec<LoggedEvent> {
        let (step, at) = (published.step, published.at);
        LoggedEvent::of_record(&published.record, step, at, &published.policy, HostNames::of(published))
    }

    /// Those of the record of a step, at this time under this policy.
    pub fn of_record(
        record: &StepRecord,
        step: u64,
        at: SystemTime,
        policy: &str,
        names: HostNames<'_>,
    ) -> Vec<LoggedEvent> {
        let StepRecord { events, problems, .. } = record;
        let reported = |action: &str, tenant: Option<String>, text: &str, causes: &[Cause]| LoggedEvent {
            step,
            at: plain_time(at),
            policy: policy.to_owned(),
            action: action.to_owned(),
            tenant,
            text: names.text(text),
            causes: causes.iter().map(|cause| CauseValue::of(cause, &names)).collect(),
        };
        let done = events
            .iter()
            .map(|event| reported(&event.action, event.group.clone(), &event.text, &event.causes));
        let wrong =
            problems.iter().map(|problem| reported("problem", None, &problem.to_string(), &problem.causes()));
        done.chain(wrong).collect()
    }
}

impl CauseValue {
    fn of(cause: &Cause, names: &HostNames<'_>) -> CauseValue {
        let finite = |value: f64| value.is_finite().then_some(value);
        CauseValue {
            what: names.text(&cause.what),
            value: finite(cause.value),
            limit: cause.limit.as_ref().map(|(name, _)| name.clone()),
            limit_value: cause.limit.as_ref().and_then(|(_, value)| finite(*value)),
        }
    }
}

fn tenants(published: &Published) -> Vec<TenantStatus> {
    let inventory = &published.inventory;
    let knobs = &published.record.knobs;
    let mask_of = |group: &Workload| knobs.mask(group.id);
    let tenant = |group: &Workload| {
        let mask = mask_of(group);
        let rates = published.seen.as_ref().and_then(|seen| seen.groups.get(&group.id));
        let others = published.groups.iter().filter(|other| other.id != group.id);
        let grouping = published.groupings.iter().find(|own| own.tenant == group.name);
        let sharing = others.filter(|other| mask.is_some() && mask_of(other) == mask);
        TenantStatus {
            name: group.name.clone(),
            id: group.id.0,
            priority: group.priority,
            kind: group.kind,
            cores: group.cores.clone(),
            devices: group.devices.iter().map(|id| device_name(inventory, *id)).collect(),
            mask,
            ways: mask.map(|mask| mask.count()),
            ipc: rates.and_then(WorkloadRates::ipc),
            llc_hit_ratio: rates.and_then(WorkloadRates::llc_hit_ratio),
            llc_references_per_s: rates.and_then(WorkloadRates::llc_references),
            llc_occupancy_bytes: rates
                .and_then(|rates| Some(rates[WorkloadCounter::OccupancyBytes].value()? as u64)),
            shares_mask_with: sharing.map(|other| other.name.clone()).collect(),
            grouped_with: grouping.map(|own| own.with.clone()).unwrap_or_default(),
            grouped_why: grouping.map(|own| own.why.clone()),
        }
    };
    published.groups.iter().map(tenant).collect()
}

fn device_name(inventory: &Inventory, id: DeviceId) -> String {
    inventory.devices.get(id.index()).map_or_else(|| id.to_string(), |device| device.name.clone())
}

fn ports(published: &Published) -> Vec<PortStatus> {
    let devices = &published.inventory.devices;
    let port = |port: &RootPort| {
        let rates = published.seen.as_ref().and_then(|seen| seen.ports.get(&port.id));
        let behind = || devices.iter().filter(|device| device.ports.contains(&port.id));
        PortStatus {
            address: port.address.clone(),
            devices: behind().map(|device| device.name.clone()).collect(),
            kinds: behind().map(|device| device.kind).collect(),
            dca: published.record.knobs.dca(port.id),
            inbound_bytes_per_s: rates.and_then(|rates| rates[PortCounter::InboundBytes].value()),
            outbound_bytes_per_s: rates.and_then(|rates| rates[PortCounter::OutboundBytes].value()),
        }
    };
    published.inventory.ports.iter().map(port).collect()
}
