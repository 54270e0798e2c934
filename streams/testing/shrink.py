"""Makes a failing fault plan small: fewer faults (delta debugging), then simpler ones. Pure.

Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing Input" (2002).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from .faults import Fault

Fails = Callable[[list[Fault]], bool]


def shrink(plan: Sequence[Fault], fails: Fails, budget: int) -> list[Fault]:
    """The smallest plan found that still fails; ``fails`` runs one, at most ``budget`` times.

    ``plan`` is known to fail. The answer was seen to fail too, or is ``plan`` itself.
    """
    tries = _Tries(fails, budget)
    smallest = _fewer(list(plan), tries)
    return _fewer(_simpler(smallest, tries), tries)


class _Tries:
    """``fails`` with a memory and a budget; out of budget, nothing fails any more."""

    def __init__(self, fails: Fails, budget: int) -> None:
        self._fails = fails
        self._left = budget
        self._known: dict[tuple[Fault, ...], bool] = {}

    def __call__(self, plan: list[Fault]) -> bool:
        key = tuple(plan)
        if key not in self._known:
            if self._left <= 0:
                return False
            self._left -= 1
            self._known[key] = self._fails(plan)
        return self._known[key]


def _fewer(plan: list[Fault], fails: Callable[[list[Fault]], bool]) -> list[Fault]:
    """ddmin: without ever smaller parts, until none of the faults can be left out."""
    if plan and fails([]):
        return []
    parts = 2
    while len(plan) >= 2:
        size = -(-len(plan) // parts)
        starts = range(0, len(plan), size)
        candidates = [plan[start : start + size] for start in starts]
        if parts > 2:
            candidates = []  # a part alone is what complements come down to in the end
        candidates += [plan[:start] + plan[start + size :] for start in starts]
        smaller = next((part for part in candidates if fails(part)), None)
        if smaller is not None:
            parts = max(2, parts - 1) if len(smaller) > size else 2
            plan = smaller
        elif size == 1:
            break
        else:
            parts = min(len(plan), parts * 2)
    return plan


def _simpler(plan: list[Fault], fails: Callable[[list[Fault]], bool]) -> list[Fault]:
    """One argument after the other, for as long as that makes any fault simpler."""
    changed = True
    while changed:
        changed = False
        for number in range(len(plan)):
            for fault in _simplifications(plan[number]):
                candidate = [*plan[:number], fault, *plan[number + 1 :]]
                candidate.sort(key=lambda fault: fault.at)
                if fails(candidate):
                    plan, changed = candidate, True
                    break
    return plan


def _simplifications(fault: Fault) -> Iterator[Fault]:
    """Variants that a reader has less to think about, the boldest first."""
    if fault.kind == "aimed":
        aim = fault.aim
        for nth in _smaller(aim.nth, 1):
            yield replace(fault, args=tuple(aim._replace(nth=nth)))
        for at in _smaller(fault.at, 0.0):
            yield replace(fault, at=at)
        for name in ("delay_s", "lasts_s"):
            for value in _smaller(getattr(aim, name), 0.0):
                yield replace(fault, args=tuple(aim._replace(**{name: value})))
        if aim.action == "power_off":
            yield replace(fault, args=tuple(aim._replace(action="kill")))
        return
    if fault.kind == "power_off":
        yield replace(fault, kind="kill")
    for number, argument in enumerate(fault.args):
        for value in _simpler_argument(fault.kind, number, argument):
            yield replace(fault, args=(*fault.args[:number], value, *fault.args[number + 1 :]))
    rounded = round(fault.at, 1)
    if rounded != fault.at:
        yield replace(fault, at=rounded)


def _simpler_argument(kind: str, number: int, argument: Any) -> Iterator[Any]:
    if argument is True:
        yield False
    elif isinstance(argument, bool | str):
        return
    elif kind == "slow" and number == 0:
        return  # a factor: 0 means nothing
    elif kind == "fsync_fail":
        yield from _smaller(argument, 1)
    else:
        yield from _smaller(argument, type(argument)(0))


def _smaller(value: Any, least: Any) -> Iterator[Any]:
    """``least``, then a rounder number, then half way; nothing that is not simpler."""
    if value == least:
        return
    yield least
    if isinstance(value, int):
        if abs(value - least) > 1:
            yield least + (value - least) // 2
            yield value - (1 if value > least else -1)
        return
    rounded = round(value, 1)
    if rounded not in (value, least):
        yield rounded
