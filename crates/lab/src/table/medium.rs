//! Where a text is shown: on a terminal, with or without colour, or through a pipe or a file. Must not know tables.

use std::io::IsTerminal;

/// Whether colour may be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ink {
    /// Text only.
    Plain,
    /// Colour as well.
    Colour,
}

impl Ink {
    /// Colour if standard output is a terminal that has some and `NO_COLOR` (no-color.org) is not set or empty.
    pub fn for_stdout() -> Ink {
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        if obeys_escapes(&std::io::stdout()) && !refused { Ink::Colour } else { Ink::Plain }
    }
}

/// Where a text is shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Medium {
    /// A terminal: a line that is wider would be broken.
    Terminal(Ink),
    /// A pipe or a file: an editor or a program reads lines of any length, and each table in one piece.
    Stream,
}

impl Medium {
    /// What standard output is.
    pub fn of_stdout() -> Medium {
        if std::io::stdout().is_terminal() { Medium::Terminal(Ink::for_stdout()) } else { Medium::Stream }
    }
}

/// True if this is a terminal that has colours and moves its cursor; one with `TERM=dumb`, as an editor has it, would show
/// the escape sequences.
pub fn obeys_escapes(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}
