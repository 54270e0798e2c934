"""What is tried out: an app, what it is fed, and how many workers it has."""

from __future__ import annotations

import dataclasses
import enum
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..app import App
from ..config import ErrorPolicy
from ..errors import ConfigurationError
from ..topic import Topic
from ..topology import Topology
from .app_schemas import AppSchemas, schemas_of
from .generate import generate_inputs
from .loading import AppLoader, AppSource
from .written import input_topics

Pairs = Sequence[tuple[Any, Any]]
InputSource = Mapping[str, Pairs] | Callable[[random.Random], Mapping[str, Pairs]] | None
"""Topic -> (key, value) pairs, typed or as bytes; a function of a generator for random ones; or
None: made from the types of the topics."""

SEEDS_PER_INPUT = 100
"""Seeds that share one random input, and with it the reference runs that say what to expect."""

FAST_BROKER: Mapping[str, str] = {
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
}
"""Kafka's 50 partitions of each internal topic are mostly empty files to create and to load."""


@dataclass(frozen=True)
class Scenario:
    """One thing to simulate; ``records`` is how many are made when there is no ``input``.

    ``settings`` replace those of the app (names as in ``App``), ``broker_config`` has Kafka's
    names. ``unjudged``: topics and sinks that may differ from run to run.
    """

    app: AppSource
    input: InputSource = None
    workers: int = 3
    records: int = 40
    settings: Mapping[str, Any] = field(default_factory=dict)
    broker_config: Mapping[str, Any] = field(default_factory=dict)
    unjudged: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class Feed:
    """One record to be fed in, encoded."""

    topic: str
    key: bytes | None
    value: bytes | None


class Prepared:
    """A scenario made ready: the app is found and can be made afresh, inputs can be made."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.loader = AppLoader(scenario.app)
        self._feeds: dict[int, list[Feed]] = {}
        self.schemas: AppSchemas | None = None
        """For a simulated registry, when the app names a registry and ``simulate_registry`` was
        called."""
        self.app = self.fresh()
        if not self.app.agents and not self.app.sources:
            raise ConfigurationError(
                f"{self.loader.name} has no agents and no sources: there is nothing to try"
            )

    @property
    def name(self) -> str:
        return self.loader.name

    def simulate_registry(self) -> None:
        """Nothing may ask the registry that the app names. Raises ConfigurationError."""
        if self.schemas is None:
            self.schemas = schemas_of(self.app)

    def fresh(self) -> App:
        """An app for one process, with the scenario's settings."""
        app = self.loader.fresh()
        if self.scenario.settings:
            unknown = set(self.scenario.settings) - {f.name for f in dataclasses.fields(app.conf)}
            if unknown:
                raise ConfigurationError(f"there is no setting {sorted(unknown)[0]!r}")
            for name, value in self.scenario.settings.items():
                present = getattr(app.conf, name)
                is_choice = isinstance(present, enum.Enum)
                setattr(app.conf, name, type(present)(value) if is_choice else value)
            app.conf.validate()
        return app

    def input_topics(self) -> list[str]:
        """What the app reads and does not write itself."""
        return list(input_topics(self.app))

    def input_number(self, seed: int | str) -> int:
        """Which input a seed has: a fixed one is the same for all."""
        if isinstance(self.scenario.input, Mapping) or not isinstance(seed, int):
            return 0
        return seed // SEEDS_PER_INPUT

    def feeds(self, number: int) -> list[Feed]:
        """Input ``number``, in the order in which it is sent. Raises ConfigurationError."""
        if number not in self._feeds:
            self._feeds[number] = _encode(self.app, self._input(number), number)
        return self._feeds[number]

    def _input(self, number: int) -> Mapping[str, Pairs]:
        source = self.scenario.input
        if isinstance(source, Mapping):
            return source
        rng = random.Random(f"input/{number}")
        if source is not None:
            return source(rng)
        return generate_inputs(self.app, rng, self.scenario.records)


def _encode(app: App, given: Mapping[str, Pairs], number: int) -> list[Feed]:
    """Encode with the topics' codecs; topics take turns at random, each in its own order."""
    topics = {name: topic for topic in app.declared_topics() for name in topic.names}
    waiting = {
        name: [_encoded(name, topics.get(name), pair) for pair in pairs]
        for name, pairs in given.items()
    }
    turns = [name for name, feeds in waiting.items() for _ in feeds]
    random.Random(f"turns/{number}").shuffle(turns)
    if not turns and not app.sources:
        raise ConfigurationError("the input has no records")
    places = dict.fromkeys(waiting, 0)
    feeds = []
    for name in turns:
        feeds.append(waiting[name][places[name]])
        places[name] += 1
    return feeds


def _encoded(name: str, topic: Topic | None, pair: tuple[Any, Any]) -> Feed:
    key, value = pair
    if topic is None:
        if not all(isinstance(part, bytes | str | None) for part in pair):
            raise ConfigurationError(f"the app declares no topic {name!r}: give it bytes or text")
        key, value = (part.encode() if isinstance(part, str) else part for part in pair)
        return Feed(name, key, value)
    if key is not None and not isinstance(key, bytes):
        key = topic.encode_key(key)
    if value is not None and not isinstance(value, bytes):
        value = topic.encode_value(value)
    return Feed(name, key, value)


def app_topics(app: App, topology: Topology) -> list[str]:
    """Every topic the app reads, writes or keeps its tables in, as far as it declares them."""
    declared = (name for topic in app.declared_topics() for name in topic.names)
    changelogs = (table.changelog_name for sub in topology.sub_topologies
                  for table in sub.tables.values())  # fmt: skip
    names = [*topology.source_topics, *declared, *changelogs]
    if ErrorPolicy.DEAD_LETTER in (app.conf.on_agent_error, app.conf.on_decode_error):
        names.append(app.conf.dead_letter_topic)
    return list(dict.fromkeys(names))
