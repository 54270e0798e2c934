"""Sinks of one's own: keys, errors, names."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from onceward.streams import (
    App,
    ConfigurationError,
    OutsideAgentError,
    Stream,
)
from onceward.streams.sinks import (
    Batch,
    MemoryDatabase,
    MemorySink,
    Sink,
    SinkError,
    Strength,
)

from ..workers import make_app, until, worker
from .etl import (
    Order,
    assert_right,
    etl_app,
    fail_once,
    is_done,
    make_cluster,
)


class Keyed(Sink):
    """A system that takes a key twice as once."""

    strength = Strength.IDEMPOTENT_BY_KEY

    def __init__(self, seen: dict[str, Any], calls: list[int]) -> None:
        super().__init__("keyed")
        self.seen = seen
        self.calls = calls

    async def apply(self, batch: Batch) -> None:
        await asyncio.sleep(0)
        self.calls.append(len(batch))
        for effect in batch:
            assert self.seen.setdefault(effect.key, effect.value) == effect.value


def keyed_app(tmp_path: Path, seen: dict[str, Any], calls: list[int]) -> App:
    app = make_app(tmp_path)
    sink = Keyed(seen, calls)

    @app.agent(app.topic("orders", value_type=Order, partitions=2))
    async def etl(stream: Stream[Order]) -> None:
        async for order in stream:
            await sink.write(f"{order.id}a")
            await sink.write(f"{order.id}b")

    return app


async def test_an_effects_key_is_the_same_whenever_its_record_is_run_again(tmp_path: Path) -> None:
    cluster = make_cluster(20)
    cluster.injector = fail_once("commit", "before")
    seen: dict[str, Any] = {}
    calls: list[int] = []
    async with worker(keyed_app(tmp_path, seen, calls), cluster) as running:
        await until(is_done(cluster), running)
    assert sum(calls) > 40, "it was delivered again"
    assert sorted(seen.values()) == sorted(f"{n}{x}" for n in range(20) for x in "ab")
    assert seen["app:orders:1:3:0"] == "7a"
    assert seen["app:orders:1:3:1"] == "7b"


async def test_agents_that_share_a_topic_have_keys_of_their_own(tmp_path: Path) -> None:
    cluster = make_cluster(2)
    app = make_app(tmp_path)
    seen: dict[str, Any] = {}
    sink = Keyed(seen, [])
    orders = app.topic("orders", value_type=Order)

    @app.agent(orders, sink=[sink])
    async def one(stream: Stream[Order]) -> AsyncIterator[str]:
        async for order in stream:
            yield f"one {order.id}"

    @app.agent(orders, sink=[sink])
    async def two(stream: Stream[Order]) -> AsyncIterator[str]:
        async for order in stream:
            yield f"two {order.id}"

    async with worker(app, cluster) as running:
        await until(is_done(cluster), running)
    assert seen["app:orders:1:0:one/0"] == "one 1"
    assert seen["app:orders:1:0:two/0"] == "two 1"
    assert len(seen) == 4


async def test_an_exception_of_an_own_sink_stops_the_worker_and_names_it(tmp_path: Path) -> None:
    cluster = make_cluster(4)
    app = make_app(tmp_path)

    class Broken(Sink):
        def apply(self, batch: Batch) -> None:
            raise ValueError("no such endpoint")

    @app.agent(app.topic("orders", value_type=Order), sink=[Broken("web")])
    async def etl(stream: Stream[Order]) -> AsyncIterator[int]:
        async for order in stream:
            yield order.id

    with pytest.raises(
        SinkError, match=r"sink 'web' failed to apply . effects: ValueError: no such"
    ):
        async with worker(app, cluster) as running:
            await until(lambda: False, running)
    assert not cluster.offsets


async def test_the_strength_of_every_sink_is_logged_at_the_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with worker(keyed_app(tmp_path, {}, []), make_cluster(1)):
        await asyncio.sleep(0.01)
    assert "sink 'keyed' is idempotent by key" in caplog.text


async def test_two_sinks_of_one_name_are_refused(tmp_path: Path) -> None:
    app = make_app(tmp_path)
    pair = [MemorySink("rows"), MemorySink("rows")]

    @app.agent(app.topic("orders"), sink=pair)
    async def etl(stream: Stream[Any]) -> AsyncIterator[Any]:
        async for order in stream:
            yield order

    with pytest.raises(ConfigurationError, match="two sinks called 'rows': give name="):
        async with worker(app, make_cluster(0)):
            pass


async def test_a_sink_cannot_be_written_to_outside_of_an_agent() -> None:
    with pytest.raises(OutsideAgentError, match="only be written to by an agent"):
        await MemorySink("rows").write({"a": 1})


async def test_a_stand_in_takes_what_was_meant_for_the_declared_sink(tmp_path: Path) -> None:
    cluster, mine, theirs = make_cluster(10), MemoryDatabase(), MemoryDatabase()
    app = etl_app(tmp_path, theirs)
    for sink in app.sinks:
        MemorySink.instead_of(sink, mine)
    async with worker(app, cluster) as running:
        await until(is_done(cluster), running)
    assert_right(cluster, mine, 10)
    assert theirs.rows("rows") == []
