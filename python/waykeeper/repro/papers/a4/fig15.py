"""A4 Fig. 15: effect of the thresholds and of the revert interval on the HPW-heavy mix."""

from waykeeper.repro import (
    MEDIUM,
    WEAK,
    Case,
    Figure,
    Panel,
    Series,
    absent,
    checks,
    claim,
    lacks,
    number,
    rising,
    span,
)
from waykeeper.repro.bands import EFFECT, SAME, higher, lower, not_higher, not_lower

from .mixes import antagonists, cores, score

T1 = {0.1: "10 %", 0.2: "20 %", 0.4: "40 %"}
T5 = (0.8, 0.9, 0.95)
RAISED = {"dmalk_dca_ms_thr": 0.95, "dmalk_io_tp_thr": 0.95, "dmalk_llc_ms_thr": 0.99}
STABLE = (2, 5, 10)
NEVER = 10_000


class Fig15(Figure):
    id = "a4/fig15"
    title = "Sensitivity to thresholds and to the stable interval"
    assumes = ["the oracle never reverts: its stable interval is longer than the run"]

    def cases(self, quick):
        yield _case("default", {}, "default")
        for value in T1:
            yield _case(("T1", value), {"hpw_llc_hit_thr": value})
        for value in T5:
            yield _case(("T5", value), {"ant_mlc_miss_thr": value, "ant_llc_miss_thr": value})
        for name, value in RAISED.items():
            yield _case(("raised", name), {name: value})
        for stable in STABLE if not quick else (2, 10):
            yield _case(("stable", stable), {"stable_interval_s": stable, "revert_interval_s": 1})
        yield _case(("stable", NEVER), {"stable_interval_s": NEVER})

    def panels(self, runs):
        values = list(T1)
        series = [
            Series(name, [100 * value for value in values], [_mean(runs, runs["T1", value], high) for value in values])
            for name, high in (("HPWs", True), ("LPWs", False))
        ]
        yield Panel("T1 (HPW_LLC_HIT_THR)", x="T1, %", y="performance relative to Default", series=series)
        stable = self._stable(runs)
        yield Panel(
            "stable interval",
            x="stable interval, s",
            y="% of the oracle",
            series=[Series("HPWs", stable, [self._part(runs, value) for value in stable])],
        )

    def _stable(self, runs):
        return sorted(key[1] for key in runs if key[0] == "stable" and key[1] != NEVER)

    def _part(self, runs, stable):
        """Mean performance of all workloads, in per cent of the oracle's."""
        return 100 * _mean(runs, runs["stable", stable], None) / _mean(runs, runs["stable", NEVER], None)

    @claim(
        "ISCA25-F15-1",
        MEDIUM,
        "two directions over a threshold, of which one must be an effect",
        why="HPWs depend on FastClick's two states, on which T1 has little effect; LPWs change as published",
    )
    def a_lower_t1_helps_hpws(self, runs):
        (hpws, lpws), (usual_hpws, usual_lpws) = (
            [_mean(runs, runs["T1", value], group) for group in (True, False)] for value in (min(T1), max(T1))
        )
        return checks(
            {
                f"with the lowest T1 HPWs are at most {SAME.text} worse than with the highest": not_lower(
                    hpws, usual_hpws
                ),
                f"with the lowest T1 LPWs are at most {SAME.text} better than with the highest": not_higher(
                    lpws, usual_lpws
                ),
                f"HPWs gain or LPWs lose over {EFFECT.text}": higher(hpws, usual_hpws) or lower(lpws, usual_lpws),
            }
        )

    @claim(
        "ISCA25-F15-2",
        MEDIUM,
        "a count of few; only that prefetchers are off was inferred from this figure",
        why="the MLC's miss rates of the profiles follow from measured misses of L1 and MLC (docs/programs.md) and are lower "
        "than those that A4 saw",
    )
    def a_lower_t5_finds_more(self, runs):
        found = {value: antagonists(runs["T5", value], "a4")[1] for value in T5}
        return span(
            len(found[0.9]),
            len(found[0.8]),
            holds={
                "A4 finds the same antagonists at 95 % as at 90 %": found[0.95] == found[0.9],
                "and also xalancbmk at 80 %": "xalancbmk" in found[0.8] - found[0.9],
            },
        )

    @claim(
        "ISCA25-F15-3",
        MEDIUM,
        "missing FFSB-H above a threshold is A4's rule; its detection below and the HPWs' loss of over 2 % are free",
        why="FastClick's rings can drain without the detection of FFSB-H; HPWs then do not lose by a high threshold",
    )
    def above_a_critical_value_storage_is_missed(self, runs):
        usual = runs["T5", 0.9]
        found = {"A4 detects FFSB-H with the usual thresholds": "ffsb-heavy" in antagonists(usual, "a4")[0]}
        for name in RAISED:
            run = runs["raised", name]
            found[f"A4 does not detect FFSB-H with a high {name}"] = "ffsb-heavy" not in antagonists(run, "a4")[0]
            found[f"HPWs lose over {EFFECT.text} by a high {name}"] = lower(
                _mean(runs, run, True), _mean(runs, usual, True)
            )
        return checks(found)

    @claim(
        "ISCA25-F15-4",
        WEAK,
        "a revert of one second in eleven can hardly cost the 5 % of the band; tested only if frequent reverts cost over 2 %",
        why="the variation between FastClick's two states is larger than what reverts cost",
    )
    def reverting_costs_little(self, runs):
        often = min(self._stable(runs))
        part = self._part(runs, often)
        if lacks(100 - part):
            return absent(f"even a revert after every {often} s leaves {part:.3g} % of the oracle's performance")
        return number(self._part(runs, 10))

    @claim(
        "ISCA25-F15-5",
        MEDIUM,
        "an ordering of intervals, tested only if frequent reverts cost over 2 %; the model could show the reverse",
        why="the variation between FastClick's two states is larger than what reverts cost",
    )
    def longer_intervals_approach_the_oracle(self, runs):
        often = min(self._stable(runs))
        if lacks(100 - self._part(runs, often)):
            return absent(
                f"a revert after every {often} s leaves {self._part(runs, often):.3g} % of the oracle's performance"
            )
        return checks(
            {
                "performance relative to the oracle grows with the stable interval": rising(
                    [self._part(runs, value) for value in self._stable(runs)], EFFECT
                )
            }
        )


def _case(key, settings, policy="a4"):
    overrides = {f"policy.a4.{name}": value for name, value in settings.items()}
    scenario = _scenario()
    scenario["policy"] = {"a4": {}}
    # A run of its own: the last 30 s, so that reverts lie in the measured stretch.
    return Case(key, scenario, overrides, policies=(policy,), duration_s=70, warmup_s=40)


def _scenario():
    from waykeeper import Scenario

    return Scenario.load("a4-hpw-heavy").to_dict()


def _mean(runs, run, high):
    """Mean performance of HPWs (True), LPWs (False) or all (None) relative to Default, weighted by cores."""
    total, weight = 0.0, 0
    for name, usual in runs["default"].workloads.items():
        if high is None or (usual.priority == "high") == high:
            total += cores(usual) * score(run.workload(name)) / score(usual)
            weight += cores(usual)
    return total / weight
