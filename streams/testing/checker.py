"""Judges a history. Pure: data in, anomalies out, the likeliest cause first.

Without an expectation the history is checked against itself: what was acknowledged is there,
readers saw committed records once and in order, transactions are whole, offsets only move forward,
tables are what their changelogs say. With one, the results are compared as well.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator

from .comparison import compare_outputs, compare_sinks, compare_tables, fold
from .history import (
    ABORTED,
    COMMITTED,
    OPEN,
    Anomaly,
    Expectation,
    History,
    Level,
    LogRecord,
    Position,
    Read,
    Sent,
)
from .wording import pair, places, present, times

KINDS = (
    "worker failed",
    "no progress",
    "input lost",
    "input duplicated",
    "input reordered",
    "aborted read",
    "torn transaction",
    "non-monotonic read",
    "skipped read",
    "offset went back",
    "wrong offset",
    "duplicated",
    "lost",
    "wrong",
    "table differs from changelog",
    "table differs",
    "sink differs",
)
"""Every kind of anomaly, causes before consequences: the order of ``check``'s answer."""


def check(history: History, expectation: Expectation | None) -> list[Anomaly]:
    """Everything that is wrong with the run; empty when it was right.

    A run that made no progress is not blamed for what is merely missing at its end, and one whose
    log was not read back is judged by the rest.
    """
    anomalies = [*_failed_workers(history), *_standstill(history), *_offsets(history)]
    anomalies += _order_of_reads(history)
    if history.log:
        anomalies += _compared_with_log(history, expectation)
    complete = bool(history.log) and not history.waiting
    if complete:
        anomalies += _tables_and_changelogs(history)
    if complete and expectation is not None:
        anomalies += compare_tables(history, expectation)
        anomalies += compare_sinks(history, expectation)
    return sorted(anomalies, key=lambda anomaly: KINDS.index(anomaly.kind))


def _compared_with_log(history: History, expectation: Expectation | None) -> Iterator[Anomaly]:
    index = {record.position: record for records in history.log.values() for record in records}
    fed_only = {
        topic
        for topic in {sent.topic for sent in history.inputs}
        if expectation is None or _is_fed_only(history, expectation, topic)
    }
    yield from _inputs(history, index, fed_only, strict=expectation is not None)
    yield from _reads(history, index)
    yield from _transactions(history, index)
    if expectation is not None:
        yield from compare_outputs(history, expectation, skip=fed_only)


def _failed_workers(history: History) -> Iterator[Anomaly]:
    for event in history.events:
        if event.what == "worker failed":
            yield Anomaly(
                "worker failed", f"{event.host} failed by itself: {event.detail or 'no message'}"
            )


def _standstill(history: History) -> Iterator[Anomaly]:
    if history.waiting:
        tasks = len(history.waiting)
        yield Anomaly(
            "no progress",
            "after all faults were over, the run came to no end: "
            f"{tasks} task{'s' * (tasks > 1)} waited for something that never came",
            found=history.waiting,
        )


# what was fed in


def _is_fed_only(history: History, expectation: Expectation, topic: str) -> bool:
    """Whether the references' topic held what was fed in and nothing from the app itself."""
    if topic not in expectation.outputs:
        return True
    level, projection = expectation.outputs[topic]
    if level is Level.SEQUENCE:
        held = Counter((key, value) for (_, key), values in projection.items() for value in values)
    elif level is Level.MULTISET:
        held = projection
    else:
        return False
    fed = Counter((sent.key, sent.value) for sent in history.inputs if sent.topic == topic)
    return bool(held == fed)


def _inputs(
    history: History, index: dict[Position, LogRecord], fed_only: set[str], *, strict: bool
) -> Iterator[Anomaly]:
    partitions: dict[tuple[str, int], list[Sent]] = defaultdict(list)
    for sent in history.inputs:
        partitions[sent.topic, sent.partition].append(sent)
    for (topic, partition), sents in sorted(partitions.items()):
        yield from _acknowledged(history, index, sents)
        yield from _order_of_inputs(topic, partition, sents)
        if topic in fed_only:  # else the app may write the same, and its outputs are compared
            records = [r for r in history.log.get((topic, partition), ()) if r.status == COMMITTED]
            yield from _copies(sents, records, strict=strict)


