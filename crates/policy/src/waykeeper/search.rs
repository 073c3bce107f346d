//! The search: which layout is tried next, and which was kept or dropped.
//!
//! ```text
//! Look --settled--> Try --nothing left--> Stable
//! ```
//!
//! It must not know when a measurement is long enough or when a phase ends.

use super::event;
use super::layout::Layout;
use super::moves::{Direction, Move};
use super::progress::Progress;
use super::server::{Server, ServerView};
use crate::{Cause, Event};
use std::collections::{BTreeSet, VecDeque};
use waykeeper_host::Interval;

#[derive(Clone, PartialEq, Debug)]
pub(super) enum State {
    /// Measures the best layout.
    Look,
    /// Measures another layout.
    Try(Move),
    /// No layout is left to try; the best one is in force.
    Stable,
}

impl State {
    pub fn name(&self) -> &'static str {
        match self {
            State::Look => "Look",
            State::Try(_) => "Try",
            State::Stable => "Stable",
        }
    }
}

/// The layouts of one phase.
pub(super) struct Search {
    state: State,
    /// The best layout so far and the progress under it.
    best: Layout,
    best_progress: Progress,
    /// The interval measured under the best layout, until the steps from it are in the queue.
    expand_from: Option<Interval>,
    /// Progress at the start of the phase: the reference for an HPW's loss.
    first_progress: Progress,
    /// Layouts tried in this phase.
    tried: BTreeSet<Layout>,
    /// Layouts to try next.
    queue: VecDeque<Move>,
    /// Directions in which a step from the best layout changed nothing.
    without_effect: BTreeSet<Direction>,
    /// Zones were kept against the open LLC in this phase, so the open LLC is not tried again.
    open_llc_rejected: bool,
    /// Layouts tried since the search last started.
    trials: u32,
}

impl Search {
    /// A search that measures `first`.
    pub fn new(first: Layout) -> Search {
        Search {
            state: State::Look,
            best: first,
            best_progress: Progress::default(),
            expand_from: None,
            first_progress: Progress::default(),
            tried: BTreeSet::new(),
            queue: VecDeque::new(),
            without_effect: BTreeSet::new(),
            open_llc_rejected: false,
            trials: 0,
        }
    }

    pub fn state(&self) -> &State {
        &self.state
    }

    pub fn best(&self) -> &Layout {
        &self.best
    }

    pub fn best_progress(&self) -> &Progress {
        &self.best_progress
    }

    /// The layout in force: the one that is being tried, or the best.
    pub fn in_force(&self) -> &Layout {
        match &self.state {
            State::Try(tried) => &tried.to,
            State::Look | State::Stable => &self.best,
        }
    }

    /// Puts `layout` in force and measures it as the best so far.
    pub fn look_at(&mut self, layout: Layout) {
        (self.state, self.best) = (State::Look, layout);
    }

    /// Nothing is tried in a phase whose best layout is in force and now measured: another search has found it.
    pub fn rest(&mut self, measured: Progress) {
        self.first_progress = measured.clone();
        (self.best_progress, self.expand_from) = (measured, None);
        self.tried = BTreeSet::from([self.best.clone()]);
        self.queue.clear();
        (self.trials, self.open_llc_rejected) = (0, !self.best.open);
        self.state = State::Stable;
    }

    /// Starts a search for a new phase from the measured layout: earlier trials do not count. `known` is tried first,
    /// then what the counters suggest.
    pub fn begin(&mut self, measured: Progress, known: Option<Layout>, view: &ServerView<'_>) {
        self.first_progress = measured.clone();
        self.found(self.best.clone(), measured, view.seen);
        self.tried = BTreeSet::from([self.best.clone()]);
        (self.trials, self.open_llc_rejected) = (0, false);
        if let Some(known) = known {
            self.queue.push_back(Move {
                to: view.limits.fitted(known),
                direction: Direction::Other,
                why: "this layout was best in this phase before".to_owned(),
                causes: Vec::new(),
            });
        }
        self.queue.push_back(view.guess(&self.best));
    }

    /// Tries these steps from the best layout, and no others.
    pub fn resume(&mut self, steps: impl Into<VecDeque<Move>>) {
        (self.queue, self.expand_from, self.trials) = (steps.into(), None, 0);
        self.without_effect.clear();
    }

    /// Makes a layout the best so far and clears the queue: its next steps are different ones.
    fn found(&mut self, layout: Layout, progress: Progress, seen: &Interval) {
        (self.best, self.best_progress, self.expand_from) = (layout, progress, Some(seen.clone()));
        self.queue.clear();
        self.without_effect.clear();
    }

    /// Puts the next layout of the queue in force, or the best one if none is left.
    pub fn next(&mut self, server: &Server, events: &mut Vec<Event>) {
        while self.trials < server.config.trials_max {
            let Some(next) = self.queue.pop_front() else {
                let Some(seen) = self.expand_from.take() else { break };
                let mut steps = server.view(&seen).steps(&self.best);
                // An LLC that was open for one trial fills rings that take long to drain.
                steps.retain(|step| !(step.to.open && self.open_llc_rejected));
                self.queue = steps.into();
                continue;
            };
            if !self.without_effect.contains(&next.direction) && self.tried.insert(next.to.clone()) {
                let what = next.to.changes(&self.best, &server.groups, &server.inventory);
                events.push(event("try", format!("try {what}: {}", next.why), next.causes.clone()));
                self.state = State::Try(next);
                self.trials += 1;
                return;
            }
        }
        if self.state != State::Stable {
            let text = format!("settled; layouts tried in this phase: {}", self.tried.len());
            events.push(event("settle", text, Vec::new()));
        }
        self.state = State::Stable;
    }

