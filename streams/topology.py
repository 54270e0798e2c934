"""What an app's declarations amount to: agents grouped into sub-topologies, and the topics they
need. Pure.

Agents that read a common topic or use a common table belong to one sub-topology: their partitions
must be handled by one worker. Which tables an agent uses is found by looking at its function's
names (and those of the functions it calls), or said with ``@app.agent(tables=[...])``.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from .agent import Agent
from .errors import ConfigurationError, PartitionsMismatch
from .sinks.sink import Sink
from .sources.source import Source
from .table import Table
from .topic import Topic

if TYPE_CHECKING:
    from .app import App

_MAX_INSPECTED = 500


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """One stage of an agent: stage 0 reads its topics, stage n what its n-th ``group_by`` wrote."""

    name: str
    agent: Agent
    stage: int
    sources: tuple[str, ...]
    concurrency: int

    @property
    def is_last(self) -> bool:
        """Whether the agent's own code handles these records: earlier stages only forward."""
        return self.stage == len(self.agent.stage_topics)


@dataclass(frozen=True, slots=True, eq=False)
class SubTopology:
    """Nodes that share topics or tables. ``sources`` by topic name, ``tables`` by table name.

    ``source``: it is no agent's but a source's, and reads the topic of its positions.
    """

    id: int
    nodes: tuple[Node, ...]
    sources: Mapping[str, Topic]
    tables: Mapping[str, Table]
    sinks: tuple[Sink, ...] = ()
    source: Source | None = None

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(sorted(self.sources))

    def partition_count(self, counts: Mapping[str, int]) -> int:
        """Number of tasks. Raises PartitionsMismatch when tables need equal counts and they
        differ."""
        found = {name: counts[name] for name in self.sources}
        if self.tables and len(set(found.values())) > 1:
            listing = ", ".join(f"{name} has {count}" for name, count in sorted(found.items()))
            raise PartitionsMismatch(
                f"the agents {self._agent_names()} share the tables {', '.join(self.tables)}, so "
                f"their topics need the same number of partitions, but {listing}"
            )
        for table in self.tables.values():
            count = max(found.values())
            if table.partitions is not None and table.partitions != count:
                raise PartitionsMismatch(
                    f"table {table.name!r} is declared with {table.partitions} partitions, but "
                    f"it is used by {self._agent_names()} whose topics have {count}"
                )
        return max(found.values())

    def _agent_names(self) -> str:
        return ", ".join(sorted({node.agent.name for node in self.nodes}))


class TopicNeed(NamedTuple):
    """A topic the app reads or writes. ``partitions`` None: the app's default when it is
    missing."""

    name: str
    partitions: int | None
    replicas: int | None
    configs: Mapping[str, str]


class Topology:
    """See the module; made by ``build``."""

    def __init__(self, sub_topologies: Sequence[SubTopology]) -> None:
        self.sub_topologies = tuple(sub_topologies)

    @property
    def source_topics(self) -> tuple[str, ...]:
        """Every topic some agent reads, sorted."""
        return tuple(sorted({name for sub in self.sub_topologies for name in sub.sources}))

    @property
    def sinks(self) -> list[Sink]:
        """Every sink some agent writes to."""
        return list({sink: None for sub in self.sub_topologies for sink in sub.sinks})

    @property
    def source_positions(self) -> list[str]:
        """The topics of the positions of sources."""
        return [sub.source.positions_topic.name for sub in self.sub_topologies if sub.source]

    @property
    def shared_topics(self) -> frozenset[str]:
        """Topics that more than one agent reads."""
        readers = Counter(
            name for sub in self.sub_topologies for node in sub.nodes for name in node.sources
        )
        return frozenset(name for name, count in readers.items() if count > 1)

    def by_topic(self) -> dict[str, SubTopology]:
        return {name: sub for sub in self.sub_topologies for name in sub.sources}

    def groups(self) -> tuple[tuple[str, ...], ...]:
        """Topics per sub-topology: what the assignor must keep together."""
        return tuple(sub.topics for sub in self.sub_topologies)

    def source_needs(self, known: Mapping[str, int]) -> list[TopicNeed]:
        """Topics agents read that are not in ``known`` (partition counts of those that exist).

        A topic without declared partitions follows its table, a repartition topic its source.
        """
        needs: dict[str, TopicNeed] = {}
        for sub in self.sub_topologies:
            shared = self._shared_count(sub, known)
            for node in sub.nodes:
                for name in node.sources:
                    if name in known or name in needs:
                        continue
                    topic = sub.sources[name]
                    count = topic.partitions or shared
                    if count is None and node.stage > 0:
                        count = _widest(_stage_source(node), known, needs)
                    needs[name] = TopicNeed(name, count, topic.replicas, topic.configs)
            if sub.source is not None:
                needs.update(_positions_need(sub.source, known))
        return list(needs.values())

    def changelog_needs(self, counts: Mapping[str, int]) -> list[TopicNeed]:
        """Changelogs with the partition counts of their tasks. Raises PartitionsMismatch."""
        needs = []
        for sub in self.sub_topologies:
            count = sub.partition_count(counts)
            for table in sub.tables.values():
                name = table.changelog_name
                if counts.get(name, count) != count:
                    raise PartitionsMismatch(
                        f"changelog {name} has {counts[name]} partitions, but the topics of table "
                        f"{table.name!r} have {count}: restore the old number of partitions, or "
                        "use a new table name or app id"
                    )
                if name not in counts:
                    needs.append(TopicNeed(name, count, None, {"cleanup.policy": "compact"}))
        return needs

    @staticmethod
    def _shared_count(sub: SubTopology, known: Mapping[str, int]) -> int | None:
        if not sub.tables:
            return None
        declared = [table.partitions for table in sub.tables.values() if table.partitions]
        existing = [known[name] for name in sub.sources if name in known]
        given = [topic.partitions for topic in sub.sources.values() if topic.partitions]
        return next(iter([*existing, *given, *declared]), None)


