//! What the targets share: the limit on memory, an input as a file, a system in memory, and the properties that more than
//! one reader must have.
//!
//! A target is one file in `bin`: it passes the fuzzer's bytes to the readers of one format. A panic ends it, also one that
//! the code would catch: libfuzzer-sys aborts in the panic hook. Must not know a format.

mod input_file;
mod memory;
mod tree;

pub use input_file::with_file;
pub use memory::MemorySystem;
pub use tree::{host, host_on};

use cap::Cap;
use std::alloc::System;
use std::fmt::{Debug, Display};
use std::str::FromStr;

/// Most bytes that the Rust code of a target may hold at a time. Issue 21: an input that needs more is a finding.
const MOST_BYTES: usize = 512 << 20;

/// An allocation beyond the limit fails, which aborts the program. What C code allocates counts for libFuzzer's own limit
/// (`-rss_limit_mb`), which `run.py` sets to the same number.
#[global_allocator]
static MEMORY: Cap<System> = Cap::new(System, MOST_BYTES);

/// Checks that a text which parses is the same value when it was written and is read again.
pub fn rereads<T>(text: &str)
where
    T: FromStr + Display + PartialEq + Debug,
    T::Err: Display + Debug,
{
    match text.parse::<T>() {
        Ok(value) => {
            let written = value.to_string();
            match written.parse::<T>() {
                Ok(again) => assert_eq!(again, value, "{text:?} was written as {written:?}"),
                Err(why) => panic!("{text:?} was written as {written:?}, which is refused: {why}"),
            }
        }
        Err(why) => one_line(&why),
    }
}

/// Checks that a message is one line and says something.
pub fn one_line(message: &dyn Display) {
    let text = message.to_string();
    assert!(!text.trim().is_empty(), "a message without text");
    assert!(!text.contains('\n'), "a message of more than one line: {text:?}");
}
