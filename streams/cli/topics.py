"""``onceward topics``: list, create, describe, alter, delete."""

from __future__ import annotations

from typing import Any

import click

from onceward.broker.client import Admin, Client, Consumer, KafkaError, NewTopic, TopicPartition

from .session import (
    broker_option,
    fail,
    json_option,
    print_json,
    print_table,
    with_admin,
    with_client,
)


@click.group()
def topics() -> None:
    """Work with topics of any Kafka cluster.

    \b
    Example:  onceward topics create orders --partitions 4
              onceward topics describe orders --json
    """


def parse_configs(pairs: tuple[str, ...]) -> dict[str, str]:
    """``KEY=VALUE`` arguments as a mapping. Raises click.BadParameter."""
    configs = {}
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not separator or not key:
            raise click.BadParameter(f"{pair!r} is not KEY=VALUE", param_hint="--config")
        configs[key] = value
    return configs


def raise_first(results: dict[str, KafkaError | None]) -> None:
    """One sentence naming each that failed. Raises click.ClickException."""
    failed = [f"{name}: {error}" for name, error in results.items() if error is not None]
    if failed:
        raise fail("; ".join(failed))


@topics.command("list")
@broker_option
@click.option("--internal", is_flag=True, help="Include internal topics.")
@json_option
def list_(broker: str | None, internal: bool, as_json: bool) -> None:
    """List topics.  Example: onceward topics list"""
    names = sorted(with_admin(broker, lambda admin: admin.list_topics(internal=internal)))
    if as_json:
        print_json(names)
    else:
        for name in names:
            click.echo(name)


@topics.command()
@click.argument("name")
@broker_option
@click.option("--partitions", type=click.IntRange(1), help="Default: the broker's.")
@click.option("--replication-factor", type=click.IntRange(1), help="Default: the broker's.")
@click.option("--config", "configs", multiple=True, metavar="KEY=VALUE", help="A topic config.")
def create(
    name: str,
    broker: str | None,
    partitions: int | None,
    replication_factor: int | None,
    configs: tuple[str, ...],
) -> None:
    """Create a topic.  Example: onceward topics create orders --partitions 4"""
    topic = NewTopic(name, partitions or -1, replication_factor or -1, parse_configs(configs))
    raise_first(with_admin(broker, lambda admin: admin.create_topics([topic])))
    click.echo(f"created {name}")


@topics.command()
@click.argument("names", nargs=-1, required=True)
@broker_option
def delete(names: tuple[str, ...], broker: str | None) -> None:
    """Delete topics and their records.  Example: onceward topics delete orders"""
    raise_first(with_admin(broker, lambda admin: admin.delete_topics(names)))
    for name in names:
        click.echo(f"deleted {name}")


@topics.command()
@click.argument("name")
@broker_option
@click.option("--partitions", type=click.IntRange(1), help="New total number of partitions.")
@click.option("--config", "configs", multiple=True, metavar="KEY=VALUE", help="Set a topic config.")
@click.option("--reset", "resets", multiple=True, metavar="KEY", help="Back to the default.")
def alter(
    name: str,
    broker: str | None,
    partitions: int | None,
    configs: tuple[str, ...],
    resets: tuple[str, ...],
) -> None:
    """Add partitions or change configs.

    Example: onceward topics alter orders --config retention.ms=86400000
    """
    changes: dict[str, str | None] = {**parse_configs(configs), **dict.fromkeys(resets)}
    if not changes and partitions is None:
        raise click.UsageError("nothing to change: give --partitions, --config or --reset")

    async def change(admin: Admin) -> None:
        if changes:
            await admin.alter_configs(name, changes)
        if partitions is not None:
            raise_first(await admin.create_partitions({name: partitions}))

    with_admin(broker, change)
    click.echo(f"altered {name}")


@topics.command()
@click.argument("name")
@broker_option
@json_option
def describe(name: str, broker: str | None, as_json: bool) -> None:
    """Show partitions, offsets and configs.  Example: onceward topics describe orders"""
    report = with_client(broker, lambda client: _describe(client, name))
    if as_json:
        print_json(report)
        return
    click.echo(f"{name}: {len(report['partitions'])} partitions")
    columns = ["partition", "leader", "start", "end", "stable"]
    print_table(columns, [[row[column] for column in columns] for row in report["partitions"]])
    for key, value in report["configs"].items():
        click.echo(f"{key}={value}")


async def _describe(client: Client, name: str) -> dict[str, Any]:
    admin = Admin(client)
    found = (await admin.describe_topics([name])).get(name)
    if found is None:
        raise fail(f"there is no topic {name}; see: onceward topics list")
    tps = [TopicPartition(name, partition.partition) for partition in found.partitions]
    consumer = Consumer(client)
    start = await consumer.beginning_offsets(tps)
    end = await consumer.end_offsets(tps, "read_uncommitted")
    stable = await consumer.end_offsets(tps, "read_committed")
    configs = await admin.describe_configs(name)
    return {
        "topic": name,
        "internal": found.is_internal,
        "partitions": [
            {
                "partition": partition.partition,
                "leader": partition.leader,
                "leader_epoch": partition.leader_epoch,
                "start": start[tp],
                "end": end[tp],
                "stable": stable[tp],
            }
            for partition, tp in zip(found.partitions, tps, strict=True)
        ],
        "configs": {key: entry.value for key, entry in configs.items() if entry.source == 1},
    }
