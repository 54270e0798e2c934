"""The Redis sink against Redis: kinds, keys, what adds up, and what is refused."""

from __future__ import annotations

import enum
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onceward.broker.client import TopicPartition
from onceward.streams import ConfigurationError, Record
from onceward.streams.sinks import RedisSink, SinkError
from onceward.streams.sinks.effects import EffectId
from onceward.streams.sinks.positions import Position, Start
from onceward.streams.sinks.redis_script import hash_tag, keys_of

from .driven import TP, Driven, driven
from .redis_server import RedisServer


@asynccontextmanager
async def sink(redis: RedisServer, **options: Any) -> AsyncIterator[Driven[RedisSink]]:
    """A started sink that owns the partition."""
    made = RedisSink(redis.url(), **{"name": "s", **options})
    try:
        yield await driven(made)
    finally:
        await made.close()


def keys(redis: RedisServer) -> list[str]:
    return sorted(key for key in redis.client.scan_iter() if not key.startswith("onceward_"))


class Colour(enum.Enum):
    RED = "red"


class Place(Record):
    city: str


class Flight(Record):
    id: str
    minutes: int
    late: bool = False
    delay: float | None = None
    price: Decimal = Decimal("1.10")
    at: datetime = datetime(2026, 1, 2, tzinfo=UTC)
    raw: bytes = b"a\xff"
    uid: UUID = UUID(int=7)
    colour: Colour = Colour.RED
    legs: tuple[int, ...] = (1, 2)
    place: Place | None = None


# kinds


async def test_a_row_becomes_a_hash_and_an_upsert_leaves_other_fields(redis: RedisServer) -> None:
    async with sink(redis, key="id", prefix="user:") as one:
        await one.write({"id": 1, "name": "Ann", "age": 5}, {"id": 2, "name": "Bob"})
        await one.write({"id": 1, "age": None, "city": "Oslo"})
        assert redis.client.hgetall("user:1") == {"id": "1", "name": "Ann", "city": "Oslo"}
        await one.write((2, None))
        assert keys(redis) == ["user:1"]
    assert redis.client.hgetall("onceward_positions:app:s") == {"orders:0": "4 1 0"}


async def test_every_type_has_one_text(redis: RedisServer) -> None:
    async with sink(redis, key="id") as one:
        await one.write(Flight("a", 5, place=Place("Oslo")))
    found = {
        field.decode(): value
        for field, value in redis.client.execute_command("HGETALL", "a", NEVER_DECODE=True).items()
    }
    assert found == {
        "id": b"a", "minutes": b"5", "late": b"0", "price": b"1.10", "at": b"2026-01-02T00:00:00Z",
        "raw": b"a\xff", "uid": str(UUID(int=7)).encode(), "colour": b"red", "legs": b"[1,2]",
        "place": b'{"city":"Oslo"}',
    }  # fmt: skip


@dataclass
class Point:
    x: int
    y: float


@pytest.mark.parametrize("value", [Point(1, 0.1), {"x": 1, "y": 0.1}])
async def test_a_row_becomes_a_document(redis: RedisServer, value: Any) -> None:
    async with sink(redis, key="x", prefix="p:", kind="json") as one:
        await one.write(value)
        assert redis.client.get("p:1") == '{"x":1,"y":0.1}'
        await one.write({"x": 1, "late": True, "legs": [1, {"a": None}]})
        assert redis.client.get("p:1") == '{"x":1,"late":true,"legs":[1,{"a":null}]}'
        await one.write((1, None))
    assert keys(redis) == []


async def test_values_are_written_as_they_are_under_the_records_key(redis: RedisServer) -> None:
    async with sink(redis, kind="string", prefix="n:") as one:
        await one.write(
            ("a", 5), ("b", "text"), (b"\xff", b"\x00\xfe"), ("c", 0.1), ("d", Colour.RED)
        )
        await one.write(("b", None))
    values = {key: redis.client.get(f"n:{key}") for key in ("a", "b", "c", "d")}
    assert values == {"a": "5", "b": None, "c": "0.1", "d": "red"}
    assert redis.client.execute_command("GET", b"n:\xff", NEVER_DECODE=True) == b"\x00\xfe"


