"""ATC20 s5, s9: the same behaviour on Haswell: 20 ways, eight slices of 2.5 MiB, an inclusive LLC."""

from waykeeper.repro import WEAK, Case, Figure, Panel, Series, checks, claim, falling, rising
from waykeeper.repro.bands import EFFECT

from .common import ddio, forwarders, write_hits

CHIP, WAYS = "e5-2667v3", 20
RINGS = [128, 256, 512, 1024, 2048, 4096]
CORES = [1, 2, 4, 6, 8]
DDIO = [2, 4, 6, 8]


class Haswell(Figure):
    id = "ddio-bench/s9"
    title = "The same sweeps on Haswell"
    assumes = ["the generator sends 98.5 Gb/s", "the paper publishes no number for Haswell: only shapes are compared"]

    def cases(self, quick):
        nic = {"packet_bytes": 1500, "offered_gbps": 98.5}
        for ring in (128, 1024, 4096) if quick else RINGS:
            yield Case(("ring", ring), forwarders(1, nic | {"ring": ring}, CHIP))
        for ways in (2, 4, 8) if quick else DDIO:
            masked = {"knobs": {"dca_ways": ddio(ways, WAYS)}}
            yield Case(("ways", ways), forwarders(1, nic | {"ring": 4096}, CHIP) | masked)
        for count in (4, 8) if quick else CORES:
            yield Case(("cores", count), forwarders(count, nic | {"ring": 256}, CHIP))

    def _curve(self, runs, what, least=0):
        xs = [x for kind, x in runs if kind == what and x >= least]
        return xs, [write_hits(runs[what, x]) for x in xs]

    def panels(self, runs):
        for what, label in (("ring", "RX descriptors"), ("ways", "DDIO ways"), ("cores", "cores")):
            xs, ys = self._curve(runs, what)
            yield Panel(f"PCIe write hit rate over {label}", x=label, y="%", series=[Series("Haswell", xs, ys)])

    @claim("ATC20-S9-1", WEAK, "directions of ATC20-F5-1, F6-1 and F10-2 again, which any model of a cache shows")
    def it_behaves_as_skylake_does(self, runs):
        return checks(
            {
                "write hit rate falls with the number of descriptors": falling(self._curve(runs, "ring")[1], EFFECT),
                "write hit rate rises with the number of DDIO ways": rising(self._curve(runs, "ways")[1], EFFECT),
                "write hit rate falls from four cores on": falling(self._curve(runs, "cores", 4)[1], EFFECT),
            }
        )
