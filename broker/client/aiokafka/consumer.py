"""``AIOKafkaConsumer``: records one at a time or in lists, from a consumer that reads batches."""

from __future__ import annotations

import asyncio
import re
import warnings
from collections.abc import Awaitable, Collection, Iterable, Mapping
from typing import Any, Self, TypeVar

from ...errors import KafkaError as ClientError
from ...types import TopicPartition
from ..admin import Admin
from ..group import GroupMetadata
from ..offsets import EARLIEST, LATEST, fetch_offsets, list_offsets
from ..offsets import OffsetAndTimestamp as FoundOffset
from .abc import ConsumerRebalanceListener
from .errors import (
    ConsumerStoppedError,
    IllegalOperation,
    IllegalStateError,
    KafkaTimeoutError,
    translated,
)
from .interest import Interest
from .options import ConsumerOptions, check_max_records, connect, topic_info
from .session import Buffered, Marks, Session
from .signal import Signal
from .structs import (
    CREATE_TIME,
    ConsumerRecord,
    OffsetAndTimestamp,
    Offsets,
    validate_offsets,
)

T = TypeVar("T")
Record = ConsumerRecord[Any, Any]


class AIOKafkaConsumer:
    """Reads topics, in a group or alone. The options are those of ``ConsumerOptions``: aiokafka's,
    by keyword.

    What goes wrong in the background is raised by the next ``getone``, ``getmany`` or ``position``.
    A deserializer that raises leaves the position before its record: ``seek`` skips it.
    """

    _closed = True

    def __init__(self, *topics: str, **options: Any) -> None:
        self._options = ConsumerOptions(**options)
        if self._options.loop is None:
            asyncio.get_running_loop()
        self._client = self._options.new_client()
        self._news = Signal()
        self._interest: Interest | None = None
        self._session: Session | None = None
        self._ending: asyncio.Task[None] | None = None
        self._started = False
        self._closed = False
        if topics:
            self.subscribe(topics)

    def __del__(self) -> None:
        if not self._closed:
            message = f"Unclosed AIOKafkaConsumer {self!r}"
            warnings.warn(message, ResourceWarning, stacklevel=2, source=self)

    # life

    async def start(self) -> None:
        """Connect and, when topics were named, wait for them and for the first assignment.

        Raises KafkaConnectionError, UnknownTopicOrPartitionError, or why joining failed.
        """
        assert not self._started, "the consumer was started already"
        await connect(self._client)
        self._started = True
        interest = self._interest
        if interest is None:
            return
        for topic in interest.all_topics:
            await topic_info(self._client, topic)
        session = self._open_session(interest)
        while not session.settled:
            session.raise_error()
            await self._news.wait()

    def _open_session(self, interest: Interest) -> Session:
        session = Session(
            self._client, self._options, interest, news=self._news, after=self._ending
        )
        self._session = session
        return session

    async def stop(self) -> None:
        """Commit if that is automatic, leave the group, close the connections. Idempotent."""
        if self._closed:
            return
        self._closed = True
        session, self._session = self._session, None
        self._news.notify()
        if session is not None:
            await session.close()
        if self._ending is not None:
            await self._ending
        await self._client.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    # what is read

    def subscribe(
        self,
        topics: Collection[str] = (),
        pattern: str | None = None,
        listener: ConsumerRebalanceListener | None = None,
    ) -> None:
        """Read these topics, or those whose names match ``pattern`` (at their beginning).

        Raises IllegalStateError after ``assign`` or the other kind of subscription, TypeError for
        both or neither, ValueError for a bad pattern.
        """
        if bool(topics) == bool(pattern):
            raise TypeError("either topics or a pattern")
        if not isinstance(topics, tuple | set | list | frozenset):
            raise TypeError("topics are a list of strings")
        if listener is not None and not isinstance(listener, ConsumerRebalanceListener):
            raise TypeError("the listener is no ConsumerRebalanceListener")
        compiled = None
        if pattern:
            try:
                compiled = re.compile(pattern)
            except re.error as error:
                raise ValueError(f"{pattern!r} is no pattern: {error}") from error
        self._change(Interest(frozenset(topics), compiled, listener=listener))

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these. Raises IllegalStateError after ``subscribe``."""
        self._change(Interest(partitions=frozenset(partitions)))

    def _change(self, interest: Interest) -> None:
        if self._interest is not None and self._interest.kind != interest.kind:
            raise IllegalStateError(
                "topics, a pattern and partitions exclude each other: unsubscribe first"
            )
        self._interest = interest
        if self._session is not None:
            self._session.change(interest)
        elif self._started:
            self._open_session(interest)

    def unsubscribe(self) -> None:
        """Read nothing more and leave the group."""
        self._interest = None
        session, self._session = self._session, None
        if session is not None:
            self._ending = asyncio.create_task(self._end(session, self._ending))

    async def _end(self, session: Session, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await before
        await session.close()

    def subscription(self) -> frozenset[str]:
        """The topics; with a pattern those that match it now."""
        if self._session is not None:
            return self._session.topics
        return frozenset() if self._interest is None else self._interest.all_topics

    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions this consumer reads now; empty before the first assignment."""
        if self._session is not None:
            return self._session.assignment
        return (self._interest and self._interest.partitions) or frozenset()

    async def topics(self) -> set[str]:
        """The names of all topics of the cluster."""
        internal = not self._options.exclude_internal_topics
        return set(await self._translate(Admin(self._client).list_topics(internal=internal)))

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """Partition numbers of a topic the consumer knows, else None."""
        info = self._client.metadata.topics.get(topic)
        return None if info is None or info.error else set(info.partitions)

    # records

    async def getone(self, *partitions: TopicPartition) -> Record:
        """The next record (of these partitions), as soon as there is one."""
        found = await self._get(partitions, 1, None)
        return next(iter(found.values()))[0]

    async def getmany(
        self,
        *partitions: TopicPartition,
        timeout_ms: int = 0,
        max_records: int | None = None,
    ) -> dict[TopicPartition, list[Record]]:
        """What is there, by partition, waiting at most ``timeout_ms`` for the first record."""
        check_max_records(max_records)
        limit = max_records or self._options.max_poll_records
        deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
        return await self._get(partitions, limit, deadline)

    async def _get(
        self, partitions: Collection[TopicPartition], limit: int | None, deadline: float | None
    ) -> dict[TopicPartition, list[Record]]:
        assert all(isinstance(tp, TopicPartition) for tp in partitions), "not a TopicPartition"
        if self._closed:
            raise ConsumerStoppedError
        while True:
            found = self._take(partitions, limit)
            if found:
                return found
            remaining = None
            if deadline is not None:
                remaining = deadline - asyncio.get_running_loop().time()
                if remaining <= 0:
                    return {}
            await self._wait(remaining)
            if self._stopped_meanwhile():
                if deadline is None:
                    raise ConsumerStoppedError
                return {}

    def _stopped_meanwhile(self) -> bool:
        return self._closed

    def _take(
        self, partitions: Collection[TopicPartition], limit: int | None
    ) -> dict[TopicPartition, list[Record]]:
        session = self._session
        if session is None:
            return {}
        session.raise_error(partitions)
        session.on_read()
        taken = session.take(partitions, limit)
        found = {buffered.batch.tp: self._records(buffered, count) for buffered, count in taken}
        for buffered, count in taken:
            session.advance(buffered, count)
        return found

    async def _wait(self, timeout: float | None) -> None:
        session = self._session
        if session is None:
            await self._news.wait(timeout)
            return
        session.readers += 1
        try:
            await self._news.wait(timeout)
        finally:
            session.readers -= 1
            session.on_read()

    def _records(self, buffered: Buffered, count: int) -> list[Record]:
        tp, records = buffered.batch.tp, buffered.batch.records
        start = buffered.index
        load_key = self._options.key_deserializer
        load_value = self._options.value_deserializer
        made = []
        for index in range(start, start + count):
            key, value = records.keys[index], records.values[index]
            made.append(
                ConsumerRecord(
                    tp.topic,
                    tp.partition,
                    records.offsets[index],
                    records.timestamps[index],
                    CREATE_TIME,
                    key if load_key is None else load_key(key),
                    value if load_value is None else load_value(value),
                    None,
                    -1 if key is None else len(key),
                    -1 if value is None else len(value),
                    () if records.headers is None else records.headers[index],
                )
            )
        return made

    def __aiter__(self) -> Self:
        if self._closed:
            raise ConsumerStoppedError
        return self

    async def __anext__(self) -> Record:
        try:
            return await self.getone()
        except ConsumerStoppedError:
            raise StopAsyncIteration from None

    def pause(self, *partitions: TopicPartition) -> None:
        """Hand out nothing of these. Raises IllegalStateError for one that is not assigned."""
        for tp in _checked(partitions):
            self._session_of(tp).pause(tp)

    def resume(self, *partitions: TopicPartition) -> None:
        """The opposite of ``pause``."""
        for tp in _checked(partitions):
            self._session_of(tp).resume(tp)

    def paused(self) -> frozenset[TopicPartition]:
        return frozenset() if self._session is None else self._session.paused

    # positions

    async def position(self, partition: TopicPartition) -> int:
        """The offset of the next record; waits until it is known. Raises IllegalStateError."""
        while True:
            session = self._session_of(partition)
            position = session.position(partition)
            if position is not None:
                return position
            if session.in_listener:
                await self._translate(session.find_position(partition))
                continue
            session.raise_error((partition,))
            await self._news.wait()

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on at ``offset``. Raises ValueError or IllegalStateError."""
        if not isinstance(offset, int) or offset < 0:
            raise ValueError(f"{offset!r} is not an offset")
        self._session_of(partition).seek(partition, offset)

    async def seek_to_beginning(self, *partitions: TopicPartition) -> bool:
        """Go on at the oldest records of these, or of all assigned partitions."""
        return await self._seek_to(partitions, self.beginning_offsets)

    async def seek_to_end(self, *partitions: TopicPartition) -> bool:
        """Go on behind the newest records; with read_committed at the last stable offset."""
        return await self._seek_to(partitions, self.end_offsets)

    async def _seek_to(self, partitions: Collection[TopicPartition], find: Any) -> bool:
        wanted = self._assigned_or_all(partitions)
        offsets: dict[TopicPartition, int] = await find(wanted)
        for tp, offset in offsets.items():
            if tp in self.assignment():
                self.seek(tp, offset)
        return True

    async def seek_to_committed(
        self, *partitions: TopicPartition
    ) -> dict[TopicPartition, int | None]:
        """Go on at the committed offsets and return them; None = nothing moves."""
        offsets = {tp: await self.committed(tp) for tp in self._assigned_or_all(partitions)}
        for tp, offset in offsets.items():
            if offset is not None and tp in self.assignment():
                self.seek(tp, offset)
        return offsets

    async def beginning_offsets(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """The oldest offsets. Raises KafkaTimeoutError when a partition does not answer."""
        found = await self._list_offsets(dict.fromkeys(partitions, EARLIEST))
        return {tp: at.offset for tp, at in found.items()}

    async def end_offsets(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """The offsets of the next records to come; with read_committed the last stable offsets."""
        found = await self._list_offsets(dict.fromkeys(partitions, LATEST))
        return {tp: at.offset for tp, at in found.items()}

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first records at or after these times (ms); None where there is none."""
        for tp, at in timestamps.items():
            if at < 0:
                raise ValueError(f"the time {at} for {tp} is negative")
        found = await self._list_offsets(timestamps)
        return {
            tp: None if at.offset < 0 else OffsetAndTimestamp(at.offset, at.timestamp)
            for tp, at in found.items()
        }

    async def _list_offsets(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, FoundOffset]:
        isolation = self._options.isolation_level
        try:
            return await list_offsets(self._client, timestamps, isolation=isolation)
        except ClientError as error:
            if error.retriable:
                raise KafkaTimeoutError(f"no answer in time: {error}") from error
            raise translated(error) from error

    def highwater(self, partition: TopicPartition) -> int | None:
        """The offset the next record will get, as last heard; None before anything was."""
        marks = self._marks(partition)
        return None if marks is None else marks.high_watermark

    def last_stable_offset(self, partition: TopicPartition) -> int | None:
        """Where the first open transaction begins; -1 with read_uncommitted."""
        marks = self._marks(partition)
        if marks is None:
            return None
        return marks.last_stable_offset if self._stable else -1

    def last_poll_timestamp(self, partition: TopicPartition) -> int | None:
        """When those two were heard, in ms."""
        marks = self._marks(partition)
        return None if marks is None else marks.at

    # commits

    async def commit(self, offsets: Offsets | None = None) -> None:
        """Commit these positions, or those of all partitions.

        Raises IllegalOperation without a group, IllegalStateError for partitions that are not
        assigned, CommitFailedError when they may belong to somebody else now.
        """
        if self._options.group_id is None:
            raise IllegalOperation("committing needs a group_id")
        session = self._session
        if session is None:
            raise IllegalStateError("not subscribed to any topics")
        if not session.has_assignment:
            raise IllegalStateError("no partitions are assigned")
        if offsets is None:
            await session.commit(session.consumed())
            return
        checked = validate_offsets(offsets)
        for tp in checked:
            self._session_of(tp)
        await session.commit(checked)

    async def committed(self, partition: TopicPartition) -> int | None:
        """What the group committed, None if nothing. With read_committed it waits for undecided
        transactions.
        """
        if self._options.group_id is None:
            raise IllegalOperation("committed offsets need a group_id")
        found = await self._translate(
            fetch_offsets(
                self._client,
                self._options.group_id,
                [partition],
                require_stable=self._stable,
                timeout_ms=self._options.request_timeout_ms,
            )
        )
        offset = found[partition]
        return None if offset is None else offset.offset

    def group_metadata(self) -> GroupMetadata:
        """For ``send_offsets_to_transaction``: lets the broker refuse an outdated consumer."""
        if self._options.group_id is None:
            raise IllegalOperation("a group's metadata needs a group_id")
        if self._session is None or self._interest is None or self._interest.partitions is not None:
            return GroupMetadata(self._options.group_id)
        return self._session.group_metadata

    # shared

    @property
    def _stable(self) -> bool:
        return self._options.isolation_level == "read_committed"

    def _session_of(self, tp: TopicPartition) -> Session:
        if self._session is None or tp not in self._session.assignment:
            raise IllegalStateError(f"{tp} is not assigned")
        return self._session

    def _marks(self, tp: TopicPartition) -> Marks | None:
        return self._session_of(tp).marks(tp)

    def _assigned_or_all(self, partitions: Collection[TopicPartition]) -> list[TopicPartition]:
        wanted = _checked(partitions) or sorted(self.assignment())
        if not wanted:
            raise IllegalStateError("no partitions are assigned")
        for tp in wanted:
            self._session_of(tp)
        return wanted

    async def _translate(self, call: Awaitable[T]) -> T:
        try:
            return await call
        except ClientError as error:
            raise translated(error) from error


def _checked(partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
    wanted = list(partitions)
    if not all(isinstance(tp, TopicPartition) for tp in wanted):
        raise TypeError("partitions are TopicPartition instances")
    return wanted
