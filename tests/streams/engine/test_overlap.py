"""Agents go on while the transaction before is being committed, and stay exactly-once."""

from __future__ import annotations

import asyncio
import gc
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from onceward.streams import AgentError, App, Stream
from onceward.streams.engine.worker import run_worker

from ..fakes import FakeCluster, FakeConsumer
from ..workers import Worker, make_app, until, worker


def count_app(tmp_path: Path, handled: list[str], **options: Any) -> App:
    """Counts words; every count is also sent, so state and output can be compared."""
    app = make_app(tmp_path, **options)
    words = app.topic("words", value_type=str, partitions=2)
    counted = app.topic("counted", key_type=str, value_type=int, partitions=2)
    counts = app.Table("counts", key_type=str, default=int)

    @app.agent(words)
    async def count(stream: Stream[str]) -> None:
        async for word in stream:
            handled.append(word)
            counts[word] += 1
            await counted.send(key=word, value=counts[word])

    return app


def put_words(cluster: FakeCluster, count: int) -> None:
    for n in range(count):
        cluster.put("words", b"w%d" % (n % 4), partition=n % 2, timestamp=n)


def make_cluster(count: int) -> FakeCluster:
    cluster = FakeCluster(batch_records=5)
    cluster.create("words", 2)
    put_words(cluster, count)
    return cluster


def outputs(cluster: FakeCluster) -> Counter[tuple[bytes | None, bytes | None]]:
    return Counter((entry.key, entry.value) for entry in cluster.read("counted"))


def expected(count: int) -> Counter[tuple[bytes | None, bytes | None]]:
    return Counter(
        (b"w%d" % word, b"%d" % (nth + 1))
        for word in range(4)
        for nth in range(len(range(word, count, 4)))
    )


def has(cluster: FakeCluster, count: int) -> Callable[[], bool]:
    return lambda: len(cluster.read("counted")) >= count


async def until_committing(cluster: FakeCluster, running: Worker) -> None:
    """A transaction is flushed, and its commit is held up."""
    await until(
        lambda: any(identity.transaction for identity in cluster.identities.values()), running
    )


async def test_agents_go_on_while_a_transaction_is_committed(tmp_path: Path) -> None:
    cluster = make_cluster(20)
    cluster.may_commit = asyncio.Event()
    handled: list[str] = []
    async with worker(count_app(tmp_path, handled), cluster) as running:
        await until_committing(cluster, running)
        put_words(cluster, 20)
        await until(lambda: len(handled) == 40, running)
        assert len(cluster.read("counted")) == 0
        assert len(cluster.read("counted", committed=False)) <= 20, "a transaction takes no more"
        cluster.may_commit.set()
        await until(has(cluster, 40), running)
        assert not any(task.records_since_commit for task in running.engine.tasks)
    assert outputs(cluster) == expected(40)
    assert len(handled) == 40


async def test_a_failed_commit_takes_what_was_done_meanwhile_with_it(tmp_path: Path) -> None:
    cluster = make_cluster(20)
    cluster.may_commit = asyncio.Event()
    handled: list[str] = []
    fail = [True]

    def inject(name: str, number: int) -> str | None:
        return "before" if name == "commit" and fail and fail.pop() else None

    cluster.injector = inject
    async with worker(count_app(tmp_path, handled), cluster) as running:
        await until_committing(cluster, running)
        put_words(cluster, 20)
        await until(lambda: len(handled) == 40, running)
        cluster.may_commit.set()
        await until(has(cluster, 40), running)
    assert outputs(cluster) == expected(40)
    assert len(handled) == 80, "both transactions ran again"


async def test_a_partition_is_given_away_only_after_its_commit(tmp_path: Path) -> None:
    cluster = make_cluster(20)
    cluster.may_commit = asyncio.Event()
    mine: list[str] = []
    theirs: list[str] = []
    async with worker(count_app(tmp_path, mine), cluster) as first:
        await until_committing(cluster, first)
        async with worker(count_app(tmp_path, theirs), cluster) as second:
            for _ in range(50):
                await asyncio.sleep(0.001)
            assert not second.engine.tasks.running
            cluster.may_commit.set()
            await until(lambda: len(second.engine.tasks.running) == 1, first, second)
            put_words(cluster, 20)
            await until(has(cluster, 40), first, second)
    assert outputs(cluster) == expected(40)
    assert len(mine) + len(theirs) == 40


