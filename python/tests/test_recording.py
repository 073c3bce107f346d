"""A recording of the daemon on the virtual host, read as tables and, by Perfetto's own messages, as a trace."""

from __future__ import annotations

import collections
import json
import os
import signal
import subprocess
import warnings
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from program import PROGRAM, needs_program
from waiting import PATIENCE_S, until

import waykeeper as wk

SCENARIO = """
name = "recorded"
chip = "gold-6140"
duration_s = 600
time_factor = 1000
[[nic]]
name = "nic0"
offered_gbps = 40
[[workload]]
name = "l2fwd"
program = "l2fwd"
cores = "0"
priority = "high"
[[workload]]
name = "batch"
program = "x-mem"
cores = "1"
working_set = "16M"
"""
CONFIG = """
[daemon]
root = "{root}"
journal = "{state}/journal"
period_s = 0.25
[policy]
name = "isolate"
[socket]
path = "{socket}"
[metrics]
listen = "off"
[recorder]
dir = "{state}/recorder"
[[tenant]]
name = "l2fwd"
priority = "high"
cgroup = "tenants.slice/l2fwd.service"
[[tenant]]
name = "batch"
priority = "low"
cgroup = "tenants.slice/batch.service"
"""
pytestmark = [
    needs_program,
    pytest.mark.skipif(not os.access("/dev/fuse", os.W_OK) or os.geteuid() != 0, reason="needs root and /dev/fuse"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, socket_folder: Path) -> Iterator[Path]:
    """The directory of a recording of ten steps or more."""
    place = tmp_path_factory.mktemp("recording")
    root, state, socket = place / "host", place / "state", socket_folder / "control.sock"
    root.mkdir()
    state.mkdir()
    (place / "recorded.toml").write_text(SCENARIO)
    (place / "waykeeper.toml").write_text(CONFIG.format(root=root, state=state, socket=socket))
    host = subprocess.Popen([PROGRAM, "vhost", root, "--scenario", place / "recorded.toml"], stdout=subprocess.DEVNULL)
    try:
        until("the virtual host", (root / "sys/fs/resctrl/schemata").exists)
        daemon = subprocess.Popen([PROGRAM, "daemon", "--config", place / "waykeeper.toml"], stderr=subprocess.PIPE)
        seen: set[int] = set()

        def has_seen_ten_steps() -> bool:
            """Ten steps with the counters of both tenants: on a busy machine an interval may have none."""
            assert daemon.poll() is None, daemon.communicate()[1].decode()
            words = [PROGRAM, "status", "--json", "--socket", socket]
            asked = subprocess.run(words, capture_output=True)
            status = json.loads(asked.stdout) if asked.returncode == 0 else {"tenants": []}
            if status["tenants"] and all(tenant.get("ipc") is not None for tenant in status["tenants"]):
                seen.add(status["step"])
            return len(seen) >= 10

        until("ten steps", has_seen_ten_steps)
        daemon.send_signal(signal.SIGTERM)
        _, said = daemon.communicate(timeout=PATIENCE_S)
        assert daemon.returncode == 0, said.decode()
    finally:
        host.send_signal(signal.SIGINT)
        host.wait(PATIENCE_S)
    yield state / "recorder"


def test_each_table_has_what_the_daemon_saw(folder: Path, tmp_path: Path) -> None:
    recording = wk.read_recording(folder)
    assert len(recording) >= 10
    tenants = recording.tenants()
    assert set(tenants["tenant"].to_pylist()) == {"l2fwd", "batch"}
    last = [row for row in tenants.to_pylist() if row["ipc"] is not None][-1]
    # isolate gives the two tenants of an LLC with eleven ways parts of it.
    assert last["policy"] == "isolate" and 1 <= last["ways"] < 11 and int(last["mask"], 16) > 0
    assert 0.0 < last["ipc"] < 4.0 and 0.0 <= last["llc_hit_ratio"] <= 1.0
    devices = [row for row in recording.devices().to_pylist() if row["inbound_bytes_per_s"] is not None]
    assert devices[-1]["devices"] == "nic0" and devices[-1]["dca"] is True
    # 40 Gb/s are 5e9 bytes a second.
    assert devices[-1]["inbound_bytes_per_s"] == pytest.approx(5e9, rel=0.25)
    assert recording.socket().num_rows == len(recording)
    assert recording.decisions().num_rows > 0
    # The first step has no interval: its rates are null, not 0.
    assert tenants.to_pylist()[0]["ipc"] is None
    pq.write_table(tenants, tmp_path / "tenants.parquet")
    assert pq.read_table(tmp_path / "tenants.parquet").equals(tenants)


def test_a_recording_that_is_cut_off_is_read_up_to_there(folder: Path, tmp_path: Path) -> None:
    whole = sorted(folder.glob("*.jsonl.zst"))[0].read_bytes()
    cut = tmp_path / "cut.jsonl.zst"
    cut.write_bytes(whole[:-20])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            assert len(wk.read_recording(cut)) < len(wk.read_recording(folder))
        except wk.BadInput as why:
            # The recording had one frame.
            assert str(cut) in str(why)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot|No such file|not found"),
        (b"not compressed\n", "x.jsonl.zst: "),
    ],
)
def test_what_is_no_recording_is_refused_by_name(tmp_path: Path, content: bytes | None, said: str) -> None:
    file = tmp_path / "x.jsonl.zst"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(wk.BadInput, match=said):
        wk.read_recording(file)
    with pytest.raises(wk.BadInput, match="has no recording"):
        wk.read_recording(tmp_path / "..")


