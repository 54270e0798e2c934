"""Listens to what workers and the broker say, and writes down what verdicts need to tell.

In simulation only for runs that are to be explained: decoding every frame costs more than the run
itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from onceward.broker.errors import ErrorCode, ProtocolError
from onceward.broker.protocol.api import ApiKey
from onceward.broker.protocol.codec import decode_request, decode_response
from onceward.broker.protocol.frame import FrameDecoder
from onceward.broker.protocol.headers import RequestHeader
from onceward.broker.records.batch import iter_headers
from onceward.broker.records.codec import decode

from .cluster import BROKER, CLIENT, SimCluster
from .history import Event, Position

if TYPE_CHECKING:
    from .sim.host import Host

_MAX_FRAME = 512 * 1024 * 1024


class FrameNotes:
    """``events`` from the frames of workers, in the order in which they are given.

    ``now`` is the run's clock; a connection is any number that stays the same.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self.events: list[Event] = []
        self._now = now
        self._asked: dict[tuple[int, int], tuple[RequestHeader, Any]] = {}
        self._written: defaultdict[str, list[Position]] = defaultdict(list)

    def _note(self, host: str, what: str, detail: str, positions: Any = ()) -> None:
        self.events.append(Event(self._now(), host, what, detail, tuple(positions)))

    def request(self, host: str, connection: int, frame: bytes) -> None:
        """``host`` asked. Raises ProtocolError."""
        header, message = decode_request(frame)
        self._asked[connection, header.correlation_id] = header, message
        if header.api_key == ApiKey.END_TXN:
            what = "end_txn commit" if message.committed else "end_txn abort"
            detail = f"{message.transactional_id} epoch {message.producer_epoch}"
            self._note(host, what, detail, self._written.pop(message.transactional_id, ()))

    def answer(self, host: str, connection: int, frame: bytes) -> None:
        """``host`` was answered. Raises ProtocolError."""
        asked = self._asked.pop((connection, int.from_bytes(frame[:4], "big")), None)
        if asked is None:
            return
        header, message = asked
        _, answer = decode_response(header.api_key, header.api_version, frame)
        tell = _TOLD.get(header.api_key)
        if tell is not None:
            for what, detail, positions in tell(self, message, answer):
                self._note(host, what, detail, positions)

    def produced(self, message: Any, answer: Any) -> _Told:
        sizes = {
            (topic.name, data.index): sum(h.records_count for _, h in iter_headers(data.records))
            for topic in message.topic_data
            for data in topic.partition_data
        }
        who = message.transactional_id or ""
        for topic in answer.responses:
            for each in topic.partition_responses:
                if each.error_code:
                    place = f"{topic.name}-{each.index}"
                    yield f"produce {_name(each.error_code)}", f"{who} to {place}", ()
                    continue
                count = sizes.get((topic.name, each.index), 0)
                positions = [
                    Position(topic.name, each.index, each.base_offset + number)
                    for number in range(count)
                ]
                self._written[who] += positions
                yield "produced", who, positions

    def fetched(self, _: Any, answer: Any) -> _Told:
        positions = []
        for topic in answer.responses:
            for each in topic.partitions:
                if each.records and not isinstance(each.records, list):
                    offsets = decode(each.records).offsets
                    positions += [Position(topic.topic, each.partition_index, o) for o in offsets]
        if positions:
            yield "fetched", "", positions

    def offsets(self, message: Any, answer: Any) -> _Told:
        asked = {
            (topic.name, each.partition_index): each.committed_offset
            for topic in message.topics
            for each in topic.partitions
        }
        for topic in answer.topics:
            for each in topic.partitions:
                place = topic.name, each.partition_index
                what = f"offset {asked.get(place)} of {topic.name}-{each.partition_index}"
                if each.error_code:
                    yield f"commit {_name(each.error_code)}", what, ()
                    continue
                before = Position(*place, asked.get(place, 0) - 1)
                yield "offset sent", what, [before]

    def initialised(self, message: Any, answer: Any) -> _Told:
        if not answer.error_code:  # what its predecessor left open is aborted
            self._written.pop(message.transactional_id or "", None)
        yield from self.simple(message, answer)

    def simple(self, _: Any, answer: Any) -> _Told:
        if answer.error_code:
            yield _name(answer.error_code), f"answers {type(answer).__name__}", ()


class Tap(FrameNotes):
    """Of one simulated cluster, from now on. Only workers are listened to."""

    def __init__(self, cluster: SimCluster) -> None:
        world = cluster.world
        super().__init__(lambda: world.now)
        self._frames: dict[tuple[int, bool], FrameDecoder] = {}
        world.network.on_segment = self._segment

    def _segment(self, source: Host, target: Host, connection: int, data: bytes) -> None:
        if CLIENT in (source.name, target.name):
            return
        is_request = target.name == BROKER
        stream = connection, is_request
        decoder = self._frames.setdefault(stream, FrameDecoder(_MAX_FRAME))
        try:
            for frame in decoder.feed(data):
                if is_request:
                    self.request(source.name, connection, frame)
                else:
                    self.answer(target.name, connection, frame)
        except ProtocolError as error:
            self._note(source.name, "garbage", str(error))


_Told = Iterator[tuple[str, str, Any]]

_TOLD: dict[int, Callable[[FrameNotes, Any, Any], _Told]] = {
    ApiKey.PRODUCE: FrameNotes.produced,
    ApiKey.FETCH: FrameNotes.fetched,
    ApiKey.TXN_OFFSET_COMMIT: FrameNotes.offsets,
    ApiKey.OFFSET_COMMIT: FrameNotes.offsets,
    ApiKey.END_TXN: FrameNotes.simple,
    ApiKey.INIT_PRODUCER_ID: FrameNotes.initialised,
    ApiKey.HEARTBEAT: FrameNotes.simple,
    ApiKey.JOIN_GROUP: FrameNotes.simple,
    ApiKey.SYNC_GROUP: FrameNotes.simple,
}


def _name(code: int) -> str:
    return ErrorCode(code).name
