"""A fresh copy of a user's app for every simulated process.

Globals of a module die with a process. In a simulation all processes share one interpreter, so the
app's module, and every module beside it, is executed again for each of them: a counter kept in a
global is then lost in a crash, as it is in reality. Compiled code is kept; libraries are shared.
"""

from __future__ import annotations

import builtins
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import site
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..app import App
from ..cli.loading import load_app
from ..errors import ConfigurationError

AppSource = str | App | Callable[[], App]
"""``"module:app"``, ``"file.py:app"``, an app that is a global of its module, or what makes one."""

_MAIN = "__main__"
_MAIN_COPY = "__onceward_main__"


def fresh_app(source: AppSource) -> App:
    """One fresh app of ``source``; see ``AppLoader`` for many."""
    return AppLoader(source).fresh()


class AppLoader:
    """Makes fresh apps of one source. Raises ConfigurationError when the source is not found.

    A callable that is a global of its module is looked up in a fresh copy of that module; any other
    one is called as it is, and what it refers to is shared between the processes.
    """

    def __init__(self, source: AppSource) -> None:
        self._factory: Callable[[], App] | None = None
        self._path: tuple[str, ...] = ()
        self._modules: list[str] = []
        if isinstance(source, str):
            app = load_app(source)
            self.name = source
            self._locate(app, source.partition(":")[0])
        elif isinstance(source, App):
            self._locate(source, None)
            self.name = f"{self._modules[0]}:{'.'.join(self._path)}"
        else:
            self._locate_factory(source)
        self._own = _Own(self._modules) if self._modules else None

    def fresh(self) -> App:
        """A new app whose globals nobody else shares."""
        if self._own is None:
            assert self._factory is not None
            return self._factory()
        with self._own.executed_again() as module:
            found: Any = module
            for name in self._path:
                found = getattr(found, name)
            app = found if isinstance(found, App) else found()
        if not isinstance(app, App):
            raise ConfigurationError(f"{self.name} gave {type(app).__name__}, not an App")
        return app

    def _locate(self, app: App, module: str | None) -> None:
        """Find the global that holds ``app``, and every module that declares agents on it."""
        declaring = [
            name
            for agent in app.agents.values()
            if (name := getattr(agent.fun, "__module__", None)) in sys.modules
        ]
        found = [
            (name, key)
            for name, candidate in list(sys.modules.items())
            for key, value in list(getattr(candidate, "__dict__", {}).items())
            if value is app
        ]
        if not found:
            raise ConfigurationError(
                f"app {app.id!r} is no global of a module, so it cannot be started afresh after a "
                "crash: give a function that makes it, or 'module:app'"
            )
        stem = Path(module).stem if module and module.endswith(".py") else module
        found.sort(key=lambda place: (place[0] != stem, place[0] not in declaring, place))
        name, key = found[0]
        self._path = (key,)
        self._modules = list(dict.fromkeys([name, *declaring]))

    def _locate_factory(self, factory: Callable[[], App]) -> None:
        module = getattr(factory, "__module__", "")
        name = getattr(factory, "__qualname__", "")
        self.name = f"{module}:{name}"
        if getattr(sys.modules.get(module), name, None) is factory:
            self._path = (name,)
            self._modules = [module]
        else:
            self._factory = factory


