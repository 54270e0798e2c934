"""From what agents write to rows: the compiled extension and Python do the same."""

from __future__ import annotations

import copy
import enum
import gc
import importlib
import pickle
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from types import ModuleType
from typing import Any
from uuid import UUID

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceward.streams import Record
from onceward.streams.sinks import MemorySink, postgres_types, rows_kernel, rows_pure
from onceward.streams.sinks.changes import columns_in, insertions
from onceward.streams.sinks.rows import Deletion, as_row, plain, runs

KERNELS: list[ModuleType] = [rows_pure]
if rows_kernel.COMPILED:
    KERNELS.append(importlib.import_module("onceward.streams.sinks._rows"))
kernels = pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.__name__)
TAKES = frozenset({int, str, float, bytes, bool, Decimal, datetime, date, UUID, type(None)})


class Colour(enum.Enum):
    RED = "red"


class Name(str):
    """Text of another type."""

    __slots__ = ()


class Payment(Record):
    id: int
    account: str | None = None
    amount: Any = None
    note: Any = None


class Frozen(msgspec.Struct, frozen=True):
    id: int
    note: Any


class Computed(msgspec.Struct):
    """A field under something else of its name."""

    id: int
    note: Any = None


Computed.note = property(lambda self: "computed")


class Aliased(msgspec.Struct):
    """A field whose name leads to another one's place in the class."""

    id: int
    note: Any = None


Aliased.note = Aliased.__dict__["id"]


class Odd(msgspec.Struct, dict=True, weakref=True, rename="camel", tag="odd", kw_only=True):
    """Everything that moves fields or names them otherwise."""

    first_one: int
    note: Any = None


class Odder(Frozen, frozen=True, cache_hash=True, array_like=True, gc=False):
    last_one: str = "last"


class Model(pydantic.BaseModel):
    id: int
    note: Any


@dataclass
class Point:
    id: int
    note: Any


scalars = st.one_of(
    st.none(), st.integers(), st.text(), st.floats(allow_nan=False), st.binary(), st.booleans(),
    st.decimals(allow_nan=False), st.datetimes(timezones=st.just(UTC)), st.dates(), st.uuids(),
)  # fmt: skip
others = st.one_of(
    st.just(Colour.RED), st.text().map(Name), st.lists(st.integers()), st.binary().map(bytearray)
)
fields = st.one_of(scalars, others)
values = st.one_of(
    st.dictionaries(st.text(max_size=3), fields, max_size=5),
    st.builds(Payment, st.integers(), st.none() | st.text(), fields, fields),
    st.builds(Frozen, st.integers(), fields),
    st.builds(Point, st.integers(), fields),
)


def maker(kernel: ModuleType, takes: frozenset[type] = TAKES) -> Callable[[Any], dict[str, Any]]:
    made: Callable[[Any], dict[str, Any]] = kernel.RowMaker(takes, as_row, plain)
    return made


def typed(row: dict[str, Any]) -> list[tuple[str, type, Any]]:
    return [(name, type(value), value) for name, value in row.items()]


@given(value=values, takes=st.sets(st.sampled_from(sorted(TAKES, key=repr))).map(frozenset))
def test_rows_are_the_same_made_by_either(value: Any, takes: frozenset[type]) -> None:
    found = [typed(maker(kernel, takes)(value)) for kernel in KERNELS]
    assert all(each == found[0] for each in found)


@kernels
def test_a_row_does_not_change_with_what_it_was_made_of(kernel: ModuleType) -> None:
    make = maker(kernel)
    payment = Payment(1, "a", [1])
    row = make(payment)
    payment.account, payment.amount = "b", None
    assert row == {"id": 1, "account": "a", "amount": "[1]", "note": None}
    given = {"id": 1}
    row = make(given)
    given["id"] = 2
    assert row == {"id": 1}
    assert make(payment) is not make(payment)


@kernels
@pytest.mark.parametrize(
    "adapt",
    [plain, postgres_types.adapt, lambda value: msgspec.to_builtins(value, str_keys=True)],
    ids=["plain", "postgres", "json"],
)
def test_a_row_does_not_change_with_what_is_inside_what_it_was_made_of(
    kernel: ModuleType, adapt: Callable[[Any], Any]
) -> None:
    make = kernel.RowMaker(TAKES, as_row, adapt)
    deep, raw = [1], bytearray(b"a")
    inner: list[Any] = [
        deep, {"a": deep}, {"a": {"b": [deep]}}, [deep], (deep,), Payment(1, note=deep), raw,
        [raw], Frozen(1, [Point(1, deep)]), Point(1, deep),
    ]  # fmt: skip
    for note in inner:
        given = {"id": 1, "note": note}
        point, payment, odd = Point(1, note), Payment(1, note=note), Odd(first_one=1, note=note)
        made = [given, point, payment, odd, Frozen(1, note), Model(id=1, note=note)]
        rows = [make(value) for value in made]
        before = repr(rows)
        deep.append(2)
        raw[0] += 1
        payment.note = odd.note = point.note = given["note"] = 5
        given["new"] = 1
        assert repr(rows) == before
        assert [repr(make(value)) for value in made[-2:]] != [repr(row) for row in rows[-2:]]


@kernels
def test_a_type_is_looked_at_once_and_each_of_its_values_every_time(kernel: ModuleType) -> None:
    make = maker(kernel)
    assert [make(Payment(n, str(n)))["account"] for n in range(3)] == ["0", "1", "2"]
    assert make(Payment(1))["account"] is None
    assert make(Computed(1, "stored")) == {"id": 1, "note": "stored"}
    assert make(Aliased(1, "stored")) == {"id": 1, "note": "stored"}
    assert make(Odd(first_one=1)) == {"first_one": 1, "note": None}
    assert list(make(Odder(1, 2)).items()) == [("id", 1), ("note", 2), ("last_one", "last")]


