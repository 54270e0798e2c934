"""``onceward sinks status`` against a real broker and a real database."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from onceward.broker import Broker
from onceward.broker.client import NewTopic
from onceward.streams.cli.loading import load_app
from onceward.streams.cli.main import main
from onceward.streams.engine.slots import take_slot
from onceward.streams.engine.worker import connect, make_engine

APP = """
from onceward.streams import App, Record
from onceward.streams.sinks import Sink, SqliteSink

class Order(Record):
    id: int

app = App("shop", datadir={folder!r}, store="memory://", commit_interval=0.02, broker={broker!r})
orders = app.topic("orders", value_type=Order, partitions=2)
rows = SqliteSink({folder!r} + "/shop.db", table="rows", value_type=Order, create=True)

class Mail(Sink):
    def apply(self, batch):
        pass

mail = Mail("mail")

@app.agent(orders, sink=[rows])
async def etl(stream):
    async for order in stream:
        await mail.write(order.id)
        yield order
        yield order
"""


async def put(target: str, values: list[bytes | None], partition: int) -> None:
    kafka = connect(load_app(target))
    await kafka.start()
    await kafka.admin().create_topics([NewTopic("orders", 2, 1)])
    producer = kafka.producer()
    await producer.produce("orders", partition, [None] * len(values), values, timestamps=1)
    await producer.close()
    await kafka.close()


async def run_until_rows(target: str, tmp_path: Path) -> None:
    """A worker, until it has committed everything."""
    app = load_app(target)
    slot = take_slot(str(tmp_path), "shop")
    engine = await make_engine(app, connect(app), slot)
    running = asyncio.create_task(engine.run())
    try:
        while not engine.commits or any(task.is_dirty for task in engine.tasks):
            await asyncio.sleep(0.01)
        engine.stop()
        await running
    finally:
        running.cancel()
        slot.release()


async def test_status_shows_every_sinks_position_against_the_end_of_the_topic(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with Broker(data_dir=str(tmp_path / "broker")) as broker:
        source = tmp_path / "shop_status_app.py"
        source.write_text(APP.format(folder=str(tmp_path), broker=broker.bootstrap))
        target = f"{source}:app"
        await put(target, [b'{"id":%d}' % n for n in range(5)], 0)
        assert await asyncio.to_thread(main, ["sinks", "status", target]) == 1
        shown = capsys.readouterr()
        assert "sink 'rows'" in shown.err and "no such file" in shown.err
        assert not (tmp_path / "shop.db").exists(), "looking creates nothing"
        await run_until_rows(target, tmp_path)
        await put(target, [b'{"id":9}'], 0)
        assert await asyncio.to_thread(main, ["sinks", "status", target, "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert await asyncio.to_thread(main, ["sinks", "status", target, "--interval", "0.01"]) == 0
        table = capsys.readouterr().out
    rows = {(row["sink"], row["partition"]): row for row in found}
    assert len(rows) == 4
    first = rows["rows", 0]
    assert (first["position"], first["committed"], first["end"], first["lag"]) == (5, 5, 6, 1)
    assert (first["epoch"], first["effects"]) == (1, 10)
    assert (rows["rows", 1]["lag"], rows["rows", 1]["effects"]) == (0, 0)
    assert rows["mail", 0]["strength"] == "at least once"
    assert (rows["mail", 0]["position"], rows["mail", 0]["lag"]) == (5, 1)
    assert rows["mail", 0]["epoch"] is None
    assert table.splitlines()[0].split() == [
        "SINK", "TOPIC", "PARTITION", "POSITION", "COMMITTED", "END", "LAG", "EPOCH", "EFFECTS",
        "PER", "SECOND",
    ]  # fmt: skip
    assert ["rows", "orders", "0", "5", "5", "6", "1", "1", "10", "0.0"] in [
        line.split() for line in table.splitlines()
    ]


def test_help_has_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sinks", "status", "--help"]) == 0
    assert "Example:" in capsys.readouterr().out
