"""Rows per second from a topic into PostgreSQL and SQLite, from one worker, exactly-once.

    python -m tests.bench.bench_sinks [--rounds 3] [--contenders copy,postgres,...]
        [--quix-python PATH]

Rows of ten columns, 4 partitions, our broker, a PostgreSQL server that syncs. Contenders, all in
the same run and in random order:

    copy             rows in memory, nothing read: COPY of psycopg in transactions of 10,000 rows
    copy-binary      the same in COPY's binary format
    loop             a hand-written consumer: confluent-kafka, COPY, then the offsets; at least once
    postgres         an agent with a PostgresSink: insert, exactly-once
    postgres-upsert  the same with a key: 20,000 accounts
    quix             Quix Streams and its PostgreSQL sink, at least once (--quix-python)
    sqlite           an agent with a SqliteSink: insert, exactly-once
    sqlite-bare      rows in memory into SQLite in transactions of 10,000 rows

The topic is filled while the worker, warmed up, is stopped; the clock runs from when it goes on to
when the last offset is committed. The rows are counted after every run.

What is compared: ``copy`` has its rows in memory, as Python objects, before the clock starts. It
reads no topic, decodes no JSON and commits no offsets: a mark to come near to, and no program that
somebody runs. ``loop`` does the same work as the worker, but for being exactly-once and everything
else it leaves out. With the server and the broker on the same machine a worker has one core at
most: on two cores its rate is bounded by the CPU it needs per row, which depends less than the rate
on what else the machine does. Rates of different runs, or of a machine that others use, say little:
compare the rounds' ratios.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import psycopg

from onceward.broker.client import Admin, Client, NewTopic, partition_keys

from ..streams.sinks.postgres_server import PostgresServer
from .bench_pipeline import (
    BATCH,
    HERE,
    PARTITIONS,
    Batch,
    cpu_seconds,
    end,
    feed,
    our_broker,
    spread,
    stopped,
)

COUNT = 300_000
QUIX_COUNT = 60_000
WARM_UP = 8_000
CHUNK = 10_000
CONTENDERS = "copy,copy-binary,loop,postgres,postgres-upsert,sqlite,sqlite-bare"
SYNCED = {"fsync": "on", "full_page_writes": "on", "shared_buffers": "256MB", "max_wal_size": "2GB"}
TABLE = """
    CREATE TABLE payments (
        id bigint, account text, amount numeric, rate double precision, at timestamptz,
        late boolean, country text, page text, quantity bigint, note text
    )"""
TYPES = ["int8", "text", "numeric", "float8", "timestamptz", "bool", "text", "text", "int8", "text"]
Row = tuple[Any, ...]


class Figures(NamedTuple):
    """Rows per second of wall time, and microseconds of the worker's CPU per row."""

    rate: float
    us: float


class Setup(NamedTuple):
    """What all runs share."""

    broker: str
    server: PostgresServer
    quix_python: str | None
    rows: list[Row]
    batches: list[Batch]


def make_rows(count: int, rng: random.Random) -> Iterator[Row]:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    for number in range(count):
        yield (
            number,
            f"account-{rng.randrange(20_000):05}",
            Decimal(rng.randrange(10**6)).scaleb(-2),
            round(rng.uniform(0, 2), 6),
            start + timedelta(seconds=number),
            bool(number & 1),
            "DE",
            f"/p/{rng.randrange(10**6)}",
            rng.randrange(100),
            "paid by card",
        )


