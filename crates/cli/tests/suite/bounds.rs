//! Files that are too long, too deep or without an end: each reader refuses them with one line that names its bound, in
//! 512 MiB of memory and 60 s of CPU time (docs/limits.md).

use crate::common;

use common::{TINY, shipped, tiny};
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// The program with at most 512 MiB of private memory (RLIMIT_DATA) and 60 s of CPU time. What `before` writes, a shell
/// command, is its standard input.
fn limited(before: &str, arguments: &[&str]) -> Output {
    limited_to(512, before, arguments)
}

fn limited_to(memory_mib: u32, before: &str, arguments: &[&str]) -> Output {
    let memory_kib = memory_mib * 1024;
    let limits = format!("{before} {{ ulimit -d {memory_kib}; ulimit -t 60; exec \"$0\" \"$@\"; }}");
    let mut command = Command::new("sh");
    command.args(["-c", &limits, env!("CARGO_BIN_EXE_waykeeper")]).args(arguments);
    command.env_remove("RUST_BACKTRACE").env("NO_COLOR", "1").stdin(Stdio::null()).output().unwrap()
}

/// The one error line of a refused call.
fn refused_after(before: &str, arguments: &[&str], part: &str) {
    let done = limited(before, arguments);
    let stderr = String::from_utf8_lossy(&done.stderr);
    let errors: Vec<&str> = stderr.lines().filter(|line| line.starts_with("error: ")).collect();
    assert_eq!(done.status.code(), Some(2), "{arguments:?}: {stderr}");
    assert!(matches!(errors.as_slice(), [error] if error.contains(part)), "{arguments:?}: {part}: {stderr}");
    assert!(errors[0].len() < 1000, "{arguments:?}: {stderr}");
}

fn refused(arguments: &[&str], part: &str) {
    refused_after("", arguments, part);
}

/// A scenario of [`TINY`] with `to` instead of `from` is refused by `check`.
fn scenario(folder: &Path, from: &str, to: &str, part: &str) {
    assert!(TINY.contains(from), "{from}");
    let path = folder.join("s.toml");
    fs::write(&path, TINY.replacen(from, to, 1)).unwrap();
    refused(&["scenario", "check", path.to_str().unwrap()], part);
}

#[test]
fn a_text_file_without_an_end_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let most = "has at most 1048576 bytes, this file has more";
    for arguments in [
        &["scenario", "check", "/dev/zero"][..],
        &["scenario", "show", "/dev/zero"],
        &["run", "/dev/zero"],
        &["chip", "show", "/dev/zero"],
        &["memload", "--jobs", "/dev/zero"],
        &["memload", "virtual:/dev/zero"],
    ] {
        refused(arguments, most);
    }
    refused(&["daemon", "--check", "--config", "/dev/zero"], "/dev/zero is a pipe or a device, not a file");
    refused(&["replay", "/dev/zero"], "neither a file nor a directory");
    let probe = ["probe", "run", "dca-ways", "--root", "/", "--tenants", "/dev/zero"];
    refused(&probe, "a list of tenants has at most 1048576 bytes, this file has more");
    scenario(
        folder.path(),
        "duration_s",
        "chip = \"/dev/zero\"\nduration_s",
        "a chip file has at most 1048576",
    );
    for (to, part) in [
        ("program = \"spec\"\nprofile = \"/dev/zero\"", "a profile has at most 1048576"),
        ("program = \"fio\"\nfio = \"/dev/zero\"", "a job file has at most 1048576"),
        ("program = \"replay\"\ntrace = \"/dev/zero\"", "it is a device and may have no end"),
    ] {
        scenario(folder.path(), "program = \"x-mem\"", to, part);
    }
    let capture = "name = \"nic0\"\ncapture = \"/dev/zero\"";
    scenario(folder.path(), "name = \"nic0\"", capture, "it is a device and may have no end");
    for arguments in [["capture", "info", "/dev/zero"], ["trace", "info", "/dev/zero"]] {
        refused(&arguments, "it is a device and may have no end");
    }
}

