"""The compiled steps of every record and the pure ones do the same: each test runs on both."""

from __future__ import annotations

import asyncio
import gc
import importlib
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceward.streams.engine import kernel as chosen
from onceward.streams.engine import pure
from onceward.streams.engine.kernel import ABSENT, CURRENT, Snapshot

WAKE = object()
compiled_only = pytest.mark.skipif(not chosen.COMPILED, reason="the extension is not built")


def compiled() -> ModuleType:
    return importlib.import_module("onceward.streams.engine._kernel")


@pytest.fixture(params=["compiled", "pure"])
def kernel(request: pytest.FixtureRequest) -> ModuleType:
    if request.param == "pure":
        return pure
    if not chosen.COMPILED:
        pytest.skip("the extension is not built")
    return compiled()


class Block:
    def __init__(self, timestamps: list[int]) -> None:
        self.timestamps = timestamps


class Reading:
    """A feed and a slot of it over ``kernel``'s types. ``park`` waits for ``go_on``."""

    def __init__(self, kernel: ModuleType, values: list[Any], limit: int | None = None) -> None:
        reading = self

        class Feed(kernel.FeedState):  # type: ignore[misc, name-defined]
            __slots__ = ()

        class Slot(kernel.SlotState):  # type: ignore[misc, name-defined]
            __slots__ = ()

            async def park(self) -> bool:
                reading.parked += 1
                try:
                    return await reading.wait()
                finally:
                    reading.parked -= 1

        self.parked = 0
        self.waiter: asyncio.Future[bool] | None = None
        self.feed = Feed()
        self.feed.block, self.feed.values = Block([]), values
        self.feed.index, self.feed.limit = 0, len(values) if limit is None else limit
        self.slot = Slot()
        self.slot.feed, self.slot.block, self.slot.index = self.feed, None, 0
        self.values: AsyncIterator[Any] = kernel.values(self.slot, WAKE)

    async def wait(self) -> bool:
        self.waiter = asyncio.get_running_loop().create_future()
        return await self.waiter

    def go_on(self, *, wake: bool = False) -> None:
        assert self.waiter is not None
        self.waiter.set_result(wake)

    async def collect(self, into: list[Any]) -> None:
        async for value in self.values:
            into.append(value)


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def end(task: asyncio.Future[Any]) -> None:
    task.cancel()
    await asyncio.wait([task])


async def test_values_come_in_order_and_stop_at_the_limit(kernel: ModuleType) -> None:
    reading, found = Reading(kernel, [1, None, "three", 4], limit=3), list[Any]()
    task = asyncio.ensure_future(reading.collect(found))
    await turns()
    assert found == [1, None, "three"]
    assert (reading.feed.index, reading.slot.index, reading.parked) == (3, 2, 1)
    assert reading.slot.block is reading.feed.block
    reading.feed.limit = 4
    reading.go_on()
    await turns()
    assert found == [1, None, "three", 4]
    await end(task)
    assert reading.parked == 0


async def test_waking_without_records_waits_again_and_an_alarm_is_handed_out(
    kernel: ModuleType,
) -> None:
    reading, found = Reading(kernel, []), list[Any]()
    task = asyncio.ensure_future(reading.collect(found))
    await turns()
    reading.go_on()
    await turns()
    assert (found, reading.parked) == ([], 1)
    reading.go_on(wake=True)
    await turns()
    assert (found, reading.parked) == ([WAKE], 1)
    await end(task)


async def test_a_park_that_need_not_wait_goes_on_at_once(kernel: ModuleType) -> None:
    reading = Reading(kernel, ["a"], limit=0)

    async def raised() -> bool:
        reading.feed.limit = 1
        return False

    reading.wait = raised  # type: ignore[method-assign]
    assert await anext(reading.values) == "a"

    async def rang() -> bool:
        return True

    reading.wait = rang  # type: ignore[method-assign]
    assert [await anext(reading.values) for _ in range(3)] == [WAKE] * 3


