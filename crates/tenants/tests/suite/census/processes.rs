//! Tenants by program and by pid.

use crate::census::machine::{Machine, Process};
use waykeeper_tenants::{MOST_MEMBERS, parse};

#[test]
fn a_program_is_known_by_its_name_and_by_the_file_it_runs() {
    let mut machine =
        Machine::new("[[tenant]]\nname = \"a\"\nprocess = [\"fastclick*\", \"odd) S 1 (name\"]\n");
    machine.process(&Process::new(10, "fastclick"));
    machine.process(&Process {
        exe: Some("/opt/fastclick-with-a-long-name (deleted)"),
        ..Process::new(11, "main")
    });
    machine.process(&Process::new(12, "odd) S 1 (name"));
    machine.process(&Process { exe: Some("/usr/bin/python3"), ..Process::new(13, "not-fastclick") });
    machine.process(&Process::new(14, "fastclick\nx"));
    machine.tree.write("proc/self/stat", "10 (fastclick) S");
    // A kernel thread may have any name.
    let kernels = format!("15 (fastclick) S 2 0 0 0 -1 {} {}1 0 5 0 0\n", 0x0020_8040, "0 ".repeat(10));
    machine.tree.write("proc/15/stat", &kernels);
    machine.tree.write("proc/16/stat", &kernels.replace("15 (fastclick) S", "16 (fastclick) Z"));
    let (shown, _) = machine.look();
    assert_eq!(shown, ["a [] [10, 11, 12, 14]"]);
    machine.end(11);
    machine.end(14);
    assert_eq!(machine.look().0, ["a [] [10, 12]"]);
    // It executes another program.
    machine.process(&Process { started: 100, ..Process::new(10, "bash") });
    machine.look();
    assert_eq!(machine.look().0, ["a [] [12]"]);
}

#[test]
fn each_process_of_a_program_is_a_tenant_with_those_that_descend_from_it() {
    let mut machine = Machine::new("[[tenant]]\nname = \"w-{name}\"\nprocess = \"nginx\"\n");
    machine.process(&Process { started: 500, ..Process::new(20, "nginx") });
    machine.process(&Process { started: 501, parent: 20, ..Process::new(21, "nginx") });
    machine.process(&Process { started: 600, ..Process::new(30, "nginx") });
    assert_eq!(machine.look().0, ["w-20.500 [] [20, 21]", "w-30.600 [] [30]"]);
    // The leader ends and init is the parent of its child: still the same family.
    machine.end(20);
    machine.process(&Process { started: 501, ..Process::new(21, "nginx") });
    machine.process(&Process { started: 700, parent: 21, ..Process::new(22, "nginx") });
    assert_eq!(machine.look().0, ["w-20.500 [] [21, 22]", "w-30.600 [] [30]"]);
    // Another process with the same pid is another tenant.
    machine.end(30);
    machine.process(&Process { started: 900, ..Process::new(30, "nginx") });
    for _ in 0..2 {
        machine.look();
    }
    assert_eq!(machine.look().0, ["w-20.500 [] [21, 22]", "w-30.900 [] [30]"]);
    // Two processes that are each other's parent.
    machine.process(&Process { started: 5, parent: 41, ..Process::new(40, "nginx") });
    machine.process(&Process { started: 5, parent: 40, ..Process::new(41, "nginx") });
    assert_eq!(machine.look().0.len(), 3);
}

