"""Rendered objects of Kubernetes in a form in which those of the chart and those of Kustomize can be compared.

What differs without a meaning is left out: labels that only Helm sets, the digest of a configuration as a part of a name or as an
annotation, and the layout of the configuration's text. This module must not know how objects are rendered.
"""

from __future__ import annotations

import copy
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

Tree: TypeAlias = "dict[str, Any]"

HELM_LABELS = ("helm.sh/chart", "app.kubernetes.io/managed-by")

DIGEST = "checksum/config"
"""The chart's annotation of pods with the digest of the configuration."""

GENERATED = re.compile(r"^(waykeeper)-[a-z0-9]{10}$")
"""Kustomize's name of a generated ConfigMap: ten characters of a digest (kustomize, api/hasher)."""


def comparable(documents: Iterable[Tree | None]) -> dict[str, Tree]:
    """The objects by kind and name."""
    return {f"{one['kind']}/{one['metadata']['name']}": one for one in map(_plain, filter(None, documents))}


def differences(one: object, other: object, path: str = "") -> Iterator[str]:
    """A line for each value that the two trees do not share."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for key in sorted({*one, *other}):
            yield from differences(one.get(key), other.get(key), f"{path}.{key}".lstrip("."))
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for number, (left, right) in enumerate(zip(one, other)):
            yield from differences(left, right, f"{path}[{number}]")
    elif one != other:
        yield f"{path}: {one!r} and {other!r}"


def container(daemon_set: Tree) -> Tree:
    """The only container of its pods."""
    (only,) = daemon_set["spec"]["template"]["spec"]["containers"]
    return only


def configuration(objects: Mapping[str, Tree]) -> Tree:
    """The daemon's configuration in comparable objects."""
    (found,) = (one["data"]["waykeeper.toml"] for key, one in objects.items() if key.startswith("ConfigMap/"))
    return found


def _plain(given: Tree) -> Tree:
    made = copy.deepcopy(given)
    template = made.get("spec", {}).get("template", {})
    for metadata in (made["metadata"], template.get("metadata", {})):
        for label in HELM_LABELS:
            metadata.get("labels", {}).pop(label, None)
        metadata.get("annotations", {}).pop(DIGEST, None)
    if made["kind"] == "ConfigMap":
        made["metadata"]["name"] = _plain_name(made["metadata"]["name"])
        made["data"] = {name: tomllib.loads(text) for name, text in made["data"].items()}
    for volume in template.get("spec", {}).get("volumes", []):
        if "configMap" in volume:
            volume["configMap"]["name"] = _plain_name(volume["configMap"]["name"])
    return made


def _plain_name(name: str) -> str:
    return GENERATED.sub(r"\1", name)
