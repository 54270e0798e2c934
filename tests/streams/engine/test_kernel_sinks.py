"""Writing to sinks: the compiled steps and the pure ones do the same; each test runs on both."""

from __future__ import annotations

import contextvars
import copy
import importlib
import sys
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceward.streams.engine import kernel as chosen
from onceward.streams.engine import pure
from onceward.streams.engine.kernel import CURRENT

KERNELS = [pure]
if chosen.COMPILED:
    KERNELS.append(importlib.import_module("onceward.streams.engine._kernel"))
kernels = pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.__name__)


class World:
    """A sink, what is written to it and a slot over ``kernel``'s types, with a log of calls."""

    def __init__(self, kernel: ModuleType, full_at: int = 1000) -> None:
        calls = self.calls = list[Any]()

        class Effects(kernel.EffectLists):  # type: ignore[misc, name-defined]
            __slots__ = ()

            def is_full(self) -> bool:
                calls.append(("is_full", len(self.values)))
                self.check_at += 2
                return len(self.values) >= full_at

        class Sink(kernel.SinkWrite):  # type: ignore[misc, name-defined]
            def encode(self, value: Any, key: Any, slot: Any) -> Any:
                if value == "bad":
                    raise ValueError("a bad value")
                return value, key

            def _outside(self, in_agent: bool) -> Exception:
                return LookupError(f"in an agent: {in_agent}")

        class Slot(kernel.SlotState):  # type: ignore[misc, name-defined]
            __slots__ = ("task",)

        class Task:
            def ask_for_commit(self) -> None:
                calls.append("ask_for_commit")

        self.sink, self.effects, self.slot = Sink(), Effects(), Slot()
        effects, slot = self.effects, self.slot
        effects.values, effects.origins, effects.check_at, effects.next_index = [], [], 1, 0
        effects.last_block = effects.last_agent = None
        slot.block, slot.index, slot.agent, slot.done = "block", 0, "etl", object()
        slot.effects, slot.task = {self.sink: effects}, Task()

    def write(self, *args: Any, **options: Any) -> Any:
        """Within the slot."""
        context = contextvars.copy_context()
        context.run(CURRENT.set, self.slot)
        return context.run(self.sink.write, *args, **options)


@kernels
def test_a_write_keeps_the_encoded_value_and_where_it_comes_from(kernel: ModuleType) -> None:
    world = World(kernel)
    assert world.write("a") is world.slot.done
    world.slot.index = 1
    assert world.write("b", key=7) is world.slot.done
    assert world.write(value="c") is world.slot.done
    assert world.effects.values == [("a", None), ("b", 7), ("c", None)]
    assert world.effects.origins == [(0, "block", 0, "etl"), (2, "block", 1, "etl")]


@kernels
def test_a_write_in_no_agent_or_without_a_record_is_refused(kernel: ModuleType) -> None:
    world = World(kernel)
    with pytest.raises(LookupError, match="False"):
        world.sink.write("a")
    changes: list[tuple[str, Any]] = [("block", None), ("effects", {})]
    for name, value in changes:
        world = World(kernel)
        setattr(world.slot, name, value)
        with pytest.raises(LookupError, match="True"):
            world.write("a")
        assert world.effects.values == []


@kernels
def test_what_cannot_be_encoded_leaves_nothing_behind(kernel: ModuleType) -> None:
    world = World(kernel)
    with pytest.raises(ValueError, match="a bad value"):
        world.write("bad")
    assert (world.effects.values, world.effects.origins) == ([], [])


@kernels
def test_a_write_takes_one_value_and_a_key_by_name(kernel: ModuleType) -> None:
    world = World(kernel)
    calls: list[Callable[[], Any]] = [
        world.write,
        lambda: world.write("a", "b"),
        lambda: world.write("a", kee=1),
        lambda: world.write("a", value="b"),
    ]
    for call in calls:
        with pytest.raises(TypeError):
            call()
    assert world.effects.values == []


@kernels
def test_a_commit_is_asked_for_when_there_is_enough(kernel: ModuleType) -> None:
    world = World(kernel, full_at=4)
    for _ in range(5):
        world.write("a")
    assert world.calls == [("is_full", 1), ("is_full", 3), ("is_full", 5), "ask_for_commit"]


