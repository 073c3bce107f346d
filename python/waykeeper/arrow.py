"""Rows as Arrow tables. This module must not know what a row is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa


def table(rows: Sequence[dict[str, Any]]) -> pa.Table:
    """Rows as a table: integers among floats become floats; a value that a row lacks is null."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = {}
    for name in names:
        column = [row.get(name) for row in rows]
        if any(isinstance(value, float) for value in column):
            column = [float(value) if isinstance(value, int) else value for value in column]
        columns[name] = column
    return pa.table(columns)
