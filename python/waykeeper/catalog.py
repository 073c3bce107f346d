"""What comes with the program: scenarios, chips, policies."""

from __future__ import annotations

from typing import Any

from . import _native


def scenarios() -> list[str]:
    """Names of the built-in scenarios, the flagship first."""
    return _native.scenario_names()


def chips() -> list[str]:
    """Names of the built-in chips."""
    return _native.chip_names()


def chip(name: str) -> dict[str, Any]:
    """A built-in chip: cores, clock, caches, memory, registers. Raises `BadInput` for an unknown name."""
    return _native.chip_spec(name)


def policies() -> dict[str, str]:
    """Every policy and its idea in one line."""
    return dict(_native.policy_names())


def policy(name: str) -> dict[str, Any]:
    """What a policy looks at, what it turns, its states and settings. Raises `BadInput` for an unknown name."""
    return _native.policy_description(name)


def rules() -> dict[str, Any]:
    """The model's rules where a scenario's `[model]` says nothing (`crates/silicon/src/rules.rs` has the source of each)."""
    return _native.model_rules()
