"""IAT Fig. 11: IAT's reaction time when a tenant grows and when devices get more ways."""

from waykeeper.repro import WEAK, Case, Figure, Panel, Series, absent, claim, number

GROWS_S, WIDER_S = 5.0, 15.0
"""Container 4's working set grows; devices get two more ways."""


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
        # At the whole seconds, because each seed has steps of its own.
        at_s = list(range(int(steps[-1]["to_s"]) + 1))
        now = [_at(steps, moment) for moment in at_s]
        wide = [int(step["dca_ways"], 16).bit_count() for step in now]
        series = [Series("container 4", at_s, [_mask(step).bit_count() for step in now]), Series("DDIO", at_s, wide)]
        yield Panel("ways", x="time, s", y="ways", series=series)

    @claim(
        "ISCA21-F11-1",
        WEAK,
        "rule of the policy: it acts once per interval of 1 s; only whether it notices both changes at once is free",
        why="IAT compares whole intervals, so a change that falls between two of them is noticed one interval later",
    )
    def reaction(self, runs):
        steps = runs["run"].policy("iat").way_map
        wide = int(steps[-1]["dca_ways"], 16)
        grown = _first(
            [step for step in steps if step["from_s"] <= WIDER_S],
            GROWS_S,
            lambda now, before: now.bit_count() > before.bit_count(),
        )
        if not _mask(_at(steps, WIDER_S)) & wide:
            return absent("container 4 shares no way with the wider DDIO, so IAT has nothing to react to after 15 s")
        apart = _first(steps, WIDER_S, lambda now, before: (now & wide).bit_count() < (before & wide).bit_count())
        if grown is None or apart is None:
            return number(None)
        return number(max(grown, apart))


def _mask(step):
    return int(step["masks"]["container4"], 16)


def _at(steps, at_s):
    return [step for step in steps if step["from_s"] <= at_s][-1]


def _first(steps, event_s, answers):
    """Time from an event to container 4's first mask that answers it, compared with the mask at the event."""
    before = _mask(_at(steps, event_s))
    later = [step["from_s"] - event_s for step in steps if step["from_s"] > event_s and answers(_mask(step), before)]
    return min(later, default=None)