async def test_a_record_is_in_hand_only_when_the_next_one_is_awaited(kernel: ModuleType) -> None:
    """Between asking and awaiting a cut may lower the limit: nothing is taken then."""
    reading = Reading(kernel, ["a", "b"])
    asked = anext(reading.values)
    assert (reading.feed.index, reading.slot.block) == (0, None)
    reading.feed.limit = 0
    waiting = asyncio.ensure_future(asked)
    await turns()
    assert (reading.feed.index, reading.parked, waiting.done()) == (0, 1, False)
    reading.feed.limit = 2
    reading.go_on()
    assert await waiting == "a"
    assert await anext(reading.values) == "b"


async def test_a_loop_that_was_left_is_taken_up_where_it_was(kernel: ModuleType) -> None:
    reading = Reading(kernel, list(range(6)))
    async for value in reading.values:
        if value == 2:
            break
    assert (reading.feed.index, reading.slot.index) == (3, 2)
    assert [await anext(reading.values) for _ in range(3)] == [3, 4, 5]


async def test_only_one_reader_may_wait(kernel: ModuleType) -> None:
    reading = Reading(kernel, [])
    waiting = asyncio.ensure_future(anext(reading.values))
    await turns()
    with pytest.raises(RuntimeError, match="already running"):
        await anext(reading.values)
    assert reading.parked == 1
    reading.go_on(wake=True)
    assert await waiting is WAKE


async def test_what_was_awaited_cannot_be_awaited_again(kernel: ModuleType) -> None:
    reading = Reading(kernel, ["a", "b"])
    asked = reading.values.__anext__()
    assert await asked == "a"
    with pytest.raises(RuntimeError, match="already awaited"):
        await asked
    assert await anext(reading.values) == "b"


async def test_an_error_ends_the_iteration(kernel: ModuleType) -> None:
    reading = Reading(kernel, [])

    async def fail() -> bool:
        raise ValueError("broken")

    reading.wait = fail  # type: ignore[method-assign]
    with pytest.raises(ValueError, match="broken"):
        await anext(reading.values)
    with pytest.raises(StopAsyncIteration):
        await anext(reading.values)
    assert [value async for value in reading.values] == []
    assert reading.parked == 0


async def test_an_error_after_waiting_ends_the_iteration(kernel: ModuleType) -> None:
    reading = Reading(kernel, [])
    waiting = asyncio.ensure_future(anext(reading.values))
    await turns()
    assert reading.waiter is not None
    reading.waiter.set_exception(ValueError("broken"))
    with pytest.raises(ValueError, match="broken"):
        await waiting
    with pytest.raises(StopAsyncIteration):
        await anext(reading.values)


async def test_being_cancelled_while_waiting_ends_the_iteration(kernel: ModuleType) -> None:
    reading = Reading(kernel, [])
    waiting = asyncio.ensure_future(anext(reading.values))
    await turns()
    await end(waiting)
    assert waiting.cancelled()
    assert reading.parked == 0
    with pytest.raises(StopAsyncIteration):
        await anext(reading.values)


async def test_a_park_that_survives_being_cancelled_goes_on(kernel: ModuleType) -> None:
    reading = Reading(kernel, ["a"], limit=0)

    async def stubborn() -> bool:
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            reading.feed.limit = 1
        return False

    reading.wait = stubborn  # type: ignore[method-assign]
    waiting = asyncio.ensure_future(anext(reading.values))
    await turns()
    waiting.cancel()
    assert await waiting == "a"


async def test_values_that_are_missing_raise(kernel: ModuleType) -> None:
    reading = Reading(kernel, ["a"], limit=2)
    assert await anext(reading.values) == "a"
    with pytest.raises(IndexError):
        await anext(reading.values)
    with pytest.raises(StopAsyncIteration):
        await anext(reading.values)


async def test_values_may_be_replaced_when_the_last_block_goes(kernel: ModuleType) -> None:
    reading = Reading(kernel, [])

    class Last(Block):
        def __del__(self) -> None:
            reading.feed.values = ["new"]

    reading.feed.values, reading.feed.limit = [str(number) for number in range(99)], 1
    reading.slot.block = Last([])
    assert await anext(reading.values) == "new"


