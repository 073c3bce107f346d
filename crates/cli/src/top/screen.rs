//! The terminal: raw mode, the alternate screen and the mouse, and all of that back at the end, also after a panic.
//!
//! ratatui writes to it through [`AnsiBackend`]. ratatui's own backend needs crossterm's reader of keys, which brings
//! a second version of a crate. Must not know what is drawn.

use super::keys::{Decoder, Input};
use crate::terminal::read_within;
use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::style::{Attribute, Color as Ink, Colors, Print, SetAttribute, SetColors};
use crossterm::terminal::{
    Clear, ClearType as Part, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use crossterm::{execute, queue};
use ratatui::Terminal;
use ratatui::backend::{Backend, ClearType, WindowSize};
use ratatui::buffer::Cell;
use ratatui::layout::{Position, Size};
use ratatui::style::{Color, Modifier};
use rustix::io::Errno;
use std::io::{self, BufWriter, IsTerminal, Stdout, Write, stdin, stdout};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use waykeeper_lab::table::obeys_escapes;

/// Reports of the mouse: presses and the wheel (1000), as text (1006).
const MOUSE_ON: &str = "\x1b[?1000h\x1b[?1006h";
const MOUSE_OFF: &str = "\x1b[?1006l\x1b[?1000l";

/// Time after which a lone escape is a key and no longer the beginning of a sequence.
const ESCAPE_WAIT: Duration = Duration::from_millis(40);

/// The terminal is taken: what is printed would be lost.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// The terminal as a screen. It is as before when this is dropped.
pub struct TakenScreen {
    /// Draws.
    pub terminal: Terminal<AnsiBackend>,
    decoder: Decoder,
}

impl TakenScreen {
    /// Takes the terminal.
    ///
    /// # Errors
    /// If standard input and output are no terminal, or one that refuses.
    pub fn take() -> io::Result<TakenScreen> {
        enable_raw_mode()?;
        TAKEN.store(true, Ordering::Relaxed);
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            give_back();
            before(panic);
        }));
        let entered = execute!(stdout(), EnterAlternateScreen, Print(MOUSE_ON), Hide);
        let terminal = entered.and_then(|()| Terminal::new(AnsiBackend::new()));
        match terminal {
            Ok(terminal) => Ok(TakenScreen { terminal, decoder: Decoder::default() }),
            Err(why) => {
                give_back();
                Err(why)
            }
        }
    }

    /// What was done within a time; ends early when something was. A signal ends the wait.
    ///
    /// # Errors
    /// If the terminal is closed.
    pub fn inputs(&mut self, wait: Duration) -> io::Result<Vec<Input>> {
        let mut inputs = Vec::new();
        let mut wait = wait;
        loop {
            let Some(bytes) = bytes_within(wait)? else {
                inputs.extend(self.decoder.settle());
                return Ok(inputs);
            };
            inputs.extend(self.decoder.push(&bytes));
            wait = ESCAPE_WAIT;
            if !self.decoder.is_waiting() {
                return Ok(inputs);
            }
        }
    }
}

impl Drop for TakenScreen {
    fn drop(&mut self) {
        give_back();
    }
}

/// Whether standard input and output are a terminal that moves its cursor.
pub fn is_terminal() -> bool {
    stdin().is_terminal() && obeys_escapes(&stdout())
}

/// Makes the terminal as it was, once.
fn give_back() {
    if TAKEN.swap(false, Ordering::Relaxed) {
        // A closed terminal has no modes.
        let _ = execute!(stdout(), Print(MOUSE_OFF), LeaveAlternateScreen, Show);
        let _ = disable_raw_mode();
    }
}

/// Bytes from the terminal; `None` if none came in time.
fn bytes_within(wait: Duration) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = [0; 1024];
    match read_within(wait, &mut bytes) {
        Ok(Some(0)) => Err(io::ErrorKind::UnexpectedEof.into()),
        Ok(count) => Ok(count.map(|count| bytes[..count].to_vec())),
        Err(Errno::AGAIN) => Ok(None),
        Err(why) => Err(why.into()),
    }
}

