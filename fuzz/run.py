"""Runs the fuzzing targets and prints a table. `make fuzz HOURS=n` runs it.

A time is shared: each target runs for a slice, one process per job, round after round. Inputs that reach new code are kept in
`target/fuzz/corpus`; the seeds in `fuzz/corpus` are read and not changed. An input that is a finding lies in
`target/fuzz/findings/TARGET`.

Exit status: 0 no finding, 1 a finding, 2 wrong arguments or a build that failed.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

FUZZ = Path(__file__).resolve().parent
REPOSITORY = FUZZ.parent
PROGRAMS = FUZZ / "target/x86_64-unknown-linux-gnu/release"
STATE = REPOSITORY / "target/fuzz"

MOST_MIB = 512
"""An input that needs more memory is a finding (issue 21). The targets' allocator has the same limit."""

MOST_CPU_S = 5
"""An input that takes more CPU time is a finding (issue 21)."""

MOST_WALL_S = 60
"""libFuzzer ends a target after this time: it measures wall time, and other programs use the machine too."""

MOST_BYTES = 16 << 10
"""The longest input that is made."""

SHORT = {"values": 128, "schemata": 512, "glob": 512, "kernel_text": 1024}
"""The longest input of targets whose formats have words or a few lines: shorter inputs are read more often."""

MOST_FINDINGS = 20
"""A target with more findings is not run again."""

SLICE_S = 60
"""The longest slice of a long run: after each the table is written."""


@dataclass
class Figures:
    """What is known of a target."""

    executions: int = 0
    cpu_s: float = 0.0
    """CPU time of the runs; on a machine that others use too, wall time says little."""
    edges: int = 0
    features: int = 0
    inputs: int = 0
    peak_mib: int = 0
    findings: dict[str, str] = field(default_factory=dict)
    """What was found, by the file of its input."""


def targets() -> list[str]:
    """The names of all targets."""
    return sorted(path.stem for path in (FUZZ / "src/bin").glob("*.rs"))


def build(cargo: str) -> None:
    """Builds the targets; the flags are in `.cargo/config.toml`."""
    if not shutil.which("c++"):
        print("no C++ compiler (c++), which libFuzzer needs; on Debian: apt-get install g++", file=sys.stderr)
        sys.exit(2)
    command = [cargo, "build", "--release", "--locked"]
    if subprocess.run(command, cwd=FUZZ).returncode != 0:
        sys.exit(2)


def counted(log: str, figures: Figures) -> None:
    """Adds what libFuzzer's log of one run says."""
    stat = {name: int(value) for name, value in re.findall(r"^stat::(\w+):\s*(\d+)", log, re.M)}
    figures.executions += stat.get("number_of_executed_units", 0)
    figures.peak_mib = max(figures.peak_mib, stat.get("peak_rss_mb", 0))
    lines = re.findall(r"^#\d+\s.*\bcov: (\d+) ft: (\d+) corp: (\d+)/", log, re.M)
    if lines:
        edges, features, inputs = (int(number) for number in lines[-1])
        figures.edges, figures.features, figures.inputs = max(figures.edges, edges), max(figures.features, features), inputs


def reason(log: str) -> str:
    """Why a run ended early, in one line."""
    panic = re.search(r"panicked at ([^\n]*?):?\n([^\n]*)", log)
    if panic:
        return f"{panic[1]}: {panic[2]}"
    for known in (r"memory allocation of \d+ bytes failed", r"ERROR: libFuzzer: [^\n]*"):
        if found := re.search(known, log):
            return found[0]
    return "ended: " + (log.strip().splitlines() or ["without a message"])[-1]


def command(target: str, corpora: list[Path], options: list[str]) -> list[str]:
    """The command line of a target."""
    longest = SHORT.get(target, MOST_BYTES)
    words = [str(PROGRAMS / target), f"-rss_limit_mb={MOST_MIB}", f"-timeout={MOST_WALL_S}", f"-max_len={longest}"]
    dictionary = FUZZ / "dictionaries" / f"{target}.dict"
    if dictionary.exists():
        words.append(f"-dict={dictionary}")
    return [*words, *options, *(str(corpus) for corpus in corpora)]


def run(words: list[str]) -> tuple[int, str, float]:
    """Runs a target in an empty folder, so that no input names a file of the repository: exit status, log, CPU seconds."""
    with tempfile.TemporaryDirectory(prefix="waykeeper-fuzz-") as empty:
        # A panic's message is what identifies a finding; a backtrace would take its place.
        environment = {**os.environ, "RUST_BACKTRACE": "0"}
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
        process = subprocess.Popen(words, cwd=empty, env=environment, **quiet)
        log = process.stderr.read().decode(errors="replace")
        process.stderr.close()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, log, usage.ru_utime + usage.ru_stime


def cpu_seconds(target: str, file: Path) -> float:
    """CPU time of one input alone, without the start of the program."""
    with tempfile.NamedTemporaryFile() as nothing:
        return run(command(target, [file], []))[2] - run(command(target, [Path(nothing.name)], []))[2]


def run_once(target: str, own: Path, options: list[str], figures: Figures) -> bool:
    """Runs a target until its end or a finding, and adds to its figures; whether it may be run again."""
    seeds, found = FUZZ / "corpus" / target, STATE / "findings" / target
    for folder in (own, found):
        folder.mkdir(parents=True, exist_ok=True)
    options = [*options, "-print_final_stats=1", f"-report_slow_units={MOST_CPU_S}", f"-artifact_prefix={found}/"]
    status, log, cpu = run(command(target, [own, *([seeds] if seeds.is_dir() else [])], options))
    figures.cpu_s += cpu
    counted(log, figures)
    for slow in list(found.glob("slow-unit-*")) + list(found.glob("timeout-*")):
        if slow.name not in figures.findings:
            took = cpu_seconds(target, slow)
            if took > MOST_CPU_S:
                figures.findings[slow.name] = f"{took:.1f} s of CPU time"
            else:
                slow.unlink()
    if status == 0:
        return False
    written = re.findall(rf"Test unit written to {re.escape(str(found))}/(\S+)", log)
    names = [name for name in written if not name.startswith(("slow-unit-", "timeout-"))]
    if names:
        figures.findings[names[-1]] = reason(log)
    elif not written:
        figures.findings.setdefault("(no input)", reason(log))
    return bool(written)


