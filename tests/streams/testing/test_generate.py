"""Made-up records: of the right type, with few keys, and only for topics the app does not write."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from random import Random
from typing import Annotated, Any, Literal, NamedTuple, TypedDict
from uuid import UUID

import msgspec
import pydantic
import pytest

from onceward.streams import App, ConfigurationError, Record, Stream
from onceward.streams.testing.generate import generate_inputs, generate_record, generate_value
from onceward.streams.testing.written import input_topics


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Line(Record):
    text: str
    parent: Line | None = None


@dataclass
class Point:
    x: int
    y: float = 0.0
    derived: int = field(default=7, init=False)


class Pair(NamedTuple):
    left: int
    right: str


class Options(TypedDict, total=False):
    colour: Colour


class Model(pydantic.BaseModel):
    name: Annotated[str, pydantic.Field(min_length=9)]
    rate: Annotated[int, pydantic.Field(gt=100, le=110)]
    price: Decimal
    points: list[Point]


class Everything(Record, tag=True):
    account: str
    count: int
    small: Annotated[int, msgspec.Meta(ge=3, lt=6, multiple_of=2)]
    ratio: Annotated[float, msgspec.Meta(gt=0, le=1)]
    short: Annotated[str, msgspec.Meta(max_length=3)]
    flag: bool
    at: datetime
    day: date
    hour: time
    length: timedelta
    price: Decimal
    id: UUID
    data: bytes
    colour: Colour
    mode: Literal["a", "b"]
    line: Line
    point: Point
    pair: Pair
    options: Options
    either: int | str | None
    many: list[int]
    some: set[str]
    fixed: tuple[int, str]
    rest: tuple[int, ...]
    by_name: dict[str, int]


@pytest.mark.parametrize(
    "kind",
    [Everything, Line, Point, Pair, Options, Model, int, str, bytes, float, list[Line], int | None],
)
def test_values_of_every_kind_survive_their_topics_codec(kind: Any) -> None:
    topic = App("a").topic("t", value_type=kind)
    for seed in range(30):
        value = generate_value(kind, Random(seed))
        again = topic.decode_value(topic.encode_value(value))
        assert again == value


def test_constraints_are_kept() -> None:
    for seed in range(50):
        made = generate_value(Everything, Random(seed))
        assert made.small == 4
        assert 0 < made.ratio <= 1
        assert len(made.short) <= 3
        assert made.at.tzinfo is UTC


def test_keys_are_few_and_texts_of_a_model_follow_them() -> None:
    topic = App("a").topic("t", key_type=str, value_type=Everything)
    records = [generate_record(topic, Random(seed)) for seed in range(100)]
    assert {key for key, _ in records} == {"k0", "k1", "k2", "k3", "k4"}
    assert all(value.account == f"account-{key[1:]}" for key, value in records)


def test_one_seed_gives_one_input() -> None:
    app = App("a")

    @app.agent(app.topic("in", value_type=Everything))
    async def run(stream: Stream[Everything]) -> None:
        async for _ in stream:
            pass

    first, second, other = (generate_inputs(app, Random(seed), 20) for seed in (1, 1, 2))
    assert first == second != other
    assert len(first["in"]) == 20


@pytest.mark.parametrize("kind", [None, dict, Annotated[str, msgspec.Meta(pattern="a+")], object])
def test_a_type_that_says_too_little_is_told(kind: Any) -> None:
    topic = App("a").topic("things", value_type=kind)
    with pytest.raises(ConfigurationError, match="'things' cannot be made up"):
        generate_record(topic, Random(1))


def test_a_model_that_refuses_what_is_made_up_is_told() -> None:
    class Picky(pydantic.BaseModel):
        code: Annotated[str, pydantic.Field(pattern="^z+$")]

    topic = App("a").topic("things", value_type=Picky)
    with pytest.raises(ConfigurationError, match=r"(?s)Picky refuses .* give the input"):
        generate_record(topic, Random(1))


def test_topics_the_app_writes_are_not_fed() -> None:
    app = App("a")
    words = app.topic("words", value_type=str)
    loud = app.topic("loud", value_type=str)
    grouped = app.topic("grouped", value_type=str)

    @app.agent(app.topic("lines", value_type=str), sink=[loud])
    async def split(stream: Stream[str]) -> Any:
        async for line in stream:
            for word in line.split():  # the method is not the agent
                await words.send(value=word)
            await app.send("named", value=line)
            yield line

    @app.agent(words)
    async def count(stream: Stream[str]) -> None:
        async for _ in stream.group_by(str.upper, name="upper", topic=grouped):
            pass

    for topic in (loud, grouped, app.topic("named", value_type=str), app.topic("more")):
        app.agent(topic, name=f"read-{topic.name}")(_read)
    assert set(input_topics(app)) == {"lines", "more"}


async def _read(stream: Stream[Any]) -> None:
    async for _ in stream:
        pass


def test_an_app_that_writes_all_it_reads_is_fed_all_the_same() -> None:
    app = App("a")
    loop = app.topic("loop", value_type=int)

    @app.agent(loop)
    async def count_down(stream: Stream[int]) -> None:
        async for number in stream:
            if number:
                await loop.send(value=number - 1)

    assert set(generate_inputs(app, Random(1), 3)) == {"loop"}
    with pytest.raises(ConfigurationError, match="reads no topic"):
        generate_inputs(App("empty"), Random(1), 3)
