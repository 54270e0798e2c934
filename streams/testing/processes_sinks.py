"""What an app's sinks hold after a run with real processes."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from ..app import App
from ..sinks import Sink
from ..sinks.database import DatabaseSink
from ..sinks.sqlite import SqliteSink


def read_sinks(app: App, directory: Path) -> dict[str, list[Any]]:
    """Sink -> rows, of those that can be read; relative paths begin in ``directory``.

    Tables of a database are read over a connection of the sink and sorted: where a server puts a
    row that was changed says nothing about when. A sink with a method
    ``read_back()`` says itself what it holds; what others hold is for the user's own check. Raises
    what the database raises.
    """
    found: dict[str, list[Any]] = {}
    for sink in app.sinks:
        own = getattr(sink, "read_back", None)
        table = getattr(sink, "table", None)
        if own is not None:
            found[sink.name] = list(own())
        elif isinstance(sink, SqliteSink):
            path = directory / sink.path
            connection = sqlite3.connect(path) if path.exists() else None
            found[sink.name] = [] if connection is None else _rows(connection, f'"{sink.table}"')
        elif isinstance(sink, DatabaseSink) and isinstance(table, str):
            mark = sink.quote
            inner = table if '"' in table else '"' + table.replace(".", '"."') + '"'
            quoted = inner.replace('"', mark)
            found[sink.name] = sorted(_rows(sink.connect(), quoted), key=repr)
    return found


def lasting_sinks(app: App) -> Iterator[Sink]:
    """Those whose content of one run would still be there in the next one."""
    for sink in app.sinks:
        if not isinstance(sink, SqliteSink) or Path(sink.path).is_absolute():
            yield sink


def _rows(connection: Any, table: str) -> list[dict[str, Any]]:
    """Of any DB-API connection."""
    with closing(connection):
        cursor = connection.cursor()
        cursor.execute(f"SELECT * FROM {table}")
        columns = [column[0] for column in cursor.description]
        return [dict(zip(columns, row, strict=True)) for row in cursor.fetchall()]
