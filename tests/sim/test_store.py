"""The store that stands for RocksDB in simulation: one suite with the real stores, and crashes."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from onceward.streams.state import MemoryStore, RocksDBStore, Store
from onceward.streams.testing.sim import RocksSlot, SimDisk, SimSlot, SimStore, World

PATH = "/tables/counts-0"


@pytest.fixture(params=["memory", "rocksdb", "simulated"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    makers: dict[str, Callable[[], Store]] = {
        "memory": MemoryStore,
        "rocksdb": lambda: RocksDBStore(str(tmp_path / "store")),
        "simulated": lambda: SimStore(SimDisk(), PATH),
    }
    return makers[request.param]()


def test_a_store_holds_what_was_written_in_the_order_of_the_keys(store: Store) -> None:
    assert (store.checkpoint, store.get(b"a"), list(store.items())) == (0, None, [])
    store.write([(b"b", b"2"), (b"a", b"1"), (b"", b""), (b"c", b"3")], 5)
    store.write([(b"b", None), (b"c", b"4"), (b"gone", None)], 7)
    assert store.get(b"b") is None
    assert list(store.items()) == [(b"", b""), (b"a", b"1"), (b"c", b"4")]
    assert store.checkpoint == 7
    store.clear()
    assert (store.checkpoint, list(store.items())) == (0, [])
    store.write([(b"a", b"9")], 1)
    assert (store.checkpoint, store.get(b"a")) == (1, b"9")
    store.close()
    store.close()


def fill(disk: SimDisk, count: int = 20) -> list[dict[bytes, bytes]]:
    """Writes with a clear in the middle; returns the content after each, the empty one first."""
    store = SimStore(disk, PATH)
    content: dict[bytes, bytes] = {}
    states = [dict(content)]
    for number in range(count):
        if number == count // 2:
            store.clear()
            content.clear()
            states.append({})
        key, value = b"%d" % (number % 5), b"v" * number
        store.write([(key, value), (b"last", b"%d" % number)], number + 1)
        content |= {key: value, b"last": b"%d" % number}
        states.append(dict(content))
    return states


def test_a_store_is_whole_again_after_a_kill() -> None:
    disk = SimDisk()
    states = fill(disk)
    disk.kill()
    store = SimStore(disk, PATH)
    assert dict(store.items()) == states[-1]
    assert store.checkpoint == 20


def test_after_a_power_cut_a_prefix_of_the_writes_is_there_and_can_be_written_on() -> None:
    kept = set()
    for seed in range(100):
        disk = SimDisk()
        disk.makedirs("/tables")
        disk.fsync_dir("/")
        disk.open(PATH, create=True).fsync_now()
        states = fill(disk, 1 + seed % 20)
        disk.power_cut(random.Random(seed))
        store = SimStore(disk, PATH)
        found = dict(store.items())
        assert found in states
        if found:
            assert store.checkpoint == int(found[b"last"]) + 1
        kept.add(store.checkpoint)
        store.write([(b"new", b"1")], 99)
        again = SimStore(disk, PATH)
        assert (dict(again.items()), again.checkpoint) == ({**found, b"new": b"1"}, 99)
    assert len(kept) > 6


def test_a_write_that_does_not_fit_changes_nothing() -> None:
    disk = SimDisk()
    store = SimStore(disk, PATH)
    store.write([(b"a", b"1")], 1)
    disk.free_bytes = 10
    with pytest.raises(OSError):
        store.write([(b"a", b"2")], 2)
    disk.free_bytes = None
    store.write([(b"b", b"3")], 3)
    assert dict(SimStore(disk, PATH).items()) == {b"a": b"1", b"b": b"3"}


def test_a_slot_belongs_to_its_host_and_outlives_the_process() -> None:
    async def worker() -> None:
        slot = SimSlot(host, "app")
        assert slot.identity == "app-worker-0"
        assert isinstance(slot.open_store("memory://", "t", 0), MemoryStore)
        store = slot.open_store("rocksdb://", "t", 0)
        counts.append(store.checkpoint)
        store.write([(b"k", b"v")], store.checkpoint + 1)
        slot.release()

    counts: list[int] = []
    world = World(1)
    host = world.host("worker-0")
    for _ in range(2):
        task = host.start(worker)
        world.run(task)
        task.result()
        host.kill()
    assert counts == [0, 1]
    world.end()


def test_real_rocksdb_goes_on_in_a_copy_after_a_kill(tmp_path: Path) -> None:
    async def worker() -> None:
        slot = RocksSlot(host, "app", tmp_path)
        store = slot.open_store("rocksdb://", "t", 0)
        counts.append((store.checkpoint, store.get(b"k")))
        store.write([(b"k", b"%d" % len(counts))], len(counts))
        kept.append(store)  # open, as a killed process leaves it

    counts: list[tuple[int, bytes | None]] = []
    kept: list[Store] = []
    world = World(1)
    host = world.host("worker-0")
    for _ in range(3):
        task = host.start(worker)
        world.run(task)
        task.result()
        host.kill()
    assert counts == [(0, None), (1, b"1"), (2, b"2")]
    world.end()
