"""What every command needs: the broker's address, a client, a loop, machine-readable output."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from onceward.broker.client import Admin, Client

from .embedded import embedded_address

T = TypeVar("T")

DEFAULT_DATADIR = Path(".onceward")
DEFAULT_BROKER = "127.0.0.1:9092"

broker_option = click.option(
    "--broker",
    envvar="ONCEWARD_BROKER",
    metavar="HOST:PORT",
    help="Address of the cluster; several separated by commas. Default: the environment variable "
    f"ONCEWARD_BROKER, the broker embedded in ./{DEFAULT_DATADIR}, or {DEFAULT_BROKER}.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for machines.")


def wall_clock() -> int:
    """Milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def address_of(broker: str | None) -> str:
    """The address to use: what was given, the running embedded broker, or Kafka's usual port."""
    return broker or embedded_address(DEFAULT_DATADIR) or DEFAULT_BROKER


def new_client(address: str, *, client_id: str = "onceward-cli") -> Client:
    return Client(
        address,
        client_id=client_id,
        request_timeout_ms=10_000,
        clock=wall_clock,
        rng=random.Random(),  # jitter of retries only
    )


def with_client(broker: str | None, action: Callable[[Client], Awaitable[T]]) -> T:
    """Run ``action`` with a connected client. Raises KafkaError when nobody answers."""

    async def session() -> T:
        async with new_client(address_of(broker)) as client:
            return await action(client)

    return asyncio.run(session())


def with_admin(broker: str | None, action: Callable[[Admin], Awaitable[T]]) -> T:
    return with_client(broker, lambda client: action(Admin(client)))


def print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2, default=str))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Left-aligned columns, as wide as they need to be: readable, and easy to cut for a script."""
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [
        max([len(name), *(len(row[index]) for row in cells)]) for index, name in enumerate(columns)
    ]
    for row in [[name.upper() for name in columns], *cells]:
        click.echo(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        )


def fail(message: str) -> click.ClickException:
    """A failure to raise: one sentence on stderr, exit code 1."""
    return click.ClickException(message)
