"""Tests of which parts can run."""

from __future__ import annotations

import tempfile
import unittest
from pathlib import Path
from unittest import mock

from clients.testbed import tools
from fleet import run


class Missing(unittest.TestCase):
    """Parts whose programs are not there."""

    def test_what_is_not_in_the_cache_is_named_and_not_brought(self) -> None:
        """The chart needs Helm, then Kustomize."""
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(tools, "CACHE", Path(folder)):
            helm = (run.missing("chart") or "").split()[0]
            self.assertRegex(helm, "^helm-")
            self.assertEqual(list(Path(folder).iterdir()), [])
            Path(folder, helm).mkdir()
            kustomize = (run.missing("chart") or "").split()[0]
            self.assertRegex(kustomize, "^kustomize-")
            Path(folder, kustomize).mkdir()
            self.assertIsNone(run.missing("chart"))

    def test_every_part_is_a_module(self) -> None:
        """`run.py` starts each as a program."""
        for part in run.PARTS:
            self.assertTrue((Path(run.__file__).parent / f"{part}.py").exists(), part)


if __name__ == "__main__":
    unittest.main()
