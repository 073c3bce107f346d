"""Compares a transcript of operations with a recorded one, operation by operation.

Recordings (virtual-host.md 0) consist of lines `> OPERATION`, each followed by its answer. This module must not depend on what
the operations do.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass

UNUSED = "999999"
"""The pid that ops.txt uses because no process has it."""


@dataclass(frozen=True)
class Operation:
    """One operation and the lines of its answer."""

    text: str
    answer: tuple[str, ...]


def parse(text: str) -> list[Operation]:
    """The operations in order. Headings and empty lines before the first operation are dropped."""
    found: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        if line.startswith("> "):
            found.append((line[2:], []))
        elif line.startswith("# "):
            continue
        elif found:
            found[-1][1].append(_anonymous(line))
    return [Operation(operation, tuple(answer)) for operation, answer in found]


def _anonymous(line: str) -> str:
    """Replaces the pid of the asking process, which differs in every run."""
    return re.sub(rf"^(Error while processing task )(?!{UNUSED}$)\d+$", r"\1SELF", line)


def differences(recorded: list[Operation], seen: list[Operation]) -> tuple[int, list[str]]:
    """The number of operations with the recorded answer, and a text for each other one."""
    matcher = difflib.SequenceMatcher(None, [op.text for op in recorded], [op.text for op in seen], autojunk=False)
    good, wrong = 0, []
    for kind, begin, end, other_begin, other_end in matcher.get_opcodes():
        if kind != "equal":
            wrong += [f"> {op.text}\n  recorded, but not run" for op in recorded[begin:end]]
            wrong += [f"> {op.text}\n  run, but not recorded" for op in seen[other_begin:other_end]]
            continue
        for want, have in zip(recorded[begin:end], seen[other_begin:other_end]):
            if want.answer == have.answer:
                good += 1
            else:
                wrong.append(
                    "\n".join(
                        [f"> {want.text}"]
                        + [f"  recorded: {line}" for line in want.answer or ("(nothing)",)]
                        + [f"  seen:     {line}" for line in have.answer or ("(nothing)",)]
                    )
                )
    return good, wrong
