"""The guard comparisons run under: cycles end, failures are not forgotten, work is bounded."""

from __future__ import annotations

import json

import pytest

from onceward.registry.compatibility import can_read
from onceward.registry.compatibility.matching import maximum_matching
from onceward.registry.compatibility.verdict import (
    ComparisonTooComplex,
    Found,
    Incompatibility,
    Judging,
    Pair,
    PairGuard,
)
from onceward.registry.schemas import SchemaType, parse_schema
from onceward.registry.schemas.path import Path


def wrong(path: str = "/") -> Incompatibility:
    return Incompatibility("RULE", path, "new", "old", "why")


def test_a_pair_met_again_while_it_is_compared_is_taken_as_compatible() -> None:
    asked: list[Found] = []

    def judge() -> Judging:
        asked.append((yield pair))
        return []

    pair = Pair("a", Path(""), judge)
    assert PairGuard().run(pair) == []
    assert asked == [[]]


def test_an_outcome_that_rests_on_a_pair_found_incompatible_later_is_not_kept() -> None:
    runs: list[str] = []

    def outer() -> Judging:
        yield inner_pair  # compatible only because outer is being compared
        return [wrong()]

    def inner() -> Judging:
        runs.append("inner")
        return (yield outer_pair)

    def root() -> Judging:
        first = yield outer_pair
        second = yield inner_pair
        return first + second

    outer_pair = Pair("outer", Path("o"), outer)
    inner_pair = Pair("inner", Path("i"), inner)
    assert len(PairGuard().run(Pair("root", Path(""), root))) == 2
    assert runs == ["inner", "inner"]


def test_a_pair_that_failed_is_not_compared_again_and_names_the_new_place() -> None:
    runs: list[int] = []

    def judge() -> Judging:
        runs.append(1)
        yield from ()
        return [wrong("there"), wrong("there/too")]

    def root() -> Judging:
        first = yield Pair("a", Path("there"), judge)
        second = yield Pair("a", Path("here"), judge)
        return first + second

    found = PairGuard().run(Pair("root", Path(""), root))
    assert [reason.path for reason in found] == ["there", "there/too", "here"]
    assert len(runs) == 1


def test_work_is_bounded() -> None:
    def judge(number: int) -> Judging:
        return (yield Pair(number + 1, Path(""), lambda: judge(number + 1)))

    with pytest.raises(ComparisonTooComplex):
        PairGuard(max_steps=1000).run(Pair(0, Path(""), lambda: judge(0)))


def test_depth_of_types_needs_no_depth_of_stack() -> None:
    def chain(innermost: str) -> str:
        definitions: dict[str, object] = {
            f"d{n}": {"items": {"$ref": f"#/definitions/d{n + 1}"}} for n in range(3000)
        }
        definitions["d3000"] = {"type": innermost}
        return json.dumps({"$ref": "#/definitions/d0", "definitions": definitions})

    new, old = (parse_schema(SchemaType.JSON, chain(kind)) for kind in ("integer", "number"))
    assert not can_read(old, new)
    (reason,) = can_read(new, old)
    assert reason.rule == "TYPE_NARROWED"
    assert reason.path.startswith("…/items/") and len(reason.path) < 1000


def test_many_reasons_for_shared_types_stay_few() -> None:
    def chain(innermost: str) -> str:
        fields: list[object] = []
        for n in range(60):
            inner = [{"name": "x", "type": innermost}]
            if n:
                inner = [{"name": name, "type": f"R{n - 1}"} for name in ("p", "q")]
            record = {"type": "record", "name": f"R{n}", "fields": inner}
            fields.append({"name": f"f{n}", "type": record})
        return json.dumps({"type": "record", "name": "All", "fields": fields})

    new, old = (parse_schema(SchemaType.AVRO, chain(kind)) for kind in ("int", "string"))
    assert 1 <= len(can_read(new, old)) <= 200


@pytest.mark.parametrize(
    ("edges", "size"),
    [
        ([], 0),
        ([[]], 0),
        ([[0], [0]], 1),
        ([[0, 1], [0]], 2),
        ([[0], [0, 1], [1, 2]], 3),
        ([[1], [0, 1], [0]], 2),
        ([[0, 1], [0, 2], [0], [3, 2]], 4),
    ],
)
def test_a_matching_is_as_large_as_can_be(edges: list[list[int]], size: int) -> None:
    assert maximum_matching(edges) == size


def test_a_long_augmenting_path_is_found() -> None:
    rows = [[n, n + 1] for n in range(2000)]
    assert maximum_matching([*rows, [0]]) == 2001
