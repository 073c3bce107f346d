"""A4 Fig. 13a: the HPW-heavy mix under Default, Isolate and the four steps of A4."""

from waykeeper.repro import MEDIUM, STRONG, WEAK, Case, Figure, Panel, Series, checks, claim, number, rising
from waykeeper.repro.bands import EFFECT, FAR, SAME, far_lower, not_higher, not_lower, same

from .common import change
from .mixes import (
    POLICIES,
    STEPS,
    antagonists,
    hits,
    means_panel,
    names,
    performance,
    performance_panel,
    ratio,
)

MIX = "HPW-heavy"
TWO_VALUED = (
    "with the usual draw of RSS two of FastClick's four queues are full under Default, and one of them still is under a4-d; the "
    "other is then offered almost as much as its core can take, so the gain differs by seed"
)
AT_B = (
    "under a4-b the same two of FastClick's queues stay full as under Default, because FFSB-H's data still pass through the DCA "
    "ways; ours gains under a4-c instead"
)
PROFILES = "SPEC programs are replaced by working sets that are fitted to measurements of each program alone"


class Fig13a(Figure):
    id = "a4/fig13a"
    title = "The HPW-heavy mix: performance and LLC hit rate"
    assumes = [
        "SPEC programs, Redis and FFSB are replaced by profiles",
        "hardware prefetchers are off (inferred from Fig. 15a; docs/programs.md)",
        "1024 RX descriptors, as in the artifact's file that contains the target numbers; the paper says 2048",
        (
            "performance is the inverse latency for FastClick and FFSB, and IPC for all others; means are "
            "weighted by cores"
        ),
    ]

    def cases(self, quick):
        yield Case(MIX, "a4-hpw-heavy", policies=POLICIES)

    def panels(self, runs):
        run = runs[MIX]
        workloads = names(run)
        yield performance_panel(run)
        rates = [
            Series(policy, workloads, [_hit_rate(run.policy(policy).workload(name)) for name in workloads])
            for policy in ("default", "a4-d")
        ]
        yield Panel("LLC hit rate", x="", y="%", series=rates)
        yield means_panel(run, {"a4-b": 1.30, "a4-d": 1.51})

    @claim("ISCA25-ABS-1", WEAK, "same finding as ISCA25-F13A-17, from the same function", why=TWO_VALUED)
    @claim(
        "ISCA25-F13A-17",
        MEDIUM,
        "FastClick's hit rates under Default and a4-d were fitted on Fig. 13b; the latency and IPC were not",
        why=TWO_VALUED,
    )
    def hpws_gain(self, runs):
        run = runs[MIX]
        return number(change(performance(run, "a4-d", names(run, high=True))))

    @claim(
        "ISCA25-ABS-2",
        WEAK,
        "arithmetic: the mean of ISCA25-F13A-7 and ISCA25-F13A-8, weighted by cores",
        why=TWO_VALUED,
    )
    def the_first_function_alone(self, runs):
        run = runs[MIX]
        return number(change(performance(run, "a4-b", names(run, high=True))))

    @claim(
        "ISCA25-ABS-3",
        WEAK,
        "arithmetic: the product of ISCA25-F13A-7 and ISCA25-F13A-11, FastClick's gains up to a4-c",
    )
    def the_second_function_helps_network_io(self, runs):
        return number(change(ratio(runs[MIX], "a4-d", "fastclick")))

    @claim(
        "ISCA25-F13A-1",
        MEDIUM,
        "ordering of two policies; the model could show the reverse",
        why="in the model a fixed part of the LLC is more room than most programs of the mix get under Default",
    )
    def isolate_is_slower(self, runs):
        run = runs[MIX]
        slower = [name for name in names(run) if ratio(run, "isolate", name) < 1]
        return checks({"over half of the workloads are slower than under Default": len(slower) > len(names(run)) / 2})

    @claim(
        "ISCA25-F13A-2",
        MEDIUM,
        "a limit and an ordering of profiles; the profiles' hit rates were fitted, but not under a4-a",
        why=PROFILES,
    )
    def the_first_step_alone_brings_little(self, runs):
        run = runs[MIX]
        best = max(names(run, io=False), key=lambda name: ratio(run, "a4-a", name))
        return checks(
            {
                f"the mean gains at most {SAME.text}": not_higher(performance(run, "a4-a", names(run)), 1),
                "of the workloads without I/O x264 gains most": best == "x264",
            }
        )

    @claim(
        "ISCA25-F13A-3",
        MEDIUM,
        "direction of one workload's change; the model could show a gain",
        why="FastClick loses 0 to 3 %; copies spare unread device data in the inclusive ways (docs/scenarios.md, copies_spare_io), "
        "which may protect its packets there; not tested apart",
    )
    def the_first_step_hurts_fastclick(self, runs):
        return checks(
            {
                f"FastClick is over {FAR.text} slower than under Default": far_lower(
                    ratio(runs[MIX], "a4-a", "fastclick"), 1
                )
            }
        )

    @claim(
        "ISCA25-F13A-4",
        WEAK,
        "the drives limit FFSB-H at a fixed queue depth; no cache effect can move its latency by 5 %",
    )
    def storage_is_unaffected_the_first_step(self, runs):
        return checks({f"within {SAME.text}": same(ratio(runs[MIX], "a4-a", "ffsb-heavy"), 1)})

    @claim(
        "ISCA25-F13A-5",
        STRONG,
        "a number between two schemes under which no hit rate of FastClick was fitted",
        why="if its rings stay full, FastClick misses nearly as much under a4-b as under a4-a (one of its two states)",
    )
    def fastclick_hits_more_without_lpws_on_inclusive_ways(self, runs):
        return number(change(hits(runs[MIX], "a4-b", ["fastclick"]), hits(runs[MIX], "a4-a", ["fastclick"])))

    @claim(
        "ISCA25-F13A-6",
        MEDIUM,
        "FastClick has two states by seed; the mean of five seeds shows little more than the direction",
        why=AT_B,
    )
    def fastclick_is_faster_for_it(self, runs):
        return number(change(ratio(runs[MIX], "a4-b", "fastclick", "a4-a")))

    @claim(
        "ISCA25-F13A-7",
        MEDIUM,
        "FastClick has two states by seed; the mean of five seeds shows little more than the direction",
        why=AT_B,
    )
    def io_hpws_gain_at_b(self, runs):
        run = runs[MIX]
        return number(change(performance(run, "a4-b", names(run, high=True, io=True))))

    @claim(
        "ISCA25-F13A-8",
        MEDIUM,
        "the profiles' hit rates under Default were fitted; those under a4-b and the IPC were not",
        why=PROFILES,
    )
    def other_hpws_gain_at_b(self, runs):
        run = runs[MIX]
        return number(change(performance(run, "a4-b", names(run, high=True, io=False))))

    @claim(
        "ISCA25-F13A-9",
        MEDIUM,
        "most hit rates under Default were fitted, on Fig. 13b and 15a; those under a4-b were not",
        why=PROFILES,
    )
    def hpws_hit_more_at_b(self, runs):
        high = names(runs[MIX], high=True)
        return number(change(hits(runs[MIX], "a4-b", high), hits(runs[MIX], "default", high)))

    @claim(
        "ISCA25-F13A-10",
        MEDIUM,
        "FastClick's 99 % in drained rings was fitted on Fig. 13b; its hit rate under a4-b was not",
        why="FastClick's misses disappear under a4-c, where its rings drain; on the chip some remain",
    )
    def fastclick_hits_more_at_c(self, runs):
        return number(change(hits(runs[MIX], "a4-c", ["fastclick"]), hits(runs[MIX], "a4-b", ["fastclick"])))

    @claim(
        "ISCA25-F13A-11",
        MEDIUM,
        "FastClick has two states by seed; the mean of five seeds shows little more than the direction",
        why=TWO_VALUED,
    )
    def fastclick_is_faster_at_c(self, runs):
        return number(change(ratio(runs[MIX], "a4-c", "fastclick", "a4-b")))

    @claim("ISCA25-F13A-12", MEDIUM, "a band for no change, up to 5 %; the model could miss it", why=TWO_VALUED)
    def trash_ways_bring_a_little(self, runs):
        run = runs[MIX]
        return number(change(performance(run, "a4-d", names(run, high=True), "a4-c")))

    @claim(
        "ISCA25-F13A-13",
        MEDIUM,
        "FastClick's hit rates under a4-d were fitted on Fig. 13b; those under a4-c and of the SPEC programs were not",
        why=PROFILES,
    )
    def trash_ways_bring_hits(self, runs):
        high = names(runs[MIX], high=True)
        return number(change(hits(runs[MIX], "a4-d", high), hits(runs[MIX], "a4-c", high)))

    @claim("ISCA25-F13A-14", WEAK, "the finding of ISCA25-F13A-15; the LPWs' hit rates add little", why=PROFILES)
    def all_hit_more(self, runs):
        return number(change(hits(runs[MIX], "a4-d", names(runs[MIX])), hits(runs[MIX], "default", names(runs[MIX]))))

    @claim(
        "ISCA25-F13A-15",
        MEDIUM,
        "FastClick's hit rates under Default and a4-d were fitted on Fig. 13b; those of the SPEC programs were not",
        why=PROFILES,
    )
    def hpws_hit_more(self, runs):
        high = names(runs[MIX], high=True)
        return number(change(hits(runs[MIX], "a4-d", high), hits(runs[MIX], "default", high)))

    @claim(
        "ISCA25-F13A-16", WEAK, "the gain of ISCA25-F13A-17 averaged with the LPWs, which hardly change", why=TWO_VALUED
    )
    def all_gain(self, runs):
        return number(change(performance(runs[MIX], "a4-d", names(runs[MIX]))))

    @claim(
        "ISCA25-F13A-18",
        WEAK,
        "of six LPW cores only omnetpp's can lose; FFSB-H, bwaves and exchange2 do not depend on the LLC",
    )
    def lpws_do_not_pay(self, runs):
        run = runs[MIX]
        return checks(
            {
                f"the mean of the LPWs is at most {SAME.text} below Default's": not_lower(
                    performance(run, "a4-d", names(run, high=False)), 1
                )
            }
        )

    @claim(
        "ISCA25-F13A-19",
        MEDIUM,
        "ordering of miss rates; only that prefetchers are off was inferred from A4's antagonist test (Fig. 15a)",
        why=PROFILES,
    )
    def who_is_an_antagonist(self, runs):
        storage, others = antagonists(runs[MIX], "a4-d")
        return checks(
            {
                "bwaves and lbm, and no other workload, are non-I/O antagonists": others == {"bwaves", "lbm"},
                "FFSB-H is the only storage antagonist": storage == {"ffsb-heavy"},
            }
        )

    @claim(
        "ISCA25-F13A-20",
        MEDIUM,
        "three curves; their ends, Default and a4-d, were fitted on Fig. 13b and 15a, the steps were not",
        why=PROFILES,
    )
    def hit_rates_rise_step_by_step(self, runs):
        run = runs[MIX]
        curves = {name: [hits(run, policy, [name]) for policy in STEPS] for name in ("parest", "xalancbmk", "x264")}
        return checks(
            {
                "parest's hit rate rises over the four steps": rising(curves["parest"], EFFECT),
                "xalancbmk's hit rate rises over the four steps": rising(curves["xalancbmk"], EFFECT),
                f"x264 is within {SAME.text} of its final hit rate with the first step": not_lower(
                    curves["x264"][0], curves["x264"][-1]
                ),
            }
        )


def _hit_rate(workload):
    """LLC hit rate, %; `None` for a workload that never looks a line up there, as exchange2, whose data fit its MLC."""
    ratio = workload.get("llc_hit_ratio")
    return None if ratio is None else 100 * ratio
