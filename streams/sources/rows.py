"""What sources give: rows with the position after them, one by one or a chunk at a time. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from ..topic import GivenHeaders


class Row(NamedTuple):
    """One row. ``position`` is where the source goes on once this row is committed: what its
    function gets after a restart.

    A position is made of int, float, str, bool, list and dict, and no two rows in a row have the
    same (rows that share one are given together, as ``Rows``). ``value`` None is a tombstone.
    ``timestamp`` in seconds since the epoch; default: when the row was read.
    """

    position: Any
    value: Any
    key: Any = None
    timestamp: float | None = None
    headers: GivenHeaders | None = None


class BadRow(NamedTuple):
    """A row that cannot become a record: where it is, what is wrong, and as it was found."""

    place: str
    reason: str
    raw: bytes


@dataclass(slots=True)
class Rows:
    """Rows that are committed together, all or none, with the one ``position`` after them.

    ``keys`` and ``timestamps`` (seconds) are parallel to ``values``, and so is ``encoded``: the
    values as bytes, where they need not be encoded any more. ``part`` names which of the positions
    of the split moves, where it has several: a file. ``bad`` come with them. ``place`` says where
    row ``i`` came from, for messages.
    """

    position: Any
    values: Sequence[Any]
    keys: Sequence[Any] | None = None
    timestamps: Sequence[float] | None = None
    encoded: Sequence[bytes] | None = None
    part: str = ""
    bad: list[BadRow] = field(default_factory=list)
    place: Callable[[int], str] | None = None

    def place_of(self, index: int) -> str:
        """Where a row came from, as one would tell a colleague."""
        if self.place is not None:
            return self.place(index)
        return f"row {index} of those up to position {self.position!r}"
