"""``onceward sources``: status, reset."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from typing import Any, NamedTuple

import click

from onceward.broker.client import Admin, Client, Consumer, FetchedBatch, Producer, TopicPartition

from ..app import App
from ..sources.source import Source
from .loading import load_app
from .session import (
    address_of,
    broker_option,
    fail,
    json_option,
    print_json,
    print_table,
    wall_clock,
    with_client,
)

COLUMNS = ("source", "split", "part", "position", "since", "worker")
_WAIT_MS = 500
_PATIENCE_S = 30


@click.group()
def sources() -> None:
    """Look at where an app's sources are, and set them back.

    \b
    Example:  onceward sources status shop/app.py:app
              onceward sources reset shop/app.py:app invoices
    """


@sources.command()
@click.argument("target", metavar="MODULE:APP")
@broker_option
@json_option
def status(target: str, broker: str | None, as_json: bool) -> None:
    """Show the committed position of every source, split and part.

    \b
    split     who reads is decided per split; `-` where a source has one
    part      what has a position of its own within the split, for files their names
    position  behind the last row whose record is committed
    since     when a row moved it last
    worker    the member of the group that reads the split now

    Nothing is changed, and workers may run meanwhile.

    \b
    Example:  onceward sources status shop/app.py:app
    """
    app = load_app(target)
    rows = with_client(address_of(broker or app.conf.broker), lambda client: _status(app, client))
    if as_json:
        print_json(rows)
    else:
        print_table(COLUMNS, [[_cell(row[column]) for column in COLUMNS] for row in rows])


@sources.command()
@click.argument("target", metavar="MODULE:APP")
@click.argument("name", metavar="SOURCE")
@broker_option
@click.option("--split", help="Only this split.")
@click.option("--part", help="Only this part, as the status shows it: one file, for example.")
@click.option(
    "--to", "position", metavar="JSON",
    help="Go on behind this position, as the status shows it. Default: read from the start.",
)  # fmt: skip
def reset(
    target: str,
    name: str,
    broker: str | None,
    split: str | None,
    part: str | None,
    position: str | None,
) -> None:
    """Read a source, or a part of it, again. Its workers must be stopped.

    Rows that are read again become records again.

    \b
    Example:  onceward sources reset shop/app.py:app invoices --part 2026-11.csv
    """
    app = load_app(target)
    source = app.sources.get(name)
    if source is None:
        raise fail(f"the app has no source {name!r}, but {', '.join(app.sources) or 'none at all'}")
    if split is not None and split not in source.splits:
        raise fail(f"source {name} has no split {split!r}, but {', '.join(source.splits)}")
    value = None if position is None else _parsed(position)
    moved = with_client(
        address_of(broker or app.conf.broker),
        lambda client: _reset(app, client, source, split, part, value),
    )
    for key in moved:
        click.echo(f"{name}: {key} {'reads from the start' if value is None else 'moved'}")


class _Kept(NamedTuple):
    """One record of a source's topic of positions; ``key``: the split, or ``split/part``."""

    tp: TopicPartition
    key: str
    value: bytes
    timestamp: int

    @property
    def split(self) -> str:
        return self.key.partition("/")[0]

    @property
    def part(self) -> str:
        return self.key.partition("/")[2]


async def _status(app: App, client: Client) -> list[dict[str, Any]]:
    found = (await Admin(client).describe_groups([app.conf.id]))[app.conf.id]
    owners = {
        tp: member.group_instance_id or member.member_id
        for member in found.members
        for tp in member.assignment
    }
    rows = []
    for source in app.sources.values():
        kept = await _positions(client, source)
        for number, split in enumerate(source.splits):
            tp = TopicPartition(source.positions_topic.name, number)
            found_here: list[_Kept | None] = [at for at in kept if at.tp == tp]
            rows += [_row(source, split, at, owners.get(tp)) for at in found_here or [None]]
    return rows


def _row(source: Source, split: str, at: _Kept | None, worker: str | None) -> dict[str, Any]:
    """``split`` as the positions have it: another name there means that splits= was changed."""
    return {
        "source": source.name,
        "reads": source.reader.describe(),
        "topic": source.topic.name,
        "split": split if at is None else at.split,
        "part": None if at is None else at.part or None,
        "position": None if at is None else json.loads(at.value),
        "since": None if at is None else _when(at.timestamp),
        "worker": worker,
    }


async def _positions(client: Client, source: Source) -> list[_Kept]:
    """What the topic says at this moment, by split and part. Raises KafkaError."""
    topic = source.positions_topic.name
    if topic not in await Admin(client).describe_topics([topic]):
        return []
    tps = [TopicPartition(topic, number) for number in await client.partitions_for(topic)]
    consumer = Consumer(client, isolation="read_committed", auto_offset_reset="earliest")
    end = await consumer.end_offsets(tps, "read_committed")
    left = {tp for tp in tps if end[tp] > 0}
    kept: dict[tuple[TopicPartition, str], _Kept] = {}
    await consumer.start()
    try:
        async with asyncio.timeout(_PATIENCE_S):
            consumer.assign(left)
            while left:
                for batch in await consumer.fetch(timeout_ms=_WAIT_MS):
                    _keep(kept, batch)
                left = {tp for tp in left if (consumer.position(tp) or 0) < end[tp]}
    except TimeoutError:
        raise fail(f"{topic} could not be read within {_PATIENCE_S} s") from None
    finally:
        await consumer.stop()
    return sorted(kept.values())


def _keep(kept: dict[tuple[TopicPartition, str], _Kept], batch: FetchedBatch) -> None:
    records = batch.records
    for key, value, timestamp in zip(records.keys, records.values, records.timestamps, strict=True):
        name = (key or b"").decode()
        if value is None:
            kept.pop((batch.tp, name), None)
        else:
            kept[batch.tp, name] = _Kept(batch.tp, name, value, timestamp)


async def _reset(
    app: App, client: Client, source: Source, split: str | None, part: str | None, value: Any
) -> list[str]:
    """Returns the keys that were moved."""
    found = (await Admin(client).describe_groups([app.conf.id]))[app.conf.id]
    if found.members:
        raise fail(
            f"group {app.conf.id} has {len(found.members)} running worker(s): stop them, as they "
            "would write their own positions over this (a killed one is gone after its session)"
        )
    kept = await _positions(client, source)
    chosen = [
        at
        for at in kept
        if (split is None or at.split == split) and (part is None or at.part == part)
    ]
    if not chosen:
        raise fail(f"source {source.name} has no such position; see: onceward sources status")
    if value is not None and len(chosen) > 1:
        raise fail(
            f"source {source.name} has {len(chosen)} positions: say with --split and --part which "
            "one --to is for"
        )
    producer = Producer(client)
    encoded = None if value is None else json.dumps(value).encode()
    for at in chosen:
        producer.send_batch(
            at.tp.topic, at.tp.partition, [at.key.encode()], [encoded], timestamps=wall_clock()
        )
    await producer.flush()
    await producer.close()
    return [at.key for at in chosen]


def _parsed(position: str) -> Any:
    try:
        return json.loads(position)
    except ValueError as error:
        raise click.BadParameter(f"{position!r} is not JSON: {error}", param_hint="--to") from error


def _when(timestamp_ms: int) -> str:
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="seconds")


def _cell(value: object) -> object:
    if value is None:
        return "-"
    return value if isinstance(value, str) else json.dumps(value)
