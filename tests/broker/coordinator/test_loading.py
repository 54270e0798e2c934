"""What survives of a coordinator's log when it is loaded."""

from __future__ import annotations

from onceward.broker.coordinator.loading import LoadedLog, Survivor
from onceward.broker.coordinator.log_writer import LoadedBatch


def data(
    offset: int, *keys: bytes, producer_id: int = -1, value: bytes | None = b"v"
) -> LoadedBatch:
    return LoadedBatch(offset, producer_id, 0, None, [(key, value) for key in keys])


def marker(offset: int, producer_id: int, commit: bool) -> LoadedBatch:
    return LoadedBatch(offset, producer_id, 0, commit, [])


def survivors(*batches: LoadedBatch) -> list[tuple[int, int, bytes]]:
    log = LoadedLog()
    for batch in batches:
        log.add(batch)
    return [(found.offset, found.producer_id, found.key) for found in log.survivors()]


def test_an_empty_log_has_nothing_to_replay() -> None:
    log = LoadedLog()
    assert log.last_offset == -1
    assert list(log.survivors()) == []


def test_only_the_newest_record_of_a_key_survives_in_log_order() -> None:
    assert survivors(data(0, b"a", b"b"), data(2, b"a")) == [(1, -1, b"b"), (2, -1, b"a")]


def test_a_tombstone_survives() -> None:
    log = LoadedLog()
    log.add(data(0, b"a"))
    log.add(data(1, b"a", value=None))
    assert list(log.survivors()) == [Survivor(1, -1, b"a", None)]


def test_a_tombstone_ends_what_is_pending_even_when_it_was_replaced_itself() -> None:
    pending = data(0, b"a", b"b", producer_id=7)
    found = survivors(pending, data(2, b"a", value=None), data(3, b"a"))
    assert found == [(1, 7, b"b"), (3, -1, b"a")]
    found = survivors(pending, data(2, b"b", value=None), marker(3, 7, commit=True))
    assert found == [(0, -1, b"a"), (2, -1, b"b")]


def test_a_committed_transaction_counts_as_plain_records() -> None:
    found = survivors(data(0, b"a"), data(1, b"a", b"b", producer_id=7), marker(3, 7, commit=True))
    assert found == [(1, -1, b"a"), (2, -1, b"b")]


def test_a_commit_does_not_hide_a_record_written_while_it_was_open() -> None:
    found = survivors(data(0, b"a", producer_id=7), data(1, b"a"), marker(2, 7, commit=True))
    assert found == [(1, -1, b"a")]


def test_an_aborted_transaction_leaves_the_older_record() -> None:
    found = survivors(data(0, b"a"), data(1, b"a", producer_id=7), marker(2, 7, commit=False))
    assert found == [(0, -1, b"a")]


def test_an_open_transaction_survives_whole_beside_what_is_committed() -> None:
    found = survivors(data(0, b"a"), data(1, b"a", b"b", producer_id=7))
    assert found == [(0, -1, b"a"), (1, 7, b"a"), (2, 7, b"b")]


def test_the_last_offset_is_that_of_the_last_record_or_marker() -> None:
    log = LoadedLog()
    log.add(data(5, b"a", b"b"))
    assert log.last_offset == 6
    log.add(marker(7, 3, commit=True))
    assert log.last_offset == 7
