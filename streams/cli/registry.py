"""``onceward registry``: the schema registry as a process."""

from __future__ import annotations

import asyncio
import getpass
import logging
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .session import address_of, broker_option, fail, new_client

if TYPE_CHECKING:
    from onceward.registry.config import RegistryConfig
    from onceward.registry.server import Registry

REGISTRY_READY = "onceward registry ready on "
EXTRA = frozenset({"starlette", "uvicorn", "google", "anyio", "h11"})


def load_registry() -> tuple[type[Registry], type[RegistryConfig]]:
    """The classes of the registry. Raises click.ClickException without the extra."""
    try:
        from onceward.registry.config import RegistryConfig
        from onceward.registry.server import Registry
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in EXTRA:
            raise
        missing = f"the schema registry needs {error.name}: pip install 'onceward[registry]'"
        raise fail(missing) from None
    return Registry, RegistryConfig


def host_and_port(text: str, option: str) -> tuple[str, int]:
    """Raises click.BadParameter."""
    host, separator, port = text.rpartition(":")
    if not separator or not host or not port.isdigit() or int(port) > 65535:
        raise click.BadParameter(f"{text!r} is not HOST:PORT", param_hint=option)
    return host.strip("[]"), int(port)


def announce_registry(registry: Registry) -> None:
    host, port = registry.address
    click.echo(f"{REGISTRY_READY}{host}:{port}")


async def serve_registry(broker: str, config: Any) -> None:
    """Run a registry until SIGTERM or SIGINT. Raises ``KafkaError``, ``RegistryError``, OSError."""
    registry_class, _ = load_registry()
    loop = asyncio.get_running_loop()
    signalled = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, signalled.set)
    async with (
        new_client(broker, client_id="onceward-registry") as client,
        registry_class(client, config) as registry,
    ):
        announce_registry(registry)
        ends = {
            loop.create_task(signalled.wait(), name="signal"),
            loop.create_task(registry.wait_failed(), name="registry"),
        }
        done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for end in ends - done:
            end.cancel()
        for end in done:
            end.result()


@asynccontextmanager
async def embedded_registry(broker: str, address: tuple[str, int]) -> AsyncIterator[None]:
    """A registry that lives as long as the broker of this process; a fault of it ends both."""
    registry_class, config_class = load_registry()
    config = config_class(host=address[0], port=address[1])
    async with (
        new_client(broker, client_id="onceward-registry") as client,
        registry_class(client, config) as registry,
    ):
        announce_registry(registry)
        watch = asyncio.create_task(registry.wait_failed(), name="registry")
        watch.add_done_callback(_stop_process)
        try:
            yield
        finally:
            watch.remove_done_callback(_stop_process)
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)


def _stop_process(watch: asyncio.Task[None]) -> None:
    logging.error("the registry failed", exc_info=watch.exception())
    os.kill(os.getpid(), signal.SIGTERM)


def hashed_password(password: str) -> str:
    from onceward.registry.http.auth import SALT_BYTES, PasswordHash

    return str(PasswordHash.of(password, os.urandom(SALT_BYTES)))


def read_accounts(users: tuple[str, ...], file: Path | None) -> dict[str, Any]:
    """Users of ``--user`` and ``--users``. Raises click.ClickException."""
    from onceward.registry.http.auth import SALT_BYTES, PasswordHash, read_users

    try:
        found = {} if file is None else read_users(file.read_text(encoding="utf-8").splitlines())
    except ValueError as error:
        raise fail(f"{file}: {error}") from None
    for pair in users:
        name, separator, password = pair.partition(":")
        if not separator or not name:
            raise click.BadParameter("it is not NAME:PASSWORD", param_hint="--user")
        found[name] = PasswordHash.of(password, os.urandom(SALT_BYTES))
    return found


def print_hash(context: click.Context, _parameter: click.Parameter, name: str | None) -> None:
    if name is None or context.resilient_parsing:
        return
    load_registry()
    password = getpass.getpass(f"password of {name}: ")
    click.echo(f"{name}:{hashed_password(password)}")
    context.exit()


@click.command()
@click.option("--listen", default="127.0.0.1:8081", show_default=True, metavar="HOST:PORT",
              help="Port 0 takes a free one.")  # fmt: skip
@broker_option
@click.option("--advertise", metavar="HOST:PORT", help="How other registries reach this one.")
@click.option("--topic", default="_schemas", show_default=True, help="Where schemas are kept.")
@click.option("--group", default="schema-registry", show_default=True,
              help="Registries of one group choose one that writes.")  # fmt: skip
@click.option("--replication-factor", type=click.IntRange(1), help="Of a topic that is created.")
@click.option("--follower", is_flag=True, help="Never be the one that writes.")
@click.option("--compatibility", default="BACKWARD", show_default=True, metavar="LEVEL",
              help="Where no level was set.")  # fmt: skip
@click.option("--users", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              metavar="FILE", help="Lines of NAME:HASH; see --hash-password.")  # fmt: skip
@click.option("--user", "pairs", multiple=True, metavar="NAME:PASSWORD", envvar="ONCEWARD_USER",
              help="A user; better in a file.")  # fmt: skip
@click.option("--hash-password", metavar="NAME", callback=print_hash, is_eager=True,
              expose_value=False, help="Print a line for --users and exit.")  # fmt: skip
@click.option("--certificate", type=click.Path(exists=True, dir_okay=False), metavar="FILE",
              help="PEM; serves HTTPS.")  # fmt: skip
@click.option("--key", type=click.Path(exists=True, dir_okay=False), metavar="FILE")
@click.option("--authority", type=click.Path(exists=True, dir_okay=False), metavar="FILE",
              help="PEM; checks the certificates of other registries.")  # fmt: skip
def registry(
    listen: str,
    broker: str | None,
    advertise: str | None,
    topic: str,
    group: str,
    replication_factor: int | None,
    follower: bool,
    compatibility: str,
    users: Path | None,
    pairs: tuple[str, ...],
    certificate: str | None,
    key: str | None,
    authority: str | None,
) -> None:
    """Run the schema registry until SIGTERM or Ctrl-C.

    Prints one line when clients may come.

    \b
    Example:  onceward registry --listen 127.0.0.1:8081 --broker 127.0.0.1:9092
    """
    _, config_class = load_registry()
    from onceward.registry.compatibility import CompatibilityLevel
    from onceward.registry.errors import RegistryError

    host, port = host_and_port(listen, "--listen")
    try:
        level = CompatibilityLevel.parse(compatibility)
    except ValueError:
        raise click.BadParameter(
            f"{compatibility!r} is no level", param_hint="--compatibility"
        ) from None
    config = config_class(
        host=host,
        port=port,
        advertised=None if advertise is None else host_and_port(advertise, "--advertise"),
        topic=topic,
        replication_factor=replication_factor,
        group_id=group,
        eligible=not follower,
        default_level=level,
        users=read_accounts(pairs, users),
        certificate=certificate,
        key=key,
        authority=authority,
    )
    logging.basicConfig(
        level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    try:
        asyncio.run(serve_registry(address_of(broker), config))
    except RegistryError as error:
        raise fail(error.message) from error
