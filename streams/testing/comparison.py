"""Compares a run's results with what fault-free runs agree on. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence, Set
from typing import Any

from .history import (
    ABORTED,
    Anomaly,
    Expectation,
    History,
    Level,
    LogRecord,
    Position,
    project,
    project_sink,
)
from .wording import pair, places, present, several, show, times

Group = tuple[int | None, bytes | None]
"""Records compared with each other: those of a key, in one partition or (None) in all."""


def fold(history: History, topic: str, partition: int) -> dict[bytes, bytes]:
    """The content of a table partition that a committed changelog adds up to."""
    content: dict[bytes, bytes] = {}
    for record in history.log.get((topic, partition), ()):
        if record.status != "committed" or record.key is None:
            continue
        if record.value is None:
            content.pop(record.key, None)
        else:
            content[record.key] = record.value
    return content


def table_content(history: History, name: str) -> dict[int, dict[bytes, bytes]]:
    """A table's partitions that are not empty; of those nobody has, what the changelog says."""
    topic = history.changelogs.get(name, "")
    logged = {
        partition: fold(history, topic, partition)
        for other, partition in history.log
        if other == topic
    }
    content = {**logged, **history.tables.get(name, {})}
    return {partition: content[partition] for partition in sorted(content) if content[partition]}


# what to expect

_LEVELS: tuple[Level, ...] = (Level.SEQUENCE, Level.MULTISET, Level.LAST)


def expectation(references: Sequence[History]) -> Expectation:
    """What all ``references``, correct runs with the same inputs, agree on, each topic, table and
    sink on the strongest level possible.

    Raises ValueError without references.
    """
    if not references:
        raise ValueError("an expectation takes at least one reference run")
    first, *others = references
    topics = sorted({topic for history in references for topic, _ in history.log})
    # How many writes of a key a changelog record stands for is a matter of timing.
    changelogs = {topic for history in references for topic in history.changelogs.values()}
    result = Expectation()
    for topic in topics:
        levels = _LEVELS[2:] if topic in changelogs else _LEVELS
        projected = ((each, [project(each, h.topic(topic)) for h in references]) for each in levels)
        result.outputs[topic] = _agreed(projected)
        if result.outputs[topic][0] is Level.NONE:
            result.differences[topic] = _difference(references, topic)
    for name in sorted({name for history in references for name in history.changelogs}):
        content = table_content(first, name)
        if all(table_content(other, name) == content for other in others):
            result.tables[name] = content
    for name in sorted({name for history in references for name in history.sinks}):
        effects = [history.sinks.get(name, []) for history in references]
        pairs = all(isinstance(e, tuple) and len(e) == 2 for each in effects for e in each)
        levels = _LEVELS if pairs else _LEVELS[:2]
        projected = ((each, [project_sink(each, e) for e in effects]) for each in levels)
        result.sinks[name] = _agreed(projected)
    return result


def _difference(references: Sequence[History], topic: str) -> str:
    """An example of a committed record that not every run has equally often."""
    counts = [project(Level.MULTISET, history.topic(topic)) for history in references]
    for record in counts[0] if all(counts) else ():
        found = [count[record] for count in counts]
        if len(set(found)) > 1:
            return f"{pair(*record)} comes {times(found[0])} in one run, {_else(found)} in another"
    return (
        f"{min(map(len, counts))} different records in one run, {max(map(len, counts))} in another"
    )


def _else(found: Sequence[int]) -> str:
    return times(next(count for count in found if count != found[0]))


def _agreed(projected: Iterable[tuple[Level, list[Any]]]) -> tuple[Level, Any]:
    for level, (first, *others) in projected:
        if all(other == first for other in others):
            return level, first
    return Level.NONE, None


# outputs


def compare_outputs(
    history: History, expectation: Expectation, skip: Set[str] = frozenset()
) -> Iterator[Anomaly]:
    """Lost, duplicated and wrong records per key; ``skip`` names topics judged elsewhere."""
    for topic, (level, projection) in sorted(expectation.outputs.items()):
        if topic in skip:
            continue
        if level is Level.LAST:
            if not history.waiting:
                yield from _last_values(history, topic, projection)
        elif level is not Level.NONE:
            expected = _expected_groups(level, projection)
            found = _found_groups(level, history.topic(topic))
            for group in sorted(expected.keys() | found.keys(), key=_group_order):
                values, records = expected.get(group, []), found.get(group, [])
                ordered = level is Level.SEQUENCE
                yield from _group(history, topic, group[1], values, records, ordered)


def _expected_groups(level: Level, projection: Any) -> dict[Group, list[bytes | None]]:
    if level is Level.SEQUENCE:
        return dict(projection)
    groups: dict[Group, list[bytes | None]] = defaultdict(list)
    for (key, value), count in projection.items():
        groups[None, key] += [value] * count
    return groups


def _found_groups(level: Level, records: Sequence[LogRecord]) -> dict[Group, list[LogRecord]]:
    groups: dict[Group, list[LogRecord]] = defaultdict(list)
    for record in records:
        partition = record.position.partition if level is Level.SEQUENCE else None
        groups[partition, record.key].append(record)
    return groups


def _group_order(group: Group) -> tuple[int, bool, bytes]:
    partition, key = group
    return (-1 if partition is None else partition, key is not None, key or b"")


