"""Images for pods, made without a registry: files in the layout of OCI images. This module must not know a runtime."""

from __future__ import annotations

import hashlib
import io
import json
import re
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from clients.testbed import tools

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"
"""Media types (opencontainers/image-spec, media-types.md)."""


def with_libraries(program: Path, place: str) -> dict[str, bytes]:
    """A program at a place of an image, and the libraries that it is linked with, as ldd(1) finds them."""
    libraries = re.findall(r"(/\S+) \(0x", tools.run(["ldd", program]))
    return {place: program.read_bytes()} | {path.lstrip("/"): Path(path).read_bytes() for path in libraries}


def write(path: Path, name: str, files: Mapping[str, bytes], command: Sequence[str] = ()) -> None:
    """Writes an archive with one image of this name and these files. The command is for containers that name none."""
    layer = _tar(files)
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Entrypoint": list(command)},
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
    blobs = {f"blobs/{_digest(data).replace(':', '/')}": data for data in (layer, config_bytes, manifest_bytes)}
    layout = {"oci-layout": b'{"imageLayoutVersion":"1.0.0"}', "index.json": json.dumps(index).encode()}
    path.write_bytes(_tar(blobs | layout))


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _descriptor(kind: str, data: bytes) -> dict[str, object]:
    return {"mediaType": kind, "digest": _digest(data), "size": len(data)}


def _tar(files: Mapping[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), 0o755
            archive.addfile(entry, io.BytesIO(data))
    return out.getvalue()
