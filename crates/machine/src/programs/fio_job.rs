//! What a fio job file says about a storage program: blocks, depth, directions, rates and when it ends.
//!
//! `load` reads the file; this file turns it into keys of `fio` and limits of a thread. Must not know the cost of a
//! request.

mod blocks;
pub mod spans;

use crate::random::Stream;
use crate::scenario::{Keys, ScenarioError};
pub(super) use blocks::Blocks;
use std::collections::VecDeque;
use waykeeper_load::jobs::{Job, JobError, JobFile, JobSizes};
use waykeeper_load::{BudgetRule, Limiter, LoadLimits};

/// Slots of a rate per second: fio checks its rates at every request, so a slot is short against the time over which
/// rates are observed. Assumption: fio has no slots of a fixed length.
const SLOTS: u32 = 1000;
/// Commands that a thread keeps in flight at most: each has a buffer. Assumption: fio itself sets no limit; 4096
/// buffers of 4 KiB are 16 MiB.
const MOST_DEPTH: u64 = 4096;
/// Buffers of all commands in flight, one of each size. Assumption: a table of so many is small beside the caches' state.
const MOST_BUFFERS: u64 = 65_536;

/// A storage program's parameters, from keys or from a job.
#[derive(Clone, Debug)]
pub(super) struct Storage {
    pub(super) block: u64,
    /// Requests in flight per thread; of a job, per copy.
    pub(super) depth: u32,
    pub(super) writes: f64,
    /// The jobs of a job file, which replace the parameters above.
    pub(super) parameters: Option<Vec<JobParameters>>,
    /// Of the job file.
    pub(super) notes: Vec<String>,
}

/// Parameters of a job for each of its copies.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct JobParameters {
    name: String,
    /// Bytes of its largest command, and the part of its commands that write.
    pub(super) block: u64,
    pub(super) writes: f64,
    /// Jobs of a group run in parallel, one group after the other.
    pub(super) group: usize,
    /// Copies of the jobs before, and of this one, over all threads.
    copies_before: u32,
    copies: u32,
    depth: u32,
    bytes_per_s: Option<f64>,
    commands_per_s: Option<f64>,
    commands: Option<u64>,
    /// Reads of what the commands wrote, after all of them.
    reads_back: u64,
    /// Writes after which they are read back; 0: at the end.
    backlog: u64,
    start_delay_ns: f64,
    runtime_ns: Option<f64>,
    /// Commands of several sizes, and mean bytes of a command.
    sizes: Option<JobSizes>,
    mean_bytes: f64,
    has_random_gaps: bool,
}

/// The job that the keys `fio` and `fio_job` name, if any. Keys that a job defines too are refused beside it.
pub(super) fn read(keys: &mut Keys<'_>) -> Result<Option<Storage>, ScenarioError> {
    let name = keys.optional_text("fio_job")?;
    if !keys.has("fio") {
        return match name {
            None => Ok(None),
            Some(name) => {
                Err(keys.refuse("fio_job", &format!("`{name}`"), "absent: no job file is named (`fio`)"))
            }
        };
    }
    for key in ["block", "depth", "write_share"] {
        if keys.has(key) {
            return Err(keys.refuse(key, &"given together with `fio`", "absent: the job file gives it"));
        }
    }
    let path = keys.required_path("fio")?;
    let text = waykeeper_bounded_read::text(&path, "a job file")
        .map_err(|why| ScenarioError::unreadable(&path, why))?;
    let file = path.display().to_string();
    let jobs = JobFile::parse_for_model(&file, &text, name.as_deref())?;
    if let Some(relation) = jobs.relation() {
        let wanted = "absent, or one job be named with `fio_job`: how jobs follow each other cannot be expressed, except by \
            `stonewall`";
        Err(JobError::Value {
            file: file.clone(),
            line: relation.line,
            key: relation.key.to_owned(),
            value: "given".to_owned(),
            wanted: wanted.to_owned(),
        })?;
    }
    let (mut parameters, mut slots, mut copies) = (Vec::new(), 0, 0);
    for (group, jobs) in jobs.groups().into_iter().enumerate() {
        for job in jobs {
            slots += u64::from(job.depth) * u64::from(job.copies);
            check(&file, job, slots)?;
            parameters.push(JobParameters::of(job, group, copies));
            copies += job.copies;
        }
    }
    let first = &jobs.jobs[0];
    Ok(Some(Storage {
        block: first.block_bytes,
        depth: first.depth,
        writes: first.access.writes(),
        parameters: Some(parameters),
        notes: jobs.notes(),
    }))
}

