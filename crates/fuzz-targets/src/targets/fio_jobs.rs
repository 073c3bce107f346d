//! Job files in fio's format.

use crate::one_line;
use waykeeper_load::jobs::JobFile;

/// Reads an input. Panics for a finding.
pub fn read(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    for read in [JobFile::parse, JobFile::parse_for_model] {
        match read("jobs.fio", text, None) {
            Ok(file) => {
                assert_eq!(file.groups().iter().map(|group| group.len()).sum::<usize>(), file.jobs.len());
                for job in &file.jobs {
                    let _ = job.ends_after();
                    assert!((0.0..=1.0).contains(&job.access.writes()));
                    // What is read with the others is read alone too.
                    assert!(read("jobs.fio", text, Some(&job.name)).is_ok_and(|one| one.jobs.contains(job)));
                }
            }
            Err(why) => one_line(&why),
        }
    }
}
