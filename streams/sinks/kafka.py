"""Records in a topic of another Kafka cluster, each exactly once for readers of committed records.

A Kafka transaction ends at the borders of its cluster. So where the input is read up to is kept in
the target as well, in a compacted topic: records and position change in one transaction *there*,
and what the group has committed on this side follows. After a crash between the two the engine
reads the position and drops what is behind it, as with a database.

Whose a partition is, a database decides by comparing and setting a row. A topic cannot compare; but
a transactional id can be taken away. Each task has one, named by its first input
(``app.sink.topic-partition``), and taking over begins with InitProducerId for it: that ends the
transaction the former owner has open and refuses everything it sends from then on, commit included.
Only then is the position read, to the end of the log. So what is read is final. If the answer to a
commit is lost nobody guesses: the same steps tell what became of it.

One transactional id per worker would mean fewer transactions but could not be taken away from one
partition: a worker that is only slow would have to be fenced with all it owns, whenever one
partition moves. And a number in the position alone fences nobody, since a transaction that is open
while the number is read may still be committed. A task is the least that must move together: one
effect may come from records of several of its inputs.

Inputs may be in another task than before, after a new version of the app. Therefore a position
names the id that moves it; whoever takes over fences that one too, if it is not its own, and
afterwards looks whether somebody else has claimed the partition meanwhile.

The records of several tasks become visible one task after the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from onceward.broker.client import Client, NewTopic, TopicPartition
from onceward.broker.client.cluster import parse_bootstrap

from ..engine.feed import Slot
from ..errors import ConfigurationError
from ..serde import default_key_codec, default_value_codec
from .effects import Batch
from .errors import SinkError, SinkFenced, SinkUnavailable
from .kafka_positions import CONFIGS, Kept, PositionLog
from .kafka_target import Target
from .kafka_writer import Outgoing, Part, TaskWriter
from .positions import Advance, Claim, Position, Start
from .sink import TransactionalSink

_COMPRESSIONS: Final = ("none", "gzip", "snappy", "lz4", "zstd")


class KafkaSink(TransactionalSink):
    """Transactional: every record once, for readers with ``isolation_level=read_committed``.

    ``bootstrap`` is the other cluster's ("host:port,host:port"), of this or any other make, with
    transactions. ``topic`` is created with ``partitions`` (and ``replicas``, ``config``) if it is
    missing and they are given. What is written is ``value`` as of a topic: ``key_type``,
    ``value_type`` and serializers mean the same, bytes stay as they are, None is a tombstone. The
    key is ``key=`` or that of the record being handled: its bytes, or what ``key_type`` makes of
    it. Keys choose the partition as in Kafka; records without one go to the partition with the
    number of their source's. Timestamps are those of the records behind them, and so are headers,
    unless ``headers=False``.

    ``name`` (default: the topic) is in the positions and the transactional ids, so renaming it
    starts anew. ``positions`` is the topic they are kept in, default ``<app>-sink-positions``,
    created when it is missing. ``timeout`` in seconds bounds a call and is the transactions' in the
    cluster: for so long a worker that died may hold up readers, if nobody takes over from it.

    It needs to be allowed: Write and Describe on both topics, Read on the positions, Write and
    Describe on transactional ids that begin with ``<app>.<name>.``, Create if a topic is missing;
    with DescribeConfigs, what is too large is known before it is sent.

    A record the cluster refuses (too large, without a key in a compacted topic, too old or too far
    in the future) goes to the dead letter topic or stops the worker, see ``on_error``; the others
    land. In the app's own cluster ``topic.send`` is better: it needs no second transaction. Raises
    ConfigurationError.
    """

    batch_rows = 100_000

    def __init__(
        self,
        bootstrap: str,
        *,
        topic: str,
        key_type: Any = None,
        value_type: Any = None,
        key_serializer: Any = None,
        value_serializer: Any = None,
        partitions: int | None = None,
        replicas: int | None = None,
        config: Mapping[str, str] | None = None,
        headers: bool = True,
        compression: str = "none",
        positions: str | None = None,
        name: str | None = None,
        on_error: str | None = None,
        timeout: float = 10.0,
    ) -> None:
        super().__init__(name or topic, on_error=on_error)
        self.bootstrap = bootstrap
        self.topic = topic
        self.partitions = partitions
        self.timeout = timeout
        self._headers = headers
        self._compression = compression
        self._positions = positions
        self._key = default_key_codec(key_serializer, key_type, None, topic)
        self._value = default_value_codec(value_serializer, value_type, None, topic)
        self._encode_key, self._encode_value = self._key.encode, self._value.encode
        self._forwards_key = key_type is None and key_serializer is None
        self._forwards_value = value_type is None and value_serializer is None
        self._schemas = [each.schemas for each in (self._key, self._value) if each.schemas]
        self._names_schemas = any(schemas.writes_headers for schemas in self._schemas)
        self._check()
        self._users = 0
        new = NewTopic(topic, partitions or -1, replicas or -1, dict(config or {}))
        self._target = Target(self.describe(), bootstrap, new, timeout)
        self._writers: dict[TopicPartition, TaskWriter] = {}

    def _check(self) -> None:
        """Raises ConfigurationError."""
        where = f"sink {self.name!r}"
        if self.partitions is not None and self.partitions < 1:
            raise ConfigurationError(f"{where}: partitions must be at least 1")
        if self.timeout <= 0:
            raise ConfigurationError(f"{where}: timeout must be more than 0")
        if self._compression not in _COMPRESSIONS:
            known = ", ".join(_COMPRESSIONS)
            raise ConfigurationError(
                f"{where}: compression must be one of {known}, not {self._compression!r}"
            )
        try:
            parse_bootstrap(self.bootstrap)
        except ValueError as error:
            raise ConfigurationError(f"{where}: {error}") from None

    def describe(self) -> str:
        return f"sink {self.name!r} (topic {self.topic} at {self.bootstrap})"

    # for agents

    def encode(self, value: Any, key: Any, slot: Slot) -> Outgoing:
        """Raises TypeError, ValueError."""
        if key is not None:
            key = self._encode_key(key)
        elif self._forwards_key:
            key = slot.raw_key
        elif (decoded := slot.key()) is not None:
            key = self._encode_key(decoded)
        if value is not None and not (self._forwards_value and type(value) is bytes):
            value = self._encode_value(value)
        return self._with_schemas(key, value) if self._names_schemas else Outgoing(key, value)

    def _with_schemas(self, key: bytes | None, value: bytes | None) -> Outgoing:
        """Schema ids moved from the payloads to headers, where the serializers want that."""
        headers = []
        for_key, for_value = self._key.schemas, self._value.schemas
        if for_key is not None and for_key.writes_headers and key is not None:
            schema, key = for_key.split(key)
            headers.append((for_key.header_name, schema))
        if for_value is not None and for_value.writes_headers and value is not None:
            schema, value = for_value.split(value)
            headers.append((for_value.header_name, schema))
        return Outgoing(key, value, tuple(headers))

    # for the engine

    async def start(self) -> None:
        self._users += 1
        for schemas in self._schemas:
            try:
                await schemas.prepare()
            except (TypeError, ValueError) as error:
                raise SinkError(f"{self.describe()}: {error}") from error
        await self._target.guarded(self._target.connected())

    async def close(self) -> None:
        self._users = max(0, self._users - 1)
        if self._users:
            return
        writers, self._writers = set(self._writers.values()), {}
        closing = [asyncio.ensure_future(writer.close()) for writer in writers]
        try:
            if closing:  # those that take longer end by the timeout of their transactions
                await asyncio.wait(closing, timeout=self.timeout)
        finally:
            for each in closing:
                each.cancel()
            await asyncio.gather(*closing, return_exceptions=True)
            await self._target.close()

    async def take_over(
        self, app: str, starts: Mapping[TopicPartition, Start]
    ) -> dict[TopicPartition, Claim]:
        return await self._target.guarded(self._take_over(app, starts))

    async def positions(self, app: str) -> dict[TopicPartition, Position]:
        async def look() -> dict[TopicPartition, Position]:
            topic = self._positions_of(app)
            async with self._target.new_client() as client:
                if not await self._target.admin(client).describe_topics([topic]):
                    raise SinkError(f"{self.describe()}: nothing was written there yet")
                log = PositionLog(client, topic, app, self.name)
                await log.read()
            return {
                tp: Position(kept.next_offset, kept.epoch, kept.effects)
                for tp, kept in log.all_kept().items()
            }

        return await self._target.guarded(look())

    async def commit(self, batch: Batch, advances: Sequence[Advance]) -> None:
        parts = self._parts(batch, advances)
        for part in parts:
            if self._target.knows_limit:
                part.refuse_too_large(self._target.limit)
            if self._target.is_compacted:
                part.refuse_without_key()
            if batch.dead_letters:
                part.ids = batch.ids()
            elif part.refused:
                raise self._refusal(batch, part)
        await self._target.guarded(self._write(batch, parts))
        for at, reason in sorted(
            (part.at[number], reason) for part in parts for number, reason in part.refused.items()
        ):
            batch.refuse(at, reason)

    def apply(self, batch: Batch) -> None:
        """Not without positions, see ``commit``."""
        raise SinkError(f"{self.describe()} is written to with its positions")

    # taking over

    def _positions_of(self, app: str) -> str:
        return self._positions or f"{app}-sink-positions"

    async def _take_over(
        self, app: str, starts: Mapping[TopicPartition, Start]
    ) -> dict[TopicPartition, Claim]:
        client = await self._target.connected()
        topic = self._positions_of(app)
        await self._declare_positions(client, topic)
        writers = self._new_writers(client, app, topic, starts)
        await _all(writer.fence() for writer in writers)
        log = PositionLog(client, topic, app, self.name)
        await log.read()
        names = {writer.name for writer in writers}
        others = {each.owner for tp in starts if (each := log.kept(tp)) is not None} - names
        if others:
            await self._target.admin(client).fence_producers(sorted(others))
            await log.read()
            self._check_owners(log, starts, names | others)
        claimed: dict[TopicPartition, Kept] = {}
        for writer in writers:
            claimed |= {tp: _claimed(log.kept(tp), starts[tp], writer) for tp in writer.inputs}
        await _all(writer.claim({tp: claimed[tp] for tp in writer.inputs}) for writer in writers)
        refused = {tp: log.refused(tp, position) for tp, position in claimed.items()}
        await log.read()
        self._check_owners(log, starts, names)
        self._writers |= {tp: writer for writer in writers for tp in writer.inputs}
        return {
            tp: Claim(
                position.next_offset,
                position.epoch,
                {
                    id_: reason
                    for id_, reason in refused[tp].items()
                    if id_.offset >= (starts[tp].committed or 0)
                },
            )
            for tp, position in claimed.items()
        }

    async def _declare_positions(self, client: Client, topic: str) -> None:
        replicas = self._target.topic.replication_factor
        await self._target.declare(client, NewTopic(topic, 1, replicas, dict(CONFIGS)))
        configs = await self._target.configs(client, topic)
        if "compact" not in configs.get("cleanup.policy", "compact"):
            raise SinkError(
                f"{self.describe()}: topic {topic!r} would forget positions: set its "
                "cleanup.policy to compact"
            )

    def _new_writers(
        self, client: Client, app: str, positions: str, starts: Mapping[TopicPartition, Start]
    ) -> list[TaskWriter]:
        """One per task; those that had the inputs are of no use any more."""
        tasks: dict[object, list[TopicPartition]] = {}
        for tp, start in sorted(starts.items()):
            tasks.setdefault(start.task or tp, []).append(tp)
            self._writers.pop(tp, None)
        return [
            TaskWriter(
                client,
                app,
                self.name,
                inputs,
                topic=self.topic,
                positions=positions,
                timeout_ms=int(self.timeout * 1000),
                max_batch_bytes=self._target.limit,
                compression=self._compression,
                lane=self._target.lanes[number % len(self._target.lanes)],
            )
            for number, inputs in enumerate(tasks.values())
        ]

    def _check_owners(
        self, log: PositionLog, inputs: Iterable[TopicPartition], allowed: Collection[str]
    ) -> None:
        """Raises SinkUnavailable when somebody else has just written a position of ours."""
        for tp, owner in log.just_written(inputs):
            if owner not in allowed:
                raise SinkUnavailable(f"{self.describe()}: {tp} is being taken over elsewhere")

    # committing

    def _parts(self, batch: Batch, advances: Sequence[Advance]) -> list[Part]:
        """What each task writes. Raises SinkFenced."""
        parts: dict[TaskWriter, Part] = {}
        for advance in advances:
            writer = self._writer_of(advance.tp)
            position = writer.kept[advance.tp]
            if (position.next_offset, position.epoch) != (advance.expected, advance.epoch):
                raise self._lost(advance.tp)
            parts.setdefault(writer, Part(writer)).advances.append(advance)
        origins = batch.written.origins
        ends = [start for start, *_ in origins[1:]] + [len(batch)]
        for (start, block, index, _), end in zip(origins, ends, strict=False):
            writer = self._writer_of(block.tp)
            part = parts.setdefault(writer, Part(writer))
            stop = index + end - start
            values: list[Outgoing] = batch.values[start:end]
            output = part.output
            output.keys += [each.key for each in values]
            output.values += [each.value for each in values]
            output.timestamps += block.timestamps[index:stop]
            if self._names_schemas or (self._headers and block.headers is not None):
                for number, each in enumerate(values):
                    headers = block.headers_of(index + number) if self._headers else ()
                    output.headers[len(part.at) + number] = (*headers, *each.headers)
            part.at += range(start, end)
        return list(parts.values())

    def _writer_of(self, tp: TopicPartition) -> TaskWriter:
        writer = self._writers.get(tp)
        if writer is None or not writer.is_usable:
            raise self._lost(tp)
        return writer

    async def _write(self, batch: Batch, parts: Sequence[Part]) -> None:
        """Raises SinkError when a record was refused that may not be, KafkaError."""
        client = await self._target.connected()
        client.refresh_metadata_when_old()
        count = client.metadata.partition_count(self.topic)
        if count is None:
            count = len(await client.partitions_for(self.topic))
        await _all(part.writer.write(part, count) for part in parts)
        for part in parts:
            if part.refused and part.ids is None:
                raise self._refusal(batch, part)

    # what went wrong

    def _lost(self, tp: TopicPartition) -> SinkFenced:
        return SinkFenced(f"{self.describe()}: {tp} belongs to another worker now")

    def _refusal(self, batch: Batch, part: Part) -> SinkError:
        number, reason = min(part.refused.items())
        return SinkError(
            f"{self.describe()} refuses what was written for {batch.place(part.at[number])}: "
            f"{reason}. Nothing of its task was written since the last commit; correct the agent "
            'or the topic and start the worker again, or set on_error="dead_letter"'
        )


def _claimed(known: Kept | None, start: Start, writer: TaskWriter) -> Kept:
    """The position of a new owner."""
    if known is None:
        return Kept(start.position, 1, 0, writer.name)
    return msgspec.structs.replace(known, epoch=known.epoch + 1, owner=writer.name)


async def _all(works: Iterable[Awaitable[None]]) -> None:
    """All at the same time, and to their ends; then raises the first error, if there is one."""
    for outcome in await asyncio.gather(*works, return_exceptions=True):
        if outcome is not None:
            raise outcome