/// Refuses what the virtual server has no room for; `slots` are the commands in flight of this job and those before.
fn check(file: &str, job: &Job, slots: u64) -> Result<(), ScenarioError> {
    let refuse = |key: &str, value: u64, wanted: &str| JobError::Value {
        file: file.to_owned(),
        line: job.line,
        key: format!("{}.{key}", job.name),
        value: value.to_string(),
        wanted: wanted.to_owned(),
    };
    if job.block_bytes > 16 << 20 {
        Err(refuse("bs", job.block_bytes, "at most 16m on the virtual server"))?;
    }
    if slots > MOST_DEPTH {
        let wanted =
            format!("such that iodepth x numjobs of all jobs is at most {MOST_DEPTH} on the virtual server");
        Err(refuse("iodepth", job.depth.into(), &wanted))?;
    }
    let sizes = job.sizes.as_ref().map_or(1, |sizes| sizes.all(job.access).count() as u64);
    if slots * sizes > MOST_BUFFERS {
        let wanted =
            format!("such that iodepth x numjobs x sizes is at most {MOST_BUFFERS} on the virtual server");
        Err(refuse("bssplit", sizes, &wanted))?;
    }
    Ok(())
}

/// Commands that read what a job wrote, if it is read at the end (`verify`) and the job has an end.
fn reads_back(job: &Job) -> u64 {
    let commands = job.ends_after().filter(|_| job.reads_back);
    commands.map_or(0, |commands| (commands as f64 * job.access.writes()).round() as u64)
}

impl JobParameters {
    fn of(job: &Job, group: usize, copies_before: u32) -> JobParameters {
        JobParameters {
            name: job.name.clone(),
            block: job.block_bytes,
            writes: job.access.writes(),
            group,
            copies_before,
            copies: job.copies,
            depth: job.depth,
            bytes_per_s: job.bytes_per_s.map(|rate| rate as f64),
            commands_per_s: job.commands_per_s.map(|rate| rate as f64),
            commands: job.ends_after(),
            reads_back: reads_back(job),
            backlog: job.backlog.unwrap_or(0),
            start_delay_ns: job.start_delay_us as f64 * 1e3,
            runtime_ns: job.runtime_us.map(|us| us as f64 * 1e3),
            sizes: job.sizes.clone(),
            mean_bytes: job.mean_bytes(),
            has_random_gaps: job.has_random_gaps,
        }
    }

    /// Number of copies on the thread `thread` of `threads`; the copies of all jobs are distributed in turn.
    fn copies_of(&self, thread: usize, threads: usize) -> u32 {
        let (copies, threads) = (self.copies as usize, threads.max(1));
        let turn = (thread + threads - self.copies_before as usize % threads) % threads;
        (copies / threads + usize::from(turn < copies % threads)) as u32
    }

    /// Slots of that thread.
    pub(super) fn slots_of(&self, thread: usize, threads: usize) -> u32 {
        self.copies_of(thread, threads) * self.depth
    }

    /// The sizes of its commands.
    pub(super) fn blocks(&self) -> Blocks {
        let Some(of) = &self.sizes else { return Blocks::one(self.block) };
        let mut sizes: Vec<u64> = of.reads.iter().chain(&of.writes).map(|(bytes, _)| *bytes).collect();
        // The other direction's may be larger, and are never sent.
        sizes.retain(|bytes| *bytes <= self.block);
        sizes.sort_unstable();
        sizes.dedup();
        let shares = |list: &[(u64, f64)]| {
            let mut upto = 0.0;
            let entry = |(bytes, share): &(u64, f64)| {
                upto += share;
                (sizes.binary_search(bytes).unwrap_or(0), upto)
            };
            list.iter().map(entry).collect()
        };
        let (reads, writes) = (shares(&of.reads), shares(&of.writes));
        Blocks { sizes, reads, writes }
    }

    /// True if the gaps of its rate are random.
    pub(super) fn has_random_gaps(&self) -> bool {
        self.has_random_gaps && (self.bytes_per_s.is_some() || self.commands_per_s.is_some())
    }

