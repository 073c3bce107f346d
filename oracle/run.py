"""Tests the code of crates/kernel against a real kernel's resctrl in four guests. `make test-oracle` runs it.

This module lists the guests, the steps in them and the expected results. Exit status: 0 all passed, 1 a test failed or could not
run, 2 wrong arguments.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import fcntl
import json
import os
import re
import signal
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from guests import packages, programs, qemu
from oracle import golden, guest, inside, processors, transcript

REPOSITORY = Path(__file__).resolve().parent.parent
CACHE = REPOSITORY / "target/oracle"
PACKAGES = REPOSITORY / "target/guests/packages"
TRANSCRIPTS = REPOSITORY / "crates/vhost/tests/transcripts"
GOLDEN = REPOSITORY / "oracle/golden"

MOST_SHOWN = 20
"""Number of failures printed per guest; its log has all of them."""

GUEST_SECONDS = 240
"""Time limit of a guest; on an idle machine it takes about ten seconds."""

STEPS = [
    inside.Step("ops", "./resctrl_ops /sys/fs/resctrl ops.txt"),
    inside.Step("suite", "./resctrl_suite /sys/fs/resctrl"),
    inside.Step("suite-cdp", "./resctrl_suite /sys/fs/resctrl", mounted="cdp"),
    inside.Step("daemon", "/bin/busybox sh daemon.sh"),
    inside.Step("doctor", "./waykeeper doctor --json"),
    inside.Step("doctor-unmounted", "./waykeeper doctor --json", mounted=None),
]

MAY_SKIP = {"suite": {"code and data have ways of their own"}}
"""Cases that may be skipped, by step: without the option `cdp` there are no L3CODE and L3DATA."""


@dataclass(frozen=True)
class Guest:
    """A processor and a kernel series. The name is that of the recorded transcript."""

    processor: processors.Processor
    series: str

    @property
    def name(self) -> str:
        return f"{self.processor.name}-linux-{self.series}"


GUESTS = [Guest(processor, series) for series in ("6.1", "6.12") for processor in (processors.INTEL, processors.AMD)]


@dataclass
class Verdict:
    """The results of one guest."""

    name: str
    passed: int = 0
    failures: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def fail(self, text: str) -> None:
        self.failures.append(text)

    def __str__(self) -> str:
        return f"{self.name}: {self.passed} passed, {len(self.failures)} failed ({self.seconds:.1f} s)"


def native_cpuid(root: Path, busybox: bytes) -> int:
    """Address of the kernel's function `native_cpuid`. Debian ships no System.map, so the running kernel is asked once."""
    known = CACHE / "symbols" / f"{root.name}.json"
    if not known.exists():
        steps = [inside.Step("symbols", "/bin/busybox grep ' native_cpuid$' /proc/kallsyms", mounted=None)]
        initrd = CACHE / "initrd" / f"symbols-{root.name}"
        initrd.write_bytes(inside.initrd(busybox, {}, {}, steps))
        name = f"symbols-{root.name}"
        run = guest.boot(
            name, packages.kernel_image(root), initrd, processors.INTEL, None, CACHE / "logs", GUEST_SECONDS
        )
        found = re.search(r"^([0-9a-f]{16}) \w native_cpuid$", run.output, re.MULTILINE)
        if not found:
            raise qemu.GuestError(
                f"{root.name}: no native_cpuid in its /proc/kallsyms; see target/oracle/logs/{name}.output"
            )
        known.write_text(json.dumps({"native_cpuid": int(found[1], 16)}))
    return json.loads(known.read_text())["native_cpuid"]


def judge(one: Guest, root: Path, address: int, initrd: Path, transcripts: Path, bless: bool) -> Verdict:
    """Runs a guest and checks its output."""
    verdict = Verdict(one.name)
    try:
        run = guest.boot(
            one.name, packages.kernel_image(root), initrd, one.processor, address, CACHE / "logs", GUEST_SECONDS
        )
    except qemu.GuestError as error:
        verdict.fail(str(error))
        return verdict
    verdict.seconds = run.seconds
    outcomes = inside.outcomes(run.output)
    for step in STEPS:
        outcome = outcomes.get(step.name)
        if outcome is None:
            verdict.fail(f"{step.name}: did not finish; see target/oracle/logs/{one.name}.output")
        elif step.name == "ops":
            judge_operations(verdict, transcripts / f"{one.name}.txt", outcome)
        elif step.name.startswith("suite") or step.name == "daemon":
            judge_suite(verdict, step.name, outcome)
        else:
            judge_doctor(verdict, one, step.name, outcome, bless)
    # A kernel warning means that the guest did not behave like a real machine.
    for line in re.findall(
        r"^.*(?:BUG:|WARNING: CPU|Oops|Call Trace|segfault|unchecked MSR).*$", run.console, re.MULTILINE
    ):
        verdict.fail(f"kernel message: {line.strip()}; see target/oracle/logs/{one.name}.console")
    return verdict


def judge_operations(verdict: Verdict, recording: Path, outcome: inside.Outcome) -> None:
    if outcome.status != 0:
        verdict.fail(f"ops: ended with status {outcome.status}: {outcome.output[-500:]}")
    recorded = transcript.parse(recording.read_text())
    good, wrong = transcript.differences(recorded, transcript.parse(outcome.output))
    verdict.passed += good
    for text in wrong:
        verdict.fail(f"ops: {text}")


