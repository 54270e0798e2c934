"""Workers that write to a target, a feed that keeps them busy, and what may happen to them."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from onceward.broker.client import Admin, Client, NewTopic, Producer, partition_keys
from onceward.streams.cli.processes import WorkerPool

from .broker_process import BrokerUnderFire
from .pipeline import new_client
from .targets import Target

APP = f"{Path(__file__).parent / 'sink_app.py'}:app"
GROUP = "sink-under-fire"
PARTITIONS = 6
KEYS = 50
SESSION_S = 1.5
FAST, SLOW = 4000, 500
"""Records per second at most."""
AHEAD = 3000
"""The feed waits when so many are on their way."""


class Feed:
    """Number ``n`` has the key ``n % KEYS``. ``committed`` is how many the group has done with, and
    so how many are in the sink at the least. From ``slow_from`` on numbers come slowly: something
    happens, and there must be work meanwhile and afterwards."""

    def __init__(self, address: str, records: int) -> None:
        self.records = records
        self.slow_from = 0
        self.sent = 0
        self.committed = 0
        self.address = address
        self._keys: list[bytes | None] = [f"k{number}".encode() for number in range(KEYS)]
        self._places = partition_keys(self._keys, PARTITIONS)

    async def run(self) -> None:
        async with new_client(self.address) as client:
            await Admin(client).create_topics([NewTopic("rows-in", PARTITIONS)])
            async with asyncio.TaskGroup() as group:
                group.create_task(self._watch(client))
                group.create_task(self._send(client))

    async def _watch(self, client: Client) -> None:
        admin = Admin(client)
        while self.committed < self.records:
            offsets = await admin.list_group_offsets(GROUP)
            self.committed = sum(
                found.offset for tp, found in offsets.items() if tp.topic == "rows-in"
            )
            await asyncio.sleep(0.02)

    async def _send(self, client: Client) -> None:
        producer = Producer(client)
        last = time.monotonic()
        while self.sent < self.records:
            await asyncio.sleep(0.02)
            now = time.monotonic()
            rate = FAST if self.sent < self.slow_from else SLOW
            due = self.sent + round(rate * (now - last))
            last = now
            await self._send_to(producer, min(due, self.committed + AHEAD, self.records))
        await producer.close()

    async def _send_to(self, producer: Producer, due: int) -> None:
        for partition in range(PARTITIONS):
            numbers = [
                number
                for number in range(self.sent, due)
                if self._places[number % KEYS] == partition
            ]
            if numbers:
                keys = [self._keys[number % KEYS] for number in numbers]
                values: list[bytes | None] = [b'{"number":%d}' % number for number in numbers]
                producer.send_batch(
                    "rows-in", partition, keys, values, timestamps=int(time.time() * 1000)
                )
        await producer.flush()
        self.sent = max(self.sent, due)


class Fire:
    """What a test aims at."""

    def __init__(self, target: Target, feed: Feed, pool: WorkerPool, rng: random.Random) -> None:
        self.target, self.feed, self.pool, self.rng = target, feed, pool, rng
        self.killed = self.servers_killed = self.stopped = self.caught = 0

    async def until(self, is_so: Callable[[], bool], complaint: str, timeout_s: float = 60) -> None:
        """Raises AssertionError when it takes too long, and when a worker ended."""
        deadline = time.monotonic() + timeout_s
        while not is_so():
            assert not self.pool.ended, "a worker ended by itself"
            feed = self.feed
            assert time.monotonic() < deadline, (
                f"{complaint}: {feed.committed} of {feed.sent} sent are done"
            )
            await asyncio.sleep(0.01)

    async def until_moment(self, moment: int) -> None:
        """Until so many records are done with, and others are not."""
        self.feed.slow_from = moment
        await self.until_committed(moment, "the workers do not go on")
        assert self.feed.committed < self.feed.records, "there was no work left to disturb"

    async def until_committed(self, count: int, complaint: str) -> None:
        await self.until(lambda: self.feed.committed >= count, complaint)

    async def kill_worker(self) -> None:
        """SIGKILL; it is started again at once."""
        index = self.rng.randrange(self.target.workers)
        await self.until(lambda: self.pool.kill(index), "a worker is not started")
        self.killed += 1
        await self._until_started_again()

    async def kill_server(self) -> None:
        """SIGKILL, and started again soon."""
        self.target.kill()
        await asyncio.sleep(self.rng.uniform(0.0, self.target.away_s))
        self.target.start()
        self.servers_killed += 1

    async def stop_worker(self) -> None:
        """SIGSTOP past its session, until others have done all it had in hand; then SIGCONT: all
        it writes now would be there twice."""
        await self._until_all_work()
        pid = self.pool.pids[self.stopped % self.target.workers]
        in_transaction = self.target.can_be_caught and self.stopped % 2 == 0
        try:
            is_caught = await self._stop_at(pid, in_transaction)
            sent = self.feed.sent
            await asyncio.sleep(SESSION_S + self.rng.uniform(0.5, 1.0))
            if not (self.target.waits_for_stopped and (is_caught or self.target.workers == 1)):
                await self.until_committed(sent, "nobody took over")
        finally:
            os.kill(pid, signal.SIGCONT)
        self.stopped += 1
        self.caught += is_caught
        await asyncio.sleep(0.5)

    async def _until_started_again(self) -> None:
        await self.until(lambda: self.pool.restarts == self.killed, "a worker is not started again")

    async def _until_all_work(self) -> None:
        """The killed are forgotten and those started after them are members."""
        async with new_client(self.feed.address) as client:
            admin = Admin(client)
            while True:
                group = (await admin.describe_groups([GROUP]))[GROUP]
                if len(group.members) == self.target.workers:
                    break
                await asyncio.sleep(0.05)
        await self.until_committed(self.feed.committed + 1, "the workers do not go on")

    async def _stop_at(self, pid: int, in_transaction: bool) -> bool:
        """SIGSTOP at a random moment within a transaction or outside. Returns which."""
        for _ in range(500):
            await asyncio.sleep(self.rng.uniform(0.0, 0.03))
            os.kill(pid, signal.SIGSTOP)
            before = await self.target.open_transactions()
            if before:
                await asyncio.sleep(0.15)
                before &= await self.target.open_transactions()
            if bool(before) == in_transaction:
                return in_transaction
            os.kill(pid, signal.SIGCONT)
        raise AssertionError("it was never stopped " + ("inside" if in_transaction else "outside"))

    async def judge(self) -> None:
        """The rows against the source: none lost, none twice, in order, totals right."""
        sent = self.feed.sent
        rows = await self.target.rows()
        expected = [(n, f"k{n % KEYS}", n // KEYS + 1) for n in range(sent)]
        if self.target.keeps_order:
            latest: dict[str, int] = {}
            for number, key, _ in rows:
                assert latest.get(key, -1) <= number, f"{number} of {key} comes after {latest[key]}"
                latest[key] = number
        rows.sort()
        if rows != expected:
            lost = {row[0] for row in expected} - {row[0] for row in rows}
            wrong = [row for row, right in zip(rows, expected, strict=False) if row != right][:5]
            raise AssertionError(
                f"{len(rows)} rows of {sent} records; {len(lost)} are lost, {sorted(lost)[:5]}; "
                f"wrong or repeated from {wrong}"
            )
        assert await self.target.totals() == {
            f"k{n}": (sent - 1 - n) // KEYS + 1 for n in range(KEYS)
        }


@asynccontextmanager
async def under_fire(
    target: Target, tmp_path: Path, rng: random.Random, records: int
) -> AsyncIterator[Fire]:
    """A broker, a feed, workers that run; everything is judged at the end."""
    shorter = "group.min.session.timeout.ms=1000"
    broker = BrokerUnderFire(tmp_path / "data", tmp_path / "broker.log", shorter)
    broker.start()
    feed = Feed(broker.address, records)
    feeding = asyncio.create_task(feed.run())
    log = tmp_path / "workers.log"
    pool = WorkerPool(
        APP, workers=target.workers, broker=broker.address, datadir=tmp_path / "workers", log=log,
        env={
            **os.environ, "SINK_UNDER_FIRE": target.kind, "SINK_UNDER_FIRE_AT": target.at,
            "SINK_UNDER_FIRE_INTERVAL": str(target.commit_interval),
        },
    )  # fmt: skip
    fire = Fire(target, feed, pool, rng)
    try:
        await pool.start()
        await fire.until_committed(1, "the workers do not work")
        yield fire
        feed.slow_from = records
        await fire.until_committed(records, "rows are missing")
        await feeding
        await asyncio.sleep(0.5)  # a duplicate would come now
        assert not pool.ended
    except AssertionError as error:
        said = log.read_text()[-3000:] if log.exists() else "nothing"
        raise AssertionError(f"{error}\nThe workers said:\n{said}") from error
    finally:
        feeding.cancel()
        await asyncio.gather(feeding, return_exceptions=True)
        await pool.stop()
        broker.stop()
    await fire.judge()
