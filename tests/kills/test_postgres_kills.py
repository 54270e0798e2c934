"""Workers that write to PostgreSQL, and the server itself, killed and stopped at random moments.

``ONCEWARD_KILLS`` scales it: that many workers die, a third as often the database server does, and
records come until it is over, at least ``ONCEWARD_KILLS_RECORDS`` of them. The rows are judged from
the source alone: which numbers went in says every row and every total, exactly.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from onceward.broker.client import Admin, NewTopic, Producer, partition_keys
from onceward.streams.cli.processes import WorkerPool

from ..streams.sinks.postgres_server import PostgresServer
from .broker_process import BrokerUnderFire
from .pipeline import new_client

pytestmark = [pytest.mark.kills, pytest.mark.timeout(900)]

APP = f"{Path(__file__).parent / 'postgres_app.py'}:app"
KILLS = int(os.environ.get("ONCEWARD_KILLS", "9"))
RECORDS = int(os.environ.get("ONCEWARD_KILLS_RECORDS", "20000"))
STOPS = max(2, KILLS // 6)
WORKERS = 2
PARTITIONS = 6
KEYS = 50
RATE = 2500
OPEN = b"""
    SELECT pid, xact_start FROM pg_stat_activity
    WHERE application_name ~ '^onceward' AND xact_start IS NOT NULL"""


class Feed:
    """Numbers at a steady rate: number ``n`` has the key ``n % KEYS``."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.sent = 0
        self.is_over = asyncio.Event()
        keys: list[bytes | None] = [f"k{number}".encode() for number in range(KEYS)]
        self._keys = keys
        self._places = partition_keys(keys, PARTITIONS)

    async def run(self) -> None:
        async with new_client(self.address) as client:
            await Admin(client).create_topics([NewTopic("rows-in", PARTITIONS)])
            producer = Producer(client)
            loop = asyncio.get_running_loop()
            began = loop.time()
            while not self.is_over.is_set() or self.sent < RECORDS:
                due = int((loop.time() - began) * RATE)
                for partition in range(PARTITIONS):
                    mine = [
                        number
                        for number in range(self.sent, due)
                        if self._places[number % KEYS] == partition
                    ]
                    if mine:
                        producer.send_batch(
                            "rows-in",
                            partition,
                            [self._keys[number % KEYS] for number in mine],
                            [b'{"number":%d}' % number for number in mine],
                            timestamps=int(time.time() * 1000),
                        )
                await producer.flush()
                self.sent = max(self.sent, due)
                await asyncio.sleep(0.02)
            await producer.close()


