//! A source that was silent while it was measured, and a capture that no wire delivers, are said with the key to change.

use std::path::Path;
use waykeeper_lab::results::{RunSummary, WarningKey};
use waykeeper_lab::runner::{Experiment, ExperimentOutcome, RunPlan};
use waykeeper_machine::ScenarioSource;

/// Four controller seconds, of which the last two are measured: 20 ms of traffic.
const SERVER: &str = r#"
name = "small"
policies = ["default"]
duration_s = 4
warmup_s = 1
measure_s = 2
interval_s = 1
time_factor = 100
[[nic]]
name = "nic0"
NIC
[[workload]]
name = "fwd"
program = "l2fwd"
cores = 0
nic = "nic0"
priority = "high"
[[workload]]
name = "scan"
program = "x-mem"
cores = 1
working_set = "4M"
SCAN
"#;

fn source(folder: &Path, nic: &str, scan: &str) -> ScenarioSource {
    let text = SERVER.replace("NIC", nic).replace("SCAN", scan);
    ScenarioSource::parse("small.toml", &text, Some(folder.to_owned())).unwrap()
}

fn run(folder: &Path, nic: &str, scan: &str) -> RunSummary {
    let experiment = Experiment::prepare(&source(folder, nic, scan), RunPlan::default()).unwrap();
    match experiment.run(&|_| ()).unwrap() {
        ExperimentOutcome::Run(summary) => *summary,
        ExperimentOutcome::Sweep(_) => panic!("it sweeps nothing"),
    }
}

/// The warnings of a kind, with what to do.
fn said(summary: &RunSummary, key: WarningKey) -> Vec<String> {
    summary.warnings.iter().filter(|one| one.key == key).map(ToString::to_string).collect()
}

/// A pcap file: time in us, captured and original length of each packet. Its packets are no IP.
fn pcap(folder: &Path, name: &str, packets: &[(u32, u32, u32)]) {
    let mut bytes =
        vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 1, 0, 0, 0];
    for (us, captured, original) in packets {
        for word in [us / 1_000_000, us % 1_000_000, *captured, *original] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(vec![0; *captured as usize]);
    }
    std::fs::write(folder.join(name), bytes).unwrap();
}

#[test]
fn each_silent_source_is_said_with_its_reason_and_its_key() {
    let folder = tempfile::tempdir().unwrap();
    // Packets at 0 and 1 s of traffic: the second is far behind the end.
    pcap(folder.path(), "sparse.pcap", &[(0, 60, 60), (1_000_000, 60, 60)]);
    pcap(folder.path(), "usual.pcap", &[(0, 60, 60), (10, 60, 60), (20, 60, 60)]);
    for (nic, scan, wanted) in [
        ("offered_gbps = 1", "", None),
        ("capture = \"usual.pcap\"", "", None),
        (
            "offered_gbps = 0",
            "",
            Some(
                "fwd did nothing while it was measured: nic0 is offered nothing then; `--set nic.nic0.offered_gbps=N` offers some",
            ),
        ),
        (
            "capture = \"usual.pcap\"\noffered_gbps = 0",
            "",
            Some(
                "fwd did nothing while it was measured: nic0 is offered nothing then; `--set nic.nic0.offered_gbps=N` offers some",
            ),
        ),
        (
            "offered_gbps = 1\n[[nic.phase]]\nat_s = 1\noffered_gbps = 0",
            "",
            Some(
                "fwd did nothing while it was measured: nic0 is offered nothing then; an `offered_gbps` above 0 in its \
                 `[[nic.phase]]` at 1 s offers some",
            ),
        ),
        (
            "capture = \"sparse.pcap\"",
            "",
            Some(
                "fwd did nothing while it was measured: no packet came to nic0 within the measured 20.0 ms of traffic; \
                 `--set nic.nic0.offered_gbps=N` plays its capture at a rate",
            ),
        ),
        (
            "offered_gbps = 1",
            "start_s = 5",
            Some(
                "scan did nothing while it was measured: it starts at 5 s, the measurement ends at 4 s; \
                 `--set workload.scan.start_s=N` starts it earlier",
            ),
        ),
        (
            "offered_gbps = 1",
            "stop_s = 1.5",
            Some(
                "scan did nothing while it was measured: it stops at 1.5 s, the measurement begins at 2 s; \
                 `--set workload.scan.stop_s=N` keeps it running",
            ),
        ),
        (
            "offered_gbps = 1",
            "start_s = 0\nstop_s = 0.5\nevery_s = 4.5",
            Some(
                "scan did nothing while it was measured: it runs for 0.5 s each 4.5 s, and not between 2 and 4 s, which are \
                 measured; `--set workload.scan.every_s=N` starts it again at another time",
            ),
        ),
        (
            "offered_gbps = 1\n[[nic.phase]]\nat_s = 9\noffered_gbps = 2\n[[nic.phase]]\nat_s = 4\noffered_gbps = 3",
            "",
            Some(
                "the phases of nic0 at 4 s, 9 s do not begin: the run ends at 4 s; `--duration N` with N above 9 plays to \
                 the last one",
            ),
        ),
        (
            "offered_gbps = 1",
            "[[fault]]\nkind = \"sample-fails\"\nat_s = 6\n[[knobs.phase]]\nat_s = 7\ndca_ways = \"0x600\"",
            Some(
                "the phase of the knobs at 7 s does not begin: the run ends at 4 s; `--duration N` with N above 7 plays to the \
                 last one\nthe fault at 6 s does not begin: the run ends at 4 s; `--duration N` with N above 6 plays to the \
                 last one",
            ),
        ),
        (
            "offered_gbps = 1",
            "[[workload.phase]]\nat_s = 5\nworking_set = \"1M\"",
            Some(
                "the phase of scan at 5 s does not begin: the run ends at 4 s; `--duration N` with N above 5 plays to the \
                 last one",
            ),
        ),
        (
            "offered_gbps = 1\n[[nic]]\nname = \"nic1\"\noffered_gbps = 1\n[[storage]]\nname = \"ssd\"",
            "",
            Some(
                "nic1 moves nothing: no workload uses it; `nic = \"nic1\"` in a `[[workload]]` uses it; or remove its \
                 `[[nic]]`\nssd moves nothing: no workload uses it; `storage = \"ssd\"` in a `[[workload]]` uses it; or \
                 remove its `[[storage]]`",
            ),
        ),
    ] {
        let summary = run(folder.path(), nic, scan);
        let wanted = wanted.map_or_else(Vec::new, |text| text.lines().map(str::to_owned).collect());
        assert_eq!(said(&summary, WarningKey::Silent), wanted, "{nic} {scan}");
    }
}

