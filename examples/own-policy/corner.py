"""A complete policy of your own: an LPW whose LLC miss ratio exceeds a limit is moved to two ways that all such LPWs share.

    waykeeper run --policy default --policy ./corner.py

Like every policy it sees one interval of counters after another. It must not use anything else: no clock, no file, no random
number. So the same code runs on the virtual server and, inside `waykeeper daemon`, on a real one.
"""

from waykeeper import Decision, Event, Plan, Policy


class Corner(Policy):
    """LPWs with more LLC misses than hits share two ways"""

    name = "corner"

    def __init__(self, limit=0.5):
        """`limit`: the LLC miss ratio, 0..1, above which an LPW is moved. A scenario sets it in its table [policy.corner]."""
        if not 0 <= limit <= 1:
            raise ValueError(f"limit is {limit}; it must be from 0 to 1")
        self.limit = limit
        self.inside = set()

    def start(self, server, workloads):
        """Called once. All workloads begin with all ways."""
        self.all = server.all_ways
        # To the left of the inclusive ways, which receive the I/O lines that cores read.
        right = (server.inclusive_ways or 0).bit_length()
        self.corner = ((1 << max(server.min_ways, 2)) - 1) << right
        return Decision(self.plan(workloads), state="Watch")

    def step(self, workloads, seen):
        """Called after every interval with its counters."""
        events = []
        for workload in workloads:
            # None without a miss ratio (unsupported, unavailable, no accesses): the workload stays where it is.
            miss = seen.of(workload).llc_miss_ratio
            if workload.high or miss is None or miss <= self.limit or workload.id in self.inside:
                continue
            self.inside.add(workload.id)
            # The timeline shows the text and the number that caused the step.
            cause = (f"LLC miss ratio of {workload.name}", miss)
            events.append(Event("corner", f"{workload.name} is moved to the corner", workload.name, [cause]))
        self.inside &= {workload.id for workload in workloads}
        return Decision(self.plan(workloads), state="Watch", events=events)

    def plan(self, workloads):
        """The masks of all workloads that run."""
        return Plan(masks={w: self.corner if w.id in self.inside else self.all for w in workloads})