    /// The limits of that thread; `random` draws the gaps between its commands.
    pub(super) fn pace(
        &self,
        thread: usize,
        threads: usize,
        start_ns: f64,
        slots: u32,
        random: Option<Stream>,
    ) -> Pace {
        let copies = u64::from(self.copies_of(thread, threads));
        let rate = self.commands_per_s.or(self.bytes_per_s.map(|rate| rate / self.mean_bytes));
        let random = random.zip(rate).map(|(stream, rate)| {
            let mean_ns = 1e9 / (rate * copies as f64);
            RandomGaps { stream, mean_ns, next_ns: start_ns }
        });
        let by_slots = |rate: Option<f64>| rate.filter(|_| random.is_none()).map(|rate| rate * copies as f64);
        let limits = LoadLimits {
            // Bytes are counted where other loads count blocks.
            blocks: by_slots(self.bytes_per_s),
            commands: by_slots(self.commands_per_s),
            slots: SLOTS,
            // fio sends later what it could not send in time.
            rule: BudgetRule::CatchUp,
        };
        let mut pace = Pace {
            limiter: Limiter::new(limits, start_ns),
            limits,
            load: 1.0,
            delay_ns: self.start_delay_ns,
            length_ns: self.runtime_ns.unwrap_or(f64::INFINITY),
            begin_ns: start_ns,
            is_counted: self.commands.is_some(),
            commands: self.commands.map_or(u64::MAX, |most| most.saturating_mul(copies)),
            reads_back: self.reads_back.saturating_mul(copies),
            backlog: self.backlog,
            unread: 0,
            due: 0,
            random,
            over_ns: f64::INFINITY,
            is_reading_back: false,
            slots: slots as usize,
            idle: (0..slots).collect(),
        };
        pace.begin(start_ns);
        pace
    }
}

/// A Poisson process: it does not wait for commands, so that what comes late is sent at once.
#[derive(Clone, Debug)]
struct RandomGaps {
    stream: Stream,
    mean_ns: f64,
    next_ns: f64,
}

/// When a thread may send, and which of its slots wait for that.
#[derive(Clone, Debug)]
pub(super) struct Pace {
    limiter: Limiter,
    /// The limits of the scenario.
    limits: LoadLimits,
    /// Share of them that is offered.
    load: f64,
    /// From the start of its group to its first command, and from that to its end, ns.
    delay_ns: f64,
    length_ns: f64,
    begin_ns: f64,
    /// A number of commands ends it, and how many may still be sent.
    is_counted: bool,
    commands: u64,
    /// Reads of what was written that may still be sent, after all commands.
    reads_back: u64,
    is_reading_back: bool,
    /// Writes after which they are read back, those since then, and reads that are due because of them.
    backlog: u64,
    unread: u64,
    due: u64,
    random: Option<RandomGaps>,
    over_ns: f64,
    slots: usize,
    /// Slots without a request; the one that waits longest is first.
    idle: VecDeque<u32>,
}

impl Pace {
    /// A slot has no request now.
    pub(super) fn rest(&mut self, slot: u32) {
        self.idle.push_back(slot);
    }

    /// Number of slots without a request.
    pub(super) fn resting(&self) -> usize {
        self.idle.len()
    }

    /// Rates are this share of the scenario's from now on.
    pub(super) fn set_load(&mut self, share: f64, now_ns: f64) {
        self.load = share;
        self.limiter.set_rates(self.limits.scaled(share), now_ns);
        if let Some(random) = &mut self.random {
            random.next_ns = random.next_ns.max(now_ns);
        }
    }

    /// Its group begins.
    pub(super) fn begin(&mut self, now_ns: f64) {
        self.begin_ns = now_ns + self.delay_ns;
        self.over_ns = self.begin_ns + self.length_ns;
        self.limiter = Limiter::new(self.limits.scaled(self.load), self.begin_ns);
        if let Some(random) = &mut self.random {
            random.next_ns = self.begin_ns;
        }
    }

    /// When it ends by time, ns.
    pub(super) fn over_ns(&self) -> f64 {
        self.over_ns
    }

    /// True if it sends nothing more and nothing of it is in flight. On a thread without a copy of it, it ends at once if a
    /// number of commands ends it, else as on the others.
    pub(super) fn is_over(&self, now_ns: f64) -> bool {
        if self.slots == 0 {
            return now_ns >= self.over_ns || self.is_counted;
        }
        let has_sent_all = self.commands == 0 && self.due == 0 && self.reads_back == 0;
        (has_sent_all || now_ns >= self.over_ns) && self.idle.len() == self.slots
    }

