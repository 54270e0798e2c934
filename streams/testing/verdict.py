"""Verdicts: an anomaly as a page that a person can read, with the record's whole journey. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

from .faults import KINDS, PROCESS_KINDS
from .history import Anomaly, Event, History, Position
from .wording import pair, present, show

_FAULT_WORDS = frozenset({*KINDS, *PROCESS_KINDS, "restart", "heal", "resume"})
_MARGIN_S = 1.0
"""Faults this long before and after what touched the record are shown."""
_RECORDS = 24
_COLUMNS = 24
_MOMENTS = 60
_ALSO = 10
_BEFORE_FAILURE = 8
_SHORT = 14
_WIDTH = 96


_OF_THE_APP = [
    "What to look for in the app: what a record does may depend on that record and tables only.",
    "A global, a file or the clock is gone, or another, when a record is run again after a crash",
    "or when another worker goes on with its key: keep such state in app.Table(...). A send by a",
    "client of your own is no part of the transaction. at_least_once repeats, at_most_once loses.",
]
_OF_ONCEWARD = ["No app should be able to cause this: please report it as a bug of onceward."]
_ADVICE: Mapping[str, list[str]] = {
    "duplicated": _OF_THE_APP,
    "lost": _OF_THE_APP,
    "wrong": _OF_THE_APP,
    "table differs": _OF_THE_APP,
    "sink differs": _OF_THE_APP,
    "input lost": _OF_ONCEWARD,
    "input duplicated": _OF_ONCEWARD,
    "aborted read": _OF_ONCEWARD,
    "torn transaction": _OF_ONCEWARD,
    "table differs from changelog": _OF_ONCEWARD,
}


class Moment(NamedTuple):
    """A line of the journey.

    ``mark``: ``!`` a fault, ``>`` touches the records in question, ``·`` others of their key (when
    no record is in question, these are), blank for what happened around.
    """

    at: float
    mark: str
    host: str
    text: str


def verdict(anomalies: Sequence[Anomaly], history: History) -> str:
    """All anomalies of a run: how many of which kind, the first explained, the others named."""
    if not anomalies:
        return "nothing wrong was found"
    if len(anomalies) == 1:
        return explain(anomalies[0], history)
    kinds = Counter(anomaly.kind for anomaly in anomalies)
    counted = ", ".join(f"{count} × {kind}" for kind, count in kinds.items())
    others = [f"  {anomaly.kind}: {anomaly.sentence}" for anomaly in anomalies[1 : _ALSO + 1]]
    if len(anomalies) > _ALSO + 1:
        others.append(f"  and {len(anomalies) - _ALSO - 1} more")
    head = f"{len(anomalies)} anomalies ({counted}); the first, which may explain the others:"
    return "\n".join([head, "", explain(anomalies[0], history), "", "The others", *others])


def explain(anomaly: Anomaly, history: History) -> str:
    """The sentence; expected against found; the key's records; its journey; advice."""
    related = _related(anomaly, history)
    parts = [[f"{anomaly.kind.upper()}: {anomaly.sentence}"]]
    if anomaly.expected is not None and anomaly.found is not None:
        parts.append(_difference(anomaly))
    elif anomaly.found is not None:
        parts.append(["What waits", *(f"  {line}" for line in anomaly.found)])
    parts.append(_records(anomaly, history, related))
    parts.append(_journey(anomaly, history, related))
    parts.append(_ADVICE.get(anomaly.kind, []))
    return "\n\n".join("\n".join(part) for part in parts if part)


def _related(anomaly: Anomaly, history: History) -> set[Position]:
    """The anomaly's own records and all others of its key, whatever became of them."""
    related = set(anomaly.positions)
    if anomaly.key is not None:
        for records in history.log.values():
            related |= {record.position for record in records if record.key == anomaly.key}
    return related


# expected and found


def _difference(anomaly: Anomaly) -> list[str]:
    in_words = present if anomaly.kind.startswith("table") else show
    expected = [in_words(value, 400) for value in anomaly.expected or ()]
    found = [in_words(value, 400) for value in anomaly.found or ()]
    columns = list(_columns(expected, found))
    if any(len(text) > _SHORT for text in (*expected, *found)):
        lines = ["Expected (-) and found (+)", *_below_each_other(columns[:_COLUMNS])]
        more = len(columns) - _COLUMNS
        return [*lines, f"    … and {more} more"] if more > 0 else lines
    return _beside_each_other(columns)


def _columns(expected: list[str], found: list[str]) -> Iterator[tuple[str, str]]:
    """Pairs (expected, found); "" stands for nothing there; long equal stretches become "…"."""
    matcher = SequenceMatcher(None, expected, found, autojunk=False)
    for what, start, end, other_start, other_end in matcher.get_opcodes():
        if what == "equal":
            same = expected[start:end]
            if len(same) > 7:
                same = [*same[:3], "…", *same[-3:]]
            yield from zip(same, same, strict=True)
            continue
        left, right = expected[start:end], found[other_start:other_end]
        for number in range(max(len(left), len(right))):
            yield (
                left[number] if number < len(left) else "",
                right[number] if number < len(right) else "",
            )


