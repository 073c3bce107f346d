//! The bar on standard error, on a terminal only, with the ratio of simulated to wall time.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::time::Duration;
use waykeeper_lab::runner::Progress;

/// A bar for simulations.
pub struct Bar(ProgressBar);

impl Bar {
    /// A bar; it draws nothing where standard error is no terminal.
    pub fn new() -> Bar {
        let bar = ProgressBar::new(0);
        if !std::io::stderr().is_terminal() {
            bar.set_draw_target(ProgressDrawTarget::hidden());
        }
        let style = ProgressStyle::with_template("{bar:32} {percent:>3} %  {msg}  {eta} left");
        bar.set_style(style.expect("the template is legal"));
        bar.enable_steady_tick(Duration::from_millis(200));
        Bar(bar)
    }

    /// Shows how far the simulations are.
    pub fn show(&self, progress: Progress) {
        self.0.set_length(progress.total_ns);
        self.0.set_position(progress.done_ns);
        let wall_s = self.0.elapsed().as_secs_f64();
        let ratio = progress.done_ns as f64 * 1e-9 / wall_s.max(1e-9);
        self.0.set_message(format!(
            "{}/{} simulations, {ratio:.2} simulated s per s",
            progress.jobs_done, progress.jobs
        ));
    }

    /// Takes the bar away.
    pub fn clear(&self) {
        self.0.finish_and_clear();
    }
}

/// A spinner for work of unknown length.
pub struct Spinner(ProgressBar);

impl Spinner {
    /// A spinner; it draws nothing where standard error is no terminal.
    pub fn new() -> Spinner {
        let spinner = ProgressBar::new_spinner();
        if !std::io::stderr().is_terminal() {
            spinner.set_draw_target(ProgressDrawTarget::hidden());
        }
        Spinner(spinner)
    }

    /// Shows a line.
    pub fn show(&self, line: String) {
        self.0.set_message(line);
        self.0.tick();
    }

    /// Takes it away.
    pub fn clear(&self) {
        self.0.finish_and_clear();
    }
}
