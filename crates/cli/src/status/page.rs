//! A status as text: a few lines, tables, and the last decisions with their causes.
//!
//! Returns text. A dash is "not available", never 0. Must not know how the status was obtained.

use comfy_table::{Cell, CellAlignment, ContentArrangement, LineStyle, Table, TableStyle};
use std::fmt::Write;
use waykeeper_host::{Priority, WorkloadKind};
use waykeeper_service::protocol::{
    ActionLine, CauseValue, DaemonStatus, DaemonTotals, HostInfo, LoggedEvent, Polluter, PortStatus,
    TenantStatus, TwinReport, Worst, WorthRatio, WorthSource, WorthStatus,
};
use waykeeper_service::{DaemonMode, Pause, printable};
use waykeeper_units::four_digits;

const STYLE: TableStyle = TableStyle::new()
    .header_separator(LineStyle::none().fill('─').junction('─'))
    .bottom_border(LineStyle::none().fill('─').junction('─'));

/// Decisions that are shown; JSON has all of them.
const RECENT: usize = 10;

/// A step is late when it is this many periods old.
const LATE: f64 = 3.0;

/// The whole page.
pub fn status(status: &DaemonStatus) -> String {
    let mut out = heading(status);
    out.push_str(&worth(&status.worth));
    out.push_str(&worst(&status.worst));
    if !status.tenants.is_empty() {
        let _ = write!(out, "\n{}", tenants(&status.tenants));
    }
    if !status.ports.is_empty() {
        let _ = write!(out, "\n{}", ports(&status.ports));
    }
    out.push_str(&foreseen(status));
    if !status.actions.is_empty() {
        out.push_str("\nlast actions\n");
        status.actions.iter().for_each(|own| out.push_str(&format!("  {}\n", action(own))));
    }
    if !status.recent.is_empty() {
        out.push_str("\nlast decisions\n");
        let from = status.recent.len().saturating_sub(RECENT);
        status.recent[from..].iter().for_each(|reported| out.push_str(&decision(reported)));
    }
    if !status.active_problems.is_empty() {
        out.push_str("\nproblems\n");
        for problem in &status.active_problems {
            // A text about a tenant begins with the word of its kind.
            let is_said =
                problem.text.strip_prefix(problem.kind.as_str()).is_some_and(|rest| rest.starts_with(' '));
            let kind = if is_said { String::new() } else { format!("{}: ", printable(&problem.kind)) };
            let _ = writeln!(out, "  {kind}{}", printable(&problem.text));
        }
    }
    let _ = writeln!(out, "\n{}", totals(&status.totals));
    out
}

fn heading(status: &DaemonStatus) -> String {
    let mode = match status.mode {
        DaemonMode::Manage => "manages",
        DaemonMode::DryRun => "decides but turns no knob (dry run)",
        DaemonMode::Observe => "observes",
    };
    let paused = match status.paused {
        None => "",
        Some(Pause::Hold) => ", paused (knobs keep their values)",
        Some(Pause::Release) => ", paused (knobs are restored to their original values)",
    };
    let hands_over = status.hands_over_within_s.map_or_else(String::new, |left| {
        format!("if it is stopped within {}, the next daemon takes its knobs over\n", seconds(left))
    });
    let late = if status.age_s > LATE * status.period_s { ": the control thread is late" } else { "" };
    let host = &status.host;
    let mut out = format!(
        "waykeeper {} {mode}, policy {} in state {}{paused}\n\
         step {}, {} ago{late}; period {}, running for {}\n\
         {hands_over}{}, {}; cores {}; {}\n",
        printable(&status.waykeeper),
        printable(&status.policy),
        if status.state.is_empty() { "-".to_owned() } else { printable(&status.state) },
        status.step,
        seconds(status.age_s),
        seconds(status.period_s),
        seconds(status.uptime_s),
        printable(&host.chip),
        printable(&host.host),
        host.cores,
        llc(host),
    );
    let io = &status.io;
    let ways = match (io.dca_ways, io.dca_ways_default) {
        (Some(ways), Some(default)) if ways != default => format!("{ways} (power-on value {default})"),
        (ways, _) => dash(ways),
    };
    let _ = writeln!(
        out,
        "DCA ways {ways}; DCA write misses {}, read misses {}; memory reads {}, writes {}",
        dash(io.dca_write_miss_ratio.map(percent)),
        dash(io.dca_read_miss_ratio.map(percent)),
        dash(io.memory_read_bytes_per_s.map(bandwidth)),
        dash(io.memory_write_bytes_per_s.map(bandwidth)),
    );
    out
}

