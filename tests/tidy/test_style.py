"""Budgets and banned calls, as tests."""

from __future__ import annotations

import ast

import pytest

from .source import ROOT, Module, modules

FILE_LINES = 500
FILE_LINES_HARD = 800
FUNCTION_LINES = 70
# Files over the budget, each with the reason it is still one room.
LONG_FILES: dict[str, str] = {}

# The test kit stands outside of what it tests: it starts processes and makes the simulated machine.
# module -> the files that may import it; everything else takes time, randomness, disk and network
# as parameters, which is what makes the system replayable from a seed.
ALLOWED_IMPORTS: dict[str, tuple[str, ...]] = {
    "time": (
        "broker/broker.py",
        "broker/client/aiokafka/options.py",
        "streams/cli/",
        "streams/engine/worker.py",
        "streams/testing/",
    ),
    "random": (
        "broker/broker.py",
        "broker/client/aiokafka/options.py",
        "streams/cli/",
        "streams/engine/worker.py",
        "streams/testing/",
    ),
    "os": (
        "broker/storage/filesystem.py",
        "streams/cli/",
        "streams/engine/slots.py",
        "streams/engine/worker.py",
        "streams/sinks/files_disk.py",
        "streams/sources/filesystem.py",
        "streams/testing/",
    ),
    # the serializers and the column types know the class, they make no new ones
    "uuid": (
        "registry/serializers/",
        "streams/engine/slots.py",
        "streams/sinks/mysql_types.py",
        "streams/sinks/postgres_types.py",
        "streams/testing/",
    ),
    "secrets": (),
    # a session cuts its own socket when the server does not answer its driver
    "socket": (
        "registry/server.py",
        "streams/cli/",
        "streams/sinks/mysql_session.py",
        "streams/sinks/postgres_session.py",
        "streams/testing/",
    ),
    "threading": (
        "streams/cli/",
        "streams/sinks/mysql_session.py",
        "streams/sinks/postgres_session.py",
        "streams/testing/",
    ),
}


@pytest.mark.parametrize("module", modules(), ids=lambda module: module.name)
def test_a_file_stays_within_its_budget(module: Module) -> None:
    lines = module.text.count("\n")
    name = str(module.path.relative_to(ROOT))
    limit = FILE_LINES_HARD if name in LONG_FILES else FILE_LINES
    assert lines <= limit, f"{name} has {lines} lines, the budget is {limit}"


@pytest.mark.parametrize("module", modules(), ids=lambda module: module.name)
def test_a_function_stays_within_its_budget(module: Module) -> None:
    long = [
        f"{module.path}:{node.lineno}: {node.name} has {node.end_lineno - node.lineno + 1} lines"
        for node in module.functions()
        if node.end_lineno is not None and node.end_lineno - node.lineno + 1 > FUNCTION_LINES
    ]
    assert not long, "\n".join(long)


@pytest.mark.parametrize("module", modules(), ids=lambda module: module.name)
def test_clock_randomness_disk_and_network_come_in_as_parameters(module: Module) -> None:
    name = str(module.path.relative_to(ROOT))
    wrong = []
    for target, line in module.runtime_imports():
        top = target.split(".")[0]
        allowed = ALLOWED_IMPORTS.get(top)
        if allowed is not None and not any(name.startswith(prefix) for prefix in allowed):
            wrong.append(f"{name}:{line}: {top} is injected, not imported (see ALLOWED_IMPORTS)")
    opens = ALLOWED_IMPORTS["os"]
    if not any(name.startswith(prefix) for prefix in opens):
        wrong += [
            f"{name}:{node.lineno}: files go through FileSystem"
            for node in ast.walk(module.tree)
            if isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == "open"
        ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("module", modules(), ids=lambda module: module.name)
def test_modules_hold_no_mutable_state(module: Module) -> None:
    """A module-level dict, list or set is a table: it is annotated Final, Mapping or upper case."""
    wrong = []
    for node in module.tree.body:
        if isinstance(node, ast.Assign):
            targets, value = node.targets, node.value
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            targets, value = [node.target], node.value
        else:
            continue
        if not isinstance(value, ast.Dict | ast.List | ast.Set | ast.ListComp | ast.DictComp):
            continue
        for target in targets:
            if isinstance(target, ast.Name) and not (
                target.id.isupper() or target.id == "__all__" or target.id.lstrip("_").isupper()
            ):
                wrong.append(f"{module.path}:{node.lineno}: {target.id} is mutable module state")
    globals_ = [
        f"{module.path}:{node.lineno}: `global` is mutable module state"
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Global)
    ]
    assert not wrong + globals_, "\n".join(wrong + globals_)


def test_no_unfinished_marks_are_left() -> None:
    marks = ("TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK")
    wrong = []
    for folder in ("broker", "streams", "registry", "examples", "tests"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                if any(f"# {mark}" in line for mark in marks):
                    wrong.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()}")
    assert not wrong, "\n".join(wrong)