def _acknowledged(
    history: History, index: dict[Position, LogRecord], sents: list[Sent]
) -> Iterator[Anomaly]:
    for sent in sents:
        if sent.acked_at is None or sent.offset is None:
            continue
        position = Position(sent.topic, sent.partition, sent.offset)
        record = index.get(position)
        if record is None:
            records = history.log.get((sent.topic, sent.partition), [])
            end = records[-1].position.offset + 1 if records else 0
            state = f"the log ends at {end}" if sent.offset >= end else "the log has a hole there"
        elif record.status != COMMITTED:
            state = f"it is {record.status}"
        elif (record.key, record.value) != (sent.key, sent.value):
            state = f"the log holds {pair(record.key, record.value)} there"
        else:
            continue
        yield Anomaly(
            "input lost",
            f"{pair(sent.key, sent.value)} was acknowledged at {position}, but {state}",
            sent.key,
            [position],
        )


def _order_of_inputs(topic: str, partition: int, sents: list[Sent]) -> Iterator[Anomaly]:
    last: Sent | None = None
    for sent in sents:
        if sent.offset is None:
            continue
        if last is not None and last.offset is not None and sent.offset <= last.offset:
            where = [Position(topic, partition, offset) for offset in (last.offset, sent.offset)]
            yield Anomaly(
                "input reordered",
                f"{pair(last.key, last.value)} was sent before {pair(sent.key, sent.value)}, "
                f"but they are at {places(where)}",
                sent.key,
                where,
            )
        last = sent


def _copies(sents: list[Sent], records: list[LogRecord], *, strict: bool) -> Iterator[Anomaly]:
    """Compare how often each record was sent with how often the log has it."""
    sent = Counter((s.key, s.value) for s in sents)
    acked = Counter((s.key, s.value) for s in sents if s.acked_at is not None and s.offset is None)
    held: dict[tuple[bytes | None, bytes | None], list[Position]] = defaultdict(list)
    for record in records:
        held[record.key, record.value].append(record.position)
    for (key, value), positions in held.items():
        count = sent[key, value]
        if count and len(positions) > count:
            yield Anomaly(
                "input duplicated",
                f"{pair(key, value)} was sent {times(count)}, but the log has it "
                f"{times(len(positions))}: {places(positions)}",
                key,
                positions,
            )
        elif not count and strict:
            yield Anomaly(
                "wrong",
                f"{pair(key, value)} at {places(positions)} was never sent",
                key,
                positions,
            )
    for (key, value), count in acked.items():
        if len(held[key, value]) < count:
            yield Anomaly(
                "input lost",
                f"{pair(key, value)} was acknowledged {times(count)}, but the log has it "
                f"{times(len(held[key, value]))}",
                key,
                held[key, value],
            )


# what readers saw


def _order_of_reads(history: History) -> Iterator[Anomaly]:
    last: dict[tuple[str, str, int], int] = {}
    for read in history.reads:
        topic, partition, offset = read.position
        before = last.get((read.reader, topic, partition), -1)
        last[read.reader, topic, partition] = offset
        if offset <= before:
            yield Anomaly(
                "non-monotonic read",
                f"{read.reader} was given {read.position} after it had got offset {before}",
                read.key,
                [read.position, Position(topic, partition, before)],
            )


def _reads(history: History, index: dict[Position, LogRecord]) -> Iterator[Anomaly]:
    changelogs = set(history.changelogs.values())
    committed_at = _commit_times(history)
    committed = {
        place: [record.position.offset for record in records if record.status == COMMITTED]
        for place, records in history.log.items()
    }
    last: dict[tuple[str, str, int], int] = {}
    for read in history.reads:
        yield from _content(read, index, changelogs)
        yield from _too_early(read, committed_at)
        topic, partition, offset = read.position
        before = last.get((read.reader, topic, partition), offset)
        last[read.reader, topic, partition] = offset
        offsets = committed.get((topic, partition), [])
        skipped = offsets[bisect_right(offsets, before) : bisect_left(offsets, offset)]
        if skipped:
            positions = [Position(topic, partition, number) for number in skipped]
            yield Anomaly(
                "skipped read",
                f"{read.reader} was given offset {before} and then {offset} of {topic}-"
                f"{partition}, without the committed {places(positions)} between them",
                index[positions[0]].key,
                positions,
            )


def _content(
    read: Read, index: dict[Position, LogRecord], changelogs: set[str]
) -> Iterator[Anomaly]:
    record = index.get(read.position)
    if (
        record is not None
        and record.status == COMMITTED
        and (record.key, record.value) == (read.key, read.value)
    ):
        return
    what = f"{pair(read.key, read.value)} at {read.position}"
    if record is None:
        if read.position.topic not in changelogs:  # compaction may have removed it
            yield Anomaly(
                "lost",
                f"{what} was delivered to {read.reader}, but at the end the log does not have it",
                read.key,
                [read.position],
            )
    elif record.status != COMMITTED:
        how = "was aborted" if record.status == ABORTED else "was never committed"
        yield Anomaly(
            "aborted read",
            f"{what} was delivered to {read.reader}, but its transaction {how}",
            read.key,
            [read.position],
        )
    else:
        yield Anomaly(
            "wrong",
            f"{what} was delivered to {read.reader}, but the log holds "
            f"{pair(record.key, record.value)} there",
            read.key,
            [read.position],
        )


