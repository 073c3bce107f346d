//! The thread, and the two slots between it and the control thread.
//!
//! Must not know how an answer is found beyond `waykeeper_twin::answer`.

use super::pace::{Piece, budget};
use super::place::Place;
use super::{ShowTwin, Twin, TwinState, TwinStatus};
use crate::ActiveProblem;
use crate::backoff::Backoff;
use crate::daemon::panic_message;
use crate::engine::ProblemSource;
use crate::recorder::check_numbers;
use arc_swap::ArcSwapOption;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{
    AtomicU8, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use std::time::{Duration, Instant};
use waykeeper_calibration::{LayoutAnswer, LayoutQuestion};
use waykeeper_control::Predictor;
use waykeeper_kernel::system::{RealSystem, System};
use waykeeper_units::CoreList;

/// Nice value of the thread: the scheduler prefers every other thread.
const NICE: i32 = 19;
/// Pause after a first panic. Assumption: the policy asks a similar question in the next interval.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause. Assumption: one line per minute in the log is bearable.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// How the twin runs.
#[derive(Clone, PartialEq, Debug)]
pub struct TwinConfig {
    /// Most CPU time, as a share of one core, above 0 and at most 1.
    pub share: f64,
    /// CPUs on which it may run; with `None` those of the daemon that no tenant is pinned to.
    pub cores: Option<CoreList>,
    /// Time between two steps, nanoseconds.
    pub period_ns: u64,
}

/// A question with its number among all questions of all policies: a policy that starts counts from 1 again.
struct Asked {
    number: u64,
    question: LayoutQuestion,
}

/// An answer with the number of its question.
struct Answered {
    number: u64,
    answer: LayoutAnswer,
}

/// What both threads share. Neither waits for the other.
#[derive(Default)]
struct Slots {
    question: ArcSwapOption<Asked>,
    answer: ArcSwapOption<Answered>,
    /// Index into [`TwinState::ALL`].
    state: AtomicU8,
    /// When the last question was asked, ns on the monotonic clock; 0 before the first.
    asked_ns: AtomicU64,
    cpu_ns: AtomicU64,
    answers: AtomicU64,
    panics: AtomicU64,
    /// Why it failed at the last question.
    failure: ArcSwapOption<String>,
}

impl Slots {
    /// After what belongs to the state.
    fn set(&self, state: TwinState) {
        self.state.store(state as u8, Release);
    }

    fn status(&self) -> TwinStatus {
        let asked_ns = self.asked_ns.load(Relaxed);
        TwinStatus {
            state: TwinState::ALL[usize::from(self.state.load(Acquire)) % TwinState::ALL.len()],
            asked: (asked_ns > 0).then(|| Duration::from_nanos(asked_ns)),
            cpu: Duration::from_nanos(self.cpu_ns.load(Relaxed)),
            answers: self.answers.load(Relaxed),
            panics: self.panics.load(Relaxed),
        }
    }
}

/// The control thread's end. Dropping it ends the thread, which is not waited for: an answer in progress would delay the
/// end of the daemon.
pub struct TwinPredictor {
    slots: Arc<Slots>,
    bell: Sender<()>,
    /// Number of the last question.
    asked: u64,
}

impl Predictor for TwinPredictor {
    fn ask(&mut self, question: LayoutQuestion) {
        self.asked += 1;
        let now = RealSystem.now().as_nanos() as u64;
        self.slots.asked_ns.store(now.max(1), Relaxed);
        self.slots.question.store(Some(Arc::new(Asked { number: self.asked, question })));
        // A bell that has rung already says the same. A thread that has ended answers nothing.
        let _ = self.bell.try_send(());
    }

    fn answer(&mut self) -> Option<LayoutAnswer> {
        let answered = self.slots.answer.swap(None)?;
        // The answer to an earlier question, which another one has replaced.
        (answered.number == self.asked).then(|| answered.answer.clone())
    }
}

impl Twin {
    /// Starts the thread. The second part tells why the twin failed at the last question.
    ///
    /// # Errors
    /// If no thread can be started; inside, why the CPUs of the configuration cannot be used.
    pub fn start(config: TwinConfig) -> io::Result<Result<(Twin, ProblemSource), String>> {
        let budget = budget(config.share, config.period_ns);
        let started = start(config, move |question| waykeeper_twin::answer(question, budget))?;
        Ok(started.map(|(predictor, _)| {
            let (shown, failing) = (predictor.slots.clone(), predictor.slots.clone());
            let show: ShowTwin = Arc::new(move || shown.status());
            let problem: ProblemSource = Box::new(move || {
                let why = failing.failure.load_full()?;
                let text =
                    format!("the twin failed at the last question ({why}); the policy decides without it");
                Some(ActiveProblem::new("twin", text))
            });
            (Twin { predictor: Box::new(predictor), show }, problem)
        }))
    }
}

/// Starts the thread with this way to find answers. The receiver closes when the thread has ended.
fn start(
    config: TwinConfig,
    find: impl Fn(&LayoutQuestion) -> LayoutAnswer + Send + 'static,
) -> io::Result<Result<(TwinPredictor, Receiver<()>), String>> {
    let slots = Arc::new(Slots::default());
    let (bell, rings) = bounded(1);
    let (alive, ended) = bounded::<()>(0);
    let (ready, is_ready) = bounded(1);
    let own = slots.clone();
    std::thread::Builder::new().name("waykeeper-twin".to_owned()).spawn(move || {
        let _alive = alive;
        // Without permission the priority stays as it is.
        let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICE);
        let place = Place::take(config.cores.as_ref());
        let _ = ready.send(place.as_ref().err().cloned());
        if let Ok(place) = place {
            let mut thread = TwinThread { slots: own, rings, place, share: config.share, find };
            thread.keep_running();
        }
    })?;
    Ok(match is_ready.recv().unwrap_or_default() {
        Some(why) => Err(why),
        None => Ok((TwinPredictor { slots, bell, asked: 0 }, ended)),
    })
}

