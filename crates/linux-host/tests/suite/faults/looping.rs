//! A control loop over intervals in which single operations fail: its readings stay true, and the end state equals the
//! start.

use crate::faults::machine::machine;
use crate::faults::sampling::readings;
use crate::faults::turning::{knobs, plan, wanted};
use rustix::io::Errno;
use std::collections::BTreeMap;
use waykeeper_host::{Host, Reading, Snapshot};
use waykeeper_linux_host::LinuxHost;
use waykeeper_testbed::MS;
use waykeeper_vhost::faults::{Calls, FaultRule, FileFault, Operation};

/// Transient faults per interval: the number of the call within the interval, and the fault.
fn faults() -> Vec<Vec<(u64, FileFault)>> {
    let refused = |errno| FileFault::Refuse(errno);
    vec![
        vec![(3, refused(Errno::IO))],
        vec![(17, FileFault::Garbage(vec![0; 0x2000])), (40, refused(Errno::BUSY))],
        vec![],
        vec![(1, refused(Errno::NODEV)), (60, FileFault::ShortRead(1)), (90, refused(Errno::ACCESS))],
        vec![(75, FileFault::Garbage(vec![0xff; 0x2000])), (130, refused(Errno::NOSPC))],
        vec![(25, FileFault::Garbage(b"garbage\n".to_vec())), (26, FileFault::Garbage(vec![0; 0x2000]))],
        vec![(140, refused(Errno::IO)), (141, refused(Errno::IO)), (142, FileFault::ShortWrite(1))],
        vec![],
    ]
}

/// The increase of each counter that has a value in both snapshots. A counter that falls is an error.
fn rises(before: &Snapshot, after: &Snapshot) -> BTreeMap<String, u64> {
    let mut rises = BTreeMap::new();
    for ((name, a), (_, b)) in readings(before).into_iter().zip(readings(after)) {
        // Occupancy may fall.
        if let (Reading::Value(a), Reading::Value(b), false) = (a, b, name.starts_with("occupancy")) {
            let rise = b.checked_sub(a).unwrap_or_else(|| panic!("{name} fell from {a} to {b}"));
            rises.insert(name, rise);
        }
    }
    rises
}

#[test]
fn a_loop_continues_through_passing_faults() {
    let machine = machine();
    let before = machine.state();
    let mut host: LinuxHost = machine.open();
    let plans =
        [plan(&host, [0x00f, 0x030, 0x0c0, 0x700], 0x7c0, false), plan(&host, [0x7ff; 4], 0x700, true)];
    let mut most: BTreeMap<String, u64> = BTreeMap::new();
    let mut last = host.sample().unwrap_or_else(|error| panic!("{error}"));
    for plan in plans.iter().cycle().take(6) {
        machine.run(2 * MS);
        let now = host.sample().unwrap_or_else(|error| panic!("{error}"));
        for (name, rise) in rises(&last, &now) {
            let most = most.entry(name).or_default();
            *most = rise.max(*most);
        }
        assert!(host.apply(plan).is_ok_and(|applied| applied.is_complete()));
        last = now;
    }
    let struck = machine.faults.struck();
    let (mut reported, mut gaps) = (0, 0);
    for (faults, plan) in faults().into_iter().cycle().zip(plans.iter().cycle()).take(24) {
        machine.run(2 * MS);
        for (nth, fault) in faults {
            let operation = match fault {
                FileFault::ShortWrite(_) => Some(Operation::Write),
                FileFault::Garbage(_) | FileFault::ShortRead(_) => Some(Operation::Read),
                FileFault::Refuse(_) => None,
            };
            machine.faults.inject(FaultRule { path: "*".into(), operation, calls: Calls::Nth(nth), fault });
        }
        let sampled = host.sample();
        let applied = host.apply(plan).unwrap_or_else(|error| panic!("{error}"));
        machine.faults.lift();
        let complaints = host.complaints();
        reported += complaints.len() + usize::from(!applied.is_complete()) + usize::from(sampled.is_err());
        assert!(
            complaints.iter().all(|complaint| !complaint.contains('\n') && complaint.len() < 600),
            "{complaints:#?}"
        );
        match sampled {
            Err(_) => gaps += 1,
            Ok(now) => {
                for (name, rise) in rises(&last, &now) {
                    // An interval after a gap covers two.
                    let bound = most.get(&name).copied().unwrap_or(0) * 4 * (1 + gaps) + 10_000;
                    assert!(
                        rise <= bound,
                        "{name} rose by {rise} in an interval, never by more than {bound} before"
                    );
                }
                let missing = readings(&now).iter().any(|(_, reading)| *reading == Reading::Unavailable);
                // The next interval includes the missing counts.
                gaps = u64::from(missing);
                last = now;
            }
        }
    }
    assert!(machine.faults.struck() - struck > 30 && reported > 15, "{reported} reports");
    let [plan, _] = plans;
    assert!(host.apply(&plan).is_ok_and(|applied| applied.is_complete()));
    host.sample().unwrap_or_else(|error| panic!("{error}"));
    host.complaints();
    assert_eq!(knobs(&mut host), wanted(&plan));
    assert!(host.close().expect("closed").is_complete());
    assert_eq!(machine.state(), before);
}
