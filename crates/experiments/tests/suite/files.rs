//! Every file that ships can be read, and what no run could use is refused with file, key, value and what would do.

use std::path::Path;
use waykeeper_experiments::ExperimentFile;

/// A file with one experiment.
pub const SMALL: &str = r#"
about = "small"
source = "worked out by hand"
way_mib = 15

[pace]
device_gb_per_s = 54
device_start_us = 20
flush_ns = 4
sample_us = 50

[regions]
host = 64

[[experiment]]
name = "written"
about = "a device writes"
x = "MiB"
steps = [{ do = "device-write", region = "host", mib = "x" }]
sample = { region = "host", mib = "x" }
rows = [[1, 1.0], [2, 1.0]]
"#;

#[test]
fn every_file_in_the_repository_can_be_read() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments");
    let mut names: Vec<String> = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let file = ExperimentFile::read(&path).unwrap_or_else(|error| panic!("{error}"));
        assert!(!file.experiments.is_empty());
        names.push(path.file_name().unwrap().to_str().unwrap().to_owned());
    }
    for (name, file) in ExperimentFile::shipped() {
        assert!(names.contains(&name), "{name}");
        assert!(
            file.experiments.iter().all(|experiment| experiment.rows.len() > 1 || name.contains("cores"))
        );
    }
}

#[test]
fn what_no_run_could_use_is_refused() {
    let error = |from: &str, to: &str| {
        assert!(SMALL.contains(from), "{from}");
        ExperimentFile::parse("my.toml", &SMALL.replacen(from, to, 1)).unwrap_err().to_string()
    };
    for (from, to, said) in [
        ("about = \"small\"", "about = 1", "my.toml: line 2: invalid type: integer `1`, expected a string"),
        ("way_mib = 15", "way_mib = 0", "`way_mib` is 0; it must be a number from 0.01 to 1024"),
        ("host = 64", "host = 0", "`regions.host` is 0; it must be a number from 0.01 to 65536"),
        ("flush_ns = 4", "flush_us = 4", "line 9: unknown field `flush_us`"),
        ("device_gb_per_s = 54", "device_gb_per_s = nan", "`pace.device_gb_per_s` is NaN"),
        (
            "[regions]",
            "[neighbours]\ndevice_gb_per_s = -1\nstream_gb_per_s = 1\nreuse_gb_per_s = 1\nreuse_mib = 1\n[regions]",
            "`neighbours.device_gb_per_s` is -1; it must be a number from 0 to 1000",
        ),
        (
            "do = \"device-write\"",
            "do = \"erase\"",
            "unknown variant `erase`, expected one of `flush`, `device-write`",
        ),
        (
            "region = \"host\", mib = \"x\" }]",
            "region = \"mine\", mib = 1 }]",
            "`experiment written: steps.region` is mine; it must be one of host",
        ),
        (
            "mib = \"x\" }]",
            "mib = \"y\" }]",
            "`experiment written: steps.mib` is \"y\"; it must be a number, or \"x\"",
        ),
        (
            "mib = \"x\" }]",
            "mib = \"x\", at = 63 }]",
            "`experiment written: steps.mib` is 2; it must be a number from 0 to 1",
        ),
        ("mib = \"x\" }\nrows", "mib = \"x\", cores = 40 }\nrows", "`experiment written: sample.mib` is 2"),
        (
            "[[1, 1.0], [2, 1.0]]",
            "[[1, 1.5]]",
            "`experiment written: rows` is 1.5; it must be a number from 0 to 1",
        ),
        ("[[1, 1.0], [2, 1.0]]", "[]", "`experiment written: rows` is empty"),
        ("x = \"MiB\"", "x = \"MiB\"\nllc_hits_seen = 2", "`experiment written: llc_hits_seen` is 2"),
        ("steps = [{", "steps = [{ do = \"wait\", us = -1 }, {", "`experiment written: steps.us` is -1"),
        (
            "steps = [{",
            "steps = [{ do = \"read\", region = \"host\", mib = 1, passes = 2e9 }, {",
            "steps.passes` is 2000000000",
        ),
    ] {
        let text = error(from, to);
        assert!(text.contains(said) && text.starts_with("my.toml: "), "{to}: {text}");
    }
    let twice = format!("{SMALL}{}", &SMALL[SMALL.find("[[experiment]]").unwrap()..]);
    let text = ExperimentFile::parse("my.toml", &twice).unwrap_err().to_string();
    assert!(text.contains("`experiment.name` is written; it must be a name that no other"), "{text}");
    let text = ExperimentFile::read(Path::new("no-such.toml")).unwrap_err().to_string();
    assert!(text.starts_with("no-such.toml: ") && text.contains("No such file"), "{text}");
}
