"""A4: statements of the text about parameters, geometry and device rates, compared with the tool's own tables."""

from waykeeper.repro import WEAK, Case, Figure, checks, claim, number, span
from waykeeper.repro.bands import EFFECT, SAME, hardly_any, nearly_all, same

ORDERS = (10, 1000)
"""One and three orders of magnitude (ISCA25-F5-5)."""
THRESHOLDS = [20, 40, 35, 40, 90]
"""Per cent, in the order of ISCA25-T1-1."""
WARMUP_S = MEASURE_S = 10
"""ISCA25-S6-2."""


class Text(Figure):
    id = "a4/text"
    title = "Statements of the text"
    assumes = ["a T705 is one drive of 14.5 GB/s; the rate is given, and the claim tests whether the model sustains it"]

    def cases(self, quick):
        yield Case("ssd", _ssd(), {"storage.raid0.drives": 1, "storage.raid0.drive_gb_per_s": 14.5})
        for name, ring in (("small", 64), ("large", 4096)):
            yield Case(("writes", name), _writes(ring))
        yield Case(("writes", "wide"), _writes(4096), {"knobs.dca_ways": "0x7f8"})
        # 3.9 MiB, which would fit the LLC if reads were allocated.
        yield Case("reads", _reads(1000))

    @claim(
        "ISCA25-S1-1", WEAK, "restates the scenario's key: the rate of the drive is given, and nothing else limits it"
    )
    def an_ssd_of_116_gbps(self, runs):
        return number(runs["ssd"].workload("fio").throughput * 8 / 1e9)

    @claim("ISCA25-S2-1", WEAK, "restates constants of the chip and of the rules")
    def the_directory(self, runs):
        from waykeeper import chip, rules

        shared = bin(int(chip("gold-6140")["llc"]["inclusive_ways"], 16)).count("1")
        return span(shared, rules()["directory_ways"])

    @claim("ISCA25-S2-3", WEAK, "restates the rule for device writes; the rest is arithmetic of ring sizes")
    def device_writes_update_or_allocate_in_dca_ways(self, runs):
        small, large, wide = (runs["writes", name].system for name in ("small", "large", "wide"))
        return checks(
            {
                "nearly all device writes to a ring that fits are updates": nearly_all(small.dca_write_hit_ratio),
                "that is not so if the ring does not fit two ways": not nearly_all(large.dca_write_hit_ratio),
                f"with more DCA ways the part of updates is over {EFFECT.points} higher": wide.dca_write_hit_ratio
                > large.dca_write_hit_ratio + EFFECT,
            }
        )

    @claim("ISCA25-S2-4", WEAK, "restates the rule that device reads do not allocate")
    def device_reads_do_not_allocate(self, runs):
        system = runs["reads"].system
        return checks(
            {
                "hardly any repeated device read of an uncached line hits": hardly_any(system.dca_read_hit_ratio),
                f"memory serves all of these reads, within {SAME.text}": same(
                    system.memory_read_bytes_per_s, system.outbound_bytes_per_s
                ),
            }
        )

    @claim("ISCA25-F5-5", WEAK, "arithmetic of block and packet sizes in two scenarios")
    def a_storage_transaction_is_large(self, runs):
        from waykeeper import Scenario

        blocks = [_bytes(value) for value in _sweep(Scenario.load("a4-fig5"), "workload.fio.block")]
        packets = _sweep(Scenario.load("a4-fig11"), "nic.nic0.packet_bytes")
        ratios = [blocks[3] / packets[-1], blocks[-1] / packets[-1]]
        return checks(
            {
                f"a block of 32 KB is at least {ORDERS[0]} times a packet": ratios[0] >= ORDERS[0],
                f"a block of 2 MB is at least {ORDERS[1]} times a packet, and no order of magnitude more": ORDERS[1]
                <= ratios[1]
                < ORDERS[0] * ORDERS[1],
            }
        )

    @claim("ISCA25-F7-3", WEAK, "arithmetic: two ways of eleven")
    def two_ways_of_eleven(self, runs):
        from waykeeper import chip

        llc = chip("gold-6140")["llc"]
        return number(100 * bin(int(llc["inclusive_ways"], 16)).count("1") / llc["ways"])

    @claim("ISCA25-T1-1", WEAK, "restates the default settings of the policy")
    def thresholds(self, runs):
        settings = _settings("a4")
        names = ("hpw_llc_hit_thr", "dmalk_dca_ms_thr", "dmalk_io_tp_thr", "dmalk_llc_ms_thr", "ant_llc_miss_thr")
        values = [round(100 * settings[name]) for name in names]
        return span(min(values), max(values)) if values == THRESHOLDS else number(None)

    @claim("ISCA25-S5-1", WEAK, "restates the default settings of the policy and the scenario's interval")
    def timing(self, runs):
        from waykeeper import Scenario

        settings = _settings("a4")
        monitor = Scenario.load("a4-hpw-heavy").check()["interval_s"]
        times = (monitor, *(settings[f"{name}_interval_s"] for name in ("expand", "revert", "stable")))
        return span(min(times), max(times))

    @claim("ISCA25-S6-2", WEAK, "restates keys of the scenario")
    def a_run_lasts(self, runs):
        from waykeeper import Scenario

        about = Scenario.load("a4-hpw-heavy").check()
        if (about["warmup_s"], about["measure_s"]) != (WARMUP_S, MEASURE_S):
            return number(None)
        return number(about["duration_s"])


def _settings(name):
    from waykeeper import policy

    numbers = {}
    for setting in policy(name)["settings"]:
        try:
            numbers[setting["name"]] = float(setting["value"])
        except ValueError:
            continue  # a word or a switch
    return numbers


def _sweep(scenario, key):
    return next(sweep["values"] for sweep in scenario.to_dict()["sweep"] if sweep["key"] == key)


def _bytes(text):
    return int(text[:-1]) * {"k": 2**10, "M": 2**20}[text[-1]]


def _ssd():
    from waykeeper import Scenario

    return Scenario.load("a4-fig5").point().to_dict() | {"sweep": []}


def _writes(ring):
    """Packets that no core reads: only device writes."""
    return {
        "name": "device writes",
        "policies": ["none"],
        "duration_s": 0.06,
        "warmup_s": 0.03,
        "measure_s": 0.03,
        "time_factor": 1,
        "interval_s": 0.01,
        "knobs": {"dca_ways": "0x600"},
        "nic": [{"name": "nic0", "ring": ring}],
        "workload": [{"name": "dpdk-nt", "program": "dpdk-nt", "cores": "0-3", "mask": "0x030"}],
    }


def _reads(blocks):
    """A load generator whose device reads buffers that no core has accessed (nvme-memload, random read)."""
    return {
        "name": "device reads",
        "policies": ["none"],
        "duration_s": 0.06,
        "warmup_s": 0.03,
        "measure_s": 0.03,
        "time_factor": 1,
        "interval_s": 0.01,
        "storage": [{"name": "raid0"}],
        "workload": [
            {
                "name": "load",
                "program": "memload",
                "cores": "0-3",
                "operation": "read",
                "workers": 8,
                "buffer_blocks": blocks,
                "resident": True,
            }
        ],
    }
