"""Which column of a refused row is at fault, where the system does not say it. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .rows import Deletion


def column_at_fault(value: Any, check: Callable[[str, Any], object]) -> str | None:
    """The first column of a row whose value alone makes ``check`` raise."""
    row = value.key if isinstance(value, Deletion) else value
    if not isinstance(row, dict):
        return None
    for column, field in row.items():
        try:
            check(column, field)
        except Exception:  # noqa: BLE001 - whatever the driver raises
            return str(column)
    return None


def check_text(column: str, value: Any) -> None:
    """Raises ValueError for a string that no encoding of Unicode can hold."""
    if isinstance(value, str):
        value.encode()
