"""An image for pods, made without a registry: a static busybox in the layout of OCI images.

This module must not know a runtime.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"
"""Media types (opencontainers/image-spec, media-types.md)."""


def write(path: Path, name: str, busybox: Path) -> None:
    """Writes an archive with one image of this name, whose program waits."""
    layer = _tar({"bin/busybox": busybox.read_bytes()})
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Entrypoint": ["/bin/busybox", "sleep", "86400"]},
        "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
    }
    config_bytes = json.dumps(config).encode()
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": _descriptor(CONFIG, config_bytes),
        "layers": [_descriptor(LAYER, layer)],
    }
    manifest_bytes = json.dumps(manifest).encode()
    # containerd names an image by this annotation when it imports it.
    named = _descriptor(MANIFEST, manifest_bytes) | {"annotations": {"io.containerd.image.name": name}}
    index = {"schemaVersion": 2, "manifests": [named]}
    files = {f"blobs/{_digest(data).replace(':', '/')}": data for data in (layer, config_bytes, manifest_bytes)}
    files |= {"oci-layout": b'{"imageLayoutVersion":"1.0.0"}', "index.json": json.dumps(index).encode()}
    path.write_bytes(_tar(files))


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _descriptor(kind: str, data: bytes) -> dict[str, object]:
    return {"mediaType": kind, "digest": _digest(data), "size": len(data)}


def _tar(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), 0o755
            archive.addfile(entry, io.BytesIO(data))
    return out.getvalue()
