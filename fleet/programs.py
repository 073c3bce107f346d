"""Helm and Kustomize, built with Go from their modules and kept with the programs of `clients`.

This module must not know how they are used.
"""

from __future__ import annotations

from pathlib import Path

from clients.testbed import tools

HELM = "v4.3.1"
KUSTOMIZE = "v5.8.1"


def helm() -> Path:
    """Helm."""
    return tools.go_program("helm", f"helm.sh/helm/v4@{HELM}", "helm.sh/helm/v4/cmd/helm")


def kustomize() -> Path:
    """Kustomize."""
    module = "sigs.k8s.io/kustomize/kustomize/v5"
    return tools.go_program("kustomize", f"{module}@{KUSTOMIZE}", module)
