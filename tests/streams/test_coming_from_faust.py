"""What a Faust program meets here: its models, its names, clear words where something differs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

import onceward.streams as faust
from onceward.streams import ConfigurationError, Stream
from onceward.streams.serde import codec_for

from .fakes import FakeCluster
from .workers import make_app, until, worker


class FaustModel:
    """Has what marks a ``faust.Record``; like that one it refuses class names it does not know."""

    __is_model__: ClassVar[bool] = True

    def __init__(self, number: int) -> None:
        self.number = number

    def to_representation(self) -> dict[str, Any]:
        return {"number": self.number, "__faust": {"ns": "here.FaustModel"}}

    @classmethod
    def from_data(cls, data: dict[str, Any], *, preferred_type: type | None = None) -> FaustModel:
        name = data["__faust"]["ns"]
        if preferred_type is None and name != "here.FaustModel":
            raise KeyError(name)
        return cls(data["number"])


async def test_faust_models_go_through_topics_and_tables(tmp_path: Path) -> None:
    cluster = FakeCluster()
    app = make_app(tmp_path)
    orders = app.topic("orders", value_type=FaustModel, partitions=1)
    sums = app.topic("sums", value_type=FaustModel, partitions=1)
    table = app.Table("table", key_type=str, value_type=FaustModel)

    @app.agent(orders)
    async def add(stream: Stream[FaustModel]) -> None:
        async for order in stream:
            before = table.get("sum")
            table["sum"] = FaustModel(order.number + (before.number if before else 0))
            await sums.send(value=table["sum"])

    cluster.create("orders", 1)
    for number in (1, 2, 3):
        cluster.put("orders", b'{"number":%d,"__faust":{"ns":"elsewhere.Order"}}' % number)

    async with worker(app, cluster) as running:
        await until(lambda: len(cluster.values("sums")) == 3, running)
    assert cluster.values("sums")[-1] == b'{"number":6,"__faust":{"ns":"here.FaustModel"}}'


def test_a_faust_model_inside_another_type_is_found_too() -> None:
    codec = codec_for("json", list[FaustModel], topic=None, is_key=False)
    [model] = codec.decode(b'[{"number":1,"__faust":{"ns":"elsewhere.Order"}}]')
    assert model.number == 1


@pytest.mark.parametrize(
    ("use", "reason"),
    [
        (lambda app: app.Table("t").tumbling(10), "windowed tables are not supported yet"),
        (lambda app: app.page("/"), "run a web framework beside the worker"),
        (lambda app: app.GlobalTable("t"), "global tables are not supported yet"),
        (lambda app: app.on_rebalance_complete.connect(print), "use app.task"),
        (lambda app: app.channel(), "use a topic"),
        (lambda app: app.agent("t")(print).map([1]), "send with cast"),
        (lambda app: faust.Schema, "give key_serializer and value_serializer"),
        (lambda app: faust.no_such_name, "onceward.streams has no attribute 'no_such_name'$"),
    ],
)
def test_a_name_of_faust_that_is_missing_says_what_to_do(
    use: Callable[[faust.App], object], reason: str, tmp_path: Path
) -> None:
    with pytest.raises(AttributeError, match=reason):
        use(make_app(tmp_path))


def test_the_acks_that_are_used_anyway_may_be_given(tmp_path: Path) -> None:
    make_app(tmp_path, producer_acks=-1)
    with pytest.raises(ConfigurationError, match="acknowledged by all replicas"):
        make_app(tmp_path, producer_acks=0)
