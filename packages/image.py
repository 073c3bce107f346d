"""The container image: an OCI layout in a tar file, with the static program and nothing else.

Written by hand after the OCI image specification 1.1: a layer, a configuration and a manifest, named by their SHA-256.
containerd, podman and skopeo read it. This module must not know how the program is built.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from datetime import UTC, datetime
from pathlib import Path

from packages import program

NAME = "localhost/waykeeper"
"""The name under which a runtime imports it, which the chart expects; a tag is added."""

LABELS = {
    "org.opencontainers.image.title": "waykeeper",
    "org.opencontainers.image.description": "Manages the last-level cache of servers with fast devices",
    "org.opencontainers.image.licenses": "Apache-2.0",
}


def build(binary: Path, out: Path) -> Path:
    """Writes the image into `out`. `binary` is the static program. Its bytes depend on it and on the time of the commit only."""
    at = int(program.moment())
    layer_tar = layer(binary, at)
    layer_bytes = gzip.compress(layer_tar, mtime=at)
    config = {
        "created": datetime.fromtimestamp(at, UTC).isoformat(),
        "architecture": "amd64",
        "os": "linux",
        # Commands that need no host run as this user. The daemon needs root (docs/daemon.md), so the DaemonSet says so.
        "config": {
            "User": "65532:65532",
            "Entrypoint": ["/usr/bin/waykeeper"],
            "Cmd": ["--help"],
            "WorkingDir": "/tmp",
            "Labels": LABELS,
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer_tar).hexdigest()}"]},
        "history": [{"created": datetime.fromtimestamp(at, UTC).isoformat(), "created_by": "packages/image.py"}],
    }
    blobs = {}

    def blob(content: bytes, kind: str) -> dict[str, object]:
        digest = hashlib.sha256(content).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = content
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": f"sha256:{digest}", "size": len(content)}

    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": blob(_json(config), "config.v1+json"),
        "layers": [blob(layer_bytes, "layer.v1.tar+gzip")],
    }
    named = blob(_json(manifest), "manifest.v1+json")
    version = program.version()
    named["annotations"] = {
        "io.containerd.image.name": f"{NAME}:{version}",
        "org.opencontainers.image.ref.name": version,
    }
    index = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [named]}
    files = {"oci-layout": _json({"imageLayoutVersion": "1.0.0"}), "index.json": _json(index), **blobs}
    path = out / f"waykeeper-{version}.oci.tar"
    path.write_bytes(_tar([(name, content, 0o644) for name, content in sorted(files.items())], at))
    return path


def layer(binary: Path, at: int) -> bytes:
    """The root file system: the program, a folder for temporary files, and the names of its user."""
    files = [
        ("etc/", b"", 0o755),
        ("etc/passwd", b"root:x:0:0::/:\nwaykeeper:x:65532:65532::/:\n", 0o644),
        ("etc/group", b"root:x:0:\nwaykeeper:x:65532:\n", 0o644),
        ("tmp/", b"", 0o1777),
        ("usr/", b"", 0o755),
        ("usr/bin/", b"", 0o755),
        ("usr/bin/waykeeper", binary.read_bytes(), 0o755),
    ]
    return _tar(files, at)


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _tar(files: list[tuple[str, bytes, int]], at: int) -> bytes:
    """A tar of files, and of folders where the name ends with a slash. All belong to root."""
    memory = io.BytesIO()
    with tarfile.open(fileobj=memory, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, content, mode in files:
            entry = tarfile.TarInfo(name.rstrip("/"))
            entry.type = tarfile.DIRTYPE if name.endswith("/") else tarfile.REGTYPE
            entry.size, entry.mode, entry.mtime = len(content), mode, at
            tar.addfile(entry, io.BytesIO(content))
    return memory.getvalue()
