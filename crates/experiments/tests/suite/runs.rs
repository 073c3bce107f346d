//! Runs whose shares can be worked out by hand.

use crate::files::SMALL;
use waykeeper_experiments::{ChipComparison, Effort, ExperimentFile, compare};
use waykeeper_silicon::{ChipSpec, Sampling};

fn effort() -> Effort {
    Effort { sampling: Sampling::one_in(32).unwrap(), seeds: 1, trials: 2 }
}

fn run(chip: &str, text: &str) -> ChipComparison {
    let file = ExperimentFile::parse("my.toml", text).unwrap();
    compare(&ChipSpec::built_in(chip).unwrap(), &[("my.toml".to_owned(), file)], effort()).unwrap()
}

/// The model's shares when these steps come before the sample.
fn shares(steps: &str) -> Vec<f64> {
    let text = SMALL.replace("[{ do = \"device-write\", region = \"host\", mib = \"x\" }]", steps);
    run("platinum-8570", &text).rows.iter().map(|row| row.model.unwrap()).collect()
}

#[test]
fn each_step_does_what_it_says() {
    const WRITE: &str = "{ do = \"device-write\", region = \"host\", mib = 2 }";
    const FLUSH: &str = "{ do = \"flush\", region = \"host\", mib = 64 }";
    // Two of 30 MiB of DCA ways, nothing of it before: all lines are there.
    assert_eq!(shares(&format!("[{FLUSH}, {WRITE}]")), [1.0, 1.0]);
    assert_eq!(shares(&format!("[{WRITE}, {FLUSH}]")), [0.0, 0.0]);
    assert_eq!(
        shares(&format!("[{FLUSH}, {{ do = \"device-read\", region = \"host\", mib = 2 }}]")),
        [0.0, 0.0]
    );
    // 1 MiB of 2 is read or written: half of what the second row looks at.
    for kind in ["read", "write"] {
        let walk = format!("{{ do = \"{kind}\", region = \"host\", mib = 1 }}");
        assert_eq!(shares(&format!("[{FLUSH}, {walk}]")), [1.0, 0.5], "{kind}");
    }
    // The second core's part is after the first's, and its lines are in its own L2.
    let two = "{ do = \"read\", region = \"host\", mib = 1, cores = 2, random = true, passes = 2 }";
    assert_eq!(shares(&format!("[{FLUSH}, {two}]")), [1.0, 1.0]);
    let later = "{ do = \"read\", region = \"host\", at = 1, mib = 1 }";
    assert_eq!(shares(&format!("[{FLUSH}, {later}]")), [0.0, 0.5]);
    // Without neighbours time moves nothing.
    assert_eq!(shares(&format!("[{FLUSH}, {WRITE}, {{ do = \"wait\", us = 1000000 }}]")), [1.0, 1.0]);
}

#[test]
fn neighbours_take_what_their_rates_ask_for_while_time_passes() {
    let near = "[neighbours]\ndevice_gb_per_s = 10\nstream_gb_per_s = 0\nreuse_gb_per_s = 0\nreuse_mib = 1\n[regions]";
    let text = |us: u32| {
        let steps = format!(
            "[{{ do = \"flush\", region = \"host\", mib = 64 }}, \
             {{ do = \"device-write\", region = \"host\", mib = \"x\" }}, {{ do = \"wait\", us = {us} }}]"
        );
        SMALL
            .replace("[regions]", near)
            .replace("[{ do = \"device-write\", region = \"host\", mib = \"x\" }]", &steps)
    };
    // Over layouts of memory: in one of them no page of the neighbours may be in the same sets.
    let share = |us| {
        let file = ExperimentFile::parse("my.toml", &text(us)).unwrap();
        let chip = ChipSpec::built_in("platinum-8570").unwrap();
        let effort = Effort { seeds: 8, trials: 1, ..effort() };
        compare(&chip, &[("my.toml".to_owned(), file)], effort).unwrap().rows[1].model.unwrap()
    };
    // 10 GB/s are 10 MB in 1 ms, of 31.5 MB in the DCA ways, and 200 MB in 20 ms.
    assert!(share(0) > 0.95, "{}", share(0));
    assert!((0.4..0.95).contains(&share(1000)), "{}", share(1000));
    assert!(share(20_000) < 0.02, "{}", share(20_000));
}

#[test]
fn hits_that_the_measurement_missed_are_missed_in_the_model() {
    let text = SMALL.replace("x = \"MiB\"", "x = \"MiB\"\nllc_hits_seen = 0.8");
    for (row, expected) in run("platinum-8570", &text).rows.iter().zip([0.8, 0.8]) {
        assert!((row.model.unwrap() - expected).abs() < 1e-9, "{row:?}");
        assert!((row.distance.unwrap() - 0.2).abs() < 1e-9, "{row:?}");
    }
}

#[test]
fn sizes_are_those_of_the_measured_machine_in_ways() {
    // The same in ways: 1 and 2 of 15 MiB, 0.1 and 0.2 of 1.5 MiB.
    let text = |way: &str, host: &str, rows: &str| {
        let text = SMALL.replace("way_mib = 15", way).replace("host = 64", host);
        text.replace("rows = [[1, 1.0], [2, 1.0]]", rows)
    };
    let large = text("way_mib = 15", "host = 64", "rows = [[10, 1.0], [40, 1.0]]");
    let small = text("way_mib = 1.5", "host = 6.4", "rows = [[1, 1.0], [4, 1.0]]");
    let models = |text: &str| run("gold-6140", text).rows.iter().map(|row| row.model).collect::<Vec<_>>();
    assert_eq!(models(&large), models(&small));
    assert!(models(&large)[1].unwrap() < 0.6, "40 MiB of 15 MiB a way are more than two ways");
}

#[test]
fn the_same_arguments_give_the_same_rows_and_a_row_without_a_simulated_line_is_unknown() {
    let first = run("gold-6140", SMALL);
    assert_eq!(format!("{first:?}"), format!("{:?}", run("gold-6140", SMALL)));
    let mean = first.rows.iter().map(|row| row.distance.unwrap()).sum::<f64>() / 2.0;
    assert_eq!(first.mean_distance, Some(mean));
    let tiny = SMALL.replace("rows = [[1, 1.0], [2, 1.0]]", "rows = [[0, 1.0]]");
    let unknown = run("gold-6140", &tiny);
    assert_eq!((unknown.rows[0].model, unknown.rows[0].distance, unknown.mean_distance), (None, None, None));
    assert_eq!(unknown.rows[0].unknown.as_deref(), Some("no simulated line; simulate more sets"));
    assert_eq!(first.rows[0].unknown, None);
}

#[test]
fn a_row_that_needs_more_cores_than_the_chip_has_is_unknown() {
    let text = SMALL.replace("mib = \"x\" }\nrows", "mib = \"x\", cores = 5 }\nrows");
    let file = ExperimentFile::parse("my.toml", &text).unwrap();
    let chip = ChipSpec::built_in("e3-1230").unwrap();
    let row = &compare(&chip, &[("my.toml".to_owned(), file)], effort()).unwrap().rows[0];
    assert_eq!((row.model, row.unknown.as_deref()), (None, Some("needs 5 cores")));
}

#[test]
fn memory_that_the_chip_lacks_is_an_error() {
    let file = ExperimentFile::parse("my.toml", &SMALL.replace("host = 64", "host = 60000")).unwrap();
    let chip = ChipSpec::built_in("gold-6140").unwrap();
    let error = compare(&chip, &[("my.toml".to_owned(), file)], effort()).unwrap_err().to_string();
    assert!(error.starts_with("my.toml: its regions and neighbours need more memory"), "{error}");
}