def _commit_times(history: History) -> dict[Position, float]:
    """When the commit of each record's transaction was first asked for, where events tell."""
    asked: dict[Position, float] = {}
    for event in history.events:
        if event.what == "end_txn commit":
            for position in event.positions:
                asked[position] = min(event.at, asked.get(position, event.at))
    return asked


def _too_early(read: Read, committed_at: dict[Position, float]) -> Iterator[Anomaly]:
    asked = committed_at.get(read.position)
    if asked is not None and read.at < asked:
        yield Anomaly(
            "aborted read",
            f"{pair(read.key, read.value)} at {read.position} was delivered to {read.reader} "
            f"{(asked - read.at) * 1000:.1f} ms before its transaction was asked to commit",
            read.key,
            [read.position],
        )


# transactions and offsets


def _transactions(history: History, index: dict[Position, LogRecord]) -> Iterator[Anomaly]:
    changelogs = set(history.changelogs.values())
    reported: set[frozenset[Position]] = set()
    for name, positions in _written_together(history, index):
        statuses: dict[str, list[Position]] = defaultdict(list)
        for position in positions:
            if position in index:
                statuses[index[position].status].append(position)
            elif position.topic not in changelogs:  # compaction may have removed it
                statuses["missing"].append(position)
        if history.waiting:
            statuses.pop(OPEN, None)  # it stopped in the middle, which is said already
        together = frozenset(positions)
        if (len(statuses) < 2 and OPEN not in statuses) or together in reported:
            continue
        reported.add(together)
        parts = "; ".join(
            f"{status}: {places(where)}" for status, where in sorted(statuses.items())
        )
        fate = "ended in pieces" if len(statuses) > 1 else "was still open at the end"
        first = index.get(positions[0])
        key = None if first is None else first.key
        yield Anomaly("torn transaction", f"{name} {fate} ({parts})", key, positions)


def _written_together(
    history: History, index: dict[Position, LogRecord]
) -> Iterator[tuple[str, list[Position]]]:
    """Records of one transaction, with its name: by the log's labels, then by the events."""
    named: dict[str, list[Position]] = defaultdict(list)
    for record in index.values():
        if record.transaction or record.status == OPEN:
            named[record.transaction].append(record.position)
    for name, positions in named.items():
        yield f"transaction {name}" if name else "a transaction", positions
    for event in history.events:
        if event.what == "end_txn commit" and event.positions:
            yield f"a transaction of {event.host}", list(event.positions)


def _offsets(history: History) -> Iterator[Anomaly]:
    reached: dict[tuple[str, str, int], int] = {}
    for commit in history.commits:
        place = (commit.group, commit.topic, commit.partition)
        before = reached.get(place, 0)
        if commit.offset < before:
            yield Anomaly(
                "offset went back",
                f"group {commit.group} had committed {before} for {commit.topic}-"
                f"{commit.partition} and then committed {commit.offset}: what lies between is "
                "processed again",
                None,
                [Position(commit.topic, commit.partition, commit.offset)],
            )
        reached[place] = commit.offset
    for (topic, partition), end in sorted(history.expected_commits.items()):
        offset = reached.get((history.group, topic, partition), 0)
        if offset > end or (offset < end and not history.waiting):
            yield Anomaly(
                "wrong offset",
                f"at the end group {history.group} had committed {offset} for {topic}-"
                f"{partition}, which ends at {end}",
                None,
                [Position(topic, partition, min(offset, end))],
            )


def _tables_and_changelogs(history: History) -> Iterator[Anomaly]:
    for name, partitions in sorted(history.tables.items()):
        topic = history.changelogs.get(name)
        if topic is None:
            continue
        for partition, content in sorted(partitions.items()):
            logged = fold(history, topic, partition)
            for key in sorted(logged.keys() | content.keys()):
                if logged.get(key) == content.get(key):
                    continue
                yield Anomaly(
                    "table differs from changelog",
                    f"table {name}, partition {partition}, key {present(key)}: its owner has "
                    f"{present(content.get(key))}, the changelog says {present(logged.get(key))}",
                    key,
                    [
                        record.position
                        for record in history.log.get((topic, partition), ())
                        if record.key == key
                    ],
                    expected=[logged.get(key)],
                    found=[content.get(key)],
                )
