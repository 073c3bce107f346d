"""Checks of a client, and their report: one line per check and a closing line `N passed, N failed, N not possible`.

A check that cannot pass on a virtual host is listed with its reason and with what its failure shows. It is run all the same: a listed
check that passes, or that fails for another reason, fails the client, so that the list stays true. This module must not know a client.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field

MOST_SHOWN = 1500
"""Longest text of a failure that is printed, in characters from its end."""


SLOW = os.environ.get("CLIENTS_SLOW") != "no"
"""Whether the checks that take minutes run (run.py, --quick)."""


class Failed(Exception):
    """What a check found to be wrong."""


@dataclass(frozen=True)
class Cannot:
    """Why checks cannot pass."""

    names: str
    """Regular expression of the checks' whole names."""
    why: str
    """The reason, as in docs/vhost.md."""
    shows: str
    """Regular expression that the text of the failure must contain."""
    here: bool = True
    """Whether the reason holds on this machine."""


@dataclass
class Report:
    """The results of one client."""

    cannot: list[Cannot]
    passed: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    impossible: list[str] = field(default_factory=list)
    matched: set[str] = field(default_factory=set)

    def client(self, name: str, version: str) -> None:
        """Says which program is tested."""
        print(f"{name} {version}", flush=True)

    def result(self, name: str, problem: str | None) -> None:
        """Takes the outcome of a check: no problem, or the text of its failure."""
        reason = next((one for one in self.cannot if one.here and re.fullmatch(one.names, name)), None)
        if reason:
            self.matched.add(reason.names)
        if reason is None and problem is None:
            self.passed.append(name)
            print(f"passed {name}", flush=True)
        elif reason is None:
            self.fail(name, problem or "")
        elif problem is None:
            self.fail(
                name, f'it passes, so this reason no longer holds: "{reason.why}"; remove it here and in docs/vhost.md'
            )
        elif not re.search(reason.shows, problem):
            self.fail(name, f'not for the known reason "{reason.why}", which shows `{reason.shows}`: {problem}')
        else:
            self.impossible.append(name)
            print(f"not possible {name}: {reason.why}", flush=True)

    def fail(self, name: str, problem: str) -> None:
        """Takes a failure that no reason excuses."""
        self.failed.append(name)
        print(f"FAILED {name}: {problem.strip()[-MOST_SHOWN:]}", flush=True)

    def check(self, name: str, act: Callable[[], object]) -> None:
        """Runs a check; it passes if it raises nothing."""
        try:
            act()
        except (Failed, AssertionError, OSError, subprocess.SubprocessError) as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            self.result(name, f"{type(error).__name__} in {where.name}, line {where.lineno}: {error}")
        else:
            self.result(name, None)

    def count(self, checks: int) -> None:
        """Fails unless there were so many checks: a suite that lost tests passes otherwise."""
        ran = len(self.passed) + len(self.failed) + len(self.impossible)
        if ran != checks:
            self.fail("number of checks", f"{ran} ran, {checks} are expected")

    def close(self) -> int:
        """Prints the closing line; returns the exit status."""
        for one in self.cannot:
            if one.here and one.names not in self.matched:
                self.fail(one.names, f'no check has this name, which is listed because "{one.why}"')
        print(f"{len(self.passed)} passed, {len(self.failed)} failed, {len(self.impossible)} not possible", flush=True)
        return 1 if self.failed or not (self.passed or self.impossible) else 0


def main(run: Callable[[Report], None], cannot: list[Cannot]) -> int:
    """Runs the checks of a client and closes the report, also if a part is missing."""
    report = Report(cannot)
    signal.signal(signal.SIGTERM, interrupt)
    try:
        run(report)
    except (Failed, OSError, subprocess.SubprocessError) as error:
        report.fail("preparation", str(error))
        report.matched.update(one.names for one in cannot)
    return report.close()


def interrupt(*_: object) -> None:
    """Acts as Ctrl-C: programs are ended and hosts unmounted."""
    raise KeyboardInterrupt


def expect(text: str, *parts: str) -> None:
    """Fails unless the text contains all parts."""
    for part in parts:
        if part not in text:
            raise Failed(f"`{part}` is not in: {text}")


def lines(text: str) -> list[str]:
    """The lines of an output that have content."""
    return [line for line in text.splitlines() if line.strip()]


if __name__ == "__main__":
    sys.exit("this module has no client")
