"""Workers that read files, killed and stopped at random moments: every row is exactly one record.

``ONCEWARD_ROWS`` and ``ONCEWARD_KILLS`` make it longer.
"""

from __future__ import annotations

import asyncio
import csv
import os
import random
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from onceward.broker.client import Admin, Consumer, TopicPartition
from onceward.streams.cli.processes import WorkerPool

from .broker_process import BrokerUnderFire
from .pipeline import new_client

pytestmark = [pytest.mark.kills, pytest.mark.timeout(300)]

APP = f"{Path(__file__).parent / 'source_app.py'}:app"
ROWS = int(os.environ.get("ONCEWARD_ROWS", "200000"))
KILLS = int(os.environ.get("ONCEWARD_KILLS", "6"))
STOPS = 1
FILES = 12
SHOPS = 40
PARTITIONS = 4
CHUNK = 8 * 1024


def write_files(folder: Path, rows: int) -> list[dict[str, Any]]:
    """Files of rows with notes that have commas, quotes and newlines in them."""
    folder.mkdir()
    written = []
    for number in range(FILES):
        with (folder / f"sales-{number:02}.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, ["id", "shop", "note"])
            writer.writeheader()
            for row in range(number, rows, FILES):
                note = 'two\nlines, and "quotes"' if row % 50 == 0 else f"note {row}"
                written.append({"id": row, "shop": f"shop-{row % SHOPS}", "note": note})
                writer.writerow(written[-1])
    return written


class Output:
    """What a read_committed reader has seen of the two topics."""

    def __init__(self, address: str) -> None:
        self._address = address
        self.rows: Counter[bytes] = Counter()
        self.counts: dict[bytes, list[int]] = {}

    async def read(self) -> None:
        async with new_client(self._address) as client:
            admin = Admin(client)
            while len(await admin.describe_topics(["sales", "sales-per-shop"])) < 2:
                await asyncio.sleep(0.1)
            consumer = Consumer(client, isolation="read_committed")
            tps = [
                TopicPartition(topic, number)
                for topic in ("sales", "sales-per-shop")
                for number in range(PARTITIONS)
            ]
            consumer.assign(tps)
            for tp in tps:
                consumer.seek(tp, 0)
            await consumer.start()
            try:
                while True:
                    for batch in await consumer.fetch(timeout_ms=100):
                        self._add(batch.tp.topic, batch.records)
            finally:
                await consumer.stop()

    def _add(self, topic: str, records: Any) -> None:
        if topic == "sales":
            self.rows.update(records.values)
            return
        for key, value in zip(records.keys, records.values, strict=True):
            self.counts.setdefault(key, []).append(int(value))

    @property
    def counted(self) -> int:
        return sum(map(len, self.counts.values()))

    def judge(self, written: list[dict[str, Any]]) -> None:
        """Every row of the files once, and counted once. Raises AssertionError."""
        expected = Counter(map(msgspec.json.encode, written))
        lost, repeated = expected - self.rows, self.rows - expected
        assert not lost, f"{lost.total()} of {len(written)} rows are lost: {list(lost)[:3]}"
        assert not repeated, f"{repeated.total()} rows came again: {list(repeated)[:3]}"
        for shop, counts in self.counts.items():
            assert counts == list(range(1, len(counts) + 1)), f"the count of {shop!r} is wrong"
        assert self.counted == len(written)


@asynccontextmanager
async def under_fire(tmp_path: Path, pause_s: float) -> AsyncIterator[tuple[Output, WorkerPool]]:
    """A broker and two workers that read; everything is judged at the end."""
    written = write_files(tmp_path / "files", ROWS)
    broker = BrokerUnderFire(
        tmp_path / "data", tmp_path / "broker.log", "group.min.session.timeout.ms=1000"
    )
    broker.start()
    pool = WorkerPool(
        APP, workers=2, broker=broker.address, datadir=tmp_path / "workers",
        log=tmp_path / "workers.log",
        env={**os.environ, "SOURCE_FILES": str(tmp_path / "files" / "*.csv"),
             "SOURCE_PAUSE_S": str(pause_s)},
    )  # fmt: skip
    output = Output(broker.address)
    reading = asyncio.create_task(output.read())
    try:
        await pool.start()
        await until(lambda: output.rows.total() > 0, "the workers do not read", tmp_path)
        yield output, pool
        await until(lambda: output.counted >= ROWS, "rows are missing", tmp_path)
        await asyncio.sleep(0.5)  # a duplicate would come now
        assert not pool.ended, (tmp_path / "workers.log").read_text()[-3000:]
        output.judge(written)
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        await pool.stop()
        broker.stop()


async def until(reached: Any, complaint: str, tmp_path: Path, timeout_s: float = 120) -> None:
    """Raises AssertionError when it takes too long."""
    deadline = time.monotonic() + timeout_s
    while not reached():
        log = tmp_path / "workers.log"
        assert time.monotonic() < deadline, f"{complaint}: {log.read_text()[-2000:]}"
        await asyncio.sleep(0.05)


def pause_for(seconds: float) -> float:
    """Between two chunks, so that three splits take about so long."""
    chunks = ROWS * 27 / CHUNK / 3
    return seconds / chunks


async def test_workers_killed_while_they_read_files_lose_and_repeat_no_row(tmp_path: Path) -> None:
    rng = random.Random(7)
    killed = killed_while_reading = 0
    async with under_fire(tmp_path, pause_for(0.9 * KILLS)) as (output, pool):
        for _ in range(KILLS):
            await asyncio.sleep(rng.uniform(0.3, 1.3))
            killed_while_reading += output.rows.total() < ROWS
            killed += pool.kill(rng.randrange(2))
        await until(lambda: pool.restarts == killed, "a worker is not restarted", tmp_path)
    assert killed > KILLS // 2, "most were dead already"
    assert killed_while_reading > KILLS // 2, "too fast: most kills came after the last row"


async def test_workers_stopped_past_their_session_and_resumed_repeat_no_row(
    tmp_path: Path,
) -> None:
    rng = random.Random(8)
    async with under_fire(tmp_path, pause_for(6)) as (output, pool):
        for turn in range(STOPS):
            await asyncio.sleep(rng.uniform(0.5, 1.0))
            pid = pool.pids[turn % 2]
            os.kill(pid, signal.SIGSTOP)
            before = output.rows.total()
            try:
                await asyncio.sleep(rng.uniform(3.0, 3.5))
                assert output.rows.total() > before or before == ROWS, "nobody went on"
            finally:
                os.kill(pid, signal.SIGCONT)