/// What the model does, and what it advises.
pub fn foreseen(status: &DaemonStatus) -> String {
    let mut out = String::new();
    if let Some(TwinReport { state, question_age_s, cpu_s, answers, panics }) = &status.twin {
        let asked = match question_age_s {
            Some(age_s) => format!("last question {} ago", seconds(*age_s)),
            None => "no question yet".to_owned(),
        };
        let _ =
            writeln!(out, "\ntwin {state}: {asked}; {answers} answers, {cpu_s:.1} s of CPU, {panics} panics");
    }
    if let Some(advice) = &status.advice {
        let knobs: Vec<String> = advice.knobs.iter().map(|knob| printable(knob)).collect();
        let percent =
            |progress: f64, error: f64| format!("{:+.1} +- {:.1} %", 100.0 * (progress - 1.0), 100.0 * error);
        let _ = writeln!(
            out,
            "advice: {}; foreseen are HPWs {}, LPWs {}",
            knobs.join("; "),
            percent(advice.hpw_progress, advice.hpw_error),
            percent(advice.lpw_progress, advice.lpw_error),
        );
    }
    out
}

/// What the policy is worth, in one line; nothing from a daemon that does not tell it.
pub fn worth(worth: &WorthStatus) -> String {
    let known = [("HPWs", worth.hpw), ("LPWs", worth.lpw)];
    let known = known.iter().filter_map(|(name, it)| Some(format!("{name} {}", progress((*it)?))));
    let known = known.collect::<Vec<_>>().join(", ");
    match (worth.from, &worth.unknown) {
        (Some(WorthSource::Unchanged), _) => "worth: nothing, the layout as found is in force\n".to_owned(),
        (Some(from), _) => {
            format!("worth: {known} since the state as found, {} ago\n", worth_when(from, worth.age_s))
        }
        (None, Some(why)) => format!("worth: unknown, {}\n", printable(why)),
        (None, None) => String::new(),
    }
}

/// How and when progress under the layout as found was known, without the word *ago*.
pub fn worth_when(from: WorthSource, age_s: Option<f64>) -> String {
    let how = match from {
        WorthSource::Unchanged => "in force",
        WorthSource::AsFound => "measured",
        WorthSource::Look => "looked at",
        WorthSource::Foreseen => "foreseen",
    };
    format!("{how} {}", dash(age_s.map(seconds)))
}

/// Progress as a gain in percent with its standard error.
pub fn progress(it: WorthRatio) -> String {
    format!("{:+.1} +- {:.1} %", 100.0 * (it.ratio - 1.0) + 0.0, 100.0 * it.error)
}

/// Who suffers and who pollutes, a line each; nothing from a daemon that does not tell it.
pub fn worst(worst: &Worst) -> String {
    let sufferer = worst.sufferer.as_ref().map(|own| {
        let it = WorthRatio { ratio: own.ratio, error: own.error };
        format!("{} {}", printable(&own.tenant), progress(it))
    });
    let lines = [
        ("sufferer", sufferer, &worst.no_sufferer),
        ("polluter", worst.polluter.as_ref().map(polluter), &worst.no_polluter),
    ];
    let line = |(what, found, why): (&str, Option<String>, &Option<String>)| {
        let found = found.or_else(|| Some(printable(why.as_deref()?)))?;
        Some(format!("{what}: {found}\n"))
    };
    lines.into_iter().filter_map(line).collect()
}

/// `nic0, 12.3 million lines/s into ways of redis`.
pub fn polluter(own: &Polluter) -> String {
    let lines = own.lines_per_s / 1e6;
    format!(
        "{}, {} million lines/s into ways of {}",
        printable(&own.name),
        four_digits(lines),
        printable(&own.into)
    )
}

/// `15:02:11 a4 lp-zone-grow: fio takes a way`.
pub fn action(own: &ActionLine) -> String {
    // The time of day of an RFC 3339 text.
    let at = own.at.get(11..19).unwrap_or(&own.at);
    format!(
        "{} {} {}: {}",
        printable(at),
        printable(&own.policy),
        printable(&own.action),
        printable(&own.text)
    )
}

