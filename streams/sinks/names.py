"""Names of tables and columns in SQL, taken as they are written. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ..errors import ConfigurationError


def table_parts(table: str, sink: str) -> list[str]:
    """The names in ``schema.table``, where a name with a dot is in double quotes. Raises
    ConfigurationError."""
    form = r'"(?:[^"]|"")+"|[^".]+'
    if not re.fullmatch(rf"(?:{form})(?:\.(?:{form}))?", table):
        raise ConfigurationError(f"sink {sink!r}: {table!r} is no name of a table")
    found = re.findall(form, table)
    return [part[1:-1].replace('""', '"') if part[0] == '"' else part for part in found]


def quoted(name: str, mark: str = '"') -> str:
    """``name`` as an identifier, between two ``mark``."""
    return mark + name.replace(mark, mark * 2) + mark


def listed(names: Iterable[str], mark: str = '"') -> str:
    """Identifiers, with commas between them."""
    return ", ".join(quoted(name, mark) for name in names)
