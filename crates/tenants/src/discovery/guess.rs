//! Guesses what a candidate does and whether it is to be protected, each with a reason: what the operator has set
//! in the kernel or in Kubernetes first, then names, then what is known about common programs.
//!
//! Must not read files.

use super::Guess;
use super::walk::{Candidate, Holds, PodClass};
use waykeeper_host::{Priority, WorkloadKind};

/// `cpu.weight` of a cgroup without a setting (linux:Documentation/admin-guide/cgroup-v2.rst, 5-1-1).
const USUAL_WEIGHT: u64 = 100;

/// Words in the name of a slice or unit. Assumption: this is what operators mean by them.
const WORDS: [(&str, Priority); 14] = [
    ("batch", Priority::Low),
    ("background", Priority::Low),
    ("besteffort", Priority::Low),
    ("best-effort", Priority::Low),
    ("low", Priority::Low),
    ("backup", Priority::Low),
    ("offline", Priority::Low),
    ("latency", Priority::High),
    ("critical", Priority::High),
    ("realtime", Priority::High),
    ("high", Priority::High),
    ("online", Priority::High),
    ("prod", Priority::High),
    ("production", Priority::High),
];

/// A program, what it does if that is always the same, its priority, and why.
type Program = (&'static str, Option<WorkloadKind>, Priority, &'static str);

const PACKETS: &str = "it forwards packets, which are lost if it is late";
const ANSWERS: &str = "it answers requests, and clients wait";
const BLOCKS: &str = "it serves blocks, and clients wait";
const BATCH: &str = "it works in batches; its end matters, not each moment";
const LOAD: &str = "it makes load for tests";

/// Common programs by the start of their name. Assumption: what these programs are usually run for; `redis` may have
/// only local clients, so nothing says that it uses a network card.
const PROGRAMS: [Program; 47] = [
    ("fastclick", Some(WorkloadKind::NetworkIo), Priority::High, PACKETS),
    ("click", Some(WorkloadKind::NetworkIo), Priority::High, PACKETS),
    ("dpdk", Some(WorkloadKind::NetworkIo), Priority::High, PACKETS),
    ("testpmd", Some(WorkloadKind::NetworkIo), Priority::High, PACKETS),
    ("l2fwd", Some(WorkloadKind::NetworkIo), Priority::High, PACKETS),
    ("l3fwd", Some(WorkloadKind::NetworkIo), Priority::High, PACKETS),
    ("vpp", Some(WorkloadKind::NetworkIo), Priority::High, PACKETS),
    ("ovs-vswitchd", Some(WorkloadKind::NetworkIo), Priority::High, PACKETS),
    ("nginx", Some(WorkloadKind::NetworkIo), Priority::High, ANSWERS),
    ("haproxy", Some(WorkloadKind::NetworkIo), Priority::High, ANSWERS),
    ("envoy", Some(WorkloadKind::NetworkIo), Priority::High, ANSWERS),
    ("memcached", Some(WorkloadKind::NetworkIo), Priority::High, ANSWERS),
    ("redis-server", None, Priority::High, ANSWERS),
    ("valkey-server", None, Priority::High, ANSWERS),
    ("postgres", Some(WorkloadKind::StorageIo), Priority::High, ANSWERS),
    ("mysqld", Some(WorkloadKind::StorageIo), Priority::High, ANSWERS),
    ("mariadbd", Some(WorkloadKind::StorageIo), Priority::High, ANSWERS),
    ("mongod", Some(WorkloadKind::StorageIo), Priority::High, ANSWERS),
    ("clickhouse", Some(WorkloadKind::StorageIo), Priority::High, ANSWERS),
    ("etcd", Some(WorkloadKind::StorageIo), Priority::High, ANSWERS),
    ("ceph-osd", Some(WorkloadKind::StorageIo), Priority::High, BLOCKS),
    ("spdk", Some(WorkloadKind::StorageIo), Priority::High, BLOCKS),
    ("nvmf_tgt", Some(WorkloadKind::StorageIo), Priority::High, BLOCKS),
    ("fio", Some(WorkloadKind::StorageIo), Priority::Low, LOAD),
    ("ffsb", Some(WorkloadKind::StorageIo), Priority::Low, LOAD),
    ("stress", Some(WorkloadKind::NonIo), Priority::Low, LOAD),
    ("x-mem", Some(WorkloadKind::NonIo), Priority::Low, LOAD),
    ("sysbench", None, Priority::Low, LOAD),
    ("redis-benchmark", None, Priority::Low, LOAD),
    ("spec", Some(WorkloadKind::NonIo), Priority::Low, BATCH),
    ("ffmpeg", Some(WorkloadKind::NonIo), Priority::Low, BATCH),
    ("cc1", Some(WorkloadKind::NonIo), Priority::Low, BATCH),
    ("rustc", Some(WorkloadKind::NonIo), Priority::Low, BATCH),
    ("make", Some(WorkloadKind::NonIo), Priority::Low, BATCH),
    ("ninja", Some(WorkloadKind::NonIo), Priority::Low, BATCH),
    ("zstd", None, Priority::Low, BATCH),
    ("gzip", None, Priority::Low, BATCH),
    ("xz", None, Priority::Low, BATCH),
    ("tar", Some(WorkloadKind::StorageIo), Priority::Low, BATCH),
    ("rsync", Some(WorkloadKind::StorageIo), Priority::Low, BATCH),
    ("restic", Some(WorkloadKind::StorageIo), Priority::Low, BATCH),
    ("borg", Some(WorkloadKind::StorageIo), Priority::Low, BATCH),
    ("clamscan", Some(WorkloadKind::StorageIo), Priority::Low, BATCH),
    ("updatedb", Some(WorkloadKind::StorageIo), Priority::Low, BATCH),
    ("spark", None, Priority::Low, BATCH),
    ("hadoop", Some(WorkloadKind::StorageIo), Priority::Low, BATCH),
    ("slurmstepd", None, Priority::Low, BATCH),
];

