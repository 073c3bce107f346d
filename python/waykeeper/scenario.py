"""Scenarios: what runs on the virtual server. A scenario is immutable: changing a key returns a new one.

This module has the TOML text and the changed keys. The compiled part reads the keys, so error messages are the same as on
the command line.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import tomli_w

from . import _native

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@dataclass(frozen=True)
class Scenario:
    """A scenario: chip, devices, workloads, length of the run (docs/scenarios.md explains every key).

    Create one with `Scenario.load`, `Scenario.parse` or `Scenario.from_dict`. It can be pickled and hashed.
    """

    text: str = field(repr=False)
    file: str = "<text>"
    folder: str | None = None
    changes: tuple[tuple[str, str], ...] = ()

    @staticmethod
    def load(name: str | os.PathLike[str]) -> Scenario:
        """A built-in scenario by its name, or a file by its path.

        Raises `BadInput` if it does not exist or is not TOML.
        """
        name = os.fspath(name)
        source = _native.Source.open(name)
        if name in _native.scenario_names():
            return Scenario(_native.scenario_text(name), name)
        return Scenario(source.text, name, str(Path(name).parent))

    @staticmethod
    def parse(text: str, file: str = "<text>", folder: str | None = None) -> Scenario:
        """A scenario from its TOML text; paths in it are relative to `folder`. Raises `BadInput` if it is not TOML."""
        _native.Source(text, file, folder)
        return Scenario(text, file, folder)

    @staticmethod
    def from_dict(tables: Mapping[str, Any], folder: str | None = None) -> Scenario:
        """A scenario from a dictionary with the structure of its TOML file."""
        return Scenario.parse(tomli_w.dumps(_plain(tables)), str(tables.get("name", "<dict>")), folder)

    def to_dict(self) -> dict[str, Any]:
        """The scenario as a dictionary, without the keys that `set` changed."""
        return tomllib.loads(self.text)

    def set(self, key: str, value: Any) -> Scenario:
        """The scenario with a dotted key set: `workload.fio.block`, `nic.nic0.ring`, `knobs.dca_ways`, `policy.a4.t1`.

        Raises `BadInput` if the scenario has no such key. `check` and `run` validate the value.
        """
        try:
            text = json.dumps(_plain(value))
        except TypeError as why:
            raise _native.BadInput(f"`{key}` is {value!r}; it must be a number, a text or a list") from why
        changed = replace(self, changes=(*self.changes, (key, text)))
        changed.source()
        return changed

    def update(self, changes: Mapping[str, Any]) -> Scenario:
        """The scenario with several keys set, in order."""
        scenario = self
        for key, value in changes.items():
            scenario = scenario.set(key, value)
        return scenario

    def point(self) -> Scenario:
        """The scenario without its `[[sweep]]`: the single point of its own keys."""
        return self.set("sweep", []) if "sweep" in self.to_dict() else self

    def check(self) -> dict[str, Any]:
        """Checks the whole scenario as a run would; returns a summary. Raises `BadInput` with file, line, key and value."""
        return self.source().check()

    def source(self) -> _native.Source:
        """The scenario as an object of the compiled part."""
        source = _native.Source(self.text, self.file, self.folder)
        for key, value in self.changes:
            source = source.with_key(key, json.loads(value))
        return source

    def digest(self) -> str:
        """A hash of its content: equal scenarios have equal digests."""
        content = json.dumps([self.text, self.folder, self.changes])
        return hashlib.sha256(content.encode()).hexdigest()

    def _repr_html_(self) -> str:
        about = self.check()
        rows = "".join(
            f"<tr><td>{_html(w['name'])}</td><td>{_html(w['program'])}</td><td>{_html(w['cores'])}</td>"
            f"<td>{'HPW' if w['priority'] == 'high' else 'LPW'}</td></tr>"
            for w in about["workloads"]
        )
        return (
            f"<b>{_html(about['name'])}</b> on {_html(about['chip'])}: {_html(about['about'])}"
            "<table><tr><th>workload</th><th>program</th><th>cores</th><th>priority</th></tr>"
            f"{rows}</table>"
        )


def as_scenario(scenario: Scenario | str | os.PathLike[str] | Mapping[str, Any]) -> Scenario:
    """A scenario from any accepted form: a Scenario, a name, a path, or a dictionary."""
    if isinstance(scenario, Scenario):
        return scenario
    if isinstance(scenario, Mapping):
        return Scenario.from_dict(scenario)
    if not isinstance(scenario, (str, os.PathLike)):
        raise _native.BadInput(f"the scenario is {scenario!r}; it must be a Scenario, a name, a path or a dictionary")
    return Scenario.load(scenario)


def _plain(value: Any) -> Any:
    """Converts NumPy's numbers and tuples into Python's own, which TOML and JSON can write."""
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    if hasattr(value, "item") and not isinstance(value, (str, bytes)):
        return value.item()
    return value


def _html(text: Any) -> str:
    from html import escape

    return escape(str(text))
