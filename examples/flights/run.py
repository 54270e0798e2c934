"""Stream a year of flights through the pipeline while workers are killed, then check the result.

    python examples/flights/run.py --kill 5
    python examples/flights/run.py --broker 127.0.0.1:9092        (Apache Kafka, or any other)

Exit code 0 only when the topic ``delay-statistics`` holds exactly one record per measurement and
ends with the figures that a plain single pass over the file gives.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import msgspec
from reference import single_pass
from source import FLIGHTS, read_flights

from onceward.broker.client import (
    Admin,
    Client,
    Consumer,
    NewTopic,
    Producer,
    TopicPartition,
    partition_keys,
)
from onceward.streams.cli.processes import BrokerProcess, WorkerPool

HERE = Path(__file__).parent
PARTITIONS = 4
BLOCK = 4_000
TIMEOUT_S = 300


def now_ms() -> int:
    return time.time_ns() // 1_000_000


async def feed(client: Client, topic: str) -> None:
    """All flights, in file order per partition, from one idempotent producer."""
    producer = Producer(client)
    encode = msgspec.json.encode
    flights = list(read_flights())
    for start in range(0, len(flights), BLOCK):
        block = flights[start : start + BLOCK]
        keys: list[bytes | None] = [key.encode() for key, _ in block]
        columns: dict[int, tuple[list[bytes | None], list[bytes | None]]] = defaultdict(
            lambda: ([], [])
        )
        for index, partition in enumerate(partition_keys(keys, PARTITIONS)):
            columns[partition][0].append(keys[index])
            columns[partition][1].append(encode(block[index][1]))
        for partition, (part_keys, part_values) in columns.items():
            producer.send_batch(topic, partition, part_keys, part_values, timestamps=now_ms())
        await producer.flush()
    await producer.close()


async def read_results(client: Client, expected: int) -> dict[str, list[dict[str, int]]]:
    """Every output record in order, per subject, as a read_committed reader gets them."""
    tps = [TopicPartition("delay-statistics", partition) for partition in range(PARTITIONS)]
    consumer = Consumer(client, isolation="read_committed")
    consumer.assign(tps)
    for tp in tps:
        consumer.seek(tp, 0)
    await consumer.start()
    rows: dict[str, list[dict[str, int]]] = defaultdict(list)
    deadline = time.monotonic() + TIMEOUT_S
    seen = 0
    while seen < expected and time.monotonic() < deadline:
        for batch in await consumer.fetch(timeout_ms=500):
            for key, value in zip(batch.records.keys, batch.records.values, strict=True):
                assert key is not None and value is not None
                rows[key.decode()].append(msgspec.json.decode(value))
            seen += len(batch.records.values)
    for batch in await consumer.fetch(timeout_ms=1000):  # one more would be a duplicate
        for key, value in zip(batch.records.keys, batch.records.values, strict=True):
            assert key is not None and value is not None
            rows[key.decode()].append(msgspec.json.decode(value))
    await consumer.stop()
    return rows


def judge(rows: dict[str, list[dict[str, int]]]) -> list[str]:
    """What differs from the single pass, as sentences; empty when nothing does."""
    expected = single_pass()
    problems = []
    for subject in sorted({*expected, *rows}):
        got, want = rows.get(subject, []), expected.get(subject)
        if want is None:
            problems.append(f"{subject}: is not in the file")
            continue
        counts = [row["flights"] for row in got]
        if counts != list(range(1, want["flights"] + 1)):
            problems.append(
                f"{subject}: {len(counts)} records for {want['flights']} flights, "
                f"{len(counts) - len(set(counts))} repeated"
            )
        if got and got[-1] != want:
            problems.append(f"{subject}: ends with {got[-1]}, the file says {want}")
    return problems


async def kill_workers(pool: WorkerPool, kills: int, rng: random.Random, workers: int) -> None:
    for _ in range(kills):
        await asyncio.sleep(rng.uniform(0.3, 1.5))
        pool.kill(rng.randrange(workers))


async def run(options: argparse.Namespace, work: Path) -> int:
    rng = random.Random(options.seed)
    server = None
    broker = options.broker
    if broker is None:
        server = BrokerProcess(work / "broker", work / "broker.log")
        await server.start()
        broker = server.address
    try:
        async with Client(broker, clock=now_ms, rng=rng) as client:
            names = ["flights", "delays", "delay-statistics"]
            await Admin(client).create_topics([NewTopic(name, PARTITIONS) for name in names])
            pool = WorkerPool(
                f"{HERE / 'app.py'}:app",
                workers=options.workers,
                broker=broker,
                datadir=work / "workers",
                log=work / "workers.log",
            )
            begin = time.monotonic()
            await pool.start()
            killer = asyncio.create_task(kill_workers(pool, options.kill, rng, options.workers))
            await feed(client, "flights")
            rows = await read_results(client, 2 * FLIGHTS)
            await killer
            await pool.stop()
            seconds = time.monotonic() - begin
    finally:
        if server is not None:
            await server.stop()
    problems = judge(rows)
    print(f"{FLIGHTS:,} flights, {sum(map(len, rows.values())):,} results in {seconds:.1f} s, "
          f"{options.workers} workers, {pool.restarts} killed and restarted")  # fmt: skip
    print("\n".join(problems[:10]) or "equal to a single pass over the file")
    return 1 if problems else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--kill", type=int, default=0, help="how many workers to kill -9")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--broker", help="HOST:PORT; default: a broker of its own")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="onceward-flights-") as work:
        return asyncio.run(run(options, Path(work)))


if __name__ == "__main__":
    sys.exit(main())
