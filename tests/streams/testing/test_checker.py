"""The checker: what is right passes, and each thing planted in a right history is found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onceward.streams.testing.checker import KINDS, check
from onceward.streams.testing.history import (
    Event,
    Expectation,
    History,
    Level,
    LogRecord,
    OffsetCommit,
    Position,
    Read,
    Sent,
    project,
    project_sink,
)

from .runs import CHANGELOG, GROUP, correct_run, expect

KEYS = [b"cat", b"dog", b"eel", b"cat", b"dog", b"cat", b"fox", b"cat", b"eel", b"cat", b"dog"]

key_lists = st.lists(st.sampled_from([b"a", b"b", b"c", b"d", b"e"]), max_size=30)
seeds = st.integers(0, 2**32)


def kinds(history: History, expectation: Expectation | None) -> set[str]:
    return {anomaly.kind for anomaly in check(history, expectation)}


# right histories


@given(key_lists, seeds, seeds, st.sampled_from(list(Level)))
@settings(max_examples=150, deadline=None)
def test_a_correct_run_passes_whatever_its_batches_aborts_and_timing(
    keys: list[bytes], seed: int, reference: int, level: Level
) -> None:
    assert check(correct_run(seed, keys), expect(correct_run(reference, keys), level)) == []


@given(key_lists, seeds, seeds)
@settings(max_examples=50, deadline=None)
def test_keys_may_interleave_in_any_way_that_keeps_the_order_of_each(
    keys: list[bytes], seed: int, shuffle: int
) -> None:
    history = correct_run(seed, keys)
    rng = Random(shuffle)
    history.reads.clear()
    history.events.clear()
    for (topic, partition), records in history.log.items():
        if topic != "counts":
            continue
        queues: dict[bytes | None, list[LogRecord]] = {}
        for record in records:
            queues.setdefault(record.key, []).append(record)
        offsets = [record.position.offset for record in records]
        order = [rng.choice([q for q in queues.values() if q]).pop(0) for _ in records]
        history.log[topic, partition] = [
            replace(record, position=Position(topic, partition, offset))
            for record, offset in zip(order, offsets, strict=True)
        ]
    assert check(history, expect(correct_run(1, keys))) == []


def test_an_empty_history_is_right() -> None:
    assert check(History(), None) == []
    assert check(History(), Expectation()) == []


def test_commits_are_judged_in_the_order_in_which_they_took_effect() -> None:
    """Their times may come from a clock that jumped."""
    commits = [OffsetCommit(GROUP, "words", 0, offset, 2000.0 - offset) for offset in range(5)]
    assert check(History(commits=commits), None) == []
    assert kinds(History(commits=commits[::-1]), None) == {"offset went back"}


def test_an_input_of_unknown_outcome_may_be_there_once_or_not_at_all() -> None:
    sent = Sent("words", 0, b"k", b"v", 1.0)
    record = LogRecord(Position("words", 0, 0), b"k", b"v", 0)
    assert check(History(inputs=[sent]), Expectation()) == []
    assert check(History(inputs=[sent], log={("words", 0): [record]}), Expectation()) == []


def test_equal_records_sent_twice_may_be_there_twice() -> None:
    sents = [Sent("words", 0, b"k", b"v", 1.0, 1.1, number) for number in range(2)]
    records = [LogRecord(Position("words", 0, number), b"k", b"v", 0) for number in range(2)]
    assert check(History(inputs=sents, log={("words", 0): records}), Expectation()) == []


def test_a_topic_that_is_fed_and_also_written_by_the_app_is_compared_as_an_output() -> None:
    sents = [Sent("loop", 0, b"k", b"2", 1.0, 1.1, 0)]
    records = [
        LogRecord(Position("loop", 0, number), b"k", value, 0)
        for number, value in enumerate([b"2", b"1", b"2"])
    ]
    history = History(inputs=sents, log={("loop", 0): records})
    expectation = expect_topic("loop", records)
    assert check(history, expectation) == []
    records.append(LogRecord(Position("loop", 0, 3), b"k", b"1", 0))
    assert kinds(history, expectation) == {"duplicated"}


def expect_topic(
    topic: str, records: list[LogRecord], level: Level = Level.SEQUENCE
) -> Expectation:
    return Expectation(outputs={topic: (level, project(level, records))})


def test_a_fed_topic_among_the_expected_outputs_is_judged_as_an_input() -> None:
    sents = [Sent("words", 0, b"k", b"v", 1.0, 1.1, 0)]
    records = [LogRecord(Position("words", 0, 0), b"k", b"v", 0)]
    expectation = expect_topic("words", list(records))
    records.append(LogRecord(Position("words", 0, 1), b"k", b"v", 0))
    found = check(History(inputs=sents, log={("words", 0): records}), expectation)
    assert [anomaly.kind for anomaly in found] == ["input duplicated"]


def test_offsets_committed_twice_and_a_compacted_changelog_are_right() -> None:
    history = correct_run(3, KEYS)
    history.commits.append(history.commits[-1])
    for place, records in history.log.items():
        if place[0] == CHANGELOG:
            last = {record.key: record for record in records if record.status == "committed"}
            history.log[place] = sorted(last.values(), key=lambda record: record.position)
    assert check(history, expect(correct_run(4, KEYS))) == []


def test_a_partition_nobody_has_at_the_end_is_judged_by_its_changelog() -> None:
    history = correct_run(3, KEYS)
    history.tables["counts"].clear()
    assert check(history, expect(correct_run(4, KEYS))) == []


def test_a_deleted_key_is_gone_from_table_and_changelog() -> None:
    history = correct_run(3, KEYS)
    content = history.tables["counts"][b"cat"[0] % 2]
    del content[b"cat"]
    assert kinds(history, None) == {"table differs from changelog"}
    place = (CHANGELOG, b"cat"[0] % 2)
    end = history.log[place][-1].position.offset + 1
    history.log[place].append(LogRecord(Position(*place, end), b"cat", None, 0))
    assert check(history, None) == []


# planted mistakes

Plant = Callable[[History, Random], None]


def output_place(history: History) -> tuple[str, int]:
    return next(place for place in sorted(history.log) if place[0] == "counts")


def committed(history: History, rng: Random) -> tuple[list[LogRecord], int]:
    """Some committed output: the list that holds it and its index."""
    records = history.log[output_place(history)]
    good = [number for number, record in enumerate(records) if record.status == "committed"]
    return records, rng.choice(good)


def drop_an_output(history: History, rng: Random) -> None:
    records, number = committed(history, rng)
    position = records[number].position
    del records[number]
    history.reads = [read for read in history.reads if read.position != position]
    history.events = []


def repeat_an_output(history: History, rng: Random) -> None:
    records, number = committed(history, rng)
    end = records[-1].position.offset + 1
    records.append(
        replace(records[number], position=Position(*output_place(history), end), transaction="")
    )


def garble_an_output(history: History, rng: Random) -> None:
    records, number = committed(history, rng)
    records[number] = replace(records[number], value=b"-1")
    history.reads = []


def swap_two_outputs(history: History, rng: Random) -> None:
    records = history.log[output_place(history)]
    good = [r for r in records if r.status == "committed" and r.key == b"cat"]
    if not good:
        good = [r for r in records if r.status == "committed" and r.key == b"dog"]
    first, second = sorted(rng.sample(range(len(good)), 2))
    a, b = records.index(good[first]), records.index(good[second])
    records[a], records[b] = (
        replace(records[a], value=records[b].value),
        replace(records[b], value=records[a].value),
    )
    history.reads = []


def commit_an_abort(history: History, rng: Random) -> None:
    """A whole aborted transaction becomes visible."""
    name = next(r.transaction for r in history.topic("counts", None) if r.status == "aborted")
    for place, records in history.log.items():
        history.log[place] = [
            replace(record, status="committed") if record.transaction == name else record
            for record in records
        ]
    history.reads = []


def abort_a_commit(history: History, rng: Random) -> None:
    """A whole committed transaction becomes invisible."""
    records, number = committed(history, rng)
    name = records[number].transaction
    for place, others in history.log.items():
        history.log[place] = [
            replace(record, status="aborted") if record.transaction == name else record
            for record in others
        ]
    history.reads = []


def read_what_was_aborted(history: History, rng: Random) -> None:
    record = next(r for r in history.topic("counts", None) if r.status == "aborted")
    history.reads.append(Read("reader-9", 2000.0, record.position, record.key, record.value))


def read_before_the_commit(history: History, rng: Random) -> None:
    event = next(event for event in history.events if event.what == "end_txn commit")
    record = history.find(event.positions[0])
    assert record is not None
    at = event.at - 0.0005
    history.reads.append(Read("reader-9", at, record.position, record.key, record.value))


def read_twice(history: History, rng: Random) -> None:
    number = rng.randrange(len(history.reads))
    history.reads.insert(number, history.reads[number])


def skip_a_read(history: History, rng: Random) -> None:
    reader = [read for read in history.reads if read.reader == "reader-1"]
    partition = [read for read in reader if read.position.partition == 1]
    history.reads.remove(partition[rng.randrange(1, len(partition) - 1)])


def read_something_else(history: History, rng: Random) -> None:
    number = rng.randrange(len(history.reads))
    history.reads[number] = replace(history.reads[number], value=b"-1")


def read_what_is_gone(history: History, rng: Random) -> None:
    history.reads.append(Read("reader-9", 2000.0, Position("counts", 0, 999), b"k", b"v"))


def lose_one_partition_of_a_commit(history: History, rng: Random) -> None:
    records, number = committed(history, rng)
    name = records[number].transaction
    place = output_place(history)
    history.log[place] = [
        replace(record, status="aborted") if record.transaction == name else record
        for record in history.log[place]
    ]
    history.reads = []


def leave_a_transaction_open(history: History, rng: Random) -> None:
    place = output_place(history)
    end = history.log[place][-1].position.offset + 1
    record = LogRecord(Position(*place, end), b"k", b"v", 0, (), "open", "")
    history.log[place].append(record)


def lose_an_acknowledged_input(history: History, rng: Random) -> None:
    sent = rng.choice([sent for sent in history.inputs if sent.offset is not None])
    records = history.log[sent.topic, sent.partition]
    records[:] = [r for r in records if r.position.offset != sent.offset]


def store_an_input_elsewhere(history: History, rng: Random) -> None:
    number = rng.choice([n for n, sent in enumerate(history.inputs) if sent.offset is not None])
    sent = history.inputs[number]
    history.inputs[number] = replace(sent, offset=(sent.offset or 0) + 500)


def repeat_an_input(history: History, rng: Random) -> None:
    records = history.log["words", 1]
    end = records[-1].position.offset + 1
    records.append(replace(rng.choice(records), position=Position("words", 1, end)))


def take_an_input_nobody_sent(history: History, rng: Random) -> None:
    records = history.log["words", 1]
    end = records[-1].position.offset + 1
    records.append(replace(records[0], value=b"?", position=Position("words", 1, end)))


def reorder_inputs(history: History, rng: Random) -> None:
    numbers = [n for n, s in enumerate(history.inputs) if s.partition == 1 and s.offset is not None]
    a, b = numbers[0], numbers[1]
    history.inputs[a], history.inputs[b] = history.inputs[b], history.inputs[a]


def move_an_offset_back(history: History, rng: Random) -> None:
    last = history.commits[-1]
    back = OffsetCommit(GROUP, last.topic, last.partition, last.offset - 1, last.at + 0.1)
    history.commits += [back, replace(last, at=last.at + 0.2)]


def commit_too_little(history: History, rng: Random) -> None:
    place = rng.choice(sorted(history.expected_commits))
    history.expected_commits[place] += 1


def commit_too_much(history: History, rng: Random) -> None:
    place = rng.choice(sorted(history.expected_commits))
    history.expected_commits[place] -= 1


def change_a_table(history: History, rng: Random) -> None:
    content = rng.choice([content for content in history.tables["counts"].values() if content])
    content[rng.choice(sorted(content))] = b"77"


def forget_a_key(history: History, rng: Random) -> None:
    content = rng.choice([content for content in history.tables["counts"].values() if content])
    del content[rng.choice(sorted(content))]


def add_a_key(history: History, rng: Random) -> None:
    history.tables["counts"][0][b"ghost"] = b"1"


def change_table_and_changelog(history: History, rng: Random) -> None:
    partition = 0
    key = sorted(history.tables["counts"][partition])[0]
    history.tables["counts"][partition][key] = b"77"
    records = history.log[CHANGELOG, partition]
    end = records[-1].position.offset + 1
    records.append(LogRecord(Position(CHANGELOG, partition, end), key, b"77", 0))


def fail_a_worker(history: History, rng: Random) -> None:
    history.events.append(Event(1001.0, "worker-1", "worker failed", "ValueError: no"))


def stand_still(history: History, rng: Random) -> None:
    history.waiting.append("worker-1: commit waits in Producer.end_txn")


PLANTS: list[tuple[Plant, str]] = [
    (drop_an_output, "lost"),
    (repeat_an_output, "duplicated"),
    (garble_an_output, "wrong"),
    (swap_two_outputs, "wrong"),
    (commit_an_abort, "duplicated"),
    (abort_a_commit, "lost"),
    (read_what_was_aborted, "aborted read"),
    (read_before_the_commit, "aborted read"),
    (read_twice, "non-monotonic read"),
    (skip_a_read, "skipped read"),
    (read_something_else, "wrong"),
    (read_what_is_gone, "lost"),
    (lose_one_partition_of_a_commit, "torn transaction"),
    (leave_a_transaction_open, "torn transaction"),
    (lose_an_acknowledged_input, "input lost"),
    (store_an_input_elsewhere, "input lost"),
    (repeat_an_input, "input duplicated"),
    (take_an_input_nobody_sent, "wrong"),
    (reorder_inputs, "input reordered"),
    (move_an_offset_back, "offset went back"),
    (commit_too_little, "wrong offset"),
    (commit_too_much, "wrong offset"),
    (change_a_table, "table differs from changelog"),
    (forget_a_key, "table differs from changelog"),
    (add_a_key, "table differs from changelog"),
    (change_table_and_changelog, "table differs"),
    (fail_a_worker, "worker failed"),
    (stand_still, "no progress"),
]
SHOULD_FIND_ALONE = {
    *("read_what_was_aborted", "read_before_the_commit", "read_twice", "skip_a_read"),
    *("read_what_is_gone", "move_an_offset_back", "commit_too_little", "commit_too_much"),
    *("read_something_else", "reorder_inputs", "fail_a_worker", "stand_still"),
    *("swap_two_outputs", "repeat_an_output", "repeat_an_input", "take_an_input_nobody_sent"),
}


@pytest.mark.parametrize(("plant", "kind"), PLANTS, ids=[plant.__name__ for plant, _ in PLANTS])
def test_one_planted_mistake_is_found_in_every_run(plant: Plant, kind: str) -> None:
    expectation = expect(correct_run(0, KEYS))
    planted = 0
    for seed in range(1, 41):
        history = correct_run(seed, KEYS)
        assert check(history, expectation) == []
        try:
            plant(history, Random(seed))
        except StopIteration:
            continue  # this run had no aborted transaction
        found = kinds(history, expectation)
        assert kind in found, f"seed {seed}: {plant.__name__} gave {found}"
        if plant.__name__ in SHOULD_FIND_ALONE:
            assert found == {kind}, f"seed {seed}: {plant.__name__} gave {found}"
        planted += 1
    assert planted > 10


def test_every_kind_of_anomaly_is_planted_somewhere() -> None:
    assert {kind for _, kind in PLANTS} | {"sink differs"} == set(KINDS)


def test_anomalies_come_with_causes_before_consequences() -> None:
    history = correct_run(5, KEYS)
    change_a_table(history, Random(1))
    lose_an_acknowledged_input(history, Random(1))
    fail_a_worker(history, Random(1))
    found = [anomaly.kind for anomaly in check(history, expect(correct_run(0, KEYS)))]
    assert found == sorted(found, key=KINDS.index)
    assert found[0] == "worker failed"


def test_a_lost_output_is_said_to_be_in_an_aborted_transaction_if_it_is() -> None:
    history = correct_run(5, KEYS)
    abort_a_commit(history, Random(2))
    lost = next(a for a in check(history, expect(correct_run(0, KEYS))) if a.kind == "lost")
    assert "only written in aborted transaction" in lost.sentence
    assert lost.positions


# levels


def log_of(*pairs: tuple[bytes, bytes]) -> list[LogRecord]:
    return [
        LogRecord(Position("out", 0, number), key, value, 0)
        for number, (key, value) in enumerate(pairs)
    ]


ABC = [(b"k", b"a"), (b"k", b"b"), (b"k", b"c")]


@pytest.mark.parametrize(
    ("level", "values", "kind"),
    [
        (Level.SEQUENCE, b"abc", None),
        (Level.SEQUENCE, b"acb", "wrong"),
        (Level.SEQUENCE, b"abcd", "wrong"),
        (Level.SEQUENCE, b"abd", "wrong"),
        (Level.MULTISET, b"cab", None),
        (Level.MULTISET, b"caab", "duplicated"),
        (Level.MULTISET, b"ca", "lost"),
        (Level.MULTISET, b"abx", "wrong"),
        (Level.LAST, b"xyc", None),
        (Level.LAST, b"abca", "wrong"),
        (Level.LAST, b"", "lost"),
        (Level.NONE, b"zz", None),
    ],
)
def test_a_level_compares_what_it_says(level: Level, values: bytes, kind: str | None) -> None:
    found = log_of(*((b"k", bytes([value])) for value in values))
    history = History(log={("out", 0): found})
    expectation = expect_topic("out", log_of(*ABC), level)
    assert kinds(history, expectation) == ({kind} if kind else set())


def test_a_key_in_the_wrong_partition_is_wrong_per_sequence() -> None:
    moved = [replace(r, position=Position("out", 1, r.position.offset)) for r in log_of(*ABC)]
    expectation = expect_topic("out", log_of(*ABC))
    assert kinds(History(log={("out", 1): moved}), expectation) == {"lost", "wrong"}


def test_null_keys_and_values_are_compared_like_others() -> None:
    records = [LogRecord(Position("out", 0, n), None, None, 0) for n in range(2)]
    expectation = expect_topic("out", records)
    assert check(History(log={("out", 0): records}), expectation) == []
    assert kinds(History(log={("out", 0): records[:1]}), expectation) == {"lost"}


def test_a_value_processed_again_is_described_so() -> None:
    history = History(log={("out", 0): log_of(*ABC, (b"k", b"d"))})
    (anomaly,) = check(history, expect_topic("out", log_of(*ABC)))
    assert "as if something was processed again" in anomaly.sentence


def test_a_run_without_progress_is_not_blamed_for_what_is_missing() -> None:
    expectation = expect(correct_run(0, KEYS))
    history = correct_run(2, KEYS)
    history.waiting = ["worker-0: fetch"]
    history.tables.clear()
    history.commits.clear()
    history.reads.clear()
    history.events.clear()
    for place in [place for place in history.log if place[0] == "counts"]:
        del history.log[place][1:]
    assert kinds(history, expectation) == {"no progress"}


def test_a_run_without_progress_is_still_blamed_for_duplicates() -> None:
    history = correct_run(2, KEYS)
    history.waiting = ["worker-0: fetch"]
    repeat_an_output(history, Random(1))
    assert kinds(history, expect(correct_run(0, KEYS))) == {"no progress", "duplicated"}


def test_a_run_that_ended_before_its_log_was_read_is_judged_by_the_rest() -> None:
    history = correct_run(2, KEYS)
    fail_a_worker(history, Random(1))
    move_an_offset_back(history, Random(1))
    read_twice(history, Random(1))
    history.log.clear()
    history.expected_commits.clear()
    found = kinds(history, expect(correct_run(0, KEYS)))
    assert found == {"worker failed", "offset went back", "non-monotonic read"}


# sinks

READ_BACK: dict[tuple[str, int], list[LogRecord]] = {("words", 0): []}


@pytest.mark.parametrize(
    ("level", "effects", "part"),
    [
        (Level.SEQUENCE, [{"id": 1}, {"id": 2}], None),
        (Level.SEQUENCE, [{"id": 2}, {"id": 1}], "another order"),
        (Level.SEQUENCE, [{"id": 1}], "{'id': 2} missing"),
        (Level.MULTISET, [{"id": 2}, {"id": 1}], None),
        (Level.MULTISET, [{"id": 2}, {"id": 1}, {"id": 2}], "sink db: {'id': 2} too many"),
        (Level.NONE, [], None),
    ],
)
def test_sinks_are_compared_on_their_level(
    level: Level, effects: list[dict[str, int]], part: str | None
) -> None:
    projection = project_sink(level, [{"id": 1}, {"id": 2}])
    expectation = Expectation(sinks={"db": (level, projection)})
    found = check(History(log=READ_BACK, sinks={"db": list(effects)}), expectation)
    assert [anomaly.kind for anomaly in found] == (["sink differs"] if part else [])
    assert part is None or part in found[0].sentence


def test_a_sink_of_pairs_may_be_compared_by_last_value() -> None:
    expectation = Expectation(
        sinks={"db": (Level.LAST, project_sink(Level.LAST, [("a", 1), ("a", 2), ("b", 1)]))}
    )
    assert check(History(log=READ_BACK, sinks={"db": [("b", 1), ("a", 2)]}), expectation) == []
    (anomaly,) = check(History(log=READ_BACK, sinks={"db": [("b", 1), ("a", 3)]}), expectation)
    assert "other last values for a" in anomaly.sentence
