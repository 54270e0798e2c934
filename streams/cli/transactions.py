"""``onceward transactions``: list, describe, abort."""

from __future__ import annotations

import click

from .session import broker_option, fail, json_option, print_json, print_table, with_admin


@click.group()
def transactions() -> None:
    """Look at transactions of any Kafka cluster, and end one that hangs.

    \b
    Example:  onceward transactions list
              onceward transactions abort payments-0
    """


@transactions.command("list")
@broker_option
@json_option
def list_(broker: str | None, as_json: bool) -> None:
    """List transactional ids and their states.  Example: onceward transactions list"""
    listings = sorted(with_admin(broker, lambda admin: admin.list_transactions()))
    if as_json:
        print_json([listing._asdict() for listing in listings])
        return
    print_table(
        ["transactional id", "producer id", "state"],
        [[item.transactional_id, item.producer_id, item.state] for item in listings],
    )


@transactions.command()
@click.argument("name")
@broker_option
@json_option
def describe(name: str, broker: str | None, as_json: bool) -> None:
    """Show one transactional id.  Example: onceward transactions describe payments-0"""
    found = with_admin(broker, lambda admin: admin.describe_transactions([name]))[name]
    if found is None:
        raise fail(f"there is no transactional id {name}; see: onceward transactions list")
    report = {**found._asdict(), "partitions": [str(tp) for tp in found.partitions]}
    if as_json:
        print_json(report)
        return
    for key, value in report.items():
        click.echo(f"{key}: {value}")


@transactions.command()
@click.argument("names", nargs=-1, required=True)
@broker_option
def abort(names: tuple[str, ...], broker: str | None) -> None:
    """Abort what these transactional ids have open, and fence their producers.

    Example: onceward transactions abort payments-0
    """
    with_admin(broker, lambda admin: admin.fence_producers(names))
    for name in names:
        click.echo(f"aborted and fenced {name}")