    /// The slot that may send now, if one waits, and whether it reads what was written; else the time of the next
    /// check, ns.
    pub(super) fn next(&mut self, now_ns: f64) -> Result<(u32, bool), f64> {
        if now_ns < self.begin_ns {
            return Err(self.begin_ns);
        }
        if now_ns >= self.over_ns {
            return Err(f64::INFINITY);
        }
        // Fio reads back after its last write has completed.
        let is_over = self.commands == 0 && self.due == 0;
        if is_over && (self.reads_back == 0 || (!self.is_reading_back && self.idle.len() < self.slots)) {
            return Err(f64::INFINITY);
        }
        self.is_reading_back = is_over;
        let slot = *self.idle.front().ok_or(f64::INFINITY)?;
        let due_ns = self
            .random
            .as_ref()
            .map_or(now_ns, |random| if self.load > 0.0 { random.next_ns } else { f64::INFINITY });
        if due_ns > now_ns {
            return Err(due_ns.min(self.over_ns));
        }
        self.limiter.admit(now_ns).map_err(|slot_ns| slot_ns.min(self.over_ns))?;
        self.idle.pop_front();
        let is_check = is_over || self.due > 0;
        if is_check {
            self.due = self.due.saturating_sub(1);
            self.reads_back = self.reads_back.saturating_sub(1);
        } else {
            self.commands -= 1;
        }
        Ok((slot, is_check))
    }

    /// A command of so many bytes was sent.
    pub(super) fn sent(&mut self, bytes: u64, write: bool) {
        self.limiter.charge(u32::try_from(bytes).unwrap_or(u32::MAX));
        if let Some(random) = &mut self.random {
            random.next_ns += random.stream.exponential(random.mean_ns / self.load);
        }
        self.unread += u64::from(write);
        if self.backlog > 0 && self.unread >= self.backlog {
            self.due += std::mem::take(&mut self.unread);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::host::VirtualServer;
    use crate::scenario::{Scenario, ScenarioError, ScenarioSource};
    use crate::server::RunOptions;
    use std::sync::Arc;
    use waykeeper_host::Host;
    use waykeeper_silicon::Sampling;
    use waykeeper_units::DeviceId;

    fn read(job: &str, keys: &str) -> Result<Scenario, ScenarioError> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("job.fio"), job).unwrap();
        let text = format!(
            "name = \"m\"\nduration_s = 0.05\nwarmup_s = 0.01\nmeasure_s = 0.01\ntime_factor = 1\n\
             [[storage]]\nname = \"s\"\n[[workload]]\nname = \"w\"\nprogram = \"fio\"\ncores = \"0-1\"\n{keys}\n"
        );
        ScenarioSource::parse("m.toml", &text, Some(folder.path().to_owned())).unwrap().read()
    }

    /// Requests and bytes in 30 ms from the start.
    fn rates(job: &str, keys: &str) -> (f64, f64) {
        rates_at(job, keys, 1.0)
    }

    /// The same at a load of the array.
    fn rates_at(job: &str, keys: &str, load: f64) -> (f64, f64) {
        let scenario = Arc::new(read(job, keys).unwrap());
        let options = RunOptions { seed: 1, sample_seed: 1, sampling: Sampling::DEFAULT };
        let mut server = VirtualServer::new(scenario, options).unwrap();
        assert!(server.set_load(DeviceId(0), load) && !server.set_load(DeviceId(1), load));
        server.wait_until(30_000_000).unwrap();
        let measured = server.measured().workloads[0];
        ((measured.operations_per_s * 0.03).round(), (measured.bytes_per_s * 0.03).round())
    }

    #[test]
    fn a_job_is_the_keys_that_say_the_same() {
        // Two copies on two cores with 8 in flight each are a depth of 8 a thread.
        let job = "[a]\nioengine=libaio\nrw=randread\nbs=64k\niodepth=8\nnumjobs=2\ntime_based\nruntime=1h\n";
        let (requests, bytes) = rates(job, "fio = \"job.fio\"");
        assert_eq!((requests, bytes), rates("", "block = \"64k\"\ndepth = 8"));
        assert!(requests > 100.0 && bytes == requests * 65_536.0, "{requests} {bytes}");
    }

