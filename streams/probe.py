"""Finding the topics behind ``group_by`` and ``through`` before an app is subscribed to anything.

They are called inside agents. An agent whose code names them is run once, at the start of a worker,
up to the point where it waits for its first record; what it called by then is known.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import types
from collections.abc import AsyncIterator, Iterator
from typing import Any, cast

from .agent import Agent
from .engine.feed import Slot
from .stream import source_stream

logger = logging.getLogger(__name__)

_PATIENCE_S = 5.0
_OPERATORS = frozenset({"group_by", "through"})


async def learn_stages(agent: Agent) -> None:
    """Fill in ``agent.stage_topics``. Raises ConfigurationError for a wrong ``group_by``."""
    if agent.is_probed:
        return
    if _names_an_operator(agent.fun):
        await _run_to_first_wait(agent)
    agent.is_probed = True


def _names_an_operator(fun: Any) -> bool:
    while isinstance(fun, functools.partial):
        fun = fun.func
    fun = inspect.unwrap(getattr(fun, "__func__", fun))
    code = getattr(fun, "__code__", None)
    if code is None and not inspect.isfunction(fun):
        code = getattr(inspect.getattr_static(type(fun), "__call__", None), "__code__", None)
    return code is None or not _OPERATORS.isdisjoint(_names(code))


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)


async def _run_to_first_wait(agent: Agent) -> None:
    waiting = asyncio.Event()

    async def no_records() -> AsyncIterator[Any]:
        waiting.set()
        await asyncio.Event().wait()
        yield None

    node = types.SimpleNamespace(agent=agent)
    slot = types.SimpleNamespace(
        feed=types.SimpleNamespace(node=node), stage=0, records=no_records, held=[], alarm=None
    )

    async def run() -> None:
        result = agent.fun(source_stream(cast(Slot, slot)))
        if inspect.isasyncgen(result):
            async for _ in result:
                pass
        else:
            await result

    running = asyncio.ensure_future(run())
    arrived = asyncio.ensure_future(waiting.wait())
    try:
        await asyncio.wait(
            [running, arrived], timeout=_PATIENCE_S, return_when=asyncio.FIRST_COMPLETED
        )
    finally:
        arrived.cancel()
        if running.done() and not running.cancelled():
            running.result()
        running.cancel()
        await asyncio.wait([running])