def _beside_each_other(columns: list[tuple[str, str]]) -> list[str]:
    rows = [["expected"], ["found   "], ["        "]]
    lines: list[str] = []
    for left, right in columns:
        cells = (left or "·", right or "·", "" if left == right else "^" * len(right or "·"))
        width = max(len(cell) for cell in cells)
        if sum(len(cell) + 2 for cell in rows[0]) + width > _WIDTH:
            lines += _rows(rows)
            rows = [["        "], ["        "], ["        "]]
        for row, cell in zip(rows, cells, strict=True):
            row.append(cell.ljust(width))
    return [*lines, *_rows(rows)]


def _rows(rows: list[list[str]]) -> list[str]:
    lines = [("  " + "  ".join(row)).rstrip() for row in rows]
    return [line for line in lines if line]


def _below_each_other(columns: list[tuple[str, str]]) -> Iterator[str]:
    for left, right in columns:
        if left == right:
            yield f"    {left}"
            continue
        if left:
            yield f"  - {left}"
        if right:
            yield f"  + {right}"


# the records


def _records(anomaly: Anomaly, history: History, related: set[Position]) -> list[str]:
    own = set(anomaly.positions)
    shown = sorted(related)
    if len(shown) > _RECORDS:
        others = [position for position in shown if position not in own]
        shown = sorted([*sorted(own)[:_RECORDS], *others[: max(0, _RECORDS - len(own))]])
    if not shown:
        return []
    width = max(len(str(position)) for position in shown)
    title = "The records" if anomaly.key is None else f"The records of key {show(anomaly.key)}"
    lines = [f"{title} (> those in question)"]
    for position in shown:
        record = history.find(position)
        mark = ">" if position in own else " "
        if record is None:
            lines.append(f"{mark} {str(position).ljust(width)}  not in the log")
            continue
        of = f"  transaction {record.transaction}" if record.transaction else ""
        what = pair(record.key, record.value)
        lines.append(f"{mark} {str(position).ljust(width)}  {record.status:<9}  {what}{of}")
    if len(shown) < len(related):
        lines.append(f"  … and {len(related) - len(shown)} more of the key")
    return lines


# the journey


def _journey(anomaly: Anomaly, history: History, related: set[Position]) -> list[str]:
    touching = [
        *_events_of_the_record(anomaly, history, related),
        *_inputs(anomaly, history, related),
        *_reads(anomaly, history, related),
        *_commits(anomaly, history, related),
    ]
    times = [moment.at for moment in touching]
    first = min(times, default=float("-inf")) - _MARGIN_S
    last = max(times, default=float("inf")) + _MARGIN_S
    faults = [
        Moment(event.at, "!", event.host, _event_text(event))
        for event in history.events
        if _is_fault(event) and first <= event.at <= last
    ]
    if not touching:
        tail = [event for event in history.events if not _is_fault(event)][-20:]
        touching = [Moment(event.at, " ", event.host, _event_text(event)) for event in tail]
    moments = sorted([*touching, *faults], key=lambda moment: moment.at)
    for least in " ·":
        if len(moments) > _MOMENTS:
            moments = [moment for moment in moments if moment.mark != least] or moments
    if not moments:
        return []
    start = _start(history)
    width = max(len(moment.host) for moment in moments)
    indent = "\n" + " " * (width + 15)
    lines = [
        f"{moment.mark} {moment.at - start:9.4f}  {moment.host.ljust(width)}  "
        + moment.text.replace("\n", indent)
        for moment in moments
    ]
    if len(lines) > _MOMENTS:
        head, left_out = _MOMENTS // 3, len(lines) - _MOMENTS
        lines[head : head + left_out] = [f"  … {left_out} more …"]
    return ["What happened (seconds; > the record itself, · its key, ! a fault)", *lines]


def _start(history: History) -> float:
    times = [sent.sent_at for sent in history.inputs] + [event.at for event in history.events]
    return min(times, default=0.0)


def _is_fault(event: Event) -> bool:
    return event.what.split(" ", 1)[0] in _FAULT_WORDS


def _event_text(event: Event) -> str:
    where = _ranges(event.positions)
    return "  ".join(part for part in (event.what, where, event.detail) if part)