    /// Keeps or drops the layout that was tried. A gain up to `noise` is none.
    pub fn judge(&mut self, tried: &Move, measured: Progress, noise: f64, view: &ServerView<'_>) -> Event {
        let gain = measured.gain(&self.best_progress, view.groups, view.config);
        let loss = measured.gain(&self.first_progress, view.groups, view.config);
        let needed = view.config.min_gain.max(noise);
        let limit = 1.0 - view.config.hpw_loss_max;
        let number = |what: &str, value: f64, limit: Option<(&str, f64)>| Cause {
            what: what.to_owned(),
            value,
            limit: limit.map(|(name, value)| (name.to_owned(), value)),
        };
        let causes = vec![
            number("total gain", gain.all, Some(("min_gain or twice the noise", needed))),
            number("HPWs' progress against the best so far", gain.hpw, None),
            number("LPWs' progress against the best so far", gain.lpw, None),
            number(
                "worst HPW against the start of the phase",
                loss.worst_hpw,
                Some(("1 - hpw_loss_max", limit)),
            ),
        ];
        let what = tried.to.changes(&self.best, view.groups, view.inventory);
        if gain.all > needed && loss.worst_hpw >= limit {
            self.open_llc_rejected |= self.best.open && !tried.to.open;
            self.found(tried.to.clone(), measured, view.seen);
            return event("keep", format!("keep {what}"), causes);
        }
        // No effect: a shorter step in the same direction would have none either.
        if gain.all.abs() <= needed && tried.direction != Direction::Other {
            self.without_effect.insert(tried.direction);
        }
        event("drop", format!("drop {what}"), causes)
    }

    /// Adds a measurement of the best layout.
    pub fn refine(&mut self, measured: &Progress) {
        self.best_progress = self.best_progress.mixed(measured);
    }

    /// Steps that a counter asks for and that were not tried in this phase.
    pub fn requests(&self, view: &ServerView<'_>) -> Vec<Move> {
        let mut steps = view.asked_for(&self.best);
        steps.retain(|step| !self.tried.contains(&step.to));
        steps
    }

    /// A step that undoes a restriction, even if it was tried before. `which` selects it, modulo their number.
    pub fn release(&mut self, which: usize, view: &ServerView<'_>) -> Option<Move> {
        let releases = view.releases(&self.best);
        let turn = which % releases.len().max(1);
        let release = releases.into_iter().nth(turn)?;
        self.tried.remove(&release.to);
        Some(release)
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{interval, progress, server};
    use super::*;

    /// A search that has measured the first layout of an HPW and an LPW, and tries the next.
    fn begun(server: &Server) -> (Search, Vec<Event>) {
        let mut search = Search::new(server.limits.first(&server.groups));
        let seen = interval(&[1.0, 1.0], 1e9);
        search.begin(progress(server, &[1.0, 1.0]), None, &server.view(&seen));
        let mut events = Vec::new();
        search.next(server, &mut events);
        (search, events)
    }

    fn judge(search: &mut Search, server: &Server, ipc: &[f64]) -> Event {
        let State::Try(tried) = search.state().clone() else { panic!("{:?}", search.state()) };
        search.judge(&tried, progress(server, ipc), 0.0, &server.view(&interval(ipc, 1e9)))
    }

    #[test]
    fn a_gain_is_kept_a_loss_of_an_hpw_is_dropped() {
        let server = server(2);
        let (mut search, events) = begun(&server);
        assert_eq!((search.state().name(), events[0].action.as_str()), ("Try", "try"));
        let tried = search.in_force().clone();
        assert_ne!(&tried, search.best());
        // The HPW gains a tenth: ln 1.1 is above min_gain, 0.01.
        assert_eq!(judge(&mut search, &server, &[1.1, 1.0]).action, "keep");
        assert_eq!(search.best(), &tried);
        search.next(&server, &mut Vec::new());
        // The LPW gains much, the HPW has lost 15 % since the start of the phase, more than hpw_loss_max.
        assert_eq!(judge(&mut search, &server, &[0.85, 9.0]).action, "drop");
        assert_eq!(search.best(), &tried);
    }

    #[test]
    fn each_layout_is_tried_once_and_the_best_one_is_in_force_at_the_end() {
        let server = server(2);
        let (mut search, mut events) = begun(&server);
        let first = search.best().clone();
        while *search.state() != State::Stable {
            judge(&mut search, &server, &[0.5, 0.5]);
            search.next(&server, &mut events);
        }
        assert_eq!((search.best(), search.in_force()), (&first, &first));
        let tries = events.iter().filter(|event| event.action == "try").count();
        assert_eq!(tries + 1, search.tried.len());
        assert_eq!(events.last().map(|event| event.action.as_str()), Some("settle"));
    }
}
