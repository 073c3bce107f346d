"""Metrics of Figs. 13 to 15 on the two mixes: group means of performance and of LLC hit rates."""

from waykeeper.repro import Panel, Points, Series

POLICIES = ("default", "isolate", "a4-a", "a4-b", "a4-c", "a4-d")
STEPS = POLICIES[2:]
IO = ("fastclick", "ffsb-heavy", "ffsb-light")


def names(run, high=None, io=None):
    """Workloads of a mix: HPWs or LPWs, with I/O or without."""
    found = []
    for name, workload in run.policy("default").workloads.items():
        if high is not None and (workload.priority == "high") != high:
            continue
        if io is not None and (name in IO) != io:
            continue
        found.append(name)
    return found


def cores(workload):
    """Number of cores of a workload, whose list is `0-3` or `4`."""
    first, _, last = workload.cores.partition("-")
    return int(last or first) - int(first) + 1


def performance(run, policy, workloads, over="default"):
    """Mean performance of workloads relative to another policy, weighted by cores; 1 is the same."""
    weights = {name: cores(run.policy("default").workload(name)) for name in workloads}
    return sum(weight * ratio(run, policy, name, over) for name, weight in weights.items()) / sum(weights.values())


def ratio(run, policy, name, over="default"):
    """A workload's performance relative to another policy."""
    return score(run.policy(policy).workload(name)) / score(run.policy(over).workload(name))


def score(workload):
    """A4's performance metric of a workload: the inverse of its latency, or its IPC."""
    return 1 / workload.latency_mean_us if workload.score == "inverse-latency" else workload.ipc


def hits(run, policy, workloads):
    """LLC hit ratio of workloads together: the sum of their hits over the sum of their accesses, as A4's Baseline.sh has it.

    Accesses follow from misses and hit ratio; a workload without a miss does not count.
    """
    accesses = misses = 0.0
    for name in workloads:
        numbers = run.policy(policy).workload(name)
        if numbers.llc_misses_per_s > 0:
            misses += numbers.llc_misses_per_s
            accesses += numbers.llc_misses_per_s / (1 - numbers.llc_hit_ratio)
    return 1 - misses / accesses


def performance_panel(run):
    """Every workload's performance under the schemes."""
    workloads = names(run)
    schemes = POLICIES[1:]
    series = [Series(policy, workloads, [ratio(run, policy, name) for name in workloads]) for policy in schemes]
    return Panel("performance relative to Default", x="", y="ratio", series=series)


def means_panel(run, published):
    """The group means under the schemes; `published` are points of the HPWs' mean by scheme."""
    series = [
        Series(group, POLICIES, [performance(run, policy, names(run, high=high)) for policy in POLICIES])
        for group, high in (("HPWs", True), ("LPWs", False))
    ]
    points = [Points("HPWs, paper", list(published), list(published.values()))]
    return Panel("mean performance", x="", y="ratio", series=series, published=points)


STARTS = {"storage-antagonist": 0, "non-io-antagonist": 1}
ENDS = {"storage-restored": 0, "restored": 1}
"""Actions of A4 by which a workload becomes an antagonist, storage or other, and by which it is one no longer."""


def antagonists(run, policy):
    """Workloads that A4 treats as antagonists at any time of the measured interval: storage ones, and others."""
    from_s = run.head["measured_from_s"]
    now, found = (set(), set()), (set(), set())
    decisions = [decision for decision in run.policy(policy).decisions if "group" in decision]
    for decision in (decision for decision in decisions if decision["at_s"] <= from_s):
        action, group = decision["action"], decision["group"]
        if action in STARTS:
            now[STARTS[action]].add(group)
        elif action in ENDS:
            now[ENDS[action]].discard(group)
    for kind, groups in enumerate(found):
        groups |= now[kind]
    for decision in decisions:
        if decision["at_s"] > from_s and decision["action"] in STARTS:
            found[STARTS[decision["action"]]].add(decision["group"])
    return found
