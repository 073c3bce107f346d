"""Long-running test of the daemon on the virtual host: tenants start and exit every few seconds, and memory must not grow.

Mounts a scenario whose programs start and exit continuously, starts `waykeeper daemon` on it, and observes the daemon from
outside: memory, open files, threads, groups in resctrl, length of the journal, masks. At the end it sends SIGTERM, and all
resctrl groups must be as they were before the start. Needs root, /dev/fuse and a built program.

    python3 scripts/soak.py --program target/release/waykeeper --hours 24 --speed 100
"""

import argparse
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SCENARIO = """
name = "soak"
chip = "gold-6140"
duration_s = 86400
warmup_s = 1
measure_s = 1
time_factor = 1000

[[nic]]
name = "nic0"
offered_gbps = 40

[[storage]]
name = "raid0"

[[workload]]
name = "hpw-l2fwd"
program = "l2fwd"
cores = "0"
priority = "high"

[[workload]]
name = "lpw-fio"
program = "fio"
cores = "1"
"""

# Periods in seconds of the programs that start and exit; each has a core of its own and runs for a part of its period.
PERIODS = [4, 5, 6, 7, 9, 11, 13, 17, 19, 23]


def scenario(slower: float) -> str:
    """The text of the scenario: two programs that run all the time, ten that start and exit, so many times as seldom."""
    churners = [
        f'\n[[workload]]\nname = "{"hpw" if index % 3 == 0 else "lpw"}{index}"\nprogram = "x-mem"\ncores = "{2 + index}"\n'
        f'priority = "{"high" if index % 3 == 0 else "low"}"\nworking_set = "{1 + index}M"\n'
        f"start_s = {index}\nstop_s = {index + period * 0.6}\nevery_s = {period}\n"
        for index, period in enumerate(period * slower for period in PERIODS)
    ]
    return SCENARIO + "".join(churners)


def configuration(root: Path, state: Path, policy: str, period_s: float) -> str:
    """The daemon's configuration: every service in the slice of the tree is a tenant, with the priority of its name."""
    nic = sorted((root / "sys/class/net").iterdir())[0].name
    nvme = sorted((root / "sys/class/nvme").iterdir())[0].name
    return f"""
[daemon]
root = "{root}"
journal = "{state}/journal"
period_s = {period_s}
[policy]
name = "{policy}"
[socket]
path = "{state}/socket"
[metrics]
listen = "off"
[recorder]
dir = "{state}/recorder"
keep_mib = 16
[worth]
looks = true
every_s = 10
[log]
level = "warn"
[[tenant]]
name = "l2fwd"
priority = "high"
kind = "network-io"
cgroup = "tenants.slice/hpw-l2fwd.service"
devices = ["{nic}"]
[[tenant]]
name = "fio"
priority = "low"
kind = "storage-io"
cgroup = "tenants.slice/lpw-fio.service"
devices = ["{nvme}"]
[[tenant]]
name = "high-{{name}}"
each = true
priority = "high"
cgroup = "tenants.slice/hpw[0-9]*.service"
[[tenant]]
name = "low-{{name}}"
each = true
priority = "low"
cgroup = "tenants.slice/lpw[0-9]*.service"
"""


# Steps that a run must have, of those that fit into its time: a run on a machine that is too slow says nothing.
STEPS_LEAST = 0.5


def wait(what: str, condition, seconds: float = 60):
    """Waits until a condition holds."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            sys.exit(f"soak: {what} did not appear within {seconds} s")
        time.sleep(0.05)


def groups(root: Path) -> dict[str, str]:
    """Schemata and CPUs of all groups, by path."""
    top = root / "sys/fs/resctrl"
    found = {}
    for folder, names, _ in os.walk(top):
        names[:] = [name for name in names if name not in ("info", "mon_data")]
        for file in ("schemata", "cpus_list"):
            path = Path(folder, file)
            try:
                found[str(path.relative_to(top))] = path.read_text()
            except OSError:
                continue  # The group was removed in the meantime.
    return found


def illegal(masks: dict[str, str]) -> list[str]:
    """Masks that are empty, not contiguous, or larger than the eleven ways."""
    wrong = []
    for path, text in masks.items():
        for mask in re.findall(r"L3:0=([0-9a-f]+)", text):
            bits = int(mask, 16)
            low = bits & -bits if bits else 1
            if bits == 0 or bits >= 1 << 11 or (bits // low) & (bits // low + 1):
                wrong.append(f"{path}: {mask}")
    return wrong


def ask(path: Path) -> dict:
    """The daemon's status."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stream:
        stream.settimeout(30)
        stream.connect(str(path))
        stream.sendall(b'{"version":1,"do":"status"}\n')
        text = b""
        while not text.endswith(b"\n"):
            more = stream.recv(1 << 16)
            if not more:
                break
            text += more
    return json.loads(text)["ok"]


def look(pid: int, root: Path, state: Path) -> dict:
    """The daemon's resources, seen from outside."""
    status = Path(f"/proc/{pid}/status").read_text()
    field = lambda name: int(re.search(rf"{name}:\s+(\d+)", status)[1])  # noqa: E731
    journal = state / "journal"
    return {
        "rss_kib": field("VmRSS"),
        "threads": field("Threads"),
        "files": len(os.listdir(f"/proc/{pid}/fd")),
        "groups": sum(path.endswith("schemata") for path in groups(root)) - 1,
        "journal_bytes": journal.stat().st_size if journal.exists() else 0,
        "recorder_bytes": sum(file.stat().st_size for file in (state / "recorder").glob("*")),
    }


