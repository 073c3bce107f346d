//! Load on the virtual server and by job files: results and refusals.

use super::common::{refused, waykeeper};
use super::{ended, folder, under_way};
use serde_json::Value;

const HASWELL: &str = "virtual:thesis-load-haswell";

fn json(arguments: &[&str]) -> Value {
    let done = waykeeper().args(arguments).arg("--json").output().unwrap();
    assert!(done.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
    serde_json::from_slice(&done.stdout).unwrap()
}

/// Thesis Figs. 5.5 and 5.6 from the command line: the counts equal the expected values of the moved blocks, and the
/// thesis's profile moves twice what it counts.
#[test]
fn a_virtual_run_measures_what_the_formulas_expect() {
    for (profile, factor) in [("exact", 1), ("thesis", 2)] {
        let words = ["memload", HASWELL, "--pattern", "single", "--profile", profile, "--workers", "2"];
        let words = [&words[..], &["--depth", "4", "--commands", "500"]].concat();
        let run = json(&words);
        assert_eq!((run["engine"].as_str(), run["commands"].as_u64()), (Some("virtual"), Some(500)));
        assert_eq!((run["blocks"].as_u64(), run["blocks_moved"].as_u64()), (Some(500), Some(500 * factor)));
        let counters = &run["counters"];
        assert_eq!(counters["ItoM"]["measured"].as_u64(), Some(500 * factor * 64));
        for (name, event) in counters.as_object().unwrap() {
            let count = |key: &str| event[key].as_u64().unwrap_or_default();
            assert_eq!(
                count("measured"),
                count("expected") + count("page_lists"),
                "{profile} {name}: {event}"
            );
            assert_eq!(count("measured"), count("hits") + count("misses"), "{profile} {name}: {event}");
        }
        assert_eq!(counters["RFO"]["ratio"].as_f64(), Some(1.0));
        assert_eq!(json(&words), run, "the same seed gives the same bytes");
    }
}

/// Thesis Figs. 5.1, 5.2 and 5.7 in shape, through the words of the command line alone.
#[test]
fn virtual_runs_have_the_shape_of_the_thesis() {
    let run = |pattern: &str, workers: &str, more: &[&str]| {
        let words = ["memload", HASWELL, "--profile", "thesis", "--time", "4ms", "--pattern", pattern];
        let run = json(&[&words[..], &["--workers", workers], more].concat());
        let itom = &run["counters"]["ItoM"];
        let missed = itom["misses"].as_f64().unwrap() / itom["measured"].as_f64().unwrap().max(1.0);
        (run["bandwidth_bytes_per_s"].as_f64().unwrap(), run["iops"].as_f64().unwrap(), missed)
    };
    let (two, four) = (run("random", "2", &[]), run("random", "4", &[]));
    assert!(two.0 > 0.95 * four.0, "two workers fill the link: {two:?} {four:?}");
    let (one, more, flush) = (run("single", "1", &[]), run("single", "4", &[]), run("flush", "4", &[]));
    assert!(more.0 > 3.0 * one.0 && more.0 < four.0 && flush.1 > more.1, "{one:?} {more:?} {flush:?}");
    assert!(four.2 < 0.05, "a small buffer was filled, and fits: {four:?}");
    let big = ["--buffer", "64MiB"];
    let (big, always) =
        (run("random", "4", &big), run("random", "4", &[&big[..], &["--touch", "always"]].concat()));
    assert!(big.2 > 0.5 && always.2 < 0.1 && always.2 > four.2, "{big:?} {always:?}");
}

/// Results have one form on a file and on a virtual server; a load on a file has counts or the reason why it has none.
#[test]
fn a_file_and_a_virtual_server_have_the_same_form_of_result() {
    let folder = folder();
    let file = folder.path().join("load.img");
    let file = file.to_str().unwrap();
    let real = json(&["memload", file, "--create", "1MiB", "--commands", "20", "--pattern", "single"]);
    let modelled = json(&["memload", HASWELL, "--commands", "20", "--pattern", "single"]);
    let keys = |of: &Value| of.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&real), keys(&modelled));
    assert_eq!(keys(&real["latency_us"]), keys(&modelled["latency_us"]));
    for name in ["PCIeRdCur", "ItoM", "RFO"] {
        let (real, modelled) = (&real["counters"][name], &modelled["counters"][name]);
        assert_eq!(real["expected"], modelled["expected"]);
        assert!(real["measured"].is_u64() != real["unavailable"].is_string(), "{real}");
    }
}

