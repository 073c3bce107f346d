//! `waykeeper replay --trace`: writes a recording as a trace of Perfetto. Must not know the format of either.

use super::within;
use crate::exit::{self, Failure};
use crate::outputs;
use std::io::{self, BufWriter};
use std::path::Path;
use std::time::SystemTime;
use waykeeper_output_file::OutputFile;
use waykeeper_service::recorder::{Item, RecordingReader, RecordingTrace};

/// Writes the steps from `from` to `to` into `path`, which has its name once it is complete.
pub fn write(
    reader: RecordingReader,
    path: &Path,
    replace: bool,
    from: Option<SystemTime>,
    to: Option<SystemTime>,
) -> Result<(), Failure> {
    let file = outputs::begin("--trace", path, replace)?;
    let failed = |why: io::Error| Failure::io(format!("cannot write {}", path.display()), &why);
    let (buffer, steps) = write_steps(reader, BufWriter::new(file), from, to).map_err(failed)?;
    if steps == 0 {
        return Err(Failure::bad_input("no steps in this recording, or none from --from to --to"));
    }
    let file = buffer.into_inner().map_err(io::IntoInnerError::into_error);
    file.and_then(OutputFile::keep).map_err(failed)?;
    outputs::report(path, &format!("{} has {steps} steps: open it in ui.perfetto.dev\n", path.display()))
}

fn write_steps(
    reader: RecordingReader,
    file: BufWriter<OutputFile>,
    from: Option<SystemTime>,
    to: Option<SystemTime>,
) -> io::Result<(BufWriter<OutputFile>, u64)> {
    let mut trace = RecordingTrace::new(file);
    for item in reader {
        match item {
            Item::Unreadable(why) => exit::eprint_line(&format!("note: {}", why)),
            Item::Segment { header, .. } => trace.segment(&header),
            Item::Entry(step) if within(step.at, from, to) => trace.step(&step)?,
            Item::Entry(_) => {}
        }
    }
    trace.finish()
}
