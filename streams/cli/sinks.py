"""``onceward sinks``: status."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import click

from onceward.broker.client import Admin, Client, Consumer, TopicPartition

from ..app import App
from ..probe import learn_stages
from ..sinks.errors import SinkError, SinkUnavailable
from ..sinks.positions import Position
from ..sinks.sink import Sink, TransactionalSink
from ..topology import topology_of
from .loading import load_app
from .session import (
    address_of,
    broker_option,
    json_option,
    new_client,
    print_json,
    print_table,
)

COLUMNS = (
    "sink", "topic", "partition", "position", "committed", "end", "lag", "epoch", "effects",
)  # fmt: skip


@click.group()
def sinks() -> None:
    """Look at what an app writes to besides Kafka.

    \b
    Example:  onceward sinks status shop/app.py:app
    """


@sinks.command()
@click.argument("target", metavar="MODULE:APP")
@broker_option
@json_option
@click.option(
    "--interval", type=click.FloatRange(min=0), default=0.0, metavar="SECONDS",
    help="Look twice, so far apart, and show the effects per second between.",
)  # fmt: skip
def status(target: str, broker: str | None, as_json: bool, interval: float) -> int:
    """Show how far every sink is: its position against the end of the topic.

    \b
    position   where the sink's database says that it is; for a sink without transactions, and
               before the first take-over, where the group is
    committed  what the consumer group has committed
    lag        records between position and end
    epoch      how many workers have owned the partition, one after the other
    effects    rows and deletions the sink was given, those it refused among them

    Nothing is changed, and workers may run meanwhile.

    \b
    Example:  onceward sinks status shop/app.py:app --interval 5
    """
    rows, problems = asyncio.run(_status(load_app(target), broker, interval))
    for problem in problems:
        click.echo(problem, err=True)
    if as_json:
        print_json(rows)
        return 1 if problems else 0
    columns = [*COLUMNS, "per second"] if interval else COLUMNS
    print_table(columns, [[_cell(row[column]) for column in columns] for row in rows])
    return 1 if problems else 0


class _Reading(NamedTuple):
    """One sink's positions; ``inputs``: the partitions it is written to from."""

    sink: Sink
    inputs: Sequence[TopicPartition]
    positions: Mapping[TopicPartition, Position]
    problem: str | None


async def _status(
    app: App, broker: str | None, interval: float
) -> tuple[list[dict[str, Any]], list[str]]:
    """Rows, and a sentence for every sink that could not be asked."""
    for agent in app.agents.values():
        await learn_stages(agent)
    async with new_client(address_of(broker or app.conf.broker)) as client:
        before = await _read(app, client)
        if interval:
            await asyncio.sleep(interval)
        after = await _read(app, client) if interval else before
        tps = sorted({tp for reading in after for tp in reading.inputs})
        committed = await Admin(client).list_group_offsets(app.conf.id)
        end = await Consumer(client).end_offsets(tps, "read_committed") if tps else {}
    rows = []
    for old, new in zip(before, after, strict=True):
        for tp in new.inputs:
            group = committed[tp].offset if tp in committed else None
            row = _row(new.sink, tp, new.positions.get(tp), group, end[tp])
            if interval:
                gained = _effects(new, tp) - _effects(old, tp)
                row["per second"] = round(gained / interval, 1)
            rows.append(row)
    return rows, [reading.problem for reading in after if reading.problem is not None]


async def _read(app: App, client: Client) -> list[_Reading]:
    topology = topology_of(app)
    readings = []
    for sink in topology.sinks:
        topics = sorted(
            {name for sub in topology.sub_topologies if sink in sub.sinks for name in sub.sources}
        )
        found = await Admin(client).describe_topics(topics)
        inputs = [
            TopicPartition(name, partition.partition)
            for name in topics
            if name in found
            for partition in found[name].partitions
        ]
        positions: Mapping[TopicPartition, Position] = {}
        problem = None
        if isinstance(sink, TransactionalSink):
            try:
                positions = await sink.positions(app.conf.id)
            except (SinkError, SinkUnavailable) as error:
                problem = str(error)
        readings.append(_Reading(sink, sorted(inputs), positions, problem))
    return readings


def _row(
    sink: Sink, tp: TopicPartition, known: Position | None, committed: int | None, end: int
) -> dict[str, Any]:
    position = committed if known is None else known.next_offset
    return {
        "sink": sink.name,
        "strength": str(sink.strength),
        "topic": tp.topic,
        "partition": tp.partition,
        "position": position,
        "committed": committed,
        "end": end,
        "lag": None if position is None else max(end - position, 0),
        "epoch": None if known is None else known.epoch,
        "effects": None if known is None else known.effects,
    }


def _effects(reading: _Reading, tp: TopicPartition) -> int:
    found = reading.positions.get(tp)
    return 0 if found is None else found.effects


def _cell(value: object) -> object:
    return "-" if value is None else value