class Fire:
    """What a test aims at."""

    def __init__(self, server: PostgresServer, feed: Feed, pool: WorkerPool) -> None:
        self.server, self.feed, self.pool = server, feed, pool
        self.server_kills = 0
        self.caught = 0
        """Stopped workers that held a transaction open."""

    def query(self, statement: bytes) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.server.dsn()) as connection:
            return connection.execute(statement).fetchall()

    def count_rows(self) -> int:
        try:
            ((count,),) = self.query(b"SELECT count(*) FROM rows")
        except psycopg.errors.UndefinedTable:
            return 0  # the first worker has yet to create it
        return int(count)

    async def until_rows(self, expected: int, what: str, timeout_s: float = 60) -> None:
        """Raises AssertionError when there are not so many rows in time."""
        deadline = time.monotonic() + timeout_s
        while (found := self.count_rows()) < expected:
            assert time.monotonic() < deadline, f"{what}: {found} of {expected} rows"
            await asyncio.sleep(0.1)

    async def stop_in_transaction(self, pid: int, rng: random.Random) -> None:
        """SIGSTOP while it holds a transaction open in the database, if that can be hit."""
        for _ in range(50):
            await asyncio.sleep(rng.uniform(0.0, 0.1))
            os.kill(pid, signal.SIGSTOP)
            before = self.query(OPEN)
            await asyncio.sleep(0.1)
            if set(before) & set(self.query(OPEN)):
                self.caught += 1
                return
            os.kill(pid, signal.SIGCONT)
        os.kill(pid, signal.SIGSTOP)

    def kill_server(self) -> None:
        """SIGKILL, and started again at once."""
        self.server.kill()
        self.server.start()
        self.server_kills += 1

    def judge(self) -> None:
        sent = self.feed.sent
        rows = self.query(b"SELECT number, key, count FROM rows ORDER BY number, count")
        expected = [(n, f"k{n % KEYS}", n // KEYS + 1) for n in range(sent)]
        if rows != expected:
            lost = sorted({row[0] for row in expected} - {row[0] for row in rows})[:5]
            wrong = [row for row, right in zip(rows, expected, strict=False) if row != right][:5]
            raise AssertionError(
                f"{len(rows)} rows of {sent} numbers; lost {lost}; wrong or repeated {wrong}"
            )
        totals = dict(self.query(b"SELECT key, total FROM totals"))
        assert totals == {f"k{n}": (sent - 1 - n) // KEYS + 1 for n in range(KEYS)}
        positions = self.query(
            b"SELECT sink, count(*), sum(next_offset) >= %d FROM onceward_positions "
            b"GROUP BY 1 ORDER BY 1" % sent
        )
        assert positions == [("rows", PARTITIONS, True), ("totals", PARTITIONS, True)]


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """One that may be killed."""
    made = PostgresServer()
    try:
        made.start()
        yield made
    finally:
        made.remove()


@asynccontextmanager
async def under_fire(tmp_path: Path, server: PostgresServer) -> AsyncIterator[Fire]:
    """A broker, a feed, workers that run; everything is judged at the end."""
    shorter = "group.min.session.timeout.ms=1000"
    broker = BrokerUnderFire(tmp_path / "data", tmp_path / "broker.log", shorter)
    broker.start()
    feed = Feed(broker.address)
    feeding = asyncio.create_task(feed.run())
    pool = WorkerPool(
        APP, workers=WORKERS, broker=broker.address, datadir=tmp_path / "workers",
        log=tmp_path / "workers.log",
        env={**os.environ, "POSTGRES_UNDER_FIRE": server.dsn()},
    )  # fmt: skip
    fire = Fire(server, feed, pool)
    try:
        await pool.start()
        await fire.until_rows(1, "the workers do not work")
        yield fire
        feed.is_over.set()
        await feeding
        await fire.until_rows(feed.sent, "rows are missing")
        await asyncio.sleep(0.5)  # a duplicate would come now
        assert not pool.ended, (tmp_path / "workers.log").read_text()[-3000:]
        fire.judge()
    finally:
        feeding.cancel()
        await asyncio.gather(feeding, return_exceptions=True)
        await pool.stop()
        broker.stop()
    print(
        f"{feed.sent} records, {pool.restarts} workers and {fire.server_kills} servers killed, "
        f"{fire.caught} caught in a transaction"
    )


async def test_workers_and_servers_killed_at_random_moments_leave_every_row_once(
    tmp_path: Path, server: PostgresServer
) -> None:
    rng = random.Random(6)
    targets = ["worker"] * KILLS + ["server"] * (KILLS // 3)
    rng.shuffle(targets)
    killed = 0
    async with under_fire(tmp_path, server) as fire:
        pause = max(1.2, RECORDS / RATE / len(targets))
        for target in targets:
            await asyncio.sleep(rng.uniform(0.3, 1.7) * pause)
            if target == "worker":
                killed += fire.pool.kill(rng.randrange(WORKERS))
            else:
                fire.kill_server()
    assert KILLS // 2 < killed == fire.pool.restarts


async def test_workers_stopped_past_their_session_and_resumed_write_nothing(
    tmp_path: Path, server: PostgresServer
) -> None:
    rng = random.Random(7)
    async with under_fire(tmp_path, server) as fire:
        for turn in range(STOPS):
            await asyncio.sleep(rng.uniform(0.5, 1.0))
            pid = fire.pool.pids[turn % WORKERS]
            try:
                await fire.stop_in_transaction(pid, rng)
                stopped_at = fire.feed.sent
                await asyncio.sleep(rng.uniform(2.5, 3.5))
                await fire.until_rows(stopped_at, "nobody took over")
            finally:
                os.kill(pid, signal.SIGCONT)
    assert fire.caught, "no worker was stopped within a transaction"