@kernels
def test_an_error_in_what_is_asked_comes_out(kernel: ModuleType) -> None:
    def fail() -> None:
        raise ValueError("broken")

    world = World(kernel, full_at=1)
    world.slot.task.ask_for_commit = fail
    with pytest.raises(ValueError, match="broken"):
        world.write("a")
    world.slot.task, world.effects.check_at = None, 1
    with pytest.raises(AttributeError):
        world.write("a")


@kernels
def test_a_sink_is_an_object_like_any_other(kernel: ModuleType) -> None:
    class Abstract(kernel.SinkWrite, ABC):  # type: ignore[misc, name-defined]
        @abstractmethod
        def apply(self) -> None: ...

    with pytest.raises(TypeError, match="abstract"):
        Abstract()
    world = World(kernel)
    world.sink.name = "rows"
    assert copy.copy(world.sink).name == "rows"
    kind = type(world.sink)
    before = sys.getrefcount(kind)
    many = [kind() for _ in range(100)]
    assert sys.getrefcount(kind) == before + 100
    seen = weakref.ref(many[0])
    del many
    assert (seen(), sys.getrefcount(kind)) == (None, before)


@kernels
def test_slots_that_hold_something_else_are_an_error_and_no_crash(kernel: ModuleType) -> None:
    if kernel is pure:
        pytest.skip("Python needs no care")
    for name, value in (("values", ()), ("values", None), ("origins", "x")):
        world = World(kernel)
        setattr(world.effects, name, value)
        with pytest.raises(TypeError):
            world.write("a")
    world = World(kernel)
    world.slot.effects = {world.sink: "no effects"}
    with pytest.raises(TypeError):
        world.write("a")
    for name in ("agent", "done", "effects"):
        world = World(kernel)
        delattr(world.slot, name)
        with pytest.raises((AttributeError, TypeError)):
            world.write("a")


@kernels
def test_effects_that_are_taken_away_while_the_sink_is_looked_up_do_no_harm(
    kernel: ModuleType,
) -> None:
    world = World(kernel)
    effects = world.effects

    class Changing(type(world.sink)):  # type: ignore[misc]
        def __hash__(self) -> int:
            return 1

        def __eq__(self, other: object) -> bool:
            world.slot.effects = {}
            self.others = [dict.fromkeys(range(2)) for _ in range(99)]  # over what was freed
            return self is other

    sinks = [Changing() for _ in range(2)]
    world.slot.effects = dict.fromkeys(sinks, effects)
    world.sink = sinks[1]
    assert world.write("a") is world.slot.done
    assert effects.values == [("a", None)]


@kernels
def test_a_value_there_is_no_memory_for_does_not_move_the_next_one(kernel: ModuleType) -> None:
    memory = pytest.importorskip("_testcapi")
    failures = 0
    for number in range(8):
        effects = World(kernel).effects
        try:
            memory.set_nomemory(number, number + 1)
            effects.add("a", "block", 5, "etl")
        except MemoryError:
            memory.remove_mem_hooks()
            failures += 1
            effects.add("b", "block", 0, "etl")
            assert effects.values == ["b"]
            assert effects.origins[-1] == (0, "block", 0, "etl")
        finally:
            memory.remove_mem_hooks()
    assert failures > 0


@given(
    steps=st.lists(st.tuples(st.sampled_from("AB"), st.integers(0, 3), st.sampled_from(["x", "y"])))
)
def test_origins_say_for_each_value_where_it_comes_from(steps: list[tuple[str, int, str]]) -> None:
    found = []
    for kernel in KERNELS:
        effects = World(kernel).effects
        for number, (block, index, agent) in enumerate(steps):
            effects.add(number, block, index, agent)
        found.append((effects.values, effects.origins))
        starts = [origin[0] for origin in effects.origins] + [len(steps)]
        places = [
            (block, index + step, agent)
            for (start, block, index, agent), stop in zip(effects.origins, starts[1:], strict=True)
            for step in range(stop - start)
        ]
        assert places == steps
    assert all(each == found[0] for each in found)
