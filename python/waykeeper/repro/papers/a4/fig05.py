"""A4 Fig. 5: storage throughput and memory traffic over the block size, with DCA on and off."""

from waykeeper.repro import MEDIUM, WEAK, Case, Figure, Panel, Points, Series, about_equal, checks, claim, knee, rising
from waykeeper.repro.bands import EFFECT, SAME, most, not_lower, raised, same

from .common import memory

BLOCKS = ["4k", "8k", "16k", "32k", "64k", "128k", "256k", "512k", "1m", "2m"]
KIB = [4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048]
LARGE = [64, 128, 256, 512, 1024, 2048]


class Fig05(Figure):
    id = "a4/fig5"
    title = "Storage throughput and memory bandwidth over the block size"
    assumes = ["FIO's mask is 0x300 as in the artifact, whose figure is the target; the text has way[2:3]"]

    def cases(self, quick):
        for text, kib in zip(BLOCKS, KIB, strict=True):
            if quick and kib in (8, 256, 1024):
                continue
            for off in (False, True):
                overrides = {"workload.fio.block": text, "knobs.dca_off": ["raid0"] if off else []}
                yield Case((kib, off), "a4-fig5", overrides)
        for depth in (4, 128):
            yield Case(("depth", depth), "a4-fig5", {"workload.fio.block": "64k", "workload.fio.depth": depth})

    def _blocks(self, runs):
        return sorted({key[0] for key in runs if key[0] != "depth"})

    def _curve(self, runs, off, what):
        return [what(runs[kib, off]) for kib in self._blocks(runs)]

    def panels(self, runs):
        blocks = self._blocks(runs)
        throughput = [
            Series(name, blocks, [y / 1e9 for y in self._curve(runs, off, _throughput)])
            for off, name in ((False, "DCA on"), (True, "DCA off"))
        ]
        yield Panel(
            "storage throughput",
            x="block, KiB",
            y="GB/s",
            series=throughput,
            published=[
                Points("DCA on, paper", KIB, [4, 7.3, 10.4, 10.3, 10.7, 10.7, 10.7, 10.7, 10.8, 10.8]),
                Points("DCA off, paper", KIB, [3.7, 6.2, 8.9, 10.4, 10.6, 10.7, 10.7, 10.7, 10.8, 10.8]),
            ],
            log_x=True,
        )
        memory = [
            Series("read", blocks, [run.system.memory_read_bytes_per_s / 1e9 for run in self._on(runs)]),
            Series("write", blocks, [run.system.memory_write_bytes_per_s / 1e9 for run in self._on(runs)]),
        ]
        yield Panel(
            "memory bandwidth, DCA on",
            x="block, KiB",
            y="GB/s",
            series=memory,
            published=[
                Points("read, paper", KIB, [0.1, 0.2, 0.5, 1.2, 1.2, 1.9, 2.9, 4.7, 8.5, 9.8]),
                Points("write, paper", KIB, [0.1, 0.2, 0.5, 1.3, 5, 8.2, 9.5, 10.3, 11.1, 11.3]),
            ],
            log_x=True,
        )

    def _on(self, runs):
        return [runs[kib, False] for kib in self._blocks(runs)]

    @claim(
        "ISCA25-F5-1",
        WEAK,
        "calibrated: FIO's costs were fitted on this figure's small blocks; the drives limit the large ones",
    )
    def dca_does_not_matter_above_a_knee(self, runs):
        blocks = self._blocks(runs)
        gains = [_throughput(runs[kib, False]) / _throughput(runs[kib, True]) for kib in blocks]
        above = [gain for kib, gain in zip(blocks, gains, strict=True) if kib > 32]
        gained = [kib for kib, gain in zip(blocks, gains, strict=True) if raised(gain, 1)]
        last = max(gained, default=None)
        step = 16.0
        return knee(last, all(same(gain, 1) for gain in above) and last is not None, step)

    @claim(
        "ISCA25-F5-2",
        MEDIUM,
        "a direction; the size of the memory reads was fitted on this figure, that of the writes was not",
    )
    def memory_traffic_grows_with_the_block(self, runs):
        large = [kib for kib in self._blocks(runs) if kib > 32]
        traffic = [memory(runs[kib, False]) for kib in large]
        share = 1e9 * traffic[-1] / _throughput(runs[large[-1], False])
        return checks(
            {
                "memory traffic grows with the block size": rising(traffic, EFFECT),
                "memory traffic is over half of the storage throughput": most(share),
            }
        )

    @claim(
        "ISCA25-F5-3",
        WEAK,
        "calibrated: the rate of the drives and FIO's costs were fitted on this curve",
        why="the artifact's own curve levels off at 16 KB; the text says 128 KB",
    )
    def throughput_levels_off(self, runs):
        blocks = self._blocks(runs)
        curve = self._curve(runs, False, _throughput)
        # From there on no block size brings more.
        level = next(kib for kib, value in zip(blocks, curve, strict=True) if not_lower(value, max(curve)))
        beyond = [value for kib, value in zip(blocks, curve, strict=True) if kib >= 128]
        traffic = [memory(runs[kib, False]) for kib in blocks if kib >= 128]
        return knee(level, about_equal(beyond, SAME) and rising(traffic, EFFECT))

    @claim(
        "ISCA25-F5-4",
        WEAK,
        "arithmetic of buffers: 1 MiB fits the DCA ways, 32 MiB does not fit the LLC; the drives limit the rate",
    )
    def deep_queues_are_like_large_blocks(self, runs):
        shallow, deep = runs["depth", 4], runs["depth", 128]
        return checks(
            {
                f"with a deep queue the part of device writes that leaks to memory is over {EFFECT.points} larger": _leak(
                    deep
                )
                > _leak(shallow) + EFFECT,
                "throughput with a deep queue is not lower": not_lower(_throughput(deep), _throughput(shallow)),
            }
        )


def _throughput(run):
    return run.workload("fio").throughput


def _leak(run):
    """Bytes written to memory per byte that devices wrote."""
    return run.system.memory_write_bytes_per_s / run.system.inbound_bytes_per_s