#[test]
fn a_declared_pid_is_the_process_that_had_it_first_and_its_descendants() {
    let mut machine = Machine::new("[[tenant]]\nname = \"a\"\npids = [50, 60]\n");
    machine.process(&Process::new(50, "sh"));
    machine.process(&Process { parent: 50, ..Process::new(51, "x") });
    machine.process(&Process { parent: 51, ..Process::new(52, "y") });
    // Older than its parent: when it started, another process had the parent's pid.
    machine.process(&Process { parent: 50, started: 3, ..Process::new(53, "z") });
    let (shown, notes) = machine.look();
    assert_eq!(shown, ["a [] [50, 51, 52]"]);
    assert!(notes[0].contains("process 60 does not exist or has ended"), "{notes:?}");
    // 51 ends, and init is 52's parent; pid 60 now belongs to a process that was not declared.
    machine.end(51);
    machine.process(&Process::new(52, "y"));
    machine.process(&Process::new(60, "stranger"));
    assert_eq!(machine.look().0, ["a [] [50, 52]"]);
    // 50 ends, and another process gets its pid and has a child.
    machine.process(&Process { started: 9000, ..Process::new(50, "stranger") });
    machine.process(&Process { started: 9001, parent: 50, ..Process::new(54, "stranger") });
    let (shown, notes) = machine.look();
    assert_eq!(shown, ["a [] [52]"]);
    assert_eq!(notes.len(), 1, "{notes:?}");
    // Reading the declaration again does not make that process a member.
    let again = parse("t".as_ref(), "[[tenant]]\nname = \"a\"\npids = [50]\npriority = \"high\"\n").unwrap();
    machine.census.replace(again);
    let roster = machine.take();
    assert_eq!((roster.tenants.len(), roster.absent[0].name.as_str()), (0, "a"));
    machine.end(52);
    assert_eq!(machine.look().0, [""; 0]);
}

#[test]
fn a_new_owner_of_a_pid_shows_in_the_start() {
    let mut machine = Machine::new("[[tenant]]\nname = \"a\"\ncgroup = \"a\"\n");
    machine.process(&Process::new(70, "x"));
    machine.cgroup("a", &[70], None);
    assert_eq!(machine.take().started[&70], 700);
    machine.process(&Process { started: 800, ..Process::new(70, "x") });
    assert_eq!(machine.take().started[&70], 800);
}

#[test]
fn what_makes_no_sense_is_left_out_and_reported_once() {
    let mut machine = Machine::new("[[tenant]]\nname = \"a\"\nprocess = \"x\"\n");
    machine.process(&Process::new(80, "x"));
    machine.tree.write("proc/81/stat", "81 (x) S what\n");
    std::fs::create_dir_all(machine.tree.path("proc/82")).unwrap();
    let (shown, notes) = machine.look();
    assert_eq!(shown, ["a [] [80]"]);
    let reported = notes.iter().filter(|note| note.contains("52 fields")).count();
    assert_eq!((reported, machine.look().1.len()), (1, 0), "{notes:?}");
}

#[test]
fn many_processes_are_read_at_once_and_then_in_turn() {
    let mut machine = Machine::new(
        "[[tenant]]\nname = \"a\"\nprocess = \"x\"\n[[tenant]]\nname = \"all\"\nprocess = \"*\"\n",
    );
    for pid in 100..5100 {
        machine.tree.write(
            &format!("proc/{pid}/stat"),
            &format!("{pid} (y) S 1 1 1 0 -1 0 {}1 0 {pid} 0\n", "0 ".repeat(10)),
        );
    }
    machine.process(&Process::new(5100, "x"));
    let pids =
        |roster: &waykeeper_tenants::Roster| roster.tenants.iter().map(|t| t.pids.len()).sum::<usize>();
    // The second look reads the processes for which the first had no reads left.
    machine.take();
    let roster = machine.take();
    assert_eq!(pids(&roster), MOST_MEMBERS);
    assert!(roster.tenants[0].pids == [5100], "who is declared first is not crowded out");
    let crowded = roster.notes.iter().filter(|note| note.about == waykeeper_tenants::About::TooMany);
    assert_eq!(crowded.map(|note| note.tenant.as_deref()).collect::<Vec<_>>(), [Some("all")]);
    assert!(machine.census.take(&waykeeper_kernel::root::Root::at("/nowhere")).tenants.is_empty());
    let mut few = Machine::new("[[tenant]]\nname = \"a\"\nprocess = \"x\"\n");
    std::mem::swap(&mut few.tree, &mut machine.tree);
    let looks: Vec<usize> = (0..8).map(|_| few.take().reads).collect();
    assert!(looks[7] < 600, "{looks:?}");
}
