"""Compaction: what a reader may rely on holds through passes, restarts and power cuts."""

from __future__ import annotations

import dataclasses
import random

import pytest

from onceward.broker.log.cleaner import CleanedUpTo, NotCleaned, Passes, Sieve, clean, plan
from onceward.broker.log.config import LogConfig
from onceward.broker.log.log_state import CleanEnd
from onceward.broker.log.partition_log import PartitionLog
from onceward.broker.log.results import Isolation
from onceward.broker.records.codec import Compression, decode, encode
from onceward.broker.storage.segment import StoredBatch
from onceward.broker.types import Buffer
from onceward.streams.testing.sim import HostDied, SimDisk

from .harness import DIRECTORY, NOW, end, flush, open_log

CONFIG = LogConfig(
    cleanup_policy=frozenset({"compact"}),
    segment_bytes=1024,
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=1000,
)
KEYS = [b"a", b"b", b"c", b"d", b"e", b"f"]


@dataclasses.dataclass
class Entry:
    """One offset: a record, or a marker (``commit`` not None). ``fate`` of a transaction's data:
    None while it is open."""

    offset: int
    key: bytes = b""
    value: bytes | None = None
    pid: int = -1
    commit: bool | None = None
    fate: bool | None = True


class History:
    """A compacted log, the list of all that was ever appended, and random steps on both."""

    def __init__(self, seed: int, config: LogConfig = CONFIG) -> None:
        self.rng = random.Random(seed)
        self.config = config
        self.disk = SimDisk()
        self.disk.makedirs("/data")
        self.entries: list[Entry] = []
        self.sequences = dict.fromkeys(range(1, 4), 0)
        self.counter = 0
        self.now_ms = NOW
        self.passes = 0
        self.log = self.open(None)

    def open(self, clean_end: CleanEnd | None) -> PartitionLog:
        tail_bytes = self.rng.choice((0, 500, 1 << 20))
        return open_log(self.disk, config=self.config, clean=clean_end, tail_bytes=tail_bytes)

    def step(self) -> None:
        self.rng.choice((self.plain, self.data, self.data, self.finish, self.flush, self.flush))()
        self.now_ms += self.rng.choice((0, 0, 400))

    def records(self) -> list[tuple[bytes, bytes | None]]:
        found: list[tuple[bytes, bytes | None]] = []
        for _ in range(self.rng.randint(1, 4)):
            self.counter += 1
            value = b"%d:" % self.counter + b"x" * self.rng.choice((0, 30, 180))
            found.append((self.rng.choice(KEYS), None if self.rng.random() < 0.2 else value))
        return found

    def append(self, pid: int) -> None:
        records = self.records()
        batch = encode(
            [key for key, _ in records],
            [value for _, value in records],
            timestamps=[self.now_ms + number for number in range(len(records))],
            compression=self.rng.choice(list(Compression)),
            producer_id=pid,
            producer_epoch=0 if pid >= 0 else -1,
            base_sequence=self.sequences[pid] if pid >= 0 else -1,
            transactional=pid >= 0,
        )
        guard = self.log.verification_guard(pid, 0, self.sequences[pid]) if pid >= 0 else None
        base = self.log.append(batch, now_ms=self.now_ms, guard=guard).base_offset
        fate = None if pid >= 0 else True
        self.entries += [
            Entry(base + number, key, value, pid, None, fate)
            for number, (key, value) in enumerate(records)
        ]
        if pid >= 0:
            self.sequences[pid] += len(records)

    def plain(self) -> None:
        self.append(-1)

    def data(self) -> None:
        self.append(self.rng.randint(1, 3))

    def finish(self) -> None:
        pid, commit = self.rng.randint(1, 3), self.rng.random() < 0.6
        mine = [entry for entry in self.entries if entry.pid == pid and entry.fate is None]
        if mine:
            offset = end(self.log, pid=pid, commit=commit).base_offset
            self.entries.append(Entry(offset, pid=pid, commit=commit))
            for entry in mine:
                entry.fate = commit

    def flush(self) -> None:
        flush(self.log)

    def settle(self) -> None:
        """End every transaction and fill a few segments, so that something may be compacted."""
        for pid in self.sequences:
            mine = [entry for entry in self.entries if entry.pid == pid and entry.fate is None]
            if mine:
                offset = end(self.log, pid=pid, commit=True).base_offset
                self.entries.append(Entry(offset, pid=pid, commit=True))
                for entry in mine:
                    entry.fate = True
        for _ in range(20):
            self.plain()
        self.flush()

    def compact(self) -> None:
        for file in clean(self.log, self.disk, self.now_ms):
            if file is not None:
                file.fsync_now()
                self.passes += 1

    def restart(self, kind: str) -> None:
        """What was flushed survives; the model forgets what the log lost."""
        durable = self.log.high_watermark
        clean_end = self.log.close() if kind == "clean" else None
        if kind == "power cut":
            self.disk.power_cut(self.rng)
        self.disk.kill()
        self.log = self.open(clean_end)
        found = self.log.log_end_offset
        assert found >= durable
        self.entries = [entry for entry in self.entries if entry.offset < found]
        for entry in self.entries:
            if entry.pid >= 0 and entry.commit is None:
                entry.fate = self.fate_of(entry)
        for pid in self.sequences:
            mine = [entry for entry in self.entries if entry.pid == pid and entry.commit is None]
            self.sequences[pid] = len(mine)

    def fate_of(self, data: Entry) -> bool | None:
        for entry in self.entries[data.offset :]:
            if entry.pid == data.pid and entry.commit is not None:
                return entry.commit
        return None

    def read(
        self, isolation: Isolation, offset: int, max_bytes: int
    ) -> list[tuple[int, bytes | None, bytes | None, int]]:
        """(offset, key, value, timestamp) as a consumer gets them; it must reach the end."""
        limit = self.log.high_watermark
        if isolation is Isolation.READ_COMMITTED:
            limit = self.log.last_stable_offset
        seen: list[tuple[int, bytes | None, bytes | None, int]] = []
        while offset < limit:
            result = self.log.read(offset, max_bytes=max_bytes, isolation=isolation)
            assert result.next_offset > offset, f"the reader stands still at {offset}"
            records = decode(
                b"".join(result.records),
                start_offset=offset,
                aborted=result.aborted or (),
                read_committed=isolation is Isolation.READ_COMMITTED,
            )
            seen += zip(
                records.offsets, records.keys, records.values, records.timestamps, strict=True
            )
            offset = result.next_offset
        return seen

    def check(self) -> None:
        log, rng = self.log, self.rng
        offset = rng.randint(0, log.high_watermark)
        max_bytes = rng.choice((1, 300, 1500, 1 << 20))
        stable = log.last_stable_offset
        committed = {
            entry.offset: entry
            for entry in self.entries
            if entry.commit is None and entry.fate and offset <= entry.offset < stable
        }
        seen = self.read(Isolation.READ_COMMITTED, offset, max_bytes)
        offsets = [found[0] for found in seen]
        assert offsets == sorted(set(offsets))
        for found, key, value, _ in seen:
            entry = committed[found]
            assert (key, value) == (entry.key, entry.value)
        newest = {entry.key: entry for entry in committed.values()}
        told = {key: (found, value) for found, key, value, _ in seen}
        for key, entry in newest.items():
            if entry.value is None:  # a tombstone may be gone, then with all it hides
                assert key not in told or told[key] == (entry.offset, None)
            else:
                assert told[key] == (entry.offset, entry.value), f"the value of {key!r} is lost"
        everything = {entry.offset for entry in self.entries if entry.commit is None}
        seen = self.read(Isolation.READ_UNCOMMITTED, offset, max_bytes)
        assert {found[0] for found in seen} <= everything
        assert everything & set(range(stable, log.high_watermark)) <= {
            *(found[0] for found in seen),
            *range(offset),
        }


