"""Tables' transactions against a model: read your writes, undo, commit, drop; on every store."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onceward.streams.state import ABSENT, MemoryStore, RocksDBStore, Store, StoreTransaction

KEYS = [b"a", b"b", b"c", b"d"]


def encode(value: Any) -> bytes:
    return json.dumps(value).encode()


values = st.one_of(
    st.integers(-5, 5), st.text(max_size=2), st.booleans(), st.none(), st.lists(st.integers(0, 3))
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from(KEYS), values),
        st.tuples(st.just("delete"), st.sampled_from(KEYS), st.none()),
        st.tuples(
            st.sampled_from(["mark", "undo", "prepare", "flush", "drop", "read"]),
            st.none(),
            st.none(),
        ),
    ),
    max_size=40,
)


def fold(
    committed: dict[bytes, Any], keys: list[bytes | None], changed: list[bytes | None]
) -> dict[bytes, Any]:
    """What a changelog leads to."""
    folded = dict(committed)
    for key, data in zip(keys, changed, strict=True):
        assert key is not None
        if data is None:
            folded.pop(key, None)
        else:
            folded[key] = json.loads(data)
    return folded


def run(store: Store, actions: list[tuple[str, Any, Any]]) -> None:
    """Applies every action to the real thing and to dicts, and compares after each."""
    transaction = StoreTransaction(store, encode, json.loads)
    transaction.mark()
    committed: dict[bytes, Any] = {key: json.loads(data) for key, data in store.items()}
    now, marked = dict(committed), dict(committed)
    prepared: dict[bytes, Any] | None = None
    checkpoint = store.checkpoint
    for action, key, value in actions:
        if action == "put":
            transaction.put(key, value)
            now[key] = value
        elif action == "delete":
            transaction.delete(key)
            now.pop(key, None)
        elif action == "mark":
            transaction.mark()
            marked = dict(now)
        elif action == "undo":
            transaction.roll_back()
            now = dict(marked)
        elif action == "prepare" and prepared is None:
            keys, changed = transaction.prepare()
            assert not transaction.is_dirty
            assert fold(committed, keys, changed) == now
            prepared, marked = dict(now), dict(now)
        elif action == "flush" and prepared is not None:
            checkpoint += 1
            transaction.flush(checkpoint)
            committed, prepared = prepared, None
        elif action == "drop":
            transaction.drop()
            now, marked, prepared = dict(committed), dict(committed), None
        for each in KEYS:
            found = transaction.get(each)
            assert (now.get(each, ABSENT)) == found
            assert type(found) is type(now.get(each, ABSENT))
        assert dict(transaction.items()) == now
        assert [key for key, _ in transaction.items()] == sorted(now)
        assert dict(transaction.committed_items()) == committed
        assert store.checkpoint == checkpoint


@given(steps)
@settings(max_examples=150, deadline=None)
def test_a_transaction_over_memory_behaves_as_a_dict(actions: list[tuple[str, Any, Any]]) -> None:
    run(MemoryStore(), actions)


def test_a_transaction_over_rocksdb_behaves_as_a_dict(tmp_path: Path) -> None:
    store = RocksDBStore(str(tmp_path / "db"))

    @given(steps)
    @settings(max_examples=60, deadline=None)
    def check(actions: list[tuple[str, Any, Any]]) -> None:
        store.clear()
        run(store, actions)

    check()
    store.close()


def test_a_second_transaction_is_not_prepared_while_the_first_is_open() -> None:
    transaction = StoreTransaction(MemoryStore(), encode, json.loads)
    transaction.put(b"k", 1)
    transaction.prepare()
    transaction.put(b"k", 2)
    with pytest.raises(RuntimeError, match="prepare without flush"):
        transaction.prepare()
    transaction.flush(1)
    assert transaction.store.get(b"k") == b"1"
    assert transaction.get(b"k") == 2
    assert transaction.prepare() == ([b"k"], [b"2"])


def test_mutating_what_was_read_or_written_changes_nothing() -> None:
    transaction = StoreTransaction(MemoryStore(), encode, json.loads)
    mine = [1]
    transaction.put(b"k", mine)
    mine.append(2)
    transaction.get(b"k").append(3)
    assert transaction.get(b"k") == [1]


def test_the_changelog_has_one_record_per_key() -> None:
    transaction = StoreTransaction(MemoryStore(), encode, json.loads)
    for n in range(10):
        transaction.put(b"k", n)
    transaction.delete(b"gone")
    assert transaction.prepare() == ([b"k", b"gone"], [b"9", None])


def test_rocksdb_keeps_data_and_checkpoint_over_a_restart(tmp_path: Path) -> None:
    path = str(tmp_path / "db")
    store = RocksDBStore(path)
    assert store.checkpoint == 0
    store.write([(b"a", b"1"), (b"b", b"2")], 7)
    store.write([(b"a", None)], 9)
    store.close()
    store.close()
    store = RocksDBStore(path)
    assert (list(store.items()), store.checkpoint) == ([(b"b", b"2")], 9)
    store.clear()
    assert (list(store.items()), store.checkpoint) == ([], 0)
    store.close()
    with pytest.raises(RuntimeError, match="closed"):
        store.get(b"a")
