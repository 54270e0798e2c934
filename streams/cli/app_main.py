"""The command line of a program whose module is an app: ``python my_app.py worker``."""

from __future__ import annotations

import asyncio
import inspect
import sys
from pathlib import Path
from typing import Any, NoReturn

import click

from ..app import App
from . import worker as worker_command
from .main import run_command


def app_main(app: App) -> NoReturn:
    """``worker`` (also without arguments), or one of the app's own commands. Exits the process."""
    group = click.Group(
        name=app.id,
        help=f"The app {app.id}.",
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    target = f"{Path(sys.argv[0]).resolve()}:{_name_of(app)}"

    def worker(**options: Any) -> int:
        """Run this app until SIGTERM or Ctrl-C."""
        return worker_command.run(app, target, **options)

    command: Any = worker
    for option in reversed(worker_command.worker_options):
        command = option(command)
    group.command("worker")(command)
    for name, function in app.commands.items():
        group.command(name)(_sync(app, function))
    arguments = sys.argv[1:] or ["worker"]
    sys.exit(run_command(group, arguments, prog_name=Path(sys.argv[0]).name))


def _name_of(app: App) -> str:
    """The name under which the running program holds ``app``: what a child process has to load."""
    main = sys.modules["__main__"]
    return next((name for name, value in vars(main).items() if value is app), "app")


def _sync(app: App, function: Any) -> Any:
    """A command of the app's own, coroutine or not; the app's client is closed after it."""

    def call(*args: Any, **kwargs: Any) -> Any:
        async def run() -> Any:
            try:
                result = function(*args, **kwargs)
                return await result if inspect.isawaitable(result) else result
            finally:
                await app.close_client()

        return asyncio.run(run())

    call.__name__ = getattr(function, "__name__", "command")
    call.__doc__ = function.__doc__
    call.__click_params__ = getattr(function, "__click_params__", [])  # type: ignore[attr-defined]
    return call
