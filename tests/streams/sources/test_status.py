"""``onceward sources`` against a real broker: where the sources are, and reading one again."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from onceward.broker import Broker
from onceward.broker.client import TopicPartition
from onceward.streams.cli.loading import load_app
from onceward.streams.cli.main import main
from onceward.streams.engine.slots import take_slot
from onceward.streams.engine.worker import connect, make_engine

APP = """
from onceward.streams import App, Record
from onceward.streams.sources import CsvFiles, Row

class Order(Record):
    id: int

app = App("shop", datadir={folder!r}, commit_interval=0.02, broker={broker!r})
orders = app.topic("orders", value_type=Order, partitions=1)
ticks = app.topic("ticks", value_type=int, partitions=1)
app.source(orders, CsvFiles({folder!r} + "/in/*.csv", watch=None), name="invoices")

@app.source(ticks, splits=["left", "right"])
async def clock(position, split):
    for number in range(0 if position is None else position + 1, 3):
        yield Row(number, number)
"""


async def sources(*arguments: str) -> int:
    return await asyncio.to_thread(main, ["sources", *arguments])


@asynccontextmanager
async def worker(target: str, tmp_path: Path, rows: int) -> AsyncIterator[None]:
    """Runs one until its topics have ``rows`` more records, and then as long as the block."""
    app = load_app(target)
    slot = take_slot(str(tmp_path), "shop")
    before = await count(target)
    engine = await make_engine(app, connect(app), slot)
    running = asyncio.create_task(engine.run())
    try:
        async with asyncio.timeout(20):
            while await count(target) < before + rows:
                assert not running.done(), running.exception()
                await asyncio.sleep(0.01)
        yield
        engine.stop()
        await running
    finally:
        running.cancel()
        slot.release()


async def read(target: str, topic: str) -> list[Any]:
    """Every committed record of the topic's one partition."""
    kafka = connect(load_app(target))
    await kafka.start()
    tp = TopicPartition(topic, 0)
    consumer = kafka.consumer(isolation="read_committed")
    await consumer.start()
    values: list[Any] = []
    try:
        if topic not in await kafka.admin().describe_topics([topic]):
            return []
        end = (await consumer.end_offsets([tp], "read_committed"))[tp]
        consumer.assign([tp])
        async with asyncio.timeout(20):
            while (consumer.position(tp) or 0) < end:
                for batch in await consumer.fetch(timeout_ms=100):
                    values += [json.loads(value or b"null") for value in batch.records.values]
    finally:
        await consumer.stop()
        await kafka.close()
    return values


async def count(target: str) -> int:
    return len(await read(target, "orders")) + len(await read(target, "ticks"))


def shown(capsys: pytest.CaptureFixture[str]) -> dict[tuple[str, str, str | None], dict[str, Any]]:
    rows = json.loads(capsys.readouterr().out)
    return {(row["source"], row["split"], row["part"]): row for row in rows}


async def test_status_shows_positions_and_a_reset_reads_that_part_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("id\n1\n2\n")
    (tmp_path / "in" / "b.csv").write_text("id\n3\n")
    async with Broker(data_dir=str(tmp_path / "broker")) as broker:
        file = tmp_path / "sources_status_app.py"
        file.write_text(APP.format(folder=str(tmp_path), broker=broker.bootstrap))
        target = f"{file}:app"
        assert await sources("status", target, "--json") == 0
        assert {row["position"] for row in shown(capsys).values()} == {None}

        async with worker(target, tmp_path, 9):
            assert await sources("status", target, "--json") == 0
            running = shown(capsys)
            assert await sources("reset", target, "invoices") == 1
            assert "group shop has 1 running worker(s)" in capsys.readouterr().err
        assert running["clock", "left", None]["worker"].startswith("shop-")
        assert running["clock", "left", None]["since"].endswith("+00:00")

        assert await sources("status", target) == 0
        table = capsys.readouterr().out.splitlines()
        assert table[0].split() == ["SOURCE", "SPLIT", "PART", "POSITION", "SINCE", "WORKER"]
        assert ["clock", "right", "-", "2"] in [line.split()[:4] for line in table]

        await refusals(target, capsys)
        (part,) = [part for _, _, part in running if part is not None and part.endswith("b.csv")]
        assert await sources("reset", target, "invoices", "--part", part) == 0
        assert await sources("reset", target, "clock", "--split", "left", "--to", "1") == 0
        async with worker(target, tmp_path, 2):
            pass
        orders = Counter(order["id"] for order in await read(target, "orders"))
        ticks = Counter(await read(target, "ticks"))
    assert orders == {1: 1, 2: 1, 3: 2}
    assert ticks == {0: 2, 1: 2, 2: 3}


async def refusals(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, sentence in (
        (["tocks"], "no source 'tocks', but invoices, clock"),
        (["clock", "--split", "middle"], "no split 'middle', but left, right"),
        (["clock", "--part", "x.csv"], "no such position"),
        (["clock", "--to", "1"], "2 positions: say with --split and --part"),
        (["clock", "--split", "left", "--to", "x"], "is not JSON"),
    ):
        assert await sources("reset", target, *arguments) != 0
        assert sentence in capsys.readouterr().err


def test_help_has_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("status", "reset"):
        assert main(["sources", command, "--help"]) == 0
        assert "Example:" in capsys.readouterr().out
