"""What a handler is given besides the request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..config import BrokerConfig
from ..coordinator.group.group_coordinator import GroupCoordinator
from ..coordinator.transaction.marker_writer import MarkerSink
from ..coordinator.transaction.transaction_coordinator import TransactionCoordinator
from ..log.log_manager import LogManager
from ..metadata import ClusterMetadata
from ..protocol.api import ApiKey
from ..protocol.headers import RequestHeader
from ..server.connection import Address, Peer
from ..server.deferred import Deferred
from ..server.purgatory import Purgatory
from ..topics import Topics
from ..types import Clock


@dataclass(slots=True, frozen=True)
class Services:
    """The broker's parts, as handlers see them.

    ``apis`` is what ApiVersions announces; ``advertised`` overrides the address a client connected
    to.
    """

    apis: Mapping[int, Entry]
    config: BrokerConfig
    metadata: ClusterMetadata
    logs: LogManager
    topics: Topics
    purgatory: Purgatory
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    markers: MarkerSink
    clock: Clock
    advertised: Address | None
    data_dir: str


class RequestContext(NamedTuple):
    """One request: its header, its connection and the broker."""

    header: RequestHeader
    peer: Peer
    services: Services

    @property
    def version(self) -> int:
        return self.header.api_version

    @property
    def client_id(self) -> str:
        return self.header.client_id or ""

    @property
    def address(self) -> Address:
        """Where this client reaches the broker again: as configured, else as it did now."""
        return self.services.advertised or self.peer.local


Handle = Callable[[RequestContext, Any], Awaitable[Any]]
"""Returns the response message, a ``Deferred`` of it, or None where none is sent."""


class Entry(NamedTuple):
    """One API as this broker serves it.

    ``advertised_min`` may be below ``min_version``: such versions are announced and still refused.
    ``changes_state``: a bug in this handler may leave log or coordinator inconsistent.
    """

    key: ApiKey
    min_version: int
    max_version: int
    handle: Handle
    changes_state: bool = False
    advertised_min: int | None = None


__all__ = ["Deferred", "Entry", "Handle", "RequestContext", "Services"]