/// A workload whose packets are dropped because it does not run yet is as silent as one without packets.
#[test]
fn dropped_packets_hide_no_silence() {
    let text = SERVER.replace("NIC", "offered_gbps = 1").replace("SCAN", "");
    // 50 ms of traffic are 5 s.
    for (late, wanted) in [
        (
            "start_s = 5",
            "it starts at 5 s, the measurement ends at 4 s; `--set workload.fwd.start_s=N` starts it earlier",
        ),
        (
            "start_delay_ms = 50",
            "its threads begin 50 ms of traffic after its start at 0 s, the measurement ends at 4 s; \
             `--set workload.fwd.start_delay_ms=N` with a smaller N starts them earlier",
        ),
    ] {
        let text = text.replace("program = \"l2fwd\"", &format!("program = \"l2fwd\"\n{late}"));
        let source = ScenarioSource::parse("small.toml", &text, None).unwrap();
        let experiment = Experiment::prepare(&source, RunPlan::default()).unwrap();
        let ExperimentOutcome::Run(summary) = experiment.run(&|_| ()).unwrap() else {
            panic!("it sweeps nothing")
        };
        assert!(summary.policies["default"].workloads["fwd"].metrics.drops_per_s > Some(0.0), "{late}");
        let wanted = format!("fwd did nothing while it was measured: {wanted}");
        assert_eq!(said(&summary, WarningKey::Silent), [wanted]);
    }
}

#[test]
fn jobs_that_the_measurement_does_not_see_are_said() {
    let folder = tempfile::tempdir().unwrap();
    let storage = "offered_gbps = 1\n[[storage]]\nname = \"ssd\"\n[[workload]]\nname = \"fio\"\nprogram = \"fio\"\n\
        cores = 2\nfio = \"job.fio\"";
    // The last 20 of 40 ms are measured.
    for (jobs, wanted) in [
        ("[a]\n", vec![]),
        ("[a]\nruntime=30ms\n[b]\nstonewall\n", vec![]),
        (
            "[a]\n[b]\nruntime=5ms\n",
            vec![
                "the job b of fio ends after 5.00 ms of traffic at the latest, the measurement begins after 20.0 ms of \
                 traffic; a longer `runtime` in the job file keeps it running",
            ],
        ),
        (
            "[a]\nruntime=5ms\n",
            vec![
                "fio did nothing while it was measured: the job a of fio ends after 5.00 ms of traffic at the latest, the \
                 measurement begins after 20.0 ms of traffic; a longer `runtime` in the job file keeps it running",
            ],
        ),
        (
            "[a]\nruntime=60\n[b]\nstonewall\n",
            vec![
                "the job b of fio begins after 60000 ms of traffic at the earliest, the measurement ends after 40.0 ms of \
                 traffic; a shorter `runtime` of the jobs before it, or a shorter `startdelay`, lets it begin",
            ],
        ),
        (
            "[a]\n[b]\nstonewall\n",
            vec![
                "the job b of fio never begins: a job before its `stonewall` has no end; `--set workload.fio.fio_job=b` plays \
                 it alone; or give that job a `runtime`",
            ],
        ),
        (
            "[a]\n[b]\nnumber_ios=5\n",
            vec![
                "no command of the job b of fio ended within the measured 20.0 ms of traffic, and a number of commands ends \
                 it; `time_based=1` in the job file keeps it running",
            ],
        ),
        (
            "[a]\nnumber_ios=1000000\n[b]\nstonewall\n",
            vec![
                "no command of the job b of fio ended within the measured 20.0 ms of traffic; `--set time_factor=N` with a \
                 smaller N measures more traffic",
            ],
        ),
        (
            "[a]\nnumber_ios=5\n",
            vec![
                "fio did nothing while it was measured: no command of its job file ended within the measured 20.0 ms of \
                 traffic, and a number of commands ends its jobs; `time_based=1` in the job file keeps it running",
            ],
        ),
    ] {
        std::fs::write(folder.path().join("job.fio"), jobs).unwrap();
        let summary = run(folder.path(), storage, "");
        assert_eq!(said(&summary, WarningKey::Silent), wanted, "{jobs}");
    }
}

