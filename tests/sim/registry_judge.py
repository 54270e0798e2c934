"""Whether what clients of registries were told can be true.

The topic is the witness: every answer has to fit the state after some write of it. Which ones are
possible follows from real time. What was answered before a request began, by anybody, is a lower
bound for writes, refusals, and for what is not there; what is read from an instance's memory may be
older, but not older than what this instance answered before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from onceward.streams.testing.history import Anomaly

from .registry_calls import LATEST, READS, Call, family
from .registry_model import Model, Version, Write, faults_of, states_of

EFFECTS = frozenset({"delete_version", "delete_subject", "set_config", "delete_config"})


class Dump(NamedTuple):
    """All that one instance says at the end: (subject, version) -> what, scope -> level."""

    at: str
    versions: dict[tuple[str, int], Version]
    levels: dict[str, str]


@dataclass
class RegistryHistory:
    """What happened in a run. ``hidden``: differences between the states in the memory of
    instances. ``waiting``: not empty when it came to no end."""

    calls: list[Call] = field(default_factory=list)
    writes: list[Write] = field(default_factory=list)
    dumps: list[Dump] = field(default_factory=list)
    hidden: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)


def judge(history: RegistryHistory) -> list[Anomaly]:
    """What cannot be; the likeliest cause first."""
    states = states_of(history.writes)
    found = [Anomaly("bad write", fault) for fault in faults_of(states)]
    found += [Anomaly("registry failed", failure) for failure in history.failures]
    found += _contradictions(history.calls)
    found += _Explanation(states, history.writes).unexplained(history.calls)
    final = states[-1]
    for dump in history.dumps:
        found += _compared(dump, final)
    found += [Anomaly("hidden state differs", difference) for difference in history.hidden]
    if history.waiting:
        found.append(Anomaly("no progress", "\n  ".join(history.waiting)))
    return found


def _contradictions(calls: Sequence[Call]) -> list[Anomaly]:
    """Ids that clients were told of two schemas."""
    meanings: dict[int, str] = {}
    found = []
    for call in calls:
        if call.code == 200 and call.op.kind == "register":
            text = meanings.setdefault(call.answer["id"], call.op.schema)
            if text != call.op.schema:
                found.append(Anomaly("id given twice", f"{call}; it was told before for {text}"))
    return found


def _compared(dump: Dump, final: Model) -> list[Anomaly]:
    expected = {
        (subject, number): version
        for subject, versions in final.subjects.items()
        for number, version in versions.items()
    }
    found = []
    if dump.versions != expected:
        differing = dict(dump.versions.items() ^ expected.items())
        found.append(Anomaly("instances differ", f"{dump.at} and the topic: {differing}"))
    levels = {scope: final.level(scope) for scope in dump.levels}
    if dump.levels != levels:
        found.append(Anomaly("instances differ", f"{dump.at}: levels {dump.levels}, not {levels}"))
    return found


class _Explanation:
    """Finds for each answer the earliest state in which it is true."""

    def __init__(self, states: Sequence[Model], writes: Sequence[Write]) -> None:
        self._states = states
        self._writes = writes
        self._everywhere: list[tuple[float, int]] = []
        self._at: dict[str, list[tuple[float, int]]] = {}

    def unexplained(self, calls: Sequence[Call]) -> list[Anomaly]:
        found = []
        for call in sorted(calls, key=lambda call: call.start):
            if not call.code:
                continue
            from_memory = call.code == 200 and call.op.kind in READS
            known = self._at.get(call.at, []) if from_memory else self._everywhere
            least = max((index for end, index in known if end < call.start), default=0)
            index = self._earliest(call, least)
            if index is None:
                before = self._earliest(call, 0)
                kind = "never true" if before is None else "stale"
                found.append(Anomaly(_kind_of(call, kind), f"{call}: {_told(call, before, least)}"))
                continue
            self._everywhere.append((call.end, index))
            self._at.setdefault(call.at, []).append((call.end, index))
        return found

    def _earliest(self, call: Call, least: int) -> int | None:
        states, writes = self._states, self._writes
        if call.code == 200 and call.op.kind in EFFECTS:
            for index in range(least + 1, len(states)):
                if _effected(states[index - 1], writes[index - 1], states[index], call):
                    return index
            return None
        return next((i for i in range(least, len(states)) if _fits(states[i], call)), None)


def _kind_of(call: Call, how: str) -> str:
    if call.op.kind in READS:
        return "lost" if call.code != 200 and how == "stale" else f"read {how}"
    return f"{'acknowledged' if call.code == 200 else 'refused'} {how}"


def _told(call: Call, index: int | None, least: int) -> str:
    if index is None:
        return "true after no write of the topic"
    return f"true after write {index}, but not after {least}, which was seen before"


# one state


def _fits(state: Model, call: Call) -> bool:
    """Whether an answer that does not tell of a change is true in a state."""
    op, code, answer = call.op, call.code, call.answer
    live = state.versions(op.subject)
    every = state.versions(op.subject, deleted=True)
    match op.kind:
        case "register":
            return _fits_registration(state, call, live)
        case "look_up":
            return _fits_look_up(call, every if op.deleted else live)
        case "by_id":
            known = state.ids().get(op.id)
            return answer["schema"] == known if code == 200 else (code, known) == (40403, None)
        case "version":
            number = max(live, default=0) if op.version == LATEST else op.version
            return _found(live, number, code, answer)
        case "versions":
            listed = [*(every if op.deleted else live)]
            return answer == listed if code == 200 else (code, listed) == (40401, [])
        case "get_config":
            return code == 200 and answer["compatibilityLevel"] == state.level(op.subject)
        case "delete_subject" if op.permanent:
            return code == (40405 if live else 0 if every else 40401)
        case "delete_subject":
            return code == (0 if live else 40404 if every else 40401)
        case "delete_version":
            return code == _refusal_of_deletion(op.version, op.permanent, live, every)
        case "delete_config":
            return code == 40401 and op.subject not in state.levels
    return False


def _fits_registration(state: Model, call: Call, live: dict[int, Version]) -> bool:
    op, answer = call.op, call.answer
    same = [(number, one.id) for number, one in live.items() if one.schema == op.schema]
    if call.code == 200:
        return (answer["version"], answer["id"]) in same
    if call.code != 40901 or same or not live:
        return False
    newest = live[max(live)]
    return state.level(op.subject) == "BACKWARD" and family(newest.schema) != family(op.schema)


def _fits_look_up(call: Call, versions: dict[int, Version]) -> bool:
    same = [(number, one.id) for number, one in versions.items() if one.schema == call.op.schema]
    if call.code == 200:
        return same[-1:] == [(call.answer["version"], call.answer["id"])]
    return call.code == (0 if same else 40403 if versions else 40401)


def _found(live: dict[int, Version], number: int, code: int, answer: Any) -> bool:
    if not live or number not in live:
        return code == (40402 if live else 40401)
    told = (answer.get("version"), answer.get("id"), answer.get("schema"))
    return code == 200 and told == (number, live[number].id, live[number].schema)


def _refusal_of_deletion(
    number: int, permanent: bool, live: dict[int, Version], every: dict[int, Version]
) -> int:
    if not every:
        return 40401
    if number == LATEST:
        return 0 if live else 40402
    if number not in every:
        return 40402
    if permanent:
        return 40407 if number in live else 0
    return 0 if number in live else 40406


# one write


def _effected(before: Model, write: Write, after: Model, call: Call) -> bool:
    """Whether this write did what was acknowledged."""
    op, answer = call.op, call.answer
    live, every = before.versions(op.subject), before.versions(op.subject, deleted=True)
    own = after.levels.get(op.subject)
    match op.kind:
        case "delete_subject" if op.permanent:
            gone = not after.versions(op.subject, deleted=True)
            return gone and not live and answer == [*every]
        case "delete_subject":
            return answer == [*live] and bool(live) and not after.versions(op.subject)
        case "delete_version":
            number = max(live, default=0) if op.version == LATEST else op.version
            left = after.versions(op.subject, deleted=op.permanent)
            was = number in (every if op.permanent else live)
            return answer == number and was and number not in left
        case "set_config":
            is_set = answer == {"compatibility": op.level} == {"compatibility": own}
            return is_set and any(b'"CONFIG"' in record.key for record in write.records)
        case "delete_config":
            return op.subject in before.levels and own is None
    return False
