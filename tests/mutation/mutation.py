"""What a planted fault is, and how one is planted into production code."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

Plant = Callable[[pytest.MonkeyPatch], None]
Edit = tuple[str, str]


@dataclass(frozen=True)
class Mutation:
    """A fault that somebody could have written. ``plant`` puts it in, the patch takes it out again.

    ``scenario`` names the one that runs it, ``caught_by`` the kinds of anomaly of which one is
    expected first. ``covered_by``: what else keeps the fault alone from doing harm; it is not
    hunted then.
    """

    name: str
    planted: str
    plant: Plant
    caught_by: tuple[str, ...]
    scenario: str
    covered_by: str = ""

    def __str__(self) -> str:
        return self.name


def mutation(
    *caught_by: str, scenario: str = "words", covered_by: str = ""
) -> Callable[[Plant], Mutation]:
    """Makes a Mutation of a function that plants it: its docstring says what is planted."""

    def make(plant: Plant) -> Mutation:
        planted = " ".join((plant.__doc__ or "").split()).rstrip(".")
        name = plant.__name__.replace("_", " ")
        return Mutation(name, planted, plant, caught_by, scenario, covered_by)

    return make


def rewrite(patch: pytest.MonkeyPatch, owner: Any, name: str, *edits: Edit) -> None:
    """Replace text in the source of a function of a class or module.

    Raises AssertionError when a text is not there exactly once: then the code has changed, and the
    fault must be planted anew.
    """
    found = inspect.getattr_static(owner, name)
    function = inspect.unwrap(getattr(found, "fget", None) or getattr(found, "__func__", found))
    source = textwrap.dedent(inspect.getsource(function))
    for old, new in edits:
        assert source.count(old) == 1, f"{owner.__name__}.{name} has {old!r} {source.count(old)}x"
        source = source.replace(old, new)
    flag = annotations.compiler_flag
    code = compile(source, f"<{name} with a fault>", "exec", flag, dont_inherit=True)
    made: dict[str, Any] = {}
    exec(code, function.__globals__, made)
    patch.setattr(owner, name, made[name])
