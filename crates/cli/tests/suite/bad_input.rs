//! Every kind of bad input: one line that names the file, the key or offset, the value and what is accepted; exit code
//! 2.

use crate::common;

use common::{folder_with, output, refused, shipped, tiny};

/// The scenario with `from` replaced by `to` is refused, by `check` and by `run`, with all of `parts`.
fn scenario(from: &str, to: &str, parts: &[&str]) {
    let (_folder, path) = folder_with(from, to);
    let path = path.to_str().unwrap();
    for arguments in [&["scenario", "check", path][..], &["run", path]] {
        refused(arguments, 2, parts);
        refused(arguments, 2, &["tiny.toml"]);
    }
}

#[test]
fn unknown_keys_name_the_nearest_known_one() {
    scenario(
        "priority",
        "priorty",
        &[":20:", "`workload[dpdk].priorty` is not a key", "did you mean `priority`"],
    );
    scenario("interval_s", "intervall_s", &[":7:", "`intervall_s`", "did you mean `interval_s`"]);
    scenario("[[nic]]", "[[nik]]", &[":10:", "`nik` is not a key", "did you mean `nic`"]);
    scenario("[[storage]]", "[knobs]\ndca_weys = 1\n[[storage]]", &["`knobs.dca_weys`", "`dca_ways`"]);
    scenario("[[storage]]", "[model]\nfoo = 1\n[[storage]]", &["model", "foo", "p_insert"]);
    for (line, parts) in [
        ("io_age = -1", ["`model.io_age` is -1", "an age from 0 (keep) to 3"]),
        ("p_insert = \"x\"", ["`model.p_insert` is \"x\"", "a probability from 0 to 1"]),
        ("directory_ways = 1.5", ["`model.directory_ways` is 1.5", "1 to 16 entries"]),
        ("reuse_flag = 1", ["`model.reuse_flag` is 1", "it must be a boolean"]),
    ] {
        scenario("[[storage]]", &format!("[model]\n{line}\n[[storage]]"), &parts);
    }
    scenario(
        "[[storage]]",
        "[policy.a4]\nT9 = 1\n[[storage]]",
        &["a4 has no setting `T9`", "hpw_llc_hit_thr"],
    );
    scenario(
        "[[storage]]",
        "[policy.a5]\n[[storage]]",
        &["tiny.toml:13: `policy.a5`: unknown policy `a5`", "did you mean `a4`"],
    );
}

#[test]
fn a_misspelt_key_that_is_needed_is_found_among_those_that_stand_there() {
    let wanted = "`workload[xmem].working_set` is missing (`workingset` is not a key here, did you mean `working_set`?)";
    scenario("working_set", "workingset", &[wanted, "a size from 64 B"]);
    scenario("cores = \"4\"", "core = \"4\"", &["cores` is missing", "`core` is not a key here"]);
    scenario("[[storage]]", "[[fault]]\nkind = \"busy\"\nat = 1\n[[storage]]", &["did you mean `at_s`"]);
}

#[test]
fn no_name_is_blank() {
    for (name, key) in [
        ("name = \"tiny\"", "`name`"),
        ("name = \"nic0\"", "`nic[].name`"),
        ("name = \"raid0\"", "`storage[].name`"),
        ("name = \"xmem\"", "`workload[].name`"),
    ] {
        scenario(name, "name = \"\"", &[&format!("{key} is \"\"; it must be a short name")]);
    }
}

#[test]
fn a_text_without_quotes_is_shown_in_quotes() {
    scenario("cores = \"2-3\"", "cores = 2-3", &[":25:", "not valid TOML", "quotes: cores = \"2-3\""]);
    scenario("block = \"128k\"", "block = 128k # big", &["quotes: block = \"128k\""]);
    scenario("program = \"fio\"", "program = fio", &["quotes: program = \"fio\""]);
}

#[test]
fn cores_are_claimed_once_and_exist() {
    scenario(
        "cores = \"4\"",
        "cores = \"1,4\"",
        &[":31:", "`workload[xmem].cores` is `1,4`", "core 1 belongs to `dpdk`"],
    );
    scenario("cores = \"4\"", "cores = \"\"", &["`workload[xmem].cores`", "like 0-3,8"]);
    scenario("cores = \"4\"", "cores = \"4-40\"", &["`4-40`", "0-17"]);
    scenario("cores = \"4\"\n", "", &["`workload[xmem].cores` is missing", "like 0-3,8"]);
}

