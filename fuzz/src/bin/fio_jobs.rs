//! Job files in fio's format.
#![no_main]

use libfuzzer_sys::fuzz_target;
use waykeeper_fuzz::one_line;
use waykeeper_load::jobs::JobFile;

fuzz_target!(|text: &str| {
    match JobFile::parse("jobs.fio", text) {
        Ok(file) => {
            assert_eq!(file.groups().iter().map(|group| group.len()).sum::<usize>(), file.jobs.len());
            for job in &file.jobs {
                let _ = job.ends_after();
                assert!((0.0..=1.0).contains(&job.access.writes()));
            }
        }
        Err(why) => one_line(&why),
    }
});