struct TwinThread<F> {
    slots: Arc<Slots>,
    rings: Receiver<()>,
    place: Place,
    share: f64,
    find: F,
}

/// The predictor was dropped.
struct Ended;

impl<F: Fn(&LayoutQuestion) -> LayoutAnswer> TwinThread<F> {
    /// Answers questions until the predictor is dropped. After a panic it pauses before it takes the next one.
    fn keep_running(&mut self) {
        let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        let mut sound_since = Instant::now();
        loop {
            while let Some(asked) = self.slots.question.swap(None) {
                let piece = Piece::begin();
                self.slots.set(TwinState::Computing);
                // Sound: the question was taken from its slot, and nothing else of it is kept.
                let done = catch_unwind(AssertUnwindSafe(|| self.work(&asked)));
                self.slots.cpu_ns.fetch_add(piece.cpu().as_nanos() as u64, Relaxed);
                let mut until = piece.rest_until(self.share);
                match done {
                    Ok(Ok(answer)) => self.publish(asked.number, answer),
                    Ok(Err(why)) => self.fail(format!("bug in waykeeper: {why}")),
                    Err(panic) => {
                        let pause = backoff.pause_after(sound_since.elapsed());
                        self.slots.panics.fetch_add(1, Relaxed);
                        let why = panic_message(&*panic);
                        let seconds = pause.as_secs_f64();
                        self.fail(format!("bug in waykeeper: {why}; it starts again after {seconds} s"));
                        sound_since = Instant::now();
                        until = until.max(sound_since + pause);
                    }
                }
                if self.rest(until).is_err() {
                    return;
                }
            }
            if self.rings.recv().is_err() {
                return;
            }
        }
    }

    /// Finds an answer, or says what is wrong with it. A number that is no number could not be recorded, and the replay
    /// would decide differently.
    fn work(&mut self, asked: &Asked) -> Result<LayoutAnswer, String> {
        self.place.leave_tenants(&asked.question.server);
        let answer = (self.find)(&asked.question);
        check_numbers(&answer)?;
        Ok(answer)
    }

    /// The answer comes last: who has it sees the state that it belongs to.
    fn publish(&self, number: u64, answer: LayoutAnswer) {
        self.slots.answers.fetch_add(1, Relaxed);
        self.slots.failure.store(None);
        self.slots.set(TwinState::Idle);
        self.slots.answer.store(Some(Arc::new(Answered { number, answer })));
    }

    fn fail(&self, why: String) {
        self.slots.failure.store(Some(Arc::new(why)));
        self.slots.set(TwinState::Failed);
    }

    /// Waits until then, whatever is asked meanwhile.
    fn rest(&self, until: Instant) -> Result<(), Ended> {
        loop {
            match self.rings.recv_deadline(until) {
                // The question is in its slot.
                Ok(()) => {}
                Err(RecvTimeoutError::Timeout) => return Ok(()),
                Err(RecvTimeoutError::Disconnected) => return Err(Ended),
            }
        }
    }
}

#[cfg(test)]
#[path = "thread_tests.rs"]
mod tests;
