"""Fetching: which partitions from which node, one fetch ahead, decoded batch by batch."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, NamedTuple

from ..errors import ErrorCode, KafkaError
from ..protocol.messages import FetchRequest, FetchResponse
from ..records.codec import decode
from ..types import Buffer, TopicPartition
from .cluster import Client
from .errors import kafka_error
from .offsets import Isolation, isolation_level
from .positions import FetchedBatch, PartitionState, PartitionStates

__all__ = ["FetchConfig", "FetchedBatch", "Fetcher"]

FETCH_MAX_VERSION = 12
LANES_PER_NODE = 2


class FetchConfig(NamedTuple):
    """Limits in bytes and ms, as Kafka's consumer configs of the same names."""

    isolation: Isolation
    min_bytes: int
    max_bytes: int
    max_partition_bytes: int
    max_wait_ms: int
    check_crcs: bool


class _Asked(NamedTuple):
    """A partition in a fetch: the answer counts only if nothing moved meanwhile."""

    state: PartitionState
    version: int
    offset: int
    leader_epoch: int


class Fetcher:
    """Keeps one fetch ahead of the application.

    ``pump`` sends what can be sent; it is called after everything that may have made something
    fetchable. A node is asked again only when its data was taken, so that one request covers all
    its partitions; a second lane serves partitions that came while a long poll is out. ``on_ready``
    is called when data or an error came.
    """

    def __init__(
        self,
        client: Client,
        states: PartitionStates,
        config: FetchConfig,
        *,
        on_ready: Callable[[], None],
    ) -> None:
        self._client = client
        self._states = states
        self._config = config
        self._isolation_level = isolation_level(config.isolation)
        self._on_ready = on_ready
        self._lanes = [client.new_lane("fetch") for _ in range(LANES_PER_NODE)]
        self._busy: defaultdict[int, set[str]] = defaultdict(set)
        self._tasks: set[asyncio.Task[None]] = set()
        self._failures = 0
        self._stopped = False
        self.errors: list[BaseException] = []

    async def stop(self) -> None:
        """Cancel what is in flight and close the lanes. Idempotent."""
        self._stopped = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for lane in self._lanes:
            self._client.close_lane(lane)

    def pump(self) -> None:
        """Send a fetch to every node that has fetchable partitions and a free lane."""
        if self._stopped:
            return
        metadata = self._client.metadata
        now = asyncio.get_running_loop().time()
        by_node: defaultdict[int, list[_Asked]] = defaultdict(list)
        leaderless = []
        for state in self._states.fetchable(now):
            info = metadata.partition(state.tp)
            if info is None:
                leaderless.append(state)
                continue
            assert state.position is not None
            asked = _Asked(state, state.version, state.position, info.leader_epoch)
            by_node[info.leader].append(asked)
        if leaderless:
            self._retry_later(leaderless, refresh=True)
        waiting = {metadata.partition(state.tp) for state in self._states.untaken()}
        untaken = {info.leader for info in waiting if info is not None}
        for node_id, wanted in by_node.items():
            if node_id not in untaken:
                self._send(node_id, wanted)

    def _send(self, node_id: int, wanted: Sequence[_Asked]) -> None:
        free = [lane for lane in self._lanes if lane not in self._busy[node_id]]
        if not free:
            return
        self._busy[node_id].add(free[0])
        for asked in wanted:
            asked.state.in_flight = True
        self._spawn(self._fetch(node_id, free[0], wanted))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_done)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.errors.append(error)
        self.pump()
        self._on_ready()

    async def _fetch(self, node_id: int, lane: str, wanted: Sequence[_Asked]) -> None:
        config = self._config
        try:
            response = await self._client.request(
                node_id,
                self._request(wanted),
                lane=lane,
                max_version=FETCH_MAX_VERSION,
                timeout_ms=self._client.request_timeout_ms + config.max_wait_ms,
            )
            if response.error_code:
                raise kafka_error(response.error_code, f"Fetch from node {node_id}")
        except KafkaError as error:
            self._retry_later([a.state for a in self._current(wanted)], refresh=True)
            if not error.retriable:
                raise
        else:
            self._failures = 0
            self._apply(wanted, response)
        finally:
            self._busy[node_id].discard(lane)

    def _request(self, wanted: Sequence[_Asked]) -> FetchRequest:
        config = self._config
        topics: dict[str, FetchRequest.FetchTopic] = {}
        for asked in wanted:
            tp = asked.state.tp
            topic = topics.setdefault(tp.topic, FetchRequest.FetchTopic(topic=tp.topic))
            topic.partitions.append(
                FetchRequest.FetchPartition(
                    partition=tp.partition,
                    current_leader_epoch=asked.leader_epoch,
                    fetch_offset=asked.offset,
                    partition_max_bytes=config.max_partition_bytes,
                )
            )
        return FetchRequest(
            max_wait_ms=config.max_wait_ms,
            min_bytes=config.min_bytes,
            max_bytes=config.max_bytes,
            isolation_level=self._isolation_level,
            topics=list(topics.values()),
        )

    def _current(self, wanted: Iterable[_Asked]) -> list[_Asked]:
        """Those not moved or revoked since; they are in flight no longer."""
        current = [a for a in wanted if self._states.is_current(a.state, a.version)]
        for asked in current:
            asked.state.in_flight = False
        return current

    def _apply(self, wanted: Sequence[_Asked], response: FetchResponse) -> None:
        current = {asked.state.tp: asked for asked in self._current(wanted)}
        for topic in response.responses:
            for partition in topic.partitions:
                asked = current.get(TopicPartition(topic.topic, partition.partition_index))
                if asked is None:
                    continue
                if partition.error_code:
                    self._on_partition_error(asked.state, partition.error_code)
                elif partition.records is not None and len(partition.records):
                    self._buffer(asked, partition)

    def _buffer(self, asked: _Asked, partition: FetchResponse.PartitionData) -> None:
        raw = partition.records
        assert raw is not None and not isinstance(raw, list)
        state = asked.state
        try:
            records = self._decode(raw, asked.offset, partition)
        except KafkaError as error:
            self.errors.append(KafkaError(error.code, f"{state.tp}: {error.message}"))
            self._retry_later([state], refresh=False)
            return
        if records.next_offset > asked.offset:
            state.buffered = FetchedBatch(
                state.tp,
                records,
                partition.high_watermark,
                partition.last_stable_offset,
                asked.leader_epoch,
            )

    def _decode(self, raw: Buffer, offset: int, partition: FetchResponse.PartitionData) -> Any:
        aborted = partition.aborted_transactions or ()
        return decode(
            raw,
            start_offset=offset,
            check_crcs=self._config.check_crcs,
            aborted=[(a.producer_id, a.first_offset) for a in aborted],
            read_committed=self._isolation_level == 1,
        )

    def _on_partition_error(self, state: PartitionState, code: int) -> None:
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            state.lose_position()
            return
        self._retry_later([state], refresh=True)
        error = kafka_error(code, f"fetching {state.tp}")
        if not error.retriable:
            self.errors.append(error)

    def _retry_later(self, states: Iterable[PartitionState], *, refresh: bool) -> None:
        loop = asyncio.get_running_loop()
        self._failures += 1
        retry_at = loop.time() + self._client.backoff.delay(self._failures)
        for state in states:
            state.retry_at = retry_at
        if refresh:
            self._client.request_metadata_refresh()
        loop.call_at(retry_at + 0.001, self.pump)
