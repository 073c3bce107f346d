//! `waykeeper replay --trace`: writes a recording as a trace of Perfetto. Must not know the format of either.

use super::within;
use crate::exit::{self, Failure};
use crate::{out, outputs};
use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use waykeeper_service::recorder::{Item, RecordingReader, RecordingTrace};

/// Writes the steps from `from` to `to` into `path`, which appears once it is complete.
pub fn write(
    reader: RecordingReader,
    path: &Path,
    replace: bool,
    from: Option<SystemTime>,
    to: Option<SystemTime>,
) -> Result<(), Failure> {
    outputs::file("--trace", path, replace)?;
    let beside = beside(path);
    let failed = |why: &io::Error| Failure::io(format!("cannot write {}", path.display()), why);
    let written = File::create_new(&beside)
        .and_then(|file| write_steps(reader, BufWriter::new(file), from, to))
        .and_then(|(file, steps)| {
            file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
            if steps > 0 {
                fs::rename(&beside, path)?;
            }
            Ok(steps)
        });
    if !matches!(written, Ok(steps) if steps > 0) {
        // It may not exist.
        let _ = fs::remove_file(&beside);
    }
    match written.map_err(|why| failed(&why))? {
        0 => Err(Failure::bad_input("no steps in this recording, or none from --from to --to")),
        steps => out::text(&format!("{} has {steps} steps: open it in ui.perfetto.dev\n", path.display())),
    }
}

fn write_steps(
    reader: RecordingReader,
    file: BufWriter<File>,
    from: Option<SystemTime>,
    to: Option<SystemTime>,
) -> io::Result<(BufWriter<File>, u64)> {
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

/// The file that is written first, in the same folder.
fn beside(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.{}", std::process::id()))
}
