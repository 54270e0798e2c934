"""Serializers in apps: topics, tables and their changelogs, restarts with another type."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from onceward.registry import Avro, JsonSchema, MemoryRegistry, RegistryClient, SchemaText
from onceward.registry.schemas import SchemaType
from onceward.registry.serializers.wire import id_prefix
from onceward.streams import App, Record, Stream
from onceward.streams.engine.engine import Engine
from onceward.streams.engine.slots import take_slot
from onceward.streams.engine.worker import connect, make_engine
from onceward.streams.errors import ConfigurationError, WorkerError
from onceward.streams.testing import AppDriver, LocalCluster

from .conftest import Running

DEADLINE_S = 20


class Order(Record):
    id: str
    account: str
    amount: int


class Total(Record):
    account: str
    sum: int


class WiderTotal(Record):
    """Total as it is later: another field, and a number that may have a fraction."""

    account: str
    sum: float
    count: int = 0


def totals_app(registry: Any, total: Any = Total, **options: Any) -> App:
    app = App("pay", **{"store": "memory://", "topic_partitions": 1, **options})
    orders = app.topic("orders", key_type=str, value_serializer=Avro(Order, registry=registry))
    sums = app.topic("sums", value_serializer=Avro(total, registry=registry, aliases=["Total"]))
    totals = app.Table("totals", value_serializer=Avro(total, registry=registry, aliases=["Total"]))

    @app.agent(orders)
    async def add(stream: Stream[Order]) -> None:
        async for order in stream:
            before = totals.get(order.account)
            found = total(order.account, order.amount + (before.sum if before else 0))
            if hasattr(found, "count"):
                found.count = 1 if before is None else before.count + 1
            totals[order.account] = found
            await sums.send(key=order.account, value=found)

    return app


def test_topics_and_tables_keep_ids_in_their_bytes() -> None:
    registry = MemoryRegistry()
    with AppDriver(totals_app(registry)) as driver:
        driver.pipe("orders", Order("1", "a", 5), key="a")
        driver.pipe("orders", {"id": "2", "account": "a", "amount": 7}, key="a")
        assert [one.value for one in driver.output("sums")] == [Total("a", 5), Total("a", 12)]
        assert driver.table("totals") == {"a": Total("a", 12)}
    subjects = registry.now(registry.subjects())
    assert subjects == ["orders-value", "pay-totals-changelog-value", "sums-value"]


def test_a_driver_needs_no_registry_whatever_the_address() -> None:
    with AppDriver(totals_app("http://127.0.0.1:1")) as driver:
        driver.pipe("orders", Order("1", "a", 5), key="a")
        assert driver.table("totals") == {"a": Total("a", 5)}


def test_a_worker_registers_what_it_writes_and_not_what_it_only_reads() -> None:
    registry = MemoryRegistry()
    with AppDriver(totals_app(registry)):
        asked = [subject for how, subject in registry.requests if how == "register"]
    assert asked == ["sums-value", "pay-totals-changelog-value"]


def test_a_topic_that_agents_read_is_registered_when_a_function_sends_to_it() -> None:
    registry = MemoryRegistry()
    app = App("again", store="memory://")
    orders = app.topic("orders", value_serializer=Avro(Order, registry=registry))

    @app.agent(orders)
    async def repeat(stream: Stream[Order]) -> None:
        async for order in stream:
            if order.amount > 0:
                await orders.send(value=Order(order.id, order.account, order.amount - 1))

    with AppDriver(app) as driver:
        assert ("register", "orders-value") in registry.requests
        driver.pipe("orders", Order("1", "a", 2))
        assert [one.value.amount for one in driver.output("orders")] == [2, 1, 0]


def test_a_repartition_topic_has_a_subject_of_its_own() -> None:
    registry = MemoryRegistry()
    app = App("by", store="memory://")
    orders = app.topic("orders", value_serializer=Avro(Order, registry=registry), partitions=1)
    seen: list[Order] = []

    @app.agent(orders)
    async def collect(stream: Stream[Order]) -> None:
        async for order in stream.group_by(Order.account):
            seen.append(order)

    with AppDriver(app) as driver:
        driver.pipe("orders", Order("1", "a", 2))
    assert seen == [Order("1", "a", 2)]
    assert ("register", "by-collect-account-repartition-value") in registry.requests


def test_a_value_that_does_not_fit_is_refused_with_its_place() -> None:
    app = App("bad", store="memory://")
    out = app.topic("out", value_serializer=Avro(Order, registry=MemoryRegistry()))

    @app.agent(app.topic("in", value_type=str))
    async def send(stream: Stream[str]) -> None:
        async for text in stream:
            await out.send(value=Order("1", "a", text))  # type: ignore[arg-type]

    with (
        AppDriver(app) as driver,
        pytest.raises(ValueError, match=r"order\.amount: expected long, got 'many'"),
    ):
        driver.pipe("in", "many")


@pytest.mark.parametrize(
    "data", [id_prefix(99) + b"x", b"no avro", b"", id_prefix(1) + b"\x02"], ids=repr
)
def test_bytes_nobody_can_read_go_to_the_dead_letters(data: bytes) -> None:
    app = totals_app(MemoryRegistry(), on_decode_error="dead_letter")
    with AppDriver(app) as driver:
        driver.pipe("orders", data, key="a")
        driver.pipe("orders", Order("1", "a", 5), key="a")
        assert [one.value for one in driver.output("pay-dead-letter")] == [data]
        assert driver.table("totals") == {"a": Total("a", 5)}


def test_ids_in_headers_are_written_and_read() -> None:
    registry = MemoryRegistry()
    app = App("heads", store="memory://")
    first = app.topic("first", value_serializer=Avro(Order, registry=registry, header_ids=True))
    last = app.topic(
        "last",
        key_serializer=Avro(str, registry=registry, header_ids=True),
        value_serializer=JsonSchema(Total, registry=registry, header_ids=True),
    )

    @app.agent(first)
    async def forward(stream: Stream[Order]) -> None:
        async for order in stream:
            await last.send(
                key=order.account, value=Total(order.account, order.amount), headers={"a": b"b"}
            )

    with AppDriver(app) as driver:
        driver.pipe("first", Order("1", "a", 5))
        guid = registry.now(registry.latest("first-value")).guid
        payload = first.value_codec.schemas
        assert payload is not None
        header, data = payload.split(first.encode_value(Order("2", "b", 6)))
        assert header.hex() == f"01{guid}".replace("-", "")
        driver.pipe("first", data, headers={"__value_schema_id": header})
        out = driver.output("last")
    assert [sorted(one.headers) for one in out] == [
        ["__key_schema_id", "__value_schema_id", "a"]
    ] * 2
    assert all(len(one.headers["__value_schema_id"] or b"") == 17 for one in out)


def test_the_type_may_be_the_topics_and_the_serializer_the_apps() -> None:
    registry = MemoryRegistry()
    app = App("both", store="memory://", value_serializer=Avro(registry=registry))
    seen: list[Any] = []
    untyped = app.topic("untyped", partitions=1)

    @app.agent(app.topic("orders", value_type=Order))
    async def collect(stream: Stream[Order]) -> None:
        async for order in stream:
            seen.append(order)
            if order.amount < 0:
                await untyped.send(value={})

    with AppDriver(app) as driver:
        driver.pipe("orders", Order("1", "a", 5))
        assert seen == [Order("1", "a", 5)]
        with pytest.raises(ValueError, match="values of topic 'untyped' have no schema"):
            driver.pipe("orders", Order("1", "a", -5))


def test_a_type_without_a_schema_is_refused_when_the_topic_is_declared() -> None:
    app = App("no", store="memory://")
    with pytest.raises(ConfigurationError, match="complex has no schema"):
        app.topic("out", value_serializer=Avro(complex, registry="memory://no"))


def test_an_incompatible_type_stops_the_start_with_the_reason() -> None:
    registry = MemoryRegistry()

    class Sums(Record):
        account: int

    with AppDriver(totals_app(registry)):
        pass
    app = App("other", store="memory://")
    app.topic("sums", value_serializer=Avro(Sums, registry=registry))

    @app.agent(app.topic("in", value_type=str))
    async def nothing(stream: Stream[str]) -> None:
        async for _ in stream:
            pass

    with (
        pytest.raises(ConfigurationError, match=r"subject 'sums-value'.*incompatible"),
        AppDriver(app),
    ):
        pass


def keyed_app(registry: MemoryRegistry, key_type: Any) -> App:
    app = App("keyed", store="memory://")
    counts = app.Table("counts", default=int, key_serializer=Avro(key_type, registry=registry))

    @app.agent(app.topic("in", value_type=str))
    async def count(stream: Stream[str]) -> None:
        async for text in stream:
            counts[key_type(text)] += 1

    return app


def test_keys_of_a_table_may_have_a_schema_that_never_changes() -> None:
    """The id is part of the bytes a key is found by."""

    class Name(Record):
        text: str

    class Renamed(Record):
        text: str
        more: int = 0

    registry = MemoryRegistry(level="NONE")
    with AppDriver(keyed_app(registry, Name)) as driver:
        driver.pipe("in", "a", partition=0)
        driver.pipe("in", "a", partition=0)
        assert driver.table("counts")[Name("a")] == 2
    with AppDriver(keyed_app(registry, Name)):
        pass
    with (
        pytest.raises(ConfigurationError, match=r"keys of topic 'keyed-counts-changelog'.*changed"),
        AppDriver(keyed_app(registry, Renamed)),
    ):
        pass
    with AppDriver(keyed_app(registry, Name)):
        pass


# on a real broker, with a real registry


@asynccontextmanager
async def worker(app: App) -> AsyncIterator[Engine]:
    slot = take_slot(app.conf.datadir, app.conf.id)
    engine = await make_engine(app, connect(app), slot)
    run = asyncio.create_task(engine.run())
    try:
        yield engine
        engine.stop()
        await run
    finally:
        run.cancel()
        await asyncio.wait([run])
        slot.release()


async def committed(app: App) -> int:
    client = await app.start_client()
    offsets = await client._kafka.admin().list_group_offsets(app.conf.id)
    return sum(offset.offset for offset in offsets.values())


async def until_committed(app: App, count: int) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while await committed(app) < count:
            await asyncio.sleep(0.02)


async def put(app: App, *values: Any) -> None:
    """Send to the app's input from outside of a worker."""
    orders = next(topic for topic in app.declared_topics() if topic.name == "orders")
    for value in values:
        await orders.send(key="k", value=value)


