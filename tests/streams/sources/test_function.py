"""Sources that are generator functions, in the driver."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from typing import Any

import pytest

from onceward.streams import (
    App,
    ConfigurationError,
    PartitionsMismatch,
    Record,
    Stream,
    Topic,
)
from onceward.streams.sources import Row, Rows, SourceError, SourceUnavailable
from onceward.streams.testing import AppDriver, DriverError
from onceward.streams.topology import topology_of


class Tick(Record):
    id: str
    number: int


def make_app(**options: Any) -> tuple[App, Topic]:
    app = App("clock", topic_partitions=2, **options)
    return app, app.topic("ticks", key_type=str, value_type=Tick)


def values(driver: AppDriver, topic: str = "ticks") -> list[Any]:
    return [record.value for record in driver.output(topic)]


def numbers(driver: AppDriver) -> list[int]:
    return sorted(tick.number for tick in values(driver))


def counting(app: App, topic: Topic, starts: list[Any] | None = None, **options: Any) -> None:
    """A source ``ticks`` that counts without an end, and notes where it is told to go on."""

    async def ticks(position: int | None) -> AsyncIterator[Row]:
        if starts is not None:
            starts.append(position)
        for n in itertools.count(0 if position is None else position + 1):
            yield Row(n, Tick(f"t{n}", n), key=f"t{n % 3}")

    app.source(topic, **options)(ticks)


def test_rows_become_records_with_their_keys() -> None:
    app, topic = make_app()
    counting(app, topic)
    with AppDriver(app) as driver:
        driver.run_source("ticks", rows=4)
        found = sorted((record.value.number, record.key) for record in driver.output("ticks"))
        assert found == [(0, "t0"), (1, "t1"), (2, "t2"), (3, "t0")]


def test_a_source_gives_nothing_before_it_is_run_and_goes_on_where_it_was() -> None:
    app, topic = make_app()
    starts: list[Any] = []
    counting(app, topic, starts)
    with AppDriver(app) as driver:
        assert values(driver) == []
        driver.run_source("ticks", rows=2)
        driver.run_source("ticks", rows=2)
        assert numbers(driver) == [0, 1, 2, 3]
    assert starts == [None]


def test_after_a_crash_a_source_goes_on_behind_what_is_committed() -> None:
    app, topic = make_app()
    starts: list[Any] = []
    counting(app, topic, starts)
    with AppDriver(app) as driver:
        driver.run_source("ticks", rows=3)
        driver.run_source("ticks", rows=3, commit=False)
        driver.crash()
        driver.run_source("ticks", rows=2)
        assert numbers(driver) == [0, 1, 2, 3, 4]
    assert starts == [None, 2]


def test_an_agent_handles_what_a_source_gives() -> None:
    app, topic = make_app()
    sums = app.Table("sums", default=int, partitions=2)

    @app.agent(topic)
    async def add(stream: Stream[Tick]) -> None:
        async for key, tick in stream.items():
            sums[key] += tick.number

    counting(app, topic)
    with AppDriver(app) as driver:
        driver.run_source("ticks", rows=7)
        assert driver.table("sums") == {"t0": 9, "t1": 5, "t2": 7}


def test_a_source_that_waits_goes_on_as_time_passes() -> None:
    app, topic = make_app()

    @app.source(topic)
    async def ticks(position: int | None) -> AsyncIterator[Row]:
        for n in itertools.count():
            yield Row(n, Tick("", n))
            await asyncio.sleep(10)

    with AppDriver(app) as driver:
        driver.run_source("ticks")
        assert numbers(driver) == [0]
        driver.advance(25)
        assert numbers(driver) == [0, 1, 2]
        driver.run_source("ticks", rows=2)
        assert numbers(driver) == [0, 1, 2, 3, 4]


def test_a_source_without_an_end_is_told_to_be_bounded() -> None:
    app, topic = make_app(commit_records=200_000)

    @app.source(topic)
    async def ticks(position: int | None) -> AsyncIterator[Rows]:
        for n in itertools.count():
            yield Rows(n, [Tick("", n)] * 50_000)

    with AppDriver(app) as driver, pytest.raises(DriverError, match="say rows="):
        driver.run_source("ticks")


def test_a_source_that_ends_is_not_asked_again_before_a_restart() -> None:
    app, topic = make_app()
    starts: list[Any] = []

    @app.source(topic)
    async def ticks(position: int | None) -> AsyncIterator[Row]:
        starts.append(position)
        for n in range(3):
            if position is None or n > position:
                yield Row(n, Tick("", n))

    with AppDriver(app) as driver:
        driver.run_source("ticks")
        driver.run_source("ticks")
        driver.advance(100)
        assert starts == [None]
        driver.crash()
        driver.run_source("ticks")
        assert starts == [None, 2]
        assert numbers(driver) == [0, 1, 2]


def test_every_split_has_its_own_position() -> None:
    app, topic = make_app()
    starts: list[tuple[Any, str]] = []

    @app.source(topic, splits=["eu", "us"])
    async def ticks(position: int | None, split: str) -> AsyncIterator[Row]:
        starts.append((position, split))
        for n in itertools.count(0 if position is None else position + 1):
            yield Row(n, Tick(split, n))

    with AppDriver(app) as driver:
        driver.run_source("ticks", rows=2, split="us")
        driver.run_source("ticks", rows=1, split="eu")
        driver.crash()
        driver.run_source("ticks", rows=1)
        assert sorted(starts[2:]) == [(0, "eu"), (1, "us")]
        found = sorted((tick.id, tick.number) for tick in values(driver))
        assert found == [("eu", 0), ("eu", 1), ("us", 0), ("us", 1), ("us", 2)]


def test_rows_given_together_are_committed_together() -> None:
    app, topic = make_app(commit_records=1)

    @app.source(topic, key="id")
    async def ticks(position: str | None) -> AsyncIterator[Rows]:
        yield Rows("page-1", [Tick("a", 1), Tick("b", 2), Tick("a", 3)])
        yield Rows("page-2", [Tick("c", 4)], keys=["own"])
        await asyncio.sleep(1)

    with AppDriver(app) as driver:
        driver.run_source("ticks", rows=1)
        found = sorted((record.value.number, record.key) for record in driver.output("ticks"))
        assert found == [(1, "a"), (2, "b"), (3, "a")]
        driver.run_source("ticks", rows=1)
        assert (4, "own") in [(r.value.number, r.key) for r in driver.output("ticks")]


def test_a_position_may_be_made_of_lists_and_dicts() -> None:
    app, topic = make_app()
    starts: list[Any] = []

    @app.source(topic)
    async def ticks(position: Any) -> AsyncIterator[Row]:
        starts.append(position)
        if position is None:
            yield Row({"page": 1, "ids": ["a", 2.5, None, True]}, Tick("", 1))

    with AppDriver(app) as driver:
        driver.run_source("ticks")
        driver.crash()
        driver.run_source("ticks")
    assert starts == [None, {"page": 1, "ids": ["a", 2.5, None, True]}]


def test_a_position_that_would_not_come_back_is_refused() -> None:
    app, topic = make_app()

    @app.source(topic)
    async def ticks(position: Any) -> AsyncIterator[Row]:
        yield Row((1, 2), Tick("", 1))

    with AppDriver(app) as driver, pytest.raises(SourceError, match=r"position \(1, 2\).*JSON"):
        driver.run_source("ticks")


def test_two_rows_at_one_position_are_refused() -> None:
    app, topic = make_app()

    @app.source(topic)
    async def ticks(position: Any) -> AsyncIterator[Row]:
        yield Row(7, Tick("", 1))
        yield Row(7, Tick("", 2))

    with AppDriver(app) as driver, pytest.raises(SourceError, match=r"position 7.*Rows"):
        driver.run_source("ticks")


@pytest.mark.parametrize("given", [None, Tick("", 1), ("key", "value")])
def test_what_is_no_row_is_refused(given: Any) -> None:
    app, topic = make_app()

    @app.source(topic)
    async def ticks(position: Any) -> AsyncIterator[Any]:
        yield given

    with AppDriver(app) as driver, pytest.raises(SourceError, match=r"yield Row\(position"):
        driver.run_source("ticks")


def test_timestamps_headers_and_tombstones_are_carried() -> None:
    app, topic = make_app()

    @app.source(topic)
    async def ticks(position: Any) -> AsyncIterator[Row | Rows]:
        yield Row(1, Tick("", 1), key="a", timestamp=12.5, headers={"from": "test"})
        yield Row(2, None, key="a")
        yield Rows(3, [Tick("", 2), Tick("", 3)], timestamps=[1.0, 2.0])

    with AppDriver(app, start=100) as driver:
        driver.run_source("ticks")
        found = {record.timestamp: record for record in driver.output("ticks")}
        assert sorted(found) == [1.0, 2.0, 12.5, 100.0]
        assert found[12.5].headers == {"from": b"test"}
        assert found[100.0].value is None
        assert found[100.0].key == "a"


def test_rows_without_a_key_go_to_the_partitions_in_turn() -> None:
    app, topic = make_app()

    @app.source(topic)
    async def ticks(position: int | None) -> AsyncIterator[Row]:
        for n in itertools.count():
            yield Row(n, Tick("", n))

    with AppDriver(app) as driver:
        for _ in range(4):
            driver.run_source("ticks", rows=1)
        assert sorted(record.partition for record in driver.output("ticks")) == [0, 0, 1, 1]


# failures


def test_a_source_that_fails_stops_the_worker_and_loses_nothing() -> None:
    app, topic = make_app()
    is_broken = [True]

    @app.source(topic)
    async def ticks(position: int | None) -> AsyncIterator[Row]:
        for n in range(0 if position is None else position + 1, 4):
            if n == 2 and is_broken[0]:
                raise ValueError("the cable is out")
            yield Row(n, Tick("", n))

    with AppDriver(app) as driver:
        with pytest.raises(SourceError, match=r"'ticks' failed after position 1: .*cable is out"):
            driver.run_source("ticks")
        is_broken[0] = False
        driver.crash()
        driver.run_source("ticks")
        assert numbers(driver) == [0, 1, 2, 3]


@pytest.mark.parametrize("kind", [SourceUnavailable, ConnectionResetError, TimeoutError])
def test_a_system_that_is_away_is_tried_again_from_the_last_position(
    kind: type[Exception],
) -> None:
    app, topic = make_app()
    starts: list[Any] = []

    @app.source(topic)
    async def ticks(position: int | None) -> AsyncIterator[Row]:
        starts.append(position)
        if len(starts) in (2, 3):
            raise kind("away")
        n = 0 if position is None else position + 1
        yield Row(n, Tick("", n))
        yield Row(n + 1, Tick("", n + 1))
        if len(starts) < 5:
            raise kind("gone")

    with AppDriver(app) as driver:
        driver.run_source("ticks")
        driver.advance(20)
        assert numbers(driver) == list(range(6))
    assert starts == [None, 1, 1, 1, 3]


def test_other_exceptions_are_tried_again_when_the_source_says_so() -> None:
    app, topic = make_app()
    starts: list[Any] = []

    @app.source(topic, retry_on=[LookupError])
    async def ticks(position: int | None) -> AsyncIterator[Row]:
        starts.append(position)
        yield Row(len(starts), Tick("", len(starts)))
        if len(starts) == 1:
            raise KeyError("x")

    with AppDriver(app) as driver:
        driver.run_source("ticks")
        driver.advance(1)
        assert numbers(driver) == [1, 2]


def test_a_row_that_cannot_be_encoded_stops_the_worker_by_default() -> None:
    app, topic = make_app()

    @app.source(topic)
    async def ticks(position: int | None) -> AsyncIterator[Row]:
        yield Row(1, object())

    with AppDriver(app) as driver, pytest.raises(SourceError, match="at position 1: TypeError"):
        driver.run_source("ticks")


def test_bad_rows_go_to_the_dead_letter_topic_and_the_position_over_them() -> None:
    app, topic = make_app()
    starts: list[Any] = []

    @app.source(topic, key="id", on_bad_row="dead_letter")
    async def ticks(position: int | None) -> AsyncIterator[Row | Rows]:
        starts.append(position)
        if position is None:
            yield Row(1, Tick("a", 1))
            yield Row(2, {"number": 2})
            yield Rows(3, [Tick("b", 3), {1, 2}, {"number": 5}, Tick("c", 4)])

    with AppDriver(app) as driver:
        driver.run_source("ticks")
        assert numbers(driver) == [1, 3, 4]
        letters = driver.output("clock-dead-letter")
        reasons = [dict(letter.headers)["onceward-error"] for letter in letters]
        assert reasons[0] == b"it has no field 'id'"
        assert len(letters) == 3
        headers = dict(letters[0].headers)
        assert headers["onceward-source"] == b"ticks"
        assert headers["onceward-place"] == b"the row at position 2"
        driver.crash()
        driver.run_source("ticks")
    assert starts == [None, 3]


def test_a_source_must_not_send_by_itself() -> None:
    app, topic = make_app()

    @app.source(topic)
    async def ticks(position: int | None) -> AsyncIterator[Row]:
        await topic.send(value=Tick("", 0))
        yield Row(1, Tick("", 1))

    with AppDriver(app) as driver, pytest.raises(SourceError, match="yields rows"):
        driver.run_source("ticks")


# declarations


def test_what_cannot_be_a_source_is_refused_when_it_is_declared() -> None:
    app, topic = make_app()

    async def returns(position: Any) -> None:
        return

    async def takes_nothing() -> AsyncIterator[Row]:
        yield Row(1, None)

    async def takes_position(position: Any) -> AsyncIterator[Row]:
        yield Row(1, None)

    with pytest.raises(ConfigurationError, match="async generator"):
        app.source(topic)(returns)
    with pytest.raises(ConfigurationError, match="must take the position"):
        app.source(topic)(takes_nothing)
    with pytest.raises(ConfigurationError, match=r"\(position, split\)"):
        app.source(topic, splits=2)(takes_position)
    with pytest.raises(ConfigurationError, match="splits must be"):
        app.source(topic, splits=["a", "a"])(takes_position)
    app.source(topic)(takes_position)
    with pytest.raises(ConfigurationError, match="two sources called"):
        app.source(topic)(takes_position)


def test_a_changed_number_of_splits_is_refused() -> None:
    app, topic = make_app()
    counting(app, topic)
    topology = topology_of(app)
    (need,) = [n for n in topology.source_needs({}) if n.name == "clock-ticks-positions"]
    assert (need.partitions, need.configs) == (1, {"cleanup.policy": "compact"})
    with pytest.raises(PartitionsMismatch, match="1 splits, but clock-ticks-positions has 3"):
        topology.source_needs({"clock-ticks-positions": 3})
