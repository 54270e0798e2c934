"""One pipeline in onceward, in a hand-written confluent-kafka loop and in Faust, side by side.

    python tests/bench/bench_pipeline.py [--rounds 3] [--workloads transform,count]
        [--contenders onceward,confluent,faust] [--faust-python PYTHON] [--broker ADDRESS]

One broker (ours, unless --broker names another), 4 partitions, 105-byte JSON values, 1,000 records
per batch, 1,000 users; every contender gets the same records. Per round each contender starts in a
process of its own, in changing order, and is warmed up until a whole batch of warm-up records came
through. Then it is stopped (SIGSTOP) while N records are written for it, so that writing them costs
none of its time, and goes on (SIGCONT). Taken are its CPU (user + system, all threads), that of the
broker, and the wall time until a read_committed reader has seen all N outputs.

onceward and the loop are exactly-once and commit every 100 ms or 50,000 records; Faust is
at-least-once (its exactly_once writes duplicates). Printed are median and (minimum - maximum).
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

from onceward.broker.client import (
    Admin,
    Client,
    Consumer,
    NewTopic,
    Producer,
    TopicPartition,
    partition_keys,
)

HERE = Path(__file__).parent / "contenders"
PARTITIONS = 4
WARM_UP = 4_000
WARM_UP_ROUNDS = 5
BATCH = 1_000
TICKS = os.sysconf("SC_CLK_TCK")
COUNTS = {"onceward": 400_000, "confluent": 400_000, "faust": 6_000}
WORKLOADS = ("transform", "count")
READY = "bench: ready"
"""What a contender prints that loses records which come before it is ready."""

Batch = tuple[list[bytes | None], list[bytes | None]]


class Figures(NamedTuple):
    """Of one run: microseconds of CPU per record, and records per second of wall time."""

    us: float
    broker_us: float
    rate: float


class Contender(NamedTuple):
    """A running worker process and what it printed."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    def fail(self, message: str) -> SystemExit:
        tail = "\n".join(self.log.read_text(errors="replace").splitlines()[-20:])
        return SystemExit(f"{self.name}: {message}; the end of its log:\n{tail}")


class Setup(NamedTuple):
    """What all runs share."""

    broker: str
    broker_pid: int | None
    faust_python: str
    batches: list[Batch]


def command(setup: Setup, contender: str, work: Path) -> list[str]:
    if contender == "onceward":
        app = f"{HERE / 'onceward_app.py'}:app"
        cli = [sys.executable, "-m", "onceward.streams.cli", "worker", app]
        return [*cli, "--broker", setup.broker, "--datadir", str(work)]
    if contender == "confluent":
        return [sys.executable, str(HERE / "confluent_loop.py")]
    faust = [setup.faust_python, str(HERE / "faust_app.py"), "--datadir", str(work)]
    return [*faust, "worker", "-l", "info", "--without-web"]


def cpu_seconds(pid: int | None) -> float:
    if pid is None:
        return 0.0
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def make_batches(count: int, rng: random.Random) -> list[Batch]:
    """The records, batch by batch; batch ``i`` goes to partition ``i % PARTITIONS``, as its keys
    want."""
    everybody = [b"u%03d" % number for number in range(1000)]
    places = partition_keys(list[bytes | None](everybody), PARTITIONS)
    batches = []
    for first in range(0, count, BATCH):
        partition = len(batches) % PARTITIONS
        mine = [user for user, place in zip(everybody, places, strict=True) if place == partition]
        users = rng.choices(mine, k=min(BATCH, count - first))
        values: list[bytes | None] = [
            b'{"id":%d,"user":"%s","amount":%.2f,"ts":1700000000000,"page":"/p/%d","country":"DE"}'
            % (first + index, user, rng.uniform(1, 99), rng.randrange(10**6))
            for index, user in enumerate(users)
        ]
        batches.append((list[bytes | None](users), values))
    return batches


async def feed(client: Client, batches: list[Batch]) -> None:
    producer = Producer(client)
    now = time.time_ns() // 1_000_000
    for index, (keys, values) in enumerate(batches):
        producer.send_batch("bench-in", index % PARTITIONS, keys, values, timestamps=now)
        if index % PARTITIONS == PARTITIONS - 1:
            await producer.flush()
    await producer.flush()
    await producer.close()