def real_app(running: Running, tmp_path: Path, total: Any = Total, **options: Any) -> App:
    settings = {
        "broker": running.broker,
        "datadir": str(tmp_path / "app"),
        "commit_interval": 0.02,
        "store": "rocksdb://",
        **options,
    }
    return totals_app(running.url, total, **settings)


async def test_state_survives_a_restart_with_a_wider_type(running: Running, tmp_path: Path) -> None:
    """Once from the files of the state, once from the changelog alone."""
    app = real_app(running, tmp_path)
    async with worker(app):
        await put(app, Order("1", "a", 5), Order("2", "b", 7))
        await until_committed(app, 2)
    await app.close_client()
    app = real_app(running, tmp_path, WiderTotal)
    async with worker(app) as engine:
        await put(app, Order("3", "a", 1))
        await until_committed(app, 3)
        table = app.tables["totals"]
        assert dict(table.items()) == {"a": WiderTotal("a", 6.0, 1), "b": WiderTotal("b", 7.0)}
        assert engine.commits
    await app.close_client()
    app = real_app(running, tmp_path, WiderTotal, datadir=str(tmp_path / "elsewhere"))
    async with worker(app):
        await put(app, Order("4", "b", 1))
        await until_committed(app, 4)
        table = app.tables["totals"]
        assert dict(table.items()) == {"a": WiderTotal("a", 6.0, 1), "b": WiderTotal("b", 8.0, 1)}
    await app.close_client()
    async with asyncio.timeout(DEADLINE_S):
        subjects = await RegistryClient(running.url).versions("pay-totals-changelog-value")
    assert subjects == [1, 2]


