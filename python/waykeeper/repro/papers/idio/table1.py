"""IDIO Table 1: iperf and memcached under four placements."""

from waykeeper.repro import MEDIUM, WEAK, Case, Figure, Panel, Points, Series, absent, checks, claim, lacks, span

PROGRAMS = {"iperf": 1518, "memcached": 128}
PLACEMENTS = ["dram", "llc", "mlc", "idio"]
PUBLISHED = {"iperf": [0.68, 0.66, 1, 0.96], "memcached": [0.87, 0.95, 1, 0.99]}
STACK = "our programs only copy and look up. The kernel's TCP stack, in which the paper's gain arises, is not modelled"


class Table1(Figure):
    id = "idio/table1"
    title = "iperf and memcached under four placements"
    assumes = ["bandwidth and QPS are the highest without loss", "TCP windows and acknowledgements are not modelled"]

    def cases(self, quick):
        for name, size in PROGRAMS.items():
            for placement in PLACEMENTS:
                overrides = {"nic.nic0.placement": placement, "nic.nic0.packet_bytes": size}
                yield Case((name, placement), _scenario(name), overrides, search="zero-loss", sets="1/8")

    def panels(self, runs):
        for name in PROGRAMS:
            yield Panel(
                name,
                x="",
                y="relative to MLC",
                series=[Series("ours", PLACEMENTS, self._row(runs, name))],
                published=[Points("paper", PLACEMENTS, PUBLISHED[name])],
            )

    def _row(self, runs, name):
        return [runs[name, placement].msl_gbps / runs[name, "mlc"].msl_gbps for placement in PLACEMENTS]

    @claim(
        "CAL20-T1-1",
        MEDIUM,
        "one end is 1 by definition; the other, the worse of DRAM and LLC, was not fitted",
        why=STACK,
    )
    def iperf(self, runs):
        row = self._row(runs, "iperf")
        return span(min(row), 1.0, shape=max(row[:2]) < 0.95 and row[3] > max(row[:2]))

    @claim(
        "CAL20-T1-2",
        WEAK,
        "cannot move: the search has steps of 0.4 Gb/s, about as much as memcached sustains in all",
        why=STACK,
    )
    def memcached(self, runs):
        row = self._row(runs, "memcached")
        return span(min(row), 1.0, shape=max(row[:2]) < 1.0 and row[3] >= max(row[:2]))

    @claim(
        "CAL20-T1-3",
        MEDIUM,
        "iperf's end is free; memcached's cannot move, because the search's step is as large as its load",
        why=STACK,
    )
    def idio_is_close_to_static_mlc(self, runs):
        # If static LLC costs nothing against static MLC, the distance of IDIO from static MLC says nothing.
        lost = {name: 100 * (1 - self._row(runs, name)[1]) for name in PROGRAMS}
        paper = {name: 100 * (1 - PUBLISHED[name][1]) for name in PROGRAMS}
        if all(lacks(lost[name], paper[name]) for name in PROGRAMS):
            found = " and ".join(f"{name} {loss:.2g} %" for name, loss in lost.items())
            wanted = " and ".join(f"{loss:.2g} %" for loss in paper.values())
            return absent(f"static LLC costs {found} against static MLC, the paper has {wanted}")
        off = [100 * abs(1 - self._row(runs, name)[3]) for name in PROGRAMS]
        return span(min(off), max(off))

    @claim("CAL20-T1-4", MEDIUM, "ordering of two placements; nothing was fitted on it", why=STACK)
    def llc_is_slightly_below_dram_for_iperf(self, runs):
        dram, llc = self._row(runs, "iperf")[:2]
        return checks({"LLC is below DRAM by less than 10 %": 0.9 * dram < llc < dram})


def _scenario(name):
    from waykeeper import Scenario

    scenario = Scenario.load("idio-msl").to_dict()
    scenario.pop("sweep")
    scenario["workload"] = [{"name": "nf", "program": name, "cores": "0-1"}]
    return scenario
