"""A4 Figs. 6 and 8a: DPDK-T's latency beside storage over the block size; DCA on, off, or off for the SSDs only."""

from waykeeper.repro import (
    MEDIUM,
    WEAK,
    Case,
    Figure,
    Panel,
    Points,
    Series,
    about_equal,
    absent,
    checks,
    claim,
    falling,
    knee,
    lacks,
    number,
    span,
)
from waykeeper.repro.bands import EFFECT, FAR, SAME, far_higher, higher, lower, many_times

from .common import SLIDES, change

KIB = [4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048]
OFF = {"on": [], "off": ["nic0", "raid0"], "ssd": ["raid0"]}
LARGE = 64
"""KiB; above the knee of 32 KB (ISCA25-F5-1) the smallest block of the grid."""
QUIET, INCLUSIVE = 3, 9
"""Places of X-Mem's two ways in Fig. 3b: way[3:4], which nothing else uses, and the inclusive ways way[9:10]."""
LATENCY_ON = [338, 362, 590, 613, 597, 600, 595, 592, 585, 580]
"""The paper's mean latency of DPDK-T with DCA on at the block sizes `KIB`, us."""
LATENCY_ALONE = 321
"""... and of DPDK-T without storage (microarchitecture.md 10)."""
TAIL_RISE = (33, 54)
"""By how many per cent the paper's p99 with DCA on is above that without storage: lowered by 18 % to 29 % it is 9 %
above (ISCA25-F8A-2, ISCA25-F8A-4)."""


