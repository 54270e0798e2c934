"""Expectations: the strongest thing on which correct runs agree, and no more."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onceward.streams.testing.checker import check
from onceward.streams.testing.comparison import expectation
from onceward.streams.testing.history import History, Level, LogRecord, Position

from .runs import CHANGELOG, correct_run


def history(*partitions: str, topic: str = "out") -> History:
    """Records of key ``k``, one letter each, per partition."""
    return History(
        log={
            (topic, number): [
                LogRecord(Position(topic, number, offset), b"k", letter.encode(), 0)
                for offset, letter in enumerate(letters)
            ]
            for number, letters in enumerate(partitions)
        }
    )


@pytest.mark.parametrize(
    ("references", "level"),
    [
        (["abc"], Level.SEQUENCE),
        (["abc", "abc", "abc"], Level.SEQUENCE),
        (["abc", "bac"], Level.MULTISET),
        (["abc", "abc", "acb"], Level.MULTISET),
        (["abc", "ac"], Level.LAST),
        (["ab", "ac"], Level.NONE),
        (["", "a"], Level.NONE),
    ],
)
def test_the_strongest_level_on_which_all_references_agree_is_expected(
    references: list[str], level: Level
) -> None:
    found = expectation([history(each) for each in references])
    assert found.outputs["out"][0] is level
    for each in references:
        assert check(history(each), found) == []


def test_a_topic_that_not_every_reference_has_is_not_compared() -> None:
    assert expectation([history("a"), History()]).outputs["out"][0] is Level.NONE


def test_without_references_nothing_can_be_expected() -> None:
    with pytest.raises(ValueError, match="at least one reference"):
        expectation([])


def test_how_often_a_changelog_has_a_key_is_never_expected() -> None:
    """Two updates in one commit are one record: that is timing, even if references agree."""
    references = [correct_run(1, [b"a", b"a", b"b"])] * 3
    assert expectation(references).outputs[CHANGELOG][0] is Level.LAST


def test_tables_are_expected_where_the_references_agree() -> None:
    one, two = correct_run(1, [b"a", b"a"]), correct_run(2, [b"a", b"a"])
    assert expectation([one, two]).tables == {"counts": {1: {b"a": b"2"}}}
    two.tables["counts"][1][b"a"] = b"3"
    assert expectation([one, two]).tables == {}


def test_sinks_are_expected_on_the_level_on_which_the_references_agree() -> None:
    def of(*effects: object) -> History:
        return History(sinks={"db": list(effects)})

    def level(*references: History) -> Level:
        return expectation(references).sinks["db"][0]

    assert level(of(1, 2), of(1, 2)) is Level.SEQUENCE
    assert level(of({"a": 1}, {"b": 2}), of({"b": 2}, {"a": 1})) is Level.MULTISET
    assert level(of(("k", 1), ("k", 2)), of(("k", 2))) is Level.LAST
    assert level(of(1, 2), of(2)) is Level.NONE


@given(
    st.lists(st.sampled_from([b"a", b"b", b"c", b"d"]), max_size=25),
    st.lists(st.integers(0, 2**32), min_size=1, max_size=3),
    st.integers(0, 2**32),
)
@settings(max_examples=100, deadline=None)
def test_what_correct_runs_agree_on_holds_for_every_other_correct_run(
    keys: list[bytes], references: list[int], seed: int
) -> None:
    expected = expectation([correct_run(each, keys) for each in references])
    assert check(correct_run(seed, keys), expected) == []
