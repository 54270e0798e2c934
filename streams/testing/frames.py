"""Kafka's frames in the byte streams between hosts: which API a chunk of bytes belongs to."""

from __future__ import annotations

from dataclasses import dataclass, field

from onceward.broker.protocol.api import ApiKey

_NAMES = {int(key): key.name for key in ApiKey}
_REQUEST_HEAD = 12
"""Size, api key, version, correlation id."""
_RESPONSE_HEAD = 8
"""Size, correlation id."""


@dataclass(slots=True)
class _Stream:
    """One direction of one connection."""

    head: bytearray = field(default_factory=bytearray)
    missing: int = 0


class FrameWatch:
    """Names the APIs of frames as they *begin* in a stream.

    ``server`` is the host that answers. Requests must be fed before their answers, from the same
    point in time on; a connection watched from its middle is named wrongly, so watch from the
    start.
    """

    def __init__(self, server: str) -> None:
        self._server = server
        self._streams: dict[tuple[int, bool, bool], _Stream] = {}
        self._asked: dict[tuple[int, int], str] = {}

    def feed(self, kind: str, host: str, connection: int, data: bytes) -> list[str]:
        """The frames that begin in ``data``, which ``host`` sends or receives (``kind``)."""
        sending = kind == "send"
        request = sending != (host == self._server)
        stream = self._streams.setdefault((connection, sending, request), _Stream())
        size = _REQUEST_HEAD if request else _RESPONSE_HEAD
        names: list[str] = []
        position = 0
        while position < len(data):
            if stream.missing:
                skipped = min(stream.missing, len(data) - position)
                stream.missing -= skipped
                position += skipped
                continue
            taken = data[position : position + size - len(stream.head)]
            stream.head += taken
            position += len(taken)
            if len(stream.head) == size:
                names.append(self._name(connection, request, stream))
        return names

    def _name(self, connection: int, request: bool, stream: _Stream) -> str:
        head, stream.head = bytes(stream.head), bytearray()
        stream.missing = max(int.from_bytes(head[:4], "big") + 4 - len(head), 0)
        correlation_id = int.from_bytes(head[-4:], "big")
        if not request:
            return self._asked.get((connection, correlation_id), "")
        key = int.from_bytes(head[4:6], "big")
        name = _NAMES.get(key) or str(key)
        self._asked[connection, correlation_id] = name
        return name
