"""Workers that write to a database, killed and stopped at random moments: every row exactly once.

There is no unique index on the rows: a duplicate would be there to see.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from onceward.broker.client import Admin, NewTopic, Producer, partition_keys
from onceward.streams.cli.processes import WorkerPool

from .broker_process import BrokerUnderFire
from .pipeline import new_client

pytestmark = [pytest.mark.kills, pytest.mark.timeout(300)]

APP = f"{Path(__file__).parent / 'sink_app.py'}:app"
KILLS = int(os.environ.get("ONCEWARD_KILLS", "12"))
STOPS = 3
PARTITIONS = 6
RATE = 2000


class Feed:
    """Numbers at a steady rate, keyed."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.sent = 0
        self.is_over = asyncio.Event()

    async def run(self) -> None:
        async with new_client(self.address) as client:
            await Admin(client).create_topics([NewTopic("rows-in", PARTITIONS)])
            producer = Producer(client)
            began = time.monotonic()
            while not self.is_over.is_set():
                due = int((time.monotonic() - began) * RATE)
                for number in range(self.sent, due):
                    key = b"k%d" % (number % 50)
                    (partition,) = partition_keys([key], PARTITIONS)
                    producer.send_batch(
                        "rows-in", partition, [key], [b'{"number":%d}' % number],
                        timestamps=int(time.time() * 1000),
                    )  # fmt: skip
                await producer.flush()
                self.sent = max(self.sent, due)
                await asyncio.sleep(0.02)
            await producer.close()


def count_rows(database: Path) -> int:
    connection = sqlite3.connect(database, timeout=30)
    try:
        return int(connection.execute("SELECT count(*) FROM rows").fetchone()[0])
    except sqlite3.OperationalError:
        return 0  # the first worker has yet to create it
    finally:
        connection.close()


async def until_rows(database: Path, expected: int, what: str, timeout_s: float = 60) -> None:
    """Raises AssertionError when there are not so many rows in time."""
    deadline = time.monotonic() + timeout_s
    while (found := count_rows(database)) < expected:
        assert time.monotonic() < deadline, f"{what}: {found} of {expected} rows"
        await asyncio.sleep(0.1)


def judge(database: Path, sent: int) -> None:
    connection = sqlite3.connect(database)
    rows = connection.execute("SELECT number, key, count FROM rows").fetchall()
    totals = dict(connection.execute("SELECT key, total FROM totals").fetchall())
    positions = connection.execute(
        "SELECT sink, sum(next_offset) FROM onceward_positions GROUP BY 1"
    )
    assert {name: total >= sent for name, total in positions} == {"rows": True, "totals": True}
    connection.close()
    seen = Counter(number for number, _, _ in rows)
    lost = sorted(set(range(sent)) - seen.keys())
    repeated = sorted(number for number, count in seen.items() if count > 1)
    assert not lost, f"{len(lost)} of {sent} rows are lost, first {lost[:5]}"
    assert not repeated, f"{len(repeated)} rows are there twice, first {repeated[:5]}"
    assert len(rows) == sent
    counts: dict[str, set[int]] = {}
    for _, key, count in rows:
        counts.setdefault(key, set()).add(count)
    for key, found in counts.items():
        assert found == set(range(1, len(found) + 1)), f"the count of {key} is wrong"
        assert totals[key] == len(found), f"the total of {key} is wrong"


@asynccontextmanager
async def under_fire(tmp_path: Path) -> AsyncIterator[tuple[Feed, WorkerPool, Path]]:
    """A broker, a feed, two workers that run; everything is judged at the end."""
    shorter = "group.min.session.timeout.ms=1000"
    broker = BrokerUnderFire(tmp_path / "data", tmp_path / "broker.log", shorter)
    broker.start()
    database = tmp_path / "rows.db"
    feed = Feed(broker.address)
    feeding = asyncio.create_task(feed.run())
    pool = WorkerPool(
        APP, workers=2, broker=broker.address, datadir=tmp_path / "workers",
        log=tmp_path / "workers.log",
        env={**os.environ, "SINK_UNDER_FIRE_DATABASE": str(database)},
    )  # fmt: skip
    try:
        await pool.start()
        await until_rows(database, 1, "the workers do not work")
        yield feed, pool, database
        feed.is_over.set()
        await feeding
        await until_rows(database, feed.sent, "rows are missing")
        await asyncio.sleep(0.5)  # a duplicate would come now
        assert not pool.ended, (tmp_path / "workers.log").read_text()[-3000:]
        judge(database, feed.sent)
    finally:
        feeding.cancel()
        await asyncio.gather(feeding, return_exceptions=True)
        await pool.stop()
        broker.stop()


async def test_workers_killed_at_random_moments_write_every_row_once(tmp_path: Path) -> None:
    rng = random.Random(4)
    killed = 0
    async with under_fire(tmp_path) as (_, pool, _database):
        for _ in range(KILLS):
            await asyncio.sleep(rng.uniform(0.3, 1.8))
            killed += pool.kill(rng.randrange(2))
    assert KILLS // 2 < killed == pool.restarts


async def test_workers_stopped_past_their_session_and_resumed_write_nothing_twice(
    tmp_path: Path,
) -> None:
    rng = random.Random(5)
    async with under_fire(tmp_path) as (feed, pool, database):
        for turn in range(STOPS):
            await asyncio.sleep(rng.uniform(0.5, 1.0))
            pid = pool.pids[turn % 2]
            os.kill(pid, signal.SIGSTOP)
            stopped_at = feed.sent
            try:
                await asyncio.sleep(rng.uniform(3.0, 4.0))
                await until_rows(database, stopped_at, "nobody took over")
            finally:
                os.kill(pid, signal.SIGCONT)
