"""Random look-ups and updates in a dictionary of 65536 numbers, without end; make-traces.sh records it.

Few modules are loaded, because a recorded program is slow: `_random` is the C part of `random`.
"""

from _random import Random
from itertools import repeat

BITS = 16
ENTRIES = 1 << BITS
table = dict(zip(range(ENTRIES), range(ENTRIES, 2 * ENTRIES)))
keys = list(map(Random(1).getrandbits, repeat(BITS, ENTRIES)))
while True:
    total = sum(map(table.get, keys))
    for key in keys[:4096]:
        table[key] += total
