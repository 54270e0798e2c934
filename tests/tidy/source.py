"""The source tree as the tidy tests see it: modules, their imports and their functions."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("broker", "streams", "registry")


@dataclass(frozen=True)
class Module:
    """One source file. ``name`` is relative to ``onceward``: ``broker.log.partition_log``."""

    path: Path
    name: str

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"

    @cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, str(self.path))

    def imports(self) -> Iterator[tuple[str, int]]:
        """Every imported name, dotted and absolute, with its line; ours start with ``onceward.``.

        Imports under ``if TYPE_CHECKING`` count: a layer that only *names* another still knows it.
        """
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield alias.name, node.lineno
            elif isinstance(node, ast.ImportFrom):
                base = self._resolve(node)
                for alias in node.names:
                    yield f"{base}.{alias.name}", node.lineno

    def _resolve(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        here = f"onceward.{self.name}".split(".")
        package = here if self.is_package else here[:-1]
        base = package[: len(package) - (node.level - 1)]
        return ".".join([*base, node.module] if node.module else base)

    def runtime_imports(self) -> Iterator[tuple[str, int]]:
        """The imports that are executed: those under ``if TYPE_CHECKING`` only name a type."""
        names_only = {
            line
            for node in ast.walk(self.tree)
            if isinstance(node, ast.If)
            and isinstance(node.test, ast.Name)
            and node.test.id == "TYPE_CHECKING"
            for line in range(node.lineno, node.body[-1].lineno + 1)
        }
        yield from ((name, line) for name, line in self.imports() if line not in names_only)

    def functions(self) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield node


@lru_cache(maxsize=1)
def modules() -> tuple[Module, ...]:
    found = []
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = list(path.relative_to(ROOT).with_suffix("").parts)
            if parts[-1] == "__init__":
                parts.pop()
            found.append(Module(path, ".".join(parts)))
    return tuple(found)