#[test]
fn a_job_file_says_what_to_send() {
    let folder = folder();
    let (file, jobs) = (folder.path().join("load.img"), folder.path().join("j.fio"));
    let (file, jobs) = (file.to_str().unwrap(), jobs.to_str().unwrap());
    std::fs::write(file, vec![7; 1 << 20]).unwrap();
    let text = format!(
        "[global]\nfilename={file}\nioengine=io_uring\n[first]\nbs=16k\niodepth=4\nnumjobs=2\nsize=256k\n\
         [second]\nstonewall\nrw=randread\nnumber_ios=9\n"
    );
    std::fs::write(jobs, text).unwrap();
    let done = waykeeper().args(["memload", "--json", "--jobs", jobs]).output().unwrap();
    let said = String::from_utf8(done.stderr).unwrap();
    let which = ["job 1 of 2, `first`: ", "job 2 of 2, `second`: "].map(|which| format!("{which}{file}"));
    let heads: Vec<&str> = said.lines().filter(|line| line.starts_with("job ")).collect();
    assert_eq!(heads, which);
    let runs: Value = serde_json::from_slice(&done.stdout).unwrap();
    let reported = |index: usize| {
        let of = |key: &str| runs[index][key].clone();
        (of("job"), of("commands"), of("blocks"), of("block_bytes"))
    };
    // 256 KiB in blocks of 16 KiB are 16 commands in each of two copies.
    assert_eq!(reported(0), ("first".into(), 32.into(), 32.into(), 16384.into()));
    assert_eq!(reported(1), ("second".into(), 9.into(), 9.into(), 4096.into()));
    let runs = json(&["memload", HASWELL, "--jobs", jobs, "--job", "first"]);
    assert_eq!((&runs[0]["engine"], &runs[0]["commands"]), (&"virtual".into(), &32.into()));
    assert_eq!(runs[0]["counters"]["ItoM"]["ratio"], 1.0);
    refused(
        &["memload", "--jobs", jobs, "--job", "third"],
        2,
        &["j.fio: has no job `third`; it has first, second"],
    );
    refused(
        &["memload", "--jobs", jobs, "--overwrite"],
        2,
        &["--overwrite: this load only reads the target"],
    );
    // The line per second names the job; options that a virtual server lacks are reported for a job too.
    std::fs::write(jobs, format!("[slow]\nfilename={file}\nruntime=1500ms\nrate_iops=10\n")).unwrap();
    let done = waykeeper().args(["memload", "--jobs", jobs]).output().unwrap();
    let said = String::from_utf8(done.stderr).unwrap();
    assert!(said.contains("\njob 1 of 1, `slow`: 1 s: "), "{said}");
    let wrong = ["memload", HASWELL, "--jobs", jobs, "--numa", "0"];
    refused(&wrong, 2, &["error: job `slow`: --numa on a virtual server: it has one NUMA node"]);
    // A job with one command in flight, the usual case; an impossible job is reported before the jobs above it run.
    let text = "[usual]\nnumber_ios=5\nioengine=io_uring\n[many]\nioengine=io_uring\niodepth=60000\nnumjobs=8\nnumber_ios=1\n";
    std::fs::write(jobs, text).unwrap();
    let runs = json(&["memload", HASWELL, "--jobs", jobs, "--job", "usual"]);
    assert_eq!(runs[0]["blocks"], 5);
    for target in [file, HASWELL] {
        refused(
            &["memload", target, "--jobs", jobs],
            2,
            &["job `many`: --depth is 60000; with --workers 8 that makes 480000 outstanding commands"],
        );
    }
    // Reads and writes, chosen by the seed; each has its own counters.
    std::fs::write(jobs, "[both]\nrw=randrw\nrwmixread=75\nnumber_ios=200\n").unwrap();
    let runs = json(&["memload", file, "--jobs", jobs, "--overwrite"]);
    let expected = |name: &str| runs[0]["counters"][name]["expected"].as_u64().unwrap();
    let (out, into) = (expected("PCIeRdCur") - 200, expected("ItoM"));
    assert_eq!((&runs[0]["op"], out + into, expected("RFO")), (&"mixed".into(), 200 * 64, 200));
    assert!(out > 20 * 64 && into > 120 * 64, "{out} {into}");
    refused(&["memload", HASWELL, "--jobs", jobs], 2, &["job `both`: a mixed `rw` on a virtual server"]);
    std::fs::write(jobs, "[a]\nrw=read\niodepht=3\n").unwrap();
    refused(&["memload", file, "--jobs", jobs], 2, &["j.fio:3: `iodepht`", "did you mean `iodepth`"]);
    std::fs::write(jobs, "[a]\nsize=4k\n").unwrap();
    refused(&["memload", "--jobs", jobs], 2, &["job `a` has no target", "`filename`"]);
}

