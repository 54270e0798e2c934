"""``onceward worker``: run an app, in this process or in several that are kept alive."""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
import time
from pathlib import Path
from typing import Any

import click

from onceward.broker.client import TopicPartition

from ..app import App
from ..engine.bounded import from_text, to_text
from ..engine.worker import learn_bounds, run_worker
from .embedded import answers, ensure_embedded
from .loading import load_app
from .processes import WorkerPool

EMBEDDED_CHECK_S = 1.0

worker_options = (
    click.option("--workers", type=click.IntRange(1), default=1, show_default=True,
                 help="Processes; one killed by a signal is started again."),
    click.option("--broker", envvar="ONCEWARD_BROKER", metavar="URL",
                 help="Default: the app's own, else the broker embedded in the data directory."),
    click.option("--datadir", type=click.Path(file_okay=False, path_type=Path), metavar="DIR",
                 help="Default: the app's own."),
    click.option("--until", metavar="latest|@MILLISECONDS",
                 help="End when everything up to there, and all it caused, is committed: what the "
                 "topic has now, or what came before a time. Also offsets as JSON: "
                 '{"orders": {"0": 120}}.'),
    click.option("--until-topic", "until_topics", multiple=True, metavar="TOPIC",
                 help="The topics --until is for. Default: the one topic that is read."),
    click.option("--loglevel", "-l", default="info", show_default=True,
                 type=click.Choice(["debug", "info", "warning", "error"], case_sensitive=False)),
)  # fmt: skip


@click.command()
@click.argument("target", metavar="MODULE:APP")
def worker(target: str, **options: Any) -> int:
    """Run an app until SIGTERM or Ctrl-C, which commits and leaves the group.

    \b
    Example:  onceward worker examples/word_count.py:app
              onceward worker payments.pipeline:app --workers 4 --broker kafka://10.0.0.1:9092
              onceward worker backfill.py:app --until latest
    """
    return run(load_app(target), target, **options)


for option in reversed(worker_options):
    worker = option(worker)


def run(
    app: App,
    target: str,
    *,
    workers: int,
    broker: str | None,
    datadir: Path | None,
    loglevel: str,
    until: str | None = None,
    until_topics: tuple[str, ...] = (),
) -> int:
    """Run ``app`` (which ``target`` names to a child process); returns the exit code."""
    if until_topics and until is None:
        raise click.UsageError("--until-topic says what --until is for, which is not given")
    logging.basicConfig(
        level=loglevel.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    folder = datadir or Path(app.conf.datadir)
    address = broker or app.conf.broker
    embedded = address is None
    if address is None:
        address = ensure_embedded(folder)
    bounds = None
    if until is not None:
        bounds = _bounds(app, until, until_topics, address)
    options = ["--loglevel", loglevel]
    if bounds is not None:
        options += ["--until", to_text(bounds)]
    if workers > 1:
        pool = WorkerPool(
            target,
            workers=workers,
            broker=address,
            datadir=folder,
            log=None,
            options=tuple(options),
        )
        return asyncio.run(_run(pool, address, folder, embedded, ends=bounds is not None))
    if embedded:
        # a thread, because the worker's loop belongs to the engine
        threading.Thread(target=_keep_embedded, args=(address, folder), daemon=True).start()
    return run_worker(app, broker=address, datadir=str(folder), bounds=bounds)


def _bounds(
    app: App, until: str, topics: tuple[str, ...], address: str
) -> dict[TopicPartition, int]:
    """Offsets, the same for all workers of this run. Raises ConfigurationError, KafkaError."""
    if until.startswith("{"):
        return from_text(until)
    return asyncio.run(learn_bounds(app, until, topics, broker=address))


async def _run(pool: WorkerPool, address: str, folder: Path, embedded: bool, *, ends: bool) -> int:
    """Until a signal or an error; with ``ends`` also until all workers are done."""
    loop, stopped = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    await pool.start()
    waiting = {
        asyncio.create_task(pool.finish() if ends else pool.wait()),
        asyncio.create_task(stopped.wait()),
    }
    if embedded:
        threading.Thread(target=_keep_embedded, args=(address, folder), daemon=True).start()
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    for each in waiting:
        each.cancel()
    return await pool.stop()


def _keep_embedded(address: str, folder: Path) -> None:
    """Start the embedded broker again when it is gone; it comes back on its port."""
    while True:
        time.sleep(EMBEDDED_CHECK_S)
        if not answers(address):
            ensure_embedded(folder)