def make_batches(rows: list[Row]) -> list[Batch]:
    """As JSON; batch ``i`` goes to partition ``i % PARTITIONS``, as its keys want."""
    values: list[list[bytes | None]] = [[] for _ in range(PARTITIONS)]
    keys: list[list[bytes | None]] = [[] for _ in range(PARTITIONS)]
    names = [row[1].encode() for row in rows]
    for row, key, place in zip(rows, names, partition_keys(names, PARTITIONS), strict=True):
        values[place].append(
            b'{"id":%d,"account":"%s","amount":"%s","rate":%r,"at":"%s","late":%s,'
            b'"country":"%s","page":"%s","quantity":%d,"note":"%s"}'
            % (
                row[0], key, str(row[2]).encode(), row[3], row[4].isoformat().encode(),
                b"true" if row[5] else b"false", row[6].encode(), row[7].encode(), row[8],
                row[9].encode(),
            )
        )  # fmt: skip
        keys[place].append(key)
    batches: list[Batch] = []
    longest = max(map(len, values))
    for first in range(0, longest, BATCH):
        for place in range(PARTITIONS):
            batches.append(
                (keys[place][first : first + BATCH], values[place][first : first + BATCH])
            )
    return batches


# rows in memory


def copy(setup: Setup, *, binary: bool) -> Figures:
    create_table(setup.server, "copy")
    form = " (FORMAT BINARY)" if binary else ""
    with psycopg.connect(setup.server.dsn()) as connection:
        cpu, begin = time.process_time(), time.perf_counter()
        for first in range(0, COUNT, CHUNK):
            with connection.cursor().copy(f"COPY payments FROM STDIN{form}".encode()) as into:
                if binary:
                    into.set_types(TYPES)
                for row in setup.rows[first : first + CHUNK]:
                    into.write_row(row)
            connection.commit()
        return Figures(
            COUNT / (time.perf_counter() - begin), (time.process_time() - cpu) / COUNT * 1e6
        )


def sqlite_bare(setup: Setup, path: Path) -> Figures:
    plain = [(*row[:2], str(row[2]), row[3], row[4].isoformat(), *row[5:]) for row in setup.rows]
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(TABLE)
        cpu, begin = time.process_time(), time.perf_counter()
        for first in range(0, COUNT, CHUNK):
            connection.execute("BEGIN IMMEDIATE")
            chunk = plain[first : first + CHUNK]
            connection.executemany(f"INSERT INTO payments VALUES ({','.join('?' * 10)})", chunk)
            connection.execute("COMMIT")
        return Figures(
            COUNT / (time.perf_counter() - begin), (time.process_time() - cpu) / COUNT * 1e6
        )


# from a topic


def create_table(server: PostgresServer, name: str) -> None:
    key = ", ADD PRIMARY KEY (account)" if name == "postgres-upsert" else ""
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS payments, onceward_positions, onceward_refused")
        connection.execute(TABLE)
        connection.execute(f"ALTER TABLE payments ALTER account SET NOT NULL{key}".encode())
        connection.execute("CHECKPOINT")


def command(setup: Setup, name: str, work: Path) -> list[str]:
    if name == "loop":
        return [sys.executable, str(HERE / "sink_loop.py")]
    if name == "quix":
        return [setup.quix_python or sys.executable, str(HERE / "sink_quix.py")]
    cli = [sys.executable, "-m", "onceward.streams.cli", "worker", f"{HERE / 'sink_app.py'}:app"]
    return [*cli, "--broker", setup.broker, "--datadir", str(work)]


async def until_committed(admin: Admin, group: str, count: int, process: Any, log: Path) -> None:
    deadline = time.monotonic() + 60
    while True:
        offsets = await admin.list_group_offsets(group)
        if sum(offset.offset for offset in offsets.values()) >= count:
            return
        if process.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(f"{group}: not done; its log:\n{log.read_text()[-3000:]}")
        await asyncio.sleep(0.02)


