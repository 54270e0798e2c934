"""Everything that speaks Kafka: the embedded broker, and the client the engine runs on.

``Broker`` is loaded when it is first used: a program that only needs ``onceward.broker.client``
does not pay for the server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .broker import Broker, BrokerFailed

__all__ = ["Broker", "BrokerFailed"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from . import broker

        return getattr(broker, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
