"""Who is sending: the one context variable behind ``topic.send``, tables and ``current_event``."""

from __future__ import annotations

from collections.abc import Awaitable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final, Protocol, cast

from . import kernel
from .output import Outputs

if TYPE_CHECKING:
    from ..state import StoreTransaction


class Emitter(Protocol):
    """Where effects of the running code go: an agent's slot, or the worker (timers, tasks)."""

    @property
    def outputs(self) -> Outputs: ...

    @property
    def stores(self) -> dict[str, StoreTransaction] | None:
        """Open table partitions by table name; None where tables cannot be written."""

    def timestamp_ms(self) -> int:
        """Timestamp of what is sent now."""

    def sent(self) -> Awaitable[None]:
        """What ``await topic.send()`` waits for."""


class _Sent(tuple):  # type: ignore[type-arg]
    """An awaitable that is done: awaiting it costs no Python call."""

    __slots__ = ()
    __await__ = tuple.__iter__


SENT = cast("Awaitable[None]", _Sent())

CURRENT: Final[ContextVar[Emitter | None]] = kernel.CURRENT
