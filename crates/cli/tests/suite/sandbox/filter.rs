//! The unit's filter of system calls, and of their arguments, as BPF in the kernel, as systemd would load them.
//!
//! seccompiler makes BPF of names and masks without a C library. Two things differ from systemd's filter, so that a
//! refusal is always noticed: a forbidden call kills the process instead of failing with EPERM, and a library can fall
//! back on another call only where systemd itself returns ENOSYS. Must not know what runs under it.

use super::unit::Unit;
use seccompiler::{BpfMap, TargetArch, apply_filter, compile_from_json};
use serde_json::{Value, json};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID and NEWNET (linux/sched.h).
const NAMESPACES: u64 = 0x7e02_0000;
/// PROT_WRITE and PROT_EXEC (asm-generic/mman-common.h).
const WRITE: u64 = 2;
const EXEC: u64 = 4;
/// S_ISUID and S_ISGID (linux/stat.h).
const SET_ID: u64 = 0o6000;
/// O_CREAT and, as one bit of it, O_TMPFILE (asm-generic/fcntl.h).
const CREATES: u64 = 0o20000100;

/// A condition: an argument, masked, equals a value.
fn is(index: u64, mask: u64, value: u64) -> Value {
    json!({ "index": index, "type": "dword", "op": { "masked_eq": mask }, "val": value })
}

/// A rule for a call: all its conditions must hold. A call may have several rules.
fn rule(call: &str, conditions: &[Value]) -> Value {
    match conditions {
        [] => json!({ "syscall": call }),
        all => json!({ "syscall": call, "args": all }),
    }
}

/// The allowed arguments of a call, where settings of the unit restrict them (systemd 252, seccomp-util.c).
fn rules(unit: &Unit, call: &str) -> Vec<Value> {
    let any_of = |all: &[Value]| all.iter().map(|one| rule(call, std::slice::from_ref(one))).collect();
    const WHOLE: u64 = 0xffff_ffff;
    match call {
        "socket" => {
            let families = unit.values("RestrictAddressFamilies").iter().map(|name| match name.as_str() {
                "AF_UNIX" => is(0, WHOLE, 1),
                "AF_INET" => is(0, WHOLE, 2),
                "AF_INET6" => is(0, WHOLE, 10),
                other => panic!("RestrictAddressFamilies={other} has no number here"),
            });
            any_of(&families.collect::<Vec<_>>())
        }
        "mmap" => any_of(&[0, WRITE, EXEC].map(|value| is(2, WRITE | EXEC, value))),
        "mprotect" | "pkey_mprotect" => any_of(&[is(2, EXEC, 0)]),
        "clone" => any_of(&[is(0, NAMESPACES, 0)]),
        "unshare" | "setns" => Vec::new(),
        // SCHED_OTHER, SCHED_BATCH and SCHED_IDLE (linux/sched.h).
        "sched_setscheduler" => any_of(&[0, 3, 5].map(|policy| is(1, WHOLE, policy))),
        "sched_setattr" => Vec::new(),
        "chmod" | "fchmod" | "mkdir" | "creat" | "mknod" => any_of(&[is(1, SET_ID, 0)]),
        "fchmodat" | "mkdirat" | "mknodat" => any_of(&[is(2, SET_ID, 0)]),
        "open" => any_of(&[is(1, CREATES, 0), is(2, SET_ID, 0)]),
        "openat" => any_of(&[is(2, CREATES, 0), is(3, SET_ID, 0)]),
        "personality" => any_of(&[is(0, WHOLE, 0), is(0, WHOLE, WHOLE)]),
        _ => vec![rule(call, &[])],
    }
}

fn compile(filters: &Value) -> Result<BpfMap, seccompiler::Error> {
    let arch = TargetArch::try_from(std::env::consts::ARCH).expect("seccompiler knows this processor");
    compile_from_json(filters.to_string().as_bytes(), arch)
}

/// The unit's filters. The kernel applies both and takes the stricter result, so each allows the calls of the other.
fn filters(unit: &Unit) -> Value {
    for key in [
        "MemoryDenyWriteExecute",
        "RestrictNamespaces",
        "RestrictRealtime",
        "RestrictSUIDSGID",
        "LockPersonality",
    ] {
        assert_eq!(unit.values(key), ["yes"], "{key}");
    }
    assert_eq!(unit.values("SystemCallArchitectures"), ["native"]);
    let filter = |rules: Vec<Value>, matching: Value, others: Value| json!({ "mismatch_action": others, "match_action": matching, "filter": rules });
    let exists = |name: &String| {
        let one = filter(vec![rule(name, &[])], json!("allow"), json!("log"));
        compile(&json!({ "one": one })).is_ok()
    };
    // As systemd does: calls of other architectures are left out.
    let here: Vec<String> = unit.calls().into_iter().filter(exists).collect();
    assert!(here.len() > 200, "{here:?}");
    let let_through = here.iter().flat_map(|call| rules(unit, call)).collect();
    // ENOSYS: a filter cannot see flags behind a pointer, so libraries must take the older call.
    let absent = ["clone3", "openat2"].map(|call| rule(call, &[])).to_vec();
    json!({
        "1-absent": filter(absent, json!({ "errno": 38 }), json!("allow")),
        "2-let-through": filter(let_through, json!("allow"), json!("kill_process")),
    })
}

/// The prefix of a command that runs it under the unit's filters: this test program, running
/// [`becomes_a_command_under_a_filter`]. The filters are in `folder`.
pub fn under(unit: &Unit, folder: &Path) -> Vec<String> {
    let file = folder.join("filters.json");
    std::fs::write(&file, filters(unit).to_string()).expect("a file in a folder of ours");
    let own = std::env::current_exe().expect("a test has a program");
    let (_, module) = module_path!().split_once("::").expect("it is a module");
    let name = format!("{module}::becomes_a_command_under_a_filter");
    let variable = format!("{FILTERS}={}", file.display());
    let own = own.to_str().expect("ASCII").to_owned();
    ["env".to_owned(), variable, own]
        .into_iter()
        .chain(["--exact", &name, "--ignored", "--nocapture", "--"].map(str::to_owned))
        .collect()
}

/// The variable with the path of the filters.
const FILTERS: &str = "WAYKEEPER_TEST_FILTERS";

#[test]
#[ignore = "not a test but what others run their commands by"]
fn becomes_a_command_under_a_filter() {
    let file = std::env::var_os(FILTERS).expect("called by another test");
    let text = std::fs::read_to_string(&file).expect("written by another test");
    let filters = compile(&serde_json::from_str(&text).expect("JSON")).expect("it was compiled before");
    let mut filters: Vec<_> = filters.into_iter().collect();
    filters.sort_by(|a, b| a.0.cmp(&b.0));
    let command: Vec<String> = std::env::args().skip_while(|word| word != "--").skip(1).collect();
    let mut next = Command::new(&command[0]);
    next.args(&command[1..]).env_remove(FILTERS);
    for (_, filter) in &filters {
        apply_filter(filter).expect("without new privileges any process may");
    }
    // A process inherits the filters of the thread that started it.
    panic!("{}: {}", command[0], next.exec());
}
