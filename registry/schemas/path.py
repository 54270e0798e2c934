"""Where something lies in a schema."""

from __future__ import annotations

from dataclasses import dataclass

_MAX_SEGMENTS = 60
_MAX_NAME = 100


@dataclass(slots=True, eq=False)  # not frozen: made for every node of every comparison
class Path:
    """A place as a chain of names, written out only when it is shown.

    Schemas may be nested and named without sense: a text shows the last 60 names, each of them cut
    at 100 characters.
    """

    segment: str
    parent: Path | None = None

    def __truediv__(self, segment: str | int) -> Path:
        return Path(str(segment), self)

    def __str__(self) -> str:
        names: list[str] = []
        at: Path | None = self
        while at is not None and len(names) < _MAX_SEGMENTS:
            name = at.segment
            names.append(name if len(name) <= _MAX_NAME else name[: _MAX_NAME - 1] + "…")
            at = at.parent
        if at is not None:
            names.append("…")
        return "/".join(reversed(names))