/// What is known about a candidate's programs; the longest name first, so that `redis-benchmark` is not `redis`.
fn program(candidate: &Candidate) -> Option<(&str, &'static Program)> {
    candidate.programs.iter().find_map(|name| {
        let known = PROGRAMS.iter().filter(|(known, ..)| is_named(name, known));
        Some((name.as_str(), known.max_by_key(|(known, ..)| known.len())?))
    })
}

/// Whether a program has this name, or one that begins with it: `dpdk-t`, `ffsb-heavy`, `stress-ng`.
fn is_named(name: &str, known: &str) -> bool {
    let short = known.len() <= 3;
    name.strip_prefix(known)
        .is_some_and(|rest| rest.is_empty() || !short || !rest.starts_with(|c: char| c.is_ascii_alphabetic()))
}

/// What it does, if something says so.
pub(super) fn kind(candidate: &Candidate) -> Option<Guess<WorkloadKind>> {
    let (name, (_, kind, ..)) = program(candidate)?;
    let kind = (*kind)?;
    let does = match kind {
        WorkloadKind::NonIo => "computes",
        WorkloadKind::NetworkIo => "uses the network",
        WorkloadKind::StorageIo => "uses storage",
    };
    Some(Guess::new(kind, format!("`{name}` usually {does}")))
}

/// Its priority.
pub(super) fn priority(candidate: &Candidate) -> Guess<Priority> {
    set_by_operator(candidate)
        .or_else(|| named(candidate))
        .or_else(|| {
            let (name, (_, _, priority, why)) = program(candidate)?;
            Some(Guess::new(*priority, format!("`{name}`: {why}")))
        })
        .or_else(|| {
            let polls = !candidate.open.is_empty() && !candidate.cores.is_empty();
            polls.then(|| Guess::new(Priority::High, "it has CPUs of its own and drives a device itself"))
        })
        .unwrap_or_else(|| Guess::new(Priority::Low, "nothing says that it must be protected"))
}

