"""The image's bytes: an OCI layout whose digests fit, the same at each build."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import tarfile
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from packages import image

MOMENT = {"SOURCE_DATE_EPOCH": "1700000000"}


def built(folder: str, content: bytes = b"\x7fELF") -> bytes:
    """An image of a program with this content."""
    binary = Path(folder) / "waykeeper"
    binary.write_bytes(content)
    with mock.patch.dict(os.environ, MOMENT):
        return image.build(binary, Path(folder)).read_bytes()


class Image(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def test_every_digest_and_size_is_that_of_its_blob(self) -> None:
        with tarfile.open(fileobj=io.BytesIO(built(self.folder))) as tar:
            files = {entry.name: tar.extractfile(entry).read() for entry in tar.getmembers()}  # type: ignore[union-attr]
        self.assertEqual(json.loads(files["oci-layout"]), {"imageLayoutVersion": "1.0.0"})

        def blob(descriptor: dict[str, object]) -> bytes:
            digest = str(descriptor["digest"]).removeprefix("sha256:")
            content = files[f"blobs/sha256/{digest}"]
            self.assertEqual(hashlib.sha256(content).hexdigest(), digest)
            self.assertEqual(len(content), descriptor["size"])
            return content

        (named,) = json.loads(files["index.json"])["manifests"]
        manifest = json.loads(blob(named))
        config = json.loads(blob(manifest["config"]))
        (layer,) = manifest["layers"]
        tar_bytes = gzip.decompress(blob(layer))
        self.assertEqual(config["rootfs"]["diff_ids"], [f"sha256:{hashlib.sha256(tar_bytes).hexdigest()}"])
        self.assertEqual(config["config"]["User"], "65532:65532")
        self.assertEqual(len(files), 5)

    def test_the_layer_has_the_program_and_belongs_to_root(self) -> None:
        binary = Path(self.folder) / "program"
        binary.write_bytes(b"content")
        with tarfile.open(fileobj=io.BytesIO(image.layer(binary, 7))) as tar:
            entries = {entry.name: entry for entry in tar.getmembers()}
            self.assertEqual(tar.extractfile("usr/bin/waykeeper").read(), b"content")  # type: ignore[union-attr]
        self.assertEqual(entries["tmp"].mode, 0o1777)
        self.assertTrue(all((entry.uid, entry.gid, entry.mtime) == (0, 0, 7) for entry in entries.values()))

    def test_the_same_program_gives_the_same_bytes_and_another_one_others(self) -> None:
        first = built(self.folder)
        self.assertEqual(first, built(self.folder))
        self.assertNotEqual(first, built(self.folder, b"other"))


if __name__ == "__main__":
    unittest.main()
