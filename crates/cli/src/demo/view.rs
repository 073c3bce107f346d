//! What the demonstration shows: on a terminal the status page after every step, else a line for each decision and one
//! every few seconds.
//!
//! Must not know the host or the daemon, only the daemon's status.

use crate::doctor::as_called;
use crate::exit::Failure;
use crate::out;
use crate::status::view::Screen;
use crate::status::{page, screen, view};
use console::truncate_str;
use std::time::Duration;
use waykeeper_lab::registry;
use waykeeper_machine::Scenario;
use waykeeper_service::printable;
use waykeeper_service::protocol::{DaemonStatus, LoggedEvent};

/// Time between two plain lines without a decision.
const EVERY: Duration = Duration::from_secs(3);

/// Lag of the model from which it is shown, ns of the server's clock.
const LATE_NS: u64 = 1_000_000_000;

/// The view.
pub struct DemoView {
    heading: String,
    /// Columns and rows of the last page.
    size: Option<(usize, usize)>,
    /// The step on the screen; none yet.
    shown: Option<u64>,
    /// When the last plain line was printed, since the start.
    line_at: Duration,
    /// The last decision that was printed, and how many of its step.
    told: Option<(u64, usize)>,
    /// False once the output is closed.
    is_open: bool,
}

impl DemoView {
    /// Two lines say what one sees and what to try next. `argument` is the scenario as the user named it.
    pub fn new(scenario: &Scenario, argument: &str, policy: &str) -> DemoView {
        let other = if policy == "default" { "waykeeper" } else { "default" };
        let again =
            if argument == registry::FLAGSHIP { String::new() } else { format!(" {}", printable(argument)) };
        let heading = format!(
            "{} on a virtual {}: policy {policy} turns its masks and DCA.\n\
             q ends it. Next: {}; your host: {}\n",
            scenario.name,
            scenario.chip.name,
            as_called(&format!("waykeeper demo{again} --policy {other}")),
            as_called("waykeeper init"),
        );
        DemoView { heading, size: None, shown: None, line_at: Duration::ZERO, told: None, is_open: true }
    }

    /// A line about a step of the demonstration.
    pub fn tell(&mut self, line: &str) -> Result<(), Failure> {
        self.print(&format!("{line}\n"))
    }

    /// Shows the daemon's state; false if the output is closed.
    pub fn show(&mut self, status: &DaemonStatus, lag_ns: u64, since: Duration) -> Result<bool, Failure> {
        // Before the first sample there is nothing to see.
        match screen() {
            _ if status.state.is_empty() => {}
            Some(screen) => self.page(screen, status, lag_ns)?,
            None => self.lines(status, lag_ns, since)?,
        }
        Ok(self.is_open)
    }

    fn page(&mut self, screen: Screen, status: &DaemonStatus, lag_ns: u64) -> Result<(), Failure> {
        let size = Some((screen.columns, screen.rows));
        let is_same = std::mem::replace(&mut self.size, size) == size;
        if self.shown.replace(status.step) == Some(status.step) && is_same {
            return Ok(());
        }
        let heading =
            self.heading.lines().map(|line| truncate_str(line, screen.columns, "…").into_owned() + "\n");
        let heading: String = heading.collect::<String>() + "\n";
        let rest = Screen { rows: screen.rows.saturating_sub(heading.lines().count()), ..screen };
        let text = heading + &view::view(status, late(lag_ns).as_deref(), rest);
        // Each line replaces one of the page before (ECMA-48: cursor home, erase to the end of the line, of the screen).
        let erase = if is_same { "" } else { "\x1b[2J" };
        self.print(&format!("\x1b[H{erase}{}\x1b[J", text.replace('\n', "\x1b[K\n")))
    }

    fn lines(&mut self, status: &DaemonStatus, lag_ns: u64, since: Duration) -> Result<(), Failure> {
        let mut text = String::new();
        if self.shown.replace(status.step).is_none() {
            text.push_str(&self.heading);
        }
        for event in self.untold(&status.recent) {
            text.push_str(&page::decision(event));
        }
        if text.is_empty() && since < self.line_at + EVERY {
            return Ok(());
        }
        self.line_at = since;
        text.push_str(&summary(status, lag_ns));
        self.print(&text)
    }

    /// Decisions that were not printed yet.
    fn untold<'e>(&mut self, recent: &'e [LoggedEvent]) -> Vec<&'e LoggedEvent> {
        let mut fresh = Vec::new();
        let (mut step, mut number) = (u64::MAX, 0);
        for event in recent {
            number = if event.step == step { number + 1 } else { 0 };
            step = event.step;
            if self.told.is_none_or(|told| (step, number) > told) {
                self.told = Some((step, number));
                fresh.push(event);
            }
        }
        fresh
    }

    fn print(&mut self, text: &str) -> Result<(), Failure> {
        if self.is_open {
            self.is_open = out::text_while_open(text)?;
        }
        Ok(())
    }
}

/// The state in one line.
fn summary(status: &DaemonStatus, lag_ns: u64) -> String {
    let ways = status.io.dca_ways.map_or_else(|| "-".to_owned(), |ways| ways.to_string());
    let masks: Vec<String> = status
        .tenants
        .iter()
        .map(|tenant| {
            let mask = tenant.mask.map_or_else(|| "-".to_owned(), |mask| mask.to_string());
            let ipc = tenant.ipc.map_or_else(|| "-".to_owned(), |ipc| format!("{ipc:.2}"));
            format!("{} {mask} IPC {ipc}", printable(&tenant.name))
        })
        .collect();
    format!(
        "step {}, state {}, DCA ways {ways}; {}\n{}{}{}",
        status.step,
        printable(&status.state),
        masks.join(", "),
        page::worth(&status.worth),
        page::worst(&status.worst),
        late(lag_ns).map(|line| line + "\n").unwrap_or_default()
    )
}

/// A line if the model does not keep up.
fn late(lag_ns: u64) -> Option<String> {
    let lag_s = lag_ns as f64 * 1e-9;
    (lag_ns >= LATE_NS)
        .then(|| format!("the model is {lag_s:.1} s behind its clock; a lower --speed or fewer --sets help"))
}
