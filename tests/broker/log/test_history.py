"""Random histories: the log must say what a plain list says, through restarts and crashes."""

from __future__ import annotations

import random

import pytest

from onceward.broker.log.config import LogConfig
from onceward.broker.log.log_state import CleanEnd
from onceward.broker.log.partition_log import PartitionLog
from onceward.broker.log.results import Isolation
from onceward.streams.testing.sim import HostDied, SimDisk

from .harness import NOW, append, consume, end, open_log, send
from .model import Model, Producer

CONFIG = LogConfig(segment_bytes=1024)


class History:
    """A log, its model, and one random step after another on both."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.disk = SimDisk()
        self.disk.makedirs("/data")
        self.model = Model()
        self.leader_epoch = 0
        self.counter = 0
        self.sent: dict[int, tuple[int, int, list[bytes]]] = {}
        self.attempt: Model | None = None
        """The model as it would be if the step that is running had finished."""
        self.log = self.open(None)

    def open(self, clean: CleanEnd | None) -> PartitionLog:
        self.leader_epoch += 1
        tail_bytes = self.rng.choice((0, 500, 1 << 20))
        return open_log(
            self.disk,
            config=CONFIG,
            leader_epoch=self.leader_epoch,
            clean=clean,
            tail_bytes=tail_bytes,
        )

    def step(self) -> None:
        steps = (self.plain, self.data, self.data, self.data, self.finish, self.flush)
        rare = (self.retry, self.delete_records, self.retention)
        self.rng.choice(steps if self.rng.random() < 0.85 else rare)()

    def values(self) -> list[bytes]:
        values = []
        for _ in range(self.rng.randint(1, 4)):
            self.counter += 1
            values.append(b"%d:" % self.counter + b"x" * self.rng.choice((0, 10, 220)))
        return values

    def begin_attempt(self) -> Model:
        self.attempt = Model()
        self.attempt.entries = list(self.model.entries)
        self.attempt.start = self.model.start
        self.attempt.high_watermark = self.model.high_watermark
        return self.attempt

    def done(self) -> None:
        assert self.attempt is not None
        self.model, self.attempt = self.attempt, None
        assert self.log.log_end_offset == self.model.end

    def plain(self) -> None:
        values = self.values()
        attempt = self.begin_attempt()
        for value in values:
            attempt.add(value)
        append(self.log, *values)
        self.done()

    def data(self) -> None:
        pid, values = self.rng.randint(1, 4), self.values()
        producer = self.model.producers().get(pid, Producer(epoch=0))
        attempt = self.begin_attempt()
        first = producer.last_sequence + 1
        for number, value in enumerate(values):
            attempt.add(
                value, pid=pid, epoch=producer.epoch, sequence=first + number, transactional=True
            )
        version = 2 if pid % 2 else 1
        self.sent[pid] = (producer.epoch, first, values)
        send(self.log, *values, pid=pid, epoch=producer.epoch, sequence=first, version=version)
        self.done()

    def finish(self) -> None:
        pid, commit = self.rng.randint(1, 4), self.rng.random() < 0.5
        producer = self.model.producers().get(pid)
        if producer is None or producer.open_since < 0:
            return
        version = 2 if pid % 2 else 1
        epoch = producer.epoch + (version == 2)
        self.begin_attempt().add(None, pid=pid, epoch=epoch, commit=commit)
        end(self.log, pid=pid, epoch=epoch, commit=commit, version=version)
        self.done()

    def retry(self) -> None:
        """Send a producer's last batch again: nothing is added, the offsets are the old ones."""
        pid = self.rng.randint(1, 4)
        producer, sent = self.model.producers().get(pid), self.sent.get(pid)
        if producer is None or sent is None:
            return
        epoch, first, values = sent
        if (producer.epoch, producer.last_sequence) != (epoch, first + len(values) - 1):
            return
        result = send(self.log, *values, pid=pid, epoch=epoch, sequence=first)
        last = max(e.offset for e in self.model.entries if e.pid == pid and e.commit is None)
        assert result[:2] == (last - len(values) + 1, last)
        assert result.duplicate

    def flush(self) -> None:
        """A pass of the flusher, often with an append while the disk is busy."""
        captured = self.model.end
        syncs = [file.begin_sync() for file in self.log.unsynced_files()]
        if self.rng.random() < 0.5:
            self.data()
        self.begin_attempt().high_watermark = max(captured, self.model.high_watermark)
        for finish in syncs:
            finish()
        self.log.flushed_to(captured)
        self.done()

    def delete_records(self) -> None:
        offset = self.rng.randint(self.model.start, self.model.high_watermark)
        self.begin_attempt().start = offset
        self.log.delete_records(offset)
        self.done()

    def retention(self) -> None:
        self.begin_attempt()
        self.log.apply_retention(NOW)
        self.done()

    def restart(self, kind: str) -> None:
        clean = None
        if kind == "clean":
            clean = self.log.close()
        if kind == "power cut":
            self.disk.power_cut(self.rng)
        self.disk.kill()
        self.log = self.open(clean)
        attempt, self.attempt = self.attempt or self.model, None
        durable = self.model.high_watermark
        found = self.log.log_end_offset
        assert durable <= found <= attempt.end
        if kind != "power cut":
            assert found >= self.model.end
        assert self.log.log_start_offset in (self.model.start, attempt.start)
        attempt.start = self.log.log_start_offset
        attempt.truncate(found)
        attempt.high_watermark = found
        self.model = attempt

    def check(self) -> None:
        log, model = self.log, self.model
        assert log.log_start_offset == model.start
        assert log.high_watermark == model.high_watermark
        assert log.last_stable_offset == model.last_stable_offset()
        offset = self.rng.randint(model.start, model.end)
        max_bytes = self.rng.choice((1, 300, 1500, 1 << 20))
        for isolation, expected in (
            (Isolation.READ_UNCOMMITTED, model.uncommitted(offset)),
            (Isolation.READ_COMMITTED, model.committed(offset)),
        ):
            assert consume(log, isolation, offset=offset, max_bytes=max_bytes) == expected
        known = {
            info.producer_id: Producer(
                info.producer_epoch, info.last_sequence, info.current_txn_start_offset
            )
            for info in log.producers()
        }
        assert known == model.producers()