/// The tenants.
pub fn tenants(tenants: &[TenantStatus]) -> String {
    if tenants.is_empty() {
        return "no tenants\n".to_owned();
    }
    let mut rows = Vec::new();
    for tenant in tenants {
        let priority = match tenant.priority {
            Priority::High => "high",
            Priority::Low => "low",
        };
        let kind = match tenant.kind {
            WorkloadKind::NonIo => "non-io",
            WorkloadKind::NetworkIo => "network-io",
            WorkloadKind::StorageIo => "storage-io",
        };
        rows.push(vec![
            printable(&tenant.name),
            priority.to_owned(),
            kind.to_owned(),
            dash(Some(&tenant.cores).filter(|cores| !cores.is_empty())),
            dash(tenant.mask),
            dash(tenant.ways),
            dash(tenant.ipc.map(|ipc| format!("{ipc:.2}"))),
            dash(tenant.llc_hit_ratio.map(percent)),
            dash(tenant.llc_occupancy_bytes.map(bytes)),
            listed(&tenant.devices),
            listed(&tenant.shares_mask_with),
        ]);
    }
    let columns = [
        "tenant",
        "priority",
        "kind",
        "cores",
        "mask",
        "ways",
        "IPC",
        "LLC hits",
        "LLC",
        "devices",
        "same mask",
    ];
    table(&columns, &[5, 6, 7, 8], rows)
}

fn ports(ports: &[PortStatus]) -> String {
    let row = |port: &PortStatus| {
        vec![
            printable(&port.address),
            listed(&port.devices),
            dash(port.dca.map(|on| if on { "on" } else { "off" })),
            dash(port.inbound_bytes_per_s.map(bandwidth)),
            dash(port.outbound_bytes_per_s.map(bandwidth)),
        ]
    };
    table(&["root port", "devices", "DCA", "in", "out"], &[3, 4], ports.iter().map(row).collect())
}

/// A decision with its causes, one line.
pub fn decision(event: &LoggedEvent) -> String {
    let causes: Vec<String> = event.causes.iter().map(cause).collect();
    let causes = if causes.is_empty() { String::new() } else { format!(" ({})", causes.join("; ")) };
    format!(
        "  {} step {} {} {}: {}{causes}\n",
        printable(&event.at),
        event.step,
        printable(&event.policy),
        printable(&event.action),
        printable(&event.text),
    )
}

fn cause(cause: &CauseValue) -> String {
    let number = |value: Option<f64>| dash(value.map(four_digits));
    let limit = cause.limit.as_ref();
    let limit = limit
        .map(|limit| format!(", {} {}", printable(limit), number(cause.limit_value)))
        .unwrap_or_default();
    format!("{} {}{limit}", printable(&cause.what), number(cause.value))
}

fn totals(totals: &DaemonTotals) -> String {
    let actions: u64 = totals.actions.values().flat_map(|actions| actions.values()).sum();
    let dropped: u64 = totals.samples_dropped.values().sum();
    format!(
        "since the start: {} steps ({} unreadable, {} missed deadlines), {actions} actions, {dropped} \
         samples dropped, {} reloads ({} refused)",
        totals.steps, totals.blind_steps, totals.missed_deadlines, totals.reloads, totals.reloads_refused
    )
}

fn table(columns: &[&str], right: &[usize], rows: Vec<Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(STYLE).set_content_arrangement(ContentArrangement::Disabled).force_no_tty();
    let cell = |(column, text): (usize, &str)| {
        let side = if right.contains(&column) { CellAlignment::Right } else { CellAlignment::Left };
        Cell::new(text).set_alignment(side)
    };
    table.set_header(columns.iter().copied().enumerate().map(cell));
    for row in &rows {
        table.add_row(row.iter().map(String::as_str).enumerate().map(cell));
    }
    table.lines().fold(String::new(), |text, line| text + line.trim_end() + "\n")
}

pub fn dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

fn listed(names: &[String]) -> String {
    if names.is_empty() { "-".to_owned() } else { printable(&names.join(", ")) }
}

pub fn percent(ratio: f64) -> String {
    format!("{:.1} %", 100.0 * ratio)
}

pub fn bandwidth(bytes_per_s: f64) -> String {
    format!("{:.2} GB/s", bytes_per_s / 1e9)
}

fn llc(host: &HostInfo) -> String {
    let (Some(size), Some(ways), Some(classes)) = (host.llc_bytes, host.llc_ways, host.classes) else {
        return "ways of the LLC not known".to_owned();
    };
    format!("LLC of {} in {ways} ways, {classes} class{}", bytes(size), if classes == 1 { "" } else { "es" })
}

fn bytes(bytes: u64) -> String {
    crate::listing::bytes(bytes)
}

/// A duration in a suitable unit.
pub fn seconds(s: f64) -> String {
    match s {
        s if s < 0.1 => format!("{:.0} ms", s * 1e3),
        s if s < 100.0 => format!("{s:.1} s"),
        s if s < 6_000.0 => format!("{:.0} min", s / 60.0),
        s if s < 360_000.0 => format!("{:.1} h", s / 3_600.0),
        s => format!("{:.1} days", s / 86_400.0),
    }
}