async def test_stopping_waits_for_the_commit_and_makes_one_more(tmp_path: Path) -> None:
    cluster = make_cluster(20)
    cluster.may_commit = asyncio.Event()
    handled: list[str] = []
    async with worker(count_app(tmp_path, handled), cluster) as running:
        await until_committing(cluster, running)
        put_words(cluster, 20)
        await until(lambda: len(handled) == 40, running)
        stopping = asyncio.create_task(running.stop())
        await asyncio.sleep(0.01)
        assert not stopping.done()
        cluster.may_commit.set()
        await stopping
    assert outputs(cluster) == expected(40)


async def test_a_worker_killed_while_it_commits_leaves_its_heir_one_of_two_states(
    tmp_path: Path,
) -> None:
    cluster = make_cluster(20)
    cluster.may_commit = asyncio.Event()
    handled: list[str] = []
    async with worker(count_app(tmp_path, handled), cluster) as killed:
        await until_committing(cluster, killed)
        put_words(cluster, 20)
        await until(lambda: len(handled) == 40, killed)
        await killed.kill()
        killed.consumer.expel()
    cluster.may_commit.set()
    async with worker(count_app(tmp_path, handled), cluster) as heir:
        await until(has(cluster, 40), heir)
    assert outputs(cluster) == expected(40)


def fragile_app(tmp_path: Path, **options: Any) -> App:
    """Copies words, raises on ``bad``."""
    app = make_app(tmp_path, **options)
    counted = app.topic("counted", key_type=str, value_type=str, partitions=2)

    @app.agent(app.topic("words", value_type=str, partitions=2), concurrency=2)
    async def copy(stream: Stream[str]) -> None:
        async for word in stream:
            if word == "bad":
                raise ValueError(word)
            await counted.send(key=word, value=word)

    return app


async def test_a_rewind_waits_for_the_commit(tmp_path: Path) -> None:
    cluster = make_cluster(20)
    cluster.may_commit = asyncio.Event()
    async with worker(fragile_app(tmp_path, on_agent_error="dead_letter"), cluster) as running:
        await until_committing(cluster, running)
        cluster.put("words", b"bad")
        await asyncio.sleep(0.05)
        assert not cluster.fenced and "abort" not in cluster.calls
        cluster.may_commit.set()
        await until(lambda: len(cluster.read("app-dead-letter")) == 1, running)
    assert len(cluster.read("counted")) == 20
    assert "abort" not in cluster.calls


async def test_a_worker_that_fails_finishes_its_commit(tmp_path: Path) -> None:
    cluster = make_cluster(20)
    cluster.may_commit = asyncio.Event()
    with pytest.raises(AgentError, match="bad"):
        async with worker(fragile_app(tmp_path), cluster) as running:
            await until_committing(cluster, running)
            cluster.put("words", b"bad")
            await asyncio.sleep(0.05)
            assert not running.running.done()
            cluster.may_commit.set()
            await running.running
    assert len(cluster.read("counted")) == 20


@pytest.mark.parametrize("seed", range(6))
async def test_slow_commits_that_fail_at_random_change_nothing(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    cluster = make_cluster(120)
    cluster.commit_turns = 40

    def inject(name: str, number: int) -> str | None:
        if name == "init_transactions" or rng.random() > 0.12 or number > 600:
            return None
        return rng.choice(["before", "after"])

    cluster.injector = inject
    handled: list[str] = []
    options = {"commit_interval": 0.001, "commit_records": rng.choice([3, 17, 1000])}
    async with worker(count_app(tmp_path, handled, **options), cluster) as running:
        await until(has(cluster, 120), running, timeout=20)
    assert outputs(cluster) == expected(120)


def test_a_worker_collects_less_often_unless_the_program_chose(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ONCEWARD_BROKER", raising=False)
    before = gc.get_threshold()
    try:
        for mine, then in ((700, 20_000), (2_000, 20_000), (0, 0), (5_000, 5_000)):
            gc.set_threshold(mine, 11, 12)
            assert run_worker(make_app(tmp_path)) == 1, "there is no broker"
            assert gc.get_threshold() == (then, 11, 12)
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


async def test_an_idle_worker_waits_until_its_commit_and_does_not_spin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timeouts: list[int] = []
    fetch = FakeConsumer.fetch

    async def recorded(consumer: FakeConsumer, *, timeout_ms: int) -> Any:
        timeouts.append(timeout_ms)
        return await fetch(consumer, timeout_ms=timeout_ms)

    monkeypatch.setattr(FakeConsumer, "fetch", recorded)
    async with worker(count_app(tmp_path, []), make_cluster(0)) as running:
        await until(lambda: len(timeouts) >= 50, running)
    # Of a commit interval of 10 ms the last one must not become many waits of 0 ms.
    assert timeouts.count(0) < 10
