"""What a program that draws places evenly would hardly ever come to: bounds that it breaks once in a thousand million runs.

It knows probabilities. It must not know what is drawn.
"""

from __future__ import annotations

import functools
import math
from collections import Counter

FALSE_ALARM = 1e-9
"""The probability with which one look refuses numbers that were drawn evenly."""


def uneven(values: list[int], below: int) -> str:
    """Why these cannot have been drawn evenly from 0 to `below` - 1; nothing if they can.

    The greatest distance between the shares that were drawn and those expected is held against the bound of Dvoretzky, Kiefer and
    Wolfowitz with Massart's constant (1990), which also holds for whole numbers; and the number of different ones against its
    distribution.
    """
    outside = [value for value in values if not 0 <= value < below]
    if outside:
        return f"{outside[:5]} lie outside of 0 to {below - 1}"
    if not values:
        return ""
    count = len(values)
    distance, seen = 0.0, 0
    for value, times in sorted(Counter(values).items()):
        # Below this number, and with it.
        distance = max(distance, abs(seen / count - value / below))
        seen += times
        distance = max(distance, abs(seen / count - (value + 1) / below))
    bound = math.sqrt(math.log(2 / FALSE_ALARM) / (2 * count))
    if distance > bound:
        return f"their shares lie {distance:.2f} from those of an even draw, {count} of {below} may lie {bound:.2f} off"
    different, least = len(set(values)), least_different(count, below)
    if different < least:
        return f"{different} different ones of {count} draws of {below}, at least {least} were expected"
    return ""


@functools.cache
def least_different(draws: int, below: int) -> int:
    """So many different numbers so many even draws come to, but for FALSE_ALARM of the cases."""
    # chances[n] is the probability of n different ones so far.
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