async def test_records_of_schemas_that_come_while_it_runs_are_read(
    running: Running, tmp_path: Path
) -> None:
    """Each id is fetched before its records get to the task, whatever else the block holds."""
    app = real_app(running, tmp_path, on_decode_error="dead_letter")
    client = RegistryClient(running.url)
    async with worker(app):
        await put(app, Order("1", "a", 1))
        text = (
            '{"type":"record","name":"Order","fields":[{"name":"id","type":"string"},'
            '{"name":"account","type":"string"},{"name":"amount","type":"int"},'
            '{"name":"note","type":"string","default":""}]}'
        )
        schema = SchemaText(SchemaType.AVRO, text)
        await client.set_compatibility("NONE", "orders-value")
        found = await client.register("orders-value", schema)
        kafka = await app.start_client()
        old, new = id_prefix(1), id_prefix(found.id)
        for data in (
            new + b"\x021\x02a\x04\x02x",
            id_prefix(777) + b"?",
            new + b"\x022\x02b\x06\x00",
        ):
            await kafka.produce("orders", b"k", data, 0, None, ())
        await put(app, Order("9", "a", 10))
        await until_committed(app, 5)
        assert old != new
        totals = dict(app.tables["totals"].items())
        assert totals == {"a": Total("a", 13), "b": Total("b", 3)}
    await app.close_client()