@pytest.mark.parametrize("seed", range(40))
def test_readers_find_the_newest_value_of_every_key_through_passes_and_restarts(seed: int) -> None:
    history = History(seed)
    for _ in range(250):
        history.step()
        chance = history.rng.random()
        if chance < 0.1:
            history.compact()
            history.check()
        elif chance < 0.13:
            history.restart(history.rng.choice(("kill", "clean", "power cut")))
            history.check()
    history.settle()
    history.compact()
    history.check()
    assert history.passes


@pytest.mark.parametrize("kind", ["kill", "power cut"])
def test_a_crash_at_any_step_of_a_pass_loses_nothing(kind: str) -> None:
    crashes = 0
    for seed in range(2):
        for kill_at in range(1, 200):
            history = History(seed)
            for number in range(60):
                history.step()
                if number == 40:
                    history.compact()
            history.settle()
            history.disk.kill_at = history.disk.steps + kill_at
            try:
                history.compact()
            except HostDied:
                crashes += 1
            else:
                break
            finally:
                history.disk.kill_at = None
            history.restart(kind)
            history.check()
            history.compact()
            history.check()
    assert crashes > 40


def keyed(history: History, key: bytes, value: bytes | None, times: int = 1) -> None:
    for _ in range(times):
        history.log.append(encode([key], [value], timestamps=NOW), now_ms=NOW)
        history.entries.append(Entry(len(history.entries), key, value))
    flush(history.log)


