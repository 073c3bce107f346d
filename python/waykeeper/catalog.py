"""Built-in scenarios, chips and policies."""

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
    """All policies, each with a description of one line."""
    return dict(_native.policy_names())


def policy(name: str) -> dict[str, Any]:
    """Inputs, knobs, states and settings of a policy. Raises `BadInput` for an unknown name."""
    return _native.policy_description(name)


def rules() -> dict[str, Any]:
    """The default rules of the model, which `[model]` of a scenario changes (`crates/silicon/src/rules.rs` has their sources)."""
    return _native.model_rules()
