"""Fresh copies of a user's app: what is new in each, and what is shared."""

from __future__ import annotations

import importlib
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from onceward.streams import App
from onceward.streams.errors import ConfigurationError
from onceward.streams.testing.loading import AppLoader, fresh_app

APP = """
    from onceward.streams import App
    from .models import SEEN, Order
    app = App("shop")
    orders = app.topic("orders", value_type=Order)
    seen = SEEN

    def late():
        from . import models
        return models.SEEN

    def later():
        from .models import SEEN
        return SEEN

    @app.agent(orders)
    async def agent(stream):
        async for order in stream:
            pass
"""
MODELS = """
    from onceward.streams import Record
    SEEN = []
    class Order(Record):
        id: str
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    yield tmp_path
    for name in set(sys.modules) - before:
        file = getattr(sys.modules[name], "__file__", None) or ""
        if file.startswith(str(tmp_path)) or name.split(".")[0] == "shop":
            del sys.modules[name]


def write(project: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))


def globals_of(app: App) -> dict[str, object]:
    return next(iter(app.agents.values())).fun.__globals__


def test_a_package_is_executed_again_with_all_its_modules(project: Path) -> None:
    write(project, {"shop/__init__.py": "", "shop/app.py": APP, "shop/models.py": MODELS})
    loader = AppLoader("shop.app:app")
    first, second = loader.fresh(), loader.fresh()
    assert first is not second
    seen = [globals_of(app)["seen"] for app in (first, second)]
    seen[0].append(1)  # type: ignore[attr-defined]
    assert seen[1] == []
    assert sys.modules["shop.app"].seen == []


def test_an_import_inside_a_function_finds_the_fresh_module(project: Path) -> None:
    write(project, {"shop/__init__.py": "", "shop/app.py": APP, "shop/models.py": MODELS})
    loader = AppLoader("shop.app:app")
    one, other = globals_of(loader.fresh()), globals_of(loader.fresh())
    one["seen"].append(1)  # type: ignore[attr-defined]
    assert one["late"]() == one["later"]() == [1]  # type: ignore[operator]
    assert other["late"]() == other["later"]() == []  # type: ignore[operator]


def test_agents_declared_in_another_module_are_there_again(project: Path) -> None:
    declared = "from onceward.streams import App\napp = App('shop')\n"
    agents = """
        from .app import app
        @app.agent("orders")
        async def agent(stream):
            async for order in stream:
                pass
    """
    files = {"shop/__init__.py": "", "shop/app.py": declared, "shop/agents.py": agents}
    write(project, files)
    importlib.import_module("shop.agents")
    app = sys.modules["shop.app"].app
    assert list(AppLoader(app).fresh().agents) == ["agent"]


def test_the_neighbours_of_a_script_are_executed_again_too(project: Path) -> None:
    write(project, {"neighbour.py": MODELS, "script.py": APP.replace(".models", "neighbour")
                    .replace("from . import models", "import neighbour as models")})  # fmt: skip
    loader = AppLoader(str(project / "script.py"))
    one, other = globals_of(loader.fresh()), globals_of(loader.fresh())
    one["seen"].append(1)  # type: ignore[attr-defined]
    assert other["seen"] == []


def test_an_app_that_no_module_holds_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="no global of a module"):
        AppLoader(App("hidden"))


def test_a_function_that_makes_an_app_is_called_each_time() -> None:
    loader = AppLoader(lambda: App("made"))
    assert loader.fresh() is not loader.fresh()


def test_a_global_function_is_looked_up_in_a_fresh_module(project: Path) -> None:
    text = """
        from onceward.streams import App
        calls = []
        def make():
            calls.append(1)
            return App(f"called-{len(calls)}")
    """
    write(project, {"shop/__init__.py": "", "shop/made.py": text})
    make = importlib.import_module("shop.made").make
    loader = AppLoader(make)
    assert [loader.fresh().id, loader.fresh().id] == ["called-1", "called-1"]
    assert fresh_app(make).id == "called-1"
