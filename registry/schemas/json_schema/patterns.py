"""Regular expressions of JSON Schema, matched in time linear in text and pattern.

``re`` backtracks, so a hostile pattern in a schema could hold the registry for hours. This is the
usual simulation of all paths at once: characters, classes, groups, alternatives, repetition,
anchors and word boundaries of ECMA-262. What cannot be had that way (look-around, back references,
Unicode properties) makes a pattern *opaque*: it is found in nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

MAX_PROGRAM = 5_000
"""Steps of one pattern, counted repetitions written out; beyond it the pattern is opaque."""

_CLASSES: Final[dict[str, Callable[[str], bool]]] = {
    "d": lambda char: char in "0123456789",
    "w": lambda char: char.isascii() and (char.isalnum() or char == "_"),
    "s": str.isspace,
}
_CONTROLS: Final[dict[str, str]] = {
    "t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v", "0": "\0"
}  # fmt: skip
_HEX_DIGITS: Final[dict[str, int]] = {"x": 2, "u": 4}


class PatternError(ValueError):
    """The text is no regular expression."""


class _Opaque(Exception):
    """The pattern needs something this matcher does not have."""


Test: TypeAlias = Callable[[str], bool]


class _Step(NamedTuple):
    """``test`` consumes a character; ``anchor`` looks at the place; else go on to ``targets``."""

    test: Test | None = None
    anchor: str = ""
    targets: tuple[int, ...] = ()


Code: TypeAlias = list[_Step]
"""Steps whose targets are relative to themselves; running off the end is a match."""


class Pattern:
    """One compiled pattern. Raises ``PatternError`` for brackets or repetitions out of place."""

    def __init__(self, text: str) -> None:
        self._code: Code | None
        try:
            self._code = _Parser(text).parse()
        except _Opaque:
            self._code = None

    @property
    def is_opaque(self) -> bool:
        return self._code is None

    def cost(self, text: str) -> int:
        """Units of work ``found_in`` may take."""
        return 1 + len(self._code or ()) * (len(text) + 1) // 20

    def found_in(self, text: str) -> bool:
        """Whether the pattern matches anywhere in ``text``; an opaque one never does."""
        code = self._code
        if code is None:
            return False
        active: set[int] = set()
        for index in range(len(text) + 1):
            active = self._reach(code, active | {0}, text, index)
            if len(code) in active:
                return True
            if index < len(text):
                active = {
                    at + 1
                    for at in active
                    if (test := code[at].test) is not None and test(text[index])
                }
        return False

    def _reach(self, code: Code, start: set[int], text: str, index: int) -> set[int]:
        """Every step that can be come to from ``start`` without a character."""
        reached: set[int] = set()
        stack = list(start)
        while stack:
            at = stack.pop()
            if at in reached:
                continue
            reached.add(at)
            if at == len(code):
                continue
            step = code[at]
            if step.anchor:
                if _holds(step.anchor, text, index):
                    stack.append(at + 1)
            elif step.test is None:
                stack += [at + target for target in step.targets]
        return reached


def _holds(anchor: str, text: str, index: int) -> bool:
    if anchor == "^":
        return index == 0
    if anchor == "$":
        return index == len(text)
    word = _CLASSES["w"]
    before = index > 0 and word(text[index - 1])
    after = index < len(text) and word(text[index])
    return (before != after) is (anchor == "b")


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0

    def parse(self) -> Code:
        code = self._alternatives()
        if self._at < len(self._text):
            raise PatternError("unbalanced )")
        return code

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _take(self) -> str:
        char = self._peek()
        if not char:
            raise PatternError("pattern ends too early")
        self._at += 1
        return char

    def _alternatives(self) -> Code:
        self._depth += 1
        if self._depth > 100:
            raise _Opaque
        code = self._sequence()
        while self._peek() == "|":
            self._at += 1
            other = self._sequence()
            code = [_Step(targets=(1, len(code) + 2)), *code, _Step(targets=(len(other) + 1,))]
            code = _checked(code + other)
        self._depth -= 1
        return code

    def _sequence(self) -> Code:
        code: Code = []
        while self._peek() not in ("", "|", ")"):
            code = _checked(code + self._repeated(self._atom()))
        return code

    def _repeated(self, code: Code) -> Code:
        low, high = 1, 1
        unbounded = False
        char = self._peek()
        if char in ("*", "+", "?"):
            self._at += 1
            low, unbounded = (1 if char == "+" else 0), char != "?"
        elif char == "{":
            counts = self._counts()
            if counts is None:
                return code
            low, high, unbounded = counts
        else:
            return code
        if self._peek() == "?":  # lazy: finds the same texts
            self._at += 1
        if self._peek() in ("*", "+"):  # Java's possessive forms
            raise _Opaque
        if (max(low, high) + 1) * (len(code) + 2) > MAX_PROGRAM:
            raise _Opaque
        size = len(code)
        result = code * low
        if unbounded:
            return [*result, _Step(targets=(1, size + 2)), *code, _Step(targets=(-size - 1,))]
        for _ in range(high - low):
            result = [*result, _Step(targets=(1, size + 1)), *code]
        return result

    def _counts(self) -> tuple[int, int, bool] | None:
        """(low, high, unbounded) of ``{2,5}``; None where the brace stands for itself."""
        end = self._text.find("}", self._at)
        low, comma, high = self._text[self._at + 1 : max(end, self._at)].partition(",")
        if end < 0 or not _is_count(low) or (high and not _is_count(high)):
            return None
        self._at = end + 1
        if not comma:
            return int(low), int(low), False
        if not high:
            return int(low), int(low), True
        if int(high) < int(low):
            raise PatternError("numbers of a repetition are out of order")
        return int(low), int(high), False

    def _atom(self) -> Code:
        char = self._take()
        if char == "(":
            return self._group()
        if char == "[":
            return [_Step(test=self._class())]
        if char == ".":
            return [_Step(test=lambda char: char not in "\n\r\u2028\u2029")]
        if char in "^$":
            return [_Step(anchor=char)]
        if char in "*+?":
            raise PatternError("nothing to repeat")
        if char == "\\":
            if self._peek() in ("b", "B"):
                return [_Step(anchor=self._take())]
            return [_Step(test=self._escape())]
        if char == "{":
            before = self._at
            self._at -= 1
            if self._counts() is not None:
                raise PatternError("nothing to repeat")
            self._at = before
        return [_Step(test=char.__eq__)]

    def _group(self) -> Code:
        if self._peek() == "?":
            self._at += 1
            kind = self._take()
            if kind == "<" and self._peek() not in ("=", "!"):
                self._at = self._text.find(">", self._at) + 1
                if not self._at:
                    raise PatternError("group name has no end")
            elif kind != ":":
                raise _Opaque
        code = self._alternatives()
        if self._peek() != ")":
            raise PatternError("unbalanced (")
        self._at += 1
        return code

    def _escape(self) -> Test:
        char = self._take()
        known = _CLASSES.get(char.lower())
        if known is not None:
            return known if char.islower() else lambda other: not known(other)
        if char in "123456789kpPc":
            raise _Opaque
        return self._literal(char).__eq__

    def _literal(self, char: str) -> str:
        digits = _HEX_DIGITS.get(char)
        if digits is not None:
            code = self._text[self._at : self._at + digits]
            if len(code) == digits and all(digit in "0123456789abcdefABCDEF" for digit in code):
                self._at += digits
                return chr(int(code, 16))
        return _CONTROLS.get(char, char)

    def _class(self) -> Test:
        negated = self._peek() == "^"
        if negated:
            self._at += 1
        tests: list[Test] = []
        while (char := self._take()) != "]":
            start = self._class_member(char)
            if not isinstance(start, str):
                tests.append(start)
                continue
            end: Test | str = start
            if self._peek() == "-" and self._text[self._at + 1 : self._at + 2] not in ("]", ""):
                self._at += 1
                end = self._class_member(self._take())
            if not isinstance(end, str):
                tests += [start.__eq__, "-".__eq__, end]
                continue
            if end < start:
                raise PatternError("range of a class is out of order")
            tests.append(_between(start, end))
        return lambda char: any(test(char) for test in tests) is not negated

    def _class_member(self, char: str) -> Test | str:
        if char != "\\":
            return char
        if self._peek().lower() in _CLASSES:
            return self._escape()
        escaped = self._take()
        if escaped in "pPc":
            raise _Opaque
        return "\b" if escaped == "b" else self._literal(escaped)


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 9


def _between(start: str, end: str) -> Test:
    return lambda char: start <= char <= end


def _checked(code: Code) -> Code:
    if len(code) > MAX_PROGRAM:
        raise _Opaque
    return code