def test_small_neighbours_become_one_segment() -> None:
    history = History(0)
    keyed(history, b"a", b"x" * 100, times=60)
    assert history.log.segment_count > 5
    history.compact()
    keyed(history, b"a", b"x" * 100, times=7)
    history.compact()
    assert history.log.segment_count <= 4
    history.restart("power cut")
    assert history.log.segment_count <= 4
    history.check()


def test_the_active_segment_is_left_alone() -> None:
    history = History(0)
    keyed(history, b"a", b"1", times=3)
    history.compact()
    assert len(history.read(Isolation.READ_UNCOMMITTED, 0, 1 << 20)) == 3


def test_records_of_an_open_transaction_and_all_behind_it_stay() -> None:
    history = History(0)
    history.append(1)
    keyed(history, b"a", b"x" * 100, times=40)
    history.compact()
    assert history.log.segment_count > 3
    assert len(history.read(Isolation.READ_UNCOMMITTED, 0, 1 << 20)) == len(history.entries)


def test_a_tombstone_stays_for_delete_retention_ms_after_the_pass_that_met_it() -> None:
    history = History(0)
    keyed(history, b"gone", b"v")
    keyed(history, b"gone", None)
    keyed(history, b"a", b"x" * 100, times=20)

    def values() -> list[bytes | None]:
        seen = history.read(Isolation.READ_COMMITTED, 0, 1 << 20)
        return [value for _, key, value, _ in seen if key == b"gone"]

    history.compact()
    assert values() == [None]
    history.now_ms += 999
    keyed(history, b"a", b"x" * 100, times=20)
    history.compact()
    assert values() == [None]
    history.now_ms += 1
    keyed(history, b"a", b"x" * 100, times=20)
    history.compact()
    assert values() == []


def test_a_pass_waits_until_enough_is_dirty_or_the_oldest_is_overdue() -> None:
    config = dataclasses.replace(CONFIG, min_cleanable_dirty_ratio=0.5, segment_bytes=4096)
    history = History(0, config)
    for number in range(60):
        keyed(history, b"key-%d" % number, b"x" * 100)
    history.compact()
    keyed(history, b"a", b"x" * 100, times=50)
    settled = history.log.settled_segments()
    passes = Passes.read(history.disk, DIRECTORY)
    assert plan(settled, passes, config, NOW) is None
    overdue = dataclasses.replace(config, max_compaction_lag_ms=1000)
    assert plan(settled, passes, overdue, NOW + 500) is None
    assert plan(settled, passes, overdue, NOW + 1500) is not None


def test_data_whose_marker_goes_from_the_next_segment_is_no_transaction_any_more() -> None:
    history = History(0)
    log = history.log
    for number in range(13):  # unique keys: nothing of the first segments goes
        guard = log.verification_guard(1, 0, number)
        batch = encode(
            [b"unique-%d" % number], [b"x" * 150], timestamps=NOW, producer_id=1,
            producer_epoch=0, base_sequence=number, transactional=True,
        )  # fmt: skip
        log.append(batch, now_ms=NOW, guard=guard)
    end(log, pid=1, commit=True)
    for _ in range(20):
        log.append(encode([b"a"], [b"x" * 100], timestamps=NOW), now_ms=NOW)
    flush(log)
    settled = log.settled_segments()[-1].next_offset
    history.compact()
    assert settled > 13
    headers = [batch.header for batch in log.read_all(0) if batch.header.base_offset <= 13]
    assert [header.base_offset for header in headers] == list(range(13)), "the marker is gone"
    assert not any(header.is_transactional for header in headers)