/// The first job makes the file and the next may write it.
#[test]
fn jobs_share_the_file_that_is_made() {
    let folder = folder();
    let (file, jobs) = (folder.path().join("new.img"), folder.path().join("j.fio"));
    let (file, jobs) = (file.to_str().unwrap(), jobs.to_str().unwrap());
    let text = "[read]\nsize=64k\n[write]\nrw=write\nsize=32k\n";
    std::fs::write(jobs, text).unwrap();
    let reported = json(&["memload", file, "--create", "1MiB", "--jobs", jobs]);
    let counts: Vec<_> = reported
        .as_array()
        .unwrap()
        .iter()
        .map(|job| (job["job"].as_str(), job["blocks"].as_u64()))
        .collect();
    assert_eq!(counts, [(Some("read"), Some(16)), (Some("write"), Some(8))]);
}

/// Targets, consent and engines are checked too, because an early job may run for hours.
#[test]
fn what_is_wrong_with_a_late_job_is_reported_before_the_first() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (file, other, jobs) = (at("load.img"), at("other.img"), at("j.fio"));
    std::fs::write(&file, vec![7; 1 << 20]).unwrap();
    let refuse = |late: &str, words: &[&str], code: i32, parts: &[&str]| {
        let text = format!("[global]\nnumber_ios=5\n[early]\nfilename={file}\n[late]\n{late}\n");
        std::fs::write(&jobs, text).unwrap();
        // The only line on standard error is about the late job, and no table of the early one is printed.
        refused(
            &[&["memload", "--jobs", &jobs], words].concat(),
            code,
            &[&["error: job `late`: "], parts].concat(),
        );
    };
    refuse(&format!("filename={other}"), &[], 2, &["other.img: there is no such file; --create SIZE"]);
    refuse(&format!("filename={file}\nrw=write"), &[], 2, &["holds 1048576 B", "add --overwrite"]);
    refuse(&format!("filename={file}\nbs=2m"), &[], 2, &["the size of the target is 1048576"]);
    refuse(&format!("filename={file}\nioengine=io_uring_cmd"), &[], 3, &["nvme-uring cannot load a file"]);
    refuse("filename=/dev/null", &[], 2, &["a character device of another kind"]);
    // The plan on a file to be created is checked as well, before it exists.
    let text =
        format!("[early]\nfilename={other}\nsize=4k\n[late]\nfilename={other}\nrw=write\nbs=2m\nsize=2m\n");
    std::fs::write(&jobs, text).unwrap();
    let words = ["memload", "--jobs", &jobs, "--create", "1MiB"];
    refused(&words, 2, &["job `late`: --create is 1048576; ", "must have at least 2097152 B"]);
    assert!(!std::path::Path::new(&other).exists());
}

/// Consent to write a created file holds for that file, not for a later one of the same name; and a refused job does
/// not lose the results of those before it.
#[test]
fn what_takes_the_place_of_the_file_that_was_made_is_not_written() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (file, theirs, jobs) = (at("new.img"), at("theirs"), at("j.fio"));
    std::fs::write(&theirs, vec![7; 1 << 20]).unwrap();
    let text = "[reads]\nruntime=1500ms\ntime_based\nrate_iops=100\n[writes]\nrw=write\nsize=32k\n";
    std::fs::write(&jobs, text).unwrap();
    let words = [&file, "--json", "--create", "1MiB", "--jobs", &jobs];
    let run = under_way(&words, "created for this run; it stays");
    std::fs::rename(&theirs, &file).unwrap();
    let (code, reported, said) = ended(run, None);
    assert_eq!(code, Some(2), "{said}");
    let last = said.lines().last().unwrap();
    assert!(last.starts_with("error: job `writes`: ") && last.contains("it already exists"), "{said}");
    let reported: Value = serde_json::from_slice(&reported).unwrap();
    assert_eq!((reported.as_array().unwrap().len(), &reported[0]["job"]), (1, &"reads".into()));
    assert!(std::fs::read(&file).unwrap() == [7; 1 << 20], "it is as it was");
}

