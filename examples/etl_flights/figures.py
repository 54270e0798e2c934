"""Counts and sums to compare: from one plain pass over the files, and from the database.

Nothing of onceward is used here. All figures are integers, so equal means equal.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from source_files import read_flights, read_rows

Row = tuple[Any, ...]
Labelled = dict[str, tuple[int, ...]]
DELAYS = ("flights", "departed", "dep_delay", "arrived", "arr_delay", "late", "in_rain")
JOINS = ("flights", "weather", "temp", "plane", "seats", "airline", "dest_name")
LATE_MIN = 15


class Section(NamedTuple):
    """Rows of figures under ``columns``, by carrier, airport or table."""

    title: str
    columns: Sequence[str]
    figures: Labelled


TITLES: Mapping[str, str] = {
    "tables": "rows per table",
    "carriers": "per carrier, from the joined flights (delays in minutes)",
    "totals": "per carrier, from the totals (kept while streaming)",
    "airports": "per airport of departure (what the joins found; temp in 1/100 F)",
    "destinations": "per destination, from the totals (kept while streaming)",
}
_DELAYS_SQL = """count(*), count(dep_delay), sum(dep_delay), count(arr_delay), sum(arr_delay),
    sum(CASE WHEN dep_delay > 15 THEN 1 ELSE 0 END), sum(CASE WHEN precip > 0 THEN 1 ELSE 0 END)"""
_TOTALS_SQL = ", ".join(f"sum({column})" for column in DELAYS)
QUERIES: Mapping[str, str] = {
    "carriers": f"SELECT carrier, {_DELAYS_SQL} FROM flights GROUP BY carrier",
    "totals": f"SELECT carrier, {_TOTALS_SQL} FROM routes GROUP BY carrier",
    "airports": """SELECT origin, count(*), sum(CASE WHEN has_weather THEN 1 ELSE 0 END),
        sum(CAST(round(temp * 100) AS BIGINT)), count(manufacturer), sum(seats), count(airline),
        count(dest_name) FROM flights GROUP BY origin""",
    "destinations": f"SELECT dest, {_TOTALS_SQL} FROM routes GROUP BY dest",
}
TABLES = ("airlines", "airports", "planes", "weather", "flights", "routes")
_DISTINCT_SQL = """SELECT count(*) FROM
    (SELECT DISTINCT time_hour, carrier, flight, origin, dest FROM flights) AS different"""


def of_database(query: Callable[[str], list[Row]]) -> list[Section]:
    """The figures of the tables; ``query`` runs a statement in PostgreSQL or SQLite."""
    rows = [(name, query(f"SELECT count(*) FROM {name}")[0][0]) for name in TABLES]
    rows.append(("different flights", query(_DISTINCT_SQL)[0][0]))
    found = {"tables": rows} | {name: query(statement) for name, statement in QUERIES.items()}
    return [
        _section(name, {row[0]: tuple(int(value or 0) for value in row[1:]) for row in found[name]})
        for name in TITLES
    ]


def of_files(limit: int | None) -> list[Section]:
    """The figures of the files, flight by flight."""
    airlines = {row["carrier"] for row in read_rows("airlines")}
    airports = {row["faa"] for row in read_rows("airports")}
    planes = {row["tailnum"]: int(row["seats"] or 0) for row in read_rows("planes")}
    weather = {(row["origin"], row["time_hour"]): row for row in read_rows("weather")}
    delays: dict[str, dict[str, Counter[str]]] = {
        name: defaultdict(Counter) for name in ("carriers", "destinations")
    }
    joins: dict[str, Counter[str]] = defaultdict(Counter)
    routes, different, count = set(), set(), 0
    for row in read_flights(limit):
        hour = weather.get((row["origin"], row["time_hour"]))
        count += 1
        routes.add((row["carrier"], row["origin"], row["dest"]))
        different.add((row["time_hour"], row["carrier"], row["flight"], row["origin"], row["dest"]))
        in_rain = hour is not None and float(hour["precip"] or 0) > 0
        _add_delays(delays["carriers"][str(row["carrier"])], row, in_rain)
        _add_delays(delays["destinations"][str(row["dest"])], row, in_rain)
        sums = joins[str(row["origin"])]
        sums["flights"] += 1
        sums["weather"] += hour is not None
        sums["temp"] += 0 if hour is None else round(float(hour["temp"] or 0) * 100)
        sums["plane"] += row["tailnum"] in planes
        sums["seats"] += planes.get(row["tailnum"], 0)
        sums["airline"] += row["carrier"] in airlines
        sums["dest_name"] += row["dest"] in airports
    sizes = (len(airlines), len(airports), len(planes), len(weather), count, len(routes))
    carriers = _columns(delays["carriers"], DELAYS)
    tables: Labelled = {name: (size,) for name, size in zip(TABLES, sizes, strict=True)}
    tables["different flights"] = (len(different),)
    found = {
        "tables": tables,
        "carriers": carriers,
        "totals": carriers,
        "airports": _columns(joins, JOINS),
        "destinations": _columns(delays["destinations"], DELAYS),
    }
    return [_section(name, found[name]) for name in TITLES]


def _add_delays(sums: Counter[str], row: Mapping[str, str | None], in_rain: bool) -> None:
    left, came = row["dep_delay"], row["arr_delay"]
    sums["flights"] += 1
    sums["in_rain"] += in_rain
    if left is not None:
        sums["departed"] += 1
        sums["dep_delay"] += int(left)
        sums["late"] += int(left) > LATE_MIN
    if came is not None:
        sums["arrived"] += 1
        sums["arr_delay"] += int(came)


def _columns(sums: Mapping[str, Counter[str]], columns: Sequence[str]) -> Labelled:
    return {name: tuple(row[column] for column in columns) for name, row in sums.items()}


def _section(name: str, figures: Labelled) -> Section:
    columns = {"tables": ("rows",), "airports": JOINS}.get(name, DELAYS)
    return Section(TITLES[name], columns, figures)


def side_by_side(files: Section, database: Section, *, most: int = 20) -> tuple[list[str], int]:
    """A table with a line of the files and one of the database per row, and how many rows differ.

    Of more than ``most`` rows only those that differ are shown.
    """
    labels = sorted({*files.figures, *database.figures})
    wrong = [name for name in labels if files.figures.get(name) != database.figures.get(name)]
    head = f"{'':20}{'':10}" + "".join(f"{column:>13}" for column in files.columns)
    lines = [files.title, head]
    for name in labels if len(labels) <= most else wrong:
        for where, section in (("files", files), ("database", database)):
            row = section.figures.get(name)
            cells = "no such row" if row is None else "".join(f"{value:>13,}" for value in row)
            mark = "   <-- differs" if name in wrong and where == "database" else ""
            lines.append(f"{name if where == 'files' else '':20}{where:10}{cells}{mark}")
    if len(labels) > most:
        for where, section in (("files", files), ("database", database)):
            sums = [sum(column) for column in zip(*section.figures.values(), strict=True)]
            all_of = f"all {len(section.figures)}"
            lines.append(f"{all_of:20}{where:10}" + "".join(f"{value:>13,}" for value in sums))
    lines.append(f"{len(labels)} rows, {len(wrong) or 'none'} differ{'' if wrong else 's'}")
    return lines, len(wrong)