@pytest.mark.parametrize("seed", range(40))
def test_the_log_equals_a_list_through_restarts_and_power_cuts(seed):
    history = History(seed)
    for _ in range(120):
        history.step()
        if history.rng.random() < 0.3:
            history.check()
        if history.rng.random() < 0.06:
            history.restart(history.rng.choice(("kill", "clean", "power cut")))
            history.check()
    history.flush()
    history.check()


@pytest.mark.parametrize("kind", ["kill", "power cut"])
def test_a_crash_at_any_write_leaves_a_prefix_with_all_that_was_synced(kind):
    for kill_at in range(1, 200):
        history = History(seed=kill_at % 5)
        history.disk.kill_at = history.disk.steps + kill_at
        with pytest.raises(HostDied):
            while True:
                history.step()
        history.disk.kill_at = None
        history.restart(kind)
        history.check()
        for _ in range(5):
            history.step()
        history.flush()
        history.check()


def test_a_crash_during_recovery_is_recovered_from():
    for seed in range(60):
        history = History(seed)
        for _ in range(40):
            history.step()
        history.disk.power_cut(history.rng)
        while True:
            history.disk.kill_at = history.disk.steps + history.rng.randint(1, 6)
            try:
                log = open_log(history.disk, config=CONFIG, leader_epoch=99)
            except HostDied:
                history.disk.power_cut(history.rng)
                continue
            history.disk.kill_at = None
            break
        log.abandon()
        history.restart("power cut")
        history.check()