@kernels
def test_types_that_say_they_are_equal_keep_their_own_columns(kernel: ModuleType) -> None:
    class Meta(type(msgspec.Struct)):  # type: ignore[misc]
        def __eq__(cls, other: object) -> bool:
            return True

        def __hash__(cls) -> int:
            return 7

    class Small(msgspec.Struct, metaclass=Meta):
        id: int

    class Large(msgspec.Struct, metaclass=Meta):
        id: int
        note: str
        more: str

    small, large = Small(1), Large(1, "a", "b")
    for order in ([small, large, small], [large, small, large]):
        make = maker(kernel)
        assert [make(value) for value in order] == [as_row(value) for value in order]


@kernels
def test_types_that_are_made_anew_all_the_time_do_not_stay(kernel: ModuleType) -> None:
    make = maker(kernel)
    seen = []
    for _ in range(600):
        kind = msgspec.defstruct("Made", [("id", int)])
        assert make(kind(1)) == {"id": 1}
        seen.append(weakref.ref(kind))
        del kind
    gc.collect()
    assert sum(each() is not None for each in seen) < 300


def test_two_threads_that_look_at_a_type_at_once_do_not_disturb_each_other() -> None:
    """One looks while the other one has looked and makes a row: what it made it with must stay."""
    if not rows_kernel.COMPILED:
        pytest.skip("Python looks at no type")

    class Slow(msgspec.Struct):
        id: int
        note: Any
        more: int

    class Other(msgspec.Struct):
        x: int
        y: int
        z: int

    looking, going_on = threading.Event(), threading.Event()
    member = Slow.__dict__["id"]

    class Field:
        def __get__(self, value: Any, kind: type) -> Any:
            if not looking.is_set():
                looking.set()
                assert going_on.wait(60)
            return member

    Slow.id = Field()  # type: ignore[assignment]

    def adapt(value: Any) -> Any:
        going_on.set()
        first.join(60)
        others.append(make(Other(1, 2, 3)))
        return "adapted"

    make = rows_kernel.RowMaker(TAKES, as_row, adapt)
    made: list[Any] = []
    others: list[Any] = []
    first = threading.Thread(target=lambda: made.append(make(Slow(1, 2, 3))))
    first.start()
    assert looking.wait(60)
    assert make(Slow(1, [2], 3)) == {"id": 1, "note": "adapted", "more": 3}
    assert (made, others) == ([{"id": 1, "note": 2, "more": 3}], [{"x": 1, "y": 2, "z": 3}])


@kernels
def test_a_maker_and_a_sink_with_one_can_be_copied(kernel: ModuleType) -> None:
    make = maker(kernel)
    for copied in (copy.copy(make), copy.deepcopy(make), pickle.loads(pickle.dumps(make))):
        assert copied(Payment(1, note=[1])) == make(Payment(1, note=[1]))
    sink = copy.deepcopy(MemorySink("rows"))
    assert sink.encode({"id": 1, "note": [1]}, None, None) == {  # type: ignore[arg-type]
        "id": 1,
        "note": "[1]",
    }


@kernels
def test_a_field_that_is_not_set_is_an_error(kernel: ModuleType) -> None:
    payment = Payment(1)
    del payment.account
    with pytest.raises(AttributeError):
        maker(kernel)(payment)


@kernels
def test_what_is_no_row_and_what_cannot_be_adapted_are_errors(kernel: ModuleType) -> None:
    def adapt(value: Any) -> Any:
        raise TypeError(f"no form for {value!r}")

    make = kernel.RowMaker(TAKES, as_row, adapt)
    with pytest.raises(TypeError, match="not int"):
        make(5)
    for value in ({"id": 1, "note": [1]}, Payment(1, note=[1]), Point(1, [1])):
        with pytest.raises(TypeError, match="no form for"):
            make(value)
    for wrong in ((), (1, 2)):
        with pytest.raises(TypeError):
            make(*wrong)


row_lists = st.lists(
    st.one_of(
        st.sampled_from([{"a": 1, "b": 2}, {"a": 3, "b": 4}, {"b": 1, "a": 2}, {"a": 1}, {}]),
        st.sampled_from([Deletion({"a": 1}), Deletion({"a": 1, "b": 2})]),
    ),
    max_size=6,
)


@given(rows=row_lists)
def test_columns_and_runs_are_those_of_the_rows_one_by_one(rows: list[Any]) -> None:
    columns = {tuple(row.key if isinstance(row, Deletion) else row) for row in rows}
    is_alike = len(columns) == 1 and not any(isinstance(row, Deletion) for row in rows)
    for kernel in KERNELS:
        assert kernel.shape(rows) == (next(iter(columns)) if is_alike else None)
    assert columns_in(rows) == columns
    put_together: list[Any] = []
    for run in runs(rows):
        assert run.start == len(put_together)
        put_together += [Deletion(row) if run.is_deletion else row for row in run.rows]
    assert put_together == rows
    assert sum(len(change.rows) for change in insertions(rows)) == len(rows)


@kernels
def test_columns_of_the_same_name_are_the_same_whatever_object_the_name_is(
    kernel: ModuleType,
) -> None:
    first, second = "".join(["na", "me"]), "".join(["nam", "e"])
    assert kernel.shape([{first: 1}, {second: 2}]) == ("name",)
    assert kernel.shape([{"a": 1}, {"á": 2}]) is None
