//! What can be wrong with an input file, in one type for all readers.
//!
//! Every message names the file, the offset, the value found and the accepted values. Offsets count from the start of
//! the *unpacked* data, which for a plain file is the file itself. Must not know the formats.

use crate::source::Packing;
use std::io;
use std::path::{Path, PathBuf};

/// Why an input file was refused.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// The file cannot be opened.
    #[error("cannot open {path}: {source}; check the name and that it may be read")]
    Open {
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// Reading or decompressing failed inside the file.
    #[error(
        "cannot read {path} ({packing}) beyond byte {offset}: {source}; the file may be damaged or cut short, copy it again"
    )]
    Read {
        /// The file.
        path: PathBuf,
        /// How the file is packed.
        packing: Packing,
        /// Unpacked bytes that were read before it failed.
        offset: u64,
        /// The error of the kernel or the decompressor.
        source: io::Error,
    },
    /// The file, or what it unpacks to, is longer than is read.
    #[error(
        "{path} has more than {most} bytes, packed or unpacked, which are the most that are read; cut it"
    )]
    TooLong {
        /// The file.
        path: PathBuf,
        /// The most bytes.
        most: u64,
    },
    /// The file cannot be written.
    #[error("cannot write {path}: {source}; check the folder and the space left")]
    Write {
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The file is empty.
    #[error("{path} is empty; wanted {wanted}")]
    Empty {
        /// The file.
        path: PathBuf,
        /// What the file should be.
        wanted: &'static str,
    },
    /// The file is valid but has no records.
    #[error("{path} holds no {what}; {remedy}")]
    NoRecords {
        /// The file.
        path: PathBuf,
        /// What it should hold: "packets", "memory accesses".
        what: &'static str,
        /// What to do.
        remedy: &'static str,
    },
    /// The file has another format.
    #[error("{path} is not {wanted}: it starts with {found}")]
    WrongFormat {
        /// The file.
        path: PathBuf,
        /// What the file starts with: a known format's name, or its first bytes in hex.
        found: String,
        /// The accepted formats.
        wanted: &'static str,
    },
    /// The file ends inside a record.
    #[error(
        "{path} is cut short: the {what} at byte {offset} needs {needed} bytes and {present} are left; \
         copy the file again or record it anew"
    )]
    Cut {
        /// The file.
        path: PathBuf,
        /// Start of the incomplete record.
        offset: u64,
        /// What is incomplete: "packet", "block", "record".
        what: &'static str,
        /// Bytes of the complete record.
        needed: u64,
        /// Bytes in the file.
        present: u64,
    },
    /// A field has an impossible value.
    #[error("{path}, byte {offset}: {field} is {found}, must be {wanted}")]
    Value {
        /// The file.
        path: PathBuf,
        /// Start of the field, or of the record that contains it.
        offset: u64,
        /// The field.
        field: &'static str,
        /// The value found.
        found: String,
        /// The accepted values, or what to do.
        wanted: String,
    },
    /// A file of another tool, which is not read.
    #[error("{path} is {found}, which is not read; {remedy}")]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What it is.
        found: &'static str,
        /// The way to a file that is read.
        remedy: &'static str,
    },
    /// A line of a text trace that its format does not have.
    #[error("{path}, line {line}: `{text}` is no {name} line; wanted {wanted}")]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
        /// Its first characters, made printable.
        text: String,
        /// The format.
        name: &'static str,
        /// The lines that it has.
        wanted: &'static str,
    },
    /// Stored bytes do not match their checksum.
    #[error(
        "{path}, byte {offset}: the {what} has checksum {found:#010x}, its bytes give {computed:#010x}; \
         the file is damaged, copy it again or record it anew"
    )]
    Checksum {
        /// The file.
        path: PathBuf,
        /// Start of the checked data.
        offset: u64,
        /// What is damaged.
        what: &'static str,
        /// The checksum in the file.
        found: u32,
        /// The checksum of the data.
        computed: u32,
    },
}

impl InputError {
    /// The file the error is about.
    pub fn path(&self) -> &Path {
        match self {
            InputError::Open { path, .. }
            | InputError::Read { path, .. }
            | InputError::TooLong { path, .. }
            | InputError::Write { path, .. }
            | InputError::Empty { path, .. }
            | InputError::NoRecords { path, .. }
            | InputError::WrongFormat { path, .. }
            | InputError::Cut { path, .. }
            | InputError::Value { path, .. }
            | InputError::Line { path, .. }
            | InputError::Foreign { path, .. }
            | InputError::Checksum { path, .. } => path,
        }
    }
}
