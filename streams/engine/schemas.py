"""Schemas kept in a registry: those of what an app writes are found when a worker starts, those of
what it reads before a task gets the records. Nothing waits for the registry in between."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from onceward.broker.client import FetchedBatch, Records

from ..errors import ConfigurationError, DecodeError, WorkerError
from ..serde import SchemaCodec, payload_of
from ..topology import Topology, topics_sent_to
from .block import Block, Headers

if TYPE_CHECKING:
    from ..app import App
    from ..table import Table
    from ..topic import Topic
    from .task import Task


def schema_codecs(app: App) -> list[SchemaCodec]:
    """Of all topics and tables declared so far."""
    topics = [codec for topic in app.declared_topics() for codec in topic.schemas]
    return topics + [codec for table in app.tables.values() for codec in table.schemas]


async def prepare_schemas(app: App, topology: Topology) -> None:
    """Register, or find, the schemas of everything the app writes. Raises ConfigurationError.

    A topic that agents read counts only when some function of the app names it: its readers may
    have another, older or smaller, idea of its records than those who write them.
    """
    read = set(topology.source_topics)
    named = {id(topic) for topic in topics_sent_to(app)}
    codecs: list[SchemaCodec] = []
    for topic in app.declared_topics():
        if topic.internal or id(topic) in named or read.isdisjoint(topic.names):
            codecs += topic.schemas
    for sub in topology.sub_topologies:
        for table in sub.tables.values():
            codecs += table.schemas
    try:
        for codec in codecs:
            await codec.prepare()
    except (TypeError, ValueError) as error:
        raise ConfigurationError(str(error)) from error


async def learn_tables(tables: Iterable[Table]) -> None:
    """Every schema that values of these tables may have been written with. Raises WorkerError."""
    try:
        for table in tables:
            for codec in table.schemas:
                await codec.learn_versions()
    except ValueError as error:
        raise WorkerError(f"the schemas of tables cannot be read: {error}") from error


def key_of(topic: Topic, raw: bytes, headers: Headers) -> Any:
    """A decoded key. Raises DecodeError."""
    try:
        return topic.decode_key(payload_of(topic.key_codec, raw, headers))
    except Exception as error:
        raise DecodeError(f"a key of {topic.name} cannot be decoded: {error}") from error


def payloads(topic: Topic, block: Block) -> list[bytes | None]:
    """Values to decode: those whose schema is named in a header have it in front."""
    schemas = topic.value_codec.schemas
    if block.headers is None or schemas is None:
        return block.raw_values
    return schemas.joined(block.raw_values, block.headers)


class SchemaFetcher:
    """Holds back fetched records of a task while schemas for them are fetched.

    ``on_failure`` gets what must stop the worker: the registry does not answer.
    """

    def __init__(self, on_failure: Callable[[Task, WorkerError], None]) -> None:
        self._on_failure = on_failure
        self._held: dict[Task, deque[FetchedBatch]] = {}
        self._fetching: dict[Task, asyncio.Task[None]] = {}

    def __contains__(self, task: Task) -> bool:
        """Whether records of the task are held back: no more should be fetched for it."""
        return task in self._held

    def add(self, task: Task, batch: FetchedBatch) -> None:
        """Give the task its records, now or when their schemas are known, in order."""
        held = self._held.get(task)
        if held is not None:
            held.append(batch)
        elif not any(unknown_in(_topic(task, batch), batch.records)):
            task.add(batch)
        else:
            self._held[task] = deque([batch])
            self._fetching[task] = asyncio.get_running_loop().create_task(
                self._fetch(task), name=f"schemas-{task.id}"
            )

    def forget(self, task: Task) -> None:
        """Drop what is held: the task starts anew, or ends."""
        self._held.pop(task, None)
        fetching = self._fetching.pop(task, None)
        if fetching is not None:
            fetching.cancel()

    async def _fetch(self, task: Task) -> None:
        held = self._held[task]
        try:
            while held:
                await learn_records(_topic(task, held[0]), held[0].records)
                task.add(held.popleft())
        except ValueError as error:
            failure = WorkerError(f"schemas cannot be fetched: {error}")
            failure.__cause__ = error
            self._on_failure(task, failure)
            return
        del self._held[task], self._fetching[task]


def _topic(task: Task, batch: FetchedBatch) -> Topic:
    return task.sub_topology.sources[batch.tp.topic]


async def learn_records(topic: Topic, records: Records) -> None:
    """Fetch what is missing to decode these. Raises ValueError when the registry is away."""
    for codec, prefixes in unknown_in(topic, records):
        await codec.learn(prefixes)


def unknown_in(topic: Topic, records: Records) -> Iterator[tuple[SchemaCodec, set[bytes]]]:
    """Codecs with what they must learn to decode records of a topic."""
    if not topic.schemas:
        return
    for codec, data in (
        (topic.key_codec.schemas, records.keys),
        (topic.value_codec.schemas, records.values),
    ):
        if codec is None:
            continue
        found = data if records.headers is None else codec.joined(data, records.headers)
        unknown = codec.unknown(found)
        if unknown:
            yield codec, unknown
