"""A worker process of a run with real processes: the app as it is, and a word with its parent.

    python -m onceward.streams.testing.processes_worker TARGET BROKER DATADIR SETTINGS

Its standard input is a pipe: at the end of it, which is the end of the parent, the worker ends at
once; a line ``tell N`` makes it write what it holds to ``DATADIR/told.json``.
"""

from __future__ import annotations

import asyncio
import base64
import enum
import json
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onceward.broker.client import KafkaError

from ..app import App
from ..cli.loading import load_app
from ..engine.engine import Engine
from ..engine.worker import serve
from ..errors import StreamsError
from .sim.loop import describe_wait

GAVE_UP = 75
"""Exit code of a worker that the cluster would not let work; any other but 0 is a bug or the
app's own error. EX_TEMPFAIL of sysexits.h."""
_TOLD = "told.json"
_QUICK: Mapping[str, float] = {
    "broker_session_timeout": 2.0,
    "broker_rebalance_timeout": 10.0,
    "broker_request_timeout": 5.0,
    "transaction_timeout": 5.0,
}
"""Settings that make an outage short; an app that sets its own keeps them."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Told:
    """What a worker holds: table -> partition -> content, and where every task of it waits."""

    number: int
    tables: dict[str, dict[int, dict[bytes, bytes]]]
    waiting: list[str]

    def write(self, directory: Path) -> None:
        """Whole or not at all."""
        tables = {
            name: {
                str(partition): [[_text(key), _text(value)] for key, value in content.items()]
                for partition, content in partitions.items()
            }
            for name, partitions in self.tables.items()
        }
        data = {"number": self.number, "tables": tables, "waiting": self.waiting}
        draft = directory / f"{_TOLD}.new"
        draft.write_text(json.dumps(data), encoding="utf-8")
        draft.replace(directory / _TOLD)

    @classmethod
    def read(cls, directory: Path, number: int) -> Told | None:
        """The answer to that request, once it is there."""
        try:
            data = json.loads((directory / _TOLD).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        if data["number"] != number:
            return None
        tables = {
            name: {
                int(partition): {_bytes(key): _bytes(value) for key, value in content}
                for partition, content in partitions.items()
            }
            for name, partitions in data["tables"].items()
        }
        return cls(number, tables, data["waiting"])


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text)


class _Ear:
    """Listens to the parent from within the worker's event loop."""

    def __init__(self, engine: Engine, directory: Path) -> None:
        self._engine = engine
        self._directory = directory
        self._heard = b""
        asyncio.get_running_loop().add_reader(sys.stdin.fileno(), self._on_input)

    def _on_input(self) -> None:
        data = os.read(sys.stdin.fileno(), 4096)
        if not data:
            os._exit(GAVE_UP)
        *lines, self._heard = (self._heard + data).split(b"\n")
        for line in lines:
            self._tell(int(line.removeprefix(b"tell ")))

    def _tell(self, number: int) -> None:
        tables: dict[str, dict[int, dict[bytes, bytes]]] = {}
        for task in self._engine.tasks.running:
            for name, transaction in task.stores.items():
                content = dict(transaction.store.items())
                tables.setdefault(name, {})[task.id.partition] = content
        waiting = [f"{task.get_name()}: {describe_wait(task)}" for task in asyncio.all_tasks()]
        Told(number, tables, sorted(waiting)).write(self._directory)


def apply_settings(app: App, settings: Mapping[str, Any]) -> None:
    """``settings`` by name, and shorter timeouts where the app has the usual ones. Raises
    ConfigurationError."""
    usual = App(app.conf.id).conf
    for name, value in _QUICK.items():
        if getattr(app.conf, name) == getattr(usual, name):
            setattr(app.conf, name, value)
    for name, value in settings.items():
        present = getattr(app.conf, name)
        setattr(app.conf, name, type(present)(value) if isinstance(present, enum.Enum) else value)
    app.conf.validate()


def main(arguments: Sequence[str]) -> int:
    """Returns the exit code; errors are told on stderr."""
    target, broker, datadir, settings = arguments
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    ears: list[_Ear] = []
    try:
        app = load_app(target)
        apply_settings(app, json.loads(settings))
        directory = Path(datadir)
        asyncio.run(
            serve(
                app,
                broker=broker,
                datadir=datadir,
                on_engine=lambda engine: ears.append(_Ear(engine, directory)),
            )
        )
    except (StreamsError, KafkaError, OSError) as error:
        if error.__cause__ is not None:
            logger.error("the worker stops", exc_info=error.__cause__)
        print(f"error: {error}", file=sys.stderr)
        return GAVE_UP if _is_of_the_cluster(error) else 1
    except asyncio.CancelledError:  # a second SIGTERM
        print("error: stopped at once, uncommitted work is dropped", file=sys.stderr)
        return GAVE_UP
    return 0


def _is_of_the_cluster(error: BaseException) -> bool:
    """Whether a fault explains it: the broker was away, or had given the work to another."""
    while error.__cause__ is not None:
        error = error.__cause__
    return isinstance(error, KafkaError | OSError)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