def judge_suite(verdict: Verdict, step: str, outcome: inside.Outcome) -> None:
    """Checks lines `ok CASE`, `FAILED CASE: reason` and `skipped CASE: missing feature`; the last is `N passed, N failed`."""
    cases = re.findall(r"^(ok|FAILED|skipped) (.*)$", outcome.output, re.MULTILINE)
    passed = sum(word == "ok" for word, _ in cases)
    failed = [text for word, text in cases if word == "FAILED"]
    verdict.passed += passed
    for text in failed:
        verdict.fail(f"{step}: {text}")
    for text in (text for word, text in cases if word == "skipped"):
        if text.split(":")[0] not in MAY_SKIP.get(step, set()):
            verdict.fail(f"{step}: skipped although this guest has the required features: {text}")
    end = re.search(r"^(\d+) passed, (\d+) failed$", outcome.output, re.MULTILINE)
    if not passed or not end or (int(end[1]), int(end[2])) != (passed, len(failed)):
        verdict.fail(f"{step}: did not finish:\n{outcome.output[-2000:]}")
    elif (outcome.status != 0) != bool(failed):
        verdict.fail(f"{step}: ended with status {outcome.status}")


def judge_doctor(verdict: Verdict, one: Guest, step: str, outcome: inside.Outcome, bless: bool) -> None:
    problem = golden.differences(GOLDEN / f"{one.name}.{step}.json", outcome.output, outcome.status, bless)
    if problem:
        verdict.fail(f"{step}: {problem}")
    else:
        verdict.passed += 1


def prepare(transcripts: Path) -> tuple[dict[str, Path], bytes, dict[str, bytes], dict[str, bytes]]:
    """Kernels by series, busybox, the files of the guests and their libraries: all steps that need the network or cargo."""
    say(packages.ensure_qemu())
    roots = {series: packages.kernel(PACKAGES, series) for series in sorted({one.series for one in GUESTS})}
    say(f"kernels: {', '.join(root.name for root in roots.values())}")
    busybox = packages.busybox(PACKAGES).read_bytes()
    began = time.monotonic()
    cargo = programs.build(REPOSITORY, ["resctrl_ops", "resctrl_suite", "waykeeper"])
    say(f"programs built in {time.monotonic() - began:.0f} s")
    files = dict(cargo.programs)
    files["ops.txt"] = (transcripts / "ops.txt").read_bytes()
    files |= {name: (REPOSITORY / "oracle" / name).read_bytes() for name in ("daemon.sh", "daemon.toml")}
    return roots, busybox, files, cargo.libraries


def show(verdict: Verdict) -> None:
    log = CACHE / "logs" / f"{verdict.name}.failures"
    log.write_text("".join(f"{text}\n" for text in verdict.failures))
    for text in verdict.failures[:MOST_SHOWN]:
        print(f"{verdict.name}: FAILED {text}", flush=True)
    if len(verdict.failures) > MOST_SHOWN:
        print(f"{verdict.name}: {len(verdict.failures) - MOST_SHOWN} more in {log}", flush=True)
    say(str(verdict))


def say(text: str) -> None:
    print(f"oracle: {text}", flush=True)


def interrupt(*_: object) -> None:
    """Acts as Ctrl-C: guests are ended and temporary folders removed."""
    raise KeyboardInterrupt


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python3 -m oracle.run", description="Test crates/kernel against a real kernel's resctrl in QEMU guests."
    )
    names = [one.name for one in GUESTS]
    parser.add_argument(
        "--only", action="append", choices=names, help="run only this guest (may be repeated; default: all)"
    )
    parser.add_argument(
        "--jobs",
        type=int,
        default=min(2, os.cpu_count() or 1),
        help="guests that run in parallel (default: %(default)s)",
    )
    parser.add_argument("--transcripts", type=Path, default=TRANSCRIPTS, help="folder of ops.txt and the recordings")
    parser.add_argument("--bless", action="store_true", help="record doctor's present output as the expected one")
    arguments = parser.parse_args()
    chosen = [one for one in GUESTS if not arguments.only or one.name in arguments.only]
    signal.signal(signal.SIGTERM, interrupt)

    began = time.monotonic()
    for folder in ("logs", "initrd", "symbols"):
        (CACHE / folder).mkdir(parents=True, exist_ok=True)
    lock = open(CACHE / "lock", "w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say(f"error: another run holds the lock {CACHE / 'lock'}; wait until it has ended")
        return 1
    try:
        roots, busybox, files, libraries = prepare(arguments.transcripts)
        addresses = {series: native_cpuid(roots[series], busybox) for series in {one.series for one in chosen}}
        initrds = {}
        for series in addresses:
            modules = {f"{name}.ko": packages.module(roots[series], name) for name in ("msr", "cpuid")}
            initrds[series] = CACHE / "initrd" / series
            initrds[series].write_bytes(inside.initrd(busybox, {**files, **modules}, libraries, STEPS))
    except (packages.PackageError, programs.BuildError, qemu.GuestError, OSError) as error:
        say(f"error: {error}")
        return 1

    verdicts = []
    with concurrent.futures.ThreadPoolExecutor(max(1, arguments.jobs)) as pool:
        try:
            futures = [
                pool.submit(
                    judge,
                    one,
                    roots[one.series],
                    addresses[one.series],
                    initrds[one.series],
                    arguments.transcripts,
                    arguments.bless,
                )
                for one in chosen
            ]
            for future in concurrent.futures.as_completed(futures):
                verdict = future.result()
                show(verdict)
                verdicts.append(verdict)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            qemu.stop_all()
            raise
    passed, failed = sum(one.passed for one in verdicts), sum(len(one.failures) for one in verdicts)
    say(f"{passed} passed, {failed} failed in {len(verdicts)} guests ({time.monotonic() - began:.0f} s)")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