@compiled_only
async def test_a_reader_that_is_dropped_while_it_waits_stops_waiting() -> None:
    """Left to the loop's clean-up by a generator; nobody depends on when."""
    reading = Reading(compiled(), [])

    async def read() -> None:
        await anext(reading.values)

    for end_it in (lambda coroutine: coroutine.close(), lambda coroutine: None):
        reading.values = compiled().values(reading.slot, WAKE)
        coroutine = read()
        coroutine.send(None)
        assert reading.parked == 1
        end_it(coroutine)
        del coroutine
        assert reading.parked == 0
        with pytest.raises(StopAsyncIteration):
            await anext(reading.values)


async def test_the_awaitable_can_be_driven_by_hand(kernel: ModuleType) -> None:
    reading = Reading(kernel, [("a", "tuple"), StopIteration("a value")], limit=0)
    steps: Any = reading.values.__anext__().__await__()
    assert next(steps) is reading.waiter
    reading.feed.limit = 2
    reading.go_on()
    with pytest.raises(StopIteration) as stop:
        next(steps)
    assert stop.value.value == ("a", "tuple")
    found = await anext(reading.values)
    assert isinstance(found, StopIteration)
    thrown: Any = reading.values.__anext__()
    with pytest.raises(ValueError, match="thrown"):
        thrown.throw(ValueError("thrown"))
    with pytest.raises(StopAsyncIteration):
        await anext(reading.values)


class Lists:
    """A topic's output over ``kernel``'s types."""

    def __init__(self, kernel: ModuleType) -> None:
        class Output(kernel.OutputLists):  # type: ignore[misc, name-defined]
            __slots__ = ()

        class Outputs(kernel.OutputTopics):  # type: ignore[misc, name-defined]
            __slots__ = ()

        self.output = Output()
        self.output.keys, self.output.values, self.output.timestamps = [], [], []
        self.outputs = Outputs()
        self.outputs.topics = {"out": self.output}

    @property
    def records(self) -> list[tuple[Any, Any, int]]:
        return list(zip(self.output.keys, self.output.values, self.output.timestamps, strict=True))


def fail_on_a_set(value: Any) -> bytes:
    if isinstance(value, set):
        raise TypeError("a set has no JSON form")
    return repr(value).encode()


class World:
    """A table, its transaction, a topic and a slot over ``kernel``'s types, with a log of the calls
    that left the common case."""

    def __init__(self, kernel: ModuleType) -> None:
        self.calls: list[Any] = []
        self.lists = Lists(kernel)
        self.done = object()
        reading = Reading(kernel, [])
        self.slot = reading.slot
        self.slot.block, self.slot.index = Block([10, 20, 30]), 1
        self.slot.outputs, self.slot.done = self.lists.outputs, self.done
        self.overlay = self.make_overlay(kernel)
        self.table = self.make_table(kernel)
        self.topic = self.make_topic(kernel)
        self.slot.tables = {self.table: self.overlay}

    def make_overlay(self, kernel: ModuleType) -> Any:
        calls = self.calls

        class Overlay(kernel.Overlay):  # type: ignore[misc, name-defined]
            def _load(self, key: bytes) -> Any:
                calls.append(("load", key))
                return {b"stored": 7, b"list": Snapshot(b"[1]")}.get(key, ABSENT)

            def put(self, key: bytes, value: Any) -> None:
                calls.append(("put", key, value))
                self.written[key] = Snapshot(fail_on_a_set(value))

        overlay = Overlay()
        overlay.written, overlay._committing, overlay._cache = {}, {b"was": 1}, {b"cached": 2}
        overlay._decode = lambda data: ("decoded", bytes(data))
        overlay.undo, overlay.last_key, overlay.last_raw_key = None, ABSENT, b""
        return overlay

    def make_table(self, kernel: ModuleType) -> Any:
        calls, overlay = self.calls, self.overlay

        class Table(kernel.TableAccess):  # type: ignore[misc, name-defined]
            def __getattr__(self, name: str) -> object:
                raise AttributeError(f"nothing like {name}")

            def _find(self, encoded: bytes) -> Any:
                calls.append(("find", encoded))
                return {b"stored": 7}.get(encoded, ABSENT)

            def _writable(self) -> Any:
                calls.append("writable")
                if CURRENT.get() is None:
                    raise LookupError("outside")
                return overlay

            def _remove(self, key: Any) -> None:
                calls.append(("remove", key))

        table = Table()
        table.default, table.encodes_text = None, True
        table.encode_key = lambda key: key.encode() if type(key) is str else fail_on_a_set(key)
        return table

    def make_topic(self, kernel: ModuleType) -> Any:
        calls = self.calls

        class Topic(kernel.TopicSend):  # type: ignore[misc, name-defined]
            def _send_given(self, **record: Any) -> Any:
                given = {name: value for name, value in record.items() if value is not None}
                calls.append(("given", given))
                return "given"

            def send_encoded(self, key: Any, value: Any, **options: Any) -> Any:
                calls.append(("encoded", key, value, options))
                return "encoded"

        topic = Topic()
        topic.name, topic.encodes_text, topic.is_plain = "out", True, True
        topic.encode_key = topic.encode_value = fail_on_a_set
        return topic

    def inside(self, act: Callable[[], Any]) -> Any:
        """The result of ``act`` run as the slot's code, or its error."""
        token = CURRENT.set(self.slot)
        try:
            return outcome(act)
        finally:
            CURRENT.reset(token)


