"""Tests of the encoding and of the image."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import tempfile
import unittest
from pathlib import Path

from fleet import image
from fleet.protobuf import fields, message, text, texts, varint


class Protobuf(unittest.TestCase):
    """Bytes of messages."""

    def test_a_message_has_the_bytes_of_the_encoding(self) -> None:
        """300 is 0b10_0101100: 0xac 0x02 (protobuf.dev, Encoding). Key of field 1 as number 0x08, of field 2 as text 0x12."""
        self.assertEqual(varint(300), b"\xac\x02")
        self.assertEqual(message({1: 300, 2: "ab", 3: {1: 0}}), b"\x08\xac\x02\x12\x02ab\x1a\x02\x08\x00")
        self.assertEqual(message({7: texts({"a": "b"})}), b"\x3a\x06\x0a\x01a\x12\x01b")

    def test_what_is_written_is_read(self) -> None:
        """Repeated fields are lists; a text that is absent is empty."""
        data = message({1: ["a", "b"], 2: 7})
        self.assertEqual(fields(data), {1: [b"a", b"b"], 2: [7]})
        self.assertEqual((text(data, 1), text(data, 9)), ("b", ""))


class Image(unittest.TestCase):
    """An image without a registry."""

    def test_every_blob_has_the_digest_that_names_it(self) -> None:
        """The index leads to the manifest, the manifest to the configuration and the layer."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "image.tar")
            image.write(path, "a/name:1", {"bin/busybox": b"a program"})
            with tarfile.open(path) as archive:
                files = {entry.name: archive.extractfile(entry).read() for entry in archive}  # type: ignore[union-attr]
        for name, data in files.items():
            if name.startswith("blobs/sha256/"):
                self.assertEqual(name.rsplit("/", 1)[1], hashlib.sha256(data).hexdigest())
        (entry,) = json.loads(files["index.json"])["manifests"]
        self.assertEqual(entry["annotations"]["io.containerd.image.name"], "a/name:1")
        manifest = json.loads(files["blobs/" + entry["digest"].replace(":", "/")])
        (layer,) = manifest["layers"]
        with tarfile.open(fileobj=io.BytesIO(files["blobs/" + layer["digest"].replace(":", "/")])) as inner:
            self.assertEqual(inner.getnames(), ["bin/busybox"])


if __name__ == "__main__":
    unittest.main()
