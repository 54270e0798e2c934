"""The file sink on a real disk: every row in exactly one file, wherever a commit stops."""

from __future__ import annotations

import asyncio
import csv
import errno
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

from onceward.broker.client import TopicPartition
from onceward.streams import App, ConfigurationError, Record, Stream
from onceward.streams.engine.block import Block
from onceward.streams.sinks import FilesSink, SinkError, SinkFenced, SinkUnavailable, Strength
from onceward.streams.sinks.effects import Batch, Effects
from onceward.streams.sinks.files_disk import Disk
from onceward.streams.sinks.files_local import LocalFiles
from onceward.streams.sinks.positions import Advance, Start

from ..workers import make_app, until, worker
from .driven import TP, driven
from .etl import Order, fail_once, is_done, kill, make_cluster, put_orders


def files(path: Path) -> dict[str, str]:
    """What a reader sees."""
    return {
        str(found.relative_to(path)): found.read_text()
        for found in sorted(path.rglob("*.*"))
        if found.is_file() and not any(part.startswith("_") for part in found.parts)
    }


def rows(path: Path) -> list[Any]:
    return [json.loads(line) for text in files(path).values() for line in text.splitlines()]


def ids(path: Path) -> list[int]:
    return sorted(row["id"] for row in rows(path))


def local(sink: FilesSink) -> LocalFiles:
    assert isinstance(sink.place, LocalFiles)
    return sink.place


class Flight(Record):
    id: str
    day: date
    delay: float | None = None
    tags: tuple[str, ...] = ()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "out" / "rows"


# formats and names


async def test_a_commit_is_a_file_named_by_the_offset_it_begins_with(path: Path) -> None:
    sink = FilesSink(path)
    assert sink.strength is Strength.TRANSACTIONAL
    one = await driven(sink)
    await one.write({"id": 1, "at": datetime(2026, 1, 2, tzinfo=UTC)}, {"id": 2, "doc": {"a": [1]}})
    await one.write(Flight("x", date(2026, 1, 2)))
    await sink.close()
    assert files(path) == {
        "app.rows.orders-0-00000000000000000000.jsonl": (
            '{"id":1,"at":"2026-01-02T00:00:00Z"}\n{"id":2,"doc":{"a":[1]}}\n'
        ),
        "app.rows.orders-0-00000000000000000002.jsonl": (
            '{"id":"x","day":"2026-01-02","delay":null,"tags":[]}\n'
        ),
    }


async def test_fields_become_directories_and_leave_the_rows(path: Path) -> None:
    sink = FilesSink(path, partition_by=["day", "who"])
    one = await driven(sink)
    day = date(2026, 1, 2)
    await one.write({"id": 1, "day": day, "who": "a/../b"}, {"id": 2, "day": None, "who": "c"})
    await one.write({"id": 3, "day": day, "who": "a/../b"})
    await sink.close()
    found = {name.rpartition("/")[0] for name in files(path)}
    assert found == {"day=2026-01-02/who=a%2F..%2Fb", "day=__HIVE_DEFAULT_PARTITION__/who=c"}
    assert rows(path) == [{"id": 1}, {"id": 3}, {"id": 2}]


async def test_a_function_may_say_the_directory_but_not_lead_out_of_the_path(path: Path) -> None:
    sink = FilesSink(path, partition_by=lambda row: str(row["to"]))
    one = await driven(sink)
    with pytest.raises(SinkError, match=r"orders-0 at offset 1: .*'\.\./x' is not a directory"):
        await one.write({"to": "a/b"}, {"to": "../x"})
    bad = [{"to": "../x"}, {"to": "/x"}, {"to": "_onceward"}, {}]
    batch = await one.write({"to": "a/b"}, *bad, dead_letters=True)
    await sink.close()
    assert [refusal.at for refusal in batch.refused] == [1, 2, 3, 4]
    assert batch.refused[3].reason == "partition_by: KeyError: 'to'"
    assert rows(path) == [{"to": "a/b"}]


