"""``onceward broker``: the built-in broker as a process."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import click

from onceward.broker.broker import BrokerFailed
from onceward.broker.serve import serve
from onceward.broker.storage.filesystem import LockHeldError

from .embedded import READY
from .session import fail


def read_properties(path: Path) -> dict[str, str]:
    """A Java ``.properties`` file: ``key=value`` lines, ``#`` and ``!`` comments."""
    properties = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        text = line.strip()
        if not text or text[0] in "#!":
            continue
        key, separator, value = text.partition("=")
        if not separator:
            raise click.BadParameter(f"{path}:{number}: {text!r} is not KEY=VALUE")
        properties[key.strip()] = value.strip()
    return properties


def registry_beside(listen: str) -> Callable[[str], AbstractAsyncContextManager[object]]:
    """Opens a registry on the broker it is given."""
    from .registry import embedded_registry, host_and_port, load_registry

    address = host_and_port(listen, "--registry")
    load_registry()
    return lambda broker: embedded_registry(broker, address)


def announce(address: str) -> None:
    click.echo(f"{READY}{address}")


@click.command()
@click.option("--listen", default="127.0.0.1:9092", show_default=True, metavar="HOST:PORT",
              help="Port 0 takes a free one.")  # fmt: skip
@click.option("--data", type=click.Path(file_okay=False), metavar="DIR",
              help="Default: a temporary directory, removed at the end.")  # fmt: skip
@click.option("--config", "configs", multiple=True, metavar="KEY=VALUE", help="Kafka's own names.")
@click.option("--properties", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              metavar="FILE", help="Settings from a server.properties.")  # fmt: skip
@click.option("--exit-when-idle", type=float, metavar="SECONDS",
              help="Stop when no client has been connected for so long.")  # fmt: skip
@click.option("--registry", "registry_address", metavar="HOST:PORT",
              help="Run a schema registry along with it.")  # fmt: skip
def broker(
    listen: str,
    data: str | None,
    configs: tuple[str, ...],
    properties: Path | None,
    exit_when_idle: float | None,
    registry_address: str | None,
) -> None:
    """Run the Kafka-protocol broker until SIGTERM or Ctrl-C.

    Prints one line when clients may connect, and one when the registry may be asked.

    \b
    Example:  onceward broker --data ./data --config log.retention.hours=24
    """
    if registry_address is not None and exit_when_idle is not None:
        raise click.UsageError(
            "--exit-when-idle and --registry exclude each other: the registry is a client that "
            "stays connected, so the broker would never be idle"
        )
    settings = read_properties(properties) if properties is not None else {}
    for pair in configs:
        key, separator, value = pair.partition("=")
        if not separator:
            raise click.BadParameter(f"{pair!r} is not KEY=VALUE", param_hint="--config")
        settings[key] = value
    logging.basicConfig(
        level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    try:
        asyncio.run(
            serve(
                listen=listen,
                data_dir=data,
                config=settings,
                ready=announce,
                exit_when_idle_s=exit_when_idle,
                beside=None if registry_address is None else registry_beside(registry_address),
            )
        )
    except LockHeldError:
        raise fail(f"another broker is using {data}") from None
    except (BrokerFailed, ValueError) as error:
        raise fail(str(error)) from error