def topology_of(app: App) -> Topology:
    """The topology of everything declared on ``app``. Raises ConfigurationError."""
    return build(list(app.agents.values()), app.tables.values(), app.sources.values())


def build(
    agents: Sequence[Agent], tables: Iterable[Table], sources: Iterable[Source] = ()
) -> Topology:
    """The topology of these agents and sources. Raises ConfigurationError."""
    known_tables = list(tables)
    nodes: list[tuple[Node, dict[str, Topic], list[Table]]] = []
    for agent in agents:
        nodes.extend(_nodes_of(agent, tables_used(agent, known_tables)))
    groups = _connect([{*node.sources, *(id(t) for t in used)} for node, _, used in nodes])
    sub_topologies = []
    for number, members in enumerate(groups):
        chosen = [nodes[index] for index in members]
        topics = {name: topic for _, each, _ in chosen for name, topic in each.items()}
        sinks = {
            sink: None for node, _, _ in chosen if node.is_last for sink in sinks_used(node.agent)
        }
        used = {table.name: table for _, _, found in chosen for table in found}
        _check_types(chosen)
        sub_topologies.append(
            SubTopology(number, tuple(node for node, _, _ in chosen), topics, used, tuple(sinks))
        )
    for number, source in enumerate(sources, len(sub_topologies)):
        topics = {source.positions_topic.name: source.positions_topic}
        used = {source.positions.name: source.positions}
        sub_topologies.append(SubTopology(number, (), topics, used, source=source))
    return Topology(sub_topologies)


def tables_used(agent: Agent, tables: Sequence[Table]) -> list[Table]:
    """Tables the agent's function names, directly or through functions it names."""
    found = {id(table): table for table in agent.tables}
    mine = {id(table) for table in tables}
    for value in _reachable(agent.fun):
        if isinstance(value, Table) and id(value) in mine:
            found[id(value)] = value
    return list(found.values())


def sinks_used(agent: Agent) -> list[Sink]:
    """Sinks that get what the agent yields, and those its function names."""
    found = [sink for sink in agent.sinks if isinstance(sink, Sink)]
    found += [value for value in _reachable(agent.fun) if isinstance(value, Sink)]
    return list(dict.fromkeys(found))


def topics_sent_to(app: App) -> list[Topic]:
    """Topics that sources, agents' sinks and the app's functions name."""
    functions = [background.fun for background in app.backgrounds]
    found: list[Topic] = [source.topic for source in app.sources.values()]
    for agent in app.agents.values():
        functions.append(agent.fun)
        found += [
            one if isinstance(one, Topic) else one.topic
            for one in agent.sinks
            if isinstance(one, Topic | Agent)
        ]
    for fun in functions:
        for value in _reachable(fun):
            if isinstance(value, Topic):
                found.append(value)
            elif isinstance(value, Agent) and value.fun is not fun:
                found.append(value.topic)
    return found


