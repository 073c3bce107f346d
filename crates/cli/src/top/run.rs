//! The live view at work: events from the source, inputs from the person, a frame when something has changed. Must not know
//! where the steps come from.

use super::answer::{Effect, answer};
use super::draw::{Scene, draw};
use super::palette::Palette;
use super::screen::TakenScreen;
use super::state::{Chosen, ViewRow};
use crate::exit::Failure;
use crate::out;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGWINCH};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use waykeeper_view::{Picture, Source, SourceEvent, ViewModel};

/// How often the source is asked for events. Assumption: an eye does not notice a step that is shown so much later.
const LOOK: Duration = Duration::from_millis(100);

/// How long a notice stays. Assumption: two lines are read in this time.
const NOTICE: Duration = Duration::from_secs(5);

/// Most events between two frames: a recording at a high speed must not keep keys waiting.
const EVENTS: usize = 256;

/// Steps before the one frame of `--once`: rates need an interval, a look at a change needs a few.
const ONCE_STEPS: u32 = 5;
/// Longest wait for them.
const ONCE_WAIT: Duration = Duration::from_secs(60);
/// Size of that frame where no terminal has one.
const ONCE_SIZE: (u16, u16) = (120, 40);

/// The live view.
pub struct LiveView {
    source: Box<dyn Source>,
    model: ViewModel,
    chosen: Chosen,
    palette: Palette,
    /// The picture that is shown, and of a held screen its history.
    picture: Option<Picture>,
    held: Option<ViewModel>,
    rows_at: Vec<(u16, ViewRow)>,
    /// When the notice appeared.
    noticed: Instant,
}

impl LiveView {
    /// A view of a source.
    pub fn new(source: Box<dyn Source>, palette: Palette) -> LiveView {
        LiveView {
            source,
            model: ViewModel::new(),
            chosen: Chosen::default(),
            palette,
            picture: None,
            held: None,
            rows_at: Vec::new(),
            noticed: Instant::now(),
        }
    }

    /// Shows it on the terminal until a key or a signal ends it.
    ///
    /// # Errors
    /// If the terminal cannot be used.
    pub fn run(mut self) -> Result<(), Failure> {
        let (ending, resized) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let listen = |signal, flag: &Arc<AtomicBool>| {
            signal_hook::flag::register(signal, flag.clone())
                .map_err(|why| Failure::io("listening to signals", &why))
        };
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            listen(signal, &ending)?;
        }
        listen(SIGWINCH, &resized)?;
        let failed = |why: std::io::Error| Failure::io("the terminal", &why);
        let mut screen = TakenScreen::take().map_err(failed)?;
        let mut is_dirty = true;
        while !ending.load(Ordering::Relaxed) {
            if self.chosen.notice.is_some() && self.noticed.elapsed() > NOTICE {
                self.chosen.notice = None;
                is_dirty = true;
            }
            is_dirty |= self.take_events() | resized.swap(false, Ordering::Relaxed);
            if std::mem::take(&mut is_dirty) {
                screen.terminal.draw(|frame| self.draw(frame.buffer_mut())).map_err(failed)?;
            }
            let inputs = match screen.inputs(LOOK) {
                Ok(inputs) => inputs,
                // A closed terminal ends the view, as a signal does.
                Err(_) => return Ok(()),
            };
            for input in inputs {
                (is_dirty, self.noticed) = (true, Instant::now());
                let Some(picture) = &self.picture else {
                    match input {
                        super::keys::Input::Char('q') | super::keys::Input::Control('c') => return Ok(()),
                        _ => continue,
                    }
                };
                match answer(&mut self.chosen, picture, input, &self.rows_at) {
                    Effect::None => self.hold(),
                    Effect::Quit => return Ok(()),
                    Effect::Turn(turn) => {
                        self.chosen.notice = Some(match self.source.turn(turn) {
                            Ok(done) => (done, false),
                            Err(why) => (why.to_string(), true),
                        });
                        self.noticed = Instant::now();
                        self.refresh();
                    }
                }
            }
        }
        Ok(())
    }

    /// Prints one frame as text, as soon as there are a few steps.
    ///
    /// # Errors
    /// If no step came in time, or standard output is closed.
    pub fn once(mut self) -> Result<(), Failure> {
        let begin = Instant::now();
        let mut steps = 0;
        let mut has_ended = false;
        while steps < ONCE_STEPS && !has_ended {
            if begin.elapsed() > ONCE_WAIT {
                break;
            }
            if let Some(event) = self.source.next(LOOK) {
                steps += u32::from(matches!(&event, SourceEvent::Step(step) if step.seen.is_some()));
                has_ended = event == SourceEvent::End;
                self.model.take(event);
            }
        }
        self.refresh();
        if self.picture.is_none() {
            let why = format!("no step came within {} s", ONCE_WAIT.as_secs());
            return Err(Failure::new(crate::exit::FAILED, why));
        }
        let (columns, rows) = crate::status::screen()
            .map_or(ONCE_SIZE, |screen| (screen.columns as u16, screen.rows.saturating_sub(1) as u16));
        let mut buffer = Buffer::empty(Rect::new(0, 0, columns, rows));
        self.draw(&mut buffer);
        out::text(&text_of(&buffer))
    }

    /// Takes waiting events; true if there were any.
    fn take_events(&mut self) -> bool {
        let mut any = false;
        for _ in 0..EVENTS {
            let Some(event) = self.source.next(Duration::ZERO) else { break };
            any = true;
            self.model.take(event);
        }
        if any {
            self.refresh();
        }
        any
    }

    /// The present picture, unless the screen is held.
    fn refresh(&mut self) {
        if self.held.is_none() {
            self.picture = self.model.picture(self.source.info());
        }
    }

    /// Holds or releases the screen, if that was chosen.
    fn hold(&mut self) {
        match (self.chosen.frozen, &self.held) {
            (true, None) => self.held = Some(self.model.clone()),
            (false, Some(_)) => {
                self.held = None;
                self.refresh();
            }
            _ => {}
        }
    }

    fn draw(&mut self, buffer: &mut Buffer) {
        let model = self.held.as_ref().unwrap_or(&self.model);
        let scene =
            Scene { picture: self.picture.as_ref(), model, chosen: &self.chosen, palette: self.palette };
        self.rows_at = draw(buffer, scene);
    }
}

/// The cells as lines without colours.
pub fn text_of(buffer: &Buffer) -> String {
    let width = usize::from(buffer.area.width).max(1);
    let lines = buffer.content.chunks(width).map(|cells| {
        let line: String = cells.iter().map(|cell| cell.symbol()).collect();
        line.trim_end().to_owned() + "\n"
    });
    lines.collect()
}
