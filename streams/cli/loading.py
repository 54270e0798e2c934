"""Finding the app that MODULE:APP names."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from ..app import App
from ..errors import ConfigurationError


def load_app(target: str) -> App:
    """``package.module:name`` or ``path/to/file.py:name``; alone, the module's only App.

    Raises ConfigurationError when there is no such module or app. An error inside the module is
    raised as it is: it is the user's, with its own traceback.
    """
    module_name, _, attribute = target.partition(":")
    module = _load_module(module_name)
    if attribute:
        app = getattr(module, attribute, None)
        if not isinstance(app, App):
            raise ConfigurationError(f"{module_name} has no App called {attribute!r}")
        return app
    apps = [value for value in vars(module).values() if isinstance(value, App)]
    if len(apps) != 1:
        raise ConfigurationError(
            f"{module_name} has {len(apps)} apps: name one as {module_name}:APP"
        )
    return apps[0]


def _load_module(name: str) -> ModuleType:
    if name.endswith(".py"):
        path = Path(name).resolve()
        if not path.is_file():
            raise ConfigurationError(f"there is no file {name}")
        # as `python file.py` does, so that the file's neighbours can be imported
        sys.path.insert(0, str(path.parent))
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module
        spec.loader.exec_module(module)
        return module
    sys.path.insert(0, "")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise ConfigurationError(f"there is no module {name}") from error
        raise