def outcome(act: Callable[[], Any]) -> Any:
    try:
        return act()
    except Exception as error:  # noqa: BLE001 - errors are compared too
        return type(error), str(error)


KEYS: st.SearchStrategy[Any] = st.sampled_from(
    ["a", "stored", "list", "was", "cached", "\ud800", 1, 1.5, None, frozenset()]
)
VALUES = st.sampled_from([1, 2**70, "text", True, 1.5, b"raw", None, [1], {2}, ABSENT])
ACTIONS = st.one_of(
    st.tuples(st.sampled_from(["read", "remove", "read outside", "get"]), KEYS, st.none()),
    st.tuples(st.sampled_from(["write", "write outside", "send", "add"]), KEYS, VALUES),
    st.tuples(
        st.sampled_from(["mark", "unmark", "commit", "default", "no default", "unknown", "known"]),
        st.none(),
        st.none(),
    ),
)


def perform(world: World, action: str, key: Any, value: Any) -> Any:
    table, overlay = world.table, world.overlay
    match action:
        case "read":
            return world.inside(lambda: table[key])
        case "read outside":
            return outcome(lambda: table[key])
        case "get":
            return world.inside(lambda: overlay.get(repr(key).encode()))
        case "write":
            return world.inside(lambda: table.__setitem__(key, value))
        case "write outside":
            return outcome(lambda: table.__setitem__(key, value))
        case "add":  # reads and writes with one key object, as ``table[key] += value``
            return world.inside(lambda: (table[key], table.__setitem__(key, value)))
        case "remove":
            return world.inside(lambda: table.__delitem__(key))
        case "send":
            sent = world.inside(lambda: world.topic.send(key=key, value=value))
            return "done" if sent is world.done else sent
        case "mark" | "unmark":
            overlay.undo = [] if action == "mark" else None
        case "commit":
            overlay._committing, overlay.written = overlay.written, {}
        case "default" | "no default":
            table.default = float if action == "default" else None
        case "known":
            world.slot.tables = {table: overlay}
        case "unknown":
            world.slot.tables = {}
    return None


@compiled_only
@given(st.lists(ACTIONS, max_size=30))
def test_tables_and_sends_do_the_same_in_both(actions: list[tuple[str, Any, Any]]) -> None:
    worlds = World(compiled()), World(pure)
    for step in actions:
        results = [perform(world, *step) for world in worlds]
        assert results[0] == results[1]
        left, right = ([world.calls, world.lists.records] for world in worlds)
        assert left == right
        for field in ("written", "last_key", "last_raw_key"):
            assert getattr(worlds[0].overlay, field) == getattr(worlds[1].overlay, field)


