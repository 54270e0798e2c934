"""CPU per record of one pipeline in onceward, in a confluent-kafka loop and in Faust, side by side.

    python tests/bench/bench_pipeline.py [--rounds 3] [--workloads transform,count] [--broker ...]

One broker (ours, unless --broker names another), 4 partitions, 105-byte JSON values, 1,000 records
per batch, 1,000 users. Per round each contender starts in a process of its own, in changing order,
is warmed up, then gets N records; its CPU (user + system, all threads, from /proc) and the wall
time until a read_committed reader has seen all N outputs are taken. Prints every figure's minimum,
median and maximum.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from onceward.broker.client import Admin, Client, Consumer, NewTopic, Producer, TopicPartition

HERE = Path(__file__).parent / "contenders"
PARTITIONS = 4
WARM_UP = 2_000
TICKS = os.sysconf("SC_CLK_TCK")
COUNTS = {"onceward": 400_000, "confluent": 400_000, "faust": 6_000}


def command(contender: str, broker: str, work: Path) -> list[str]:
    if contender == "onceward":
        app = f"{HERE / 'onceward_app.py'}:app"
        cli = [sys.executable, "-m", "onceward.streams.cli", "worker", app]
        return [*cli, "--broker", broker, "--datadir", str(work)]
    if contender == "confluent":
        return [sys.executable, str(HERE / "confluent_loop.py")]
    faust = [sys.executable, str(HERE / "faust_app.py"), "--datadir", str(work)]
    return [*faust, "worker", "-l", "info", "--without-web"]


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def batch(rng: random.Random, first: int, count: int) -> tuple[list[bytes | None], list[bytes]]:
    users = [f"u{rng.randrange(1000):03d}" for _ in range(count)]
    values = [
        b'{"id":%d,"user":"%s","amount":%.2f,"ts":1700000000000,"page":"/p/%d","country":"DE"}'
        % (first + index, user.encode(), rng.uniform(1, 99), rng.randrange(10**6))
        for index, user in enumerate(users)
    ]
    return [user.encode() for user in users], values


async def feed(client: Client, count: int, rng: random.Random) -> None:
    producer = Producer(client)
    now = time.time_ns() // 1_000_000
    for first in range(0, count, 1000 * PARTITIONS):
        for partition in range(PARTITIONS):
            size = min(1000, max(0, count - first - partition * 1000))
            if size:
                keys, values = batch(rng, first + partition * 1000, size)
                producer.send_batch("bench-in", partition, keys, list(values), timestamps=now)
        await producer.flush()
    await producer.close()


async def until_seen(consumer: Consumer, count: int, timeout_s: float) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    while count > 0:
        for fetched in await consumer.fetch(timeout_ms=200):
            count -= len(fetched.records.values)
        if loop.time() > deadline:
            raise SystemExit(f"{count} outputs are missing after {timeout_s} s")


async def measure(broker: str, contender: str, workload: str, number: int) -> tuple[float, float]:
    """(CPU microseconds per record, records per second of wall time)."""
    rng = random.Random(number)
    target = f"bench-{contender}-{workload}-{number}"
    clock = lambda: time.time_ns() // 1_000_000  # noqa: E731
    async with Client(broker, clock=clock, rng=rng) as client:
        admin = Admin(client)
        await admin.delete_topics(["bench-in"])
        names = ["bench-in", target]
        if contender == "confluent":
            names.append(f"{target}-changelog")
        await admin.create_topics([NewTopic(name, PARTITIONS) for name in names])
        consumer = Consumer(client, isolation="read_committed")
        tps = [TopicPartition(target, partition) for partition in range(PARTITIONS)]
        consumer.assign(tps)
        for tp in tps:
            consumer.seek(tp, 0)
        await consumer.start()
        with tempfile.TemporaryDirectory() as work, tempfile.TemporaryFile() as log:
            env = {
                **os.environ,
                "ONCEWARD_BROKER": broker,
                "BENCH_WORKLOAD": workload,
                "BENCH_TARGET": target,
            }
            arguments = command(contender, broker, Path(work))
            process = subprocess.Popen(arguments, env=env, stdout=log, stderr=log)
            try:
                await feed(client, WARM_UP, rng)
                await until_seen(consumer, WARM_UP, 60)
                cpu, begin = cpu_seconds(process.pid), time.monotonic()
                count = COUNTS[contender]
                await feed(client, count, rng)
                await until_seen(consumer, count, 120)
                seconds = time.monotonic() - begin
                cpu = cpu_seconds(process.pid) - cpu
            finally:
                process.terminate()
                try:
                    process.wait(15)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
            await consumer.stop()
    return cpu / count * 1e6, count / seconds


def report(results: dict[tuple[str, str], list[tuple[float, float]]]) -> None:
    print(f"{'workload':10} {'contender':10}  n  {'us CPU/record':>24}  {'records/s':>28}")
    for (workload, contender), figures in sorted(results.items()):
        cells = []
        for values, form in (
            (list(column), f)
            for column, f in zip(zip(*figures, strict=True), ("8.2f", "9,.0f"), strict=True)
        ):
            cells.append(" ".join(format(f(values), form) for f in (min, statistics.median, max)))
        print(f"{workload:10} {contender:10} {len(figures):2}  {cells[0]}  {cells[1]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workloads", default="transform,count")
    parser.add_argument("--contenders", default="onceward,confluent,faust")
    parser.add_argument("--broker")
    options = parser.parse_args()
    results: dict[tuple[str, str], list[tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory() as data:
        server = None
        broker = options.broker
        if broker is None:
            arguments = [sys.executable, "-m", "onceward.streams.cli", "broker"]
            server = subprocess.Popen(
                [*arguments, "--data", data, "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE
            )
            assert server.stdout is not None
            broker = server.stdout.readline().decode().split()[-1]
        try:
            for number in range(options.rounds):
                contenders = options.contenders.split(",")
                random.Random(number).shuffle(contenders)
                for workload in options.workloads.split(","):
                    for contender in contenders:
                        figures = asyncio.run(measure(broker, contender, workload, number))
                        results.setdefault((workload, contender), []).append(figures)
                        print(f"{workload} {contender}: {figures[0]:.2f} us/record, "
                              f"{figures[1]:,.0f} records/s", flush=True)  # fmt: skip
        finally:
            if server is not None:
                server.terminate()
                server.wait(20)
    report(results)


if __name__ == "__main__":
    main()
