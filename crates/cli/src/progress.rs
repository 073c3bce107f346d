//! Progress on standard error: a bar or a spinner on a terminal that moves its cursor, else a plain line at intervals.
//! Must not know what is done.

mod run_bar;

pub use run_bar::RunBar;

use crate::{exit, listing};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use waykeeper_lab::table::obeys_escapes;

/// Time between two plain lines: short enough to show progress, long enough for a log.
const EVERY: Duration = Duration::from_secs(10);

/// A bar for a probe or a check.
pub struct PartBar {
    bar: ProgressBar,
    lines: Option<LineTimer>,
}

impl PartBar {
    /// A bar, or plain lines where standard error is no terminal.
    pub fn new() -> PartBar {
        let bar = ProgressBar::new(1);
        let lines = plain_lines(&bar);
        let style = ProgressStyle::with_template("{bar:32} {percent:>3} %  {msg}");
        bar.set_style(style.expect("the template is legal"));
        bar.enable_steady_tick(Duration::from_millis(200));
        PartBar { bar, lines }
    }

    /// Shows how much of the whole is done, in any unit, and the name of what is done now.
    pub fn show(&self, done: u64, total: u64, name: &'static str) {
        self.bar.set_length(total);
        self.bar.set_position(done);
        let (elapsed, share) = (self.bar.elapsed(), done as f64 / total.max(1) as f64);
        let left = match done {
            0 => "time left not known yet".to_owned(),
            _ => time_left(elapsed.as_secs_f64() * (1.0 / share - 1.0)),
        };
        if self.lines.as_ref().is_some_and(|lines| lines.due(elapsed)) {
            exit::eprint_line(&format!("{:.0} %, {name}, {left}", 100.0 * share));
        }
        self.bar.set_message(format!("{name}, {left}"));
    }

    /// Removes the bar.
    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

/// A spinner for a recording.
pub struct Spinner {
    spinner: ProgressBar,
    lines: Option<LineTimer>,
    /// Instructions after which it ends, if limited.
    until: Option<u64>,
}

impl Spinner {
    /// A spinner, or plain lines where standard error is no terminal; it ends after `until` instructions.
    pub fn new(until: Option<u64>) -> Spinner {
        let spinner = ProgressBar::new_spinner();
        let lines = plain_lines(&spinner);
        Spinner { spinner, lines, until }
    }

    /// Shows the progress of the recording.
    pub fn show(&self, progress: waykeeper_inputs::RecordingProgress) {
        let millions = progress.instructions / 1_000_000;
        let until = self.until.map_or_else(String::new, |until| format!(" of {}", until.div_ceil(1_000_000)));
        let records = listing::grouped(progress.records);
        let line = format!("recording: {millions}{until} million instructions, {records} records");
        if self.lines.as_ref().is_some_and(|lines| lines.due(self.spinner.elapsed())) {
            exit::eprint_line(&line);
        }
        self.spinner.set_message(line);
        self.spinner.tick();
    }

    /// Removes the spinner.
    pub fn clear(&self) {
        self.spinner.finish_and_clear();
    }
}

/// A line per second for load, with the work of that second. If standard error is no terminal, each line stays.
pub struct LoadLine {
    spinner: ProgressBar,
    plain: bool,
    before: String,
    last: Mutex<(Duration, u64, u64)>,
}

impl LoadLine {
    /// An empty line; `before` is the prefix of each line.
    pub fn new(before: String) -> LoadLine {
        let spinner = ProgressBar::new_spinner();
        let plain = plain_lines(&spinner).is_some();
        LoadLine { spinner, plain, before, last: Mutex::default() }
    }

    /// Shows the progress: commands and bytes after a time.
    pub fn show(&self, elapsed: Duration, commands: u64, bytes: u64) {
        self.line(&format!("{:.0} s", elapsed.as_secs_f64()), elapsed, commands, bytes);
    }

    /// The same in simulated time, which is much slower than wall-clock time.
    pub fn show_simulated(&self, elapsed: Duration, commands: u64, bytes: u64) {
        self.line(&format!("{:.3} simulated s", elapsed.as_secs_f64()), elapsed, commands, bytes);
    }

    fn line(&self, clock: &str, elapsed: Duration, commands: u64, bytes: u64) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let seconds = elapsed.saturating_sub(last.0).as_secs_f64().max(1e-9);
        let per_s = (commands - last.1) as f64 / seconds;
        let mib_per_s = (bytes - last.2) as f64 / seconds / f64::from(1 << 20);
        *last = (elapsed, commands, bytes);
        let (before, count) = (&self.before, listing::grouped(commands));
        let line = format!("{before}{clock}: {count} commands, {per_s:.0}/s, {mib_per_s:.1} MiB/s");
        if self.plain {
            exit::eprint_line(&line);
        }
        self.spinner.set_message(line);
        self.spinner.tick();
    }

    /// Removes the line.
    pub fn clear(&self) {
        self.spinner.finish_and_clear();
    }
}

/// If standard error is no terminal, hides the bar; plain lines are written instead.
fn plain_lines(bar: &ProgressBar) -> Option<LineTimer> {
    hidden_without_terminal(bar).then(LineTimer::default)
}

/// Hides the bar if standard error is no terminal that moves its cursor, and says so.
fn hidden_without_terminal(bar: &ProgressBar) -> bool {
    let plain = !obeys_escapes(&std::io::stderr());
    if plain {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    plain
}

/// A time that is left, in words.
fn time_left(seconds: f64) -> String {
    match seconds {
        seconds if seconds < 120.0 => format!("about {seconds:.0} s left"),
        seconds if seconds < 7200.0 => format!("about {:.0} min left", seconds / 60.0),
        seconds => format!("about {:.1} h left", seconds / 3600.0),
    }
}

/// Decides when the next plain line is due.
#[derive(Default)]
struct LineTimer {
    last_line: Mutex<Duration>,
}

impl LineTimer {
    /// True once per [`EVERY`], the first time after the first [`EVERY`].
    fn due(&self, elapsed: Duration) -> bool {
        let mut last_line = self.last_line.lock().unwrap_or_else(PoisonError::into_inner);
        let due = elapsed >= *last_line + EVERY;
        if due {
            *last_line = elapsed;
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_left_has_a_fitting_unit() {
        let left = [0.4, 119.0, 121.0, 7300.0].map(time_left);
        assert_eq!(left, ["about 0 s left", "about 119 s left", "about 2 min left", "about 2.0 h left"]);
    }

    #[test]
    fn a_line_is_due_every_ten_seconds_and_not_at_once() {
        let timer = LineTimer::default();
        let due = [0, 9, 10, 11, 19, 25, 34, 35].map(|s| timer.due(Duration::from_secs(s)));
        assert_eq!(due, [false, false, true, false, false, true, false, true]);
    }
}
