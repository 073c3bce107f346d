"""Messages of protobuf as bytes, as far as the container runtime's interface needs them: numbers, texts, messages, maps.

A message is written as a dictionary from field numbers to values, and read as one from field numbers to lists. So no compiler and no
generated code is needed. This module must not know a message.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

Value: TypeAlias = "int | str | bytes | list[Value] | Mapping[int, Value]"

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""Wire types of the encoding (protobuf.dev, Encoding)."""


def varint(number: int) -> bytes:
    """A number of seven bits a byte, the lowest first."""
    out = bytearray()
    while True:
        low, number = number & 0x7F, number >> 7
        out.append(low | (0x80 if number else 0))
        if not number:
            return bytes(out)


def message(fields: Mapping[int, Value]) -> bytes:
    """The bytes of a message. A list is a repeated field; values that are absent are left out by the caller."""
    return b"".join(_field(number, value) for number, value in fields.items())


def texts(pairs: Mapping[str, str]) -> list[Value]:
    """The entries of a map from texts to texts."""
    return [{1: key, 2: value} for key, value in pairs.items()]


def fields(data: bytes) -> dict[int, list[int | bytes]]:
    """The fields of a message: numbers, or bytes for texts and messages."""
    found: dict[int, list[int | bytes]] = {}
    at = 0
    while at < len(data):
        key, at = _read_varint(data, at)
        number, kind = key >> 3, key & 7
        value: int | bytes
        if kind == VARINT:
            value, at = _read_varint(data, at)
        elif kind == BYTES:
            length, at = _read_varint(data, at)
            value, at = data[at : at + length], at + length
        elif kind in (FIXED64, FIXED32):
            length = 8 if kind == FIXED64 else 4
            value, at = data[at : at + length], at + length
        else:
            raise ValueError(f"field {number} has wire type {kind}")
        found.setdefault(number, []).append(value)
    return found


def text(data: bytes, number: int) -> str:
    """A text of a message; empty if it is absent."""
    (*_, last) = fields(data).get(number, [b""])
    return last.decode() if isinstance(last, bytes) else str(last)


def _field(number: int, value: Value) -> bytes:
    if isinstance(value, list):
        return b"".join(_field(number, one) for one in value)
    if isinstance(value, int):
        return varint(number << 3 | VARINT) + varint(value)
    if isinstance(value, Mapping):
        value = message(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | BYTES) + varint(len(data)) + data


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not byte & 0x80:
            return number, at
