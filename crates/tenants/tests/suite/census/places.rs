//! Tenants by cgroup, slice and unit.

use crate::census::machine::{Machine, Process};

#[test]
fn a_slice_is_all_that_runs_below_it_and_its_cpus_are_its_cores() {
    let mut machine = Machine::new("[[tenant]]\nname = \"db\"\nslice = \"data-redis.slice\"\n");
    let (shown, notes) = machine.look();
    assert_eq!(shown, [""; 0]);
    // A missing cgroup tree and a missing cgroup have different notes.
    assert!(notes[0].starts_with("there is no cgroup tree at "), "{notes:?}");
    assert_eq!(
        notes[1],
        "tenant db: it is not present: no process in data-redis.slice belongs to this tenant"
    );
    for pid in [10, 11] {
        machine.process(&Process::new(pid, "redis-server"));
    }
    machine.cgroup("data.slice/data-redis.slice", &[], Some("0-1"));
    machine.cgroup("data.slice/data-redis.slice/redis@1.service", &[10], None);
    machine.cgroup("data.slice/data-redis.slice/redis@2.service", &[11], None);
    machine.cgroup("data-redis.slice", &[1], None);
    assert_eq!(machine.look(), (vec!["db [0-1] [10, 11]".to_owned()], vec![]));
    machine.tree.remove("sys/fs/cgroup/data.slice");
    let (shown, notes) = machine.look();
    assert_eq!((shown.len(), notes.len()), (0, 1), "{notes:?}");
    assert!(machine.look().1.is_empty(), "absence is told once");
}

#[test]
fn a_unit_is_found_in_whatever_slice_it_is_and_nowhere_else() {
    let mut machine =
        Machine::new("[[tenant]]\nname = \"db\"\nunit = [\"redis.service\", \"pg@*.service\"]\n");
    for pid in 10..15 {
        machine.process(&Process::new(pid, "x"));
    }
    machine.cgroup("system.slice/redis.service", &[10], Some("4"));
    machine.cgroup("system.slice/system-pg.slice/pg@main.service", &[11], Some("5"));
    machine.cgroup("apps.slice/apps-a.slice/pg@two.service/worker", &[12], Some("5"));
    // A container's own systemd may have units of the same names.
    machine.cgroup("machine.slice/vm.scope/system.slice/redis.service", &[13], None);
    machine.cgroup("docker/redis.service", &[14], None);
    assert_eq!(machine.look(), (vec!["db [4-5] [10, 11, 12]".to_owned()], vec![]));
}

#[test]
fn a_unit_that_could_have_the_name_of_a_file_is_found_behind_its_underscore() {
    let mut machine = Machine::new(
        "[[tenant]]\nname = \"a\"\nslice = \"io.slice\"\n[[tenant]]\nname = \"b-{name}\"\nunit = \"mem*.service\"\n",
    );
    for pid in [10, 11] {
        machine.process(&Process::new(pid, "x"));
    }
    machine.cgroup("_io.slice/x.service", &[10], Some("4"));
    machine.cgroup("system.slice/_memory.service", &[11], Some("5"));
    assert_eq!(machine.look(), (vec!["a [4] [10]".to_owned(), "b-memory [5] [11]".to_owned()], vec![]));
}

#[test]
fn a_mistyped_unit_slice_or_path_is_reported_with_the_one_that_is_nearest() {
    let mut machine = Machine::new(
        "[[tenant]]\nname = \"a\"\nunit = \"redis-servr.service\"\n\
         [[tenant]]\nname = \"b\"\nslice = \"data-reds.slice\"\n\
         [[tenant]]\nname = \"c\"\ncgroup = \"data.slice/data-redis.slice/redis-server.servic\"\n\
         [[tenant]]\nname = \"d\"\nunit = \"redis-server.service\"\n",
    );
    // It exists, without a process.
    machine.cgroup("data.slice/data-redis.slice/redis-server.service", &[], None);
    let roster = machine.take();
    // Measured: 14 reads for all four; a bound on what the hints may cost.
    assert!(roster.reads <= 14, "{}", roster.reads);
    let absent: Vec<(String, String)> =
        roster.absent.into_iter().map(|absent| (absent.name, absent.why)).collect();
    let why = |wanted: &str, hint: &str| format!("no process in {wanted} belongs to this tenant{hint}");
    let path = "data.slice/data-redis.slice/redis-server.service";
    let expected = [
        ("a", why("redis-servr.service", "; did you mean `redis-server.service`?")),
        ("b", why("data-reds.slice", "; did you mean `data-redis.slice`?")),
        ("c", why(path.strip_suffix('e').unwrap(), &format!("; did you mean `{path}`?"))),
        ("d", why("redis-server.service", "")),
    ];
    assert_eq!(absent, expected.map(|(name, why)| (name.to_owned(), why)));
}

