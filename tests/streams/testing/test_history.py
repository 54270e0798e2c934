"""Histories as data: looking up, and what each level keeps of an output."""

from __future__ import annotations

from collections import Counter

from onceward.streams.testing.history import (
    History,
    Level,
    LogRecord,
    Position,
    frozen,
    project,
    project_sink,
)


def record(partition: int, offset: int, key: bytes, value: bytes, status: str) -> LogRecord:
    return LogRecord(Position("t", partition, offset), key, value, 0, (), status)


RECORDS = [
    record(0, 0, b"a", b"1", "committed"),
    record(0, 1, b"a", b"2", "aborted"),
    record(0, 2, b"a", b"2", "committed"),
    record(1, 0, b"b", b"1", "open"),
    record(1, 1, b"a", b"9", "committed"),
]


def history() -> History:
    return History(log={("t", 1): RECORDS[3:], ("t", 0): RECORDS[:3], ("u", 0): []})


def test_a_topic_is_read_by_partition_and_offset_and_only_what_is_committed() -> None:
    assert history().topic("t") == [RECORDS[0], RECORDS[2], RECORDS[4]]
    assert history().topic("t", status=None) == RECORDS
    assert history().topic("t", status="aborted") == [RECORDS[1]]
    assert history().topic("nowhere") == []


def test_a_record_is_found_by_its_position() -> None:
    assert history().find(Position("t", 1, 1)) is RECORDS[4]
    assert history().find(Position("t", 1, 2)) is None
    assert history().find(Position("v", 0, 0)) is None


def test_a_position_reads_as_people_write_it() -> None:
    assert str(Position("orders", 3, 17)) == "orders-3@17"


def test_levels_keep_sequences_multisets_or_last_values() -> None:
    records = history().topic("t")
    assert project(Level.SEQUENCE, records) == {(0, b"a"): [b"1", b"2"], (1, b"a"): [b"9"]}
    assert project(Level.LAST, records) == {(0, b"a"): b"2", (1, b"a"): b"9"}
    assert project(Level.MULTISET, records) == Counter([(b"a", b"1"), (b"a", b"2"), (b"a", b"9")])
    assert project(Level.NONE, records) is None


def test_levels_of_sinks_take_effects_that_cannot_be_hashed() -> None:
    effects = [({"id": 1}, [1]), ({"id": 2}, [2]), ({"id": 1}, [3])]
    assert project_sink(Level.SEQUENCE, effects) == effects
    assert project_sink(Level.MULTISET, effects) == project_sink(Level.MULTISET, effects[::-1])
    assert project_sink(Level.LAST, effects) == {frozen({"id": 1}): [3], frozen({"id": 2}): [2]}
    assert project_sink(Level.NONE, effects) is None


def test_frozen_values_are_shown_as_what_they_stand_for() -> None:
    assert repr(frozen({"b": {"x": {1}}, "a": [1, 2]})) == "{'a': (1, 2), 'b': {'x': {1}}}"
    assert repr(frozen({})) == "{}"
    assert repr(frozen(set())) == "set()"


def test_frozen_values_are_equal_exactly_for_equal_values() -> None:
    assert frozen({"a": [1, {2}], "b": 1}) == frozen({"b": 1, "a": [1, {2}]})
    assert frozen({"a": [1]}) != frozen({"a": [2]})
    assert hash(frozen([{"a": {1: [2]}}])) == hash(frozen([{"a": {1: [2]}}]))
