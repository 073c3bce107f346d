//! A status on a terminal: never wider and never longer than it.
//!
//! What matters most comes first: mode and policy, what the policy is worth, who suffers and who pollutes, the last actions,
//! problems, then tenants, then the rest as far as there is room. A dash is "not available", never 0. Returns text; must
//! not know how the status was obtained.

use super::page::{bandwidth, dash, percent, progress, seconds, worth_when};
use console::{Style, measure_text_width, pad_str, truncate_str};
use waykeeper_host::Priority;
use waykeeper_lab::table::Ink;
use waykeeper_service::protocol::{
    ActionLine, DaemonStatus, PortStatus, TenantStatus, Worst, WorthRatio, WorthSource,
};
use waykeeper_service::{DaemonMode, Pause, printable};

/// A step is late when it is this many periods old.
const LATE: f64 = 3.0;
/// Problems that are shown before the tenants; more of them only where there is room.
const FIRST_PROBLEMS: usize = 2;
/// Longest name in a table, columns.
const NAME_COLUMNS: usize = 16;

/// Size of a terminal and whether it has colours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Screen {
    /// Its columns.
    pub columns: usize,
    /// Its rows. The last one stays free for the cursor.
    pub rows: usize,
    /// Whether colour is allowed.
    pub ink: Ink,
}

/// Lines that are shown together or in part.
struct Section {
    lines: Vec<String>,
    /// How many of them are shown.
    shown: usize,
    /// What shows all of them.
    all: &'static str,
}

impl Section {
    fn new(lines: Vec<String>, all: &'static str) -> Section {
        Section { lines, shown: 0, all }
    }

    /// Takes as many more lines as it has and as are left, at most `most` in all.
    fn take(&mut self, most: usize, left: &mut usize) {
        let more = self.lines.len().min(most).saturating_sub(self.shown).min(*left);
        (self.shown, *left) = (self.shown + more, *left - more);
    }

    /// Takes all lines or none.
    fn take_all(&mut self, left: &mut usize) {
        if self.lines.len() <= *left {
            self.take(usize::MAX, left);
        }
    }

    /// The lines that are shown; the last of them says how many are not.
    fn text(&self) -> Vec<String> {
        let hidden = self.lines.len() - self.shown;
        if hidden == 0 || self.shown == 0 {
            return self.lines[..self.shown].to_vec();
        }
        let mut lines = self.lines[..self.shown - 1].to_vec();
        lines.push(format!("and {} more: {}", hidden + 1, self.all));
        lines
    }
}

/// The status, with a note below the heading, as lines for this terminal, each with its end.
pub fn view(status: &DaemonStatus, note: Option<&str>, screen: Screen) -> String {
    let ink = Colours(screen.ink);
    let mut head = vec![ink.bold(&heading(status))];
    head.extend(note.map(|note| ink.bad(&format!("! {}", printable(note)))));
    if status.age_s > LATE * status.period_s {
        head.push(ink.bad(&format!("the control thread is late: last step {} ago", seconds(status.age_s))));
    }
    head.extend([
        host(status),
        memory(status),
        worth(status, ink),
        sufferer(&status.worst, ink),
        polluter(&status.worst),
    ]);
    let problems = status
        .active_problems
        .iter()
        .map(|problem| ink.notice(&format!("{}: {}", printable(&problem.kind), printable(&problem.text))));
    let details = "`waykeeper status --details`";
    let mut head = Section::new(head, details);
    let mut tenants = Section::new(tenants(status, screen.columns, ink), "`waykeeper tenants`");
    let mut ports = Section::new(ports(&status.ports, screen.columns, ink), details);
    let mut foreseen =
        Section::new(super::page::foreseen(status).lines().map(str::to_owned).collect(), details);
    let mut actions = Section::new(actions(&status.actions, ink), details);
    let mut problems = Section::new(problems.collect(), details);

    let mut left = screen.rows.saturating_sub(1);
    head.take(usize::MAX, &mut left);
    actions.take_all(&mut left);
    problems.take(FIRST_PROBLEMS, &mut left);
    tenants.take(usize::MAX, &mut left);
    problems.take(usize::MAX, &mut left);
    foreseen.lines.retain(|line| !line.is_empty());
    foreseen.take_all(&mut left);
    ports.take_all(&mut left);
    let mut out = String::new();
    for (index, section) in [head, tenants, ports, foreseen, actions, problems].into_iter().enumerate() {
        // A free line between two sections, where there is room.
        if index > 0 && section.shown > 0 && left > 0 {
            out.push('\n');
            left -= 1;
        }
        for line in section.text() {
            out.push_str(&truncate_str(line.trim_end(), screen.columns, "…"));
            out.push('\n');
        }
    }
    out
}

