//! What several tenants claim, and which CPUs the kernel lets them share.

use crate::census::machine::{Machine, Process};

#[test]
fn the_tenant_declared_first_has_a_process_and_the_other_is_reported_once() {
    let mut machine = Machine::new(
        "[[tenant]]\nname = \"a\"\nprocess = \"x\"\n[[tenant]]\nname = \"b\"\ncgroup = \"g\"\n[[tenant]]\nname = \"c\"\npids = [11]\n",
    );
    machine.process(&Process { cpus: "0", ..Process::new(10, "x") });
    machine.process(&Process { cpus: "1", ..Process::new(11, "y") });
    machine.cgroup("g", &[10, 11], None);
    let (shown, notes) = machine.look();
    assert_eq!(shown, ["a [0] [10]", "b [1] [11]"]);
    assert_eq!(
        notes,
        [
            "tenant b: process 10 and perhaps others belong to a, which is declared earlier",
            "tenant c: process 11 and perhaps others belong to b, which is declared earlier",
            "tenant c: it is not present: none of its processes runs"
        ]
    );
    assert!(machine.look().1.is_empty());
}

#[test]
fn a_pool_that_two_may_use_has_no_owner() {
    let mut machine = Machine::new(
        "[[tenant]]\nname = \"p\"\neach = true\ncgroup = \"p*\"\n[[tenant]]\nname = \"own\"\ncores = \"0\"\n",
    );
    for pid in [20, 21, 22] {
        machine.process(&Process::new(pid, "x"));
    }
    machine.cgroup("p1", &[20], Some("2,6"));
    assert_eq!(machine.look(), (vec!["p-p1 [2,6] [20]".to_owned(), "own [0] []".to_owned()], vec![]));
    machine.cgroup("p2", &[21], Some("3,6"));
    machine.cgroup("p3", &[22], Some("0-1"));
    let (shown, notes) = machine.look();
    assert_eq!(shown, ["p-p1 [] [20]", "p-p2 [] [21]", "p-p3 [] [22]", "own [0] []"]);
    assert_eq!(
        notes[0],
        "tenant p-p1: it has processes but no cores of its own (p-p2 may also run on core 6 of its 2,6); \
         core counters do not cover it"
    );
    assert!(
        notes[2].contains("p-p3: it has processes but no cores of its own (own may also run on core 0"),
        "{notes:?}"
    );
    machine.tree.remove("sys/fs/cgroup/p2");
    assert_eq!(machine.look().0[0], "p-p1 [2,6] [20]");
}

#[test]
fn cores_are_those_of_all_threads_and_part_of_one_socket() {
    let mut machine = Machine::new("[[tenant]]\nname = \"a\"\nprocess = \"dpdk\"\n");
    machine.process(&Process { cpus: "0", ..Process::new(30, "dpdk") });
    machine.thread(30, 31, "4");
    assert_eq!(machine.look().0, ["a [0,4] [30]"]);
    // A thread that is started later is found when the process's CPUs are read again.
    machine.thread(30, 32, "5");
    let mut looks = (0..12).map(|_| machine.look().0[0].clone());
    assert!(looks.any(|shown| shown == "a [0,4-5] [30]"));
    machine.thread(30, 33, "2");
    let reported: Vec<String> = (0..12).flat_map(|_| machine.look().1).collect();
    assert_eq!(machine.look().0, ["a [] [30]"]);
    assert_eq!(reported.len(), 1, "{reported:?}");
    assert!(reported[0].contains("may run on 0,2,4-5, which is not a part of one socket"), "{reported:?}");
}

#[test]
fn what_is_declared_of_cores_is_believed_as_far_as_they_are_online() {
    let mut machine = Machine::new(
        "[[tenant]]\nname = \"a\"\ncores = \"1-3\"\npids = [40]\n[[tenant]]\nname = \"b\"\ncores = \"4,9\"\n",
    );
    let (shown, notes) = machine.look();
    assert_eq!(shown, ["a [1-3] []", "b [4] []"]);
    assert_eq!(notes.len(), 2, "{notes:?}");
    assert_eq!(notes[1], "tenant b: not all of its cores 4,9 are online; it has 4");
    machine.tree.write("sys/devices/system/cpu/online", "0-3\n");
    let (shown, notes) = machine.look();
    assert_eq!(shown, ["a [1-3] []"]);
    assert_eq!(notes, ["tenant b: it is not present: none of its cores 4,9 is online"]);
    // A tenant with a unit and cores is present only while the unit has processes.
    let mut unit = Machine::new("[[tenant]]\nname = \"a\"\ncores = \"1\"\nunit = \"a.service\"\n");
    unit.cgroup("system.slice/a.service", &[], None);
    assert_eq!(unit.look().0, [""; 0]);
    unit.process(&Process::new(50, "x"));
    unit.cgroup("system.slice/a.service", &[50], Some("0-7"));
    assert_eq!(unit.look().0, ["a [1] [50]"]);
}

#[test]
fn the_cores_that_are_missing_are_those_of_the_present() {
    let mut machine = Machine::new("[[tenant]]\nname = \"a\"\ncores = \"1-4\"\n");
    assert_eq!(machine.look().1, [""; 0]);
    for (online, left) in [("0-2,4-5", "1-2,4"), ("0-1,3,5", "1,3"), ("0,3", "3")] {
        machine.tree.write("sys/devices/system/cpu/online", &format!("{online}\n"));
        let (shown, notes) = machine.look();
        assert_eq!(shown, [format!("a [{left}] []")]);
        assert_eq!(notes, [format!("tenant a: not all of its cores 1-4 are online; it has {left}")]);
        assert_eq!(machine.look().1, [""; 0], "it is reported once");
    }
    machine.tree.write("sys/devices/system/cpu/online", "0\n");
    assert_eq!(machine.look().1, ["tenant a: it is not present: none of its cores 1-4 is online"]);
}

#[test]
fn on_a_machine_whose_cpus_are_unknown_no_tenant_gets_cores() {
    let mut machine =
        Machine::new("[[tenant]]\nname = \"a\"\nprocess = \"x\"\n[[tenant]]\nname = \"b\"\ncores = \"3\"\n");
    machine.process(&Process { cpus: "0", ..Process::new(60, "x") });
    machine.tree.write("sys/devices/system/cpu/online", "what\n");
    let (shown, notes) = machine.look();
    assert_eq!(shown, ["a [] [60]", "b [3] []"]);
    assert!(notes[0].contains("tenants have only the cores that are declared for them"), "{notes:?}");
}
