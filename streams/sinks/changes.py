"""What a batch of rows and deletions does to a table in the end, as few statements. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from .rows import Deletion, Row, rows_alike, runs


class Change(NamedTuple):
    """Rows that one statement can write or delete: all with the same columns, in this order."""

    is_deletion: bool
    columns: tuple[str, ...]
    rows: list[Row]


def columns_in(values: Sequence[Row | Deletion]) -> set[tuple[str, ...]]:
    """The different lists of columns that occur."""
    if (alike := rows_alike(values)) is not None:
        return {alike[0]}
    return {tuple(v.key) if isinstance(v, Deletion) else tuple(v) for v in values}


def insertions(values: Sequence[Row | Deletion]) -> Iterator[Change]:
    """Every row by itself; rows between two deletions are grouped by their columns."""
    if (alike := rows_alike(values)) is not None:
        yield Change(False, *alike)
        return
    groups: dict[tuple[str, ...], list[Row]] = {}
    for run in runs(values):
        if run.is_deletion:
            yield from _changes(groups)
            groups = {}
            yield Change(True, run.columns, run.rows)
        else:
            groups.setdefault(run.columns, []).extend(run.rows)
    yield from _changes(groups)


def upserts(values: Sequence[Row | Deletion], key: Sequence[str]) -> Iterator[Change]:
    """The last state of each key, once: what several upserts of a key name adds up.

    Only where equal keys of the table are equal in Python too.
    """
    key_of = itemgetter(*key)
    deleted: dict[Any, Row] = {}
    last: dict[Any, Row] = {}
    for value in values:
        if isinstance(value, Deletion):
            name = key_of(value.key)
            deleted[name] = value.key
            last.pop(name, None)
            continue
        name = key_of(value)
        before = last.get(name)
        if before is not None and before.keys() != value.keys():
            value = {**before, **value}
        last[name] = value
    if deleted:
        yield Change(True, tuple(key), list(deleted.values()))
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in last.values():
        groups.setdefault(tuple(row), []).append(row)
    yield from _changes(groups)


def upserts_in_order(values: Sequence[Row | Deletion], key: Sequence[str]) -> Iterator[Change]:
    """Run after run, as keys that differ in Python may be one key to the table (``a`` and ``A``).

    Within a run the last row of a key counts.
    """
    for run in runs(values):
        last = {tuple((type(row[c]), row[c]) for c in key): row for row in run.rows}
        yield Change(run.is_deletion, run.columns, list(last.values()))


def _changes(groups: dict[tuple[str, ...], list[Row]]) -> Iterator[Change]:
    for columns, rows in groups.items():
        yield Change(False, columns, rows)