def _nodes_of(
    agent: Agent, tables: list[Table]
) -> Iterator[tuple[Node, dict[str, Topic], list[Table]]]:
    inputs = [agent.topic, *agent.stage_topics]
    last = len(inputs) - 1
    for stage, topic in enumerate(inputs):
        name = agent.name if stage == last else f"{agent.name}-stage-{stage}"
        concurrency = agent.concurrency if stage == last else 1
        node = Node(name, agent, stage, topic.names, concurrency)
        used = tables if stage == last else list(agent.tables)
        yield node, dict.fromkeys(topic.names, topic), used


def _positions_need(source: Source, known: Mapping[str, int]) -> dict[str, TopicNeed]:
    topic, count = source.positions_topic, len(source.splits)
    found = known.get(topic.name)
    if found is None:
        return {topic.name: TopicNeed(topic.name, count, topic.replicas, topic.configs)}
    if found != count:
        raise PartitionsMismatch(
            f"source {source.name!r} has {count} splits, but {topic.name} has {found} partitions: "
            "positions go by split, so restore the old number, or use another name= and read anew"
        )
    return {}


def _check_types(chosen: list[tuple[Node, dict[str, Topic], list[Table]]]) -> None:
    """One topic is decoded once for all its agents."""
    seen: dict[str, Topic] = {}
    for node, topics, _ in chosen:
        for name, topic in topics.items():
            other = seen.setdefault(name, topic)
            if other is topic:
                continue
            if (other.value_type, other.key_type) != (topic.value_type, topic.key_type):
                raise ConfigurationError(
                    f"agent {node.agent.name!r} reads topic {name!r} with other types than another "
                    "agent does: declare the topic once and use it for both"
                )


def _connect(keys: list[set[Any]]) -> list[list[int]]:
    """Indexes grouped by common keys, in the order of their first members."""
    groups: list[tuple[set[Any], list[int]]] = []
    for index, mine in enumerate(keys):
        touching = [group for group in groups if group[0] & mine]
        merged = (set(mine).union(*(group[0] for group in touching)), [index])
        for group in touching:
            merged[1].extend(group[1])
            groups.remove(group)
        merged[1].sort()
        groups.append(merged)
    return sorted(members for _, members in groups)


def _stage_source(node: Node) -> Topic:
    return [node.agent.topic, *node.agent.stage_topics][node.stage - 1]


def _widest(topic: Topic, known: Mapping[str, int], needs: Mapping[str, TopicNeed]) -> int | None:
    counts = [
        known.get(name) or getattr(needs.get(name), "partitions", None) for name in topic.names
    ]
    found = [count for count in counts if count is not None]
    return max(found) if found else None


def _reachable(fun: Any) -> Iterator[Any]:
    """Objects a function names: globals, closure, defaults, and those of plain functions it
    names."""
    pending: list[Any] = [fun]
    seen: set[int] = set()
    while pending and len(seen) < _MAX_INSPECTED:
        value = pending.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        yield value
        if isinstance(value, functools.partial):
            pending += [value.func, *value.args, *value.keywords.values()]
        elif isinstance(value, types.MethodType):
            pending += [value.__func__, *getattr(value.__self__, "__dict__", {}).values()]
        elif isinstance(value, types.FunctionType):
            # our own code is not searched, except where an agent lives in it (the demo's does)
            if value is fun or not (value.__module__ or "").startswith("onceward."):
                pending += _named_by(value)
        elif callable(value) and not isinstance(value, type | types.BuiltinFunctionType):
            call = inspect.getattr_static(type(value), "__call__", None)
            if isinstance(call, types.FunctionType):
                pending += [call, *getattr(value, "__dict__", {}).values()]


def _named_by(function: types.FunctionType) -> list[Any]:
    function = inspect.unwrap(function)
    found: list[Any] = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    for cell in function.__closure__ or ():
        try:
            found.append(cell.cell_contents)
        except ValueError:  # not filled yet
            continue
    names = set(_names_in(function.__code__))
    for name in names:
        value = function.__globals__.get(name)
        if isinstance(value, types.ModuleType):
            found += [vars(value)[each] for each in names if each in vars(value)]
        elif value is not None:
            found.append(value)
            found += [getattr(value, "__dict__", {}).get(each) for each in names]
    return found


def _names_in(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names_in(constant)