class _Own:
    """The modules that belong to an app: its top-level package, or for a script its neighbours.

    ``names`` are the loaded modules that declare it, the one that holds it first.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = tuple(names)
        self._known: dict[str, types.ModuleType] = {}
        self._seen: set[str] = set()
        self._mine: set[str] = set()
        self._code: dict[str, tuple[importlib.machinery.ModuleSpec, types.CodeType | None]] = {}
        self._packages = {name.split(".")[0] for name in names}
        self._directories = [
            str(Path(file).resolve().parent)
            for name in names
            if "." not in name and (file := getattr(sys.modules[name], "__file__", None))
        ]
        self._libraries = tuple(site.getsitepackages())

    @contextmanager
    def executed_again(self) -> Iterator[types.ModuleType]:
        """Import the modules afresh; while this lasts, imports find the fresh ones."""
        for name in sys.modules.keys() - self._seen:
            self._seen.add(name)
            if self._has(name, sys.modules[name]):
                self._mine.add(name)
        shared = {name: sys.modules[name] for name in self._mine if name in sys.modules}
        self._known.update(shared)
        for name in shared:
            del sys.modules[name]
        fresh: dict[str, types.ModuleType] = {}
        finder = _Finder(self, fresh)
        sys.meta_path.insert(0, finder)
        try:
            names = [_MAIN_COPY if name == _MAIN else name for name in self._names]
            for name in names:
                importlib.import_module(name)
            yield sys.modules[names[0]]
        finally:
            sys.meta_path.remove(finder)
            for name in [name for name in sys.modules if name in fresh]:
                del sys.modules[name]
            sys.modules.update(shared)

    def _has(self, name: str, module: types.ModuleType) -> bool:
        top = name.split(".")[0]
        if name == _MAIN:
            return False  # the running program itself stays where it is
        if top == "onceward":
            return name in self._names
        file = getattr(module, "__file__", None)
        if file is None:
            return top in self._packages and hasattr(module, "__path__")
        return file.endswith(".py") and (top in self._packages or self._is_neighbour(file))

    def _is_neighbour(self, file: str) -> bool:
        if file.startswith(self._libraries):
            return False
        return str(Path(file).resolve().parent) in self._directories

    def find(
        self, name: str, path: Sequence[str] | None
    ) -> tuple[importlib.machinery.ModuleSpec, types.CodeType | None] | None:
        """The spec of a module of ours and its code; None when it is not ours."""
        if name not in self._code:
            spec = self._spec(name, path)
            if spec is None:
                return None
            self._code[name] = spec, _compiled(spec, name)
        return self._code[name]

    def _spec(self, name: str, path: Sequence[str] | None) -> importlib.machinery.ModuleSpec | None:
        known = sys.modules[_MAIN] if name == _MAIN_COPY else self._known.get(name)
        if known is not None:
            return _spec_of(name, known)
        if name.split(".")[0] == "onceward":
            return None  # the library is shared
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
            return None
        ours = name.split(".")[0] in self._packages or self._is_neighbour(spec.origin)
        return spec if ours else None


def _spec_of(name: str, module: types.ModuleType) -> importlib.machinery.ModuleSpec | None:
    """Where a loaded module came from, however it was found (a test runner has its own ways)."""
    places = list(getattr(module, "__path__", ()))
    file = getattr(module, "__file__", None)
    if file is None:
        spec = importlib.machinery.ModuleSpec(name, None, is_package=True)
        spec.submodule_search_locations = places
        return spec
    return importlib.util.spec_from_file_location(
        name, file, submodule_search_locations=places or None
    )


def _compiled(spec: importlib.machinery.ModuleSpec, name: str) -> types.CodeType | None:
    loader = spec.loader
    if isinstance(loader, importlib.machinery.SourceFileLoader):
        return loader.get_code(name)
    return None


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the app's modules first, and executes them from kept code."""

    def __init__(self, own: _Own, fresh: dict[str, types.ModuleType]) -> None:
        self._own = own
        self._fresh = fresh

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        found = self._own.find(name, path)
        if found is None:
            return None
        spec, _ = found
        fresh = importlib.machinery.ModuleSpec(name, self, origin=spec.origin)
        fresh.has_location = spec.has_location
        fresh.cached = spec.cached
        fresh.submodule_search_locations = spec.submodule_search_locations
        return fresh

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType | None:
        return None

    def exec_module(self, module: types.ModuleType) -> None:
        found = self._own.find(module.__name__, None)
        assert found is not None
        self._fresh[module.__name__] = module
        code = found[1]
        if code is not None:
            # imports inside functions run later: they must find the fresh modules too
            module.__dict__["__builtins__"] = {**vars(builtins), "__import__": self._import}
            exec(code, module.__dict__)

    def _import(
        self,
        name: str,
        globals: Mapping[str, Any] | None = None,
        locals: Mapping[str, Any] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> types.ModuleType:
        package = (globals or {}).get("__package__") or ""
        target = importlib.util.resolve_name("." * level + name, package) if level else name
        if target not in self._fresh or self in sys.meta_path:
            return builtins.__import__(name, globals, locals, fromlist or (), level)
        module = self._fresh[target if fromlist or level else target.split(".")[0]]
        for attribute in fromlist or ():
            inner = self._fresh.get(f"{target}.{attribute}")
            if inner is not None and not hasattr(module, attribute):
                setattr(module, attribute, inner)
        return module
