"""The initial content of images and of memload's buffer, and the changes after a run.

Every word contains its own position, so the content of a block shows where the block came from. This module must not depend on
which program moves blocks.
"""

from __future__ import annotations

import array
import functools
import sys
from pathlib import Path

TAG = 0x5747_0000_0000_0000
"""Upper bits of every word of an image, so that no word is 0 and few look like words of a buffer."""

PIECE_BYTES = 1 << 20

KEPT = 128
"""Number of cached pieces of known content, because images are checked after every run."""

MASK = (1 << 64) - 1


def _bytes(words: array.array[int]) -> bytes:
    if sys.byteorder == "big":
        words.byteswap()
    return words.tobytes()


@functools.lru_cache(maxsize=KEPT)
def known(offset: int, length: int) -> bytes:
    """The known content of these bytes of an image, in whole words. A word is TAG plus its number, little endian."""
    return _bytes(array.array("Q", range(TAG + offset // 8, TAG + (offset + length) // 8)))


def write(path: Path, length: int) -> None:
    """Creates an image of `length` bytes with the known content."""
    with open(path, "wb") as file:
        for offset in range(0, length, PIECE_BYTES):
            file.write(known(offset, min(PIECE_BYTES, length - offset)))


def changed(path: Path, block_bytes: int) -> dict[int, bytes]:
    """The blocks whose content differs from the known one: number -> present content."""
    found = {}
    with open(path, "rb") as file:
        offset = 0
        while piece := file.read(PIECE_BYTES):
            if piece != (wanted := known(offset, len(piece))):
                for start in range(0, len(piece), block_bytes):
                    block = piece[start : start + block_bytes]
                    if block != wanted[start : start + block_bytes]:
                        found[(offset + start) // block_bytes] = block
            offset += len(piece)
    return found


def restore(path: Path, blocks: dict[int, bytes], block_bytes: int) -> None:
    """Restores the known content of these blocks."""
    with open(path, "r+b") as file:
        for number in blocks:
            file.seek(number * block_bytes)
            file.write(known(number * block_bytes, block_bytes))


def blank(path: Path, places: list[int], block_bytes: int) -> None:
    """Fills these blocks with zeros, which no block of an image or buffer contains."""
    with open(path, "r+b") as file:
        for number in places:
            file.seek(number * block_bytes)
            file.write(bytes(block_bytes))


def word(seed: int, number: int) -> int:
    """Word `number` of memload's buffer before a run with this seed: SplitMix64 (Steele et al. 2014) of both, implemented here
    independently of memload.
    """
    z = (seed * 0xD134_2543_DE82_EF95 + number * 0x9E37_79B9_7F4A_7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58_476D_1CE4_E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D0_49BB_1331_11EB) & MASK
    return z ^ (z >> 31)


@functools.cache
def buffer(seed: int, blocks: int, block_bytes: int) -> dict[bytes, int]:
    """The blocks of memload's buffer before a run: content -> number."""
    each = block_bytes // 8
    return {
        _bytes(array.array("Q", (word(seed, number * each + at) for at in range(each)))): number
        for number in range(blocks)
    }
