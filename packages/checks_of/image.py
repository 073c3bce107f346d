"""The image: its layout read by skopeo, its program run from a read-only root as its own user.

It must not know how the image is built.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from clients.testbed import tools
from clients.testbed.checks import Failed, Report, expect
from packages import program


def check(report: Report, path: Path) -> None:
    """Every check."""
    with tempfile.TemporaryDirectory(prefix="waykeeper-image-") as folder:
        report.check("image: skopeo reads and copies it", lambda: copies(path, Path(folder)))
        report.check("image: runc runs it, read-only and without rights", lambda: runs(path, Path(folder)))
        report.check("image: containerd runs it in the chart's pod", lambda: runs_in_a_pod(path))


def copies(path: Path, folder: Path) -> None:
    """skopeo checks every digest when it copies."""
    skopeo = tools.debian("skopeo", "skopeo")
    tag = f"oci-archive:{path}:{program.version()}"
    policy = ["--insecure-policy"]
    facts = json.loads(tools.run([skopeo, *policy, "inspect", "--config", tag]))
    expect(json.dumps(facts["config"]), "/usr/bin/waykeeper", "65532:65532")
    tools.run([skopeo, *policy, "copy", tag, f"dir:{folder / 'copy'}"])


def runs_in_a_pod(path: Path) -> None:
    """The checks of `fleet.rights` with this image, on a real containerd with runc."""
    daemon = program.STAGE / "usr/bin/waykeeper"
    environment = {**os.environ, "WAYKEEPER_IMAGE": str(path), "WAYKEEPER": str(daemon)}
    words = [sys.executable, "-m", "fleet.run", "--only", "rights"]
    done = subprocess.run(
        words, cwd=program.ROOT, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    if done.returncode != 0:
        raise Failed(done.stdout + done.stderr)
    print(done.stdout.strip().splitlines()[-1], flush=True)


def runs(path: Path, folder: Path) -> None:
    """umoci's part by hand: the only layer is the root; the process has no capability and may write to /tmp alone."""
    runc = tools.debian("runc", "runc")
    bundle = folder / "bundle"
    (bundle / "rootfs").mkdir(parents=True)
    manifest = json.loads((folder / "copy/manifest.json").read_text())
    (digest,) = (layer["digest"].removeprefix("sha256:") for layer in manifest["layers"])
    tools.run(["tar", "-xzf", folder / "copy" / digest, "-C", bundle / "rootfs"])
    spec = json.loads(tools.run([runc, "spec"], folder=bundle) or (bundle / "config.json").read_text())
    process = spec["process"]
    process |= {"terminal": False, "user": {"uid": 65532, "gid": 65532}, "cwd": "/tmp"}
    process["args"] = ["/usr/bin/waykeeper", "run", "--policy", "default", "--policy", "a4", "--sets", "1/128"]
    process["capabilities"] = {name: [] for name in process["capabilities"]}
    spec["root"] = {"path": "rootfs", "readonly": True}
    spec["linux"].pop("resources", None)
    (bundle / "config.json").write_text(json.dumps(spec))
    text = tools.run([runc, "--root", folder / "state", "run", "waykeeper-check"], folder=bundle)
    expect(text, "performance relative to default")
    files = sorted(
        str(file.relative_to(bundle / "rootfs")) for file in (bundle / "rootfs").rglob("*") if file.is_file()
    )
    if files != ["etc/group", "etc/passwd", "usr/bin/waykeeper"]:
        raise Failed(f"the image contains {files}")