async def test_two_ways_to_write_a_directory_share_no_file(path: Path) -> None:
    """One record wrote all of them, so that the names would be the same."""
    one = await driven(FilesSink(path, partition_by=lambda row: str(row["to"])))
    block, effects = Block(TP, [None], [None], [0], [0], None, 1), Effects()
    for to in ("a/b", "a//b", "./a/b"):
        effects.add({"to": to}, block, 0, "etl")
    batch = Batch("app", one.sink.describe(), effects.take())
    await one.sink.commit(batch, [Advance(TP, 0, one.claim.epoch, 1)])
    await one.sink.close()
    assert len(rows(path)) == 3


async def test_refused_rows_of_several_files_come_in_their_order(path: Path) -> None:
    one = await driven(FilesSink(path, partition_by="to"))
    values = [{"to": to, "text": text} for text in ("\ud800", "fine") for to in "aba"]
    batch = await one.write(*values, dead_letters=True)
    await one.sink.close()
    assert [refusal.at for refusal in batch.refused] == [0, 1, 2]
    assert len(rows(path)) == 3


async def test_csv_files_have_a_header_each_and_are_read_back(path: Path) -> None:
    sink = FilesSink(path, format="csv", value_type=Flight)
    one = await driven(sink)
    await one.write(
        Flight('a,"b"\n', date(2026, 1, 2), 1.5, ("x",)), {"id": "é", "day": None, "delay": True}
    )
    batch = await one.write({"id": "c"}, {"id": "d", "no": 1}, {"id": "\ud800"}, dead_letters=True)
    await sink.close()
    assert [refusal.at for refusal in batch.refused] == [1, 2]
    assert batch.refused[0].reason == "the files have no column 'no'"
    first, second = (list(csv.reader(text.splitlines(True))) for text in files(path).values())
    assert first == [
        ["id", "day", "delay", "tags"],
        ['a,"b"\n', "2026-01-02", "1.5", '["x"]'],
        ["é", "", "true", ""],
    ]
    assert second == [["id", "day", "delay", "tags"], ["c", "", "", ""]]


async def test_csv_columns_are_the_rows_when_none_are_declared(path: Path) -> None:
    sink = FilesSink(path, format="csv")
    one = await driven(sink)
    await one.write({"a": 1}, {"b": 2})
    await sink.close()
    assert list(files(path).values()) == ["a,b\n1,\n,2\n"]


