"""Agents, tables and topics to sub-topologies and the topics they need."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest

from onceward.streams import App, ConfigurationError, PartitionsMismatch, Stream
from onceward.streams.probe import learn_stages
from onceward.streams.topology import Topology, build

from .workers import make_app


def topology(app: App) -> Topology:
    return build(list(app.agents.values()), app.tables.values())


@pytest.fixture
def app(tmp_path: Path) -> App:
    return make_app(tmp_path)


async def consume(stream: Stream[Any]) -> None:
    async for _ in stream:
        pass


def test_agents_without_anything_in_common_are_separate(app: App) -> None:
    app.agent(app.topic("a"), name="one")(consume)
    app.agent(app.topic("b"), name="two")(consume)
    assert topology(app).groups() == (("a",), ("b",))


def test_agents_on_one_topic_belong_together(app: App) -> None:
    app.agent(app.topic("a"), name="one")(consume)
    app.agent(app.topic("a", "b"), name="two")(consume)
    assert topology(app).groups() == (("a", "b"),)


def test_agents_that_name_a_common_table_belong_together(app: App) -> None:
    shared = app.Table("shared", default=int)

    def add(key: str) -> None:
        shared[key] += 1

    @app.agent(app.topic("a"))
    async def direct(stream: Stream[str]) -> None:
        async for value in stream:
            shared[value] = 1

    @app.agent(app.topic("b"))
    async def through_a_function(stream: Stream[str]) -> None:
        async for value in stream:
            add(value)

    async def generic(table: Any, stream: Stream[str]) -> None:
        async for value in stream:
            table[value] = 1

    app.agent(app.topic("c"), name="partial")(functools.partial(generic, shared))
    app.agent(app.topic("d"), name="declared", tables=[shared])(consume)
    app.agent(app.topic("e"), name="other")(consume)
    built = topology(app)
    assert built.groups() == (("a", "b", "c", "d"), ("e",))
    assert list(built.sub_topologies[0].tables) == ["shared"]
    assert built.sub_topologies[1].tables == {}


def test_topics_that_share_tables_need_equal_partition_counts(app: App) -> None:
    table = app.Table("t", partitions=3)
    app.agent(app.topic("a"), name="one", tables=[table])(consume)
    app.agent(app.topic("b"), name="two", tables=[table])(consume)
    built = topology(app)
    with pytest.raises(PartitionsMismatch, match="a has 2, b has 4"):
        built.changelog_needs({"a": 2, "b": 4})
    with pytest.raises(PartitionsMismatch, match="declared with 3 partitions"):
        built.changelog_needs({"a": 2, "b": 2})
    with pytest.raises(PartitionsMismatch, match="changelog app-t-changelog has 2"):
        built.changelog_needs({"a": 3, "b": 3, "app-t-changelog": 2})
    (need,) = built.changelog_needs({"a": 3, "b": 3})
    assert (need.name, need.partitions) == ("app-t-changelog", 3)


def test_a_missing_source_follows_its_table_or_the_topic_beside_it(app: App) -> None:
    table = app.Table("t", partitions=3)
    app.agent(app.topic("a"), name="one", tables=[table])(consume)
    app.agent(app.topic("b"), name="two", tables=[table])(consume)
    app.agent(app.topic("c"), name="three")(consume)
    built = topology(app)
    assert {n.name: n.partitions for n in built.source_needs({})} == {"a": 3, "b": 3, "c": None}
    assert {n.name: n.partitions for n in built.source_needs({"a": 5})} == {"b": 5, "c": None}


def test_one_topic_cannot_have_two_types(app: App) -> None:
    app.agent(app.topic("a", value_type=str), name="one")(consume)
    app.agent(app.topic("a", value_type=int), name="two")(consume)
    with pytest.raises(ConfigurationError, match="'two' reads topic 'a' with other types"):
        topology(app)


async def test_group_by_becomes_a_stage_with_a_repartition_topic(app: App) -> None:
    counts = app.Table("counts", default=int)

    @app.agent(app.topic("a", partitions=3))
    async def count(stream: Stream[dict[str, Any]]) -> None:
        async for value in stream.filter(bool).group_by(lambda v: v["k"], name="k"):
            counts[value["k"]] += 1

    await learn_stages(count)
    built = topology(app)
    repartition = "app-count-k-repartition"
    assert built.groups() == (("a",), (repartition,))
    assert [node.name for sub in built.sub_topologies for node in sub.nodes] == [
        "count-stage-0",
        "count",
    ]
    assert list(built.sub_topologies[1].tables) == ["counts"]
    assert {n.name: n.partitions for n in built.source_needs({"a": 3})} == {repartition: 3}
    with pytest.raises(ConfigurationError, match="not seen when the app started"):
        count.stage_topic(1, "x", None, None)


async def test_group_by_a_function_needs_a_name(app: App) -> None:
    @app.agent(app.topic("a"))
    async def count(stream: Stream[str]) -> None:
        async for _ in stream.group_by(lambda v: v):
            pass

    with pytest.raises(ConfigurationError, match="needs name="):
        await learn_stages(count)
