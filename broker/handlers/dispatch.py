"""From a frame to the encoded answer: decode, find the handler, run it, encode."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

from ..errors import KafkaError, ProtocolError, UnsupportedVersionError
from ..protocol.api import ApiKey
from ..protocol.codec import decode_request, encode_response
from ..protocol.headers import RequestHeader
from ..server.connection import Answer, Peer
from ..server.deferred import Deferred
from . import api_versions
from .context import Entry, RequestContext, Services


class _BugReport:
    """Context manager: tells ``report`` when a state-changing handler dies of a bug of ours.

    It looks at the exception on its way out and never swallows it.
    """

    __slots__ = ("_entry", "_report")

    def __init__(self, entry: Entry, report: Callable[[BaseException], None]) -> None:
        self._entry = entry
        self._report = report

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        expected = isinstance(error, ProtocolError | KafkaError) or not isinstance(error, Exception)
        if error is not None and not expected and self._entry.changes_state:
            self._report(error)


class Dispatcher:
    """``serve`` is what connections call. ``on_inconsistent`` is told of bugs that must stop us."""

    def __init__(
        self,
        services: Services,
        entries: Mapping[int, Entry],
        on_inconsistent: Callable[[BaseException], None],
    ) -> None:
        self._services = services
        self._entries = entries
        self._on_inconsistent = on_inconsistent

    async def serve(self, peer: Peer, frame: bytes) -> Answer | Deferred[Answer]:
        """Raises ProtocolError for frames Kafka answers by closing the connection."""
        try:
            header, request = decode_request(frame)
        except UnsupportedVersionError as error:
            if error.api_key != ApiKey.API_VERSIONS:
                raise
            response = api_versions.unsupported_version()
            return encode_response(error.api_key, 0, error.correlation_id, response)
        entry = self._entry(header)
        context = RequestContext(header, peer, self._services)
        with _BugReport(entry, self._on_inconsistent):
            response = await entry.handle(context, request)
        if isinstance(response, Deferred):
            later = self._later(entry, header, response)
            return Deferred(later, abandonable=response.abandonable)
        return _encode(header, response)

    def _entry(self, header: RequestHeader) -> Entry:
        entry = self._entries.get(header.api_key)
        if entry is None or not entry.min_version <= header.api_version <= entry.max_version:
            raise UnsupportedVersionError(header.api_key, header.api_version, header.correlation_id)
        return entry

    async def _later(self, entry: Entry, header: RequestHeader, deferred: Deferred[Any]) -> Answer:
        with _BugReport(entry, self._on_inconsistent):
            response = await deferred.awaitable
        return _encode(header, response)


def _encode(header: RequestHeader, response: Any) -> Answer:
    if response is None:
        return None
    return encode_response(header.api_key, header.api_version, header.correlation_id, response)
