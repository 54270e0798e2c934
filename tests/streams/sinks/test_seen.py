"""Effects of a system without transactions: only what was in hand at a crash is repeated."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from onceward.streams import App, ConfigurationError, Stream
from onceward.streams.sinks import Batch, MemorySink, Sink, SinkUnavailable, SqliteSeenKeys

from ..workers import make_app, until, worker
from .etl import Order, fail_once, is_done, kill, make_cluster


class Mail(Sink):
    """What was sent is sent; ``fails`` at these calls, after sending."""

    def __init__(self, sent: list[int], fails: set[int] | None = None) -> None:
        super().__init__("mail", on_error="dead_letter")
        self.sent = sent
        self.fails = fails or set()
        self.calls = 0
        self.is_stuck = asyncio.Event()

    async def apply(self, batch: Batch) -> None:
        self.calls += 1
        for index, value in enumerate(batch.values):
            if value % 10 == 7:
                batch.refuse(index, "no sevens")
            else:
                self.sent.append(value)
        if self.calls in self.fails:
            self.fails.discard(self.calls)
            self.is_stuck.set()
            raise SinkUnavailable("mail: the answer is lost")


def mail_app(tmp_path: Path, mail: Sink) -> App:
    app = make_app(tmp_path)

    @app.agent(app.topic("orders", value_type=Order, partitions=2), sink=[mail])
    async def etl(stream: Stream[Order]) -> AsyncIterator[int]:
        async for order in stream:
            yield order.id

    return app


EXPECTED = Counter(n for n in range(30) if n % 10 != 7)


def noted(path: Path) -> int:
    with sqlite3.connect(path) as connection:
        return int(connection.execute("SELECT count(*) FROM onceward_seen").fetchone()[0])


async def test_a_commit_that_kafka_lost_repeats_nothing(tmp_path: Path) -> None:
    cluster, sent = make_cluster(30), list[int]()
    cluster.injector = fail_once("commit", "before")
    seen = SqliteSeenKeys(Mail(sent), tmp_path / "seen.db", chunk=4)
    async with worker(mail_app(tmp_path, seen), cluster) as running:
        await until(is_done(cluster), running)
    assert Counter(sent) == EXPECTED
    assert len(cluster.read("app-dead-letter")) == 3
    assert noted(tmp_path / "seen.db") == 0, "nothing is kept for ever"


async def test_an_interrupted_batch_repeats_only_the_chunk_in_hand(tmp_path: Path) -> None:
    cluster, sent = make_cluster(30, batch_records=30), list[int]()
    mail = Mail(sent, {4})
    seen = SqliteSeenKeys(mail, tmp_path / "seen.db", chunk=3)
    async with worker(mail_app(tmp_path, seen), cluster) as running:
        await until(is_done(cluster), running)
    repeated = Counter(sent) - EXPECTED
    assert set(sent) == set(EXPECTED)
    assert 0 < repeated.total() <= 3
    assert len(cluster.read("app-dead-letter")) == 3


async def test_an_heir_goes_on_where_a_killed_worker_was(tmp_path: Path) -> None:
    cluster, sent = make_cluster(30, batch_records=30), list[int]()
    mail = Mail(sent, {5})
    seen = SqliteSeenKeys(mail, tmp_path / "seen.db", chunk=1)
    async with worker(mail_app(tmp_path, seen), cluster) as first:
        await until(mail.is_stuck.is_set, first)
        await kill(first)
    await seen.close()
    heir = SqliteSeenKeys(Mail(sent), tmp_path / "seen.db", chunk=1)
    async with worker(mail_app(tmp_path, heir), cluster) as second:
        await until(is_done(cluster), second)
    assert set(sent) == set(EXPECTED)
    assert (Counter(sent) - EXPECTED).total() <= 1
    assert len(cluster.read("app-dead-letter")) == 3


def test_a_sink_with_transactions_needs_no_such_thing(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="'rows' has transactions"):
        SqliteSeenKeys(MemorySink("rows"), tmp_path / "seen.db")