#[test]
fn a_pipe_is_read_up_to_the_bound_and_a_folder_not_at_all() {
    refused_after("yes |", &["scenario", "check", "/dev/stdin"], "a scenario has at most 1048576 bytes");
    refused_after("yes |", &["memload", "--jobs", "/dev/stdin"], "a job file has at most 1048576 bytes");
    let (folder, path) = tiny();
    let slow = format!("{{ sleep 0.1; cat {}; }} |", path.display());
    let done = limited(&slow, &["scenario", "check", "/dev/stdin"]);
    assert_eq!(String::from_utf8_lossy(&done.stdout), "/dev/stdin: ok, 2 simulations\n");
    let fifo = folder.path().join("fifo");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, 0o600.into()).unwrap();
    let whole = format!("{}/", folder.path().display());
    for arguments in [["scenario", "check"], ["chip", "show"], ["memload", "--jobs"], ["capture", "info"]] {
        let at = |path| [&arguments[..], &[path]].concat();
        refused(&at(fifo.to_str().unwrap()), "it is a pipe without a writer");
        refused(&at(&whole), "it is a directory");
    }
}

#[test]
fn a_journal_that_is_longer_than_any_is_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal-host");
    // The head of a real one, then nothing but zeros.
    fs::write(&path, "{\"waykeeper-journal\":4}\n").unwrap();
    fs::File::options().write(true).open(&path).unwrap().set_len((64 << 20) + 1).unwrap();
    let path = path.to_str().unwrap();
    let done = limited("", &["restore", "--journal", path]);
    let stderr = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("it is longer than 67108864 bytes"), "{stderr}");
    assert_eq!(fs::metadata(path).unwrap().len(), (64 << 20) + 1);
}

#[test]
fn a_recording_whose_frame_unpacks_to_more_than_any_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("decisions-1.jsonl.zst");
    let mut into = zstd::Encoder::new(fs::File::create(&path).unwrap(), 1).unwrap();
    let spaces = vec![b' '; 1 << 20];
    (0..1024).for_each(|_| into.write_all(&spaces).unwrap());
    into.finish().unwrap();
    refused(&["replay", path.to_str().unwrap()], "the frame at byte 0 unpacks to more than 16777216 bytes");
}

/// The head of a pcap file (pcap-savefile(5)): little-endian, microseconds, Ethernet.
const PCAP: [u8; 24] =
    [0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 1, 0, 0, 0];

/// MiB of zeros that are more than may fill a capture: 128.
const EMPTY_MIB: usize = 129;

/// Writes a packed file that unpacks to a capture of zeros. All formats allow packed parts one after another, so a MiB is
/// packed once.
fn bomb(name: &str, pack: impl Fn(&[u8]) -> Vec<u8>) {
    let (head, zeros) = (pack(&PCAP), pack(&vec![0; 1 << 20]));
    fs::write(name, [head, zeros.repeat(EMPTY_MIB)].concat()).unwrap();
}

#[test]
fn a_small_file_that_unpacks_to_a_large_one_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    bomb(&at("gz"), |plain| {
        let mut into = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        into.write_all(plain).unwrap();
        into.finish().unwrap()
    });
    bomb(&at("xz"), |plain| {
        let mut into = liblzma::write::XzEncoder::new(Vec::new(), 0);
        into.write_all(plain).unwrap();
        into.finish().unwrap()
    });
    bomb(&at("zst"), |plain| zstd::encode_all(plain, 1).unwrap());
    for name in ["gz", "xz", "zst"] {
        refused(
            &["capture", "info", &at(name)],
            "zeros behind the last packet is more, must be at most 134217728 bytes",
        );
    }
    // 1000 packets of 16 MiB each, which offload merged, are 11,082 packets of 1514 bytes each on the wire.
    let mut merged = PCAP.to_vec();
    let packet: Vec<u8> = [0, 0, 0, 16 << 20].iter().flat_map(|word: &u32| word.to_le_bytes()).collect();
    (0..1000).for_each(|_| merged.extend(&packet));
    fs::write(at("merged"), merged).unwrap();
    let capture = "name = \"nic0\"\ncapture = \"merged\"";
    scenario(folder.path(), "name = \"nic0\"", capture, "have more than 8388608 packets and records");
}

