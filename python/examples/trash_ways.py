"""Your own policy in thirty lines: it beats `default` on A4's HPW-heavy mix.

    python python/examples/trash_ways.py

Storage gains nothing from DCA, so the policy turns DCA off for storage. A low-priority workload that mostly misses the
LLC gains nothing from its ways, so all such workloads share two ways, which are neither DCA ways nor inclusive ways.
"""

import waykeeper as wk


class TrashWays(wk.Policy):
    """DCA off for storage; LPWs that miss share two ways."""

    name = "trash-ways"

    def start(self, server, workloads):
        self.everything, self.trash = server.all_ways, 0b11 << 2
        storage = {port: False for workload in workloads if workload.kind == "storage-io" for port in workload.ports}
        return wk.Decision(wk.Plan(dca=storage), state="Watch")

    def step(self, workloads, seen):
        masks, events = {}, []
        for workload in workloads:
            missed = seen.of(workload).llc_miss_ratio
            if workload.high or missed is None or missed < self.settings.get("limit", 0.6):
                continue
            if seen.mask(workload) != self.trash:
                masks[workload] = self.trash
                text = f"{workload.name} is moved to the trash ways: {missed:.0%} of its LLC accesses miss"
                events.append(wk.Event("to-trash", text, workload.name, [("LLC miss ratio", missed)]))
        return wk.Decision(wk.Plan(masks=masks), state="Watch", events=events)


if __name__ == "__main__":
    result = wk.run("a4-hpw-heavy", ["default", TrashWays, "a4"], seeds=3)
    for name, policy in result.policies.items():
        groups = {group: policy.group(group).performance_ratio for group in ("HPW", "LPW")}
        print(f"{name:<12} HPW {groups['HPW']:.2f}  LPW {groups['LPW']:.2f}")
