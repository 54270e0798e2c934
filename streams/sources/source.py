"""Sources: where rows come from that are not in Kafka, each of which becomes exactly one record.

**Who reads.** A source has one or more named *splits*. Split ``i`` is partition ``i`` of the topic
``{app}-{source}-positions``, which the workers consume as members of the app's group: whoever is
assigned the partition reads the split, and nobody else. The split is a task like any other; its
state is its positions.

**Exactly once.** The topic is the compacted changelog of those positions. The transaction that
carries the rows carries the positions after them, and the offset of this partition with the group's
generation (KIP-447). A zombie is fenced by its producer's epoch once its heir is there, and by the
generation before that. The heir fences, waits until the committed offset is stable (which no open
transaction of the zombie survives), reads the changelog to its end, and goes on from there. A crash
at any moment leaves rows and positions both, or neither.

Positions are not kept in the metadata of the offset commit, though that would be one thing less:
brokers forget the offsets of a group that was away for a week, and every row would come again.

**Cuts.** The engine takes rows between two of its steps, never half a row or chunk, so a split is
at a cut whenever it is asked and holds up no commit. While a cut is being taken no rows are taken.

**Backpressure.** Rows wait in memory for their transaction: at most ``commit_records`` or 16 MiB,
then the source is not asked for more before the next cut, which comes at once.

**Guarantees.** exactly_once: as above. at_least_once: positions are written after the rows were
acknowledged; a crash between repeats rows. at_most_once: before them; a crash between loses rows.

**Ends.** A source that ends (a generator that returns, files read to the end) is asked again only
after a restart or a rebalance, with its last position. One that goes on waits in ``asyncio.sleep``,
whose clock tests move.

**Failures.** ``SourceUnavailable``, and what ``retry_on`` names (lost connections, timeouts), is
tried again from the last position, later and later up to two seconds, for ever. Anything else stops
the worker with one sentence. A bad row stops it too, or goes to the dead letter topic in the
transaction that moves the position over it.
"""

from __future__ import annotations

import inspect
import re
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from ..config import ErrorPolicy, choice
from ..errors import ConfigurationError
from ..table import Table
from ..topic import Topic
from .encoding import KeyOf
from .rows import Row, Rows

if TYPE_CHECKING:
    from ..app import App

_SPLIT = re.compile(r"[a-zA-Z0-9._-]{1,100}")
Given = AsyncIterator[Row | Rows]


class Split:
    """What a reader knows of the split it reads. ``positions`` by part, as last taken by the
    engine."""

    def __init__(self, source: Source, number: int, positions: Mapping[str, Any]) -> None:
        self.source = source
        self.number = number
        self.name = source.splits[number]
        self.count = len(source.splits)
        self.positions = positions

    def __repr__(self) -> str:
        return f"split {self.name} of source {self.source.name}"

    @property
    def position(self) -> Any:
        """The position of a split that has one; None before the first row."""
        return self.positions.get("")

    @property
    def topic(self) -> Topic:
        """Where the rows go: its types say what they should be."""
        return self.source.topic


class Reader(ABC):
    """The port of a source: how a split's rows are read. ``can_split``: whether it may have
    several."""

    can_split: ClassVar[bool] = False

    def bind(self, source: Source) -> None:
        """Called once, by the source that uses it. Raises ConfigurationError."""
        return

    @abstractmethod
    def read(self, split: Split) -> Given:
        """Rows behind ``split``'s positions, in order, for ever or up to their end.

        Called again after a failure. Must not block the event loop. Raises SourceUnavailable, and
        SourceError for what trying again does not help with.
        """

    @abstractmethod
    def describe(self) -> str:
        """What it reads, in a few words."""


class FunctionReader(Reader):
    """An async generator function ``f(position)`` or ``f(position, split)``."""

    can_split = True

    def __init__(self, fun: Callable[..., Any]) -> None:
        self.fun = fun
        self.name = getattr(fun, "__name__", type(fun).__name__)
        call = fun if inspect.isfunction(fun) or inspect.ismethod(fun) else _call_of(fun)
        if not inspect.isasyncgenfunction(inspect.unwrap(call)):
            raise ConfigurationError(
                f"source {self.name!r} must be an async generator function: async def with yield"
            )
        self._takes = len(inspect.signature(fun).parameters)
        if self._takes not in (1, 2):
            raise ConfigurationError(
                f"source {self.name!r} must take the position to go on from, and the name of the "
                "split if it has several"
            )

    def bind(self, source: Source) -> None:
        if len(source.splits) > 1 and self._takes < 2:
            raise ConfigurationError(
                f"source {self.name!r} has {len(source.splits)} splits: its function must take "
                "(position, split)"
            )

    def read(self, split: Split) -> Given:
        position = split.position
        arguments = (position,) if self._takes == 1 else (position, split.name)
        given: Given = self.fun(*arguments)
        return given

    def describe(self) -> str:
        return f"function {self.name}"


class PositionTable(Table):
    """The positions of a source: a table whose changelog is also the topic that assigns splits."""

    def __init__(self, app: App, source: str) -> None:
        super().__init__(app, f"{source}-positions", key_type=str)
        self.changelog_name = f"{app.conf.id}-{source}-positions"


class Source:
    """A source of an app; made by ``app.source``."""

    def __init__(
        self,
        app: App,
        topic: Topic,
        reader: Reader,
        *,
        name: str,
        key: str | KeyOf | None = None,
        splits: int | Sequence[str] = 1,
        on_bad_row: str | None = None,
        retry_on: Sequence[type[Exception]] = (ConnectionError, TimeoutError),
    ) -> None:
        self.app = app
        self.topic = topic
        self.reader = reader
        self.name = name
        self.key = key
        self.splits = _names(name, splits)
        if len(self.splits) > 1 and not reader.can_split:
            raise ConfigurationError(
                f"source {name!r} reads {reader.describe()}, which has one split"
            )
        self.on_bad_row = (
            app.conf.on_decode_error
            if on_bad_row is None
            else choice(ErrorPolicy, "on_bad_row", on_bad_row)
        )
        self.retry_on = tuple(retry_on)
        self.positions = PositionTable(app, name)
        self.positions_topic = Topic(
            app,
            (self.positions.changelog_name,),
            partitions=len(self.splits),
            compacting=True,
            internal=True,
        )
        reader.bind(self)

    def __repr__(self) -> str:
        return f"<Source {self.name}>"

    def __call__(self, *arguments: Any) -> Any:
        """Call the function itself."""
        if not isinstance(self.reader, FunctionReader):
            raise TypeError(f"source {self.name!r} is no function")
        return self.reader.fun(*arguments)


def _names(source: str, splits: int | Sequence[str]) -> tuple[str, ...]:
    names = tuple(map(str, range(splits))) if isinstance(splits, int) else tuple(splits)
    if not names or len(set(names)) < len(names) or not all(map(_SPLIT.fullmatch, names)):
        raise ConfigurationError(
            f"source {source!r}: splits must be a number, or different names of letters, digits, "
            f"'.', '_' or '-', not {splits!r}"
        )
    return names


def _call_of(fun: Any) -> Any:
    """What is called when an object or a partial is."""
    inner = getattr(fun, "func", None)
    return inspect.getattr_static(type(fun), "__call__", fun) if inner is None else inner