/// During the preparation of a later job there are results to print, but no command to wait for.
#[test]
fn an_interrupt_while_a_later_job_is_made_ready_is_heeded_at_once() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (file, jobs) = (at("load.img"), at("j.fio"));
    std::fs::write(&file, vec![7; 4 << 20]).unwrap();
    // Its buffer of 4 GiB takes seconds to fill.
    let text = "[first]\nnumber_ios=5\n[large]\nbs=4m\nioengine=io_uring\niodepth=1024\nruntime=600\ntime_based\n[last]\nnumber_ios=1\n";
    std::fs::write(&jobs, text).unwrap();
    let run = under_way(&[&file, "--json", "--jobs", &jobs], "filling the buffer first");
    let (code, reported, said) = ended(run, Some("TERM"));
    assert_eq!((code, said.as_str()), (Some(130), "error: job `large`: interrupted before the load began\n"));
    let reported: Value = serde_json::from_slice(&reported).unwrap();
    assert_eq!((reported.as_array().unwrap().len(), &reported[0]["job"]), (1, &"first".into()));
}

#[test]
fn a_word_of_fio_is_answered_with_its_name_here() {
    for (words, parts) in [
        (&["--rw=randread"][..], &["'--op'", "`--op write` is fio's rw=read"][..]),
        (&["--bs", "4k"], &["'--block-size'"]),
        (&["--iodepth", "8"], &["'--depth'"]),
        (&["--rate", "1m"], &["'--limit-bytes'"]),
        (&["--direct"], &["all I/O is direct"]),
        (&["--filename=x"], &["the target is a plain argument"]),
    ] {
        let done = waykeeper().args(["memload", HASWELL]).args(words).assert().code(2);
        let reported = String::from_utf8(done.get_output().stderr.clone()).unwrap();
        assert!(
            reported.contains("unexpected argument") && parts.iter().all(|part| reported.contains(part)),
            "{reported}"
        );
    }
}

#[test]
fn what_a_virtual_server_has_not_is_refused() {
    for (words, parts) in [
        (&["--engine", "uring"][..], &["--engine on a virtual server"][..]),
        (&["--verify"], &["--verify on a virtual server", "leave it out"]),
        (&["--numa", "0"], &["--numa on a virtual server"]),
        (&["--huge-pages", "1G"], &["--huge-pages on a virtual server", "write 2M"]),
        (&["--log", "log.csv"], &["--log on a virtual server"]),
        (&["--overwrite"], &["--overwrite on a virtual server: its drives store no data"]),
        (&["--destroy-data-on", "S1"], &["--destroy-data-on on a virtual server"]),
        (&["--shared"], &["--shared on a virtual server"]),
        // Options that have no meaning on a real target have none here.
        (&["--slots", "10"], &["--slots is 10", "neither is given"]),
        (&["--catch-up"], &["--catch-up is given", "neither is given"]),
        (
            &["--catch-up", "--limit-commands", "9", "--profile", "thesis"],
            &["--catch-up is given", "--profile thesis"],
        ),
        (&["--stride", "3"], &["--stride has no meaning for the pattern random"]),
        (&["--max-blocks", "8", "--pattern", "single"], &["--max-blocks has no meaning"]),
        (&["--blocks", "9", "--pattern", "flush"], &["--blocks has no meaning for the pattern flush"]),
        (&["--touch", "always", "--pattern", "noop"], &["--touch has no meaning"]),
        (&["--commands", "9", "--pattern", "noop"], &["--commands has no meaning"]),
        (&["--limit-bytes", "1MiB", "--pattern", "flush"], &["--limit-bytes has no meaning"]),
        (&["--commands", "0"], &["--commands is 0; it must be at least 1"]),
        (&["--block-size", "512"], &["--block-size on a virtual server", "whole pages of 4096 bytes; 512"]),
        (&["--create", "1MiB"], &["--create", "its drives store no data"]),
        (&["--depth", "0"], &["--depth is 0", "1 to 65535"]),
        (
            &["--depth", "2000"],
            &["--depth on a virtual server: `depth` is 2000; it must be a whole number from 1 to 1024"],
        ),
        (&["--limit-commands", "0.5"], &["--limit-commands on a virtual server: `commands_per_s` is 0.5"]),
        (&["--time", "2d"], &["--time on a virtual server: `time_s` is 172800.0"]),
        (&["--buffer", "5000"], &["--buffer on a virtual server", "not a multiple of the block size, 4096"]),
        (&["--cpus", "9"], &["--cpus on a virtual server: `cores` is `9`", "there is no core 9"]),
    ] {
        refused(&[&["memload", HASWELL][..], words].concat(), 2, parts);
    }
    refused(&["memload", "virtual:a4-fig5"], 2, &["a4-fig5: `workload` is missing", "program = \"memload\""]);
    refused(&["memload", "virtual:thesis-lode-haswell"], 2, &["unknown scenario `thesis-lode-haswell`"]);
}
