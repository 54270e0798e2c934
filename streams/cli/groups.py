"""``onceward groups``: list, describe, reset-offsets, delete."""

from __future__ import annotations

from typing import Any

import click

from onceward.broker.client import Admin, Client, Consumer, OffsetAndMetadata, TopicPartition

from .session import (
    broker_option,
    fail,
    json_option,
    print_json,
    print_table,
    with_admin,
    with_client,
)
from .topics import raise_first


@click.group()
def groups() -> None:
    """Work with consumer groups of any Kafka cluster.

    \b
    Example:  onceward groups describe word-count
              onceward groups reset-offsets word-count --topic lines --to earliest
    """


@groups.command("list")
@broker_option
@json_option
def list_(broker: str | None, as_json: bool) -> None:
    """List groups and their states.  Example: onceward groups list"""
    listings = sorted(with_admin(broker, lambda admin: admin.list_groups()))
    if as_json:
        print_json([listing._asdict() for listing in listings])
    else:
        print_table(["group", "state"], [[item.group_id, item.state] for item in listings])


@groups.command()
@click.argument("group")
@broker_option
@json_option
def describe(group: str, broker: str | None, as_json: bool) -> None:
    """Show members, committed offsets and lag.  Example: onceward groups describe word-count"""
    report = with_client(broker, lambda client: _describe(client, group))
    if as_json:
        print_json(report)
        return
    click.echo(f"{group}: {report['state']}, {len(report['members'])} members")
    columns = ["topic", "partition", "committed", "end", "lag", "member"]
    print_table(columns, [[row[column] for column in columns] for row in report["partitions"]])


async def _describe(client: Client, group: str) -> dict[str, Any]:
    admin = Admin(client)
    found = (await admin.describe_groups([group]))[group]
    committed = await admin.list_group_offsets(group)
    if found.state == "Dead" and not committed:
        raise fail(f"there is no group {group}; see: onceward groups list")
    owners = {tp: member.member_id for member in found.members for tp in member.assignment}
    tps = sorted({*committed, *owners})
    end = await Consumer(client).end_offsets(tps, "read_committed") if tps else {}
    return {
        "group": group,
        "state": found.state,
        "members": [
            {
                "member": member.member_id,
                "instance": member.group_instance_id,
                "client": member.client_id,
                "host": member.client_host,
                "partitions": [str(tp) for tp in member.assignment],
            }
            for member in found.members
        ],
        "partitions": [
            {
                "topic": tp.topic,
                "partition": tp.partition,
                "committed": committed[tp].offset if tp in committed else None,
                "end": end[tp],
                "lag": end[tp] - committed[tp].offset if tp in committed else None,
                "member": owners.get(tp, "-"),
            }
            for tp in tps
        ],
    }


@groups.command()
@click.argument("names", nargs=-1, required=True)
@broker_option
def delete(names: tuple[str, ...], broker: str | None) -> None:
    """Delete empty groups and their offsets.  Example: onceward groups delete word-count"""
    raise_first(with_admin(broker, lambda admin: admin.delete_groups(names)))
    for name in names:
        click.echo(f"deleted {name}")


@groups.command("reset-offsets")
@click.argument("group")
@broker_option
@click.option("--topic", "topics", multiple=True, help="Only these topics. Default: all committed.")
@click.option(
    "--to", "target", default="earliest", show_default=True,
    metavar="earliest|latest|OFFSET|@MILLISECONDS",
    help="Where to: the ends, an offset, or the first record at or after a time.",
)  # fmt: skip
def reset_offsets(group: str, broker: str | None, topics: tuple[str, ...], target: str) -> None:
    """Move the committed offsets of an empty group.

    Example: onceward groups reset-offsets word-count --topic lines --to earliest
    """
    if target not in {"earliest", "latest"} and not target.removeprefix("@").isdigit():
        raise click.BadParameter(f"{target!r} is none of them", param_hint="--to")
    moved = with_client(broker, lambda client: _reset(client, group, topics, target))
    for tp, offset in sorted(moved.items()):
        click.echo(f"{tp}: {offset}")


async def _reset(
    client: Client, group: str, topics: tuple[str, ...], target: str
) -> dict[TopicPartition, int]:
    admin, consumer = Admin(client), Consumer(client)
    if topics:
        tps = [
            TopicPartition(topic, p) for topic in topics for p in await client.partitions_for(topic)
        ]
    else:
        tps = list(await admin.list_group_offsets(group))
    if not tps:
        raise fail(f"group {group} has no committed offsets: name the topics with --topic")
    start, end = await consumer.beginning_offsets(tps), await consumer.end_offsets(tps)
    if target == "earliest":
        moved = start
    elif target == "latest":
        moved = end
    elif target.startswith("@"):
        found = await consumer.offsets_for_times(dict.fromkeys(tps, int(target[1:])))
        moved = {tp: at.offset if (at := found[tp]) is not None else end[tp] for tp in tps}
    else:
        moved = {tp: min(max(int(target), start[tp]), end[tp]) for tp in tps}
    await admin.alter_group_offsets(
        group, {tp: OffsetAndMetadata(offset) for tp, offset in moved.items()}
    )
    return moved
