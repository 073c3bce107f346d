//! What doctor advises, done to the tree, mends what it reported: on a server whose files each lack one thing.
//!
//! A command of an advice is carried out as its program or the next boot would change the files of this server.

use crate::doctor::examine;

use std::fs;
use std::sync::LazyLock;
use waykeeper_operator::doctor::{CheckState, DoctorReport};
use waykeeper_testbed::plain_tree::PlainTree;

/// Puts back what the whole server has below these folders.
fn put_back(tree: &PlainTree, folders: &[&str]) {
    static WHOLE: LazyLock<Vec<(String, Vec<u8>)>> = LazyLock::new(|| PlainTree::skylake().files());
    for (path, content) in WHOLE.iter() {
        if folders.iter().any(|folder| path.starts_with(folder)) {
            let at = tree.path(path);
            fs::create_dir_all(at.parent().unwrap()).unwrap();
            fs::write(at, content).unwrap();
        }
    }
}

/// Removes the groups that another program made.
fn remove_groups(tree: &PlainTree) {
    for entry in fs::read_dir(tree.path("sys/fs/resctrl")).unwrap() {
        let entry = entry.unwrap();
        if entry.file_name().to_str().is_some_and(|name| name.starts_with("COS")) {
            fs::remove_dir_all(entry.path()).unwrap();
        }
    }
}

/// Does what an advice says. False for one that no command of this host carries out.
fn carried_out(tree: &PlainTree, advice: &str) -> bool {
    let words: Vec<&str> = advice.split(' ').collect();
    match words.as_slice() {
        ["mount", "-t", "resctrl", "resctrl", "/sys/fs/resctrl"] => put_back(tree, &["sys/fs/resctrl/"]),
        ["mount", "--bind", from, "/sys/fs/resctrl,", ..] => {
            fs::remove_dir_all(tree.path("sys/fs/resctrl")).unwrap();
            fs::rename(tree.path(&from[1..]), tree.path("sys/fs/resctrl")).unwrap();
            let mounts = fs::read_to_string(tree.path("proc/mounts")).unwrap();
            tree.write("proc/mounts", &format!("{mounts}resctrl /sys/fs/resctrl resctrl rw 0 0\n"));
        }
        ["mount", "-o", "remount,rw", "/sys/fs/resctrl,", ..] => {
            tree.write("proc/mounts", "resctrl /sys/fs/resctrl resctrl rw 0 0\n");
        }
        ["modprobe", "msr", ..] => put_back(tree, &["dev/cpu/", "sys/module/msr/"]),
        ["modprobe", "intel_uncore", ..] | ["modprobe", "intel_uncore,", ..] => {
            put_back(tree, &["sys/bus/event_source/"]);
        }
        ["echo", value, ">", path, ..] => tree.write(path.trim_matches(['/', ',']), &format!("{value}\n")),
        ["sysctl", setting, ..] => {
            let (key, value) = setting.split_once('=').unwrap();
            tree.write(&format!("proc/sys/{}", key.replace('.', "/")), &format!("{value}\n"));
        }
        // The next boot has another command line, and the kernel then offers what it had switched off.
        ["boot", "without", ..] | ["boot", "with", ..] => {
            tree.write("proc/cmdline", "root=/dev/sda1\n");
            put_back(tree, &["sys/fs/resctrl/info/"]);
        }
        _ if advice.contains("(rmdir)") => remove_groups(tree),
        _ => return false,
    }
    true
}

/// A server that lacks something, and the checks of which doctor's advice is to mend it.
fn is_mended(what: &str, lacks: impl Fn(&PlainTree), checks: &[&str]) {
    static WHOLE: LazyLock<DoctorReport> = LazyLock::new(|| examine(PlainTree::skylake().root()));
    let with = |report: &DoctorReport, name: &str| {
        let check = report.check(name).unwrap_or_else(|| panic!("{what}: no check {name}"));
        (check.state, check.value.clone(), check.remedy.clone())
    };
    for name in checks {
        let tree = PlainTree::skylake();
        lacks(&tree);
        let (state, value, advice) = with(&examine(tree.root()), name);
        assert!(state != CheckState::Ok, "{what}: {name} is {value}");
        let advice = advice.unwrap_or_else(|| panic!("{what}: {name} is {value}, and nothing is advised"));
        assert!(carried_out(&tree, &advice), "{what}: {name}: `{advice}` is no command");
        let (now, value, _) = with(&examine(tree.root()), name);
        assert_eq!(now, with(&WHOLE, name).0, "{what}: {name} after `{advice}`: {value}");
    }
}

#[test]
fn each_advice_mends_what_it_is_about() {
    is_mended("no mount", |tree| tree.remove("sys/fs/resctrl/info"), &["resctrl"]);
    is_mended(
        "a mount elsewhere",
        |tree| {
            fs::create_dir_all(tree.path("mnt")).unwrap();
            fs::rename(tree.path("sys/fs/resctrl"), tree.path("mnt/rdt")).unwrap();
            fs::create_dir(tree.path("sys/fs/resctrl")).unwrap();
            tree.write("proc/mounts", "resctrl /mnt/rdt resctrl rw 0 0\n");
        },
        &["resctrl"],
    );
    is_mended(
        "a mount that takes no writes",
        |tree| tree.write("proc/mounts", "resctrl /sys/fs/resctrl resctrl ro 0 0\n"),
        &["resctrl"],
    );
    is_mended(
        "no msr driver",
        |tree| {
            tree.remove("dev/cpu");
            tree.remove("sys/module/msr");
        },
        &["msr", "msr-writes", "ddio-ways"],
    );
    is_mended(
        "no writes",
        |tree| tree.write("sys/module/msr/parameters/allow_writes", "off\n"),
        &["msr-writes"],
    );
    is_mended(
        "a class of service switched off by the command line",
        |tree| {
            tree.write("proc/cmdline", "root=/dev/sda1 rdt=!l3cat\n");
            tree.remove("sys/fs/resctrl/info/L3");
        },
        &["cat"],
    );
    is_mended("a kernel that asks for the option", |tree| tree.remove("sys/fs/resctrl/info/L3"), &["cat"]);
    is_mended(
        "no free class",
        |tree| {
            (1..8).for_each(|group| tree.write(&format!("sys/fs/resctrl/COS{group}/schemata"), "L3:0=7ff\n"))
        },
        &["classes"],
    );
    is_mended(
        "no free RMID",
        |tree| {
            tree.write("sys/fs/resctrl/info/L3_MON/num_rmids", "2\n");
            tree.write("sys/fs/resctrl/COS1/schemata", "L3:0=7ff\n");
        },
        &["monitoring"],
    );
    is_mended(
        "no uncore units, nor registers",
        |tree| {
            for unit in ["uncore_cha_0", "uncore_cha_1", "uncore_iio_0", "uncore_imc_0"] {
                tree.remove(&format!("sys/bus/event_source/devices/{unit}"));
            }
            tree.remove("dev/cpu");
        },
        &["dca-counters", "io-counters"],
    );
}
