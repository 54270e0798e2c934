"""What the coordinators see of the logs: adapters between their ports and ``log``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .coordinator.log_writer import LoadedBatch
from .coordinator.result import Record
from .errors import ErrorCode, KafkaError
from .log.log_manager import LogManager
from .log.partition_log import PartitionLog
from .log.producer_state import VerificationGuard
from .log.results import Origin
from .metadata import ClusterMetadata
from .records.codec import decode, encode
from .records.control import parse_end_marker
from .server.purgatory import Purgatory
from .types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, Buffer, Clock, TopicPartition

_BATCHES_PER_DECODE = 256


async def wait_until_flushed(
    log: PartitionLog, offset: int, logs: LogManager, purgatory: Purgatory
) -> None:
    """Return when the high watermark is above ``offset``; never gives up before the log is gone.

    Raises KafkaError: 3 the partition was deleted, 6 the broker is stopping.
    """
    if log.high_watermark > offset:
        return

    def settled() -> bool:
        return log.high_watermark > offset or logs.get(log.tp) is not log

    await purgatory.wait((log.tp,), settled, None)
    if log.high_watermark > offset:
        return
    if logs.get(log.tp) is not log:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{log.tp} is gone")
    raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the broker is stopping")


class CoordinatorLog:
    """The partitions of one internal topic: a ``LogWriter``."""

    def __init__(self, topic: str, *, logs: LogManager, purgatory: Purgatory, clock: Clock) -> None:
        self._topic = topic
        self._logs = logs
        self._purgatory = purgatory
        self._clock = clock

    def _log(self, partition: int) -> PartitionLog:
        log = self._logs.get(TopicPartition(self._topic, partition))
        if log is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{self._topic}-{partition} does not exist"
            )
        return log

    def append(
        self,
        partition: int,
        records: Sequence[Record],
        *,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        transactional: bool = False,
        guard: object | None = None,
    ) -> tuple[int, int]:
        """Append one batch; see ``LogWriter``. ``guard`` is one of that partition's log."""
        assert guard is None or isinstance(guard, VerificationGuard)
        now_ms = self._clock()
        batch = encode(
            [key for key, _ in records],
            [value for _, value in records],
            timestamps=now_ms,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            transactional=transactional,
        )
        appended = self._log(partition).append(
            batch, now_ms=now_ms, origin=Origin.COORDINATOR, guard=guard
        )
        return appended.base_offset, appended.last_offset

    def append_marker(
        self,
        partition: int,
        *,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        commit: bool,
        transaction_version: int,
    ) -> int:
        """Append the end of a transaction; see ``LogWriter``."""
        appended = self._log(partition).append_marker(
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            coordinator_epoch=coordinator_epoch,
            commit=commit,
            now_ms=self._clock(),
            transaction_version=transaction_version,
        )
        return appended.last_offset

    async def committed(self, partition: int, offset: int) -> None:
        """Wait for the flush; see ``LogWriter``."""
        await wait_until_flushed(self._log(partition), offset, self._logs, self._purgatory)

    def read_all(self, partition: int) -> Iterator[LoadedBatch]:
        """Every batch from the log start to the log end, flushed or not."""
        log = self._log(partition)
        plain: list[Buffer] = []
        for batch in log.read_all(log.log_start_offset):
            header = batch.header
            if not (header.is_transactional or header.is_control):
                plain.append(batch.data)
                if len(plain) < _BATCHES_PER_DECODE:
                    continue
            yield from _loaded(plain, NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
            plain.clear()
            if header.is_control:
                yield LoadedBatch(
                    header.base_offset,
                    header.producer_id,
                    header.producer_epoch,
                    parse_end_marker(batch.data).commit,
                    [],
                )
            elif header.is_transactional:
                yield from _loaded([batch.data], header.producer_id, header.producer_epoch)
        yield from _loaded(plain, NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


def _loaded(
    batches: Sequence[Buffer], producer_id: int, producer_epoch: int
) -> Iterator[LoadedBatch]:
    """The batches as one, or as one per gapless run where compaction left holes."""
    decoded = decode(b"".join(batches)) if batches else None
    if decoded is None or not decoded.offsets:
        return
    offsets = decoded.offsets
    records = [(key or b"", value) for key, value in zip(decoded.keys, decoded.values, strict=True)]
    start = 0
    if offsets[-1] - offsets[0] >= len(offsets):
        for end in range(1, len(offsets)):
            if offsets[end] != offsets[end - 1] + 1:
                yield LoadedBatch(
                    offsets[start], producer_id, producer_epoch, None, records[start:end]
                )
                start = end
    yield LoadedBatch(offsets[start], producer_id, producer_epoch, None, records[start:])


class PartitionMarkers:
    """Ends transactions on data partitions: a ``MarkerSink``."""

    def __init__(self, *, logs: LogManager, purgatory: Purgatory, clock: Clock) -> None:
        self._logs = logs
        self._purgatory = purgatory
        self._clock = clock

    async def write_marker(
        self,
        tp: TopicPartition,
        *,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        commit: bool,
        transaction_version: int,
    ) -> None:
        """Append the marker and wait for its flush; see ``MarkerSink``."""
        log = self._logs.get(tp)
        if log is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{tp} does not exist")
        appended = log.append_marker(
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            coordinator_epoch=coordinator_epoch,
            commit=commit,
            now_ms=self._clock(),
            transaction_version=transaction_version,
        )
        await wait_until_flushed(log, appended.last_offset, self._logs, self._purgatory)


class MetadataProducerIds:
    """Blocks of producer ids from the metadata document: a ``ProducerIdStore``."""

    def __init__(self, metadata: ClusterMetadata) -> None:
        self._metadata = metadata

    def reserve(self, count: int) -> int:
        return self._metadata.reserve_producer_ids(count)
