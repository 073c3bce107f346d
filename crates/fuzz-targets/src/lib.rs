//! What fuzzing does with an input: one target for each reader of what others wrote.
//!
//! A target passes the bytes of an input to the readers of one format, and panics for a finding. libFuzzer makes inputs
//! (`fuzz/`), and so does a test of this crate. Here is what the targets share: the limit on memory, an input as a file, a
//! system in memory, and the properties that more than one reader must have. Must not know a format, nor what makes inputs.

mod input_file;
mod memory;
mod tree;

mod targets {
    pub mod capture;
    pub mod census;
    pub mod chip;
    pub mod config;
    pub mod counter_units;
    pub mod doctor;
    pub mod fio_jobs;
    pub mod glob;
    pub mod http;
    pub mod journal;
    pub mod kernel_text;
    pub mod machine_profile;
    pub mod memload_system;
    pub mod nri;
    pub mod packed;
    pub mod pci;
    pub mod policy_answer;
    pub mod policy_settings;
    pub mod recording;
    pub mod request;
    pub mod resctrl;
    pub mod scenario;
    pub mod scenario_files;
    pub mod schemata;
    pub mod socket;
    pub mod steps_stream;
    pub mod tenants;
    pub mod topology;
    pub mod trace;
    pub mod values;
    pub mod vhost_resctrl;
    pub mod web;
}

pub use targets::*;

use input_file::with_file;
use memory::MemorySystem;
use tree::{host, host_on};

use cap::Cap;
use std::alloc::System;
use std::fmt::{Debug, Display};
use std::str::FromStr;

/// Most bytes that the Rust code of a program may hold at a time. Issue 21: an input that needs more is a finding. libFuzzer
/// has one target in a program and keeps the input; in the test of this crate the targets share the limit.
const MOST_BYTES: usize = 512 << 20;

/// An allocation beyond the limit fails, which aborts the program. What C code allocates counts for libFuzzer's own limit
/// (`-rss_limit_mb`), which `fuzz/run.py` sets to the same number.
#[global_allocator]
static MEMORY: Cap<System> = Cap::new(System, MOST_BYTES);

/// Checks that a text which parses is the same value when it was written and is read again.
fn rereads<T>(text: &str)
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

/// The value that was read; an error's message is checked.
fn checked<T, E: Display>(result: Result<T, E>) -> Option<T> {
    result.inspect_err(|why| one_line(why)).ok()
}

/// Checks that a message is one line and says something.
fn one_line(message: &dyn Display) {
    let text = message.to_string();
    assert!(!text.trim().is_empty(), "a message without text");
    assert!(!text.contains('\n'), "a message of more than one line: {text:?}");
}
