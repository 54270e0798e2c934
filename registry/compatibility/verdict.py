"""The outcome of a comparison, and the guard every comparison runs under."""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeAlias

from ..schemas.path import Path

MAX_REASONS = 100
"""Reasons given of one comparison; the first one already decides."""

_SHOWN = 200


class Policy(StrEnum):
    """``compatibilityPolicy`` of the config: how an open JSON Schema content model is taken.

    ``STRICT`` counts every document the writer's schema allows; ``LENIENT`` only properties the
    writer's schema names. Avro and Protobuf know no difference.
    """

    STRICT = "STRICT"
    LENIENT = "LENIENT"


@dataclass(frozen=True, slots=True)
class Incompatibility:
    """One reason why the reader's schema cannot read what the writer's schema allows.

    ``rule`` is the name Confluent's registry gives the rule; ``path`` leads to the place in the
    reader's schema; ``reader`` and ``writer`` say what each has there, empty for nothing.
    """

    rule: str
    path: str
    reader: str
    writer: str
    description: str

    def __str__(self) -> str:
        sides = f"reader: {_short(self.reader)}; writer: {_short(self.writer)}"
        return (
            f"{{errorType:'{self.rule}', path:'{self.path}', "
            f"description:'{self.description}', additionalInfo:'{sides}'}}"
        )


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


Found: TypeAlias = list[Incompatibility]
"""What a comparison found; empty for compatible."""


class ComparisonTooComplex(ValueError):
    """Two schemas branch so much that comparing them would take unbounded work."""


@dataclass(slots=True, eq=False)
class Pair:
    """A reader's and a writer's node to be compared. ``key`` tells the two from all others."""

    key: Hashable
    path: Path
    judge: Callable[[], Judging]


Judging: TypeAlias = Generator[Pair, Found, Found]
"""A comparison under way: it yields the pairs it depends on, is sent what was found for each, and
returns what it finds itself. So a deep schema needs no deep stack."""


class PairGuard:
    """Runs comparisons; keeps cycles finite and work bounded.

    A pair met again while it is being compared counts as compatible: whatever makes it incompatible
    is found where it was met first. Incompatible outcomes are kept. Compatible ones are kept too,
    except those reached inside a pair that turned out incompatible: they may rest on it.
    """

    def __init__(self, max_steps: int = 200_000) -> None:
        self._steps_left = max_steps
        self._stack: list[tuple[Pair, Judging, int]] = []
        self._open: set[Hashable] = set()
        self._compatible: dict[Hashable, None] = {}  # in the order in which they were found
        self._incompatible: dict[Hashable, Incompatibility] = {}

    def run(self, root: Pair) -> Found:
        """What is found for ``root``. Raises ``ComparisonTooComplex``."""
        answer = self._begin(root)
        while self._stack:
            pair, judging, before = self._stack[-1]
            try:
                asked = next(judging) if answer is None else judging.send(answer)
            except StopIteration as end:
                self._stack.pop()
                answer = self._settle(pair, before, end.value)
            else:
                answer = self._begin(asked)
        assert answer is not None
        return answer

    def _begin(self, pair: Pair) -> Found | None:
        """What is known of a pair; None when it is now on the stack to be compared."""
        self.count()
        if pair.key in self._compatible or pair.key in self._open:
            return []
        known = self._incompatible.get(pair.key)
        if known is not None:
            return [replace(known, path=str(pair.path))]
        self._open.add(pair.key)
        self._stack.append((pair, pair.judge(), len(self._compatible)))
        return None

    def _settle(self, pair: Pair, before: int, found: Found) -> Found:
        self._open.discard(pair.key)
        if not found:
            self._compatible[pair.key] = None
            return found
        while len(self._compatible) > before:
            self._compatible.popitem()
        self._incompatible[pair.key] = found[0]
        return found[:MAX_REASONS]

    def count(self, steps: int = 1) -> None:
        """Takes ``steps`` off the work that is allowed. Raises ``ComparisonTooComplex``."""
        self._steps_left -= steps
        if self._steps_left < 0:
            raise ComparisonTooComplex("comparing the schemas takes too many steps")
