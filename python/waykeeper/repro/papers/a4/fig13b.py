"""A4 Fig. 13b: the LPW-heavy mix under Default, Isolate and the four steps of A4."""

from waykeeper.repro import MEDIUM, WEAK, Case, Figure, absent, checks, claim, lacks, number
from waykeeper.repro.bands import SAME, not_higher

from .common import change
from .fig13a import PROFILES, TWO_VALUED
from .mixes import POLICIES, STEPS, antagonists, hits, means_panel, names, performance, performance_panel, ratio

MIX, OTHER = "LPW-heavy", "HPW-heavy"


class Fig13b(Figure):
    id = "a4/fig13b"
    title = "The LPW-heavy mix: performance and LLC hit rate"
    assumes = [
        "as in Fig. 13a",
        "FFSB-L has one drive and FFSB-H three, as in the artifact's Baseline.sh, on separate root ports",
    ]

    def cases(self, quick):
        yield Case(MIX, "a4-lpw-heavy", policies=POLICIES)
        yield Case(OTHER, "a4-hpw-heavy", policies=POLICIES)

    def panels(self, runs):
        yield performance_panel(runs[MIX])
        yield means_panel(runs[MIX], {"a4-d": 1.47})

    @claim(
        "ISCA25-F13B-1",
        MEDIUM,
        "FastClick's hit rates under Default and a4-d were fitted on this figure; those of the SPEC programs were not",
        why=PROFILES,
    )
    def all_hit_more(self, runs):
        workloads = names(runs[MIX])
        return number(change(hits(runs[MIX], "a4-d", workloads), hits(runs[MIX], "default", workloads)))

    @claim(
        "ISCA25-F13B-2",
        MEDIUM,
        "FastClick's hit rates under Default and a4-d were fitted on this figure; those of the SPEC programs were not",
        why=PROFILES,
    )
    def hpws_hit_more(self, runs):
        high = names(runs[MIX], high=True)
        return number(change(hits(runs[MIX], "a4-d", high), hits(runs[MIX], "default", high)))

    @claim(
        "ISCA25-F13B-3",
        WEAK,
        "the gain of ISCA25-F13B-4 averaged over all cores; the HPWs' gain alone reaches the band",
        why=TWO_VALUED,
    )
    def all_gain(self, runs):
        return number(change(performance(runs[MIX], "a4-d", names(runs[MIX]))))

    @claim(
        "ISCA25-F13B-4",
        MEDIUM,
        "FastClick's hit rates under Default and a4-d were fitted on this figure; its latency and the SPEC programs were not",
        why=TWO_VALUED,
    )
    def hpws_gain(self, runs):
        return number(change(performance(runs[MIX], "a4-d", names(runs[MIX], high=True))))

    @claim(
        "ISCA25-F13B-5",
        MEDIUM,
        "order of the steps; the hit rates under a4-d were fitted, those of the first steps were not",
        why=PROFILES,
    )
    def non_io_hpws_saturate_at_once(self, runs):
        run = runs[MIX]
        curve = [performance(run, policy, names(run, high=True, io=False)) for policy in STEPS]
        gain = change(max(curve))
        if lacks(gain):
            return absent(f"HPWs without I/O gain at most {gain:.2g} % under any step of A4, so no gain can saturate")
        return checks({f"later steps add at most {SAME.text}": not_higher(max(curve), curve[0])})

    @claim(
        "ISCA25-F13B-6",
        MEDIUM,
        "ordering of the same programs in two mixes; the model could show the reverse",
        why=PROFILES,
    )
    def lpws_gain_less_than_they_did_as_hpws(self, runs):
        found = {}
        for name in ("x264", "parest"):
            low, high = ratio(runs[MIX], "a4-d", name), ratio(runs[OTHER], "a4-d", name)
            found[f"{name} gains"] = low > 1
            found[f"{name} gains less than it did as an HPW"] = low < high
        return checks(found)

    @claim(
        "ISCA25-F13B-7",
        MEDIUM,
        "one detection by a threshold of A4 that is in force while the paper measures; it could be neither or both",
        why="DCA write misses stay below A4's threshold of 40 % where FastClick's rings drain, and A4 then has no reason to "
        "detect FFSB-H",
    )
    def dca_is_off_for_the_heavy_one_only(self, runs):
        storage, _ = antagonists(runs[MIX], "a4-d")
        from_s = runs[MIX].head["measured_from_s"]
        measured = [piece for piece in runs[MIX].policy("a4-d").way_map if piece["to_s"] > from_s]
        ports = [set(piece.get("dca_off_ports", [])) for piece in measured]
        return checks(
            {
                "in the measured interval FFSB-H is the only storage antagonist": storage == {"ffsb-heavy"},
                "DCA is off for the same one port during the whole interval": len(ports[0]) == 1
                and all(one == ports[0] for one in ports),
            }
        )
