//! `waykeeper ddio` on a running virtual host: the counters show the effect of a switch, and a missing effect is
//! reported.

use crate::common;

#[allow(dead_code, reason = "the tests of third-party tools use the rest")]
use crate::third_party::host;

use common::waykeeper;
use host::Host;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Root port of the NIC, and the byte with its switch.
const PORT: &str = "sys/bus/pci/devices/0000:16:00.0/config";
const SWITCH: u64 = 0x180;

fn switch(path: &PathBuf) -> u8 {
    let mut byte = [0];
    File::open(path).unwrap().read_exact_at(&mut byte, SWITCH).unwrap();
    byte[0]
}

/// `waykeeper ddio off nic0` for a moment; its exit code, standard output and standard error.
fn off(host: &Host) -> (i32, String, String) {
    let mut command = waykeeper();
    command.args(["ddio", "off", "nic0", "--for", "0", "--verify", "1.5", "--root"]).arg(host.root());
    let journal = tempfile::tempdir().unwrap();
    let done = command.arg("--journal").arg(journal.path().join("journal")).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (done.status.code().unwrap(), text(done.stdout), text(done.stderr))
}

#[test]
fn the_counters_show_that_dca_is_off() {
    let host = Host::start(&[]);
    let (code, out, error) = off(&host);
    assert_eq!(code, 0, "{out}{error}");
    assert!(
        out.contains("the effect is seen: ") && out.contains("0000:17:00.0 (Ethernet nic0 mlx5_0)"),
        "{out}"
    );
    assert!(out.contains("bits 0x80: 0x80: restored"), "{out}");
    assert_eq!(switch(&host.path(PORT)), 0x80);
}

/// Counters programmed for the check are restored with it: a later restore must not overwrite the counters of another
/// program.
#[test]
fn a_kept_change_keeps_no_counters() {
    let host = Host::start(&[]);
    let journal = tempfile::tempdir().unwrap();
    let path = journal.path().join("journal");
    let with = |arguments: &[&str]| {
        let mut command = waykeeper();
        command.args(arguments).arg("--root").arg(host.root()).arg("--journal").arg(&path);
        let done = command.output().unwrap();
        let text = String::from_utf8(done.stdout).unwrap();
        assert!(done.status.success(), "{text}{}", String::from_utf8_lossy(&done.stderr));
        text
    };
    with(&["ddio", "off", "nic0", "--keep", "--verify", "0.5"]);
    assert_eq!(switch(&host.path(PORT)), 0);
    let out = with(&["restore"]);
    assert_eq!(out.lines().count(), 1, "{out}");
    assert!(out.contains("bits 0x80: 0x80: restored"), "{out}");
    assert_eq!(switch(&host.path(PORT)), 0x80);
}

/// Another program sets the switch back, as firmware may: it read back as wanted, but the counters show no effect.
#[test]
fn a_switch_that_does_nothing_is_reported_and_left_as_it_was() {
    let host = Host::start(&[]);
    let (path, stop) = (host.path(PORT), Arc::new(AtomicBool::new(false)));
    let rival = std::thread::spawn({
        let (path, stop) = (path.clone(), stop.clone());
        move || {
            let config = File::options().write(true).open(&path).unwrap();
            while !stop.load(Ordering::Relaxed) {
                if switch(&path) & 0x80 == 0 {
                    std::thread::sleep(Duration::from_millis(20));
                    config.write_all_at(&[0x80], SWITCH).unwrap();
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    });
    let (code, out, error) = off(&host);
    stop.store(true, Ordering::Relaxed);
    rival.join().unwrap();
    assert_eq!(code, 6, "{out}{error}");
    assert!(error.contains("shows no effect") || error.contains("reads back"), "{error}");
    assert_eq!(switch(&path), 0x80);
}
