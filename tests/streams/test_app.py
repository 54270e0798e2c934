"""Declarations and settings: what cannot be kept is refused with a sentence."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from onceward.streams import App, ConfigurationError, NotRunningError, OutsideAgentError
from onceward.streams.config import broker_address
from onceward.streams.engine.cron import Crontab
from onceward.streams.engine.output import Outputs, split
from onceward.streams.engine.slots import take_slot

from .workers import make_app


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"processing_guarantee": "exactly-twice"}, "is not one of 'exactly_once'"),
        ({"on_agent_error": "ignore"}, "is not one of 'stop', 'dead_letter'"),
        ({"store": "redis://"}, "store 'redis://' is unknown"),
        ({"commit_interval": 0}, "commit_interval must be more than 0"),
        ({"commit_interval": 60.0}, "shorter than broker_rebalance_timeout"),
        ({"broker_session_timeout": 0.5}, "at least three times"),
        ({"ssl_context": object()}, "TLS is not supported yet"),
        ({"producer_partitioner": len}, "Kafka's default partitioner"),
        ({"comit_interval": 1}, "no setting 'comit_interval'"),
        ({"consumer_auto_offset_reset": "newest"}, "must be earliest, latest or none"),
    ],
)
def test_settings_that_promise_too_much_are_refused(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        App("app", **options)


def test_harmless_faust_settings_are_accepted() -> None:
    app = App("app", web_enabled=False, table_cleanup_interval=1, version=2, store="rocksdb://")
    assert app.id == "app-v2"


def test_an_app_id_must_be_usable_as_a_topic_name() -> None:
    with pytest.raises(ConfigurationError, match="letters, digits"):
        App("my app")


@pytest.mark.parametrize(
    ("given", "address"),
    [
        ("kafka://a:1", "a:1"),
        ("kafka://a:1;kafka://b:2", "a:1,b:2"),
        ("a:1,b:2", "a:1,b:2"),
        (["kafka://a:1", "b:2"], "a:1,b:2"),
        (None, None),
    ],
)
def test_broker_addresses(given: Any, address: str | None) -> None:
    assert broker_address(given) == address


def test_declarations_that_cannot_work_are_refused(tmp_path: Path) -> None:
    app = make_app(tmp_path)
    with pytest.raises(ConfigurationError, match="pattern"):
        app.topic(pattern="a.*")
    with pytest.raises(ConfigurationError, match="at least 1"):
        app.topic("a", partitions=0)
    app.Table("t")
    with pytest.raises(ConfigurationError, match="two tables"):
        app.Table("t")
    with pytest.raises(ConfigurationError, match="callable"):
        app.Table("u", default=0)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="no sink"):
        app.agent(app.topic("a"), sink=[7])(lambda stream: None)


def test_the_same_declaration_gives_the_same_topic(tmp_path: Path) -> None:
    app = make_app(tmp_path)
    assert app.topic("a", value_type=str) is app.topic("a", value_type=str)
    assert app.topic("a", value_type=str) is not app.topic("a", value_type=int)


def test_tables_outside_of_agents_cannot_be_written(tmp_path: Path) -> None:
    table = make_app(tmp_path).Table("t", default=int)
    with pytest.raises(OutsideAgentError, match="'t' can only be changed by an agent"):
        table["a"] = 1
    with pytest.raises(NotRunningError):
        table["a"]


def test_slots_are_locked_and_stable(tmp_path: Path) -> None:
    first, second = take_slot(tmp_path, "app"), take_slot(tmp_path, "app")
    assert (first.number, second.number) == (0, 1)
    identity = first.identity
    first.release()
    again = take_slot(tmp_path, "app")
    assert again.identity == identity
    assert take_slot(tmp_path, "other").number == 0
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="cannot be used"):
        take_slot(tmp_path / "file", "app")


def test_outputs_are_split_by_key_as_kafka_does_and_can_be_undone() -> None:
    outputs = Outputs()
    out = outputs.open("t")
    for key in (b"a", b"b", None, b"a"):
        out.keys.append(key)
        out.values.append(key)
        out.timestamps.append(1)
    out.partitions[1] = 3
    out.headers[3] = (("h", b"1"),)
    mark = outputs.mark()
    outputs.open("t").keys.append(b"x")
    out.values.append(b"x")
    out.timestamps.append(1)
    out.headers[4] = (("h", b"2"),)
    outputs.open("new").values.append(b"y")
    outputs.roll_back(mark)
    assert not outputs.topics["new"].values
    parts = {part.partition: part for part in split(outputs.take(), {"t": 4, "new": 1}, 6)}
    assert parts[3].values == [b"b"]
    assert parts[2].values == [None]
    (same,) = (part for part in parts.values() if part.values == [b"a", b"a"])
    assert same.headers == [(), (("h", b"1"),)]
    assert not outputs


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("* * * * *", "2024-02-28T10:31"),
        ("*/20 * * * *", "2024-02-28T10:40"),
        ("0 0 29 feb *", "2024-02-29T00:00"),
        ("15 9-17/4 * * mon-fri", "2024-02-28T13:15"),
        ("0 12 1 * sun", "2024-03-01T12:00"),
        ("5,35 10 * * *", "2024-02-28T10:35"),
    ],
)
def test_crontabs(text: str, expected: str) -> None:
    now = datetime(2024, 2, 28, 10, 30, 30, tzinfo=UTC).timestamp()
    found = datetime.fromtimestamp(Crontab.parse(text).next_after(now), UTC)
    assert found.isoformat(timespec="minutes").removesuffix("+00:00") == expected


@pytest.mark.parametrize("text", ["* * * *", "61 * * * *", "a * * * *", "5-1 * * * *"])
def test_wrong_crontabs_are_refused(text: str) -> None:
    with pytest.raises(ConfigurationError):
        Crontab.parse(text)
