"""CPU time of `waykeeper top` and of `waykeeper serve` with ten viewers, attached to a daemon with one step a second.

    cargo build --release --locked -p waykeeper-cli
    cargo bench --locked -p waykeeper-cli --bench interval --no-run      # prints the path of the daemon
    python3 scripts/view_cost.py target/release/deps/interval-*

The daemon is the bench `interval` with the argument `steps`: it runs in a process of its own, so its time does not count.
CPU time is that of /proc/PID/stat, which depends little on what else the machine does. Each figure is the median of the rounds,
in percent of a core. It must not know what is drawn.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import pty
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Iterator
from pathlib import Path

SIZES = [(18, 11), (512, 256)]
"""Cores and tenants."""

SCREEN = (60, 200)
"""Rows and columns of the terminal: the larger it is, the more `top` draws."""

VIEWERS = 10
SETTLING_S = 8
"""Time after a start that is not measured."""

PATIENCE_S = 60
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def cpu_s(process: int) -> float:
    """CPU time of a process so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def percent(process: int, seconds: float) -> float:
    """CPU time of a process in the next seconds, in percent of a core."""
    begin, before = time.monotonic(), cpu_s(process)
    time.sleep(seconds)
    return 100 * (cpu_s(process) - before) / (time.monotonic() - begin)


@contextlib.contextmanager
def ended(process: subprocess.Popen) -> Iterator[subprocess.Popen]:
    """A process that ends with the block."""
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


@contextlib.contextmanager
def daemon(bench: Path, cores: int, tenants: int) -> Iterator[Path]:
    """The socket of a running daemon."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "socket"
        words = [bench, "steps", path, str(cores), str(tenants)]
        with ended(subprocess.Popen(words, stdout=subprocess.DEVNULL)):
            end = time.monotonic() + PATIENCE_S
            while not path.exists():
                if time.monotonic() > end:
                    sys.exit("the daemon does not start")
                time.sleep(0.1)
            yield path


def drain(descriptor: int, count: list[int]) -> None:
    """Reads and forgets what is written to a terminal, until its program has ended."""
    with contextlib.suppress(OSError):
        while part := os.read(descriptor, 1 << 16):
            count[0] += len(part)
    os.close(descriptor)


def top(program: Path, path: Path, seconds: float) -> float:
    """CPU of `top` in a terminal."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", *SCREEN, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color"}
    words = [program, "top", "--socket", path]
    terminal = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
    written = [0]
    with ended(subprocess.Popen(words, env=environment, start_new_session=True, **terminal)) as process:
        os.close(theirs)
        threading.Thread(target=drain, args=(ours, written), daemon=True).start()
        time.sleep(SETTLING_S)
        before = written[0]
        used = percent(process.pid, seconds)
        if written[0] == before:
            sys.exit("top drew nothing")
    return used


def watch(port: int, count: list[int]) -> None:
    """A viewer that reads all events."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)) as stream:
        stream.sendall(f"GET /api/feeds/main/events HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
        while part := stream.recv(1 << 16):
            count[0] += part.count(b"event: picture")


def serve(program: Path, path: Path, seconds: float) -> tuple[float, float]:
    """CPU of `serve` without a viewer and with ten."""
    words = [program, "serve", "--socket", path, "--listen", "127.0.0.1:0"]
    with ended(subprocess.Popen(words, stdout=subprocess.PIPE, text=True)) as process:
        port = int(process.stdout.readline().split("/#")[0].rsplit(":", 1)[1])
        time.sleep(SETTLING_S)
        alone = percent(process.pid, seconds)
        pictures = [0]
        for _ in range(VIEWERS):
            threading.Thread(target=watch, args=(port, pictures), daemon=True).start()
        time.sleep(SETTLING_S)
        before = pictures[0]
        used = percent(process.pid, seconds)
        if pictures[0] - before < VIEWERS * seconds / 2:
            sys.exit(f"{VIEWERS} viewers got {pictures[0] - before} pictures in {seconds} s")
    return alone, used


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bench", type=Path, help="the bench `interval`, built")
    parser.add_argument("--program", type=Path, default=Path("target/release/waykeeper"))
    parser.add_argument("--seconds", type=float, default=60, help="length of a measurement (60)")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    for cores, tenants in SIZES:
        rounds = []
        with daemon(options.bench, cores, tenants) as path:
            for _ in range(options.rounds):
                rounds.append(
                    (top(options.program, path, options.seconds), *serve(options.program, path, options.seconds))
                )
                print(f"{cores}/{tenants}: " + ", ".join(f"{value:.2f} %" for value in rounds[-1]), flush=True)
        drawn, alone, ten = (statistics.median(values) for values in zip(*rounds, strict=True))
        print(f"{cores} cores, {tenants} tenants: top {drawn:.2f} %; serve without a viewer {alone:.2f} %, ", end="")
        print(f"with {VIEWERS} {ten:.2f} %, a viewer {(ten - alone) / VIEWERS:.3f} %", flush=True)


if __name__ == "__main__":
    main()
