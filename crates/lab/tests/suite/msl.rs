//! The search for the maximum sustainable load, on a worker whose saturation is known in closed form.

use waykeeper_lab::msl::{self, Criterion, MslSummary};
use waykeeper_lab::runner::{RunError, RunPlan};
use waykeeper_machine::ScenarioSource;

/// One core that takes 1000 ns a packet, and a packet of 1000 + 24 bytes.
const WORKER: &str = r#"
name = "worker"
policies = ["none"]
chip = "idio"
duration_s = 0.006
warmup_s = 0.002
measure_s = 0.004
time_factor = 1
interval_s = 0.002
[model]
quantum_ns = 500
[[nic]]
name = "nic0"
gbps = 20
packet_bytes = 1000
outside_us = 0
[[workload]]
name = "worker"
program = "dpdk-nt"
cores = 0
base_ns = 1000
burst_ns = 0
delay_ns = 0
stall_us = 0
"#;

fn find(text: &str, nic: Option<&str>, threads: usize) -> Result<MslSummary, RunError> {
    let source = ScenarioSource::parse("worker.toml", text, None).unwrap();
    msl::find(&source, &RunPlan { threads, ..RunPlan::default() }, nic, Criterion::Knee, &|_| ())
}

#[test]
fn a_worker_of_fixed_cost_sustains_the_inverse_of_it() {
    // 1000 ns and completion and metadata lines, at least 3 + 1.25 x 2 ns from the MLC and at most 12 + 1.25 x 9.5 ns:
    // 1006 to 1024 ns a packet of 8192 bits are 8.00 to 8.15 Gb/s, known to 0.5 % of 20 Gb/s.
    let found = find(WORKER, None, 0).unwrap();
    let knee = &found.knees[0];
    let msl = knee.msl_gbps.unwrap();
    assert!((7.9..=8.15).contains(&msl), "{msl}");
    assert!(!knee.at_line_rate && knee.probes.len() <= 10);
}

#[test]
fn a_worker_twice_as_slow_sustains_half() {
    let sweep = "[[sweep]]\nkey = \"workload.worker.base_ns\"\nvalues = [1000, 2000]\n";
    let found = find(&format!("{WORKER}{sweep}"), Some("nic0"), 0).unwrap();
    let [fast, slow] = [0, 1].map(|index: usize| found.knees[index].msl_gbps.unwrap());
    assert!((fast / slow - 2.0).abs() < 0.1, "{fast} {slow}");
    assert!(msl::table(&found).contains("workload.worker.base_ns"));
}

#[test]
fn a_line_that_cannot_saturate_the_worker_is_said_so() {
    let found = find(&WORKER.replace("gbps = 20", "gbps = 5"), None, 0).unwrap();
    assert!(found.knees[0].at_line_rate && msl::table(&found).contains("at least 5.00"));
}

#[test]
fn threads_cannot_be_seen() {
    let text = format!("{WORKER}[[sweep]]\nkey = \"nic.nic0.ring\"\nvalues = [64, 1024]\n");
    assert_eq!(find(&text, None, 1).unwrap(), find(&text, None, 2).unwrap());
}

#[test]
fn the_nic_to_load_must_exist_and_be_named_where_there_are_several() {
    let refused = |text: &str, nic| {
        let error = find(text, nic, 1).unwrap_err();
        assert!(error.is_bad_input());
        error.to_string()
    };
    assert!(refused(WORKER, Some("nic1")).contains("`nic1`; it must be one of nic0"));
    let two = format!("{WORKER}[[nic]]\nname = \"nic1\"\n").replace("cores = 0", "cores = 0\nnic = \"nic0\"");
    assert!(refused(&two, None).contains("not named; it must be one of nic0, nic1"));
    let none =
        "name = \"n\"\n[[workload]]\nname = \"w\"\nprogram = \"x-mem\"\ncores = 0\nworking_set = \"1 MiB\"\n";
    assert!(refused(none, None).contains("no [[nic]]"));
}

#[test]
fn placing_packets_in_the_mlc_raises_the_maximum_sustainable_load() {
    // IDIO Fig. 3, DPIzRX: MLC and IDIO +27.9 % over LLC. Shortened and coarser than the scenario: the direction and half
    // of the size are held.
    let mut source = waykeeper_lab::registry::open("idio-fig3").unwrap();
    let sweep: toml::Table =
        "sweep = [{ key = \"nic.nic0.placement\", values = [\"llc\", \"mlc\", \"idio\"] }]".parse().unwrap();
    source.set("sweep", &sweep["sweep"]).unwrap();
    let plan = RunPlan { duration_s: Some(0.012), ..RunPlan::default() };
    let found = msl::find(&source, &plan, None, Criterion::Knee, &|_| ()).unwrap();
    let [llc, mlc, idio] = [0, 1, 2].map(|index: usize| found.knees[index].msl_gbps.unwrap());
    assert!(mlc > 1.14 * llc && idio > 1.14 * llc, "llc {llc}, mlc {mlc}, idio {idio}");
}