async def measure(setup: Setup, name: str, number: int, work: Path) -> Figures:
    """One contender, from an empty topic and table to the last row."""
    create_table(setup.server, name)
    group = f"bench-{name}-{number}"
    database = str(work / "rows.db") if name == "sqlite" else setup.server.dsn()
    env = {
        **os.environ, "ONCEWARD_BROKER": setup.broker, "BENCH_SINK": name, "BENCH_GROUP": group,
        "BENCH_DATABASE": database, "BENCH_HOST": str(setup.server.folder),
    }  # fmt: skip
    batches = setup.batches[: (QUIX_COUNT if name == "quix" else COUNT) // BATCH]
    warm_up = setup.batches[: WARM_UP // BATCH]
    warm, count = (sum(len(values) for _, values in each) for each in (warm_up, batches))
    clock = lambda: time.time_ns() // 1_000_000  # noqa: E731
    async with Client(setup.broker, clock=clock, rng=random.Random(number)) as client:
        admin = Admin(client)
        await admin.delete_topics(["bench-in"])
        await admin.create_topics([NewTopic("bench-in", PARTITIONS)])
        log = work / "log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                command(setup, name, work), env=env, stdout=output, stderr=output
            )
        try:
            await feed(client, warm_up)
            await until_committed(admin, group, warm, process, log)
            with stopped(process):
                await feed(client, batches)
                cpu, begin = cpu_seconds(process.pid), time.perf_counter()
            await until_committed(admin, group, warm + count, process, log)
            seconds, cpu = time.perf_counter() - begin, cpu_seconds(process.pid) - cpu
        finally:
            end(process)
    check(name, setup, database, warm + count)
    return Figures(count / seconds, cpu / count * 1e6)


def check(name: str, setup: Setup, database: str, count: int) -> None:
    """Raises SystemExit when not every row is there once."""
    if name == "sqlite":
        with closing(sqlite3.connect(database)) as connection:
            found = connection.execute("SELECT count(*) FROM payments").fetchone()[0]
    else:
        with psycopg.connect(setup.server.dsn()) as postgres:
            row = postgres.execute("SELECT count(*) FROM payments").fetchone()
            found = 0 if row is None else row[0]
    if name == "postgres-upsert":
        count = len({row[1] for row in setup.rows})
    if found != count:
        raise SystemExit(f"{name}: {found} rows instead of {count}")


def run_one(setup: Setup, name: str, number: int) -> Figures:
    with tempfile.TemporaryDirectory() as folder:
        if name in ("copy", "copy-binary"):
            return copy(setup, binary=name == "copy-binary")
        if name == "sqlite-bare":
            return sqlite_bare(setup, Path(folder) / "rows.db")
        return asyncio.run(measure(setup, name, number, Path(folder)))


def report(results: dict[str, list[Figures]]) -> None:
    print(f"\n{'':16} n {'rows/s':>30} {'us CPU/row of the worker':>26}")
    for name, runs in results.items():
        rate, us = spread([run.rate for run in runs], ",.0f"), spread([r.us for r in runs], ".2f")
        print(f"{name:16} {len(runs)} {rate:>30} {us:>26}")
    print()
    for name, others in (
        ("postgres", ("copy", "copy-binary", "loop", "quix")),
        ("postgres-upsert", ("copy",)),
        ("sqlite", ("sqlite-bare",)),
    ):
        for other in others:
            if name in results and other in results:
                pairs = zip(results[name], results[other], strict=True)
                ratios = [mine.rate / theirs.rate for mine, theirs in pairs]
                print(f"{name} / {other}, round by round: {spread(ratios, '.2f')}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--contenders", default=CONTENDERS)
    parser.add_argument("--quix-python", help="one that has quixstreams[postgresql]: adds quix")
    options = parser.parse_args()
    contenders = options.contenders.split(",") + (["quix"] if options.quix_python else [])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    rows = list(make_rows(COUNT, random.Random(1)))
    server = PostgresServer(SYNCED)
    results: dict[str, list[Figures]] = {name: [] for name in contenders}
    try:
        server.start()
        with our_broker() as (broker, _):
            setup = Setup(broker, server, options.quix_python, rows, make_batches(rows))
            for number in range(options.rounds):
                for name in random.Random(number).sample(contenders, len(contenders)):
                    figures = run_one(setup, name, number)
                    results[name].append(figures)
                    print(f"{name}: {figures.rate:,.0f} rows/s, {figures.us:.2f} us", flush=True)
    finally:
        server.remove()
    report(results)


if __name__ == "__main__":
    main()