def _group(
    history: History,
    topic: str,
    key: bytes | None,
    expected: list[bytes | None],
    records: list[LogRecord],
    ordered: bool,
) -> Iterator[Anomaly]:
    found = [record.value for record in records]
    missing = list((Counter(expected) - Counter(found)).elements())
    extra = Counter(found) - Counter(expected)
    again = [value for value in extra if value in expected]
    strange = [value for value in extra if value not in expected]
    where = f"{topic}, key {show(key)}"

    def anomaly(kind: str, sentence: str, positions: list[Position]) -> Anomaly:
        if not ordered:
            order = {value: number for number, value in enumerate(expected)}
            shown = sorted(found, key=lambda value: order.get(value, len(order)))
            return Anomaly(kind, sentence, key, positions, expected, shown)
        return Anomaly(kind, sentence, key, positions, expected, found)

    for value in again:
        positions = [record.position for record in records if record.value == value]
        yield anomaly(
            "duplicated",
            f"{topic}: {pair(key, value)} is there {times(len(positions))}, at "
            f"{places(positions)}; expected {times(expected.count(value))}",
            positions,
        )
    if strange:
        positions = [record.position for record in records if record.value in strange]
        sentence = f"{where}: {several(strange)} at {places(positions)} was not expected"
        if missing and not history.waiting:
            sentence += f"; {several(missing)} was, but is not there"
        elif ordered and found[: len(expected)] == expected:
            sentence += ": the key goes on after its end, as if something was processed again"
        yield anomaly("wrong", sentence, positions)
    elif missing and not history.waiting:
        yield anomaly("lost", *_missing(history, topic, key, missing))
    if ordered and not missing and not extra and found != expected:
        moved = [r.position for r, value in zip(records, expected, strict=True) if r.value != value]
        yield anomaly("wrong", f"{where}: the right values in another order", moved)


def _missing(
    history: History, topic: str, key: bytes | None, values: list[bytes | None]
) -> tuple[str, list[Position]]:
    """The sentence for lost records, and where they are in transactions that did not commit."""
    attempts = [
        record
        for record in history.topic(topic, status=None)
        if record.key == key and record.value in values and record.status != "committed"
    ]
    positions = [record.position for record in attempts]
    what = f"{topic}: {pair(key, values[0])}"
    if len(values) > 1:
        what += f" and {len(values) - 1} more of the key"
    if not attempts:
        return f"{what} was never written", positions
    how = "aborted" if all(r.status == ABORTED for r in attempts) else "uncommitted"
    plural = "s" * (len(attempts) > 1)
    return f"{what} was only written in {how} transaction{plural}: {places(positions)}", positions


def _last_values(history: History, topic: str, expected: dict[Any, Any]) -> Iterator[Anomaly]:
    last: dict[Group, LogRecord] = {
        (record.position.partition, record.key): record for record in history.topic(topic)
    }
    for group in sorted(expected.keys() | last.keys(), key=_group_order):
        key, record = group[1], last.get(group)
        if record is None:
            sentence, positions = _missing(history, topic, key, [expected[group]])
            yield Anomaly("lost", sentence, key, positions, [expected[group]], [])
            continue
        wanted = [expected[group]] if group in expected else []
        if wanted != [record.value]:
            yield Anomaly(
                "wrong",
                f"{topic}: the last value of key {show(key)} is {show(record.value)} at "
                f"{record.position}, expected {several(wanted) or 'no such key'}",
                key,
                [record.position],
                wanted,
                [record.value],
            )


# tables and sinks


def compare_tables(history: History, expectation: Expectation) -> Iterator[Anomaly]:
    """Tables key by key. A partition that no worker had at the end is taken from its changelog."""
    for name, partitions in sorted(expectation.tables.items()):
        topic = history.changelogs.get(name, "")
        contents = table_content(history, name)
        for partition in sorted(partitions.keys() | contents.keys()):
            expected, content = partitions.get(partition, {}), contents.get(partition, {})
            for key in sorted(expected.keys() | content.keys()):
                if expected.get(key) == content.get(key):
                    continue
                yield Anomaly(
                    "table differs",
                    f"table {name}, partition {partition}, key {show(key)}: expected "
                    f"{present(expected.get(key))}, found {present(content.get(key))}",
                    key,
                    [
                        record.position
                        for record in history.log.get((topic, partition), ())
                        if record.key == key
                    ],
                    [expected.get(key)],
                    [content.get(key)],
                )


def compare_sinks(history: History, expectation: Expectation) -> Iterator[Anomaly]:
    """A sink's effects as a whole."""
    for name, (level, expected) in sorted(expectation.sinks.items()):
        effects = history.sinks.get(name, [])
        found = project_sink(level, effects)
        if found == expected:
            continue
        if level is Level.LAST:
            wrong = [key for key in expected.keys() | found.keys() if _differ(expected, found, key)]
            wrong.sort(key=repr)
            sentence = f"other last values for {several(wrong)}"
            wanted = [(key, expected[key]) for key in wrong if key in expected]
            got = [(key, found[key]) for key in wrong if key in found]
        else:
            wanted, got = _effects(expected), _effects(found)
            parts = []
            if missing := _surplus(wanted, got):
                parts.append(f"{several(missing)} missing")
            if extra := _surplus(got, wanted):
                parts.append(f"{several(extra)} too many")
            sentence = "; ".join(parts) or "the right effects in another order"
        yield Anomaly("sink differs", f"sink {name}: {sentence}", None, [], wanted, got)


def _differ(expected: dict[Any, Any], found: dict[Any, Any], key: Any) -> bool:
    return key not in expected or key not in found or expected[key] != found[key]


def _effects(projection: Any) -> list[Any]:
    if isinstance(projection, Counter):
        return sorted(projection.elements(), key=repr)
    return list(projection)


def _surplus(effects: list[Any], others: list[Any]) -> list[Any]:
    """What ``effects`` has more of than ``others``."""
    rest = list(others)
    surplus = []
    for effect in effects:
        if effect in rest:
            rest.remove(effect)
        else:
            surplus.append(effect)
    return surplus