async def test_rows_are_appended_to_a_list_and_to_a_stream(redis: RedisServer) -> None:
    async with (
        sink(redis, kind="list", prefix="all") as lists,
        sink(redis, kind="stream", prefix="log:", key="id", name="t") as streams,
    ):
        await lists.write({"id": 1}, {"id": 2, "at": Place("Oslo")})
        await lists.write({"id": 1})
        await streams.write({"id": 1, "n": 1, "gone": None}, {"id": 2, "n": 2}, {"id": 1, "n": 3})
    assert redis.client.lrange("all", 0, -1) == [
        '{"id":1}',
        '{"id":2,"at":{"city":"Oslo"}}',
        '{"id":1}',
    ]
    entries = [fields for _, fields in redis.client.xrange("log:1")]
    assert entries == [{"id": "1", "n": "1"}, {"id": "1", "n": "3"}]


@pytest.mark.parametrize("kind", ["list", "stream"])
async def test_the_oldest_elements_give_way(redis: RedisServer, kind: str) -> None:
    async with sink(redis, kind=kind, prefix="all", max_length=300) as one:
        for start in range(0, 2000, 500):
            await one.write(*({"n": n} for n in range(start, start + 500)))
    if kind == "list":
        assert [
            row == f'{{"n":{1700 + at}}}'
            for at, row in enumerate(redis.client.lrange("all", 0, -1))
        ]
        assert redis.client.llen("all") == 300
    else:
        assert 300 <= redis.client.xlen("all") < 500


@pytest.mark.parametrize("kind", ["hash", "json", "list", "stream"])
async def test_time_to_live_begins_anew_with_every_write(redis: RedisServer, kind: str) -> None:
    async with sink(redis, key="id", kind=kind, ttl=100) as one:
        await one.write({"id": 1})
        assert 90 < redis.client.ttl("1") <= 100
        redis.client.expire("1", 5)
        await one.write({"id": 1}, {"id": 2})
        assert 90 < redis.client.ttl("1") <= 100
    assert redis.client.ttl("onceward_positions:app:s") == -1


# keys


async def test_keys_of_several_columns_never_meet(redis: RedisServer) -> None:
    async with sink(redis, key=("a", "b"), prefix="k:", kind="json") as one:
        await one.write({"a": "x:y", "b": "z"}, {"a": "x", "b": "y:z"}, {"a": "x%3Ay", "b": "z"})
        assert keys(redis) == ["k:x%253Ay:z", "k:x%3Ay:z", "k:x:y%3Az"]
        await one.write((("x:y", "z"), None), ({"a": "x", "b": "y:z"}, None))
    assert keys(redis) == ["k:x%253Ay:z"]


async def test_a_key_is_made_by_a_function_given_or_the_records(redis: RedisServer) -> None:
    async with (
        sink(redis, key=lambda row: f"{row['kind']}-{row['id']}", prefix="k:") as made,
        sink(redis, name="t", prefix="r:", kind="json") as records,
    ):
        await made.write({"kind": "a", "id": 1}, ("given", {"kind": "b", "id": 2}))
        await records.write((UUID(int=1), {"x": 1}), (datetime(2026, 1, 2), {"x": 2}))  # noqa: DTZ001
    assert keys(redis) == ["k:a-1", "k:given", f"r:{UUID(int=1)}", "r:2026-01-02T00:00:00"]


@pytest.mark.parametrize("key", [None, {"a": 1}, [1], True, 1.5])
async def test_what_is_no_key_is_an_error_of_the_agent(redis: RedisServer, key: Any) -> None:
    one = RedisSink(redis.url(), key="id")
    records = RedisSink(redis.url())
    with pytest.raises((TypeError, ValueError), match="sink 'redis': 'id', which is its key"):
        one.encode({"id": key}, None, None)  # type: ignore[arg-type]
    if key is not None:
        with pytest.raises(TypeError, match="the key of a row cannot be"):
            records.encode({"id": 1}, key, None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="None deletes, and a list is added to"):
        RedisSink(redis.url(), kind="list", prefix="l").encode(None, "a", None)  # type: ignore[arg-type]


# a batch


async def test_a_batch_of_one_key_adds_up(redis: RedisServer) -> None:
    async with sink(redis, key="id") as one:
        await one.write(
            {"id": 1, "a": 1, "b": 1}, {"id": 1, "b": 2}, {"id": 1, "a": None},
            {"id": 2, "a": 1}, (2, None), {"id": 2, "b": 1}, {"id": 3, "a": 1}, (3, None),
        )  # fmt: skip
        assert redis.client.hgetall("1") == {"id": "1", "b": "2"}
        assert redis.client.hgetall("2") == {"id": "2", "b": "1"}
        await one.write((2, None), {"id": 2, "c": 1})
        assert redis.client.hgetall("2") == {"id": "2", "c": "1"}
    assert keys(redis) == ["1", "2"]


