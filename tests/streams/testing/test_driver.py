"""The driver: an app's everyday unit test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from onceward.streams import (
    App,
    ConfigurationError,
    DecodeError,
    Record,
    Stream,
    Topic,
    UndecodableRecord,
    current_event,
)
from onceward.streams.sinks import Batch, Sink
from onceward.streams.testing import AppDriver, DriverError


class Order(Record):
    id: str
    account: str
    amount: int


def make_app(**options: Any) -> App:
    return App("payments", topic_partitions=2, **options)


def payments(**options: Any) -> App:
    """Totals per account, and an alert above 1000."""
    app = make_app(**options)
    alerts = app.topic("alerts", key_type=str, value_type=dict)
    totals = app.Table("totals", default=int)

    @app.agent(app.topic("orders", key_type=str, value_type=Order))
    async def total(stream: Stream[Order]) -> None:
        async for order in stream:
            totals[order.account] += order.amount
            if totals[order.account] > 1000:
                await alerts.send(key=order.account, value={"total": totals[order.account]})

    return app


def order(account: str, amount: int) -> Order:
    return Order("1", account, amount)


def values(driver: AppDriver, topic: str) -> list[Any]:
    return [record.value for record in driver.output(topic)]


# records in, effects out


def test_a_piped_record_has_its_effects_at_once() -> None:
    with AppDriver(payments()) as driver:
        driver.pipe("orders", order("a", 600), key="a")
        assert driver.output("alerts") == []
        driver.pipe("orders", key="a", value=order("a", 500))
        (alert,) = driver.output("alerts")
        assert (alert.key, alert.value) == ("a", {"total": 1100})
        assert driver.table("totals") == {"a": 1100}


async def test_it_works_inside_a_running_event_loop() -> None:
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    with AppDriver(payments()) as driver:
        driver.pipe("orders", order("a", 2000), key="a")
        await asyncio.sleep(0)
        assert driver.table("totals")["a"] == 2000
    assert asyncio.get_running_loop() is loop
    assert asyncio.current_task() is task


def test_many_records_are_handled_in_order() -> None:
    with AppDriver(payments()) as driver:
        driver.pipe_many("orders", [("a", order("a", 400)) for _ in range(2000)])
        assert values(driver, "alerts") == [{"total": 400 * n} for n in range(3, 2001)]


def test_keys_and_values_may_be_given_encoded_and_null() -> None:
    app = make_app()
    seen: list[tuple[Any, Any]] = []

    @app.agent(app.topic("orders", key_type=str, value_type=Order))
    async def look(stream: Stream[Order]) -> None:
        async for key, value in stream.items():
            seen.append((key, value))

    with AppDriver(app) as driver:
        driver.pipe("orders", b'{"id":"1","account":"a","amount":7}', key=b"k")
        driver.pipe("orders", None, key="k")
    assert seen == [("k", order("a", 7)), ("k", None)]


def test_headers_timestamp_and_partition_reach_the_agent_and_come_out() -> None:
    app = make_app()
    copies = app.topic("copies", value_type=str)

    @app.agent(app.topic("texts", value_type=str))
    async def copy(stream: Stream[str]) -> None:
        async for event in stream.events():
            await event.forward(copies)

    with AppDriver(app) as driver:
        at = datetime(2024, 5, 1, tzinfo=UTC)
        driver.pipe("texts", "x", partition=1, timestamp=at, headers={"trace": "7"})
        assert driver.output("copies") == [
            (None, "x", {"trace": b"7"}, at.timestamp(), 1, 0),
        ]


def test_records_without_keys_take_the_partitions_in_turn() -> None:
    with AppDriver(payments()) as driver:
        for _ in range(3):
            driver.pipe("orders", order("a", 1))
        assert driver.table("totals", partition=0) == {"a": 2}
        assert driver.table("totals", partition=1) == {"a": 1}
        with pytest.raises(DriverError, match="every partition has its own table"):
            driver.table("totals")["a"]


def test_records_flow_on_to_further_agents() -> None:
    app = make_app()
    words = app.topic("words", key_type=str, value_type=str)
    counts = app.Table("counts", default=int)

    @app.agent(app.topic("lines", value_type=str))
    async def split(stream: Stream[str]) -> None:
        async for line in stream:
            for word in line.split():
                await words.send(key=word, value=word)

    @app.agent(words)
    async def count(stream: Stream[str]) -> None:
        async for word in stream:
            counts[word] += 1

    with AppDriver(app) as driver:
        driver.pipe("lines", "to be or not to be")
        assert driver.table(counts) == {"to": 2, "be": 2, "or": 1, "not": 1}


def test_group_by_take_filter_and_concurrency_work() -> None:
    app = make_app()
    sums = app.topic("sums", value_type=int)

    @app.agent(app.topic("orders", value_type=Order), concurrency=1)
    async def add(stream: Stream[Order]) -> None:
        grouped = stream.group_by(Order.account).filter(lambda each: each.amount > 0)
        async for batch in grouped.take(3, within=10):
            event = current_event()
            await sums.send(key=event.key if event else None, value=sum(o.amount for o in batch))

    with AppDriver(app) as driver:
        orders = [(None, order("a", n)) for n in (1, 2, -5, 3, 4)]
        driver.pipe_many("orders", orders, partition=0)
        assert values(driver, "sums") == [6]
        driver.advance(9)
        assert values(driver, "sums") == [6]
        driver.advance(2)
        assert values(driver, "sums") == [6, 4]


@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once", "at_most_once"])
def test_every_guarantee_runs(guarantee: str) -> None:
    with AppDriver(payments(processing_guarantee=guarantee)) as driver:
        driver.pipe_many("orders", [("a", order("a", 600))] * 3)
        assert values(driver, "alerts") == [{"total": 1200}, {"total": 1800}]


def test_read_output_returns_every_record_once() -> None:
    with AppDriver(payments()) as driver:
        driver.pipe("orders", order("a", 2000), key="a")
        assert len(driver.read_output("alerts")) == 1
        assert driver.read_output("alerts") == []
        driver.pipe("orders", order("a", 1), key="a")
        assert [record.value for record in driver.read_output("alerts")] == [{"total": 2001}]


def test_names_that_do_not_exist_are_answered_with_those_that_do() -> None:
    with AppDriver(payments()) as driver:
        with pytest.raises(KeyError, match="topics are: alerts, orders, payments-totals-changelog"):
            driver.output("alert")
        with pytest.raises(KeyError, match="tables are: totals"):
            driver.table("total")
        with pytest.raises(KeyError, match="sinks are: none"):
            driver.sink("rows")
        with pytest.raises(DriverError, match="2 partitions, not 7"):
            driver.pipe("orders", order("a", 1), partition=7)


def test_a_topic_of_several_names_and_one_that_nobody_declared_can_be_read() -> None:
    app = make_app()

    @app.agent(app.topic("left", "right", key_type=str, value_type=Order))
    async def pass_on(stream: Stream[Order]) -> None:
        async for each in stream:
            await app.send("elsewhere", value=each)
            await app.send("elsewhere", value="ä".encode("latin-1"), value_serializer="raw")

    with AppDriver(app) as driver:
        driver.pipe("right", order("a", 1), key="k")
        assert driver.output("right")[0].value == order("a", 1)
        assert values(driver, "elsewhere") == [{"id": "1", "account": "a", "amount": 1}, b"\xe4"]


def test_an_output_that_is_not_of_its_topics_type_is_told_with_its_place() -> None:
    app = make_app()
    out = app.topic("out", value_type=Order)

    @app.agent(app.topic("in", value_type=str))
    async def lie(stream: Stream[str]) -> None:
        async for text in stream:
            await out.send(value=text, value_serializer="json")

    with AppDriver(app) as driver:
        driver.pipe("in", "x")
        with pytest.raises(DecodeError, match="out-0 at offset 0"):
            driver.output("out")


# what is not committed


def test_a_crash_drops_what_is_not_committed_and_handles_it_again() -> None:
    with AppDriver(payments()) as driver:
        driver.pipe("orders", order("a", 600), key="a")
        driver.pipe("orders", order("a", 600), key="a", commit=False)
        assert driver.output("alerts") == []
        assert driver.table("totals") == {"a": 600}
        driver.crash()
        assert values(driver, "alerts") == [{"total": 1200}]
        assert driver.table("totals") == {"a": 1200}


@pytest.mark.parametrize("store", ["memory://", "rocksdb://"])
def test_state_is_there_after_a_crash(store: str) -> None:
    with AppDriver(payments(store=store), autocommit=False) as driver:
        driver.pipe("orders", order("a", 600), key="a")
        driver.commit()
        driver.crash()
        driver.pipe("orders", order("a", 1), key="a")
        assert driver.table("totals") == {"a": 600}
        driver.commit()
        assert driver.table("totals") == {"a": 601}


def test_what_lives_in_a_global_is_not_undone_by_a_crash() -> None:
    """The mistake that the driver is to show."""
    app = make_app()
    seen: list[int] = []

    @app.agent(app.topic("numbers", value_type=int))
    async def remember(stream: Stream[int]) -> None:
        async for number in stream:
            seen.append(number)

    with AppDriver(app) as driver:
        driver.pipe("numbers", 1, commit=False)
        driver.crash()
    assert seen == [1, 1]


# time


def timers(app: App, ticks: Topic) -> None:
    @app.timer(10.0)
    async def tick() -> None:
        await ticks.send(value="tick")

    @app.crontab("0 * * * *")
    async def hourly() -> None:
        await ticks.send(value="hour")

    @app.task
    async def once() -> None:
        await ticks.send(value="start")


def test_timers_and_crontabs_run_when_time_is_advanced() -> None:
    app = make_app()
    timers(app, app.topic("ticks", value_type=str))
    with AppDriver(app) as driver:
        assert [record.value for record in driver.read_output("ticks")] == ["start"]
        driver.advance(9.9)
        assert driver.read_output("ticks") == []
        driver.advance(0.1)
        (tick,) = driver.read_output("ticks")
        assert (
            tick.timestamp == driver.now == datetime(2024, 1, 1, 0, 0, 10, tzinfo=UTC).timestamp()
        )
        driver.advance(timedelta(hours=1))
        ticks = [record.value for record in driver.read_output("ticks")]
        assert ticks.count("tick") == 360
        assert ticks.count("hour") == 1


def test_the_clock_starts_where_it_is_told_to() -> None:
    app = make_app()
    timers(app, app.topic("ticks", value_type=str))
    with AppDriver(app, start=datetime(2030, 1, 1, 0, 59, 59, tzinfo=UTC)) as driver:
        driver.advance(2)
        assert values(driver, "ticks") == ["start", "hour"]


def test_piping_moves_no_clock_except_by_what_agents_sleep() -> None:
    app = make_app()

    @app.agent(app.topic("delays", value_type=float))
    async def sleep(stream: Stream[float]) -> None:
        async for delay in stream:
            await asyncio.sleep(delay)

    with AppDriver(app) as driver:
        start = driver.now
        driver.pipe("delays", 0.0)
        assert driver.now == start
        driver.pipe("delays", 7.5)
        assert driver.now == pytest.approx(start + 7.5)


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(await reader.readline())
    await writer.drain()
    writer.close()


def test_agents_may_use_sockets_and_executors() -> None:
    app = make_app()
    out = app.topic("out", value_type=str)

    @app.agent(app.topic("in", value_type=str))
    async def ask(stream: Stream[str]) -> None:
        server = await asyncio.start_server(_echo, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async for text in stream:
            upper = await asyncio.get_running_loop().run_in_executor(None, text.upper)
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(upper.encode() + b"\n")
            async with asyncio.timeout(60):
                answer = await reader.readline()
            writer.close()
            await out.send(value=answer.decode().strip())

    with AppDriver(app) as driver:
        driver.pipe("in", "hello")
        assert values(driver, "out") == ["HELLO"]


# failures


def test_an_agents_exception_is_raised_as_it_is_with_its_place() -> None:
    app = make_app()

    @app.agent(app.topic("numbers", value_type=int))
    async def divide(stream: Stream[int]) -> None:
        async for number in stream:
            _ = 1 // number

    with AppDriver(app) as driver:
        driver.pipe("numbers", 1, partition=0)
        with pytest.raises(ZeroDivisionError) as caught:
            driver.pipe("numbers", 0, partition=0)
        assert "agent 'divide' failed on numbers-0 at offset 1" in caught.value.__notes__[0]
        with pytest.raises(DriverError, match=r"the worker stopped: .*crash\(\) starts it again"):
            driver.pipe("numbers", 1)
        with pytest.raises(ZeroDivisionError):  # the record is still the next one
            driver.crash()


def test_a_timers_exception_is_raised_by_advance() -> None:
    app = make_app()

    @app.timer(1.0)
    async def tick() -> None:
        raise LookupError("gone")

    with AppDriver(app) as driver, pytest.raises(LookupError, match="gone"):
        driver.advance(1)


def test_an_undecodable_record_stops_or_is_dead_lettered_as_the_app_says() -> None:
    with AppDriver(payments()) as driver, pytest.raises(UndecodableRecord, match="orders-"):
        driver.pipe("orders", b"no json", key="a")
    with AppDriver(payments(on_decode_error="dead_letter")) as driver:
        driver.pipe("orders", b"no json", key="a")
        (dead,) = driver.output("payments-dead-letter")
        assert dead.value == b"no json"
        assert dead.headers["onceward-topic"] == b"orders"


def test_a_failed_record_is_dead_lettered_and_the_others_go_on() -> None:
    app = make_app(on_agent_error="dead_letter")
    out = app.topic("out", value_type=int)

    @app.agent(app.topic("numbers", value_type=int), concurrency=2)
    async def divide(stream: Stream[int]) -> None:
        async for number in stream:
            await out.send(value=12 // number)

    with AppDriver(app) as driver:
        driver.pipe_many("numbers", [(None, n) for n in (1, 0, 2, 3)], partition=0)
        assert values(driver, "out") == [12, 6, 4]
        assert len(driver.output("payments-dead-letter")) == 1


def test_an_agent_that_waits_for_nothing_is_told_with_its_line() -> None:
    app = make_app()

    @app.agent(app.topic("numbers", value_type=int))
    async def hang(stream: Stream[int]) -> None:
        async for _ in stream:
            await asyncio.Event().wait()

    where = r"never comes[^$]*hang-0_0: .*hang:\d+ > wait:\d+"
    with AppDriver(app) as driver, pytest.raises(DriverError, match=where):
        driver.pipe("numbers", 1, partition=0)


def test_an_agent_that_never_finishes_a_record_is_told() -> None:
    app = make_app()

    @app.agent(app.topic("numbers", value_type=int))
    async def poll(stream: Stream[int]) -> None:
        async for _ in stream:
            while True:
                await asyncio.sleep(60)

    where = "still at it after 3600 virtual seconds"
    with AppDriver(app) as driver, pytest.raises(DriverError, match=where):
        driver.pipe("numbers", 1)


def test_a_wrong_app_is_told_at_the_start_and_the_driver_is_closed() -> None:
    app = make_app(topic_allow_declare=False)
    app.Table("totals", partitions=3)

    @app.agent(app.topic("in", value_type=str, partitions=2), tables=list(app.tables.values()))
    async def run(stream: Stream[str]) -> None:
        async for _ in stream:
            pass

    driver = AppDriver(app)
    with pytest.raises(ConfigurationError, match="declared with 3 partitions"):
        driver.open()
    with pytest.raises(DriverError, match="not open"):
        driver.pipe("in", "x")
    assert not app.conf.topic_allow_declare


# sinks


class Rows(Sink):
    """A sink of one's own."""

    def __init__(self) -> None:
        super().__init__("rows")

    def apply(self, batch: Batch) -> None:
        raise AssertionError("the driver writes to no database")


def test_sinks_are_recorded_when_committed_and_not_written_to() -> None:
    app = make_app()
    rows, called = Rows(), list[int]()

    def call(number: int) -> None:
        called.append(number)

    @app.agent(app.topic("numbers", value_type=int), sink=[rows, call])
    async def double(stream: Stream[int]) -> AsyncIterator[int]:
        async for number in stream:
            await rows.write(-number)
            yield number * 2

    with AppDriver(app) as driver:
        driver.pipe("numbers", 1, partition=0)
        driver.pipe("numbers", 2, partition=0, commit=False)
        assert driver.sink(rows) == driver.sink("Rows") == [-1, 2]
        driver.crash()
        assert driver.sink(rows) == [-1, 2, -2, 4]
        assert driver.sink("call") == called == [2, 4, 4]  # a plain function is called again
    assert rows.target is rows
    assert app.agents["double"].sinks == [rows, call]


def test_one_app_can_be_driven_again_from_an_empty_state() -> None:
    app = payments()
    for _ in range(2):
        with AppDriver(app) as driver:
            driver.pipe("orders", order("a", 600), key="a")
            assert driver.table("totals") == {"a": 600}