def test_what_must_go_goes_even_when_what_stays_is_larger_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    history = History(0)
    keyed(history, b"a", b"x" * 100, times=40)

    def larger(self: Sieve, batch: StoredBatch, *, must_stay: bool) -> Buffer | None:
        stays = sift(self, batch, must_stay=must_stay)
        return stays if stays is not None else padded(batch)

    def padded(batch: StoredBatch) -> bytes:
        header = batch.header
        base, values = header.base_offset, [b"y" * 200]
        return encode([b"padding"], values, timestamps=NOW, base_offset=base)

    sift = Sieve.sift
    monkeypatch.setattr(Sieve, "sift", larger)
    size = history.log.size_bytes
    history.compact()
    assert history.log.size_bytes > size
    found = history.read(Isolation.READ_UNCOMMITTED, 0, 1 << 20)
    assert sum(key == b"a" for _, key, _, _ in found) < 40


def test_young_records_wait_for_min_compaction_lag_ms() -> None:
    history = History(0, dataclasses.replace(CONFIG, min_compaction_lag_ms=1000))
    keyed(history, b"a", b"x" * 100, times=40)
    size = history.log.size_bytes
    history.compact()
    assert history.log.size_bytes == size
    history.now_ms += 1001
    history.compact()
    assert history.log.size_bytes < size / 2


def test_a_full_disk_leaves_the_log_and_no_rest_and_the_next_pass_succeeds() -> None:
    history = History(0)
    keyed(history, b"a", b"x" * 100, times=40)
    history.disk.free_bytes = 30
    with pytest.raises(NotCleaned):
        history.compact()
    history.disk.free_bytes = None
    assert not [name for name in history.disk.list(DIRECTORY) if name.endswith(".tmp")]
    history.check()
    history.compact()
    assert history.passes
    history.check()


def test_a_log_that_is_deleted_during_a_pass_ends_it() -> None:
    history = History(0)
    keyed(history, b"a", b"x" * 100, times=40)
    steps = clean(history.log, history.disk, NOW)
    assert next(steps) is not None
    history.log.abandon()
    with pytest.raises(NotCleaned):
        list(steps)


def test_every_timestamp_and_offset_of_a_kept_record_is_as_before() -> None:
    history = History(11)
    for _ in range(60):
        history.plain()
    history.flush()
    before = {found[0]: found for found in history.read(Isolation.READ_UNCOMMITTED, 0, 1 << 20)}
    history.compact()
    after = history.read(Isolation.READ_UNCOMMITTED, 0, 1 << 20)
    assert 0 < len(after) < len(before)
    assert all(before[found[0]] == found for found in after)


def test_the_list_of_passes_stays_short_and_only_makes_tombstones_stay_longer() -> None:
    passes = Passes()
    for number in range(1000):
        passes.add(number + 1, NOW + number, 10_000)
    disk = SimDisk()
    disk.makedirs(DIRECTORY)
    passes.write(disk, DIRECTORY)
    found = Passes.read(disk, DIRECTORY)
    assert found.dirty_from == 1000
    assert len(disk.read(f"{DIRECTORY}/cleaner-checkpoint")) < 4000
    for age in (0, 500, 999, 2000):
        assert found.forgotten_below(NOW + 10_000 + age, 10_000) <= min(age + 1, 1000)


def test_a_damaged_list_of_passes_counts_as_none() -> None:
    disk = SimDisk()
    disk.makedirs(DIRECTORY)
    disk.write_atomic(f"{DIRECTORY}/cleaner-checkpoint", b"{")
    assert Passes.read(disk, DIRECTORY).dirty_from == 0
    assert Passes([CleanedUpTo(5, NOW)]).dirty_from == 5