async def test_parquet_files_keep_types_and_refuse_others(path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    sink = FilesSink(path, format="parquet", value_type=Flight, partition_by="day")
    one = await driven(sink)
    day = date(2026, 1, 2)
    batch = await one.write(
        Flight("a", day, 1.5, ("x", "y")),
        {"id": "b", "day": day, "delay": "late"},
        {"id": "c", "day": day, "no": 1},
        {"id": "d", "day": day},
        dead_letters=True,
    )
    await sink.close()
    assert [refusal.at for refusal in batch.refused] == [1, 2]
    assert batch.refused[0].reason.startswith("column 'delay': ")
    (file,) = path.glob("day=2026-01-02/*.parquet")
    table = parquet.ParquetFile(file).read()
    assert table.schema.names == ["id", "delay", "tags"]
    assert table.to_pylist() == [
        {"id": "a", "delay": 1.5, "tags": ["x", "y"]},
        {"id": "d", "delay": None, "tags": None},
    ]


async def test_parquet_takes_a_schema_of_its_own(path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    schema = arrow.schema([("n", arrow.int8()), ("at", arrow.timestamp("ms", tz="UTC"))])
    sink = FilesSink(path, format="parquet", schema=schema)
    one = await driven(sink)
    at = datetime(2026, 1, 2, tzinfo=UTC)
    batch = await one.write({"n": 1, "at": at}, {"n": 300}, dead_letters=True)
    await sink.close()
    assert [refusal.at for refusal in batch.refused] == [1]
    (file,) = path.glob("*.parquet")
    assert parquet.ParquetFile(file).read().to_pylist() == [{"n": 1, "at": at}]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"format": "xml"}, "format must be jsonl, csv or parquet, not 'xml'"),
        ({"columns": ["a"]}, "columns= is for CSV"),
        ({"format": "csv", "schema": 1}, "schema= is for Parquet"),
        ({"format": "parquet"}, "need schema= or value_type="),
        ({"format": "parquet", "value_type": {"a": dict}}, "dict can be kept in several ways"),
    ],
)
def test_what_makes_no_sense_is_said(path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        FilesSink(path, **options)


async def test_a_row_that_is_no_text_is_refused_and_the_others_land(path: Path) -> None:
    sink = FilesSink(path)
    one = await driven(sink)
    with pytest.raises(SinkError, match=r"'rows' \(jsonl files in .*\) .* orders-0 at offset 1: "):
        await one.write({"id": 0}, {"id": "\ud800"})
    assert files(path) == {}
    batch = await one.write({"id": 0}, {"id": "\ud800"}, {"id": 2}, dead_letters=True)
    await sink.close()
    assert [refusal.at for refusal in batch.refused] == [1]
    assert ids(path) == [0, 2]


async def test_a_deletion_is_the_agents_error(path: Path) -> None:
    one = await driven(FilesSink(path))
    with pytest.raises(ValueError, match="None deletes a row"):
        await one.write(("a", None))
    await one.sink.close()


# owners and failures


async def test_the_former_owner_is_fenced_and_adds_no_file(path: Path) -> None:
    first = await driven(FilesSink(path))
    await first.write({"id": 0})
    second = await driven(FilesSink(path))
    with pytest.raises(SinkFenced, match="orders-0 belongs to another worker now"):
        await first.write({"id": 1})
    await second.write({"id": 1})
    await first.sink.close()
    await second.sink.close()
    assert ids(path) == [0, 1]
    assert not list(path.glob("_onceward/*.data"))


async def test_owners_of_several_partitions_write_side_by_side(path: Path) -> None:
    one = await driven(FilesSink(path), TopicPartition("orders", 0))
    two = await driven(FilesSink(path), TopicPartition("orders", 1))
    for n in range(0, 20, 2):
        await one.write({"id": n})
        await two.write({"id": n + 1})
    positions = await one.sink.positions("app")
    await one.sink.close()
    await two.sink.close()
    assert ids(path) == list(range(20))
    assert {tp: found.next_offset for tp, found in positions.items()} == {
        one.tp: 10, two.tp: 10
    }  # fmt: skip


class Failing(Disk):
    """Call number ``at`` fails, as on a full disk."""

    def __init__(self, at: int) -> None:
        self.left = at

    def step(self) -> None:
        self.left -= 1
        if self.left == -1:
            raise OSError(errno.ENOSPC, "No space left on device")

    def write(self, path: Path, data: bytes) -> None:
        self.step()
        super().write(path, data[: len(data) // 2])
        self.step()
        super().write(path, data)

    def move(self, old: Path, new: Path) -> None:
        self.step()
        super().move(old, new)

    def sync(self, directories: Iterable[Path]) -> None:
        self.step()
        super().sync(directories)


async def test_any_call_of_the_disk_may_fail_and_an_heir_goes_on(tmp_path: Path) -> None:
    failures = 0
    for at in range(100):
        path = tmp_path / str(at)
        sink = FilesSink(path, name="rows", partition_by="digit", disk=Failing(at))
        is_whole = False
        try:
            one = await driven(sink)
            for start in (0, 10):
                await one.write(*({"id": n, "digit": n % 2} for n in range(start, start + 10)))
            is_whole = True
        except SinkUnavailable as error:
            assert "No space left" in str(error)
            failures += 1
        await sink.close()
        heir = await driven(FilesSink(path, name="rows", partition_by="digit"))
        start = heir.claim.next_offset
        assert ids(path) == list(range(start)), "the position says what is there"
        assert not list(path.glob("_onceward/*.data")), "and nothing else"
        await heir.write(*({"id": n, "digit": n % 2} for n in range(start, 30)))
        await heir.sink.close()
        assert ids(path) == list(range(30))
        if is_whole:
            break
    assert failures > 12


class Interrupted(Disk):
    """Something else happens before the first file is moved."""

    def __init__(self, happens: Callable[[], None]) -> None:
        self.happens: Callable[[], None] | None = happens

    def move(self, old: Path, new: Path) -> None:
        happens, self.happens = self.happens, None
        if happens is not None:
            happens()
        super().move(old, new)


async def test_a_worker_stopped_while_it_moves_files_takes_none_of_its_heirs(path: Path) -> None:
    def full() -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    async def inherit() -> None:
        heir = await driven(FilesSink(path, disk=Interrupted(lambda: None)))
        local(heir.sink).disk = Interrupted(full)
        with pytest.raises(SinkUnavailable, match="No space left"):
            await heir.write({"id": 1})
        await heir.sink.close()

    one = await driven(FilesSink(path, disk=Interrupted(lambda: asyncio.run(inherit()))))
    await one.write({"id": 0})
    await one.sink.close()
    last = await driven(FilesSink(path))
    await last.sink.close()
    assert ids(path) == [0, 1]


async def test_files_may_be_taken_away_and_do_not_come_back(path: Path) -> None:
    one = await driven(FilesSink(path))
    await one.write({"id": 0})
    for file in path.glob("*.jsonl"):
        file.unlink()
    await one.write({"id": 1})
    heir = await driven(FilesSink(path))
    await one.sink.close()
    await heir.sink.close()
    assert ids(path) == [1]


async def test_no_file_is_replaced_when_a_position_was_set_back(path: Path) -> None:
    one = await driven(FilesSink(path))
    await one.write({"id": 0})
    local(one.sink)._connection.execute("DELETE FROM onceward_positions")
    await one.take_over()
    await one.write({"id": 1})
    await one.sink.close()
    assert ids(path) == [0, 1]
    assert "app.rows.orders-0-00000000000000000000-2.jsonl" in files(path)


async def test_a_path_that_cannot_be_written_to_is_said_at_the_start(path: Path) -> None:
    path.parent.mkdir()
    path.write_text("")
    with pytest.raises(SinkError, match=r"sink 'rows' \(jsonl files in .*File exists|Not a dir"):
        await FilesSink(path).start()
    with pytest.raises(SinkError, match="nothing was written there yet"):
        await FilesSink(path.parent / "other").positions("app")


# whole workers


def rows_app(tmp_path: Path, path: Path) -> App:
    app = make_app(tmp_path)
    sink = FilesSink(path)

    @app.agent(app.topic("orders", value_type=Order, partitions=2), sink=[sink])
    async def etl(stream: Stream[Order]) -> AsyncIterator[Order]:
        async for order in stream:
            yield order

    return app


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_failed_kafka_commit_repeats_no_row(tmp_path: Path, path: Path, when: str) -> None:
    cluster = make_cluster(30)
    cluster.injector = fail_once("commit", when)
    async with worker(rows_app(tmp_path, path), cluster) as running:
        await until(is_done(cluster), running, timeout=20)
    assert ids(path) == list(range(30))


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_worker_killed_around_its_kafka_commit_leaves_exact_files(
    tmp_path: Path, path: Path, when: str
) -> None:
    cluster = make_cluster(30)
    cluster.injector = fail_once("commit", when)
    async with worker(rows_app(tmp_path, path), cluster) as first:
        await until(lambda: "commit" in cluster.calls, first)
        await kill(first)
    async with worker(rows_app(tmp_path, path), cluster) as second:
        put_orders(cluster, 10, start=30)
        await until(is_done(cluster), second, timeout=20)
    assert ids(path) == list(range(40))


@pytest.mark.kills
async def test_a_process_may_be_killed_at_any_step_of_its_disk(tmp_path: Path) -> None:
    root = Path(__file__).parents[3]
    deaths = 0
    for step in range(100):
        path = tmp_path / str(step)
        command = [sys.executable, "-m", "tests.streams.sinks.files_process", str(path), str(step)]
        ended = subprocess.run(command, cwd=root, timeout=60, check=False)
        assert ended.returncode in (0, -9)
        heir = FilesSink(path, partition_by="digit")
        await heir.start()
        position = (await heir.take_over("app", {TP: Start(None, 0)}))[TP].next_offset
        await heir.close()
        assert ids(path) == list(range(position))
        assert not list(path.glob("_onceward/*.data"))
        if ended.returncode == 0:
            assert position == 30
            break
        deaths += 1
    assert deaths > 12