    #[test]
    fn rates_and_ends_hold() {
        let of = |more: &str| {
            rates(
                &format!("[a]\nioengine=libaio\nrw=randread\nbs=64k\niodepth=8\n{more}"),
                "fio = \"job.fio\"",
            )
            .0
        };
        // Three copies with 20 requests each, distributed over two cores.
        assert_eq!(of("numjobs=3\nnumber_ios=20\n"), 60.0);
        // 1 MiB is 16 blocks of 64 KiB; one fits into 100 KiB, and 80 KiB need two, of each copy.
        assert_eq!((of("size=1m\n"), of("size=100k\n")), (16.0, 1.0));
        assert_eq!(of("numjobs=3\nsize=1g\nio_size=80k\n"), 6.0);
        // Ends by time alone, although a number is given.
        assert!(of("time_based\nruntime=1h\nnumber_ios=3\n") > 100.0);
        // 1000 requests a second, of which the last is on its way, and as many bytes: 30 ms.
        let slow = [of("rate_iops=1000\n"), of("rate=62500k\n")];
        assert!(slow.iter().all(|count| (28.0..=30.0).contains(count)), "{slow:?}");
        // After 10 of the 30 ms no command is sent.
        let short = of("rate_iops=1000\nruntime=10ms\n");
        assert!((9.0..=10.0).contains(&short), "{short}");
    }

    #[test]
    fn what_was_written_is_read_back_at_the_end_and_a_job_begins_late() {
        let of = |more: &str| {
            rates(
                &format!("[a]\nioengine=libaio\nbs=64k\niodepth=8\nnumber_ios=20\n{more}"),
                "fio = \"job.fio\"",
            )
            .0
        };
        assert_eq!((of("rw=write\n"), of("rw=write\nloops=2\n")), (20.0, 40.0));
        assert_eq!((of("rw=write\nverify=md5\n"), of("rw=write\nverify=md5\ndo_verify=0\n")), (40.0, 20.0));
        // Half of 20 commands write; a job that only reads has nothing to read back.
        assert_eq!((of("rw=randrw\nverify=md5\n"), of("rw=read\nverify=md5\n")), (30.0, 20.0));
        // 1000 commands a second, in 10 of the 30 ms; and a run that ends before the job begins.
        let late = of("startdelay=20ms\nrate_iops=1000\n");
        assert!((9.0..=11.0).contains(&late), "{late}");
        assert_eq!(of("startdelay=1s\n"), 0.0);
    }

    #[test]
    fn several_sizes_random_gaps_and_checks_between_writes_are_played() {
        let of = |more: &str| rates(&format!("[a]\nioengine=libaio\niodepth=8\n{more}"), "fio = \"job.fio\"");
        // 4 and 64 KiB, half of each: 34 KiB on average.
        let (requests, bytes) = of("rw=randread\nbssplit=4k/50:64k/50\n");
        assert!((bytes / requests / 34_816.0 - 1.0).abs() < 0.05, "{requests} {bytes}");
        let (requests, bytes) = of("rw=randrw\nbs=4k,64k\n");
        assert!((bytes / requests / 34_816.0 - 1.0).abs() < 0.1, "{requests} {bytes}");
        // One size is one size, however it is written.
        assert_eq!(of("rw=randread\nbssplit=64k/100\n"), of("rw=randread\nbs=64k\n"));
        // 20000 a second are 600 in 30 ms; their number has a standard deviation of 24.
        let even = of("rw=randread\nbs=4k\nrate_iops=20000\n").0;
        let random = of("rw=randread\nbs=4k\nrate_iops=20000\nrate_process=poisson\n").0;
        assert!(
            (even - 600.0).abs() < 10.0 && (random - 600.0).abs() < 75.0 && random != even,
            "{even} {random}"
        );
        // After each 4 writes 4 reads: 20 and 20. Without an end half of the commands read.
        let written = of("rw=write\nbs=64k\nnumber_ios=20\nverify=md5\nverify_backlog=4\n").0;
        assert_eq!(written, 40.0);
        assert!(of("rw=write\nbs=64k\nverify=md5\nverify_backlog=1\n").0 > 100.0);
    }

    #[test]
    fn all_jobs_of_a_file_are_played_one_group_after_the_other() {
        let of = |text: &str| rates(text, "fio = \"job.fio\"");
        // In parallel: 20 commands of 64 KiB, and 10 of 4 KiB in each of two copies.
        let both = "[a]\nbs=64k\nnumber_ios=20\n[b]\nbs=4k\nnumjobs=2\nnumber_ios=10\n";
        assert_eq!(of(both), (40.0, (20 * 65_536 + 20 * 4096) as f64));
        // 1000 a second for 10 ms, then 2000 for 10 ms: 30 commands, and nothing in the last 10 of the 30 ms.
        let groups = "[global]\nbs=4k\nruntime=10ms\n[a]\nnumjobs=2\nrate_iops=500\n[b]\nstonewall\nnumjobs=2\nrate_iops=1000\n";
        let (requests, _) = of(groups);
        assert!((27.0..=31.0).contains(&requests), "{requests}");
        // The second group begins where the first one has sent all it has.
        let ends = "[global]\nbs=64k\nnumjobs=2\n[a]\nnumber_ios=5\n[b]\nstonewall\nnumber_ios=7\n";
        assert_eq!(of(ends).0, 24.0);
        // A group without an end is never followed, on no core.
        let endless = "[a]\nbs=4k\nrate_iops=1000\n";
        assert_eq!(of(&format!("{endless}[b]\nstonewall\nbs=4k\n")), of(endless));
        // One job of several is one job.
        assert_eq!(rates(both, "fio = \"job.fio\"\nfio_job = \"a\"").0, 20.0);
    }

