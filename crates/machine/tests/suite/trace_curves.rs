//! The shipped traces of real programs: their stated sizes, the effect of the LLC's size, and that scenarios replay
//! them with the numbers of docs/programs.md.

use crate::common::curves::{Point, WAYS};
use crate::common::lock::{key, locked};
use crate::common::traces::{Shipped, TRACES};
use std::collections::BTreeSet;
use std::path::Path;
use waykeeper_inputs::TraceInfo;

/// Programs that miss less in a larger LLC, and programs with little difference.
const FEELS: [&str; 6] = ["bfs", "grep", "perl", "python3", "spmv", "zstd"];
const FEELS_NOT: [&str; 3] = ["cc1", "flac", "sqlite3"];

#[test]
fn each_shipped_trace_has_the_instructions_that_it_claims() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../inputs");
    let names = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let files: BTreeSet<_> = names.filter(|path| path.extension().is_some_and(|end| end == "wkt")).collect();
    assert_eq!(files.len(), TRACES.len());
    let page = std::fs::read_to_string(folder.join("README.md")).unwrap();
    let mut bytes = 0;
    for trace in TRACES {
        let size = std::fs::metadata(trace.path()).unwrap().len();
        assert!(size <= 4_000_000, "{}: {size} bytes", trace.name);
        assert!(page.contains(&format!("| `{}.wkt` | {size} |", trace.name)), "{}", trace.name);
        bytes += size;
        let info = TraceInfo::read(&trace.path()).unwrap();
        assert_eq!(info.summary.instructions, trace.millions * 1_000_000, "{}", trace.name);
        assert_eq!(info.l1_filtered, trace.name != "redis-server", "{}", trace.name);
    }
    assert!(bytes <= 20_000_000, "{bytes} bytes");
}

#[test]
fn the_size_of_the_llc_changes_the_misses_of_programs_that_use_it() {
    const SOURCES: &str = concat!(include_str!("common/curves.rs"), include_str!("common/traces.rs"));
    /// What a program's curve says at one size.
    #[derive(Debug)]
    struct Size {
        cpi: f64,
        mpki: f64,
    }
    let sizes = |name: &str| -> [Size; WAYS.len()] {
        let trace = TRACES.iter().find(|trace: &&Shipped| trace.name == name).expect("it is shipped");
        let numbers = locked(&key(&format!("curve of the trace {name}"), SOURCES), || {
            let points = WAYS.into_iter().zip(trace.curve());
            let numbers = |(ways, point): (u32, Point)| {
                [(format!("{ways}/cpi"), point.cpi), (format!("{ways}/mpki"), point.mpki)]
            };
            points.flat_map(numbers).collect()
        });
        std::array::from_fn(|index| Size { cpi: numbers[2 * index].1, mpki: numbers[2 * index + 1].1 })
    };
    for name in FEELS {
        let [two, .., eleven] = sizes(name);
        assert!(two.mpki > 1.5 * eleven.mpki && two.mpki - eleven.mpki > 1.0, "{name}: {two:?} {eleven:?}");
        assert!(two.cpi > 1.03 * eleven.cpi, "{name}: {two:?} {eleven:?}");
    }
    for name in FEELS_NOT {
        let [two, .., eleven] = sizes(name);
        assert!(two.mpki - eleven.mpki < 0.3 && two.cpi < 1.05 * eleven.cpi, "{name}: {two:?} {eleven:?}");
    }
}

#[test]
fn scenarios_replay_the_traces_with_the_numbers_of_the_curves() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let scenarios =
        [("real-hpw-heavy", 8), ("real-lpw-heavy", 7), ("real-grep", 1), ("real-perl", 2), ("real-zstd", 2)];
    for (scenario, expected) in scenarios {
        let text = std::fs::read_to_string(folder.join(format!("{scenario}.toml"))).unwrap();
        let table: toml::Table = text.parse().unwrap();
        let workloads = table["workload"].as_array().unwrap();
        let replayed = workloads.iter().filter(|workload| workload["program"].as_str() == Some("replay"));
        let mut found = 0;
        for workload in replayed {
            let file = workload["trace"].as_str().unwrap();
            let trace = TRACES.iter().find(|trace| file == format!("../inputs/{}.wkt", trace.name)).unwrap();
            let number = |key: &str| workload[key].as_float();
            assert_eq!(
                (number("cpi"), number("mlp")),
                (Some(trace.cpi), Some(trace.mlp)),
                "{scenario}: {file}"
            );
            found += 1;
        }
        assert_eq!(found, expected, "{scenario}");
    }
}
