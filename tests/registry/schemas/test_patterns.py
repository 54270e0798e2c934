"""The regular expression matcher: like ``re``, but in bounded time."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onceward.registry.schemas.json_schema.patterns import Pattern, PatternError


@pytest.mark.parametrize(
    ("pattern", "found", "not_found"),
    [
        ("abc", ["abc", "xabcx"], ["ab", ""]),
        ("^abc$", ["abc"], ["abcd", "xabc"]),
        ("^a|b$", ["ax", "xb"], ["xa", "bx"]),
        ("^(a|bc)*$", ["", "abca"], ["ab", "c"]),
        ("^a+?b?c{2}$", ["acc", "aabcc"], ["ac", "abc"]),
        ("^x{2,3}$", ["xx", "xxx"], ["x", "xxxx"]),
        ("^x{2,}$", ["xx", "xxxxx"], ["x"]),
        ("^x{0}$", [""], ["x"]),
        (r"^\d+\.\d$", ["12.5"], ["1255", "1.x"]),
        (r"^[\w-]+$", ["a-b_9"], ["a b"]),
        (r"^[^\s\d]$", ["x"], ["1", " ", "xx"]),
        (r"^[a-cX\]]$", ["b", "X", "]"], ["d", "-"]),
        (r"^[\d-z]$", ["4", "-", "z"], ["y"]),
        (r"^\u0041\x42\t$", ["AB\t"], ["AB"]),
        (r"\bword\b", ["a word."], ["swords"]),
        (r"\Bx", ["ax"], ["x"]),
        ("^(?:a)(?<name>b)$", ["ab"], ["a"]),
        ("^a{,3}$", ["a{,3}"], ["aaa"]),
        ("^.$", ["é"], ["\n"]),
        ("^x-", ["x-header"], ["header-x-"]),
        ("", ["", "anything"], []),
    ],
)
def test_a_pattern_is_found_where_it_should_be(
    pattern: str, found: list[str], not_found: list[str]
) -> None:
    compiled = Pattern(pattern)
    assert not compiled.is_opaque
    assert [text for text in found if not compiled.found_in(text)] == []
    assert [text for text in not_found if compiled.found_in(text)] == []


@pytest.mark.parametrize("pattern", ["a(", "a)", "[a", "*a", "a|*", "{2}", "x{3,2}", "\\", "[b-a]"])
def test_what_is_no_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(PatternError):
        Pattern(pattern)


@pytest.mark.parametrize(
    "pattern",
    ["(?=a)", "(?!a)", "(?<=a)b", r"(a)\1", r"\p{L}", "(?i)a", "a*+", "(a{1000}){1000}", "(" * 200],
)
def test_what_takes_a_stronger_matcher_is_found_nowhere(pattern: str) -> None:
    compiled = Pattern(pattern)
    assert compiled.is_opaque
    assert not compiled.found_in("aaa")


def test_a_hostile_pattern_takes_no_longer_than_another() -> None:
    assert not Pattern("^(a|a)*(a+)+(a*)*$").found_in("a" * 2000 + "b")


_ATOMS = st.sampled_from(["a", "b", "c", ".", "[ab]", "[^a]", r"\w", r"\d", "^", "$", r"\b"])


def _combined(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    repeats = st.sampled_from(["", "*", "+", "?", "{2}", "{1,2}", "{0,}"])
    return st.one_of(
        st.builds(lambda a, b: a + b, inner, inner),
        st.builds(lambda a, b: f"({a}|{b})", inner, inner),
        st.builds(lambda a, r: f"(?:{a}){r}", inner, repeats),
    )


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.recursive(_ATOMS, _combined, max_leaves=6), st.text("abc1", max_size=5))
def test_the_matcher_agrees_with_re(pattern: str, text: str) -> None:
    assert Pattern(pattern).found_in(text) == (re.search(pattern, text) is not None)
