"""A run that ends: which records belong to it, and when they and all they caused are done.

Bounds are offsets of the topics the app is fed by, taken once, before the run. Records at or behind
them are not handled and not committed, so a later run without bounds goes on there. Other topics
the app reads, which its own agents write to, have no bounds but are read until nothing is left.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
from bisect import bisect_left
from collections.abc import Mapping, Sequence

from onceward.broker.client import Admin, Consumer, FetchedBatch, KafkaError, TopicPartition

from ..errors import ConfigurationError
from ..topology import Topology
from .kafka import Kafka

logger = logging.getLogger(__name__)

Bounds = Mapping[TopicPartition, int]
_POLL_S = 0.25


def within(batch: FetchedBatch, end: int) -> FetchedBatch | None:
    """What of ``batch`` is before offset ``end``; None: nothing."""
    records = batch.records
    if records.next_offset <= end:
        return batch
    stop = bisect_left(records.offsets, end)
    if stop == 0:
        return None
    kept = dataclasses.replace(
        records,
        keys=records.keys[:stop],
        values=records.values[:stop],
        offsets=records.offsets[:stop],
        timestamps=records.timestamps[:stop],
        headers=None if records.headers is None else records.headers[:stop],
        next_offset=end,
    )
    return batch._replace(records=kept)


def bounded_topics(topology: Topology, named: Sequence[str]) -> list[str]:
    """The topics that have bounds: those named, or the only one it can be. Raises
    ConfigurationError."""
    if topology.source_positions:
        raise ConfigurationError("an app with sources has no end to run to: it takes what comes")
    known = {name: topic for sub in topology.sub_topologies for name, topic in sub.sources.items()}
    unknown = sorted(set(named) - set(known))
    if unknown:
        raise ConfigurationError(f"no agent reads the topic {unknown[0]}, which is to have an end")
    inputs = sorted(named) or sorted(name for name, topic in known.items() if not topic.internal)
    if not inputs:
        raise ConfigurationError("no agent reads a topic, so there is no end to run to")
    if len(inputs) > 1 and not named:
        raise ConfigurationError(
            f"the app reads {', '.join(inputs)}: say with --until-topic which of them others write "
            "to; what the app writes itself is read to its end"
        )
    return inputs


async def find_bounds(kafka: Kafka, topics: Sequence[str], until: str) -> dict[TopicPartition, int]:
    """Where ``topics`` end: ``latest``, what is committed now; ``@MILLISECONDS``, the first record
    at or after a time. Raises ConfigurationError, KafkaError.
    """
    found = await kafka.admin().describe_topics(topics)
    missing = sorted(set(topics) - set(found))
    if missing:
        raise ConfigurationError(f"there is no topic {missing[0]} yet, so it has no end to run to")
    tps = [TopicPartition(name, at.partition) for name in topics for at in found[name].partitions]
    consumer = kafka.consumer(isolation="read_committed")
    ends = await consumer.end_offsets(tps, "read_committed")
    if until == "latest":
        return ends
    if not until.startswith("@") or not until[1:].isdigit():
        raise ConfigurationError(f"{until!r} is no end: give latest, or @ and milliseconds")
    at = await consumer.offsets_for_times(dict.fromkeys(tps, int(until[1:])))
    return {
        tp: ends[tp] if (first := at[tp]) is None else min(first.offset, ends[tp]) for tp in tps
    }


class BoundedRun:
    """Knows when the group has done everything before ``bounds``."""

    def __init__(self, kafka: Kafka, topology: Topology, group: str, bounds: Bounds) -> None:
        bounded = {tp.topic for tp in bounds}
        self._kafka = kafka
        self._group = group
        self._bounds = bounds
        self._others = [name for name in topology.source_topics if name not in bounded]

    async def wait(self) -> None:
        """Until all is committed. Errors of the cluster are waited out: the worker has its own."""
        while True:
            try:
                if await self.is_done():
                    return
            except KafkaError as error:
                logger.warning("looking whether the run is over: %s", error)
            await asyncio.sleep(_POLL_S)

    async def is_done(self) -> bool:
        """Offsets are read before the ends they are compared with: if nothing was left at the
        second look, nothing was left or in hand at any time after the first, as whoever handles a
        record commits its offset together with what it caused. Raises KafkaError."""
        admin, consumer = self._kafka.admin(), self._kafka.consumer()
        committed = {
            tp: at.offset for tp, at in (await admin.list_group_offsets(self._group)).items()
        }
        others = await self._partitions(admin)
        starts = await consumer.beginning_offsets([*self._bounds, *others])
        ends = {**await _ends(consumer, others), **self._bounds}
        return all(committed.get(tp, starts[tp]) >= end for tp, end in ends.items())

    async def _partitions(self, admin: Admin) -> list[TopicPartition]:
        if not self._others:
            return []
        found = await admin.describe_topics(self._others)
        return [
            TopicPartition(name, at.partition)
            for name, topic in found.items()
            for at in topic.partitions
        ]


async def _ends(consumer: Consumer, tps: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
    return await consumer.end_offsets(tps, "read_uncommitted") if tps else {}


def to_text(bounds: Bounds) -> str:
    """For a child process."""
    nested: dict[str, dict[int, int]] = {}
    for tp, offset in sorted(bounds.items()):
        nested.setdefault(tp.topic, {})[tp.partition] = offset
    return json.dumps(nested)


def from_text(text: str) -> dict[TopicPartition, int]:
    """The opposite of ``to_text``. Raises ConfigurationError."""
    try:
        return {
            TopicPartition(topic, int(partition)): int(offset)
            for topic, offsets in json.loads(text).items()
            for partition, offset in offsets.items()
        }
    except (ValueError, TypeError, AttributeError) as error:
        raise ConfigurationError(f"{text!r} are no offsets by topic and partition") from error