def main() -> int:
    """Runs the test; prints a line per sample and a summary. Returns 1 if memory or files grew, if the daemon did too few
    steps or moved no mask, or if a check failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="target/release/waykeeper", help="the program (default: %(default)s)")
    parser.add_argument(
        "--hours", type=float, default=24, help="length of the run on the server's clock (default: %(default)s)"
    )
    parser.add_argument(
        "--speed", type=float, default=100, help="seconds of the server's clock per second (default: %(default)s)"
    )
    parser.add_argument(
        "--period", type=float, default=2, help="the daemon's period on the server's clock (default: %(default)s s)"
    )
    parser.add_argument(
        "--slower",
        type=float,
        default=1,
        help="the programs start and exit so many times as seldom: a policy that asks the twin needs some intervals in which "
        "nothing changes (default: %(default)s)",
    )
    parser.add_argument("--policy", default="waykeeper", help="the daemon's policy (default: %(default)s)")
    parser.add_argument("--looks", type=int, default=40, help="number of samples (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print JSON only")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="waykeeper-soak-"))
    root, state = folder / "host", folder / "state"
    root.mkdir()
    state.mkdir()
    (folder / "soak.toml").write_text(scenario(options.slower))
    vhost = subprocess.Popen(
        [options.program, "vhost", root, "--scenario", folder / "soak.toml", "--speed", str(options.speed), "--no-mba"],
        stdout=subprocess.DEVNULL,
    )
    daemon = None
    try:
        wait("the mount", lambda: (root / "sys/fs/resctrl/schemata").exists())
        before = groups(root)
        text = configuration(root, state, options.policy, options.period / options.speed)
        (folder / "waykeeper.toml").write_text(text)
        log = (folder / "log").open("wb")
        daemon = subprocess.Popen([options.program, "daemon", "--config", folder / "waykeeper.toml"], stderr=log)
        wait("the socket", lambda: (state / "socket").exists() or daemon.poll() is not None)
        rows, wrong, seen, moved = [], [], {}, 0
        total = options.hours * 3600 / options.speed
        start = time.monotonic()
        for number in range(options.looks + 1):
            # The first tenth is a warm-up, in which caches and rings fill.
            while (elapsed := time.monotonic() - start) < total * (0.1 + 0.9 * number / options.looks):
                time.sleep(min(1.0, total))
                masks = groups(root)
                wrong += illegal(masks)
                moved += any(masks[path] != seen.get(path, masks[path]) for path in masks if path.endswith("schemata"))
                seen = masks
                if daemon.poll() is not None:
                    sys.exit(f"soak: the daemon ended: {(folder / 'log').read_text()[-2000:]}")
            row = {"hours": round(elapsed * options.speed / 3600, 2), **look(daemon.pid, root, state)}
            said = ask(state / "socket")
            row["steps"], row["tenants"] = said["step"], len(said["tenants"])
            row["answers"], row["twin_cpu_s"] = said["twin"]["answers"], round(said["twin"]["cpu_s"], 1)
            row["vhost_rss_kib"] = int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{vhost.pid}/status").read_text())[1])
            rows.append(row)
            if not options.json:
                print("  ".join(f"{key} {value}" for key, value in row.items()), flush=True)
        ticks = Path(f"/proc/{daemon.pid}/stat").read_text().rsplit(")", 1)[1].split()
        cpu_s = (int(ticks[11]) + int(ticks[12])) / os.sysconf("SC_CLK_TCK")
        daemon.send_signal(signal.SIGTERM)
        code = daemon.wait(120)
        after = groups(root)
        steps_fit = int(options.hours * 3600 / options.period)
        summary = {
            "exit": code,
            "as_found": after == before,
            "illegal_masks": wrong,
            "journal_left": (state / "journal").exists(),
            "cpu_s": cpu_s,
            "steps": rows[-1]["steps"],
            "steps_fit": steps_fit,
            "seconds_with_moved_masks": moved,
            "totals": said.get("totals"),
            "twin": said["twin"],
            "first": rows[0],
            "last": rows[-1],
            "most_rss_kib": max(row["rss_kib"] for row in rows),
            "most_files": max(row["files"] for row in rows),
            "most_groups": max(row["groups"] for row in rows),
            "log_bytes": (folder / "log").stat().st_size,
        }
        print(json.dumps(summary if not options.json else {"rows": rows, **summary}, indent=2))
        # The number of open files follows that of tenants: halves of the run are compared, not two moments.
        most = lambda key, part: max(row[key] for row in part)  # noqa: E731
        begin, rest = rows[: len(rows) // 2 + 1], rows[len(rows) // 2 :]
        grew = rows[-1]["rss_kib"] > 1.1 * rows[0]["rss_kib"] + 1024 or most("files", rest) > most("files", begin) + 16
        idle = rows[-1]["steps"] < STEPS_LEAST * steps_fit or (options.policy != "default" and moved == 0)
        return int(bool(code or wrong or grew or after != before or summary["journal_left"] or idle))
    finally:
        if daemon and daemon.poll() is None:
            daemon.kill()
            daemon.wait()
        vhost.send_signal(signal.SIGINT)
        try:
            vhost.wait(10)
        except subprocess.TimeoutExpired:
            vhost.kill()
        subprocess.run(["umount", "-l", root], stderr=subprocess.DEVNULL, check=False)


if __name__ == "__main__":
    sys.exit(main())
