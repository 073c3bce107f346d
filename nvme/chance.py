"""Statistical bounds that a program which draws places evenly exceeds once in 10^9 tests.

This module must not depend on what is drawn.
"""

from __future__ import annotations

import functools
import math
from collections import Counter

FALSE_ALARM = 1e-9
"""The probability that one test rejects numbers that were drawn evenly."""


def uneven(values: list[int], below: int) -> str:
    """Why these values cannot have been drawn evenly from 0 to `below` - 1; empty if they can.

    The largest distance between the empirical and the expected distribution is compared with the bound of Dvoretzky, Kiefer and
    Wolfowitz with Massart's constant (1990), which also holds for whole numbers; the number of different values is compared with
    its distribution.
    """
    outside = [value for value in values if not 0 <= value < below]
    if outside:
        return f"{outside[:5]} are outside of 0 to {below - 1}"
    if not values:
        return ""
    count = len(values)
    distance, seen = 0.0, 0
    for value, times in sorted(Counter(values).items()):
        # Just below this value, and at it.
        distance = max(distance, abs(seen / count - value / below))
        seen += times
        distance = max(distance, abs(seen / count - (value + 1) / below))
    bound = math.sqrt(math.log(2 / FALSE_ALARM) / (2 * count))
    if distance > bound:
        limit = f"with {count} draws of {below} it may deviate by {bound:.2f}"
        return f"their distribution deviates by {distance:.2f} from an even one; {limit}"
    different, least = len(set(values)), least_different(count, below)
    if different < least:
        return f"{different} different values in {count} draws of {below}, expected at least {least}"
    return ""


@functools.cache
def least_different(draws: int, below: int) -> int:
    """The least number of different values in this many even draws, except with probability FALSE_ALARM."""
    # chances[n] is the probability of n different values so far.
    chances = [1.0]
    for _ in range(draws):
        more = [0.0] * (len(chances) + 1)
        for number, chance in enumerate(chances):
            more[number] += chance * number / below
            more[number + 1] += chance * (below - number) / below
        chances = more
    total = 0.0
    for number, chance in enumerate(chances):
        total += chance
        if total >= FALSE_ALARM:
            return number
    return 0