#[test]
fn masks_have_no_holes_and_fit_the_chip() {
    let with = |mask: &str| format!("cores = \"4\"\nmask = \"{mask}\"");
    scenario("cores = \"4\"", &with("0x605"), &["`workload[xmem].mask` is `0x605`", "holes", "contiguous"]);
    scenario("cores = \"4\"", &with("0xfff"), &["`0xfff`", "wider than the chip", "0x7ff"]);
    scenario("cores = \"4\"", &with("0x0"), &["`0x0`", "no way"]);
    scenario("cores = \"4\"", &with("many"), &["`many`", "0x030"]);
    scenario("[[storage]]", "[knobs]\ndca_ways = \"0x500\"\n[[storage]]", &["`knobs.dca_ways`", "holes"]);
}

#[test]
fn values_are_in_range_and_of_the_right_kind() {
    scenario("\"4 MiB\"", "0", &[":33:", "`workload[xmem].working_set` is 0", "64 B to 3 GiB"]);
    scenario("\"4 MiB\"", "\"4 parsecs\"", &["4 parsecs", "a size", "KiB, MiB or GiB"]);
    scenario("duration_s = 2", "duration_s = 1", &["`duration_s` is 1", "warmup_s + measure_s = 1.5"]);
    scenario("time_factor = 100", "time_factor = 0", &["`time_factor` is 0", "1 to 1000"]);
    scenario("\"fio\"\ncores", "\"fiu\"\ncores", &["`fiu`", "did you mean `fio`"]);
    scenario(
        "\"default\", \"a4\"",
        "\"default\", \"a5\"",
        &["tiny.toml:8: `policies`: unknown policy `a5`", "did you mean `a4`"],
    );
    scenario("\"default\", \"a4\"", "", &[":8:", "`policies` is []", "at least"]);
    scenario(
        "about",
        "chip = \"gold-6141\"\nabout",
        &[":2:", "`chip` is `gold-6141`", "did you mean `gold-61"],
    );
    scenario(
        "name = \"nic0\"",
        "name = \"nic0\"\nring = 1000",
        &["`nic[nic0].ring` is 1000", "power of two"],
    );
    scenario("name = \"tiny\"", "name = tiny", &["tiny.toml:1:8: not valid TOML"]);
    scenario(
        "[[storage]]",
        "[[sweep]]\nkey = \"workload.nope.block\"\nvalues = [1]\n[[storage]]",
        &["`workload.nope.block`"],
    );
    scenario(
        "[[storage]]",
        "[[sweep]]\nkey = \"workload.fio.block\"\nvalues = [\"4k\", \"4x\"]\n[[storage]]",
        &["workload[fio].block", "4x"],
    );
    scenario(
        "\"4 MiB\"",
        "\"3 GiB\"\n[[workload]]\nname = \"y\"\nprogram = \"x-mem\"\ncores = 9\nworking_set = \"3 GiB\"",
        &["y: ", "3072 MiB more", "smaller working sets"],
    );
}