#[test]
fn a_capture_without_times_needs_a_rate() {
    let folder = tempfile::tempdir().unwrap();
    pcap(folder.path(), "t0.pcap", &[(0, 60, 60); 100]);
    pcap(folder.path(), "one.pcap", &[(7, 60, 60)]);
    for name in ["t0", "one"] {
        let capture = format!("capture = \"{name}.pcap\"");
        let error = source(folder.path(), &capture, "").read().unwrap_err().to_string();
        assert!(
            error.contains("`nic[nic0].capture` is") && error.contains("all its packets have one time"),
            "{error}"
        );
        let summary = run(folder.path(), &format!("{capture}\noffered_gbps = 1"), "");
        // 84 bytes of 8 bits at 1 Gb/s: a packet each 672 ns, 1.49 million a second.
        let throughput = summary.policies["default"].workloads["fwd"].metrics.throughput.unwrap();
        assert!((throughput / 1.488e6 - 1.0).abs() < 0.01, "{throughput}");
        assert_eq!(said(&summary, WarningKey::Silent), [""; 0]);
    }
}

#[test]
fn what_was_changed_of_a_capture_is_said() {
    let folder = tempfile::tempdir().unwrap();
    // The second was stamped before the first, the third is three frames, of the fourth more was captured than there was.
    pcap(folder.path(), "odd.pcap", &[(5, 60, 60), (2, 60, 60), (100, 60, 4000), (200, 60, 10)]);
    let summary = run(folder.path(), "capture = \"odd.pcap\"\ngbps = 10", "");
    let [text] = &said(&summary, WarningKey::CaptureChanged)[..] else { panic!("{:?}", summary.warnings) };
    // The two parts behind the first of 1514 bytes wait for 1538 bytes each: 1.23 and 2.46 us.
    assert_eq!(
        text,
        "the capture of nic0 is not what a wire delivers: 1 of 4 packets are longer than a frame and come as several; \
         1 of 4 packets are out of order in the file and sorted by time; 1 of 4 packets have more bytes than their \
         length says; the bytes count; 2 of 6 frames come later than recorded, up to 2.46 us, since the line carries \
         10 Gb/s; `waykeeper capture info` shows the file; `--set nic.nic0.offered_gbps=N` plays it at a rate"
    );
    // A burst of 200 packets within a microsecond on a line of 1 Gb/s: never more than the line carries.
    let burst: Vec<_> =
        (0..200).map(|number| (number / 200, 1000, 1000)).chain([(4000, 1000, 1000)]).collect();
    pcap(folder.path(), "burst.pcap", &burst);
    let summary = run(folder.path(), "capture = \"burst.pcap\"\ngbps = 1", "");
    assert!(
        said(&summary, WarningKey::CaptureChanged)[0].contains("199 of 201 frames come later than recorded")
    );
}

#[test]
fn a_gap_that_dominates_and_packets_that_are_left_out_are_said() {
    let folder = tempfile::tempdir().unwrap();
    // The third packet lost its time, the fourth has no bytes.
    let late = 1_700_000_000;
    pcap(folder.path(), "lost.pcap", &[(late, 60, 60), (late + 10, 60, 60), (0, 60, 60), (late + 20, 0, 0)]);
    let said_of = |keys: &str| said(&run(folder.path(), keys, ""), WarningKey::CaptureChanged);
    let [text] = &said_of("capture = \"lost.pcap\"")[..] else { panic!() };
    assert!(text.contains("1 of 4 packets are out of order in the file"), "{text}");
    assert!(text.contains("1 of 4 packets have no bytes and are left out"), "{text}");
    assert!(text.contains("no packet comes for 1700.000000 s between packets 3 and 1,"), "{text}");
    // At a rate the gaps do not count.
    let [text] = &said_of("capture = \"lost.pcap\"\noffered_gbps = 1")[..] else { panic!() };
    assert!(!text.contains("no packet comes"), "{text}");
}
