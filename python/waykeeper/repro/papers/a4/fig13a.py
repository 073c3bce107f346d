"""A4 Fig. 13a: the HPW-heavy mix under Default, Isolate and the four steps of A4."""

from waykeeper.repro import Case, Figure, Panel, Series, checks, claim, number, rising

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
    "FastClick's rings either drain or stay full, so the gain of a seed is either large or small, and the mean is "
    "between the two"
)
PROFILES = "SPEC programs are replaced by profiles of a hot set, a warm set and a stream"


class Fig13a(Figure):
    id = "a4/fig13a"
    title = "The HPW-heavy mix: performance and LLC hit rate"
    assumes = [
        "SPEC programs, Redis and FFSB are replaced by profiles",
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
            Series(policy, workloads, [100 * run.policy(policy).workload(name).llc_hit_ratio for name in workloads])
            for policy in ("default", "a4-d")
        ]
        yield Panel("LLC hit rate", x="", y="%", series=rates)
        yield means_panel(run, {"a4-b": 1.30, "a4-d": 1.51})

    @claim("ISCA25-ABS-1", why=TWO_VALUED)
    @claim("ISCA25-F13A-17", why=TWO_VALUED)
    def hpws_gain(self, runs):
        run = runs[MIX]
        return number(change(performance(run, "a4-d", names(run, high=True))))

    @claim("ISCA25-ABS-2", why=TWO_VALUED)
    def the_first_function_alone(self, runs):
        run = runs[MIX]
        return number(change(performance(run, "a4-b", names(run, high=True))))

    @claim("ISCA25-ABS-3")
    def the_second_function_helps_network_io(self, runs):
        return number(change(ratio(runs[MIX], "a4-d", "fastclick")))

    @claim("ISCA25-F13A-1")
    def isolate_is_slower(self, runs):
        run = runs[MIX]
        slower = [name for name in names(run) if ratio(run, "isolate", name) < 1]
        return checks({"over half of the workloads are slower than under Default": len(slower) > len(names(run)) / 2})

    @claim("ISCA25-F13A-2", why=PROFILES)
    def the_first_step_alone_brings_little(self, runs):
        run = runs[MIX]
        best = max(names(run, io=False), key=lambda name: ratio(run, "a4-a", name))
        return checks(
            {
                "the mean gains less than 5 %": performance(run, "a4-a", names(run)) < 1.05,
                "of the workloads without I/O x264 gains most": best == "x264",
            }
        )

    @claim("ISCA25-F13A-3")
    def the_first_step_hurts_fastclick(self, runs):
        return checks({"FastClick is over 3 % slower than under Default": ratio(runs[MIX], "a4-a", "fastclick") < 0.97})

    @claim("ISCA25-F13A-4")
    def storage_is_unaffected_the_first_step(self, runs):
        return checks({"within 5 %": abs(ratio(runs[MIX], "a4-a", "ffsb-heavy") - 1) < 0.05})

    @claim(
        "ISCA25-F13A-5",
        why="if its rings stay full, FastClick misses nearly as much under a4-b as under a4-a (one of its two states)",
    )
    def fastclick_hits_more_without_lpws_on_inclusive_ways(self, runs):
        return number(change(hits(runs[MIX], "a4-b", ["fastclick"]), hits(runs[MIX], "a4-a", ["fastclick"])))

    @claim("ISCA25-F13A-6")
    def fastclick_is_faster_for_it(self, runs):
        return number(change(ratio(runs[MIX], "a4-b", "fastclick", "a4-a")))

    @claim("ISCA25-F13A-7")
    def io_hpws_gain_at_b(self, runs):
        run = runs[MIX]
        return number(change(performance(run, "a4-b", names(run, high=True, io=True))))

    @claim("ISCA25-F13A-8", why=PROFILES)
    def other_hpws_gain_at_b(self, runs):
        run = runs[MIX]
        return number(change(performance(run, "a4-b", names(run, high=True, io=False))))

    @claim("ISCA25-F13A-9", why=PROFILES)
    def hpws_hit_more_at_b(self, runs):
        high = names(runs[MIX], high=True)
        return number(change(hits(runs[MIX], "a4-b", high), hits(runs[MIX], "default", high)))

    @claim(
        "ISCA25-F13A-10", why="FastClick's misses disappear under a4-c, where its rings drain; on the chip some remain"
    )
    def fastclick_hits_more_at_c(self, runs):
        return number(change(hits(runs[MIX], "a4-c", ["fastclick"]), hits(runs[MIX], "a4-b", ["fastclick"])))

    @claim("ISCA25-F13A-11", why=TWO_VALUED)
    def fastclick_is_faster_at_c(self, runs):
        return number(change(ratio(runs[MIX], "a4-c", "fastclick", "a4-b")))

    @claim("ISCA25-F13A-12", why=TWO_VALUED)
    def trash_ways_bring_a_little(self, runs):
        run = runs[MIX]
        return number(change(performance(run, "a4-d", names(run, high=True), "a4-c")))

    @claim("ISCA25-F13A-13", why=PROFILES)
    def trash_ways_bring_hits(self, runs):
        high = names(runs[MIX], high=True)
        return number(change(hits(runs[MIX], "a4-d", high), hits(runs[MIX], "a4-c", high)))

    @claim("ISCA25-F13A-14", why=PROFILES)
    def all_hit_more(self, runs):
        return number(change(hits(runs[MIX], "a4-d", names(runs[MIX])), hits(runs[MIX], "default", names(runs[MIX]))))

    @claim("ISCA25-F13A-15", why=PROFILES)
    def hpws_hit_more(self, runs):
        high = names(runs[MIX], high=True)
        return number(change(hits(runs[MIX], "a4-d", high), hits(runs[MIX], "default", high)))

    @claim("ISCA25-F13A-16", why=TWO_VALUED)
    def all_gain(self, runs):
        return number(change(performance(runs[MIX], "a4-d", names(runs[MIX]))))

    @claim("ISCA25-F13A-18")
    def lpws_do_not_pay(self, runs):
        run = runs[MIX]
        return checks(
            {
                "the mean of the LPWs is at most 3 % below Default's": performance(run, "a4-d", names(run, high=False))
                > 0.97
            }
        )

    @claim("ISCA25-F13A-19", why=PROFILES)
    def who_is_an_antagonist(self, runs):
        storage, others = antagonists(runs[MIX].policy("a4-d").decisions)
        return checks(
            {
                "bwaves and lbm, and no other workload, are non-I/O antagonists": others == {"bwaves", "lbm"},
                "FFSB-H is the only storage antagonist": storage == {"ffsb-heavy"},
            }
        )

    @claim("ISCA25-F13A-20", why=PROFILES)
    def hit_rates_rise_step_by_step(self, runs):
        run = runs[MIX]
        curves = {name: [hits(run, policy, [name]) for policy in STEPS] for name in ("parest", "xalancbmk", "x264")}
        return checks(
            {
                "parest's hit rate rises over the four steps": rising(curves["parest"], 0.02),
                "xalancbmk's hit rate rises over the four steps": rising(curves["xalancbmk"], 0.02),
                "x264 reaches 95 % of its final hit rate with the first step": curves["x264"][0]
                > 0.95 * curves["x264"][-1],
            }
        )
