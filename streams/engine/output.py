"""What a task wants to write to topics: parallel lists per topic, until the commit cycle sends
them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from onceward.broker.client import partition_keys

from .block import Headers
from .kernel import OutputLists, OutputTopics


class TopicOutput(OutputLists):
    """Records for one topic in the order they were sent.

    ``partitions`` and ``headers`` are sparse (by index): most records have neither.
    """

    __slots__ = ("headers", "partitions")

    def __init__(self) -> None:
        self.keys = []
        self.values = []
        self.timestamps = []
        self.partitions: dict[int, int] = {}
        self.headers: dict[int, Headers] = {}

    def truncate(self, size: int) -> None:
        """Undo every record from index ``size`` on."""
        del self.keys[size:], self.values[size:], self.timestamps[size:]
        for sparse in (self.partitions, self.headers):
            for index in [index for index in sparse if index >= size]:
                del sparse[index]


class PartitionOutput(NamedTuple):
    """Records for one partition, ready for ``Producer.send_batch``."""

    topic: str
    partition: int
    keys: list[bytes | None]
    values: list[bytes | None]
    timestamps: list[int]
    headers: list[Headers] | None


class Outputs(OutputTopics):
    """The outputs of one task, or of a worker's timers and tasks, since the last commit."""

    __slots__ = ()

    topics: dict[str, TopicOutput]

    def __init__(self) -> None:
        self.topics = {}

    def __bool__(self) -> bool:
        return any(output.values for output in self.topics.values())

    def __len__(self) -> int:
        return sum(len(output.values) for output in self.topics.values())

    def open(self, topic: str) -> TopicOutput:
        """The lists of ``topic``, made when this is its first record."""
        output = self.topics.get(topic)
        if output is None:
            output = self.topics[topic] = TopicOutput()
        return output

    def mark(self) -> dict[str, int]:
        """A point to roll back to."""
        return {topic: len(output.values) for topic, output in self.topics.items()}

    def roll_back(self, mark: Mapping[str, int]) -> None:
        """Undo everything sent since ``mark``."""
        for topic, output in self.topics.items():
            output.truncate(mark.get(topic, 0))

    def take(self) -> dict[str, TopicOutput]:
        """Hand over everything collected and start empty."""
        taken, self.topics = self.topics, {}
        return taken


def split(
    topics: Mapping[str, TopicOutput], counts: Mapping[str, int], source_partition: int
) -> Iterator[PartitionOutput]:
    """Records by destination partition.

    The key decides as in Kafka's default partitioner (murmur2). Records without a key go to the
    partition with the number of their source's, so that a transform keeps order; ``counts`` is the
    number of partitions of every topic.
    """
    for topic, output in topics.items():
        if not output.values:
            continue
        count = counts[topic]
        if count == 1 and not output.partitions:
            headers = _dense(output)
            yield PartitionOutput(topic, 0, output.keys, output.values, output.timestamps, headers)
            continue
        places = partition_keys(output.keys, count)
        for index, partition in output.partitions.items():
            places[index] = partition
        yield from _by_partition(topic, output, places, source_partition % count)


def _by_partition(
    topic: str, output: TopicOutput, places: list[int], keyless: int
) -> Iterator[PartitionOutput]:
    headers = _dense(output)
    first = places[0]
    if places.count(first) == len(places):
        partition = keyless if first < 0 else first
        yield PartitionOutput(
            topic, partition, output.keys, output.values, output.timestamps, headers
        )
        return
    by_partition: dict[int, PartitionOutput] = {}
    for index, place in enumerate(places):
        partition = keyless if place < 0 else place
        part = by_partition.get(partition)
        if part is None:
            part = by_partition[partition] = PartitionOutput(
                topic, partition, [], [], [], None if headers is None else []
            )
        part.keys.append(output.keys[index])
        part.values.append(output.values[index])
        part.timestamps.append(output.timestamps[index])
        if headers is not None and part.headers is not None:
            part.headers.append(headers[index])
    yield from by_partition.values()


def _dense(output: TopicOutput) -> list[Headers] | None:
    if not output.headers:
        return None
    return [output.headers.get(index, ()) for index in range(len(output.values))]