async def test_a_cluster_of_workers_shares_the_registry(running: Running) -> None:
    async with LocalCluster(lambda: totals_app(running.url), workers=2) as cluster:
        await cluster.send("orders", key="a", value=Order("1", "a", 5))
        await cluster.send("orders", key="a", value=Order("2", "a", 7))
        found = await cluster.read("sums", 2)
        assert [one.value for one in found] == [Total("a", 5), Total("a", 12)]
        assert cluster.table("totals") == {"a": Total("a", 12)}


async def test_a_registry_that_is_away_stops_the_worker_in_bounded_time(
    running: Running, tmp_path: Path
) -> None:
    client = RegistryClient("http://127.0.0.1:1", timeout=0.3)
    app = App("gone", broker=running.broker, datadir=str(tmp_path / "gone"), store="memory://")
    app.topic("sums", value_serializer=Avro(Total, registry=client))

    @app.agent(app.topic("in", value_type=str, partitions=1))
    async def nothing(stream: Stream[str]) -> None:
        async for _ in stream:
            pass

    async with asyncio.timeout(DEADLINE_S):
        with pytest.raises(ConfigurationError, match=r"gave no answer for 0\.3 s"):
            async with worker(app) as engine:
                await asyncio.wait_for(_ended(engine), DEADLINE_S)


async def test_a_registry_that_goes_away_stops_the_worker_when_it_is_needed(
    running: Running, tmp_path: Path
) -> None:
    app = App("read", broker=running.broker, datadir=str(tmp_path / "read"), store="memory://")
    client = RegistryClient("http://127.0.0.1:1", timeout=0.3)
    orders = app.topic("orders", value_serializer=Avro(Order, registry=client), partitions=1)

    @app.agent(orders)
    async def nothing(stream: Stream[Order]) -> None:
        async for _ in stream:
            pass

    async with asyncio.timeout(DEADLINE_S):
        with pytest.raises(WorkerError, match=r"gave no answer for 0\.3 s"):
            async with worker(app) as engine:
                kafka = await app.start_client()
                await kafka.produce("orders", None, id_prefix(1) + b"x", 0, None, ())
                await _ended(engine)
    await app.close_client()


async def _ended(engine: Engine) -> None:
    runs = (each for each in asyncio.all_tasks() if "Engine.run" in repr(each.get_coro()))
    run = next(runs)
    await asyncio.wait([run])
    run.result()
