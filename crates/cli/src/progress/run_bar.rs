//! Progress of simulations: which policies, seeds and points run, how far each is, and the time left.
//!
//! A thread of its own shows it, so that a line comes in time while a single simulation takes minutes. Must not know what
//! a simulation does.

use super::{hidden_without_terminal, time_left};
use crate::exit;
use indicatif::{ProgressBar, ProgressStyle};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use waykeeper_lab::msl::{self, Knee, SearchWatcher};
use waykeeper_lab::results::SweepPoint;
use waykeeper_lab::runner::{RunName, RunStart, RunWatcher, SimulationProgress};
use waykeeper_lab::table;

/// Time between two frames on a terminal.
const FRAME: Duration = Duration::from_millis(200);
/// When the line that says what is run appears: shorter runs need none.
const FIRST: Duration = Duration::from_secs(2);
/// Time between two lines without a terminal: short enough to show progress, long enough for a log.
const EVERY: Duration = Duration::from_secs(10);
/// Simulations that a line names.
const NAMED: usize = 3;

/// A bar for simulations, or plain lines where standard error is no terminal.
pub struct RunBar {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    bar: ProgressBar,
    plain: bool,
    started: Instant,
    /// Set when the user wants the command to end.
    stop: Arc<AtomicBool>,
    /// Whether the command itself set `stop`.
    failed: Box<dyn Fn() -> bool + Send + Sync>,
    state: Mutex<State>,
    over: Condvar,
}

#[derive(Default)]
struct State {
    /// What is run, in a line.
    what: String,
    /// `runs` or `searches`.
    unit: &'static str,
    names: Vec<String>,
    /// Simulated time of each, ns.
    passed_ns: Vec<u64>,
    /// Those that have begun and not ended, and when each advanced last: some wait for a thread.
    active: BTreeMap<usize, Duration>,
    /// What is shown; none before the first control interval.
    progress: Option<SimulationProgress>,
    /// None until the simulations begin.
    start: Option<(RunStart, Duration)>,
    points: usize,
    points_done: usize,
    said_what: bool,
    said_stop: bool,
    last_line: Duration,
    over: bool,
}

impl RunBar {
    /// A bar for a command that reads its scenario first. `stop` is set when the user wants it to end, or when it `failed`.
    pub fn new(
        scenario: &str,
        stop: Arc<AtomicBool>,
        failed: impl Fn() -> bool + Send + Sync + 'static,
    ) -> RunBar {
        let failed = Box::new(failed);
        let bar = ProgressBar::new(1);
        let plain = hidden_without_terminal(&bar);
        // Two lines, so that a terminal of 80 columns cuts neither the speed nor what runs now.
        let style = ProgressStyle::with_template("{bar:16} {prefix}\n{wide_msg}");
        bar.set_style(style.expect("the template is legal"));
        let state = State { what: format!("{scenario}: reading"), unit: "runs", ..State::default() };
        let (started, state, over) = (Instant::now(), Mutex::new(state), Condvar::new());
        let shared = Arc::new(Shared { bar, plain, started, stop, failed, state, over });
        let thread = {
            let shared = shared.clone();
            std::thread::Builder::new().name("waykeeper-progress".to_owned()).spawn(move || shared.show())
        };
        // Without the thread there is no progress to see, and the command works.
        RunBar { shared, thread: thread.ok() }
    }

    /// Says what will run: `what` in a line, each simulation or search by its name, and the points of the sweep.
    pub fn plan(&self, what: String, unit: &'static str, names: &[RunName], points: usize) {
        let mut state = self.shared.lock();
        let name = |name: &RunName| {
            let mut text = format!("{} seed {}", name.policy, name.seed);
            for (key, value) in &name.at {
                let short = key.rsplit('.').next().unwrap_or(key);
                let _ = write!(text, " {short}={value}");
            }
            text
        };
        state.names = names.iter().map(name).collect();
        state.passed_ns = vec![0; names.len()];
        (state.what, state.unit, state.points) = (what, unit, points);
    }

    /// Removes the bar.
    pub fn clear(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.shared.lock().over = true;
        self.shared.over.notify_all();
        if let Some(thread) = self.thread.take() {
            // A panic in it was printed.
            let _ = thread.join();
        }
        self.shared.bar.finish_and_clear();
    }
}

impl Drop for RunBar {
    fn drop(&mut self) {
        self.end();
    }
}

impl RunWatcher for RunBar {
    fn begins(&self, start: RunStart) {
        self.shared.lock().start = Some((start, self.shared.started.elapsed()));
    }

    fn progressed(&self, progress: SimulationProgress) {
        let mut state = self.shared.lock();
        if let Some(passed_ns) = state.passed_ns.get_mut(progress.run) {
            *passed_ns += progress.passed_ns;
        }
        if progress.ended {
            state.active.remove(&progress.run);
        } else {
            state.active.insert(progress.run, self.shared.started.elapsed());
        }
        // Calls of several threads may come in another order than they counted.
        let newest = state.progress.map_or(progress, |before| SimulationProgress {
            done_ns: before.done_ns.max(progress.done_ns),
            shared_ns: before.shared_ns.max(progress.shared_ns),
            jobs_done: before.jobs_done.max(progress.jobs_done),
            ..progress
        });
        state.progress = Some(newest);
    }

