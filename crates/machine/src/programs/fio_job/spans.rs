//! When the jobs of a file run, as far as the file says. Must not know how they run.

use super::JobParameters;
use crate::programs::program::JobSpan;

/// When jobs send commands: those of a group begin when all of the one before have ended.
pub fn of(jobs: &[JobParameters]) -> Vec<JobSpan> {
    let mut spans = Vec::with_capacity(jobs.len());
    let (mut earliest_ns, mut latest_ns) = (0.0_f64, 0.0_f64);
    for group in jobs.chunk_by(|one, next| one.group == next.group) {
        let (mut next_earliest_ns, mut next_latest_ns) = (earliest_ns, latest_ns);
        for job in group {
            let length_ns = job.start_delay_ns + job.runtime_ns.unwrap_or(f64::INFINITY);
            let is_counted = job.commands.is_some();
            let to_ns = latest_ns + length_ns;
            // A core without a copy of a counted job does not wait for it.
            next_earliest_ns =
                next_earliest_ns.max(if is_counted { earliest_ns } else { earliest_ns + length_ns });
            next_latest_ns = next_latest_ns.max(to_ns);
            spans.push(JobSpan {
                name: job.name.clone(),
                from_ns: earliest_ns + job.start_delay_ns,
                to_ns,
                is_counted,
            });
        }
        (earliest_ns, latest_ns) = (next_earliest_ns, next_latest_ns);
    }
    spans
}

#[cfg(test)]
mod tests {
    use super::*;
    use waykeeper_load::jobs::JobFile;

    #[test]
    fn when_a_job_runs_follows_from_the_times_of_its_file() {
        let spans = |text: &str| {
            let file = JobFile::parse_for_model("j.fio", text, None).unwrap();
            let groups = file.groups().into_iter().enumerate();
            let jobs = groups
                .flat_map(|(group, jobs)| jobs.iter().map(move |job| JobParameters::of(job, group, 0)))
                .collect::<Vec<_>>();
            let spans = of(&jobs).into_iter();
            spans.map(|span| (span.from_ns / 1e6, span.to_ns / 1e6, span.is_counted)).collect::<Vec<_>>()
        };
        const NEVER: f64 = f64::INFINITY;
        // 10 ms, then 20 ms after a delay of 5 ms; a group ends with its last job.
        let text = "[a]\nruntime=10ms\n[b]\nruntime=4ms\n[c]\nstonewall\nstartdelay=5ms\nruntime=20ms\n\
            [d]\nstonewall\n";
        let wanted = [(0.0, 10.0, false), (0.0, 4.0, false), (15.0, 35.0, false), (35.0, NEVER, false)];
        assert_eq!(spans(text), wanted);
        // The file does not say when ten commands have ended; a job without an end is never followed.
        let text = "[a]\nnumber_ios=10\n[b]\nstonewall\nruntime=10ms\n[c]\nstonewall\n[d]\nstonewall\n";
        let wanted = [(0.0, NEVER, true), (0.0, NEVER, false), (10.0, NEVER, false), (NEVER, NEVER, false)];
        assert_eq!(spans(text), wanted);
        assert_eq!(spans("[a]\nnumber_ios=10\nruntime=3ms\n"), [(0.0, 3.0, true)]);
    }
}
