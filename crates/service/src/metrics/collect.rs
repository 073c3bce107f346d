//! Converts the published state to metrics: names, labels and units (ecosystem.md 3).
//!
//! Metrics are made from the latest step at each scrape, so a tenant that ended has none. A missing value has no
//! series. A tenant's counters begin at 0 with each new group of that name, which Prometheus takes for a restart. Must
//! not know HTTP.

use crate::twin::TwinState;
use crate::{DaemonMode, PolluterKind, Published, PublishedState, Worst};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Unit;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use waykeeper_calibration::Estimate;
use waykeeper_control::WorthSource;
use waykeeper_host::{
    DeviceKind, HostCounter, PortCounter, Priority, Reading, SocketCounter, WorkloadCounter, WorkloadKind,
};
use waykeeper_units::WorkloadId;

/// Label names and values of one series.
type Labels = Vec<(&'static str, String)>;

/// All metrics of a daemon.
#[derive(Debug)]
pub struct Metrics(pub Arc<PublishedState>);

impl Collector for Metrics {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let published = self.0.read();
        let mut page = Page(encoder);
        page.daemon(&published)?;
        page.policy(&published)?;
        page.twin(&published)?;
        page.worth(&published)?;
        page.worst(&published)?;
        page.tenants(&published)?;
        page.devices(&published)?;
        page.socket(&published)
    }
}

/// Writes metrics. Names are given without prefix, unit and `_total`.
struct Page<'a>(DescriptorEncoder<'a>);