def _events_of_the_record(
    anomaly: Anomaly, history: History, related: set[Position]
) -> Iterator[Moment]:
    """Events that touch the key, and around the anomaly's own records their transactions.

    An output may have another key than the input it was made from: all that its host did between
    the ends of the transactions before and after tells where it came from.
    """
    own = set(anomaly.positions)
    windows = _transactions_around(history, own)
    before_failure = _before_failure(history) if anomaly.kind == "worker failed" else frozenset()
    for number, event in enumerate(history.events):
        if _is_fault(event):
            continue
        around = windows.get(event.host, ())
        if event.what == "worker failed":
            yield Moment(event.at, ">", event.host, _event_text(event))
        elif related.intersection(event.positions):
            mark = _mark(own, *event.positions)
            yield Moment(event.at, mark, event.host, _event_text(event))
        elif number in before_failure or any(start < event.at <= end for start, end in around):
            yield Moment(event.at, " ", event.host, _event_text(event))


def _transactions_around(
    history: History, own: set[Position]
) -> dict[str, list[tuple[float, float]]]:
    """Host -> the spans of time in which it worked on a transaction that wrote one of ``own``."""
    ends: dict[str, list[float]] = {}
    for event in history.events:
        if event.what.startswith("end_txn") or _is_fault(event):
            ends.setdefault(event.host, []).append(event.at)
    windows: dict[str, list[tuple[float, float]]] = {}
    for event in history.events:
        if event.what.startswith("produced") and own.intersection(event.positions):
            times = sorted(ends.get(event.host, ()))
            before, after = bisect_left(times, event.at), bisect_right(times, event.at)
            start = times[before - 1] if before else float("-inf")
            end = times[after] if after < len(times) else event.at
            windows.setdefault(event.host, []).append((start, end))
    return windows


def _before_failure(history: History) -> frozenset[int]:
    """The numbers of the last events of each host that failed, before it did."""
    recent: dict[str, list[int]] = {}
    numbers: set[int] = set()
    for number, event in enumerate(history.events):
        if event.what == "worker failed":
            numbers.update(recent.get(event.host, ())[-_BEFORE_FAILURE:])
        elif not _is_fault(event):
            recent.setdefault(event.host, []).append(number)
    return frozenset(numbers)


def _mark(own: Collection[Position], *touched: Position) -> str:
    return "·" if own and not any(position in own for position in touched) else ">"


def _inputs(anomaly: Anomaly, history: History, related: set[Position]) -> Iterator[Moment]:
    own = [history.find(position) for position in anomaly.positions]
    contents = {(record.key, record.value) for record in own if record is not None}
    for sent in history.inputs:
        what = pair(sent.key, sent.value)
        if sent.offset is None:
            if anomaly.key is None or sent.key != anomaly.key:
                continue
            mark = ">" if not own or (sent.key, sent.value) in contents else "·"
            where = f"{sent.topic}-{sent.partition}"
            fate = "" if sent.acked_at is not None else "  (never acknowledged)"
            yield Moment(sent.sent_at, mark, "input", f"sent  {where}  {what}{fate}")
            continue
        position = Position(sent.topic, sent.partition, sent.offset)
        if position in related:
            mark = _mark(anomaly.positions, position)
            yield Moment(sent.sent_at, mark, "input", f"sent  {position}  {what}")
            if sent.acked_at is not None:
                yield Moment(sent.acked_at, mark, "input", f"acknowledged  {position}")


def _reads(anomaly: Anomaly, history: History, related: set[Position]) -> Iterator[Moment]:
    for read in history.reads:
        if read.position in related:
            mark = _mark(anomaly.positions, read.position)
            what = pair(read.key, read.value)
            yield Moment(read.at, mark, read.reader, f"read  {read.position}  {what}")


def _commits(anomaly: Anomaly, history: History, related: set[Position]) -> Iterator[Moment]:
    """Per related input the first commit past it; where offsets are the matter, all commits."""
    places = {(position.topic, position.partition) for position in anomaly.positions}
    about_offsets = anomaly.kind in ("offset went back", "wrong offset")
    waiting = set(related)
    for commit in history.commits:
        passed = {
            position
            for position in waiting
            if (position.topic, position.partition) == (commit.topic, commit.partition)
            and position.offset < commit.offset
        }
        waiting -= passed
        if passed or (about_offsets and (commit.topic, commit.partition) in places):
            mark = ">" if about_offsets else _mark(anomaly.positions, *passed)
            text = f"offset {commit.offset} of {commit.topic}-{commit.partition} is committed"
            yield Moment(commit.at, mark, commit.group, text)


def _ranges(positions: Sequence[Position]) -> str:
    """Positions with neighbours joined: ``words-0@3..7``; at most four stretches."""
    stretches: list[list[Position]] = []
    for position in sorted(positions):
        last = stretches[-1][-1] if stretches else None
        if last is not None and last[:2] == position[:2] and last.offset + 1 == position.offset:
            stretches[-1].append(position)
        else:
            stretches.append([position])
    shown = [
        f"{part[0]}..{part[-1].offset}" if len(part) > 1 else str(part[0]) for part in stretches
    ]
    more = f" and {len(shown) - 4} more" if len(shown) > 4 else ""
    return ", ".join(shown[:4]) + more
