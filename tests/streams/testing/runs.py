"""Made-up histories of a correct exactly-once app: it counts, per key, what it is fed."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

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
)

PARTITIONS = 2
GROUP = "app"
CHANGELOG = "app-counts-changelog"


@dataclass
class Run:
    """Builds the history of one correct run: what is random is what may differ between runs."""

    rng: Random
    keys: list[bytes]
    history: History = field(default_factory=lambda: History(group=GROUP))
    now: float = 1000.0
    transaction: int = 0

    def tick(self) -> float:
        self.now += self.rng.uniform(0.001, 0.01)
        return self.now

    def append(
        self, topic: str, partition: int, key: bytes, value: bytes, status: str, transaction: str
    ) -> Position:
        records = self.history.log.setdefault((topic, partition), [])
        # control records take offsets, too
        offset = records[-1].position.offset + self.rng.choice((1, 1, 2)) if records else 0
        position = Position(topic, partition, offset)
        stamp = int(self.now * 1000)
        records.append(LogRecord(position, key, value, stamp, (), status, transaction))
        return position

    def feed(self) -> None:
        for number, key in enumerate(self.keys):
            partition = key[0] % PARTITIONS
            value = b"%d" % number
            sent_at = self.tick()
            if number % 10 == 9:  # never arrived, and nobody claims that it did
                self.history.inputs.append(Sent("words", partition, key, value, sent_at))
                continue
            offset: int | None = self.append("words", partition, key, value, "committed", "").offset
            acked_at: float | None = self.tick()
            if self.rng.random() < 0.1:
                acked_at = offset = None  # arrived, but the answer did not
            self.history.inputs.append(
                Sent("words", partition, key, value, sent_at, acked_at, offset)
            )

    def process(self, partition: int) -> None:
        inputs = self.history.log.get(("words", partition), [])
        counts: dict[bytes, int] = {}
        done = 0
        while done < len(inputs):
            batch = inputs[done : done + self.rng.randint(1, 4)]
            for _ in range(self.rng.choice((0, 0, 1, 2))):
                self.attempt(partition, batch, dict(counts), "aborted")
            self.attempt(partition, batch, counts, "committed")
            done += len(batch)
            self.history.commits.append(
                OffsetCommit(GROUP, "words", partition, batch[-1].position.offset + 1, self.tick())
            )
        self.history.tables.setdefault("counts", {})[partition] = {
            key: b"%d" % count for key, count in counts.items()
        }
        if inputs:
            self.history.expected_commits["words", partition] = inputs[-1].position.offset + 1

    def attempt(
        self, partition: int, batch: list[LogRecord], counts: dict[bytes, int], status: str
    ) -> None:
        host = f"worker-{self.rng.randrange(3)}"
        self.transaction += 1
        name = f"{partition}/{self.transaction}"
        events = self.history.events
        fetched = tuple(record.position for record in batch)
        events.append(Event(self.tick(), host, "fetched", "", fetched))
        written = []
        for record in batch:
            assert record.key is not None
            counts[record.key] = counts.get(record.key, 0) + 1
            value = b"%d" % counts[record.key]
            key = record.key
            written.append(self.append("counts", partition, key, value, status, name))
        for key in {record.key for record in batch if record.key}:
            value = b"%d" % counts[key]
            written.append(self.append(CHANGELOG, partition, key, value, status, name))
        events.append(Event(self.tick(), host, "produced", "", tuple(written)))
        if status == "committed":
            events.append(Event(self.tick(), host, "end_txn commit", name, tuple(written)))
        else:
            events.append(Event(self.tick(), host, "kill"))
            events.append(Event(self.tick(), host, "restart"))

    def read(self) -> None:
        for reader in ("reader-1", "reader-2"):
            records = self.history.topic("counts")
            start = self.rng.randint(0, 2)
            for record in records:
                if record.position.offset >= start:
                    place = record.position
                    self.history.reads.append(
                        Read(reader, self.tick(), place, record.key, record.value)
                    )


def correct_run(seed: int, keys: list[bytes]) -> History:
    """A correct run: same ``keys`` give the same results, ``seed`` decides on the rest."""
    run = Run(Random(seed), keys)
    run.feed()
    for partition in range(PARTITIONS):
        run.process(partition)
    run.read()
    run.history.changelogs["counts"] = CHANGELOG
    return run.history


def expect(history: History, level: Level = Level.SEQUENCE) -> Expectation:
    """What a run with the same inputs must end with."""
    return Expectation(
        outputs={"counts": (level, project(level, history.topic("counts")))},
        tables={name: dict(content) for name, content in history.tables.items()},
        sinks={},
    )