#[test]
fn the_command_line_is_checked_as_well() {
    let (_folder, path) = tiny();
    let run = |more: &[&str], parts: &[&str]| {
        refused(&[&["run", path.to_str().unwrap()], more].concat(), 2, parts);
    };
    run(&["--policy", "a44"], &["unknown policy `a44`", "did you mean `a4`"]);
    run(&["--sets", "1/3"], &["--sets", "`1/3`", "exact, 1/2"]);
    run(&["--sets", "half"], &["`half`"]);
    run(&["--seeds", "0"], &["--seeds", "'0'", "a whole number from 1 to 10000"]);
    run(&["--seeds", "-3"], &["--seeds", "'-3'", "a whole number from 1 to 10000"]);
    run(&["--seed", "-3"], &["--seed", "'-3'", "a whole number from 0 to"]);
    run(&["--threads", "-1"], &["--threads", "'-1'", "a whole number from 1 to 4096"]);
    run(&["--sets", "-2"], &["--sets", "`-2`", "exact, 1/2"]);
    run(&["--duration", "-3"], &["'-3' for '--duration <S>'", "seconds from 0.001 to 86400"]);
    run(&["--warmup", "-3"], &["'-3' for '--warmup <S>'", "seconds from 0 to 86400"]);
    run(&["--seed", "minus"], &["--seed", "minus"]);
    run(&["--threads", "0"], &["--threads", "'0'", "from 1 to 4096"]);
    run(&["--duration", "0"], &["'0' for '--duration <S>'", "0.001"]);
    run(&["--duration", "nan"], &["'nan' for '--duration <S>'", "0.001"]);
    run(&["--looks=-5"], &["'-5' for '--looks[=<S>]'", "seconds from 0.001 to 86400"]);
    run(&["--warmup", "2"], &["warm-up is 2 s", "less than the duration of 2 s"]);
    run(&["--set", "workload"], &["--set", "KEY=VALUE"]);
    // No line of the file has the value.
    run(
        &["--set", "interval_s=-5"],
        &["tiny.toml: as it was set (`--set`, a sweep, an argument), `interval_s` is -5; it must be"],
    );
    run(&["--set", "workload.nope.x=1"], &["workload.nope.x", "no such key", "workload.NAME.KEY"]);
    run(
        &["--set", "workload[fia].block=4k"],
        &["no workload `fia`, did you mean `fio`; there are dpdk, fio"],
    );
    run(&["--set", "worklod.fio.block=4k"], &["no table `worklod`, did you mean `workload`"]);
    run(&["--set", "fio.block=4k"], &["did you mean `workload.fio.block`"]);
    run(&["--set", "workload.fio.blok=64k"], &["`workload[fio].blok`", "did you mean `block`"]);
    run(&["--set", "workload.fio.block=64x"], &["64x", "a size"]);
    refused(
        &["run", "a4-fig5", "--set", "workload[fio].block=64k"],
        2,
        &["`workload.fio.block` is swept over 4k, 8k, 16k", "set `sweep` to [] to run one value"],
    );
    refused(&["run", "a4-fig55"], 2, &["unknown scenario `a4-fig55`", "did you mean `a4-fig5`", "path"]);
    refused(&["run", "no/such.toml"], 2, &["no/such.toml", "cannot be read"]);
    refused(&["run", "/"], 2, &["/: cannot be read"]);
    refused(&["policy", "describe", "isolat"], 2, &["unknown policy `isolat`", "did you mean `isolate`"]);
    refused(&["chip", "show", "gold"], 2, &["no chip `gold`", "gold-6140"]);
    refused(&["scenario", "show", "a4"], 2, &["unknown scenario `a4`"]);
}

#[test]
fn captures_and_traces_name_the_offset() {
    let (folder, _) = tiny();
    let capture = std::fs::read(shipped("inputs/redis-benchmark.pcap")).unwrap();
    let cut = folder.path().join("cut.pcap");
    std::fs::write(&cut, &capture[..1000]).unwrap();
    let said = output(&["capture", "info", cut.to_str().unwrap()]);
    assert!(said.contains("packets      10\n") && said.contains("the file ends within a packet"), "{said}");
    // Within the first packet.
    std::fs::write(&cut, &capture[..100]).unwrap();
    refused(
        &["capture", "info", cut.to_str().unwrap()],
        2,
        &["cut.pcap is cut short", "at byte", "copy the file again"],
    );
    let trace = shipped("inputs/redis-server.wkt");
    refused(&["capture", "info", &trace], 2, &["redis-server.wkt is not a pcap", "starts with"]);
    refused(
        &["trace", "info", &shipped("inputs/redis-benchmark.pcap")],
        2,
        &["is not a memory trace", "ChampSim"],
    );
    refused(&["trace", "info", "no-such.wkt"], 2, &["no-such.wkt", "check the name"]);
    let out = folder.path().join("out.wkt");
    refused(&["trace", "convert", &trace, out.to_str().unwrap(), "--limit", "1x"], 2, &["`1x`", "50M"]);
    refused(
        &["trace", "convert", cut.to_str().unwrap(), out.to_str().unwrap()],
        2,
        &["is not a memory trace"],
    );
    // The same from within a scenario: the message of the input's reader is shown.
    scenario_beside(
        "name = \"nic0\"",
        &format!("name = \"nic0\"\ncapture = {:?}", cut),
        &["tiny.toml:12: `nic[nic0].capture`: ", "cut.pcap is cut short"],
    );
    let replay = format!("program = \"replay\"\ntrace = {:?}", cut);
    let place = "tiny.toml:31: `workload[xmem].trace`: ";
    scenario_beside("program = \"x-mem\"", &replay, &[place, "cut.pcap", "is not a memory trace"]);
    scenario_beside(
        "name = \"nic0\"",
        "name = \"nic0\"\ncapture = \"gone.pcap\"",
        &[
            "tiny.toml:12: `nic[nic0].capture`: cannot open",
            "check the name",
            "(`gone.pcap` is relative to /",
        ],
    );
    // Run in the scenario's own folder, so that its path has no folder part.
    let (folder, _) = folder_with("name = \"nic0\"", "name = \"nic0\"\ncapture = \"gone.pcap\"");
    let check = ["scenario", "check", "tiny.toml"];
    let done = common::waykeeper().args(check).current_dir(folder.path()).assert().code(2);
    let said = String::from_utf8_lossy(&done.get_output().stderr).into_owned();
    let place = folder.path().canonicalize().unwrap();
    assert!(said.contains(&format!("is relative to {}", place.display())), "{said}");
}