FIELD = st.sampled_from(["a", "b", "c"])
VALUE = st.one_of(st.none(), st.integers(-3, 3), st.text(max_size=3), st.binary(max_size=3))
ROW = st.dictionaries(FIELD, VALUE, max_size=3)
WRITES = st.lists(st.tuples(st.integers(0, 2), st.one_of(st.none(), ROW)), max_size=8)


def _text(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


@given(batches=st.lists(WRITES, min_size=1, max_size=3))
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
async def test_hashes_are_what_writing_one_row_after_another_makes(
    redis: RedisServer, batches: list[list[tuple[int, dict[str, Any] | None]]]
) -> None:
    redis.client.flushall()
    expected: dict[int, dict[str, bytes]] = {}
    async with sink(redis, prefix="h:") as one:
        for batch in batches:
            await one.write(*batch)
            for key, row in batch:
                if row is None:
                    expected.pop(key, None)
                    continue
                fields = expected.setdefault(key, {})
                for name, value in row.items():
                    fields.pop(name, None)
                    if value is not None:
                        fields[name] = _text(value)
    for key in range(3):
        found = redis.client.execute_command("HGETALL", f"h:{key}", NEVER_DECODE=True)
        assert {name.decode(): value for name, value in found.items()} == expected.get(key, {})


async def test_large_rows_and_batches_go_in_pieces(redis: RedisServer) -> None:
    wide = {f"f{n}": "x" * 100 for n in range(9_000)}
    async with sink(redis, key="id") as one:
        await one.write({"id": "wide", **wide}, *({"id": n, "x": "y" * 1000} for n in range(3_000)))
        await one.write({"id": "wide", **dict.fromkeys(wide)}, {"id": "long", "x": "z" * 5_000_000})
    assert redis.client.hgetall("wide") == {"id": "wide"}
    assert redis.client.hstrlen("long", "x") == 5_000_000
    assert redis.client.dbsize() == 3_003


# refused rows


async def test_a_key_of_another_type_is_refused_and_the_rest_lands(redis: RedisServer) -> None:
    redis.client.set("2", "text")
    async with sink(redis, key="id") as one:
        rows = [{"id": 1}, {"id": 2}, {"id": 3}, (2, None)]
        with pytest.raises(SinkError, match=r"orders-0 at offset 1: key '2' is a string already"):
            await one.write(*rows)
        assert keys(redis) == ["2"]
        batch = await one.write(*rows, dead_letters=True)
        assert batch.refused == [
            (1, "key '2' is a string already"),
            (3, "key '2' is a string already"),
        ]
        assert keys(redis) == ["1", "2", "3"]
        assert redis.client.get("2") == "text"
        batch = await one.write({"id": 2}, {"id": 4, "x": "\ud800"}, {"id": 2}, dead_letters=True)
        assert [refusal.at for refusal in batch.refused] == [0, 1, 2]


@pytest.mark.parametrize("kind", ["hash", "json", "string", "list", "stream"])
async def test_what_the_server_cannot_take_is_refused_and_the_rest_lands(kind: str) -> None:
    server = RedisServer({"proto-max-bulk-len": "1mb"})
    try:
        server.start()
        key = None if kind == "string" else "id"
        async with sink(server, key=key, kind=kind) as one:
            values: list[Any] = [1, "\ud800", "x" * (1 << 20), "y" * 1_000_000, "z" * 1_000_000, 2]
            rows = [
                (n, value) if kind == "string" else {"id": n, "v": value}
                for n, value in enumerate(values)
            ]
            batch = await one.write(*rows, dead_letters=True)
        assert [refusal.at for refusal in batch.refused] == [1, 2]
        assert "surrogates not allowed" in batch.refused[0].reason
        assert "more than the server takes in one piece" in batch.refused[1].reason
        assert keys(server) == ["0", "3", "4", "5"]
    finally:
        server.remove()


async def test_an_entry_with_no_field_or_too_many_is_refused(redis: RedisServer) -> None:
    async with sink(redis, kind="stream", prefix="log") as one:
        wide = {f"f{n}": n for n in range(3_000)}
        batch = await one.write({"a": None}, wide, {**wide, "a": 1}, dead_letters=True)
    assert [each.at for each in batch.refused] == [0, 2]
    assert "1 to 3000 fields that are not None, not 3001" in batch.refused[1].reason
    assert redis.client.xlen("log") == 1


async def test_what_was_refused_is_told_to_the_next_owner_and_forgotten_in_the_end(
    redis: RedisServer,
) -> None:
    redis.client.set("1", "text")
    async with sink(redis, key="id") as one, sink(redis, key="id") as other:
        await one.take_over()
        await one.write({"id": 0}, {"id": 1}, dead_letters=True)
        started = {TP: Start(None, 0), TopicPartition("orders", 1): Start(None, 0)}
        claims = await other.sink.take_over("app", started)
        why = "key '1' is a string already"
        assert claims[TP].refused == {EffectId("orders", 0, 1, "etl", 0): why}
        assert claims[TopicPartition("orders", 1)].refused == {}
        claims = await other.sink.take_over("app", {TP: Start(1, 1)})
        assert list(claims[TP].refused) == [EffectId("orders", 0, 1, "etl", 0)]
        claims = await other.sink.take_over("app", {TP: Start(2, 2)})
        assert claims[TP].refused == {}
        assert redis.client.hgetall("onceward_refused:app:s") == {}
        await one.take_over()
        await one.write({"id": 1}, dead_letters=True)
        await one.write({"id": 1}, dead_letters=True)
        assert list(redis.client.hgetall("onceward_refused:app:s")) == ["orders:0:3:0:etl"]


# positions


async def test_positions_are_read_without_a_worker(redis: RedisServer) -> None:
    async with sink(redis, key="id") as one:
        await one.write({"id": 1}, {"id": 2})
    reader = RedisSink(f"{redis.url()}&decode_responses=true", key="id", name="s")
    assert await reader.positions("app") == {TP: Position(2, 1, 0)}
    assert await reader.positions("another") == {}


def test_positions_of_different_apps_and_sinks_never_meet() -> None:
    assert keys_of("a:b", "c", "") != keys_of("a", "b:c", "")
    assert keys_of("a{x}", "b", "{t}") == (
        "{t}onceward_positions:a%7Bx%7D:b",
        "{t}onceward_refused:a%7Bx%7D:b",
    )
    assert [hash_tag(prefix) for prefix in ("{a}b", "x{a}{b}", "{}a", "{a", "a}{b}", "")] == [
        "{a}", "{a}", "", "", "{b}", "",
    ]  # fmt: skip


async def test_a_position_that_is_none_is_said(redis: RedisServer) -> None:
    async with sink(redis, key="id") as one:
        redis.client.hset("onceward_positions:app:s", "orders:0", "five")
        for reading in (one.take_over(), one.sink.positions("app")):
            with pytest.raises(SinkError, match="onceward_positions:app:s has no position in ord"):
                await reading


# declarations


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"url": "http://host"}, "the URL cannot be parsed"),
        ({"url": "redis://u:s3cret@host:x/0"}, "the URL cannot be parsed"),
        ({"url": "redis://host/main"}, "the URL cannot be parsed"),
        ({"url": "redis://host/0?colour=red"}, "the URL cannot be parsed"),
        ({"kind": "set"}, "kind"),
        ({"ttl": 0}, "ttl= is in seconds"),
        ({"max_length": 5}, "max_length= is for kind='list' or 'stream'"),
        ({"kind": "list"}, "kind='list' needs key=, or prefix= as its one key"),
        ({"kind": "string", "key": "id"}, "key= must be a function, or none"),
        ({"replicas": -1}, "replicas= must not be negative"),
    ],
)
def test_what_makes_no_sense_is_said(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as caught:
        RedisSink(**{"url": "redis://host", **options})
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://me:pw@host:7/2", "redis://me@host:7/2"),
        ("rediss://:pw@host", "rediss://host:6379/0"),
        ("unix://me:pw@/tmp/x.sock?db=1", "unix://me@/tmp/x.sock?db=1"),
    ],
)
def test_a_sink_is_described_without_its_password(url: str, shown: str) -> None:
    assert RedisSink(url, prefix="user:").describe() == f"sink 'user' (hash user:* in {shown})"
    assert RedisSink(url, prefix="log", kind="stream").describe() == (
        f"sink 'log' (stream log in {shown})"
    )


def test_the_driver_is_asked_for_when_it_is_not_there() -> None:
    code = (
        "import sys; sys.modules['redis'] = None\n"
        "from onceward.streams.sinks import SqliteSink\n"
        "from onceward.streams.sinks import RedisSink"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "pip install 'onceward[redis]'" in done.stderr
