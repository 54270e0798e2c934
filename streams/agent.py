"""Agents: decorated async functions, and how one of their coroutines is run."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from .engine.feed import Slot
from .errors import ConfigurationError
from .options import missing
from .stream import source_stream
from .topic import Topic

if TYPE_CHECKING:
    from .app import App
    from .table import Table

Deliver = Callable[[Any], Awaitable[Any] | None]


class Agent:
    """An agent of an app; made by ``@app.agent``. ``sources`` are the names of the topics it
    reads."""

    def __init__(
        self,
        app: App,
        fun: Callable[..., Any],
        topic: Topic,
        *,
        name: str,
        concurrency: int = 1,
        sink: Sequence[Any] = (),
        tables: Sequence[Table] = (),
    ) -> None:
        if concurrency < 1:
            raise ConfigurationError(f"agent {name!r}: concurrency must be at least 1")
        self.app = app
        self.fun = fun
        self.topic = topic
        self.name = name
        self.concurrency = concurrency
        self.tables = tuple(tables)
        self.stage_topics: list[Topic] = []
        self.is_probed = False
        self._sinks = list(sink)
        self._deliver = [_deliver_to(one) for one in self._sinks]

    def __repr__(self) -> str:
        return f"<Agent {self.name}>"

    if not TYPE_CHECKING:  # a type checker must go on finding misspelt names

        def __getattr__(self, name: str) -> object:
            raise missing("Agent", name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function itself."""
        return self.fun(*args, **kwargs)

    @property
    def channel(self) -> Topic:
        return self.topic

    @property
    def sinks(self) -> list[Any]:
        return list(self._sinks)

    def add_sink(self, sink: Any) -> None:
        """Also send what the agent yields to ``sink``: a topic, an agent, a callable or a sink
        object."""
        self._sinks.append(sink)
        self._deliver.append(_deliver_to(sink))

    def send(self, *, key: Any = None, value: Any = None, **options: Any) -> Awaitable[None]:
        """Send to the agent's topic; see ``Topic.send``."""
        return self.topic.send(key=key, value=value, **options)

    def cast(self, value: Any = None, *, key: Any = None, **options: Any) -> Awaitable[None]:
        """Send to the agent's topic without waiting for a reply."""
        return self.topic.send(key=key, value=value, **options)

    async def ask(self, value: Any = None, **options: Any) -> Any:
        """Not available yet: replies need a reply topic."""
        raise NotImplementedError(
            "agent.ask is not available yet: send with agent.cast and read the agent's sink topic"
        )

    def stage_topic(
        self, stage: int, label: str, topic: Topic | None, partitions: int | None
    ) -> Topic:
        """The topic behind the ``stage``-th ``group_by`` or ``through`` of this agent.

        Learned when the app starts; a call that was not seen then is an error.
        """
        if stage < len(self.stage_topics):
            return self.stage_topics[stage]
        if self.is_probed:
            raise ConfigurationError(
                f"agent {self.name!r} calls group_by or through where it was not seen when the app "
                "started: call it in the agent's body before anything is awaited"
            )
        if topic is None:
            source = self.stage_topics[-1] if self.stage_topics else self.topic
            topic = self.app.topic(
                f"{self.app.conf.id}-{self.name}-{label}-repartition",
                value_type=source.value_type,
                value_serializer=source.value_codec,
                partitions=partitions,
                internal=True,
            )
        self.stage_topics.append(topic)
        return topic

    async def run(self, slot: Slot) -> None:
        """One coroutine of the agent: until its function returns or raises."""
        result = self.fun(source_stream(slot))
        if inspect.isawaitable(result):
            await result
            return
        if not inspect.isasyncgen(result) and not isinstance(result, AsyncIterator):
            raise TypeError(f"agent {self.name!r} must be an async function")
        if not self._deliver:
            async for _ in result:
                pass
            return
        done = slot.done
        async for value in result:
            for deliver in self._deliver:
                waiting = deliver(value)
                if waiting is not done and waiting is not None and inspect.isawaitable(waiting):
                    await waiting


def _deliver_to(sink: Any) -> Deliver:
    if isinstance(sink, Topic):
        return lambda value: sink.send(value=value)
    if isinstance(sink, Agent):
        return lambda value: sink.topic.send(value=value)
    if hasattr(sink, "write"):
        write: Deliver = sink.write
        return write
    if callable(sink):
        call: Deliver = sink
        return call
    raise ConfigurationError(f"{sink!r} is no sink: give a topic, an agent, a callable or a Sink")
