//! `doctor`, `ddio` and `restore` as a user calls them: on a tree of plain files, and doctor on this machine.

use crate::common;

use common::{refused, waykeeper};
use serde_json::Value;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use waykeeper_testbed::plain_tree::{CPUS, DDIO_WAYS, NIC_PORT, PlainTree, SSD_PORT};
use waykeeper_testbed::wait_for;

/// The path of a test's journal: beside its tree, never in /run.
fn journal(tree: &PlainTree) -> String {
    tree.path("journal").display().to_string()
}

fn root(tree: &PlainTree) -> String {
    tree.root().display().to_string()
}

/// `waykeeper ddio ...` on a tree, with its journal and without the check of the counters.
fn ddio(tree: &PlainTree, arguments: &[&str]) -> assert_cmd::Command {
    let mut command = waykeeper();
    let (root, journal) = (root(tree), journal(tree));
    command.arg("ddio").arg(arguments[0]).args(["--root", &root, "--journal", &journal, "--verify", "0"]);
    command.args(&arguments[1..]);
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Runs it; returns standard output with the tree's path replaced.
fn reported(tree: &PlainTree, mut command: assert_cmd::Command, code: i32) -> String {
    let done = command.assert().code(code);
    text(&done.get_output().stdout).replace(&root(tree), "ROOT")
}

fn refused_by(tree: &PlainTree, arguments: &[&str], code: i32, parts: &[&str]) {
    let (root, journal) = (root(tree), journal(tree));
    let fixed = ["ddio", arguments[0], "--root", &root, "--journal", &journal, "--verify", "0"];
    refused(&[&fixed[..], &arguments[1..]].concat(), code, parts);
}

#[test]
fn doctor_tells_a_table_and_json() {
    assert!(
        rustix::process::geteuid().is_root(),
        "not run: needs root: doctor tells whether it has CAP_PERFMON"
    );
    let tree = PlainTree::skylake();
    let root = root(&tree);
    let done = waykeeper().args(["doctor", "--root", &root]).assert().success();
    insta::assert_snapshot!("doctor", text(&done.get_output().stdout).replace(&root, "ROOT"));
    let done = waykeeper().args(["doctor", "--root", &root, "--json"]).assert().success();
    let report: Value = serde_json::from_slice(&done.get_output().stdout).unwrap();
    let checks = report["checks"].as_array().unwrap();
    for check in checks {
        let mut keys: Vec<&String> = check.as_object().unwrap().keys().collect();
        keys.sort();
        assert_eq!(keys, ["name", "remedy", "state", "value"]);
        assert!(["ok", "missing", "degraded", "unknown", "info"].contains(&check["state"].as_str().unwrap()));
    }
    let cat = checks.iter().find(|check| check["name"] == "cat").unwrap();
    assert_eq!((&cat["state"], &cat["remedy"]), (&"ok".into(), &Value::Null));
}

/// On any machine it answers, names every subject once, and exits with 3 exactly if no knob can be set.
#[test]
fn doctor_answers_on_this_machine() {
    let done = waykeeper().args(["doctor", "--json"]).output().unwrap();
    let report: Value = serde_json::from_slice(&done.stdout).unwrap();
    let checks = report["checks"].as_array().unwrap();
    let state = |name: &str| {
        let of: Vec<&Value> = checks.iter().filter(|check| check["name"] == name).collect();
        assert_eq!(of.len(), 1, "{name}");
        of[0]["state"].as_str().unwrap().to_owned()
    };
    assert_eq!(state("kernel"), "info");
    assert_eq!(state("topology"), "info");
    let knobs = ["cat", "ddio-ways", "dca-ports", "io-alloc"];
    let manageable = knobs.iter().any(|name| state(name) == "ok");
    assert_eq!(done.status.code(), Some(if manageable { 0 } else { 3 }));
}

#[test]
fn doctor_says_3_where_nothing_can_be_turned_and_2_where_there_is_no_tree() {
    let empty = tempfile::tempdir().unwrap();
    let root = empty.path().to_str().unwrap();
    refused(&["doctor", "--root", root], 2, &[root, "not the file tree of a host", "neither proc nor sys"]);
    std::fs::create_dir(empty.path().join("proc")).unwrap();
    let done = waykeeper().args(["doctor", "--root", root]).assert().code(3);
    let table = text(&done.get_output().stdout).to_owned();
    assert!(table.contains("nothing of this host's cache can be seen or set"), "{table}");
    assert!(table.ends_with("\nnext: waykeeper top --scenario a4-hpw-heavy\n"), "{table}");
    assert_eq!(text(&done.get_output().stderr), "");
    // By its path, since it need not be in the PATH.
    let program = assert_cmd::cargo::cargo_bin("waykeeper");
    let done = Command::new(&program).args(["doctor", "--root", root]).output().unwrap();
    let next = format!("\nnext: {} top --scenario a4-hpw-heavy\n", program.display());
    assert!(text(&done.stdout).ends_with(&next), "{}", text(&done.stdout));
    refused(&["doctor", "--root", "/no/such/tree"], 2, &["--root /no/such/tree", "No such file"]);
    refused(&["ddio", "show", "--root", "/dev/null"], 2, &["not a directory"]);
}

#[test]
fn show_names_ways_ports_and_every_device() {
    let tree = PlainTree::skylake();
    tree.set_config(SSD_PORT, 0x180, 0x04);
    let done = waykeeper().args(["ddio", "show", "--root", &root(&tree)]).assert().success();
    insta::assert_snapshot!("ddio-show", text(&done.get_output().stdout));
    let done = waykeeper().args(["ddio", "show", "--root", &root(&tree), "--json"]).assert().success();
    let survey: Value = serde_json::from_slice(&done.get_output().stdout).unwrap();
    assert_eq!(survey["generation"], "skx");
    assert_eq!(survey["sockets"][1]["mask"], "0x600");
    assert_eq!(survey["sockets"][1]["standing"], "confirmed");
    assert_eq!((&survey["ports"][0]["dca"], &survey["ports"][1]["dca"]), (&true.into(), &false.into()));
    assert_eq!(survey["ports"][0]["devices"][1]["names"][0], "ens1f1");
}

#[test]
fn ways_stand_while_a_command_runs_and_go_back() {
    let tree = PlainTree::skylake();
    // CPU 2 is the first of socket 1; the command sees the register through its file.
    let look = format!("od -An -tx4 -j {DDIO_WAYS} -N 4 {}/dev/cpu/2/msr", root(&tree));
    let out = reported(&tree, ddio(&tree, &["set", "4", "--", "sh", "-c", &look]), 0);
    insta::assert_snapshot!("ddio-set", out);
    assert!(out.contains(" 00000780\n"), "{out}");
    assert_eq!((tree.msr(0, DDIO_WAYS), tree.msr(2, DDIO_WAYS)), (0x600, 0x600));
    assert!(!tree.path("journal").exists(), "nothing is left to restore");
    // The command's exit code is passed on, and the mask is restored all the same.
    let failed = ddio(&tree, &["set", "0x7c0", "--socket", "1", "--", "sh", "-c", "exit 7"]).assert().code(7);
    assert!(text(&failed.get_output().stderr).contains("the command ended with"));
    assert_eq!(tree.msr(2, DDIO_WAYS), 0x600);
}

#[test]
fn a_dry_run_writes_nothing() {
    let tree = PlainTree::skylake();
    let before = tree.files();
    let out = reported(&tree, ddio(&tree, &["set", "11", "--dry-run"]), 0);
    assert!(out.contains("0x600 (2) -> 0x7ff (11)") && out.contains("nothing was written"), "{out}");
    let out = reported(&tree, ddio(&tree, &["off", "nvme0", "--dry-run", "--json"]), 0);
    let plan: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(plan["steps"][0]["address"], SSD_PORT);
    assert_eq!(plan["devices"][0]["devices"][0]["names"][0], "nvme0");
    assert_eq!(tree.files(), before);
}

#[test]
fn turning_a_port_off_changes_only_its_bit_for_all_behind_it() {
    let tree = PlainTree::skylake();
    let out = reported(&tree, ddio(&tree, &["off", "ens1f1", "3b:00.0", "--keep"]), 0);
    insta::assert_snapshot!("ddio-off", out);
    // Bit 7 is cleared, bit 2 is unchanged.
    assert_eq!((tree.config(NIC_PORT, 0x180), tree.config(SSD_PORT, 0x180)), (0x04, 0x84));
    // An external change of another bit meanwhile is kept.
    tree.set_config(NIC_PORT, 0x180, 0x0c);
    let (root, journal) = (root(&tree), journal(&tree));
    let done = waykeeper().args(["restore", "--root", &root, "--journal", &journal]).assert().success();
    assert!(text(&done.get_output().stdout).ends_with(": restored\n"));
    assert_eq!(tree.config(NIC_PORT, 0x180), 0x8c);
    let out = common::output(&["restore", "--root", &root, "--journal", &journal]);
    assert!(out.contains("nothing to restore"), "{out}");
}

#[test]
fn what_is_kept_outlives_the_changes_after_it() {
    let tree = PlainTree::skylake();
    reported(&tree, ddio(&tree, &["off", "ens1f1", "--keep"]), 0);
    reported(&tree, ddio(&tree, &["set", "4", "--keep"]), 0);
    let out = reported(&tree, ddio(&tree, &["set", "6", "--for", "0"]), 0);
    assert!(out.contains(": restored") && !out.contains("PCI"), "{out}");
    // Four ways were found, so four ways are restored; the port is still off.
    assert_eq!((tree.msr(0, DDIO_WAYS), tree.config(NIC_PORT, 0x180)), (0x780, 0x04));
    let out = common::output(&["restore", "--root", &root(&tree), "--journal", &journal(&tree)]);
    assert_eq!(out.lines().count(), 3, "{out}");
    assert_eq!((tree.msr(0, DDIO_WAYS), tree.msr(2, DDIO_WAYS)), (0x600, 0x600));
    assert_eq!(tree.config(NIC_PORT, 0x180), 0x84);
    assert!(!tree.path("journal").exists());
}

#[test]
fn what_must_not_be_written_is_refused_with_the_reason() {
    let tree = PlainTree::skylake();
    refused_by(&tree, &["set", "0x680"], 2, &["0x680", "holes", "contiguous masks"]);
    refused_by(&tree, &["set", "0x3c0"], 2, &["lacks ways of 0x600"]);
    refused_by(&tree, &["set", "1"], 2, &["2 to 11 ways"]);
    refused_by(&tree, &["set", "many"], 2, &["`many`", "like 4", "like 0x780"]);
    refused_by(&tree, &["set", "4", "--socket", "5"], 2, &["no socket 5", "0, 1"]);
    refused_by(&tree, &["off", "ens1f9"], 2, &["there is no device `ens1f9`; did you mean `ens1f1`?"]);
    refused_by(&tree, &["off", "ens1f0/vf0"], 2, &["`ens1f0` has no virtual function `0`; it has none"]);
    refused_by(&tree, &["off", "../x"], 2, &["`../x` names no device", "0000:3a:00.0"]);
    refused_by(&tree, &["set", "4", "--for", "minute"], 2, &["'minute'", "write seconds from 0 to 86400"]);
    let icelake = PlainTree::of(106, 6, "Intel(R) Xeon(R) Gold 5320 CPU @ 2.20GHz", 12);
    refused_by(&icelake, &["set", "4"], 3, &["Ice Lake", "takes values without effect", "only read"]);
    refused_by(&icelake, &["off", "ens1f0"], 3, &["Ice Lake"]);
    assert_eq!((icelake.msr(0, DDIO_WAYS), icelake.config(NIC_PORT, 0x180)), (0xc00, 0x84));
    let unknown = PlainTree::of(222, 1, "Some Xeon", 11);
    refused_by(&unknown, &["set", "4"], 3, &["Some Xeon", "no built-in table describes this CPU"]);
    let guest = PlainTree::skylake();
    for cpu in 0..CPUS {
        guest.set_msr(cpu, DDIO_WAYS, 0);
    }
    refused_by(&guest, &["set", "4"], 3, &["0xc8b", "reads 0x0"]);
    guest.remove("dev/cpu");
    refused_by(&guest, &["set", "4"], 3, &["modprobe msr"]);
}

#[test]
fn a_header_where_the_switch_should_be_is_not_written() {
    let tree = PlainTree::skylake();
    // The chain of capabilities leads to 0x180: the register there is not perfctrlsts (hardware.md 2.1).
    tree.set_config(NIC_PORT, 0x103, 0x18);
    refused_by(&tree, &["off", "ens1f0"], 3, &["header of capability"]);
    assert_eq!(tree.config(NIC_PORT, 0x180), 0x84);
}

/// A `waykeeper ddio set 6` that holds until a signal, and that is killed if a test fails.
struct Holder(Child);

impl Holder {
    fn start(tree: &PlainTree) -> Holder {
        let (root, journal) = (root(tree), journal(tree));
        let program = assert_cmd::cargo::cargo_bin("waykeeper");
        let mut command = Command::new(program);
        command.args(["ddio", "set", "6", "--verify", "0", "--root", &root, "--journal", &journal]);
        let holder = Holder(command.stdout(Stdio::null()).spawn().unwrap());
        wait_for("the mask", || [0, 2].iter().all(|cpu| tree.msr(*cpu, DDIO_WAYS) == 0x7e0));
        holder
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_signal_ends_the_holding_and_brings_the_mask_back() {
    let tree = PlainTree::skylake();
    let mut holder = Holder::start(&tree);
    // Another manager is refused meanwhile.
    refused_by(&tree, &["set", "4"], 5, &["another waykeeper", &holder.0.id().to_string()]);
    let pid = rustix::process::Pid::from_raw(holder.0.id() as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(holder.0.wait().unwrap().success());
    assert_eq!((tree.msr(0, DDIO_WAYS), tree.msr(2, DDIO_WAYS)), (0x600, 0x600));
}

/// The mask is restored even if the command ignores SIGTERM.
#[test]
fn a_second_signal_ends_a_command_that_ignores_the_first() {
    let tree = PlainTree::skylake();
    let look = "trap '' TERM; touch \"$0\"; while :; do sleep 0.05; done";
    let begun = tree.path("begun").display().to_string();
    let mut command = Command::new(assert_cmd::cargo::cargo_bin("waykeeper"));
    let (root, journal) = (root(&tree), journal(&tree));
    command.args(["ddio", "set", "6", "--verify", "0", "--root", &root, "--journal", &journal, "--"]);
    let mut holder = Holder(command.args(["sh", "-c", look, &begun]).stdout(Stdio::null()).spawn().unwrap());
    wait_for("the command", || tree.path("begun").exists());
    let pid = rustix::process::Pid::from_raw(holder.0.id() as i32).unwrap();
    let code = loop {
        if let Some(status) = holder.0.try_wait().unwrap() {
            break status.code();
        }
        // At least two signals; several at once may count as one.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        std::thread::sleep(Duration::from_millis(200));
    };
    // 128 + SIGKILL, as in a shell.
    assert_eq!(code, Some(137));
    assert_eq!((tree.msr(0, DDIO_WAYS), tree.msr(2, DDIO_WAYS)), (0x600, 0x600));
}

#[test]
fn a_killed_holder_leaves_a_journal_that_doctor_sees_and_restore_clears() {
    let tree = PlainTree::skylake();
    drop(Holder::start(&tree));
    let arguments = ["restore", "--root", &root(&tree), "--journal", &journal(&tree), "--json"];
    let done: Value = serde_json::from_str(&common::output(&arguments)).unwrap();
    let done = &done["journals"][0];
    assert_eq!(done["knobs"].as_array().unwrap().len(), 2);
    assert_eq!((&done["knobs"][0]["outcome"], &done["stale"]), (&"restored".into(), &false.into()));
    assert_eq!((tree.msr(0, DDIO_WAYS), tree.msr(2, DDIO_WAYS)), (0x600, 0x600));
}

#[test]
fn what_an_ended_process_left_changed_is_restored_only_on_request() {
    let tree = PlainTree::skylake();
    drop(Holder::start(&tree));
    let before = tree.files();
    let parts = ["without restoring 2 values", "nothing was changed"];
    refused_by(&tree, &["off", "nvme0", "--for", "0"], 5, &parts);
    let refused = ddio(&tree, &["off", "nvme0", "--for", "0"]).assert().code(5);
    let line = text(&refused.get_output().stderr);
    // The command that the message names is the one that restores, and after it this one is possible.
    let words: Vec<&str> = line.split('`').nth(1).unwrap_or_default().split(' ').collect();
    assert_eq!(words[..2], ["waykeeper", "restore"], "{line}");
    // The lock's file, which has the number of the process that used it last, is all that differs.
    let without_lock = |mut files: Vec<(String, Vec<u8>)>| {
        files.retain(|(name, _)| !name.ends_with(".lock"));
        files
    };
    assert_eq!(without_lock(tree.files()), without_lock(before));
    common::output(&words[1..]);
    assert_eq!((tree.msr(0, DDIO_WAYS), tree.msr(2, DDIO_WAYS)), (0x600, 0x600));
    let out = reported(&tree, ddio(&tree, &["off", "nvme0", "--for", "0"]), 0);
    assert!(out.contains(": restored"), "{out}");
}

#[test]
fn a_file_that_is_no_journal_is_left_alone() {
    let tree = PlainTree::skylake();
    tree.write("journal", "root:x:0:0:root:/root:/bin/bash\n");
    let (root, journal) = (root(&tree), journal(&tree));
    let said = ["journal: this is not a journal of waykeeper", "is left as it is"];
    refused(&["restore", "--root", &root, "--journal", &journal], 2, &said);
    refused_by(&tree, &["set", "4"], 2, &said);
    assert_eq!(tree.msr(0, DDIO_WAYS), 0x600);
    assert!(!tree.path("journal.lock").exists(), "no lock file is made beside it");
}

/// One bit of the first value is changed: the other one is restored, and the first one is named.
#[test]
fn what_is_intact_in_a_damaged_journal_is_restored_and_the_rest_is_named() {
    let tree = PlainTree::skylake();
    drop(Holder::start(&tree));
    let file = tree.path("journal");
    let text_of = || std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text_of().replacen("\"value\":1536", "\"value\":1537", 1)).unwrap();
    refused_by(
        &tree,
        &["set", "4"],
        1,
        &["journal: it is damaged: line 4 is damaged", "run `waykeeper restore`"],
    );
    let (root, journal) = (root(&tree), journal(&tree));
    let restore = || {
        let done = waykeeper().args(["restore", "--root", &root, "--journal", &journal]).assert().code(1);
        let output = done.get_output().clone();
        text(&output.stdout) + &text(&output.stderr)
    };
    let out = restore();
    for part in
        [": restored\n", "not known: ", "line 4 is damaged", "it reads `", "the DCA ways of socket 0 are"]
    {
        assert!(out.contains(part), "{part}: {out}");
    }
    assert_eq!((tree.msr(0, DDIO_WAYS), tree.msr(2, DDIO_WAYS)), (0x7e0, 0x600), "{out}");
    assert!(tree.path("journal.damaged").exists() && !file.exists());
    // A second restore is no proof, until a person has looked.
    let again = restore();
    assert!(again.contains("line 4 is damaged") && again.contains("journal.unproved"), "{again}");
    // A restore that was killed before it looked for counters left this line: the next one looks for them.
    let unproved = tree.path("journal.unproved");
    let lines = std::fs::read_to_string(&unproved).unwrap();
    let due = "counter programs of the lost run may still be there; the next start or restore looks for them, unless a \
               process that cannot be identified holds the lock of resctrl/info\n";
    assert!(!lines.contains(due), "{lines}");
    std::fs::write(&unproved, format!("{lines}{due}")).unwrap();
    assert!(!restore().contains("may still be there"));
    assert!(std::fs::read_to_string(&unproved).unwrap().starts_with(&lines));
    std::fs::remove_file(tree.path("journal.unproved")).unwrap();
    let out = common::output(&["restore", "--root", &root, "--journal", &journal]);
    assert!(out.contains("nothing to restore"), "{out}");
}

/// Its socket and its lock are in root's folders.
#[test]
fn doctor_tells_another_user_that_the_daemon_is_roots() {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    assert!(rustix::process::geteuid().is_root(), "not run: needs root: another user is tried");
    let tree = PlainTree::skylake();
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("waykeeper");
    let program = assert_cmd::cargo::cargo_bin("waykeeper");
    // As in demo's test: no child of another thread inherits a file open for writing.
    assert!(Command::new("cp").arg(program).arg(&copy).status().unwrap().success());
    for path in [folder.path(), tree.root()] {
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
    }
    let shown = |user: u32| {
        let done = Command::new(&copy).args(["doctor", "--root", &root(&tree)]).uid(user).gid(user).output();
        text(&done.unwrap().stdout)
    };
    assert!(shown(0).contains("  it can manage this host\n"), "{}", shown(0));
    let other = shown(1234);
    for part in
        ["it can manage this host as root\n", "the daemon can observe this host (--observe) as root\n"]
    {
        assert!(other.contains(part), "{other}");
    }
}

/// As some virtual machines are: without an L3 that the kernel shows, and without resctrl.
#[test]
fn a_host_whose_llc_is_not_known_is_observed_and_no_view_invents_ways() {
    let tree = PlainTree::skylake();
    tree.remove("sys/fs/resctrl");
    (0..CPUS).for_each(|cpu| tree.remove(&format!("sys/devices/system/cpu/cpu{cpu}/cache/index3")));
    let root = root(&tree);
    let frame = common::output(&["top", "--root", &root, "--once"]);
    assert!(frame.contains("the ways of the LLC are not known"), "{frame}");
    refused(&["probe", "run", "all", "--root", &root], 3, &["the kernel shows no L3 cache of CPU 0"]);
    let socket = tree.path("socket").display().to_string();
    let at = |key: &str| format!("{key}={socket}");
    let daemon = Command::new(assert_cmd::cargo::cargo_bin("waykeeper"))
        .args(["daemon", "--observe", "--root", &root, "--set", &at("socket.path")])
        .args(["--set", "daemon.period_s=0.05"])
        .stderr(Stdio::null())
        .stdout(Stdio::null())
        .spawn();
    let _daemon = Holder(daemon.unwrap());
    let status = || waykeeper().args(["status", "--socket", &socket]).output().unwrap();
    wait_for("a step", || text(&status().stdout).contains("in state Watching"));
    let said = text(&status().stdout);
    assert!(said.contains("; ways of the LLC not known\n"), "{said}");
    let json = common::output(&["status", "--socket", &socket, "--json"]);
    let host = serde_json::from_str::<Value>(&json).unwrap()["host"].clone();
    for key in ["llc_ways", "llc_bytes", "classes"] {
        assert_eq!(host.get(key), None, "{host}");
    }
    let frame = common::output(&["top", "--socket", &socket, "--once"]);
    assert!(frame.contains("the ways of the LLC are not known"), "{frame}");
}