/// Writes what ratatui draws.
pub struct AnsiBackend {
    out: BufWriter<Stdout>,
}

impl AnsiBackend {
    fn new() -> AnsiBackend {
        // A frame of a large terminal is written at once.
        AnsiBackend { out: BufWriter::with_capacity(1 << 18, stdout()) }
    }
}

impl Backend for AnsiBackend {
    type Error = io::Error;

    fn draw<'a, I>(&mut self, content: I) -> io::Result<()>
    where
        I: Iterator<Item = (u16, u16, &'a Cell)>,
    {
        let mut at = None;
        let (mut modifier, mut colours) = (Modifier::empty(), (Color::Reset, Color::Reset));
        queue!(self.out, SetAttribute(Attribute::Reset))?;
        for (x, y, cell) in content {
            if at != Some((x, y)) {
                queue!(self.out, MoveTo(x, y))?;
            }
            // A letter of two columns is followed by a cell that is not drawn.
            at = Some((x + 1, y));
            if cell.modifier != modifier {
                queue!(self.out, SetAttribute(Attribute::Reset))?;
                for (flag, attribute) in [
                    (Modifier::BOLD, Attribute::Bold),
                    (Modifier::DIM, Attribute::Dim),
                    (Modifier::REVERSED, Attribute::Reverse),
                    (Modifier::UNDERLINED, Attribute::Underlined),
                ] {
                    if cell.modifier.contains(flag) {
                        queue!(self.out, SetAttribute(attribute))?;
                    }
                }
                (modifier, colours) = (cell.modifier, (Color::Reset, Color::Reset));
            }
            if (cell.fg, cell.bg) != colours {
                queue!(self.out, SetColors(Colors::new(ink(cell.fg), ink(cell.bg))))?;
                colours = (cell.fg, cell.bg);
            }
            queue!(self.out, Print(cell.symbol()))?;
        }
        queue!(self.out, SetAttribute(Attribute::Reset))
    }

    fn hide_cursor(&mut self) -> io::Result<()> {
        queue!(self.out, Hide)
    }

    fn show_cursor(&mut self) -> io::Result<()> {
        queue!(self.out, Show)
    }

    fn get_cursor_position(&mut self) -> io::Result<Position> {
        // The view covers the screen and its cursor is hidden: nothing depends on the place.
        Ok(Position::ORIGIN)
    }

    fn set_cursor_position<P: Into<Position>>(&mut self, position: P) -> io::Result<()> {
        let Position { x, y } = position.into();
        queue!(self.out, MoveTo(x, y))
    }

    fn clear(&mut self) -> io::Result<()> {
        queue!(self.out, Clear(Part::All))
    }

    fn clear_region(&mut self, clear_type: ClearType) -> io::Result<()> {
        let part = match clear_type {
            ClearType::All => Part::All,
            ClearType::AfterCursor => Part::FromCursorDown,
            ClearType::BeforeCursor => Part::FromCursorUp,
            ClearType::CurrentLine => Part::CurrentLine,
            ClearType::UntilNewLine => Part::UntilNewLine,
        };
        queue!(self.out, Clear(part))
    }

    fn size(&self) -> io::Result<Size> {
        let (columns, rows) = crossterm::terminal::size()?;
        // A terminal that does not know its size says 0.
        Ok(if columns == 0 || rows == 0 { Size::new(80, 24) } else { Size::new(columns, rows) })
    }

    fn window_size(&mut self) -> io::Result<WindowSize> {
        Ok(WindowSize { columns_rows: self.size()?, pixels: Size::default() })
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// The schemes use the terminal's own colour, xterm's 256 and exact ones.
fn ink(colour: Color) -> Ink {
    match colour {
        Color::Indexed(index) => Ink::AnsiValue(index),
        Color::Rgb(r, g, b) => Ink::Rgb { r, g, b },
        _ => Ink::Reset,
    }
}
