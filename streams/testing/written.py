"""Which topics an app writes itself: found by looking at its functions."""

from __future__ import annotations

import dis
import functools
import inspect
import types
from collections.abc import Iterator
from typing import Any

from ..agent import Agent
from ..app import App
from ..topic import Topic

_MAX_INSPECTED = 500


def input_topics(app: App) -> dict[str, Topic]:
    """Topics agents read and the app itself does not write, by name.

    When that leaves nothing (a loop): every topic that is read and not internal.
    """
    read = {name: agent.topic for agent in app.agents.values() for name in agent.topic.names}
    read = {name: topic for name, topic in read.items() if not topic.internal}
    written = written_topics(app)
    rest = {name: topic for name, topic in read.items() if name not in written}
    return rest if rest or app.sources else read


def written_topics(app: App) -> set[str]:
    """Names of the topics that sources fill, that agents have as sinks, or that functions of the
    app mention."""
    found = {name for source in app.sources.values() for name in source.topic.names}
    for agent in app.agents.values():
        for sink in agent.sinks:
            found.update(_names(sink))
    functions = [agent.fun for agent in app.agents.values()]
    for function in [*functions, *(background.fun for background in app.backgrounds)]:
        for value in _mentioned(function):
            found.update(_names(value))
    return found


def _names(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    if isinstance(value, Agent):
        value = value.topic
    return value.names if isinstance(value, Topic) else ()


def _mentioned(function: Any) -> Iterator[Any]:
    """Globals, closure variables, defaults and text constants of a function, and of the plain
    functions among them."""
    pending: list[Any] = [function]
    seen: set[int] = set()
    while pending and len(seen) < _MAX_INSPECTED:
        value = pending.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        yield value
        if isinstance(value, functools.partial):
            pending += [value.func, *value.args, *value.keywords.values()]
        elif isinstance(value, types.MethodType):
            pending += [value.__func__, *getattr(value.__self__, "__dict__", {}).values()]
        elif isinstance(value, types.FunctionType) and (value is function or not _is_ours(value)):
            pending += _in_function(inspect.unwrap(value))


def _is_ours(function: types.FunctionType) -> bool:
    return (function.__module__ or "").startswith("onceward.")


def _in_function(function: types.FunctionType) -> Iterator[Any]:
    yield from function.__defaults__ or ()
    yield from (function.__kwdefaults__ or {}).values()
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # not filled yet
            continue
    yield from _in_code(function.__code__, function.__globals__)


def _in_code(code: types.CodeType, names: dict[str, Any]) -> Iterator[Any]:
    """A method's name is none of a global: ``text.split()`` mentions no agent called ``split``."""
    instructions = list(dis.get_instructions(code))
    attributes = [each.argval for each in instructions if each.opname.startswith("LOAD_ATTR")]
    attributes += [each.argval for each in instructions if each.opname.startswith("LOAD_METHOD")]
    for each in instructions:
        if each.opname not in ("LOAD_GLOBAL", "LOAD_NAME") or each.argval not in names:
            continue
        value = names[each.argval]
        yield value
        if isinstance(value, types.ModuleType):
            yield from (vars(value)[name] for name in attributes if name in vars(value))
    for constant in code.co_consts:
        if isinstance(constant, str):
            yield constant
        elif isinstance(constant, types.CodeType):
            yield from _in_code(constant, names)