#[test]
fn what_is_too_deep_or_too_many_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |from: &str, to: &str, part: &str| scenario(folder.path(), from, to, part);
    refused("\"tiny\"", &"[".repeat(1 << 19), "not valid TOML: nested deeper than 80 levels");
    refused("name", &("a.".repeat(1 << 18) + "a"), "not valid TOML: nested deeper than 80 levels");
    let nics: String = (1..16).map(|nic| format!("[[nic]]\nname = \"n{nic}\"\n")).collect();
    let from = "[[storage]]\nname = \"raid0\"\n\n[[workload]]\nname = \"dpdk\"\n";
    let part = "17 devices together with `storage`; it must be at most 16";
    refused(from, &format!("{nics}{from}nic = \"nic0\"\n"), part);
    refused("\"default\"", &["\"none\""; 100].join(", "), "a list of 101 names; it must be at most 64 names");
    let sweep = |key: &str, values: usize| {
        let values: Vec<String> = (1..=values).map(|value| (value % 90 + 1).to_string()).collect();
        format!("[[sweep]]\nkey = \"{key}\"\nvalues = [{}]\n", values.join(", "))
    };
    let load = "nic.nic0.offered_gbps";
    let million = [sweep(load, 1000), sweep("duration_s", 1000), "[[nic]]".to_owned()].concat();
    refused("[[nic]]", &million, "is 1000000 points (1000 x 1000 values); it must be at most 10000 points");
    let half = [sweep(load, 200_000), "[[nic]]".to_owned()].concat();
    refused("[[nic]]", &half, "is 200000 points (200000 values); it must be at most 10000 points");
    let long = format!("[[nic]]{}", "\n".repeat(1 << 20));
    refused("[[nic]]", &long, "a scenario has at most 1048576 bytes, this file has more");
}

#[test]
fn a_sweep_of_many_points_is_checked_one_point_at_a_time() {
    let (_folder, path) = tiny();
    let values: Vec<String> = (0..500).map(|value| format!("{:.3}", 1.0 + f64::from(value) * 0.1)).collect();
    let sweep = format!("\n[[sweep]]\nkey = \"nic.nic0.offered_gbps\"\nvalues = [{}]\n", values.join(", "));
    fs::write(&path, TINY.to_owned() + &sweep).unwrap();
    // Of a bound of 10000 points these are a twentieth, so they have an eighth of the memory.
    let done = limited_to(64, "", &["scenario", "check", path.to_str().unwrap()]);
    let stdout = String::from_utf8_lossy(&done.stdout);
    assert!(
        stdout.ends_with(": ok, 1000 simulations\n"),
        "{stdout}{}",
        String::from_utf8_lossy(&done.stderr)
    );
    // A value that is refused is found at its point, behind 500 good ones.
    fs::write(&path, TINY.to_owned() + sweep.trim_end_matches("]\n") + ", 1e9]\n").unwrap();
    refused(&["scenario", "check", path.to_str().unwrap()], "`nic[nic0].offered_gbps` is 1000000000.0");
}

#[test]
fn a_chip_file_is_shown_by_its_path_as_a_scenario_uses_it() {
    let path = shipped("chips/gold-6140.toml");
    let by_name = limited("", &["chip", "show", "gold-6140"]);
    for arguments in [&["chip", "show", &path][..], &["chip", "show", "gold-6140"]] {
        assert_eq!(limited("", arguments).stdout, by_name.stdout);
    }
    let folder = tempfile::tempdir().unwrap();
    let other = folder.path().join("mine.toml");
    fs::write(&other, fs::read_to_string(&path).unwrap().replace("cores = 18", "cores = 999")).unwrap();
    refused(
        &["chip", "show", other.to_str().unwrap()],
        "mine.toml: `cores` is 999; it must be a whole number from 1 to 250",
    );
    refused(&["chip", "show", "gold-614"], "there is no chip `gold-614`; built in are");
}
