"""What runs on the virtual server. A scenario is a value: changing a key makes another one.

Knows the TOML text and changed keys; the reader of the keys is the compiled part, so that a message is the same here as on
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
    """A scenario: chip, devices, workloads, how long (docs/scenarios.md has every key).

    Make one with `Scenario.load`, `Scenario.parse` or `Scenario.from_dict`; it can be pickled and hashed.
    """

    text: str = field(repr=False)
    file: str = "<text>"
    folder: str | None = None
    changes: tuple[tuple[str, str], ...] = ()

    @staticmethod
    def load(name: str | os.PathLike[str]) -> Scenario:
        """A built-in scenario by its name, or a file by its path.

        Raises `BadInput` if there is none or it is not TOML.
        """
        name = os.fspath(name)
        _native.Source.open(name)
        if name in _native.scenario_names():
            return Scenario(_native.scenario_text(name), name)
        path = Path(name)
        return Scenario(path.read_text(encoding="utf-8"), name, str(path.parent))

    @staticmethod
    def parse(text: str, file: str = "<text>", folder: str | None = None) -> Scenario:
        """A scenario's TOML text; paths in it are relative to `folder`. Raises `BadInput` if it is not TOML."""
        _native.Source(text, file, folder)
        return Scenario(text, file, folder)

    @staticmethod
    def from_dict(tables: Mapping[str, Any], folder: str | None = None) -> Scenario:
        """A scenario from the dictionary that its TOML would give."""
        return Scenario.parse(tomli_w.dumps(_plain(tables)), str(tables.get("name", "<dict>")), folder)

    def to_dict(self) -> dict[str, Any]:
        """The scenario as a dictionary, without the keys that `set` changed."""
        return tomllib.loads(self.text)

    def set(self, key: str, value: Any) -> Scenario:
        """The scenario with a dotted key set: `workload.fio.block`, `nic.nic0.ring`, `knobs.dca_ways`, `policy.a4.t1`.

        Raises `BadInput` if the scenario has no such place. Whether the value will do shows in `check` or `run`.
        """
        try:
            text = json.dumps(_plain(value))
        except TypeError as why:
            raise _native.BadInput(
                f"`{key}`: {value!r} is no value of a scenario; write a number, a text or a list"
            ) from why
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
        """The scenario without its `[[sweep]]`: one point, where its own keys stand."""
        return self.set("sweep", []) if "sweep" in self.to_dict() else self

    def check(self) -> dict[str, Any]:
        """Reads all of it as a run would, and says what it is. Raises `BadInput` with file, line, key and value."""
        return self.source().check()

    def source(self) -> _native.Source:
        """The compiled part's view of it."""
        source = _native.Source(self.text, self.file, self.folder)
        for key, value in self.changes:
            source = source.with_key(key, json.loads(value))
        return source

    def digest(self) -> str:
        """A name for its content: equal scenarios have equal digests."""
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
    """Whatever a caller may mean by a scenario: one, a name, a path, or a dictionary."""
    if isinstance(scenario, Scenario):
        return scenario
    if isinstance(scenario, Mapping):
        return Scenario.from_dict(scenario)
    if not isinstance(scenario, (str, os.PathLike)):
        raise _native.BadInput(f"a scenario is {scenario!r}; it must be a Scenario, a name, a path or a dictionary")
    return Scenario.load(scenario)


def _plain(value: Any) -> Any:
    """NumPy's numbers and tuples as Python's own, so that TOML and JSON can write them."""
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
