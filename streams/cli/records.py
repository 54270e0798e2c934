"""``onceward produce`` and ``onceward consume``: lines to a topic, a topic to lines."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Iterator
from itertools import islice
from typing import IO

import click

from onceward.broker.client import (
    Client,
    Consumer,
    FetchedBatch,
    Isolation,
    Producer,
    TopicPartition,
    partition_keys,
)

from .session import broker_option, fail, wall_clock, with_client

BATCH_RECORDS = 5_000


@click.command()
@click.argument("topic")
@click.argument("file", type=click.File("rb"), default="-")
@broker_option
@click.option("--key-separator", metavar="TEXT", help="Splits each line into key and value.")
def produce(topic: str, file: IO[bytes], broker: str | None, key_separator: str | None) -> None:
    """Send each line of FILE (default: standard input) to TOPIC as one record.

    Example: echo "alice:12" | onceward produce orders --key-separator :
    """
    separator = key_separator.encode() if key_separator is not None else None
    sent = with_client(broker, lambda client: _produce(client, topic, file, separator))
    click.echo(f"produced {sent} records to {topic}", err=True)


async def _produce(client: Client, topic: str, file: IO[bytes], separator: bytes | None) -> int:
    producer = Producer(client)
    partitions = len(await client.partitions_for(topic))
    lines = (line.rstrip(b"\r\n") for line in file)
    sent = 0
    while block := await asyncio.to_thread(lambda: list(islice(lines, BATCH_RECORDS))):
        keys, values = split_lines(block, separator, sent)
        by_partition: dict[int, tuple[list[bytes | None], list[bytes | None]]] = {}
        for index, partition in enumerate(partition_keys(keys, partitions)):
            # without a key: one partition per block, as a sticky partitioner does
            target = partition if partition >= 0 else sent // BATCH_RECORDS % partitions
            columns = by_partition.setdefault(target, ([], []))
            columns[0].append(keys[index])
            columns[1].append(values[index])
        for partition, (part_keys, part_values) in by_partition.items():
            producer.send_batch(topic, partition, part_keys, part_values, timestamps=wall_clock())
        await producer.flush()
        sent += len(block)
    await producer.close()
    return sent


def split_lines(
    lines: list[bytes], separator: bytes | None, before: int
) -> tuple[list[bytes | None], list[bytes | None]]:
    """Keys and values of lines; ``before`` lines came earlier. Raises click.ClickException."""
    if separator is None:
        return [None] * len(lines), list(lines)
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    for number, line in enumerate(lines, before + 1):
        key, found, value = line.partition(separator)
        if not found:
            raise fail(f"line {number} has no {separator.decode()!r}; {before} lines were produced")
        keys.append(key)
        values.append(value)
    return keys, values


@click.command()
@click.argument("topic")
@broker_option
@click.option(
    "--from-beginning", is_flag=True, help="Start at the earliest record, not at the end."
)
@click.option("--max", "maximum", type=click.IntRange(1), help="Stop after this many records.")
@click.option(
    "--idle",
    type=click.FloatRange(0),
    metavar="SECONDS",
    help="Stop when nothing came for so long.",
)
@click.option(
    "--isolation",
    type=click.Choice(["read_committed", "read_uncommitted"]),
    default="read_committed",
    show_default=True,
    help="Whether records of open and aborted transactions are shown.",
)
@click.option(
    "--key-separator", metavar="TEXT", help="Print the key and this text before the value."
)
@click.option(
    "--json", "as_json", is_flag=True, help="One JSON object per record, with its offset."
)
def consume(
    topic: str,
    broker: str | None,
    from_beginning: bool,
    maximum: int | None,
    idle: float | None,
    isolation: Isolation,
    key_separator: str | None,
    as_json: bool,
) -> None:
    """Print the records of TOPIC, one line each, until interrupted.

    Example: onceward consume orders --from-beginning --max 10
    """

    async def run(client: Client) -> None:
        left = maximum
        async for batch in _read(client, topic, from_beginning, isolation, idle):
            lines = list(islice(render(batch, key_separator, as_json), left))
            sys.stdout.write("".join(lines))
            sys.stdout.flush()
            if left is not None:
                left -= len(lines)
                if not left:
                    return

    with_client(broker, run)


async def _read(
    client: Client, topic: str, from_beginning: bool, isolation: Isolation, idle: float | None
) -> AsyncIterator[FetchedBatch]:
    """Batches as they come; ends when nothing came for ``idle`` seconds."""
    tps = [TopicPartition(topic, partition) for partition in await client.partitions_for(topic)]
    consumer = Consumer(client, isolation=isolation)
    consumer.assign(tps)
    start = consumer.beginning_offsets if from_beginning else consumer.end_offsets
    for tp, offset in (await start(tps)).items():
        consumer.seek(tp, offset)
    await consumer.start()
    loop = asyncio.get_running_loop()
    last = loop.time()
    try:
        while idle is None or loop.time() - last < idle:
            wait = 500 if idle is None else min(500, int(idle * 1000) + 1)
            for batch in await consumer.fetch(timeout_ms=wait):
                if batch.records.offsets:
                    last = loop.time()
                    yield batch
    finally:
        await consumer.stop()


def render(batch: FetchedBatch, key_separator: str | None, as_json: bool) -> Iterator[str]:
    """One line per record; bytes that are not UTF-8 are shown with replacement characters."""
    records = batch.records
    for index, value in enumerate(records.values):
        key = records.keys[index]
        if as_json:
            line = {
                "topic": batch.tp.topic,
                "partition": batch.tp.partition,
                "offset": records.offsets[index],
                "timestamp": records.timestamps[index],
                "key": _text(key),
                "value": _text(value),
            }
            yield json.dumps(line, ensure_ascii=False) + "\n"
        elif key_separator is not None:
            yield f"{_text(key) or ''}{key_separator}{_text(value) or ''}\n"
        else:
            yield f"{_text(value) or ''}\n"


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "replace")