def test_perfetto_reads_the_trace(folder: Path, tmp_path: Path) -> None:
    perfetto = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    file = tmp_path / "steps.perfetto-trace"
    subprocess.run([PROGRAM, "replay", folder, "--trace", file], check=True, stdout=subprocess.DEVNULL)
    again = subprocess.run([PROGRAM, "replay", folder, "--trace", file], capture_output=True, text=True)
    assert again.returncode == 2 and "exists already" in again.stderr
    trace = perfetto.Trace()
    trace.ParseFromString(file.read_bytes())
    tracks = {
        packet.track_descriptor.uuid: packet.track_descriptor
        for packet in trace.packet
        if packet.HasField("track_descriptor")
    }
    events = [packet for packet in trace.packet if packet.HasField("track_event")]
    kinds = perfetto.TrackEvent
    path = lambda track: [tracks[track.parent_uuid].name, track.name] if track.parent_uuid else [track.name]  # noqa: E731
    values = collections.defaultdict(list)
    for packet in events:
        track = tracks[packet.track_event.track_uuid]
        if packet.track_event.type == kinds.TYPE_COUNTER:
            values["/".join(path(track))].append(packet.track_event.double_counter_value)
    recording = wk.read_recording(folder)
    ratios = [row["llc_hit_ratio"] for row in recording.tenants().to_pylist() if row["tenant"] == "batch"]
    assert values["batch/LLC hit ratio"] == [ratio for ratio in ratios if ratio is not None]
    # Each slice that begins ends, and each decision is one.
    for name in ("decisions", "policy and state"):
        uuid = next(uuid for uuid, track in tracks.items() if track.name == name)
        own = [packet.track_event for packet in events if packet.track_event.track_uuid == uuid]
        begun = [event for event in own if event.type == kinds.TYPE_SLICE_BEGIN]
        assert len(begun) == sum(event.type == kinds.TYPE_SLICE_END for event in own) > 0
        if name == "decisions":
            assert [event.name for event in begun] == recording.decisions()["action"].to_pylist()
    times = [packet.timestamp for packet in events]
    assert 0 <= min(times) and max(times) < 600e9
    # Tracks are described before their first event.
    seen = set()
    for packet in trace.packet:
        if packet.HasField("track_descriptor"):
            seen.add(packet.track_descriptor.uuid)
        else:
            assert packet.track_event.track_uuid in seen
