"""The local cluster: a real broker and real workers, quick enough for everyday tests."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from onceward.broker.client import NewTopic
from onceward.streams import App, ConfigurationError, Stream
from onceward.streams.testing import LocalCluster


def counting() -> App:
    app = App("counting", topic_partitions=2)
    words = app.topic("words", key_type=str, value_type=str)
    counted = app.topic("counted", key_type=str, value_type=int)
    counts = app.Table("counts", key_type=str, default=int)

    @app.agent(app.topic("lines", value_type=str))
    async def split(stream: Stream[str]) -> None:
        async for line in stream:
            for word in line.split():
                await words.send(key=word, value=word)

    @app.agent(words)
    async def count(stream: Stream[str]) -> None:
        async for word in stream:
            counts[word] += 1
            await counted.send(key=word, value=counts[word])

    return app


async def test_records_go_through_a_broker_and_a_worker() -> None:
    async with LocalCluster(counting()) as cluster:
        await cluster.send("lines", value="to be or not to be", headers={"a": "b"}, timestamp=17.0)
        await cluster.wait_until_processed()
        assert cluster.table("counts") == {"to": 2, "be": 2, "or": 1, "not": 1}
        counted = await cluster.read("counted", 6)
        assert sorted((r.key, r.value) for r in counted) == [
            ("be", 1), ("be", 2), ("not", 1), ("or", 1), ("to", 1), ("to", 2),
        ]  # fmt: skip
        (line,) = await cluster.read("lines")
        assert (line.value, line.headers, line.timestamp) == (
            "to be or not to be", {"a": b"b"}, 17.0,
        )  # fmt: skip


def test_it_works_in_plain_tests() -> None:
    with LocalCluster(counting, workers=2) as cluster:
        cluster.send("lines", None, b"a b a")
        cluster.wait_until_processed()
        assert cluster.table("counts") == {"a": 2, "b": 1}
        assert len(cluster.read("counted", 3)) == 3
        cluster.kill_worker(0)
        cluster.restart_worker(0)
        assert cluster.table("counts") == {"a": 2, "b": 1}
        assert cluster.app.id == "counting"
        assert cluster.bootstrap.startswith("127.0.0.1:")


async def test_it_is_ready_when_every_worker_has_its_share() -> None:
    loop = asyncio.get_running_loop()
    start = loop.time()
    async with LocalCluster(counting, workers=2) as cluster:
        assert loop.time() - start < 0.5
        assert [worker.tasks for worker in cluster._workers] == [2, 2]


async def test_a_killed_worker_loses_and_repeats_nothing() -> None:
    async with LocalCluster(counting, workers=2) as cluster:
        for n in range(20):
            await cluster.send("lines", value=f"w{n % 3}")
            if n == 10:
                await cluster.kill_worker(0)
        await cluster.wait_until_processed()
        await cluster.restart_worker(0)
        assert [worker.tasks for worker in cluster._workers] == [2, 2]
        assert cluster.table("counts") == {"w0": 7, "w1": 7, "w2": 6}
        assert len(await cluster.read("counted")) == 20


async def test_a_killed_worker_says_nothing_to_the_cluster() -> None:
    async with LocalCluster(counting()) as cluster:
        client = await cluster.client()
        await cluster.kill_worker(0)
        group = (await client.admin().describe_groups(["counting"]))["counting"]
        assert len(group.members) == 1  # it did not leave


async def test_without_an_app_it_is_a_broker() -> None:
    async with LocalCluster(broker_config={"auto.create.topics.enable": False}) as cluster:
        client = await cluster.client()
        await client.admin().create_topics([NewTopic("plain", 2, 1)])
        await cluster.send("plain", "k", {"n": 1}, partition=1)
        ((key, value, _, _, partition, offset),) = await cluster.read("plain")
        assert (key, value, partition, offset) == (b"k", {"n": 1}, 1, 0)
        with pytest.raises(KeyError, match="topics are: plain"):
            await cluster.read("missing")


async def test_settings_replace_those_of_the_app_while_it_runs() -> None:
    app = counting()
    async with LocalCluster(app, processing_guarantee="at_least_once", commit_interval=0.05):
        assert app.conf.processing_guarantee == "at_least_once"
        assert app.conf.commit_interval == 0.05
    assert app.conf.processing_guarantee == "exactly_once"
    with pytest.raises(ConfigurationError, match="there is no setting 'colour'"):
        await LocalCluster(app, colour="red").start()


async def test_what_a_worker_fails_with_is_raised() -> None:
    app = App("failing", topic_partitions=1)

    @app.agent(app.topic("numbers", value_type=int))
    async def divide(stream: Stream[int]) -> None:
        async for number in stream:
            _ = 1 // number

    cluster = LocalCluster(app)
    await cluster.start()
    await cluster.send("numbers", value=0)
    with pytest.raises(Exception, match="agent 'divide' failed on numbers-0 at offset 0"):
        await cluster.wait_until_processed()
    await cluster.kill_worker(0)
    await cluster.stop()


async def test_waiting_in_vain_says_where_it_stands() -> None:
    app = App("slow", topic_partitions=1)

    @app.agent(app.topic("numbers", value_type=int))
    async def wait(stream: Stream[int]) -> None:
        async for _ in stream:
            await asyncio.sleep(0.5)

    async with LocalCluster(app) as cluster:
        await cluster.send("numbers", value=0)
        with pytest.raises(TimeoutError, match=r"records are left after 0\.05 s numbers-0: 1"):
            await cluster.wait_until_processed(timeout=0.05)
        with pytest.raises(TimeoutError, match=r"numbers has 1 committed records after 0\.05 s"):
            await cluster.read("numbers", 2, timeout=0.05)
        await cluster.kill_worker(0)


MODULE = """
from onceward.streams import App
app = App("by-name", topic_partitions=2)
seen = []
@app.agent(app.topic("in", value_type=str))
async def run(stream):
    async for text in stream:
        seen.append(text)
        await app.send("out", value=len(seen))
"""


async def test_by_name_every_worker_has_globals_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "named_app.py").write_text(MODULE)
    async with LocalCluster(str(tmp_path / "named_app.py:app"), workers=2) as cluster:
        for partition in (0, 0, 1):
            await cluster.send("in", value="x", partition=partition)
        await cluster.wait_until_processed()
        values: list[Any] = sorted(record.value for record in await cluster.read("out", 3))
        assert values == [1, 1, 2]
    sys.modules.pop("named_app", None)


async def test_a_failed_test_is_not_hidden_by_what_its_worker_failed_with() -> None:
    app = App("failing", topic_partitions=1)

    @app.agent(app.topic("numbers", value_type=int))
    async def divide(stream: Stream[int]) -> None:
        async for number in stream:
            _ = 1 // number

    with pytest.raises(LookupError, match="mine"):
        async with LocalCluster(app) as cluster:
            await cluster.send("numbers", value=0)
            await asyncio.sleep(0.05)
            raise LookupError("mine")
