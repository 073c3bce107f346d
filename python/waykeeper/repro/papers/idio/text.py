"""IDIO: statements of the text about geometry, latencies and queue depths."""

from waykeeper.repro import WEAK, Case, Figure, checks, claim, number, span

FUNCTIONS = ["ipf", "ipfz", "ipfzrx", "dpi", "dpiz", "dpizrx"]
GBPS = 10
LOADS = (10, 20, 26)
"""Loads of DPIzRX in Fig. 3 up to 80 % of what the LLC placement sustains."""


class Text(Figure):
    id = "idio/text"
    title = "Statements of the text"
    assumes = [
        "the Haswell chip replaces Broadwell: its caches have the same geometry",
        (
            "ring depth is the arrival rate times the time in the ring (Little's law), at 10 Gb/s for every function and up "
            "to 26 Gb/s for DPIzRX, with packets of 256 bytes"
        ),
    ]

    def cases(self, quick):
        for name in FUNCTIONS:
            overrides = {"workload.nf.program": name, "nic.nic0.offered_gbps": GBPS, "nic.nic0.placement": "idio"}
            yield Case(name, "idio-fig3", overrides, sets="1/8")
        for gbps in LOADS:
            overrides = {"nic.nic0.placement": "idio", "nic.nic0.offered_gbps": gbps}
            yield Case(("dpizrx", gbps), "idio-fig3", overrides, sets="1/8")

    @claim("CAL20-S2-1", WEAK, "restates sizes and kinds of caches in the chip files")
    def from_broadwell_to_skylake(self, runs):
        from waykeeper import chip

        old, new = chip("e5-2630v3"), chip("gold-6140")
        sizes = [
            chip["llc"]["slices"] * chip["llc"]["sets"] * chip["llc"]["ways"] * 64 / chip["cores"]
            for chip in (old, new)
        ]
        mlcs = [chip["mlc"]["sets"] * chip["mlc"]["ways"] * 64 for chip in (old, new)]
        return checks(
            {
                "LLC per core changes from 2.5 to 1.375 MB": [size / 2**20 for size in sizes] == [2.5, 1.375],
                "the LLC changes from inclusive to non-inclusive": [chip["llc"]["kind"] for chip in (old, new)]
                == ["inclusive", "non-inclusive"],
                "its ways change from 20 to 11": [chip["llc"]["ways"] for chip in (old, new)] == [20, 11],
                "the L2 grows by a factor of four to 1 MB": mlcs[1] == 4 * mlcs[0] == 2**20,
            }
        )

    @claim("CAL20-S2-2", WEAK, "arithmetic of the chip files: two device ways of 20 and of 11")
    def dca_share(self, runs):
        from waykeeper import chip

        shares = []
        for name in ("e5-2630v3", "gold-6140"):
            llc = chip(name)["llc"]
            shares.append(100 * bin(int(llc["dca_ways"], 16)).count("1") / llc["ways"])
        return span(min(shares), max(shares))

    @claim("CAL20-S3-1", WEAK, "arithmetic: the scenario's ring of 1024 entries times 64 bytes")
    def headers_in_the_mlc(self, runs):
        from waykeeper import Scenario

        ring = next(iter(Scenario.load("idio-fig3").to_dict()["nic"]))["ring"]
        return number(ring * 64 / 1024)

    @claim("CAL20-S3-2", WEAK, "restates two latencies of the chip file, which come from this sentence of the paper")
    def latencies(self, runs):
        from waykeeper import chip

        times = chip("idio")["dependent"]
        return span(times["mlc_ns"], times["llc_ns"])

    @claim(
        "CAL20-S3-3",
        WEAK,
        "loads are chosen below what the functions sustain, so only a ring that fills could hold 30; one packet size",
    )
    def rings_are_shallow(self, runs):
        depths = []
        for key in runs:
            nf = runs[key].workload("nf")
            # Both cores' packets; each has a ring.
            depths.append(nf.throughput / 2 * nf.queueing_mean_us * 1e-6)
        return span(min(depths), max(depths))

    @claim("CAL20-S3-4", WEAK, "arithmetic of the chip's cache sizes")
    def twice_the_space(self, runs):
        from waykeeper import chip

        spec = chip("gold-6140")
        llc = spec["llc"]["slices"] * spec["llc"]["sets"] * spec["llc"]["ways"] / spec["cores"]
        mlc = spec["mlc"]["sets"] * spec["mlc"]["ways"]
        return number((llc + mlc) / llc)
