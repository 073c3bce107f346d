"""ATC20 Fig. 9: hit rates and throughput over the work per packet, two cores."""

import waykeeper
from waykeeper.repro import MEDIUM, WEAK, Case, Figure, Panel, Points, Series, about_equal, checks, claim, knee, number
from waykeeper.repro.bands import EFFECT, SAME, far_higher, far_lower, higher, not_lower

from .common import change, link_gbps, read_hits, write_hits
from .text import call_ns

CALLS = [0, 20, 40, 50, 60, 70, 80, 100, 150, 200, 300, 400]
QUICK = [0, 20, 40, 60, 80, 200, 400]


class Fig09(Figure):
    id = "ddio-bench/fig9"
    title = "Hit rates and throughput over the work per packet"
    assumes = [
        "ten calls take 70 cycles at 2.3 GHz",
        "rings are full at the start, as they are in the artifact's two-core runs",
    ]

    def cases(self, quick):
        for calls in QUICK if quick else CALLS:
            yield Case(calls, "ddio-fig9", {"workload.l2fwd.delay_ns": calls * call_ns()})
        for calls in (0, 400):
            work = {"workload.l2fwd.delay_ns": calls * call_ns()}
            yield Case(("off", calls), "ddio-fig9", {**work, "knobs.dca_off": ["nic0"]})

    def _calls(self, runs):
        return [key for key in runs.keys() if isinstance(key, int)]

    def panels(self, runs):
        calls = self._calls(runs)
        yield Panel(
            "hit rates",
            x="calls per packet",
            y="%",
            series=[
                Series("PCIe write", calls, [write_hits(runs[n]) for n in calls]),
                Series("PCIe read", calls, [read_hits(runs[n]) for n in calls]),
            ],
            published=[
                Points("write, artifact (3 GHz)", [0, 60, 140, 160, 200, 400], [26.8, 27.9, 27.9, 62.3, 58.9, 52]),
                Points("read, artifact (3 GHz)", [0, 60, 140, 160, 200, 400], [63.4, 64.5, 68.9, 65.5, 59.6, 53.6]),
            ],
        )
        yield Panel(
            "throughput",
            x="calls per packet",
            y="Gb/s",
            series=[Series("ours", calls, [_gbps(runs[n]) for n in calls])],
            published=[Points("artifact (3 GHz)", [0, 140, 160, 200, 300, 400], [99.1, 99.2, 97.2, 81.7, 58.7, 45.9])],
        )

    @claim("ATC20-S5.2-1", WEAK, "restates the scenario: the work of a call is 7 cycles there")
    def what_ten_calls_cost(self, runs):
        # From the time that two cores take per packet, where they are the bottleneck.
        few, many = (2e9 / runs[n].workload("l2fwd").throughput for n in (200, 400))
        return number((many - few) / 200 * 10 * waykeeper.chip("gold-6140")["ghz"])

    @claim(
        "ATC20-F9-1",
        MEDIUM,
        "the place and the size of the best read hit rate are free; nothing was fitted on them",
        why="read hits depend on how long packets wait in the send queues. The read window, which decides that, was fitted on "
        "throughput at line rate. The artifact's own data have the best read hit rate at 140 calls (at 3.0 GHz)",
    )
    def work_helps_reads_slightly(self, runs):
        calls = self._calls(runs)
        hits = [read_hits(runs[n]) for n in calls]
        best = next(n for n, value in zip(calls, hits, strict=True) if not_lower(value, max(hits)))
        return knee(best, higher(max(hits), hits[0]) and not far_higher(max(hits), hits[0]))

    @claim(
        "ATC20-F9-2",
        WEAK,
        "arithmetic: 248 ns a packet at 3 ns a call; any other cost between 20 and 110 ns is inside the band",
    )
    def cores_become_the_bottleneck(self, runs):
        calls = self._calls(runs)
        fell = far_lower(_gbps(runs[calls[-1]]), _gbps(runs[0]))
        return knee(_last_at_line_rate(runs, calls), fell)

    @claim("ATC20-F9-3", MEDIUM, "two directions, below and above the knee; write hits could fall or stay equal")
    def writes_hit_more_when_less_is_injected(self, runs):
        calls = self._calls(runs)
        knee_at = _last_at_line_rate(runs, calls)
        before = [write_hits(runs[n]) for n in calls if n <= knee_at]
        after = [write_hits(runs[n]) for n in calls if n > knee_at]
        return checks(
            {
                f"below the knee the write hit rate is within {SAME.text} of its mean": about_equal(before, SAME),
                f"above the knee the write hit rate is over {EFFECT.text} higher": higher(
                    min(after, default=0), max(before)
                ),
            }
        )

    @claim(
        "ATC20-F9-4",
        MEDIUM,
        "ordering of two losses; the model could show either order",
        why="with two ways the send queue limits the model's forwarder, and DDIO hardly changes its throughput; "
        "with eight ways DDIO does",
    )
    def ddio_matters_most_to_forwarders(self, runs):
        idle, busy = (abs(change(_gbps(runs[n]), _gbps(runs["off", n]))) for n in (0, 400))
        return checks(
            {
                "switching DDIO off costs more throughput without additional work than with 400 calls per packet": idle
                > busy
            }
        )


def _gbps(run):
    return link_gbps(run.workload("l2fwd").throughput, 1500)


def _last_at_line_rate(runs, calls):
    """The largest number of calls at which throughput is the same as without work."""
    return max((n for n in calls if not_lower(_gbps(runs[n]), _gbps(runs[0]))), default=None)
