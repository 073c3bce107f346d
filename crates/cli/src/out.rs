//! Standard output. A closed pipe (`| head`) is no error. Must not know what is printed.

use crate::exit::Failure;
use serde::Serialize;
use std::io::{self, Write};

/// Prints text as it is.
pub fn text(text: &str) -> Result<(), Failure> {
    text_while_open(text).map(|_| ())
}

/// Prints text as it is; false if the pipe is closed.
pub fn text_while_open(text: &str) -> Result<bool, Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(why) if why.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(why) => Err(Failure::io("cannot write the output", &why)),
        Ok(()) => Ok(true),
    }
}

/// Prints a value as JSON.
pub fn json(value: &impl Serialize) -> Result<(), Failure> {
    text(&json_text(value)?)
}

/// A value as JSON, with a line feed at the end.
pub fn json_text(value: &impl Serialize) -> Result<String, Failure> {
    let json = serde_json::to_string_pretty(value);
    let json = json.map_err(|why| {
        Failure::new(crate::exit::FAILED, format!("cannot write the result as JSON: {why}"))
    })?;
    Ok(json + "\n")
}
