"""What serializers raise. All of it is ValueError or TypeError where a record is at fault, so that
it is treated like any other record that cannot be encoded or decoded."""

from __future__ import annotations


class UnsupportedType(TypeError):
    """No schema can be made of a Python type, or a type does not fit the schema given for it."""


class DoesNotFit(ValueError):
    """A value does not fit its schema, so it is not sent. ``path``: where, e.g.
    ``order.lines[2].price``."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class Undecodable(ValueError):
    """Bytes that are not what their schema says, or whose schema is not to be had."""


class NotPrepared(RuntimeError):
    """A record was to be sent before its schema was registered: see ``Topic.prepare``."""


class SchemasWanted(Undecodable):
    """Schemas must be fetched first; only where fetching would block an event loop."""


def shown(value: object, limit: int = 60) -> str:
    """A value in an error message."""
    text = repr(value)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


class SchemasUnavailable(ValueError):
    """The registry does not answer, or refuses what a topic needs: a matter of the set-up, not of
    one record."""
