"""An answer that comes later: the second stage of a request.

A handler's first stage runs in request order. When the rest is only waiting (a long poll, a parked
join, an append that waits for its flush) it returns a ``Deferred``: the next request of the
connection is handled meanwhile, and answers still leave in request order.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Generic, TypeVar

T = TypeVar("T")


class Deferred(Generic[T]):
    """``awaitable`` yields the answer.

    ``abandonable``: nothing but this connection needs the rest, so it is cancelled when the
    connection closes. Everything else runs to its end unseen: a coordinator operation has effects
    after the wait.
    """

    __slots__ = ("abandonable", "awaitable")

    def __init__(self, awaitable: Awaitable[T], *, abandonable: bool = False) -> None:
        self.awaitable = awaitable
        self.abandonable = abandonable