#[test]
fn each_pod_is_a_tenant_of_its_own_that_starts_and_ends() {
    let mut machine = Machine::new(
        "[[tenant]]\nname = \"pod\"\neach = true\npriority = \"high\"\ncgroup = \"kubepods.slice/**/cri-*.scope\"\n",
    );
    let (one, two) = ("kubepods.slice/kubepods-podA.slice/cri-1.scope", "kubepods.slice/b.slice/cri-1.scope");
    for pid in 20..24 {
        machine.process(&Process::new(pid, "x"));
    }
    machine.cgroup("kubepods.slice", &[], Some("0-7"));
    machine.cgroup(one, &[20], Some("0,4"));
    machine.cgroup(&format!("{one}/cri-inner.scope"), &[21], Some("0"));
    let first = machine.take();
    assert_eq!(first.tenants.len(), 1, "what is inside a match is part of it");
    assert_eq!(
        (first.tenants[0].pids.as_slice(), first.tenants[0].cores.to_string().as_str()),
        ([20, 21].as_slice(), "0,4")
    );
    machine.cgroup(two, &[22], Some("2-3"));
    machine.cgroup("kubepods.slice/c.slice/cri-empty.scope", &[], None);
    let second = machine.take();
    let names: Vec<&str> = second.tenants.iter().map(|tenant| tenant.name.as_str()).collect();
    assert_eq!(names.len(), 2);
    assert!(names.contains(&first.tenants[0].name.as_str()), "a name stays: {names:?}");
    assert!(names.iter().all(|name| name.starts_with("pod-cri-1-")), "{names:?}");
    machine.tree.remove(&format!("sys/fs/cgroup/{one}"));
    let third = machine.take();
    assert_eq!(
        third.tenants,
        second.tenants.iter().filter(|tenant| tenant.pids == [22]).cloned().collect::<Vec<_>>()
    );
    assert!(third.notes.is_empty(), "a pod that ends is no news of the declaration: {:?}", third.notes);
    machine.tree.remove("sys/fs/cgroup/kubepods.slice");
    let fourth = machine.take();
    assert_eq!(fourth.absent[0].name, "pod-{name}");
}

#[test]
fn version_one_has_cpus_in_one_tree_and_units_in_another() {
    let mut machine = Machine::new(
        "[[tenant]]\nname = \"pods\"\ncgroup = \"kubepods/pod*\"\n[[tenant]]\nname = \"db\"\nunit = \"redis.service\"\n",
    );
    for pid in [30, 31] {
        machine.process(&Process { cpus: "6-7", ..Process::new(pid, "x") });
    }
    machine.cgroup_in("sys/fs/cgroup/cpuset", "kubepods/pod1/c", &[30], Some(("cpuset.effective_cpus", "2")));
    machine.cgroup_in("sys/fs/cgroup/systemd", "system.slice/redis.service", &[31], None);
    assert_eq!(machine.look().0, ["pods [2] [30]", "db [6-7] [31]"]);
}

#[test]
fn unreadable_parts_of_a_cgroup_are_left_out_and_reported() {
    let mut machine = Machine::new("[[tenant]]\nname = \"a\"\ncgroup = \"a\"\n");
    machine.process(&Process::new(40, "x"));
    // Words, a zero, a pid beyond 32 bits, an ended process, and one that is listed twice.
    machine.cgroup("a", &[], Some("nonsense"));
    machine.tree.write("sys/fs/cgroup/a/cgroup.procs", "x\n0\n99999999999\n41\n40\n40\n");
    let (shown, notes) = machine.look();
    assert_eq!(shown, ["a [] [40]"]);
    assert!(
        notes[0].starts_with("tenant a: it has processes but no cores of its own (process 40"),
        "{notes:?}"
    );
    machine.tree.remove("sys/fs/cgroup/a/cgroup.procs");
    std::fs::create_dir(machine.tree.path("sys/fs/cgroup/a/cgroup.procs")).unwrap();
    let (shown, notes) = machine.look();
    assert_eq!(shown, [""; 0]);
    assert!(notes.iter().any(|note| note.contains("Is a directory")), "{notes:?}");
}

#[test]
fn a_look_over_many_cgroups_reads_a_bounded_number() {
    let mut machine = Machine::new("[[tenant]]\nname = \"p\"\neach = true\ncgroup = \"k/**/c*\"\n");
    for pod in 0..2100 {
        machine.cgroup(&format!("k/p{pod}/c"), &[], None);
        machine.tree.write(&format!("sys/fs/cgroup/k/p{pod}/c/d/cgroup.procs"), "");
    }
    let (_, notes) = machine.look();
    assert!(notes[0].starts_with("more than 4096 cgroups may hold tenants"), "{notes:?}");
}
