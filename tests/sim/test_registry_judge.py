"""What the judge of registries sees: each history is right but for one thing."""

from __future__ import annotations

import json
from typing import Any

from .registry_calls import Call, Op, schema
from .registry_judge import Dump, RegistryHistory, judge
from .registry_model import RawRecord, Version, Write

ONE, TWO = schema("int", 1), schema("int", 2)
OTHER = schema("string", 3)


def record(key: dict[str, Any], value: dict[str, Any] | None) -> RawRecord:
    data = None if value is None else json.dumps(value).encode()
    return RawRecord(json.dumps(key, separators=(",", ":")).encode(), data, 0)


def schema_record(
    number: int, schema_id: int, text: str, *, deleted: bool = False, subject: str = "s"
) -> RawRecord:
    key = {"keytype": "SCHEMA", "subject": subject, "version": number}
    return record(key, {"id": schema_id, "schema": text, "deleted": deleted})


def erased(number: int) -> RawRecord:
    return record({"keytype": "SCHEMA", "subject": "s", "version": number}, None)


def writes(*records: RawRecord) -> list[Write]:
    return [Write(index, [one]) for index, one in enumerate(records)]


def called(
    start: float, end: float, op: Op, answer: Any, *, status: int = 200, at: str = "a"
) -> Call:
    if status >= 400:
        answer = {"error_code": answer, "message": ""}
    return Call("c", at, op, start, end, status, answer)


def registered(start: float, text: str, number: int, schema_id: int, *, at: str = "a") -> Call:
    answer = {"id": schema_id, "version": number}
    return called(start, start + 0.5, Op("register", "s", text), answer, at=at)


def kinds(history: RegistryHistory) -> list[str]:
    return [anomaly.kind for anomaly in judge(history)]


V1, V2 = schema_record(1, 1, ONE), schema_record(2, 2, TWO)
READ_LATEST = Op("version", "s", version=-1)


def latest(number: int, schema_id: int, text: str) -> dict[str, Any]:
    return {"version": number, "id": schema_id, "schema": text}


def test_a_history_that_can_be_is_right() -> None:
    calls = [
        registered(1, ONE, 1, 1),
        registered(2, TWO, 2, 2),
        called(3, 4, READ_LATEST, latest(2, 2, TWO)),
        called(3, 4, Op("register", "s", OTHER), 40901, status=409),
        called(5, 6, Op("by_id", id=9), 40403, status=404),
        called(5, 6, Op("set_config", "s", level="NONE"), "-", status=500),
    ]
    dump = Dump("a", {("s", 1): Version(1, ONE, False), ("s", 2): Version(2, TWO, False)}, {})
    assert kinds(RegistryHistory(calls, writes(V1, V2), [dump])) == []


def test_an_id_means_one_schema_for_ever() -> None:
    again = [V1, erased(1), schema_record(1, 1, TWO)]
    assert "bad write" in kinds(RegistryHistory(writes=writes(*again)))
    calls = [registered(1, ONE, 1, 1), registered(2, TWO, 1, 1)]
    assert "id given twice" in kinds(RegistryHistory(calls, writes(V1)))


def test_the_same_schema_keeps_its_id() -> None:
    history = RegistryHistory(writes=writes(V1, schema_record(1, 2, ONE, subject="t")))
    assert kinds(history) == ["bad write"]


def test_a_version_is_given_once() -> None:
    history = RegistryHistory(writes=writes(V1, V2, erased(1), schema_record(1, 3, OTHER)))
    assert kinds(history) == ["bad write"]


def test_what_was_acknowledged_is_in_the_topic() -> None:
    calls = [registered(1, ONE, 1, 1), registered(2, TWO, 2, 2)]
    assert kinds(RegistryHistory(calls, writes(V1))) == ["acknowledged never true"]
    deleted = called(3, 4, Op("delete_version", "s", version=1), 1)
    assert kinds(RegistryHistory([deleted], writes(V1))) == ["acknowledged never true"]


def test_a_registration_is_true_when_it_is_acknowledged_and_not_long_ago() -> None:
    calls = [
        registered(1, ONE, 1, 1),
        called(2, 3, Op("delete_version", "s", version=1), 1),
        registered(4, ONE, 1, 1, at="b"),
    ]
    history = RegistryHistory(calls, writes(V1, schema_record(1, 1, ONE, deleted=True)))
    assert kinds(history) == ["acknowledged stale"]
    calls[2].start = 2.5  # it may have been first
    assert kinds(history) == []


def test_what_was_told_is_there_at_every_instance() -> None:
    calls = [
        registered(1, ONE, 1, 1),
        called(2, 3, Op("by_id", id=1), 40403, status=404, at="b"),
    ]
    assert kinds(RegistryHistory(calls, writes(V1))) == ["lost"]


def test_an_instance_reads_what_it_answered_and_others_may_be_behind() -> None:
    calls = [
        registered(1, ONE, 1, 1, at="b"),
        registered(2, TWO, 2, 2),
        called(3, 4, READ_LATEST, latest(1, 1, ONE), at="b"),
    ]
    history = RegistryHistory(calls, writes(V1, V2))
    assert kinds(history) == []
    calls[2].at = "a"
    assert kinds(history) == ["read stale"]


def test_a_refusal_is_about_what_was_written_before() -> None:
    allow = record({"keytype": "CONFIG", "subject": "s"}, {"compatibilityLevel": "NONE"})
    calls = [
        called(1, 2, Op("set_config", "s", level="NONE"), {"compatibility": "NONE"}),
        called(3, 4, Op("register", "s", OTHER), 40901, status=409, at="b"),
    ]
    assert kinds(RegistryHistory(calls, writes(V1, allow))) == ["refused stale"]


def test_instances_agree_at_the_end() -> None:
    dump = Dump("b", {("s", 1): Version(1, ONE, True)}, {"": "NONE"})
    found = judge(RegistryHistory(writes=writes(V1), dumps=[dump]))
    assert [anomaly.kind for anomaly in found] == ["instances differ"] * 2
    assert found[0].sentence.startswith("b ")
