"""How long the output stands still after kill -9 of one of three workers, as a reader sees it.

    python tests/kills/takeover.py [--runs 10] [--broker HOST:PORT]

Three workers under a steady 1,000 records/s; one is killed, and restarted at once or never. Printed
per run: the longest pause in any one partition, as a read_committed reader sees it from the kill
on, then minimum, median and maximum. Every run is judged: nothing lost, nothing twice.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import statistics
import tempfile
from pathlib import Path

from pipeline import APP, Load, new_client

from onceward.broker.client import Admin
from onceward.streams.cli.processes import BrokerProcess, kill, start, stop

WORKERS = 3


async def run(work: Path, broker: str, restart: bool, seed: int) -> float:
    """The longest pause in seconds."""
    rng = random.Random(seed)
    arguments = ("worker", APP, "--broker", broker, "--datadir", str(work / "workers"))
    async with new_client(broker, seed) as client:
        admin = Admin(client)
        await admin.delete_topics(["fire-in", "fire-out", "under-fire-counts-changelog"])
        await admin.delete_groups(["under-fire"])
        load = Load(client, rate=1000)
        await load.start()
        log = work / "workers.log"
        workers = [await start(*arguments, log=log) for _ in range(WORKERS)]
        try:
            while (
                len((await admin.describe_groups(["under-fire"]))["under-fire"].members) < WORKERS
            ):
                await asyncio.sleep(0.1)
            await asyncio.sleep(3 + rng.random())
            victim = rng.randrange(WORKERS)
            since = asyncio.get_running_loop().time()
            os.kill(workers[victim].pid, signal.SIGKILL)
            await kill(workers[victim])
            if restart:
                workers[victim] = await start(*arguments, log=log)
            await asyncio.sleep(12)
            await load.finish(90)
            load.judge()
            return load.output.longest_pause(since)
        finally:
            await asyncio.gather(*(stop(worker) for worker in workers))


async def main(options: argparse.Namespace, work: Path) -> None:
    server = None
    broker = options.broker
    if broker is None:
        server = BrokerProcess(work / "broker", work / "broker.log")
        await server.start()
        broker = server.address
    try:
        for restart in (True, False):
            name = "restarted at once" if restart else "never restarted"
            pauses = []
            for number in range(options.runs):
                folder = work / f"{number}-{restart}"
                folder.mkdir()
                pauses.append(await run(folder, broker, restart, number))
                print(f"{name}, run {number}: {pauses[-1]:.2f} s", flush=True)
            low, middle, high = min(pauses), statistics.median(pauses), max(pauses)
            print(f"{name}: min {low:.2f}, median {middle:.2f}, max {high:.2f} s, n={len(pauses)}")
    finally:
        if server is not None:
            await server.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--broker")
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(parser.parse_args(), Path(folder)))
