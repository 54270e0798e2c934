"""Errors of the cluster that end a worker, and one that only looks as if it should."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from onceward.broker import Broker
from onceward.broker.client import ErrorCode
from onceward.streams import App, Stream, WorkerError
from onceward.streams.engine.slots import take_slot
from onceward.streams.engine.worker import connect, make_engine

from ..fakes import FakeCluster
from ..workers import make_app, until, worker


def copy_app(app: App) -> App:
    target = app.topic("copies", key_type=str, value_type=str, partitions=1)

    @app.agent(app.topic("words", value_type=str, partitions=1))
    async def copy(stream: Stream[str]) -> None:
        async for word in stream:
            await target.send(key=word, value=word)

    return app


async def test_a_commit_under_a_member_id_of_before_a_rejoin_is_run_again(tmp_path: Path) -> None:
    """The group answers FENCED_INSTANCE_ID although nobody else has the instance: whether somebody
    has, joining and heartbeats tell."""
    cluster = FakeCluster()
    cluster.create("words")
    cluster.injected = ErrorCode.FENCED_INSTANCE_ID
    fails = ["before"]
    cluster.injector = lambda name, _: fails.pop() if name == "send_offsets" and fails else None
    for n in range(10):
        cluster.put("words", b"w%d" % n)
    async with worker(copy_app(make_app(tmp_path)), cluster) as running:
        await until(lambda: len(cluster.read("copies")) >= 10, running)
    assert not fails
    assert [entry.value for entry in cluster.read("copies")] == [b"w%d" % n for n in range(10)]


async def test_a_session_timeout_the_broker_does_not_allow_stops_the_worker(tmp_path: Path) -> None:
    async with Broker(tmp_path / "broker") as broker:
        app = make_app(tmp_path, broker=broker.bootstrap, broker_session_timeout=1.0)
        slot = take_slot(app.conf.datadir, app.conf.id)
        try:
            engine = await make_engine(copy_app(app), connect(app), slot)
            async with asyncio.timeout(10):
                with pytest.raises(WorkerError, match="INVALID_SESSION_TIMEOUT"):
                    await engine.run()
        finally:
            slot.release()
