"""``onceward worker``: run an app, in this process or in several that are kept alive."""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
import time
from pathlib import Path

import click

from ..app import App
from ..engine.worker import run_worker
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
    click.option("--loglevel", "-l", default="info", show_default=True,
                 type=click.Choice(["debug", "info", "warning", "error"], case_sensitive=False)),
)  # fmt: skip


@click.command()
@click.argument("target", metavar="MODULE:APP")
def worker(
    target: str, workers: int, broker: str | None, datadir: Path | None, loglevel: str
) -> int:
    """Run an app until SIGTERM or Ctrl-C, which commits and leaves the group.

    \b
    Example:  onceward worker examples/word_count.py:app
              onceward worker payments.pipeline:app --workers 4 --broker kafka://10.0.0.1:9092
    """
    return run(load_app(target), target, workers, broker, datadir, loglevel)


for option in reversed(worker_options):
    worker = option(worker)


def run(
    app: App, target: str, workers: int, broker: str | None, datadir: Path | None, loglevel: str
) -> int:
    """Run ``app`` (which ``target`` names to a child process); returns the exit code."""
    logging.basicConfig(
        level=loglevel.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    folder = datadir or Path(app.conf.datadir)
    address = broker or app.conf.broker
    embedded = address is None
    if address is None:
        address = ensure_embedded(folder)
    if workers > 1:
        return asyncio.run(_pool(target, workers, address, folder, loglevel, embedded))
    if embedded:
        # a thread, because the worker's loop belongs to the engine
        threading.Thread(target=_keep_embedded, args=(address, folder), daemon=True).start()
    return run_worker(app, broker=address, datadir=str(folder))


async def _pool(
    target: str, workers: int, address: str, folder: Path, loglevel: str, embedded: bool
) -> int:
    pool = WorkerPool(
        target,
        workers=workers,
        broker=address,
        datadir=folder,
        log=None,
        options=("--loglevel", loglevel),
    )
    loop, stopped = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    await pool.start()
    ends = {asyncio.create_task(pool.wait()), asyncio.create_task(stopped.wait())}
    if embedded:
        threading.Thread(target=_keep_embedded, args=(address, folder), daemon=True).start()
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    for end in ends:
        end.cancel()
    return await pool.stop()


def _keep_embedded(address: str, folder: Path) -> None:
    """Start the embedded broker again when it is gone; it comes back on its port."""
    while True:
        time.sleep(EMBEDDED_CHECK_S)
        if not answers(address):
            ensure_embedded(folder)
