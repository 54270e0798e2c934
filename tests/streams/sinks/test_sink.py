"""Sinks in workers over the fake cluster: every row once, whatever fails and wherever it stops."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from onceward.streams import (
    Stream,
    WorkerError,
)
from onceward.streams.sinks import (
    MemoryDatabase,
    MemorySink,
    SinkUnavailable,
)

from ..workers import Worker, make_app, until, worker
from .etl import (
    ORDERS,
    Order,
    Power,
    assert_right,
    etl_app,
    fail_once,
    ids,
    is_done,
    kill,
    make_cluster,
    put_orders,
)


async def test_what_an_agent_yields_appears_once_and_with_its_position(tmp_path: Path) -> None:
    cluster, database = make_cluster(40), MemoryDatabase()
    async with worker(etl_app(tmp_path, database), cluster) as running:
        await until(is_done(cluster), running)
    assert_right(cluster, database, 40)


async def test_a_sink_named_in_the_agent_is_found_and_written_to(tmp_path: Path) -> None:
    cluster, database = make_cluster(6), MemoryDatabase()
    app = make_app(tmp_path)
    totals = MemorySink("totals", database=database, key="parity")

    @app.agent(app.topic("orders", value_type=Order))
    async def etl(stream: Stream[Order]) -> None:
        async for order in stream:
            await totals.write({"parity": order.id % 2, "last": order.id})
            if order.id == 5:
                await totals.delete(1)

    async with worker(app, cluster) as running:
        await until(is_done(cluster), running)
    assert database.rows("totals") == [{"parity": 0, "last": 4}]


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_failure_between_database_and_kafka_repeats_and_loses_nothing(
    tmp_path: Path, when: str
) -> None:
    cluster, database = make_cluster(40), MemoryDatabase()
    cluster.injector = fail_once("commit", when)
    async with worker(etl_app(tmp_path, database), cluster) as running:
        await until(is_done(cluster), running)
    assert_right(cluster, database, 40)


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_worker_killed_between_database_and_kafka_has_a_right_heir(
    tmp_path: Path, when: str
) -> None:
    cluster, database = make_cluster(40), MemoryDatabase()
    stuck = asyncio.Event()

    def inject(name: str, number: int) -> str | None:
        if name == "commit":
            stuck.set()
            return when
        return None

    cluster.injector = inject
    async with worker(etl_app(tmp_path, database), cluster) as first:
        await until(stuck.is_set, first)
        assert database.rows("rows"), "the database commits first"
        await kill(first)
    cluster.injector = None
    async with worker(etl_app(tmp_path, database), cluster) as second:
        await until(is_done(cluster), second)
    assert_right(cluster, database, 40)


@pytest.mark.parametrize("what", ["take_over", "commit", "committed"])
async def test_a_worker_killed_at_any_step_of_the_database_has_a_right_heir(
    tmp_path: Path, what: str
) -> None:
    for nth in range(1, 5):
        power = Power()
        cluster, database = make_cluster(20, batch_records=3), MemoryDatabase(on_step=power.step)
        power.at = (what, nth)
        folder = tmp_path / str(nth)
        async with worker(etl_app(folder, database, commit_records=3), cluster) as first:
            done, out = is_done(cluster), power.is_out
            await until(lambda out=out, done=done: out.is_set() or done())  # type: ignore[misc]
            await kill(first)
        power.at = None
        async with worker(etl_app(folder, database, commit_records=3), cluster) as second:
            await until(is_done(cluster), second)
        assert_right(cluster, database, 20)


@pytest.mark.parametrize("when", ["before", "after"])
async def test_every_client_call_may_fail_once(tmp_path: Path, when: str) -> None:
    failing = 0
    while True:
        cluster, database = make_cluster(8, batch_records=3), MemoryDatabase()
        reached = [False]

        def inject(name: str, number: int, at: int = failing, seen: Any = reached) -> str | None:
            if number < at or seen[0] or name == "init_transactions":
                return None
            seen[0] = True
            return when

        cluster.injector = inject
        async with worker(etl_app(tmp_path, database, commit_interval=0.001), cluster) as running:
            await until(is_done(cluster), running)
        assert_right(cluster, database, 8)
        if not reached[0]:
            break
        failing += 1
    assert failing > 8


async def test_a_database_that_is_away_or_does_not_answer_is_waited_for(tmp_path: Path) -> None:
    for seed in range(4):
        rng = random.Random(seed)
        fails = [12]

        def step(what: str, name: str, rng: random.Random = rng, fails: list[int] = fails) -> None:
            if fails[0] and rng.random() < 0.5:
                fails[0] -= 1
                raise SinkUnavailable(f"{name}: away at {what}")

        database = MemoryDatabase(on_step=step)
        cluster = make_cluster(30, batch_records=4)
        async with worker(etl_app(tmp_path, database, commit_records=4), cluster) as running:
            await until(is_done(cluster), running, timeout=20)
        assert_right(cluster, database, 30)


async def test_a_zombie_whose_partitions_moved_writes_nothing(tmp_path: Path) -> None:
    """It is stopped within its database commit; its heir has taken over and gone on meanwhile."""
    gate = asyncio.Event()
    held: list[str] = []

    class Slow(MemoryDatabase):
        async def wait(self) -> None:
            if asyncio.current_task() in zombies:
                held.append("commit")
                await gate.wait()
            else:
                await super().wait()

    zombies: set[Any] = set()
    database = Slow()
    cluster = make_cluster(20)
    async with worker(etl_app(tmp_path, database), cluster) as zombie:
        await until(is_done(cluster), zombie)
        original = zombie.engine._write

        async def write(*arguments: Any) -> bool:
            zombies.add(asyncio.current_task())
            return await original(*arguments)

        zombie.engine._write = write  # type: ignore[method-assign, assignment]
        put_orders(cluster, 10, start=20)
        await until(lambda: bool(held), zombie)
        zombie.consumer.frozen = True
        zombie.consumer.expel()
        async with worker(etl_app(tmp_path, database), cluster) as heir:
            await until(is_done(cluster), heir)
            commits = database.commits
            gate.set()
            await asyncio.sleep(0.02)
            assert database.commits == commits, "the zombie's rows were refused"
            zombie.engine._write = original  # type: ignore[method-assign]
            zombie.consumer.frozen = False
            put_orders(cluster, 10, start=30)
            await until(is_done(cluster), heir, zombie)
    assert_right(cluster, database, 40)


async def test_a_database_older_than_the_offsets_stops_the_worker(tmp_path: Path) -> None:
    cluster, database = make_cluster(20), MemoryDatabase()
    async with worker(etl_app(tmp_path, database), cluster) as running:
        await until(is_done(cluster), running)
    database.positions["app", "rows", ORDERS[1]].next_offset = 4
    with pytest.raises(WorkerError, match=r"'rows' .*orders-1 only up to offset 4.*restor"):
        async with worker(etl_app(tmp_path, database), cluster) as running:
            await until(lambda: False, running)


async def test_a_topic_shorter_than_the_sinks_position_stops_the_worker(tmp_path: Path) -> None:
    cluster, database = make_cluster(20), MemoryDatabase()
    async with worker(etl_app(tmp_path, database), cluster) as running:
        await until(is_done(cluster), running)
    cluster.create("orders", 2)
    cluster.offsets.clear()
    put_orders(cluster, 6)
    with pytest.raises(WorkerError, match="the topic ends at 3: was it deleted"):
        async with worker(etl_app(tmp_path, database), cluster) as running:
            await until(lambda: False, running)


async def test_a_new_sink_begins_where_the_group_is(tmp_path: Path) -> None:
    cluster = make_cluster(20)
    async with worker(etl_app(tmp_path, MemoryDatabase()), cluster) as running:
        await until(is_done(cluster), running)
    put_orders(cluster, 6, start=20)
    database = MemoryDatabase()
    async with worker(etl_app(tmp_path, database), cluster) as running:
        await until(is_done(cluster), running)
    assert ids(database) == list(range(20, 26))


async def test_offsets_set_back_by_hand_write_no_row_twice(tmp_path: Path) -> None:
    cluster, database = make_cluster(20), MemoryDatabase()
    async with worker(etl_app(tmp_path, database), cluster) as running:
        await until(is_done(cluster), running)
    cluster.offsets = dict.fromkeys(cluster.offsets, 0)
    put_orders(cluster, 6, start=20)
    async with worker(etl_app(tmp_path, database), cluster) as running:
        await until(is_done(cluster), running)
    assert ids(database) == list(range(26))
    assert len(cluster.values("copies")) == 46


async def test_a_cut_right_at_the_sinks_position_does_not_hold_back_what_follows(
    tmp_path: Path,
) -> None:
    cluster, database = make_cluster(20), MemoryDatabase()
    async with worker(etl_app(tmp_path, database), cluster) as running:
        await until(is_done(cluster), running)
    cluster.offsets = dict.fromkeys(cluster.offsets, 0)
    put_orders(cluster, 6, start=20)
    app = make_app(tmp_path)
    rows = MemorySink("rows", database=database)

    @app.agent(app.topic("orders", value_type=Order), sink=[rows])
    async def etl(stream: Stream[Order]) -> AsyncIterator[dict[str, int]]:
        async for order in stream:
            while order.id in (18, 19) and not is_cutting():
                await asyncio.sleep(0)
            yield {"id": order.id}

    def is_cutting() -> bool:
        return all(task.is_cutting for task in running.engine.tasks)

    async with worker(app, cluster) as running:
        await until(is_done(cluster), running)
    assert ids(database) == list(range(26))


async def test_rows_written_while_a_cut_is_committed_wait_for_the_next(tmp_path: Path) -> None:
    cluster, database = make_cluster(20), MemoryDatabase()
    cluster.may_commit = asyncio.Event()
    app = etl_app(tmp_path, database, commit_interval=0.2)
    async with worker(app, cluster) as running:
        await until(lambda: bool(database.rows("rows")), running)
        first = len(database.rows("rows"))
        put_orders(cluster, 20, start=20)
        await until(lambda: sum(_waiting(running)) >= 20, running)
        assert len(database.rows("rows")) == first, "its own rows only"
        cluster.may_commit.set()
        await until(is_done(cluster), running)
    assert_right(cluster, database, 40)


def _waiting(running: Worker) -> list[int]:
    return [len(e) for task in running.engine.tasks for e in task.sinks.effects.values()]


@pytest.mark.parametrize("guarantee", ["at_least_once", "at_most_once"])
async def test_weaker_guarantees_write_each_row_once_when_nothing_fails(
    tmp_path: Path, guarantee: str
) -> None:
    cluster, database = make_cluster(20), MemoryDatabase()
    app = etl_app(tmp_path, database, processing_guarantee=guarantee)
    async with worker(app, cluster) as running:
        await until(lambda: len(database.rows("rows")) == 20, running)
    async with worker(
        etl_app(tmp_path, database, processing_guarantee=guarantee), cluster
    ) as running:
        put_orders(cluster, 20, start=20)
        await until(lambda: len(database.rows("rows")) == 40, running)
    assert ids(database) == list(range(40))


@pytest.mark.parametrize("when", ["before", "after"])
async def test_at_least_once_repeats_outputs_but_no_row_of_a_transactional_sink(
    tmp_path: Path, when: str
) -> None:
    cluster, database = make_cluster(20), MemoryDatabase()
    cluster.injector = fail_once("commit_offsets", when)
    app = etl_app(tmp_path, database, processing_guarantee="at_least_once")
    async with worker(app, cluster) as running:
        await until(is_done(cluster), running)
    assert ids(database) == list(range(20))
    assert len(cluster.values("copies")) >= 20


async def test_at_most_once_loses_what_the_database_did_not_commit(tmp_path: Path) -> None:
    power = Power()
    power.at = ("commit", 1)
    cluster, database = make_cluster(20), MemoryDatabase(on_step=power.step)
    options = {"processing_guarantee": "at_most_once"}
    async with worker(etl_app(tmp_path, database, **options), cluster) as first:
        await until(power.is_out.is_set)
        await kill(first)
    async with worker(etl_app(tmp_path, database, **options), cluster) as second:
        await until(is_done(cluster), second)
        put_orders(cluster, 4, start=20)
        await until(lambda: 23 in ids(database), second)
    found = ids(database)
    assert len(found) == len(set(found)) < 24, "no row twice, some lost"


async def test_random_failures_of_everything_change_nothing(tmp_path: Path) -> None:
    for seed in range(5):
        rng = random.Random(seed)
        budget = [20]

        def step(
            what: str, name: str, rng: random.Random = rng, budget: list[int] = budget
        ) -> None:
            if budget[0] and rng.random() < 0.15:
                budget[0] -= 1
                raise SinkUnavailable(f"{name}: away at {what}")

        def inject(
            name: str, number: int, rng: random.Random = rng, budget: list[int] = budget
        ) -> str | None:
            if name == "init_transactions" or not budget[0] or rng.random() > 0.12:
                return None
            budget[0] -= 1
            return rng.choice(["before", "after"])

        cluster = make_cluster(60, batch_records=rng.randint(1, 9))
        database = MemoryDatabase(on_step=step)
        cluster.injector = inject
        app = etl_app(tmp_path, database, commit_interval=0.001, commit_records=rng.randint(1, 20))
        async with worker(app, cluster) as running:
            await until(is_done(cluster), running, timeout=30)
        assert_right(cluster, database, 60)
