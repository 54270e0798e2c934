"""A partition as a plain list, naive on purpose: every answer is a scan over everything."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Entry:
    """One offset: a record, or a marker (``value`` None)."""

    offset: int
    value: bytes | None
    pid: int = -1
    epoch: int = -1
    sequence: int = -1
    transactional: bool = False
    commit: bool | None = None


@dataclasses.dataclass
class Transaction:
    pid: int
    first: int
    marker: int | None = None
    commit: bool = False
    offsets: list[int] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Producer:
    epoch: int = -1
    last_sequence: int = -1
    open_since: int = -1


class Model:
    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.start = 0
        self.high_watermark = 0

    @property
    def end(self) -> int:
        return len(self.entries)

    def add(self, value: bytes | None, **fields) -> None:
        self.entries.append(Entry(len(self.entries), value, **fields))

    def truncate(self, end: int) -> None:
        del self.entries[end:]

    def producers(self) -> dict[int, Producer]:
        found: dict[int, Producer] = {}
        for entry in self.entries:
            if entry.pid < 0:
                continue
            producer = found.setdefault(entry.pid, Producer())
            if entry.epoch != producer.epoch:
                producer.epoch, producer.last_sequence = entry.epoch, -1
            if entry.commit is not None:
                producer.open_since = -1
                continue
            producer.last_sequence = entry.sequence
            if entry.transactional and producer.open_since < 0:
                producer.open_since = entry.offset
        return found

    def transactions(self) -> list[Transaction]:
        found: list[Transaction] = []
        ongoing: dict[int, Transaction] = {}
        for entry in self.entries:
            if entry.commit is not None:
                transaction = ongoing.pop(entry.pid, None)
                if transaction is not None:
                    transaction.marker, transaction.commit = entry.offset, entry.commit
            elif entry.transactional:
                if entry.pid not in ongoing:
                    ongoing[entry.pid] = Transaction(entry.pid, entry.offset)
                    found.append(ongoing[entry.pid])
                ongoing[entry.pid].offsets.append(entry.offset)
        return found

    def last_stable_offset(self) -> int:
        unstable = [
            transaction.first
            for transaction in self.transactions()
            if transaction.marker is None or transaction.marker >= self.high_watermark
        ]
        return (
            min(self.high_watermark, max(min(unstable), self.start))
            if unstable
            else (self.high_watermark)
        )

    def uncommitted(self, offset: int) -> list[tuple[int, bytes | None]]:
        return [
            (entry.offset, entry.value)
            for entry in self.entries[max(offset, self.start) : self.high_watermark]
            if entry.commit is None
        ]

    def committed(self, offset: int) -> list[tuple[int, bytes | None]]:
        hidden = {
            hidden_offset
            for transaction in self.transactions()
            if not (transaction.commit and transaction.marker is not None)
            for hidden_offset in transaction.offsets
        }
        return [
            (entry.offset, entry.value)
            for entry in self.entries[max(offset, self.start) : self.last_stable_offset()]
            if entry.commit is None and entry.offset not in hidden
        ]