/// What the operator has set in the kernel or in Kubernetes.
fn set_by_operator(candidate: &Candidate) -> Option<Guess<Priority>> {
    if let Holds::Pods(class) = candidate.holds {
        return Some(match class {
            PodClass::Guaranteed => Guess::new(Priority::High, "pods with guaranteed resources (QoS class)"),
            PodClass::Burstable => {
                Guess::new(Priority::Low, "pods that may exceed their requests (QoS class)")
            }
            PodClass::BestEffort => Guess::new(Priority::Low, "pods without requests (QoS class)"),
        });
    }
    if candidate.is_idle {
        return Some(Guess::new(Priority::Low, "its cgroup runs only when CPUs are idle (cpu.idle)"));
    }
    match candidate.weight {
        Some(weight) if weight > USUAL_WEIGHT => {
            return Some(Guess::new(
                Priority::High,
                format!("its CPU weight is {weight}, above {USUAL_WEIGHT}"),
            ));
        }
        Some(weight) if weight < USUAL_WEIGHT => {
            return Some(Guess::new(
                Priority::Low,
                format!("its CPU weight is {weight}, below {USUAL_WEIGHT}"),
            ));
        }
        _ => {}
    }
    match candidate.nice {
        Some(nice) if nice > 0 => Some(Guess::new(Priority::Low, format!("its processes have nice {nice}"))),
        Some(nice) if nice < 0 => Some(Guess::new(Priority::High, format!("its processes have nice {nice}"))),
        _ => None,
    }
}

/// What the names of its slice and of itself say.
fn named(candidate: &Candidate) -> Option<Guess<Priority>> {
    let slice = if let Holds::Unit(slice) = &candidate.holds { slice.as_str() } else { "" };
    for name in [slice, &candidate.name] {
        let lower = name.to_ascii_lowercase();
        let parts: Vec<&str> = lower.split(|c: char| !c.is_ascii_alphabetic()).collect();
        let said = WORDS
            .iter()
            .find(|(word, _)| parts.contains(word) || (word.contains('-') && lower.contains(word)));
        if let Some((word, priority)) = said {
            return Some(Guess::new(*priority, format!("`{name}` has the word `{word}`")));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use waykeeper_units::CoreList;

    fn candidate(program: &str) -> Candidate {
        Candidate {
            name: "x".to_owned(),
            holds: Holds::Unit("tenants.slice".to_owned()),
            selector: ("unit", "x.service".to_owned()),
            groups: 0,
            processes: 1,
            programs: vec![program.to_owned()],
            cores: CoreList::default(),
            busy_cpus: None,
            nice: Some(0),
            weight: None,
            is_idle: false,
            pids: vec![1],
            open: Vec::new(),
        }
    }

    #[test]
    fn what_the_operator_has_set_comes_before_names_and_programs() {
        let mut own = candidate("nginx");
        assert_eq!(priority(&own).value, Priority::High);
        own.name = "batch-nginx".to_owned();
        assert_eq!(priority(&own), Guess::new(Priority::Low, "`batch-nginx` has the word `batch`"));
        own.nice = Some(-5);
        assert_eq!(priority(&own), Guess::new(Priority::High, "its processes have nice -5"));
        own.weight = Some(20);
        assert_eq!(priority(&own), Guess::new(Priority::Low, "its CPU weight is 20, below 100"));
        own.holds = Holds::Pods(PodClass::Guaranteed);
        assert_eq!(priority(&own).value, Priority::High);
        let unknown = candidate("blowfish");
        assert_eq!(priority(&unknown), Guess::new(Priority::Low, "nothing says that it must be protected"));
        let polls = Candidate { cores: "1".parse().unwrap(), open: vec!["x".to_owned()], ..unknown };
        assert_eq!(priority(&polls).value, Priority::High);
    }

    #[test]
    fn programs_are_known_by_the_start_of_their_name() {
        for (name, wanted) in [
            ("ffsb-heavy", Some("ffsb")),
            ("dpdk-t", Some("dpdk")),
            ("redis-benchmark", Some("redis-benchmark")),
            ("redis-server", Some("redis-server")),
            ("redis-client", None),
            ("vpp_main", Some("vpp")),
            ("tar", Some("tar")),
            ("target", None),
            ("fiord", None),
        ] {
            let own = candidate(name);
            assert_eq!(program(&own).map(|(_, (known, ..))| *known), wanted, "{name}");
        }
    }
}