def test_a_send_appends_what_the_record_in_hand_causes(kernel: ModuleType) -> None:
    world = World(kernel)
    send = world.topic.send
    assert world.inside(lambda: send(key="k", value=1)) is world.done
    world.slot.index = 2
    assert world.inside(lambda: send(value=2, partition=None, headers=None)) is world.done
    world.slot.block = Block([40, 50, 60])
    assert world.inside(lambda: send(**{"".join(["k", "ey"]): b"raw"})) in (world.done, "given")
    world.calls.clear()
    assert world.lists.records[:2] == [(b"k", b"1", 20), (None, b"2", 30)]
    assert world.inside(lambda: send()) is world.done
    assert world.lists.records[-1] == (None, None, 60)
    assert world.calls == []


def test_what_is_not_the_common_case_is_left_to_the_topic(kernel: ModuleType) -> None:
    world = World(kernel)
    send, calls = world.topic.send, world.calls
    assert send(key="k") == "given"
    assert world.inside(lambda: send(key="k", partition=3)) == "given"
    assert calls == [("given", {"key": "k"}), ("given", {"key": "k", "partition": 3})]
    calls.clear()
    world.topic.is_plain = False
    assert world.inside(lambda: send(value=1)) == "given"
    world.topic.is_plain = True
    world.slot.block = None
    assert world.inside(lambda: send(key="k", value=1)) == "encoded"
    world.slot.block, world.lists.outputs.topics = Block([1, 2]), {}
    assert world.inside(lambda: send(key="k", value=1)) == "encoded"
    assert calls == [("given", {"value": 1}), *[("encoded", b"k", b"1", {})] * 2]
    with pytest.raises(TypeError):
        send("k")
    assert world.lists.records == []


def test_fields_that_are_not_what_they_should_be_raise(kernel: ModuleType) -> None:
    world = World(kernel)
    broken = [
        (world.slot, "outputs", lambda: world.topic.send(value=1)),
        (world.lists.output, "keys", lambda: world.topic.send(value=1)),
        (world.slot, "tables", lambda: world.table["a"]),
        (world.overlay, "written", lambda: world.table["a"]),
        (world.topic, "encode_value", lambda: world.topic.send(value=1)),
    ]
    for owner, field, act in broken:
        kept = getattr(owner, field)
        setattr(owner, field, 5)
        assert world.inside(act)[0] in (TypeError, AttributeError)
        delattr(owner, field)
        assert world.inside(act)[0] in (TypeError, AttributeError)
        setattr(owner, field, kept)
    with pytest.raises((TypeError, AttributeError)):
        kernel.values(object(), WAKE).__anext__().send(None)


@compiled_only
async def test_the_compiled_steps_leak_nothing() -> None:
    def counts(*objects: object) -> list[int]:
        gc.collect()
        return [sys.getrefcount(each) for each in objects]

    keys: list[Any] = ["a", "stored", "list", 1, frozenset()]

    async def use(value: object) -> None:
        world, reading = World(compiled()), Reading(compiled(), [value] * 4)
        assert [await anext(reading.values) for _ in range(4)] == [value] * 4
        reading.values.__anext__()
        waiting = asyncio.ensure_future(anext(reading.values))
        await turns()
        await end(waiting)
        for step in ("read", "write", "add", "send", "remove", "write outside", "mark", "write"):
            for key in keys:
                perform(world, step, key, value)

    value = object()
    await use(value)
    before = counts(value, ABSENT, WAKE, CURRENT, Snapshot)
    for _ in range(10):
        await use(value)
    assert counts(value, ABSENT, WAKE, CURRENT, Snapshot) == before


def test_the_environment_can_ask_for_the_pure_kernel() -> None:
    code = "from onceward.streams.engine.kernel import COMPILED; print(COMPILED)"
    environment = {**os.environ, "ONCEWARD_PURE_PYTHON": "1"}
    answer = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() == "False"


def test_sent_can_be_awaited_many_times(kernel: ModuleType) -> None:
    """``send`` gives the slot's one future, done from the start."""

    async def run() -> None:
        world = World(kernel)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        world.slot.done = done
        sent: Awaitable[None] = world.inside(lambda: world.topic.send(value=1))
        await asyncio.gather(sent, sent)
        await sent

    asyncio.run(run())