def slice_of(target: str, seconds: float, figures: Figures) -> None:
    """Runs a target for a time, and again after each finding until the time is over."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0.5 and len(figures.findings) < MOST_FINDINGS:
        options = [f"-max_total_time={max(1, round(left))}"]
        if not run_once(target, STATE / "corpus" / target, options, figures):
            break


def table(all_figures: dict[str, Figures]) -> str:
    """The figures as a table in Markdown."""
    lines = ["| target | executions | per CPU second | edges | features | inputs | peak MiB | findings |"]
    lines.append("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for name, it in sorted(all_figures.items()):
        rate = it.executions / it.cpu_s if it.cpu_s else 0
        row = [it.executions, round(rate), it.edges, it.features, it.inputs, it.peak_mib, len(it.findings)]
        lines.append(f"| {name} | " + " | ".join(f"{number:,}" for number in row) + " |")
    executions = sum(it.executions for it in all_figures.values())
    findings = sum(len(it.findings) for it in all_figures.values())
    lines.append(f"| all | {executions:,} | | | | | | {findings:,} |")
    for name, it in sorted(all_figures.items()):
        lines += [f"{name}: {file}: {why}" for file, why in it.findings.items()]
    return "\n".join(lines)


def head() -> str:
    """The commit that is tested, with a mark for changes that are not committed."""
    words = ["git", "describe", "--always", "--dirty", "--abbrev=10", "--exclude=*"]
    return subprocess.run(words, cwd=REPOSITORY, capture_output=True, text=True).stdout.strip()


def saved(path: Path) -> dict[str, Figures]:
    """The figures of an earlier run."""
    if not path.exists():
        return {}
    return {name: Figures(**values) for name, values in json.loads(path.read_text())["targets"].items()}


def save(path: Path, all_figures: dict[str, Figures]) -> None:
    """Writes the figures and the table beside them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {"head": head(), "targets": {name: asdict(it) for name, it in all_figures.items()}}
    new = path.with_suffix(".new")
    new.write_text(json.dumps(content, indent=1) + "\n")
    new.replace(path)
    path.with_suffix(".md").write_text(f"head {content['head']}\n\n{table(all_figures)}\n")


def each(
    names: list[str], jobs: int, figures: dict[str, Figures], figures_file: Path, act: Callable[[str, Figures], None]
) -> None:
    """Runs every target once, some at a time, and saves the figures after each."""
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        waiting = [pool.submit(act, name, figures.setdefault(name, Figures())) for name in names]
        for done in concurrent.futures.as_completed(waiting):
            done.result()
            save(figures_file, figures)


def fuzz(names: list[str], seconds: float, jobs: int, figures_file: Path) -> dict[str, Figures]:
    """Shares the time among the targets, in rounds of equal slices."""
    figures = saved(figures_file)
    per_target = seconds * jobs / len(names)
    rounds = max(1, round(per_target / SLICE_S))
    for _ in range(rounds):
        each(names, jobs, figures, figures_file, lambda name, own: slice_of(name, per_target / rounds, own))
    return figures


def minimise(names: list[str]) -> None:
    """Puts the fewest inputs that reach all known code into `fuzz/corpus`."""
    for name in names:
        kept, folders = FUZZ / "corpus" / name, [FUZZ / "corpus" / name, STATE / "corpus" / name]
        with tempfile.TemporaryDirectory() as new:
            sources = [folder for folder in folders if folder.is_dir()]
            status, log, _ = run(command(name, [Path(new), *sources], ["-set_cover_merge=1"]))
            if status != 0:
                sys.exit(f"{name}: {reason(log)}")
            shutil.rmtree(kept, ignore_errors=True)
            shutil.copytree(new, kept)
        files = list(kept.iterdir())
        print(f"{name}: {len(files)} inputs, {sum(file.stat().st_size for file in files)} bytes", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    length = parser.add_mutually_exclusive_group(required=True)
    length.add_argument("--hours", type=float, help="time for all targets together")
    length.add_argument("--seconds", type=float, help="the same in seconds")
    length.add_argument("--minimise", action="store_true", help="renew fuzz/corpus from the inputs that were found")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="targets that run at a time (all cores)")
    parser.add_argument("--cargo", default="cargo", help="the cargo to build with")
    parser.add_argument("--no-build", action="store_true", help="run what was built before")
    parser.add_argument("--figures", type=Path, default=STATE / "figures.json", help="figures are added to those in this file")
    parser.add_argument("targets", nargs="*", help="the targets to run (all)")
    options = parser.parse_args()
    names = options.targets or targets()
    if unknown := sorted(set(names) - set(targets())):
        parser.error(f"no target {', '.join(unknown)}; there are {', '.join(targets())}")
    if not options.no_build:
        build(options.cargo)
    if options.minimise:
        minimise(names)
        return 0
    jobs = max(1, options.jobs or 1)
    figures = fuzz(names, options.seconds or options.hours * 3600, jobs, options.figures)
    print(table({name: figures[name] for name in names}))
    return 1 if any(figures[name].findings for name in names) else 0


if __name__ == "__main__":
    sys.exit(main())
