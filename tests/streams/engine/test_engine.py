"""Workers over the fake cluster: what a record causes takes effect once, whatever fails."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from onceward.broker.client import TopicPartition
from onceward.streams import (
    AgentError,
    App,
    Record,
    Stream,
    UndecodableRecord,
    WorkerError,
)

from ..fakes import FakeCluster
from ..workers import make_app, until, worker


class Order(Record):
    id: int
    amount: int


def transform_app(tmp_path: Path, **options: Any) -> App:
    app = make_app(tmp_path, **options)
    orders = app.topic("orders", value_type=Order, partitions=2)
    doubled = app.topic("doubled", value_type=Order, partitions=2)

    @app.agent(orders)
    async def double(stream: Stream[Order]) -> None:
        async for order in stream:
            await doubled.send(key=str(order.id), value=Order(order.id, order.amount * 2))

    return app


def count_app(tmp_path: Path, **options: Any) -> App:
    """Counts words; every count is also sent, so state and output can be compared."""
    app = make_app(tmp_path, **options)
    words = app.topic("words", value_type=str, partitions=2)
    counted = app.topic("counted", key_type=str, value_type=int, partitions=2)
    counts = app.Table("counts", key_type=str, default=int)

    @app.agent(words)
    async def count(stream: Stream[str]) -> None:
        async for word in stream:
            counts[word] += 1
            await counted.send(key=word, value=counts[word])

    return app


def fill_orders(cluster: FakeCluster, count: int) -> None:
    cluster.create("orders", 2)
    for n in range(count):
        cluster.put("orders", b'{"id":%d,"amount":%d}' % (n, n), partition=n % 2, timestamp=n)


def expected_orders(count: int) -> list[bytes]:
    return sorted(b'{"id":%d,"amount":%d}' % (n, 2 * n) for n in range(count))


def fill_words(cluster: FakeCluster, count: int, distinct: int = 5) -> None:
    cluster.create("words", 2)
    for n in range(count):
        word = n % distinct
        cluster.put("words", b"w%d" % word, partition=word % 2, timestamp=n)


def expected_counts(count: int, distinct: int = 5) -> Counter[tuple[bytes, bytes]]:
    seen: Counter[int] = Counter()
    found: Counter[tuple[bytes, bytes]] = Counter()
    for n in range(count):
        seen[n % distinct] += 1
        found[(b"w%d" % (n % distinct), b"%d" % seen[n % distinct])] += 1
    return found


def counted(cluster: FakeCluster) -> Counter[tuple[bytes | None, bytes | None]]:
    return Counter((entry.key, entry.value) for entry in cluster.read("counted"))


def folded(cluster: FakeCluster, changelog: str) -> dict[bytes | None, bytes | None]:
    state = {entry.key: entry.value for entry in cluster.read(changelog)}
    return {key: value for key, value in state.items() if value is not None}


def is_done(cluster: FakeCluster, app: str, topic: str) -> Callable[[], bool]:
    def done() -> bool:
        return all(
            cluster.offsets.get((app, TopicPartition(topic, number)), 0) >= len(log)
            for number, log in enumerate(cluster.logs[topic])
        )

    return done


async def test_a_transform_agent_writes_one_output_per_input(tmp_path: Path) -> None:
    cluster = FakeCluster()
    fill_orders(cluster, 100)
    async with worker(transform_app(tmp_path), cluster) as running:
        await until(lambda: len(cluster.values("doubled")) == 100, running)
    assert sorted(cluster.values("doubled")) == expected_orders(100)
    assert sum(cluster.offsets.values()) == 100
    assert {entry.timestamp for entry in cluster.read("doubled")} == set(range(100))


async def test_a_table_counts_and_its_changelog_folds_to_the_same(tmp_path: Path) -> None:
    cluster = FakeCluster()
    fill_words(cluster, 100)
    async with worker(count_app(tmp_path), cluster) as running:
        await until(is_done(cluster, "app", "words"), running)
    assert counted(cluster) == expected_counts(100)
    assert folded(cluster, "app-counts-changelog") == {b"w%d" % n: b"20" for n in range(5)}
    assert cluster.configs["app-counts-changelog"] == {"cleanup.policy": "compact"}


@pytest.mark.parametrize("store", ["memory://", "rocksdb://"])
async def test_a_restarted_worker_goes_on_with_its_table(tmp_path: Path, store: str) -> None:
    cluster = FakeCluster()
    fill_words(cluster, 50)
    async with worker(count_app(tmp_path, store=store), cluster) as running:
        await until(is_done(cluster, "app", "words"), running)
    for n in range(50, 100):
        cluster.put("words", b"w%d" % (n % 5), partition=(n % 5) % 2)
    async with worker(count_app(tmp_path, store=store), cluster) as running:
        await until(is_done(cluster, "app", "words"), running)
    assert counted(cluster) == expected_counts(100)


async def test_a_transaction_left_open_by_a_killed_worker_is_aborted_by_its_heir(
    tmp_path: Path,
) -> None:
    cluster = FakeCluster()
    fill_words(cluster, 60)
    stuck = asyncio.Event()

    def fail_commits(name: str, number: int) -> str | None:
        if name == "commit":
            stuck.set()
            return "before"
        return None

    async with (
        worker(count_app(tmp_path), cluster) as heir,
        worker(count_app(tmp_path), cluster) as first,
    ):
        await until(lambda: len(first.engine.tasks.running) == 1, first, heir)
        await until(is_done(cluster, "app", "words"), first, heir)
        cluster.injector = fail_commits
        for n in range(60, 100):
            cluster.put("words", b"w%d" % (n % 5), partition=(n % 5) % 2)
        await until(stuck.is_set, first, heir)
        await first.kill()
        cluster.injector = None
        first.consumer.expel()
        await until(is_done(cluster, "app", "words"), heir)
        assert first.slot.identity in cluster.fenced
    assert counted(cluster) == expected_counts(100)


async def test_a_worker_restarted_after_a_kill_aborts_its_own_transaction(tmp_path: Path) -> None:
    cluster = FakeCluster()
    fill_words(cluster, 60)
    stuck = asyncio.Event()
    cluster.injector = lambda name, _: (
        (stuck.set(), "before")[1] if name == "commit" else None  # type: ignore[func-returns-value]
    )
    async with worker(count_app(tmp_path), cluster) as first:
        await until(stuck.is_set, first)
        await first.kill()
        first.consumer.expel()
        cluster.injector = None
        async with worker(count_app(tmp_path), cluster) as second:
            assert second.slot.identity == first.slot.identity
            await until(is_done(cluster, "app", "words"), second)
    assert counted(cluster) == expected_counts(60)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("make", [transform_app, count_app], ids=["transform", "count"])
async def test_every_client_call_may_fail_once(
    tmp_path: Path, when: str, make: Callable[..., App]
) -> None:
    """Fails each call number in turn; the committed output must always be exactly the right one."""
    failing = 0
    while True:
        cluster = FakeCluster(batch_records=5)
        fill_orders(cluster, 24)
        fill_words(cluster, 24)
        reached = [False]

        def inject(name: str, number: int, at: int = failing, seen: Any = reached) -> str | None:
            if number < at or seen[0] or name == "init_transactions":
                return None
            seen[0] = True
            return when

        cluster.injector = inject
        app = make(tmp_path, id="app", commit_interval=0.001)
        topic = "orders" if make is transform_app else "words"
        async with worker(app, cluster) as running:
            await until(is_done(cluster, "app", topic), running)
        if make is transform_app:
            assert sorted(cluster.values("doubled")) == expected_orders(24), failing
        else:
            assert counted(cluster) == expected_counts(24), failing
        if not reached[0]:
            break
        failing += 1
    assert failing > 10


async def test_random_failures_of_many_calls_change_nothing(tmp_path: Path) -> None:
    import random

    for seed in range(6):
        rng = random.Random(seed)
        cluster = FakeCluster(batch_records=4)
        fill_words(cluster, 80)

        def inject(name: str, number: int, rng: random.Random = rng) -> str | None:
            if name == "init_transactions" or rng.random() > 0.12 or number > 400:
                return None
            return rng.choice(["before", "after"])

        cluster.injector = inject
        app = count_app(tmp_path, commit_interval=0.001)
        async with worker(app, cluster) as running:
            await until(is_done(cluster, "app", "words"), running, timeout=20)
        assert counted(cluster) == expected_counts(80), seed


async def test_workers_share_the_partitions_and_a_graceful_leave_repeats_nothing(
    tmp_path: Path,
) -> None:
    cluster = FakeCluster()
    fill_words(cluster, 40, distinct=8)
    handled: list[str] = []

    def app() -> App:
        made = count_app(tmp_path)
        words, agent = made.topic("words", value_type=str, partitions=2), made.agents["count"]
        inner = agent.fun

        async def slow(stream: Stream[str]) -> None:
            await inner(stream.add_processor(note))

        async def note(word: str) -> str:
            handled.append(word)
            await asyncio.sleep(0.001)
            return word

        agent.fun = slow
        agent.tables = (made.tables["counts"],)
        assert words is agent.topic
        return made

    async with worker(app(), cluster) as first:
        await until(lambda: len(handled) > 5, first)
        async with worker(app(), cluster) as second:
            await until(lambda: len(second.engine.tasks.running) == 1, first, second)
            assert len(first.engine.tasks.running) == 1
            await until(lambda: len(handled) > 25, first, second)
        await until(is_done(cluster, "app", "words"), first)
    assert len(handled) == 40
    assert counted(cluster) == expected_counts(40, distinct=8)


async def test_a_zombie_that_wakes_up_is_fenced_and_rejoins(tmp_path: Path) -> None:
    cluster = FakeCluster()
    fill_words(cluster, 400)
    async with (
        worker(count_app(tmp_path), cluster) as zombie,
        worker(count_app(tmp_path), cluster) as other,
    ):
        await until(lambda: len(other.engine.tasks.running) == 1, zombie, other)
        frozen = zombie.consumer
        frozen.frozen = True
        frozen.expel()
        for n in range(400, 500):
            cluster.put("words", b"w%d" % (n % 5), partition=(n % 5) % 2)
        await until(lambda: len(other.engine.tasks.running) == 2, other)
        await until(is_done(cluster, "app", "words"), other)
        identity = zombie.kafka.producers[0].transactional_id
        assert identity in cluster.fenced
        frozen.frozen = False
        await until(lambda: len(zombie.engine.tasks.running) == 1, zombie, other)
        for n in range(500, 600):
            cluster.put("words", b"w%d" % (n % 5), partition=(n % 5) % 2)
        await until(is_done(cluster, "app", "words"), zombie, other)
    assert counted(cluster) == expected_counts(600)


async def test_a_member_expelled_while_processing_commits_nothing_of_it(tmp_path: Path) -> None:
    cluster = FakeCluster()
    fill_words(cluster, 200)
    async with worker(count_app(tmp_path), cluster) as running:
        for _ in range(5):
            done = len(cluster.read("counted"))
            await until(lambda done=done: len(cluster.read("counted")) > done, running)  # type: ignore[misc]
            running.consumer.expel()
            for n in range(20):
                cluster.put("words", b"x%d" % n, partition=n % 2)
        await until(is_done(cluster, "app", "words"), running)
    again = Counter(key for key, _ in counted(cluster).elements())
    assert all(count == 1 for count in counted(cluster).values())
    assert sum(again.values()) == 300


async def test_a_raising_agent_stops_the_worker_and_commits_nothing_past_the_record(
    tmp_path: Path,
) -> None:
    cluster = FakeCluster()
    fill_words(cluster, 30)
    app = make_app(tmp_path)
    out = app.topic("out", value_type=str, partitions=1)
    seen: list[str] = []

    @app.agent(app.topic("words", value_type=str))
    async def fragile(stream: Stream[str]) -> None:
        async for word in stream:
            seen.append(word)
            await out.send(value=word)
            if len(seen) == 17:
                raise ValueError("seventeen")

    with pytest.raises(AgentError, match=r"fragile.*words-[01] at offset.*seventeen"):
        async with worker(app, cluster) as running:
            await until(lambda: False, running)
    assert len(cluster.values("out")) == sum(cluster.offsets.values()) <= 16


@pytest.mark.parametrize("returns", [False, True])
async def test_an_agent_that_never_reads_its_stream_stops_the_worker(
    tmp_path: Path, returns: bool
) -> None:
    cluster = FakeCluster()
    app = make_app(tmp_path)

    @app.agent(app.topic("words", value_type=str))
    async def broken(stream: Stream[str]) -> None:
        if not returns:
            raise ValueError("no setup")

    with pytest.raises(WorkerError, match="'broken' failed before it read a record"):
        async with worker(app, cluster) as running:
            await until(lambda: False, running)


async def test_a_raising_agent_sends_the_record_to_the_dead_letter_topic(tmp_path: Path) -> None:
    cluster = FakeCluster()
    fill_orders(cluster, 30)
    app = make_app(tmp_path, on_agent_error="dead_letter")
    out = app.topic("out", partitions=1)
    sums = app.Table("sums", key_type=str, default=int)

    @app.agent(app.topic("orders", value_type=Order))
    async def fragile(stream: Stream[Order]) -> None:
        async for order in stream:
            sums["all"] += 1
            await out.send(value={"id": order.id})
            if order.id % 3 == 0:
                raise ValueError("a third")
            await out.send(value={"id": order.id})

    async with worker(app, cluster) as running:
        await until(is_done(cluster, "app", "orders"), running)
    good = [n for n in range(30) if n % 3]
    assert Counter(json.loads(v or b"")["id"] for v in cluster.values("out")) == dict.fromkeys(
        good, 2
    )
    dead = cluster.read("app-dead-letter")
    assert sorted(json.loads(entry.value or b"")["id"] for entry in dead) == list(range(0, 30, 3))
    headers = dict(dead[0].headers)
    assert headers["onceward-error"] == b"ValueError: a third"
    assert headers["onceward-topic"] == b"orders"
    assert headers["onceward-agent"] == b"fragile"
    state = [json.loads(e.value or b"") for e in cluster.read("app-sums-changelog")]
    assert sum(sorted(state)[-2:]) <= 20
    assert max(state) == 10


async def test_failures_of_one_of_several_coroutines_are_dead_lettered_after_a_rewind(
    tmp_path: Path,
) -> None:
    cluster = FakeCluster()
    fill_orders(cluster, 30)
    app = make_app(tmp_path, on_agent_error="dead_letter")
    out = app.topic("out", partitions=1)

    @app.agent(app.topic("orders", value_type=Order), concurrency=3)
    async def fragile(stream: Stream[Order]) -> None:
        async for order in stream:
            await out.send(value={"id": order.id})
            await asyncio.sleep(0)
            if order.id % 10 == 0:
                raise ValueError("a tenth")

    async with worker(app, cluster) as running:
        await until(is_done(cluster, "app", "orders"), running)
    assert Counter(json.loads(v or b"")["id"] for v in cluster.values("out")) == dict.fromkeys(
        [n for n in range(30) if n % 10], 1
    )
    dead = [json.loads(value or b"")["id"] for value in cluster.values("app-dead-letter")]
    assert sorted(dead) == [0, 10, 20]


@pytest.mark.parametrize("policy", ["stop", "dead_letter"])
async def test_an_undecodable_record_follows_the_policy(tmp_path: Path, policy: str) -> None:
    cluster = FakeCluster()
    cluster.create("orders", 1)
    for n in range(10):
        good = b'{"id":%d,"amount":1}' % n
        cluster.put("orders", b"not json" if n in (0, 4, 9) else good)
    app = make_app(tmp_path, on_decode_error=policy)
    got: list[int] = []

    @app.agent(app.topic("orders", value_type=Order))
    async def collect(stream: Stream[Order]) -> None:
        async for order in stream:
            got.append(order.id)

    if policy == "stop":
        with pytest.raises(UndecodableRecord, match="orders-0 at offset 0"):
            async with worker(app, cluster) as running:
                await until(lambda: False, running)
        return
    async with worker(app, cluster) as running:
        await until(is_done(cluster, "app", "orders"), running)
    assert got == [1, 2, 3, 5, 6, 7, 8]
    assert cluster.values("app-dead-letter") == [b"not json"] * 3


async def test_null_values_reach_the_agent_as_none_and_are_committed(tmp_path: Path) -> None:
    cluster = FakeCluster()
    cluster.create("orders", 1)
    for _ in range(5):
        cluster.put("orders", None, b"k")
    app = make_app(tmp_path)
    got: list[Any] = []

    @app.agent(app.topic("orders", key_type=str, value_type=Order))
    async def collect(stream: Stream[Order]) -> None:
        async for key, value in stream.items():
            got.append((key, value))

    async with worker(app, cluster) as running:
        await until(is_done(cluster, "app", "orders"), running)
    assert got == [("k", None)] * 5


async def test_take_commits_only_what_was_handed_out(tmp_path: Path) -> None:
    cluster = FakeCluster()
    fill_words(cluster, 25, distinct=1)
    app = make_app(tmp_path)
    got: list[int] = []

    @app.agent(app.topic("words", value_type=str))
    async def batch(stream: Stream[str]) -> None:
        async for words in stream.take(10):
            got.append(len(words))

    async with worker(app, cluster) as running:
        tp = TopicPartition("words", 0)
        await until(lambda: cluster.offsets.get(("app", tp)) == 20, running)
        await asyncio.sleep(0.03)
        assert cluster.offsets[("app", tp)] == 20
    assert got == [10, 10]


async def test_take_within_hands_out_a_short_list_in_time(tmp_path: Path) -> None:
    cluster = FakeCluster()
    fill_words(cluster, 25, distinct=1)
    app = make_app(tmp_path)
    got: list[int] = []

    @app.agent(app.topic("words", value_type=str))
    async def batch(stream: Stream[str]) -> None:
        async for words in stream.take(10, within=0.05):
            got.append(len(words))

    async with worker(app, cluster) as running:
        await until(is_done(cluster, "app", "words"), running)
    assert got == [10, 10, 5]


async def test_two_agents_on_a_topic_both_see_every_record(tmp_path: Path) -> None:
    cluster = FakeCluster()
    fill_words(cluster, 40)
    app = make_app(tmp_path)
    words = app.topic("words", value_type=str)
    first: list[str] = []
    second: list[list[str]] = []

    @app.agent(words)
    async def one(stream: Stream[str]) -> None:
        async for word in stream:
            await asyncio.sleep(0)
            first.append(word)

    @app.agent(words)
    async def two(stream: Stream[str]) -> None:
        async for batch in stream.take(1000):
            second.append(batch)

    async with worker(app, cluster) as running:
        await until(is_done(cluster, "app", "words"), running)
    assert len(first) == 40
    assert sum(map(len, second)) == 40


async def test_group_by_counts_across_partitions(tmp_path: Path) -> None:
    cluster = FakeCluster()
    cluster.create("orders", 3)
    for n in range(90):
        cluster.put("orders", b'{"id":%d,"amount":%d}' % (n, n % 4), partition=n % 3)
    app = make_app(tmp_path)
    sums = app.Table("sums", key_type=int, default=int, partitions=2)

    @app.agent(app.topic("orders", value_type=Order))
    async def total(stream: Stream[Order]) -> None:
        async for order in stream.group_by(Order.amount, partitions=2):
            sums[order.amount] += 1

    async with worker(app, cluster) as running:
        repartition = "app-total-amount-repartition"
        await until(is_done(cluster, "app", "orders"), running)
        await until(is_done(cluster, "app", repartition), running)
        assert len(cluster.logs[repartition]) == 2
    assert folded(cluster, "app-sums-changelog") == {
        b"0": b"23", b"1": b"23", b"2": b"22", b"3": b"22"
    }  # fmt: skip


async def test_what_an_agent_yields_goes_to_its_sinks(tmp_path: Path) -> None:
    cluster = FakeCluster()
    fill_words(cluster, 10, distinct=1)
    app = make_app(tmp_path)
    out = app.topic("out", value_type=str)
    got: list[str] = []

    @app.agent(app.topic("words", value_type=str), sink=[out, got.append])
    async def upper(stream: Stream[str]) -> Any:
        async for word in stream:
            yield word.upper()

    async with worker(app, cluster) as running:
        await until(is_done(cluster, "app", "words"), running)
    assert got == ["W0"] * 10
    assert cluster.values("out") == [b"W0"] * 10


async def test_timers_and_tasks_send_with_the_next_transaction(tmp_path: Path) -> None:
    cluster = FakeCluster()
    app = make_app(tmp_path)
    out = app.topic("out", value_type=str, partitions=2)
    got: list[str] = []

    @app.timer(0.01)
    async def tick() -> None:
        await out.send(key="k", value="tick")

    @app.task
    async def begin() -> None:
        await out.send(key="k", value="begin")

    @app.agent(out)
    async def collect(stream: Stream[str]) -> None:
        async for value in stream:
            got.append(value)

    async with worker(app, cluster) as running:
        await until(lambda: len(got) >= 4, running)
    assert got[0] == "begin"
    assert set(got[1:]) == {"tick"}


async def test_a_slow_agent_does_not_hold_up_other_partitions(tmp_path: Path) -> None:
    cluster = FakeCluster()
    cluster.create("words", 2)
    cluster.put("words", b"slow", partition=0)
    for _ in range(20):
        cluster.put("words", b"fast", partition=1)
    app = make_app(tmp_path)
    release = asyncio.Event()

    @app.agent(app.topic("words", value_type=str))
    async def handle(stream: Stream[str]) -> None:
        async for word in stream:
            if word == "slow":
                await release.wait()

    async with worker(app, cluster) as running:
        fast = ("app", TopicPartition("words", 1))
        await until(lambda: cluster.offsets.get(fast) == 20, running)
        assert ("app", TopicPartition("words", 0)) not in cluster.offsets
        release.set()
        await until(is_done(cluster, "app", "words"), running)


async def test_at_least_once_repeats_and_at_most_once_loses_what_a_kill_interrupts(
    tmp_path: Path,
) -> None:
    for guarantee in ("at_least_once", "at_most_once"):
        cluster = FakeCluster(batch_records=40)
        fill_words(cluster, 40, distinct=1)
        reached = asyncio.Event()

        def app(name: str = guarantee, stop: asyncio.Event = reached) -> App:
            made = make_app(tmp_path, id=name, processing_guarantee=name, commit_interval=0.5)
            out = made.topic("out", value_type=str, partitions=1)

            @made.agent(made.topic("words", value_type=str))
            async def copy(stream: Stream[str]) -> None:
                async for count, word in stream.enumerate():
                    await out.send(value=word)
                    if count == 20 and not stop.is_set():
                        stop.set()
                        await asyncio.sleep(60)

            return made

        async with worker(app(), cluster) as first:
            await until(reached.is_set, first)
            await asyncio.sleep(1.2 if guarantee == "at_least_once" else 0)
            await first.kill()
            first.consumer.expel()
            async with worker(app(), cluster) as second:
                await until(is_done(cluster, guarantee, "words"), second)
                await asyncio.sleep(0.05)
        outputs = len(cluster.values("out"))
        assert outputs >= 40 if guarantee == "at_least_once" else outputs < 40


async def test_stopping_commits_what_is_in_hand(tmp_path: Path) -> None:
    cluster = FakeCluster()
    fill_orders(cluster, 20)
    async with worker(transform_app(tmp_path, commit_interval=20.0), cluster) as running:
        await until(lambda: bool(running.engine.tasks.running), running)
        await asyncio.sleep(0.05)
        assert cluster.values("doubled") == []
        await running.stop()
    assert sorted(cluster.values("doubled")) == expected_orders(20)