impl Page<'_> {
    fn daemon(&mut self, published: &Published) -> fmt::Result {
        let version = vec![("version", env!("CARGO_PKG_VERSION").to_owned())];
        self.info("build", "The daemon that runs.", [version])?;
        let started = seconds_at(published.started);
        self.gauge("start_time", "Time when the daemon started.", Some(Unit::Seconds), alone(started))?;
        let step = seconds_at(published.at);
        self.gauge("last_step_timestamp", "Time of the last step.", Some(Unit::Seconds), alone(step))?;
        let period = Duration::from_nanos(published.period_ns).as_secs_f64();
        self.gauge("period", "Time between two steps.", Some(Unit::Seconds), alone(Some(period)))?;
        let totals = &published.totals;
        self.counter("steps", "Steps since the daemon started.", None, alone(Some(totals.summary.steps)))?;
        let blind = totals.summary.blind_steps;
        self.counter("blind_steps", "Steps without readable counters.", None, alone(Some(blind)))?;
        let missed = totals.summary.missed_deadlines;
        self.counter(
            "missed_deadlines",
            "Steps that started after their deadline.",
            None,
            alone(Some(missed)),
        )?;
        let lost = totals.unrecorded;
        let help = "Steps that the flight recorder dropped because its queue was full.";
        self.counter("unrecorded_steps", help, None, alone(Some(lost)))?;
        let lost = totals.unlogged;
        let help = "Log lines that were lost because the reader of the log is too slow.";
        self.counter("unlogged_lines", help, None, alone(Some(lost)))?;
        let dropped = totals.dropped.iter().map(|(reason, n)| (vec![("reason", reason.clone())], Some(*n)));
        let help = "Samples of which some value could not be used, by reason.";
        self.counter("samples_dropped", help, None, dropped)?;
        let [taken, refused] = totals.reloads;
        let reloads = [("taken", taken), ("refused", refused)];
        let reloads = reloads.map(|(result, n)| (vec![("result", result.to_owned())], Some(n)));
        self.counter("reloads", "Reloads of the configuration, by result.", None, reloads)?;
        let is_bad = published.active_problems.iter().any(|problem| problem.kind == "config");
        let help = "1 if the configuration in the files is in force, 0 if it was refused and an older one is \
                    in force.";
        self.gauge("last_reload_successful", help, None, alone(Some(if is_bad { 0.0 } else { 1.0 })))?;
        let mut kinds: BTreeMap<&str, f64> = BTreeMap::new();
        for problem in &published.active_problems {
            *kinds.entry(&problem.kind).or_default() += 1.0;
        }
        let kinds = kinds.into_iter().map(|(kind, n)| (vec![("kind", kind.to_owned())], Some(n)));
        self.gauge("standing_problems", "Problems that last at present, by kind.", None, kinds)
    }

    fn policy(&mut self, published: &Published) -> fmt::Result {
        let mode = match published.mode {
            DaemonMode::Manage => "manage",
            DaemonMode::DryRun => "dry-run",
            DaemonMode::Observe => "observe",
        };
        let labels = vec![("mode", mode.to_owned())];
        self.gauge("mode", "Mode of the daemon; 1 for the current one.", None, [(labels, Some(1.0))])?;
        let state = vec![("policy", published.policy.clone()), ("state", published.record.state.clone())];
        let help = "1 for the current policy and its state.";
        self.gauge("policy_state", help, None, [(state, Some(1.0))])?;
        let paused = if published.paused.is_some() { 1.0 } else { 0.0 };
        self.gauge("paused", "1 if the policy is paused.", None, alone(Some(paused)))?;
        let actions = published.totals.actions.iter().flat_map(|(policy, actions)| {
            let labels = |action: &String| vec![("policy", policy.clone()), ("action", action.clone())];
            actions.iter().map(move |(action, n)| (labels(action), Some(*n)))
        });
        self.counter("policy_actions", "Actions of policies, by policy and action.", None, actions)
    }

    fn twin(&mut self, published: &Published) -> fmt::Result {
        if let Some(twin) = &published.twin {
            let states = TwinState::ALL.map(|state| {
                let labels = vec![("state", state.to_string())];
                (labels, Some(if state == twin.state { 1.0 } else { 0.0 }))
            });
            let help = "What the model that answers the policy's questions does; 1 for the present state.";
            self.gauge("twin_state", help, None, states)?;
            let asked = twin.asked.map(|asked| published.at_clock.saturating_sub(asked));
            let asked = asked.and_then(|age| seconds_at(published.at.checked_sub(age)?));
            let help = "Time of the policy's last question.";
            self.gauge("twin_question_timestamp", help, Some(Unit::Seconds), alone(asked))?;
            let cpu = [(Labels::new(), ConstCounter::new(twin.cpu.as_secs_f64()))];
            let help = "CPU time of the model.";
            self.family("twin_cpu", help, Some(Unit::Seconds), MetricType::Counter, cpu.into_iter())?;
            self.counter("twin_answers", "Questions that it answered.", None, alone(Some(twin.answers)))?;
            let help = "Questions at which it failed by a mistake in waykeeper.";
            self.counter("twin_panics", help, None, alone(Some(twin.panics)))?;
        }
        let Some(advice) = &published.advice else { return Ok(()) };
        let by_priority = |of: fn(&Estimate) -> f64| {
            [("high", &advice.hpw), ("low", &advice.lpw)]
                .map(|(priority, own)| (vec![("priority", priority.to_owned())], Some(of(own))))
        };
        let help = "Foreseen progress of tenants under the advised layout, against that in force.";
        self.gauge("advice_progress_ratio", help, None, by_priority(|own| own.value))?;
        let help = "Standard error of that progress.";
        self.gauge("advice_progress_error_ratio", help, None, by_priority(|own| own.error))
    }

    fn worth(&mut self, published: &Published) -> fmt::Result {
        let Some(known) = published.record.worth.known() else { return Ok(()) };
        let together = [("high", known.hpw), ("low", known.lpw)];
        let series = |of: fn(&Estimate) -> f64| {
            together.map(|(priority, it)| (vec![("priority", priority.to_owned())], it.as_ref().map(of)))
        };
        let help = "Progress of all tenants of a priority relative to that under the layout as found.";
        self.gauge("worth_ratio", help, None, series(|it| it.value))?;
        self.gauge(
            "worth_error_ratio",
            "Standard error of waykeeper_worth_ratio.",
            None,
            series(|it| it.error),
        )?;
        let help = "Time since progress under the layout as found was measured or foreseen.";
        self.gauge("worth_age", help, Some(Unit::Seconds), alone(Some(known.age_s)))?;
        let from = match known.from {
            WorthSource::Unchanged => "unchanged",
            WorthSource::AsFound => "as-found",
            WorthSource::Look => "look",
            WorthSource::Foreseen => "foreseen",
        };
        let help = "How progress under the layout as found is known; 1 for the present source.";
        self.gauge("worth_source", help, None, [(vec![("from", from.to_owned())], Some(1.0))])?;
        let names = tenant_names(published);
        let tenants = |of: fn(&Estimate) -> f64| {
            let alive = known.tenants.iter().filter(|(id, _)| names.contains_key(id));
            alive.map(|(id, it)| (vec![("tenant", name_of(&names, *id))], Some(of(it)))).collect::<Vec<_>>()
        };
        let help = "Progress of a tenant relative to that under the layout as found.";
        self.gauge("tenant_worth_ratio", help, None, tenants(|it| it.value))?;
        let help = "Standard error of waykeeper_tenant_worth_ratio.";
        self.gauge("tenant_worth_error_ratio", help, None, tenants(|it| it.error))
    }

    fn worst(&mut self, published: &Published) -> fmt::Result {
        let Worst { sufferer, polluter, .. } = Worst::of(published);
        let series = sufferer.map(|own| (vec![("tenant", own.tenant)], Some(own.ratio)));
        let help = "Progress, relative to that under the layout as found, of the tenant that lost most.";
        self.gauge("worst_sufferer_ratio", help, None, series)?;
        let series = polluter.map(|own| {
            let kind = match own.kind {
                PolluterKind::Tenant => "tenant",
                PolluterKind::Device => "device",
            };
            let labels = vec![("kind", kind.to_owned()), ("name", own.name), ("into", own.into)];
            (labels, Some(own.lines_per_s))
        });
        let help =
            "Lines per second that the worst polluter brings into ways of the worst sufferer, or of HPWs.";
        self.gauge("worst_polluter_lines_per_second", help, None, series)?;
        let last = published.last_actions.iter().rev().zip(1..);
        let last = last.map(|(action, place)| {
            let labels = [("policy", action.policy.clone()), ("action", action.action.clone())];
            let labels = [("place", place.to_string())].into_iter().chain(labels).collect::<Labels>();
            (labels, seconds_at(action.at))
        });
        let help = "Times of the last three steps in which knobs were turned; place 1 is the last one.";
        self.gauge("last_action_timestamp", help, Some(Unit::Seconds), last)
    }

    fn tenants(&mut self, published: &Published) -> fmt::Result {
        let names = tenant_names(published);
        let alive = published.groups.len() as f64;
        self.gauge("tenants", "Tenants that run now.", None, alone(Some(alive)))?;
        let infos = published.groups.iter().map(|group| {
            let priority = match group.priority {
                Priority::High => "high",
                Priority::Low => "low",
            };
            let kind = match group.kind {
                WorkloadKind::NonIo => "non-io",
                WorkloadKind::NetworkIo => "network-io",
                WorkloadKind::StorageIo => "storage-io",
            };
            let labels = [("priority", priority.to_owned()), ("kind", kind.to_owned())];
            [("tenant", name_of(&names, group.id))].into_iter().chain(labels).collect::<Labels>()
        });
        self.info("tenant", "Declared properties of a tenant.", infos)?;
        let knobs = &published.record.knobs;
        let labels = |id: WorkloadId| vec![("tenant", name_of(&names, id))];
        let ways = published.groups.iter().map(|group| {
            let mask = knobs.mask(group.id);
            (labels(group.id), mask.map(|mask| f64::from(mask.count())))
        });
        self.gauge("tenant_ways", "LLC ways that a tenant may allocate in.", None, ways)?;
        // All tenants of a class have its mask, and a listed class has at least one tenant.
        let classes = published.classes.iter().map(|class| {
            let mask = class.tenants.iter().find_map(|tenant| knobs.mask(*tenant));
            (vec![("class", class.name.clone())], mask.map(|mask| f64::from(mask.count())))
        });
        let help = "LLC ways of a class of service with tenants in it, by the name of its group.";
        self.gauge("class_ways", help, None, classes)?;
        // In other modes no tenant has a class of its own.
        let managed = published.groups.iter().filter(|_| published.mode == DaemonMode::Manage);
        let grouped = managed.map(|group| {
            let is_grouped = published.groupings.iter().any(|own| own.tenant == group.name);
            (labels(group.id), Some(if is_grouped { 1.0 } else { 0.0 }))
        });
        let help = "1 for a tenant without a class of service of its own.";
        self.gauge("tenant_grouped", help, None, grouped)?;
        let counters = || {
            let all = published.snapshot.iter().flat_map(|snapshot| &snapshot.groups);
            all.filter(|(id, _)| names.contains_key(id))
        };
        let occupied = counters().map(|(id, of)| {
            let bytes = of[WorkloadCounter::OccupancyBytes].value();
            (labels(*id), bytes.map(|bytes| bytes as f64))
        });
        let help = WorkloadCounter::OccupancyBytes.spec().what;
        self.gauge("llc_occupancy", help, Some(Unit::Bytes), occupied)?;
        use WorkloadCounter::{Cycles, Instructions, LlcHits, LlcMisses, MlcHits, MlcMisses};
        for counter in [Instructions, Cycles, MlcMisses, LlcMisses] {
            let name = format!("tenant_{}", counter.name());
            let counted = counters().map(|(id, of)| (labels(*id), of[counter].value()));
            self.counter(&name, counter.spec().what, None, counted)?;
        }
        let references = [
            ("tenant_mlc_references", "Demand accesses that reached the MLC.", MlcHits, MlcMisses),
            (
                "tenant_llc_references",
                "MLC misses: demand accesses that reached the LLC.",
                LlcHits,
                LlcMisses,
            ),
        ];
        for (name, help, hits, misses) in references {
            let sums = counters().map(|(id, of)| (labels(*id), of.sum(hits, misses).value()));
            self.counter(name, help, None, sums)?;
        }
        Ok(())
    }

    fn devices(&mut self, published: &Published) -> fmt::Result {
        let inventory = &published.inventory;
        let infos = inventory.ports.iter().flat_map(|port| {
            let behind = inventory.devices.iter().filter(|device| device.ports.contains(&port.id));
            behind.map(|device| {
                let kind = match device.kind {
                    DeviceKind::Network => "network",
                    DeviceKind::Storage => "storage",
                };
                vec![
                    ("device", port.address.clone()),
                    ("name", device.name.clone()),
                    ("kind", kind.to_owned()),
                ]
            })
        });
        self.info("device", "Devices behind a root port.", infos)?;
        let knobs = &published.record.knobs;
        let dca = inventory.ports.iter().map(|port| {
            let on = knobs.dca(port.id).map(|on| if on { 1.0 } else { 0.0 });
            (vec![("device", port.address.clone())], on)
        });
        let help = "1 if devices behind a root port write into the LLC (DCA on).";
        self.gauge("device_dca_enabled", help, None, dca)?;
        let bytes = inventory.ports.iter().flat_map(|port| {
            let counters = published.snapshot.as_ref().and_then(|snapshot| snapshot.ports.get(&port.id));
            let both = [
                ("read", counters.and_then(|of| of[PortCounter::OutboundBytes].value())),
                ("write", counters.and_then(|of| of[PortCounter::InboundBytes].value())),
            ];
            let labels = |op: &str| vec![("device", port.address.clone()), ("op", op.to_owned())];
            both.map(|(op, bytes)| (labels(op), bytes))
        });
        let help = "Bytes that devices behind a root port read from the host and wrote to it.";
        self.counter("io", help, Some(Unit::Bytes), bytes)
    }

    fn socket(&mut self, published: &Published) -> fmt::Result {
        let llc = published.inventory.llc;
        let size = llc.map(|llc| llc.bytes as f64);
        self.gauge("llc_size", "Size of the LLC.", Some(Unit::Bytes), alone(size))?;
        self.gauge("llc_ways", "Ways of the LLC.", None, alone(llc.map(|llc| f64::from(llc.ways))))?;
        let ways = published.record.knobs.dca_ways().map(|mask| f64::from(mask.count()));
        self.gauge("io_ways", "LLC ways that devices may allocate in.", None, alone(ways))?;
        let Some(of) = published.snapshot.as_ref().map(|snapshot| &snapshot.socket) else { return Ok(()) };
        let by_op = |read: Reading<u64>, write: Reading<u64>| {
            let both = [("read", read), ("write", write)];
            both.map(|(op, value)| (vec![("op", op.to_owned())], value.value()))
        };
        use SocketCounter::{DcaReadHits, DcaReadMisses, DcaWriteHits, DcaWriteMisses};
        let help = "Lines that devices read or wrote, found in a cache or not.";
        let references = by_op(of.sum(DcaReadHits, DcaReadMisses), of.sum(DcaWriteHits, DcaWriteMisses));
        self.counter("io_llc_references", help, None, references)?;
        let help = "Lines that devices read or wrote and that were in no cache.";
        self.counter("io_llc_misses", help, None, by_op(of[DcaReadMisses], of[DcaWriteMisses]))?;
        let memory = by_op(of[SocketCounter::MemoryReadBytes], of[SocketCounter::MemoryWriteBytes]);
        let memory = memory.map(|(mut labels, bytes)| {
            labels.push(("scope", "socket".to_owned()));
            (labels, bytes)
        });
        self.counter(
            "memory",
            "Bytes read from memory and written to it by all cores and devices.",
            Some(Unit::Bytes),
            memory,
        )
    }

    fn gauge(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<Unit>,
        series: impl IntoIterator<Item = (Labels, Option<f64>)>,
    ) -> fmt::Result {
        let series = series.into_iter().filter_map(|(labels, value)| {
            Some((labels, ConstGauge::new(value.filter(|value| value.is_finite())?)))
        });
        self.family(name, help, unit, MetricType::Gauge, series)
    }

    fn counter(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<Unit>,
        series: impl IntoIterator<Item = (Labels, Option<u64>)>,
    ) -> fmt::Result {
        let series =
            series.into_iter().filter_map(|(labels, value)| Some((labels, ConstCounter::new(value?))));
        self.family(name, help, unit, MetricType::Counter, series)
    }

    fn info(&mut self, name: &str, help: &str, series: impl IntoIterator<Item = Labels>) -> fmt::Result {
        let series = series.into_iter().map(|labels| (Labels::new(), Info::new(labels)));
        self.family(name, help, None, MetricType::Info, series)
    }

    /// Writes a family, unless it has no series.
    fn family(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<Unit>,
        kind: MetricType,
        series: impl Iterator<Item = (Labels, impl EncodeMetric)>,
    ) -> fmt::Result {
        let mut series = series.peekable();
        if series.peek().is_none() {
            return Ok(());
        }
        // The labels of an info are part of its value.
        let kind_is_plain = !matches!(kind, MetricType::Info);
        let mut encoder = self.0.encode_descriptor(name, help, unit.as_ref(), kind)?;
        for (labels, value) in series {
            // A single series without labels has no braces.
            if labels.is_empty() && kind_is_plain {
                return value.encode(encoder);
            }
            value.encode(encoder.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

/// One series without labels.
fn alone<T>(value: Option<T>) -> [(Labels, Option<T>); 1] {
    [(Labels::new(), value)]
}

/// The tenants' names as label values. Duplicate labels would make the whole page invalid: tenants with the same name
/// get their id appended.
fn tenant_names(published: &Published) -> BTreeMap<WorkloadId, String> {
    let mut met: BTreeMap<&str, usize> = BTreeMap::new();
    for group in &published.groups {
        *met.entry(&group.name).or_default() += 1;
    }
    let name = |group: &waykeeper_host::Workload| match met.get(group.name.as_str()) {
        Some(1) => group.name.clone(),
        _ => format!("{}#{}", group.name, group.id.0),
    };
    published.groups.iter().map(|group| (group.id, name(group))).collect()
}

fn name_of(names: &BTreeMap<WorkloadId, String>, id: WorkloadId) -> String {
    names.get(&id).cloned().unwrap_or_else(|| id.to_string())
}

/// A time in seconds since 1970.
fn seconds_at(at: SystemTime) -> Option<f64> {
    at.duration_since(SystemTime::UNIX_EPOCH).ok().map(|since| since.as_secs_f64())
}
