"""The words of anomalies and verdicts."""

from __future__ import annotations

from collections.abc import Sequence

from .history import Position

_LIMIT = 60


def show(value: object, limit: int = _LIMIT) -> str:
    """Serialised data as a person reads it: text as it is, other bytes in hex, long ones cut."""
    if value is None:
        return "null"
    if value in (b"", ""):
        return '""'
    text = value if isinstance(value, str) else repr(value)
    if isinstance(value, bytes):
        try:
            text = value.decode()
        except UnicodeDecodeError:
            text = ""
        if not text.isprintable() or not text:
            text = f"0x{value.hex()}"
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def present(value: object, limit: int = _LIMIT) -> str:
    """Like ``show``, for a table's key or value, where None means that there is none."""
    return "nothing" if value is None else show(value, limit)


def pair(key: bytes | None, value: bytes | None) -> str:
    """A record: its key and value."""
    return f"{show(key)} → {show(value)}"


def times(count: int) -> str:
    return {0: "not at all", 1: "once", 2: "twice"}.get(count, f"{count} times")


def places(positions: Sequence[Position]) -> str:
    """Where records are; at most four are named."""
    more = f" and {len(positions) - 4} more" if len(positions) > 4 else ""
    return ", ".join(str(position) for position in positions[:4]) + more


def several(values: Sequence[object]) -> str:
    """Values in a row; at most four are shown."""
    more = f" and {len(values) - 4} more" if len(values) > 4 else ""
    return ", ".join(show(value) for value in values[:4]) + more