fn scenario_beside(from: &str, to: &str, parts: &[&str]) {
    let (_folder, path) = folder_with(from, to);
    refused(&["run", path.to_str().unwrap()], 2, parts);
}

#[test]
fn a_result_below_a_file_is_refused() {
    let (_folder, path) = tiny();
    // A file has the name of the directory.
    let out = path.join("results");
    refused(
        &["run", path.to_str().unwrap(), "--policy", "none", "--out", out.to_str().unwrap()],
        2,
        &["--out", "tiny.toml is no directory"],
    );
}

#[test]
fn placements_and_their_keys_are_refused_with_what_would_do() {
    let nic = "name = \"nic0\"\n";
    let with = |keys: &str| format!("{nic}{keys}\n");
    scenario(nic, &with("placement = \"mlcs\""), &["`nic[nic0].placement` is `mlcs`", "ddio", "idio"]);
    scenario(nic, &with("critical_dscp = [64]"), &["`nic[nic0].critical_dscp` is 64", "from 0 to 63"]);
    scenario(nic, &with("train = 4"), &["`nic[nic0].train` is 4", "`exponential`"]);
    scenario(nic, &with("dscp = 64"), &["`nic[nic0].dscp` is 64", "0 to 63"]);
    scenario(
        nic,
        &with("[[nic.phase]]\noffered_part = 0.5\noffered_gbps = 1"),
        &["`nic[nic0].phase.offered_part` is 0.5", "absent"],
    );
    let haswell = "name = \"tiny\"\nchip = \"e5-2667v3\"\n[[nic]]\nname = \"n\"\nplacement = \"idio\"\n[[workload]]\n\
                   name = \"w\"\nprogram = \"l2fwd\"\ncores = 0\n";
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("haswell.toml");
    std::fs::write(&path, haswell).unwrap();
    let parts = ["`nic[n].placement` is `idio`", "non-inclusive LLC only"];
    refused(&["scenario", "check", path.to_str().unwrap()], 2, &parts);
}

/// A file of another kind in the place of a recording is called by its name, by every command that reads one.
#[test]
fn every_reader_of_recordings_names_what_a_file_is() {
    let folder = tempfile::tempdir().unwrap();
    let wide: Vec<u8> = "a,b,c\n1,2,3\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let perf = b"1234567,,cycles,1000,100.00,,\n99,,LLC-loads,1000,100.00,,\n";
    let files: [(&str, &[u8], &str); 4] = [
        ("perf.csv", perf, "a CSV of perf stat"),
        ("chart.png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "a PNG image"),
        ("redis.wkt", &std::fs::read(shipped("inputs/redis-server.wkt")).unwrap(), "a memory trace (.wkt)"),
        ("wide.csv", &[b"\xff\xfe", wide.as_slice()].concat(), "text in UTF-16"),
    ];
    for (name, bytes, kind) in files {
        let file = folder.path().join(name);
        std::fs::write(&file, bytes).unwrap();
        let path = file.to_str().unwrap();
        for arguments in [
            &["replay", path][..],
            &["replay", path, "--policy", "iat"],
            &["fleet", "plan", path],
            &["top", "--replay", path, "--once"],
            &["serve", "--replay", path],
        ] {
            refused(arguments, 2, &[&format!("{name} is {kind}, not a recording of the daemon")]);
        }
    }
}
