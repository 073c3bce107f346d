"""Tests of the chart's and Kustomize's files as they are, and of the comparison of rendered objects."""

from __future__ import annotations

import json
import re
import tomllib
import unittest
from pathlib import Path

from fleet.manifests import comparable, differences

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "dist/helm/waykeeper"
BASE = ROOT / "dist/kustomize/base"
OVERLAY = ROOT / "dist/kustomize/overlays/monitoring"

FROM_OTHER_VALUES = {"limits.dca_ways", "limits.dca_ports", "metrics.listen"}
"""Keys of the configuration that the chart sets."""

NOT_IN_A_POD = {
    "daemon.root", "daemon.journal", "daemon.profile", "policy.file", "policy.python", "policy.deadline_ms", "socket.path",
    "socket.group",
}  # fmt: skip
"""Keys that name files or groups of a host: the pod has the usual ones, and neither Python nor groups."""


def keys_of_the_daemon() -> set[str]:
    """The keys that dist/waykeeper.toml shows, besides those of tenants."""
    found, section = set(), ""
    for line in (ROOT / "dist/waykeeper.toml").read_text().splitlines():
        if table := re.match(r"#?\[+([a-z_.]+)\]", line):
            section = table[1]
        elif (key := re.match(r"#?([a-z_]+) = ", line)) and section not in ("", "tenant"):
            found.add(f"{section}.{key[1]}")
    return found


class Files(unittest.TestCase):
    """What must agree between files."""

    def test_the_schema_has_the_keys_of_the_daemon(self) -> None:
        """A key that the daemon gets must be in the schema, or in one of the two lists above."""
        schema = json.loads((CHART / "values.schema.json").read_text())
        sections = schema["properties"]["config"]["properties"].items()
        known = {f"{name}.{key}" for name, section in sections for key in section["properties"]} - {"policy.settings"}
        daemon = keys_of_the_daemon()
        self.assertGreater(len(daemon), 30)
        self.assertEqual(known, daemon - FROM_OTHER_VALUES - NOT_IN_A_POD)
        self.assertLessEqual(FROM_OTHER_VALUES | NOT_IN_A_POD, daemon)

    def test_every_value_is_in_the_schema(self) -> None:
        """`global` belongs to Helm."""
        schema = json.loads((CHART / "values.schema.json").read_text())
        values = re.findall(r"^([A-Za-z]+):", (CHART / "values.yaml").read_text(), re.MULTILINE)
        self.assertEqual(set(values), set(schema["properties"]) - {"global"})

    def test_versions_are_that_of_the_program(self) -> None:
        """Chart, program, image and labels."""
        version = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
        chart = (CHART / "Chart.yaml").read_text()
        self.assertEqual(re.findall(r"^(?:appV|v)ersion: (\S+)$", chart, re.MULTILINE), [version, version])
        base, overlay = ((folder / "kustomization.yaml").read_text() for folder in (BASE, OVERLAY))
        found = re.findall(r"(?:newTag|/version): (\S+)$", base + overlay, re.MULTILINE)
        self.assertEqual(found, [version, version, version])

    def test_a_pod_can_have_the_rights_of_the_unit(self) -> None:
        """dist/waykeeper.service explains each; the chart adds no other and lacks none."""
        unit = (ROOT / "dist/waykeeper.service").read_text()
        (line,) = re.findall(r"^CapabilityBoundingSet=(.+)$", unit, re.MULTILINE)
        template = (CHART / "templates/daemonset.yaml").read_text()
        added = re.findall(r"^ +- ([A-Z_]+)$", template, re.MULTILINE)
        self.assertEqual({f"CAP_{name}" for name in added}, set(line.split()))

    def test_the_overlay_changes_only_the_metrics(self) -> None:
        """Each has the whole file."""
        base, overlay = (tomllib.loads((folder / "waykeeper.toml").read_text()) for folder in (BASE, OVERLAY))
        self.assertEqual(list(differences(base, overlay)), ["metrics.listen: 'off' and '0.0.0.0:19190'"])


class Comparison(unittest.TestCase):
    """Objects of two programs."""

    def test_digests_and_helms_labels_do_not_count(self) -> None:
        """A generated name, the digest of the configuration, and the layout of its text."""

        def objects(name: str, labels: dict[str, str], text: str) -> dict[str, dict[str, object]]:
            own = {"kind": "ConfigMap", "metadata": {"name": name, "labels": labels}, "data": {"a.toml": text}}
            volumes = [{"name": "config", "configMap": {"name": name}}]
            template = {"metadata": {"annotations": {"checksum/config": name}}, "spec": {"volumes": volumes}}
            user = {"kind": "DaemonSet", "metadata": {"name": "waykeeper"}, "spec": {"template": template}}
            return comparable([own, None, user])

        helm = objects("waykeeper", {"helm.sh/chart": "waykeeper-1", "a": "b"}, "[x]\ny = 1\n")
        plain = objects("waykeeper-k9fcthth9b", {"a": "b"}, "x.y = 1 # why")
        self.assertEqual(list(differences(helm, plain)), [])
        self.assertEqual(set(helm), {"ConfigMap/waykeeper", "DaemonSet/waykeeper"})

    def test_what_differs_is_named(self) -> None:
        """By its path: another value, a key and an object that one lacks, and lists of two lengths."""
        one = {"Service/a": {"spec": {"ports": [{"port": 1}, {"port": 2}], "all": [1]}}}
        other = {"Service/a": {"spec": {"ports": [{"port": 1}, {"port": 3, "name": "x"}], "all": []}}, "Pod/b": {}}
        self.assertEqual(
            list(differences(one, other)),
            [
                "Pod/b: None and {}",
                "Service/a.spec.all: [1] and []",
                "Service/a.spec.ports[1].name: None and 'x'",
                "Service/a.spec.ports[1].port: 2 and 3",
            ],
        )


if __name__ == "__main__":
    unittest.main()