    #[test]
    fn a_load_of_the_array_scales_requests_in_flight_and_rates() {
        // Half of 4 requests in flight are 2, and half of 1 is 1.
        let requests = |depth: u32, load| rates_at("", &format!("block = \"64k\"\ndepth = {depth}"), load).0;
        let (four, half, two) = (requests(4, 1.0), requests(4, 0.5), requests(2, 1.0));
        assert!((half / two - 1.0).abs() < 0.02 && half < 0.7 * four, "{four} {half} {two}");
        assert_eq!(requests(1, 0.5), requests(1, 1.0));
        assert_eq!(requests(4, 0.0), 0.0);
        // 1000 and 500 requests a second: 30 and 15 in 30 ms, of which the last is on its way. The slot in which the
        // load changes has its budget of one request already.
        let job = "[a]\nioengine=io_uring\nrw=randread\nbs=64k\niodepth=8\nrate_iops=1000\n";
        let at = |load| rates_at(job, "fio = \"job.fio\"", load).0;
        let (full, half) = (at(1.0), at(0.5));
        assert!((28.0..=30.0).contains(&full) && (14.0..=16.0).contains(&half), "{full} {half}");
        assert_eq!(at(0.0), 0.0);
    }

    #[test]
    fn a_public_job_file_loads_the_array_and_says_what_has_no_effect() {
        let job = "[global]\nioengine=libaio\ndirect=0\nfilename=${DEV}\n[a]\nrw=randread\nbs=64k\niodepth=8\nnumjobs=2\n";
        let named = "fio = \"job.fio\"";
        assert_eq!(rates(job, named), rates("", "block = \"64k\"\ndepth = 8"));
        let notes = read(job, named).unwrap().workloads[0].blueprint.notes().to_vec();
        assert_eq!(notes.len(), 3, "{notes:?}");
        assert!(notes[2].starts_with("`filename` (line 4): "), "{notes:?}");
        // A synchronous engine has one command in flight in each copy.
        let waiting = job.replace("libaio", "psync");
        assert_eq!(rates(&waiting, named), rates("", "block = \"64k\"\ndepth = 1"));
    }

    #[test]
    fn a_bad_job_file_is_refused_with_its_line() {
        let reported = |job: &str, keys: &str| read(job, keys).unwrap_err().to_string();
        let named = "fio = \"job.fio\"";
        let why = reported("[a]\nbs=4k\niodepht=3\n", named);
        assert!(
            why.contains("job.fio:3: `iodepht` is not a fio key") && why.contains("did you mean `iodepth`"),
            "{why}"
        );
        assert!(
            reported("[a]\n[b]\nexitall\n", named)
                .contains("job.fio:3: `exitall` is given; it must be absent, or one job")
        );
        assert!(read("[a]\n[b]\nexitall\n", &format!("{named}\nfio_job = \"b\"")).is_ok());
        let why = reported("[a]\nbs=32m\n", named);
        assert!(
            why.ends_with("job.fio:1: `a.bs` is 33554432; it must be at most 16m on the virtual server"),
            "{why}"
        );
        assert!(
            reported("[global]\nioengine=io_uring\n[a]\niodepth=1000\nnumjobs=3\n[b]\niodepth=2000\n", named)
                .contains("of all jobs is at most 4096")
        );
        let why = reported("[a]\n", &format!("{named}\ndepth = 3"));
        assert!(
            why.contains("depth` is given together with `fio`; it must be absent: the job file gives it"),
            "{why}"
        );
        assert!(reported("[a]\n", "fio_job = \"a\"").contains("no job file is named"));
        assert!(reported("[a]\n", "fio = \"other.fio\"").contains("other.fio: cannot be read"));
    }
}