    fn point_done(&self, point: &SweepPoint) {
        let line = {
            let mut state = self.shared.lock();
            state.points_done += 1;
            format!("point {} of {}, {}", state.points_done, state.points, table::point(point))
        };
        self.shared.say(&line);
    }

    fn warn(&self, line: &str) {
        self.shared.say(&format!("warning: {line}"));
    }
}

impl SearchWatcher for RunBar {
    fn found(&self, knee: &Knee) {
        if self.shared.lock().names.len() > 1 {
            self.shared.say(&msl::line(knee));
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A line that stays.
    fn say(&self, line: &str) {
        self.bar.suspend(|| exit::eprint_line(line));
    }

    /// Shows the progress until it is over.
    fn show(&self) {
        let mut state = self.lock();
        while !state.over {
            let elapsed = self.started.elapsed();
            let is_interrupted = self.stop.load(Ordering::Relaxed) && !(self.failed)();
            let lines = state.due(elapsed, self.plain, is_interrupted);
            if !self.plain {
                let (share, pace, running) = (state.share(), state.pace(elapsed), state.running());
                drop(state);
                self.bar.set_length(1000);
                self.bar.set_position((1000.0 * share) as u64);
                self.bar.set_prefix(pace);
                self.bar.set_message(running);
                self.bar.tick();
            } else {
                drop(state);
            }
            lines.iter().for_each(|line| self.say(line));
            let waited = self.over.wait_timeout(self.lock(), FRAME);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl State {
    /// The lines that are due.
    fn due(&mut self, elapsed: Duration, plain: bool, stop: bool) -> Vec<String> {
        let mut lines = Vec::new();
        if !self.said_what && elapsed >= FIRST && self.start.is_some() {
            self.said_what = true;
            lines.push(self.what.clone() + &self.kept());
        }
        if plain && elapsed >= self.last_line + EVERY {
            self.last_line = elapsed;
            let (pace, running) = (self.pace(elapsed), self.running());
            lines.push(if running.is_empty() { pace } else { format!("{pace}; {running}") });
        }
        if stop && !self.said_stop {
            self.said_stop = true;
            lines.push("interrupted: showing what is finished; Ctrl-C again ends at once".to_owned());
        }
        lines
    }

    fn kept(&self) -> String {
        match &self.start {
            Some((start, _)) if start.kept > 0 => format!("; {} are kept and not run again", start.kept),
            _ => String::new(),
        }
    }

    /// Simulated time done, ns, the control intervals that are being simulated included.
    fn done_ns(&self) -> u64 {
        let inside_ns = self.start.as_ref().map_or(0, |(start, _)| start.inside_ns.load(Ordering::Relaxed));
        self.progress.map_or(0, |progress| progress.done_ns) + inside_ns.max(0) as u64
    }

    /// Part that is done, 0..1.
    fn share(&self) -> f64 {
        let total_ns = self.start.as_ref().map_or(0, |(start, _)| start.total_ns);
        (self.done_ns() as f64 / total_ns.max(1) as f64).min(1.0)
    }

    /// How much is done, the time left and the speed.
    fn pace(&self, elapsed: Duration) -> String {
        let Some((start, began)) = &self.start else { return self.what.clone() };
        let mut text = format!("{:.0} %, ", 100.0 * self.share());
        let ended = self.progress.map_or(0, |progress| progress.jobs_done) as usize;
        let _ = write!(text, "{} of {} {}", start.kept + ended, start.kept + start.to_run, self.unit);
        // What was taken over from an equal simulation took no time, and the rest of a simulation may not be taken over.
        let shared_ns = self.progress.map_or(0, |progress| progress.shared_ns);
        let simulated_ns = self.done_ns().saturating_sub(shared_ns);
        let left_ns = start.total_ns.saturating_sub(self.done_ns());
        let wall_s = elapsed.saturating_sub(*began).as_secs_f64().max(1e-3);
        let speed = simulated_ns as f64 * 1e-9 / wall_s;
        // The first moments say little: memory is being laid out.
        if simulated_ns == 0 || wall_s < FIRST.as_secs_f64() {
            return text + ", time left not known yet";
        }
        let digits = if speed < 0.1 { 4 } else { 2 };
        let left = time_left(left_ns as f64 * 1e-9 / speed);
        let _ = write!(text, ", {left}, {speed:.digits$} simulated s per s");
        text
    }

    /// The simulations that run now: policy, seed and point, and how much of each is done.
    fn running(&self) -> String {
        let Some((start, _)) = &self.start else { return String::new() };
        let each_ns = (start.total_ns / start.to_run.max(1) as u64).max(1);
        let mut running: Vec<(&usize, &Duration)> = self.active.iter().collect();
        running.sort_by_key(|(_, last)| std::cmp::Reverse(**last));
        let newest = running.first().map_or(Duration::ZERO, |(_, last)| **last);
        let name = |(run, _): &(&usize, &Duration)| {
            let name = self.names.get(**run).map_or("", String::as_str);
            let share = self.passed_ns.get(**run).map_or(0.0, |ns| *ns as f64 / each_ns as f64);
            format!("{name} {:.0} %", 100.0 * share.min(1.0))
        };
        let recent = running.iter().take_while(|(_, last)| **last + EVERY >= newest).take(NAMED);
        let named: Vec<String> = recent.map(name).collect();
        if named.is_empty() { String::new() } else { format!("now {}", named.join(", ")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(s: u64) -> Duration {
        Duration::from_secs(s)
    }

    fn start(kept: usize) -> RunStart {
        RunStart { kept, to_run: 2, total_ns: 8_000_000_000, inside_ns: Arc::default() }
    }

    /// Two runs of 4 simulated seconds each.
    fn state() -> State {
        State {
            what: "two runs".to_owned(),
            unit: "runs",
            names: vec!["default seed 1".to_owned(), "a4 seed 1".to_owned()],
            passed_ns: vec![0; 2],
            start: Some((start(0), seconds(0))),
            ..State::default()
        }
    }

    fn progress(done_s: u64, shared_s: u64, jobs_done: u64) -> SimulationProgress {
        SimulationProgress {
            done_ns: done_s * 1_000_000_000,
            shared_ns: shared_s * 1_000_000_000,
            total_ns: 8_000_000_000,
            jobs_done,
            jobs: 2,
            run: 0,
            passed_ns: 0,
            ended: false,
        }
    }

    #[test]
    fn the_first_frame_claims_nothing() {
        assert_eq!(state().share(), 0.0);
        assert_eq!(state().pace(seconds(5)), "0 %, 0 of 2 runs, time left not known yet");
        // A first interval that is half done counts: 1 s of 8 in 5 s.
        let inside = state();
        inside.start.as_ref().unwrap().0.inside_ns.store(1_000_000_000, Ordering::Relaxed);
        assert_eq!(inside.pace(seconds(5)), "12 %, 0 of 2 runs, about 35 s left, 0.20 simulated s per s");
        let reading = State { what: "x: reading".to_owned(), ..State::default() };
        assert_eq!((reading.pace(seconds(5)).as_str(), reading.running().as_str()), ("x: reading", ""));
    }

    #[test]
    fn the_time_left_comes_from_what_was_simulated_and_not_from_what_was_shared() {
        let mut state = state();
        // 4 of 8 s done, 2 of them shared: 2 s were simulated in 10 s, and the other 4 may take 20.
        (state.progress, state.active) = (Some(progress(4, 2, 0)), [(0, seconds(9)), (1, seconds(8))].into());
        state.passed_ns = vec![2_000_000_000, 2_000_000_000];
        assert_eq!(
            state.due(seconds(10), true, false)[1],
            "50 %, 0 of 2 runs, about 20 s left, 0.20 simulated s per s; now default seed 1 50 %, a4 seed 1 50 %"
        );
        // One that waits for a thread is not named.
        state.active = [(0, seconds(30)), (1, seconds(8))].into();
        assert_eq!(state.running(), "now default seed 1 50 %");
        assert!(state.pace(seconds(30)).ends_with(", 0.0667 simulated s per s"));
        // Kept runs took no time: they count as ended, and not for the speed.
        state.start = Some((start(3), seconds(8)));
        assert!(state.pace(seconds(10)).starts_with("50 %, 3 of 5 runs, about 4 s left, "));
    }

    #[test]
    fn a_simulation_is_named_by_its_policy_and_seed() {
        let bar = RunBar::new("x", Arc::default(), || false);
        let at =
            [("nic.nic0.offered_gbps".to_owned(), waykeeper_lab::results::SweepValue::Text("40".to_owned()))];
        let name = RunName { policy: "a4".to_owned(), seed: 3, at: at.into_iter().collect() };
        bar.plan("one run".to_owned(), "runs", &[name], 1);
        assert_eq!(bar.shared.lock().names, ["a4 seed 3 offered_gbps=40"]);
    }

    #[test]
    fn what_is_run_is_said_after_two_seconds_and_a_line_comes_every_ten() {
        let mut state = state();
        let due = [0, 1, 2, 9, 10, 11, 19, 20, 31].map(|s| state.due(seconds(s), true, false).len());
        assert_eq!(due, [0, 0, 1, 0, 1, 0, 0, 1, 1]);
        let on_terminal = [2, 10, 20].map(|s| self::state().due(seconds(s), false, false).len());
        assert_eq!(on_terminal, [1, 1, 1], "only what is run: each state is new");
        assert_eq!(state.due(seconds(32), true, true).len(), 1);
        assert_eq!(state.due(seconds(33), true, true).len(), 0, "said once");
    }
}
