"""IAT Fig. 11: IAT's reaction time when a tenant grows and when devices get more ways."""

from waykeeper.repro import WEAK, Case, Figure, Panel, Series, claim, number

EVENTS_S = (5.0, 15.0)


class Fig11(Figure):
    id = "iat/fig11"
    title = "Container 4's ways over time under IAT"
    assumes = [
        "36 Gb/s on each port, as in the built-in scenario; the time of a decision is the end of its interval of 1 s"
    ]

    def cases(self, quick):
        yield Case("run", "iat-fig11", policies=["iat"])

    def panels(self, runs):
        steps = runs["run"].policy("iat").way_map
        at_s = [moment for step in steps for moment in (step["from_s"], step["to_s"])]
        masks = [int(step["masks"]["container4"], 16) for step in steps for _ in range(2)]
        wide = [int(step["dca_ways"], 16).bit_count() for step in steps for _ in range(2)]
        series = [Series("container 4", at_s, [mask.bit_count() for mask in masks]), Series("DDIO", at_s, wide)]
        yield Panel("ways", x="time, s", y="ways", series=series)

    @claim(
        "ISCA21-F11-1", WEAK, "rule of the policy: it acts once per interval of 1 s, and any change of a mask counts"
    )
    def reaction(self, runs):
        moves = [step["from_s"] for before, step in _pairs(runs) if before["masks"] != step["masks"]]
        delays = []
        for event in EVENTS_S:
            later = [moment - event for moment in moves if moment > event]
            if not later:
                return number(None)
            delays.append(min(later))
        return number(max(delays))


def _pairs(runs):
    steps = runs["run"].policy("iat").way_map
    return zip(steps, steps[1:], strict=False)