class Fig06(Figure):
    id = "a4/fig6"
    title = "DPDK-T beside FIO over the block size (with Fig. 8a)"
    assumes = ["masks as in the text: DPDK-T has way[4:5], FIO has way[2:3]", "rings are full for the first 3 ms"]

    def cases(self, quick):
        for kib in (4, 32, 64, 128, 512, 2048) if quick else KIB:
            for name, off in OFF.items():
                overrides = {"workload.fio.block": f"{kib}k", "knobs.dca_off": off}
                yield Case((name, kib), "a4-fig6", overrides)
        scenario = _alone()
        for index in (QUIET, INCLUSIVE):
            yield Case(("x-mem", index), "a4-fig3b", {"workload.x-mem.mask": SLIDES[index]})
        for name in ("on", "off"):
            off = [device for device in OFF[name] if device == "nic0"]
            yield Case(("alone", name), scenario, {"knobs.dca_off": off})

    def _blocks(self, runs):
        return sorted(kib for name, kib in runs if name == "on")

    def panels(self, runs):
        blocks = self._blocks(runs)
        names = {"on": "DCA on", "off": "DCA off", "ssd": "DCA off for the SSDs"}
        latency = [Series(text, blocks, [_latency(runs[name, kib]) for kib in blocks]) for name, text in names.items()]
        yield Panel(
            "DPDK-T's mean latency",
            x="block, KiB",
            y="us",
            series=latency,
            published=[
                Points("on, paper", KIB, LATENCY_ON),
                Points("off, paper", KIB, [918] * 10),
                Points("SSDs off, paper", [16, 32, 64, 128, 256, 512], [326, 343, 328, 330, 340, 329]),
            ],
            log_x=True,
        )
        tails = [Series(text, blocks, [_tail(runs[name, kib]) for kib in blocks]) for name, text in names.items()]
        yield Panel("DPDK-T's p99 latency", x="block, KiB", y="us", series=tails, log_x=True)
        rates = [
            Series(text, blocks, [_storage(runs[name, kib]) / 1e9 for kib in blocks]) for name, text in names.items()
        ]
        yield Panel("FIO's throughput", x="block, KiB", y="GB/s", series=rates, log_x=True)

    @claim(
        "ISCA25-F6-1",
        MEDIUM,
        "two ends of a rise; the packet's cost was fitted on this figure's level, not on the rise",
        why="without storage the model's queues are already longer than the paper's, so latency rises less",
    )
    def storage_raises_latency(self, runs):
        alone = _latency(runs["alone", "on"])
        rises = [change(_latency(runs["on", kib]), alone) for kib in self._blocks(runs)]
        return span(min(rises), max(rises))

    @claim(
        "ISCA25-F6-2",
        MEDIUM,
        "the place of a maximum; the packet's cost was fitted on this figure's level, not on its shape",
        why="the artifact's own points have a plateau from 16 KB on, with the highest at 32 KB; on a plateau noise decides the "
        "highest point",
    )
    def latency_peaks(self, runs):
        blocks = self._blocks(runs)
        curve = {kib: _latency(runs["on", kib]) for kib in blocks}
        peak = max(curve, key=curve.get)
        return knee(peak, higher(curve[peak], curve[blocks[0]]) and curve[peak] > curve[blocks[-1]])

    @claim(
        "ISCA25-F6-3",
        MEDIUM,
        "the direction of a curve from 128 KB to 2 MB, by at least 2 %; the model could show the reverse",
        why="in ours more of the large blocks' lines leave the DCA ways unread, but the latency of DPDK-T does not follow; the "
        "artifact's own curve is flat from 16 KB on",
    )
    def latency_falls_beyond_the_peak(self, runs):
        curve = {kib: _latency(runs["on", kib]) for kib in self._blocks(runs)}
        beyond = [latency for kib, latency in curve.items() if kib >= 128]
        flat = about_equal([latency for kib, latency in curve.items() if kib >= 16], SAME)
        return checks(
            {
                "from 128 KB on latency does not rise": falling(beyond, EFFECT),
                f"at 2 MB it is over {EFFECT.text} below that at 128 KB": lower(beyond[-1], beyond[0]),
            },
            {f"from 16 KB on latency is within {SAME.text} of its mean": flat},
        )

    @claim(
        "ISCA25-F6-4",
        WEAK,
        "the drives limit the throughput of large blocks with DCA on and off; no cache effect can move it",
    )
    def storage_does_not_need_dca(self, runs):
        large = [kib for kib in self._blocks(runs) if kib >= LARGE]
        changes = [change(_storage(runs["off", kib]), _storage(runs["on", kib])) for kib in large]
        return checks(
            {f"FIO's throughput changes by at most {SAME.text}": all(abs(value) <= SAME.percent for value in changes)}
        )

    @claim(
        "ISCA25-F6-5",
        WEAK,
        "same finding as ISCA25-F4-3; the packet's cost was fitted on both latencies",
    )
    def without_dca_latency_is_unacceptable(self, runs):
        pairs = [(_latency(runs["off", kib]), _latency(runs["on", kib])) for kib in self._blocks(runs)]
        alone = _latency(runs["alone", "on"])
        return checks(
            {
                f"latency with DCA off is over {FAR.text} higher at every block size": all(
                    far_higher(off, on) for off, on in pairs
                ),
                "and over twice the latency without storage": all(many_times(off, alone) for off, _ in pairs),
            }
        )

    @claim(
        "ISCA25-F6-6",
        MEDIUM,
        "the leak in the DCA ways is arithmetic of buffers; whether a program in the inclusive ways adds to it is free",
        why="copies in the inclusive ways spare unread device data (microarchitecture.md 4), and a program there evicts few of "
        "these lines before a core reads them",
    )
    def dma_leaks(self, runs):
        small, large = runs["on", self._blocks(runs)[0]], runs["on", 2048]
        return checks(
            {
                "with large blocks, which exceed the DCA ways, over twice as many lines leak as with small ones": (
                    many_times(_leak(large), _leak(small))
                ),
                (
                    f"X-Mem in the inclusive ways, where no device may allocate, makes over {EFFECT.text} more of DPDK-T's lines leak "
                    "than X-Mem in the quiet ways"
                ): higher(_leak(runs["x-mem", INCLUSIVE]), _leak(runs["x-mem", QUIET])),
            }
        )

    def _large(self, runs):
        return [kib for kib in self._blocks(runs) if kib >= LARGE]

    @claim(
        "ISCA25-F8A-1",
        MEDIUM,
        "a number at two ends; the packet's cost was fitted on the latency with DCA on for the SSDs",
        why="few overloaded queues make the latency; how RSS spreads the flows over them differs from seed to seed, and moves "
        "it more than the SSDs do",
    )
    def off_for_ssds_lowers_latency(self, runs):
        changes = [change(_latency(runs["ssd", kib]), _latency(runs["on", kib])) for kib in self._large(runs)]
        return span(min(changes), max(changes))

    @claim(
        "ISCA25-F8A-2",
        MEDIUM,
        "a number at two ends; the packet's cost was fitted on mean latencies, not on p99",
        why="DPDK-T's rings are full without storage too, so its latency is the ring size divided by the service "
        "rate, and storage adds little",
    )
    def off_for_ssds_lowers_the_tail(self, runs):
        changes = [change(_tail(runs["ssd", kib]), _tail(runs["on", kib])) for kib in self._large(runs)]
        return span(min(changes), max(changes))

    @claim(
        "ISCA25-F8A-3",
        WEAK,
        "an upper bound: with DCA off for the SSDs and separate masks only memory load couples the two",
        why="few overloaded queues make the latency; how RSS spreads the flows over them differs from seed to seed, and moves "
        "it more than the SSDs do",
    )
    def it_is_nearly_alone(self, runs):
        published = dict(zip(KIB, LATENCY_ON, strict=True))
        paper = _mean([change(published[kib], LATENCY_ALONE) for kib in self._large(runs)])
        with_dca = _mean(
            [change(_latency(runs["on", kib]), _latency(runs["alone", "on"])) for kib in self._large(runs)]
        )
        if lacks(with_dca, paper):
            return absent(
                f"with DCA on for the SSDs DPDK-T's mean latency is {with_dca:.2g} % above that without storage, "
                f"in the paper {paper:.2g} %"
            )
        rises = [change(_latency(runs["ssd", kib]), _latency(runs["alone", "on"])) for kib in self._large(runs)]
        return number(sum(rises) / len(rises))

    @claim("ISCA25-F8A-4", WEAK, "p99 is the time of a full ring in all of these runs, so it can hardly rise")
    def its_tail_is_nearly_alone(self, runs):
        with_dca = _mean([change(_tail(runs["on", kib]), _tail(runs["alone", "on"])) for kib in self._large(runs)])
        if lacks(with_dca, _mean(TAIL_RISE)):
            return absent(
                f"with DCA on for the SSDs DPDK-T's p99 latency is {with_dca:.2g} % above that without storage, "
                f"in the paper {TAIL_RISE[0]} to {TAIL_RISE[1]} %"
            )
        rises = [change(_tail(runs["ssd", kib]), _tail(runs["alone", "on"])) for kib in self._large(runs)]
        return number(sum(rises) / len(rises))

    @claim("ISCA25-F8A-5", WEAK, "same finding as ISCA25-F6-4: the drives limit the throughput of large blocks")
    def storage_does_not_pay(self, runs):
        changes = [change(_storage(runs["ssd", kib]), _storage(runs["on", kib])) for kib in self._large(runs)]
        return checks(
            {f"FIO's throughput changes by at most {SAME.text}": all(abs(value) <= SAME.percent for value in changes)}
        )


def _alone():
    from waykeeper import Scenario

    scenario = Scenario.load("a4-fig6").to_dict()
    scenario.pop("sweep")
    scenario["workload"] = [workload for workload in scenario["workload"] if workload["name"] == "dpdk-t"]
    return scenario


def _leak(run):
    return run.system.dma_leak_lines_per_s


def _mean(values):
    return sum(values) / len(values)


def _latency(run):
    return run.workload("dpdk-t").latency_mean_us


def _tail(run):
    return run.workload("dpdk-t").latency_p99_us


def _storage(run):
    return run.workload("fio").throughput