async def missing(consumer: Consumer, count: int, timeout_s: float) -> int:
    """Read until ``count`` outputs came or none came for ``timeout_s``; how many did not."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    while count > 0 and loop.time() < deadline:
        for fetched in await consumer.fetch(timeout_ms=200):
            count -= len(fetched.records.values)
            deadline = loop.time() + timeout_s
    return count


async def until_ready(contender: Contender, timeout_s: float) -> None:
    """Faust says when its tables are restored: records sent before that it would lose."""
    deadline = time.monotonic() + timeout_s
    while READY not in contender.log.read_text(errors="replace"):
        if contender.process.poll() is not None or time.monotonic() > deadline:
            raise contender.fail("did not start")
        await asyncio.sleep(0.1)


async def warm_up(
    setup: Setup, client: Client, consumer: Consumer, contender: Contender, timeout_s: float
) -> None:
    batches = setup.batches[: WARM_UP // BATCH]
    for _ in range(WARM_UP_ROUNDS):
        await feed(client, batches)
        lost = await missing(consumer, WARM_UP, timeout_s)
        if lost <= 0:
            return
        print(f"{contender.name}: {lost} warm-up outputs are missing, trying again", flush=True)
    raise contender.fail(f"lost records in each of {WARM_UP_ROUNDS} warm-ups")


@contextmanager
def stopped(process: subprocess.Popen[bytes]) -> Iterator[None]:
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)


async def take_figures(
    setup: Setup, client: Client, consumer: Consumer, contender: Contender
) -> Figures:
    count = COUNTS[contender.name]
    pid = contender.process.pid
    with stopped(contender.process):
        await feed(client, setup.batches[: count // BATCH])
        cpu, broker_cpu = cpu_seconds(pid), cpu_seconds(setup.broker_pid)
        begin = time.monotonic()
    lost = await missing(consumer, count, 30)
    seconds = time.monotonic() - begin
    if lost > 0:
        raise contender.fail(f"{lost} of {count} outputs are missing")
    cpu, broker_cpu = cpu_seconds(pid) - cpu, cpu_seconds(setup.broker_pid) - broker_cpu
    return Figures(cpu / count * 1e6, broker_cpu / count * 1e6, count / seconds)


async def output_reader(client: Client, topic: str) -> Consumer:
    consumer = Consumer(client, isolation="read_committed")
    partitions = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
    consumer.assign(partitions)
    for tp in partitions:
        consumer.seek(tp, 0)
    await consumer.start()
    return consumer


def start(
    setup: Setup, name: str, workload: str, target: str, work: Path, log: IO[bytes]
) -> subprocess.Popen[bytes]:
    env = {
        **os.environ,
        "ONCEWARD_BROKER": setup.broker,
        "BENCH_WORKLOAD": workload,
        "BENCH_TARGET": target,
    }
    return subprocess.Popen(command(setup, name, work), env=env, stdout=log, stderr=log)


def end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(15)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


async def measure(setup: Setup, name: str, workload: str, number: int) -> Figures:
    """One contender, from an empty topic to its end."""
    target = f"bench-{name}-{workload}-{number}"
    clock = lambda: time.time_ns() // 1_000_000  # noqa: E731
    async with Client(setup.broker, clock=clock, rng=random.Random(number)) as client:
        admin = Admin(client)
        await admin.delete_topics(["bench-in"])
        topics = ["bench-in", target, f"{target}-changelog"]
        await admin.create_topics([NewTopic(topic, PARTITIONS) for topic in topics])
        consumer = await output_reader(client, target)
        with tempfile.TemporaryDirectory() as folder:
            work = Path(folder)
            with (work / "log").open("wb") as log:
                process = start(setup, name, workload, target, work, log)
            contender = Contender(name, process, work / "log")
            try:
                if name == "faust":
                    await until_ready(contender, 60)
                await warm_up(setup, client, consumer, contender, 15)
                return await take_figures(setup, client, consumer, contender)
            finally:
                end(process)
                await consumer.stop()
                await admin.delete_topics(topics)


def spread(values: list[float], form: str) -> str:
    middle, low, high = (format(f(values), form) for f in (statistics.median, min, max))
    return f"{middle} ({low} - {high})"


def report(results: dict[tuple[str, str], list[Figures]]) -> None:
    print(f"\n{'':20} n {'us CPU/record':>26} {'records/s':>32} {'broker us CPU/record':>24}")
    for (workload, contender), runs in sorted(results.items()):
        cells = (
            spread([run.us for run in runs], ".2f"),
            spread([run.rate for run in runs], ",.0f"),
            spread([run.broker_us for run in runs], ".2f"),
        )
        label = f"{workload} {contender}"
        print(f"{label:20} {len(runs)} {cells[0]:>26} {cells[1]:>32} {cells[2]:>24}")
    print()
    for (workload, contender), runs in sorted(results.items()):
        ours = results.get((workload, "onceward"))
        if contender == "onceward" or ours is None:
            continue
        us = [theirs.us / mine.us for theirs, mine in zip(runs, ours, strict=False)]
        rate = [mine.rate / theirs.rate for theirs, mine in zip(runs, ours, strict=False)]
        print(
            f"{workload}: onceward against {contender}, round by round: "
            f"1/{spread(us, '.2f')} of the CPU, {spread(rate, '.2f')} times the records/s"
        )
    print(
        "\nThe confluent loop leaves out: restoring its state, rebalances, errors, timestamps of "
        "inputs on outputs, reading its state while a transaction is open."
    )


@contextmanager
def our_broker() -> Iterator[tuple[str, int]]:
    """Address and process id."""
    with tempfile.TemporaryDirectory() as data:
        arguments = [sys.executable, "-m", "onceward.streams.cli", "broker"]
        server = subprocess.Popen(
            [*arguments, "--data", data, "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE
        )
        try:
            assert server.stdout is not None
            yield server.stdout.readline().decode().split()[-1], server.pid
        finally:
            server.terminate()
            server.wait(20)


def run(options: argparse.Namespace, broker: str, pid: int | None) -> None:
    batches = make_batches(max(COUNTS.values()), random.Random(1))
    setup = Setup(broker, pid, options.faust_python, batches)
    results: dict[tuple[str, str], list[Figures]] = {}
    for number in range(options.rounds):
        contenders = options.contenders.split(",")
        random.Random(number).shuffle(contenders)
        for workload in options.workloads.split(","):
            for contender in contenders:
                figures = asyncio.run(measure(setup, contender, workload, number))
                results.setdefault((workload, contender), []).append(figures)
                print(
                    f"{workload} {contender}: {figures.us:.2f} us/record, "
                    f"{figures.rate:,.0f} records/s, broker {figures.broker_us:.2f} us/record",
                    flush=True,
                )
    report(results)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workloads", default=",".join(WORKLOADS))
    parser.add_argument("--contenders", default=",".join(COUNTS))
    parser.add_argument("--faust-python", default=sys.executable, help="one that has Faust")
    parser.add_argument("--broker")
    options = parser.parse_args()
    if options.broker is not None:
        run(options, options.broker, None)
        return
    with our_broker() as (broker, pid):
        run(options, broker, pid)


if __name__ == "__main__":
    main()