/// Colours, or none.
#[derive(Clone, Copy)]
struct Colours(Ink);

impl Colours {
    fn styled(self, style: Style, text: &str) -> String {
        style.force_styling(self.0 == Ink::Colour).apply_to(text).to_string()
    }

    fn bold(self, text: &str) -> String {
        self.styled(Style::new().bold(), text)
    }

    fn dim(self, text: &str) -> String {
        self.styled(Style::new().dim(), text)
    }

    fn notice(self, text: &str) -> String {
        self.styled(Style::new().yellow(), text)
    }

    fn bad(self, text: &str) -> String {
        self.styled(Style::new().red(), text)
    }

    /// Green for a gain beyond its error, red for such a loss.
    fn judged(self, it: WorthRatio, text: &str) -> String {
        match it {
            it if it.ratio - it.error > 1.0 => self.styled(Style::new().green(), text),
            it if it.ratio + it.error < 1.0 => self.bad(text),
            _ => text.to_owned(),
        }
    }
}

fn heading(status: &DaemonStatus) -> String {
    let mode = match (status.mode, status.paused) {
        (DaemonMode::Manage, None) => "manages",
        (DaemonMode::Manage, Some(Pause::Hold)) => "is paused (knobs keep their values)",
        (DaemonMode::Manage, Some(Pause::Release)) => "is paused (knobs are restored)",
        (DaemonMode::DryRun, None) => "decides only (dry run)",
        (DaemonMode::Observe, None) => "observes",
        (DaemonMode::DryRun | DaemonMode::Observe, Some(_)) => "is paused",
    };
    let state = if status.state.is_empty() { "-".to_owned() } else { printable(&status.state) };
    let hands_over = status
        .hands_over_within_s
        .map_or_else(String::new, |left| format!("; hands over for {}", seconds(left)));
    format!(
        "waykeeper {mode}: policy {}, state {state}; step {}, up {}{hands_over}",
        printable(&status.policy),
        status.step,
        seconds(status.uptime_s),
    )
}

fn host(status: &DaemonStatus) -> String {
    let host = &status.host;
    let ways = status.io.dca_ways.map_or_else(|| "-".to_owned(), |ways| ways.to_string());
    let llc = match (host.llc_bytes, host.llc_ways) {
        (Some(bytes), Some(ways)) => format!("LLC of {} in {ways} ways", mebibytes(bytes)),
        _ => "ways of the LLC not known".to_owned(),
    };
    format!("{llc}, DCA ways {ways}; {}, {}", printable(&host.chip), printable(&host.host),)
}

fn memory(status: &DaemonStatus) -> String {
    let io = &status.io;
    format!(
        "memory reads {}, writes {}; DCA misses: writes {}, reads {}",
        dash(io.memory_read_bytes_per_s.map(bandwidth)),
        dash(io.memory_write_bytes_per_s.map(bandwidth)),
        dash(io.dca_write_miss_ratio.map(percent)),
        dash(io.dca_read_miss_ratio.map(percent)),
    )
}

/// `worth: HPWs +12.0 +- 4.0 %, LPWs -1.0 +- 0.5 %, looked at 42.0 s ago`.
fn worth(status: &DaemonStatus, ink: Colours) -> String {
    let worth = &status.worth;
    let known = [("HPWs", worth.hpw), ("LPWs", worth.lpw)].into_iter().filter_map(|(name, it)| {
        let it = it?;
        Some(ink.judged(it, &format!("{name} {}", progress(it))))
    });
    let known = known.collect::<Vec<_>>().join(", ");
    match (worth.from, &worth.unknown) {
        (Some(WorthSource::Unchanged), _) => "worth: nothing, the layout as found is in force".to_owned(),
        (Some(from), _) => format!("worth: {known}, {} ago", worth_when(from, worth.age_s)),
        (None, Some(why)) => format!("worth: unknown, {}", printable(why)),
        (None, None) => "worth: -".to_owned(),
    }
}

fn sufferer(worst: &Worst, ink: Colours) -> String {
    match &worst.sufferer {
        Some(own) => {
            let it = WorthRatio { ratio: own.ratio, error: own.error };
            format!("sufferer: {}", ink.judged(it, &format!("{} {}", printable(&own.tenant), progress(it))))
        }
        None => format!("sufferer: {}", reason(worst.no_sufferer.as_deref())),
    }
}

fn polluter(worst: &Worst) -> String {
    let found = worst.polluter.as_ref().map(super::page::polluter);
    format!("polluter: {}", found.unwrap_or_else(|| reason(worst.no_polluter.as_deref())))
}

fn reason(why: Option<&str>) -> String {
    printable(why.unwrap_or("-"))
}

/// A cell and whether it is to the right of its column.
type Cell = (String, bool);

/// Rows under titles, as many columns as the terminal has room for; the first ones matter most.
fn table(titles: &[&str], rows: &[Vec<Cell>], columns: usize, ink: Colours) -> Vec<String> {
    let widths: Vec<usize> = (0..titles.len())
        .map(|column| {
            let cells = rows.iter().map(|row| measure_text_width(&row[column].0));
            cells.max().unwrap_or(0).max(measure_text_width(titles[column]))
        })
        .collect();
    let mut used = 0;
    let fitting = widths.iter().take_while(|width| {
        used += **width + 2;
        used - 2 <= columns
    });
    let count = fitting.count().max(1);
    let line = |cells: &mut dyn Iterator<Item = (&str, bool)>| {
        let padded = cells.zip(&widths).map(|((text, right), width)| {
            let side = if right { console::Alignment::Right } else { console::Alignment::Left };
            pad_str(text, *width, side, None).into_owned()
        });
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    let is_right = |column: usize| rows.iter().any(|row| row[column].1);
    let head =
        line(&mut titles.iter().enumerate().take(count).map(|(index, title)| (*title, is_right(index))));
    let body =
        rows.iter().map(|row| line(&mut row.iter().take(count).map(|(text, right)| (text.as_str(), *right))));
    std::iter::once(ink.dim(&head)).chain(body).collect()
}

fn tenants(status: &DaemonStatus, columns: usize, ink: Colours) -> Vec<String> {
    let rows: Vec<Vec<Cell>> = status.tenants.iter().map(|tenant| tenant_row(status, tenant, ink)).collect();
    if rows.is_empty() {
        return vec!["no tenant runs".to_owned()];
    }
    let titles = ["tenant", "prio", "worth", "mask", "IPC", "LLC hits", "LLC", "devices", "cores"];
    table(&titles, &rows, columns, ink)
}

fn tenant_row(status: &DaemonStatus, tenant: &TenantStatus, ink: Colours) -> Vec<Cell> {
    let priority = match tenant.priority {
        Priority::High => "high",
        Priority::Low => "low",
    };
    let worth = match status.worth.tenants.get(&tenant.name) {
        Some(it) if status.worth.from != Some(WorthSource::Unchanged) => ink.judged(*it, &progress(*it)),
        _ => "-".to_owned(),
    };
    let devices = if tenant.devices.is_empty() { "-".to_owned() } else { tenant.devices.join(", ") };
    let cores = Some(&tenant.cores).filter(|cores| !cores.is_empty());
    let left = |text: String| (text, false);
    let right = |text: String| (text, true);
    vec![
        left(named(&tenant.name)),
        left(priority.to_owned()),
        right(worth),
        left(dash(tenant.mask)),
        right(dash(tenant.ipc.map(|ipc| format!("{ipc:.2}")))),
        right(dash(tenant.llc_hit_ratio.map(percent))),
        right(dash(tenant.llc_occupancy_bytes.map(mebibytes))),
        left(named(&devices)),
        left(dash(cores)),
    ]
}

fn ports(ports: &[PortStatus], columns: usize, ink: Colours) -> Vec<String> {
    if ports.is_empty() {
        return Vec::new();
    }
    let row = |port: &PortStatus| -> Vec<Cell> {
        let devices = if port.devices.is_empty() { "-".to_owned() } else { port.devices.join(", ") };
        vec![
            (named(&devices), false),
            (dash(port.dca.map(|on| if on { "on" } else { "off" })), false),
            (dash(port.inbound_bytes_per_s.map(bandwidth)), true),
            (dash(port.outbound_bytes_per_s.map(bandwidth)), true),
            (printable(&port.address), false),
        ]
    };
    let rows: Vec<Vec<Cell>> = ports.iter().map(row).collect();
    table(&["devices", "DCA", "in", "out", "root port"], &rows, columns, ink)
}

fn actions(actions: &[ActionLine], ink: Colours) -> Vec<String> {
    if actions.is_empty() {
        return vec![ink.dim("no knob was turned yet")];
    }
    let lines = actions.iter().map(super::page::action);
    std::iter::once(ink.dim("last actions")).chain(lines).collect()
}

/// One unit for all, so that a column of them can be compared.
fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

/// A name for a table: printable, and not too long.
fn named(name: &str) -> String {
    truncate_str(&printable(name), NAME_COLUMNS, "…").into_owned()
}

#[cfg(test)]
#[path = "view_tests.rs"]
mod tests;
