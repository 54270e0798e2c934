"""``onceward schemas``: look into a schema registry, check schemas and register them."""

from __future__ import annotations

import asyncio
import difflib
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from .session import fail, json_option, print_json, print_table

if TYPE_CHECKING:
    from onceward.registry import Registered, RegistryClient, SchemaText

T = TypeVar("T")

DEFAULT_REGISTRY = "http://127.0.0.1:8081"
KINDS = {".avsc": "AVRO", ".json": "JSON", ".proto": "PROTOBUF"}

registry_option = click.option(
    "--registry",
    envvar="ONCEWARD_REGISTRY",
    metavar="URL",
    default=DEFAULT_REGISTRY,
    help="Address of the registry; several separated by commas; http://USER:PASSWORD@HOST:PORT "
    f"logs in. Default: the environment variable ONCEWARD_REGISTRY or {DEFAULT_REGISTRY}.",
)
file_argument = click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
type_option = click.option(
    "--type",
    "kind",
    type=click.Choice(["AVRO", "JSON", "PROTOBUF"], case_sensitive=False),
    help="Default: by the name of the file: .avsc, .json, .proto.",
)
reference_option = click.option(
    "--reference",
    "references",
    multiple=True,
    metavar="NAME=SUBJECT:VERSION",
    help="A schema this one refers to; version -1 is the newest.",
)


def with_registry(url: str, action: Callable[[RegistryClient], Awaitable[T]]) -> T:
    """Run ``action`` with a client. Raises click.ClickException for what the registry refuses."""
    from onceward.registry import RegistryClient, RegistryError

    try:
        client = RegistryClient(url, timeout=10.0)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--registry") from None

    async def session() -> T:
        return await action(client)

    try:
        return asyncio.run(session())
    except RegistryError as error:
        raise fail(f"{error.message} (error {error.code})") from error


def read_schema(file: Path, kind: str | None, references: tuple[str, ...]) -> SchemaText:
    """Raises click.ClickException."""
    from onceward.registry import Reference, SchemaText
    from onceward.registry.schemas import SchemaType

    found = kind or KINDS.get(file.suffix)
    if found is None:
        raise fail(f"{file}: what kind of schema is it? give --type")
    refers = []
    for text in references:
        name, separator, target = text.rpartition("=")
        subject, colon, version = target.rpartition(":")
        if not separator or not colon or not version.removeprefix("-").isdigit():
            message = f"{text!r} is not NAME=SUBJECT:VERSION"
            raise click.BadParameter(message, param_hint="--reference")
        refers.append(Reference(name, subject, int(version)))
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise fail(f"{file} is not UTF-8") from None
    return SchemaText(SchemaType(found.upper()), text, tuple(refers))


def described(found: Registered) -> dict[str, Any]:
    references = [
        {"name": one.name, "subject": one.subject, "version": one.version}
        for one in found.schema.references
    ]
    return {
        "subject": found.subject,
        "version": found.version,
        "id": found.id,
        "guid": found.guid,
        "schemaType": found.schema.schema_type.value,
        "references": references,
        "schema": found.schema.text,
    }


def readable(schema: SchemaText) -> str:
    """The text for people: JSON is indented."""
    try:
        return json.dumps(json.loads(schema.text), indent=2, ensure_ascii=False)
    except ValueError:
        return schema.text.rstrip("\n")


@click.group()
def schemas() -> None:
    """List, show, check, register and compare the schemas of a registry.

    \b
    Example:  onceward schemas list
              onceward schemas check orders-value order.avsc
    """


@schemas.command("list")
@registry_option
@json_option
def list_(registry: str, as_json: bool) -> None:
    """List subjects with their newest version.  Example: onceward schemas list"""

    async def gather(client: RegistryClient) -> list[tuple[Registered, int]]:
        found = []
        for subject in await client.subjects():
            numbers = await client.versions(subject, deleted=False)
            if numbers:
                found.append((await client.latest(subject), len(numbers)))
        return found

    rows = with_registry(registry, gather)
    if as_json:
        print_json(
            [
                {
                    "subject": one.subject,
                    "versions": count,
                    "latest": one.version,
                    "id": one.id,
                    "schemaType": one.schema.schema_type.value,
                }
                for one, count in rows
            ]
        )
        return
    print_table(
        ["subject", "type", "versions", "latest", "id"],
        [
            [one.subject, one.schema.schema_type.value, count, one.version, one.id]
            for one, count in rows
        ],
    )


@schemas.command()
@click.argument("subject", required=False)
@click.argument("version", type=click.IntRange(1), required=False)
@click.option("--id", "schema_id", type=click.IntRange(1), help="Show the schema with this id.")
@registry_option
@json_option
def show(
    subject: str | None,
    version: int | None,
    schema_id: int | None,
    registry: str,
    as_json: bool,
) -> None:
    """Show a schema, the newest of its subject unless VERSION is given.

    Example: onceward schemas show orders-value 2
    """
    if (subject is None) == (schema_id is None):
        raise click.UsageError("give either SUBJECT or --id")
    if schema_id is not None:
        schema = with_registry(registry, lambda client: client.by_id(schema_id))
        if as_json:
            print_json({"id": schema_id, "schemaType": schema.schema_type, "schema": schema.text})
        else:
            click.echo(readable(schema))
        return
    assert subject is not None
    found = with_registry(registry, lambda client: version_of(client, subject, version))
    if as_json:
        print_json(described(found))
        return
    click.echo(f"{found.subject} version {found.version}, id {found.id}, "
               f"{found.schema.schema_type.value}", err=True)  # fmt: skip
    click.echo(readable(found.schema))


async def version_of(client: RegistryClient, subject: str, version: int | None) -> Registered:
    if version is None:
        return await client.latest(subject)
    return await client.version(subject, version)


@schemas.command()
@click.argument("subject")
@file_argument
@type_option
@reference_option
@click.option("--against", type=click.IntRange(1), metavar="VERSION", help="Default: the newest.")
@registry_option
@json_option
def check(
    subject: str,
    file: Path,
    kind: str | None,
    references: tuple[str, ...],
    against: int | None,
    registry: str,
    as_json: bool,
) -> None:
    """Whether a schema may follow what its subject has; exit code 1 and the reasons if not.

    Example: onceward schemas check orders-value order.avsc
    """
    schema = read_schema(file, kind, references)
    compatible, messages = with_registry(
        registry, lambda client: client.is_compatible(subject, schema, against or "latest")
    )
    if as_json:
        print_json({"is_compatible": compatible, "messages": messages})
    else:
        for message in messages:
            click.echo(message)
        click.echo("compatible" if compatible else "not compatible")
    if not compatible:
        raise click.exceptions.Exit(1)


@schemas.command()
@click.argument("subject")
@file_argument
@type_option
@reference_option
@click.option("--normalize", is_flag=True, help="In the spelling all equal schemas share.")
@registry_option
@json_option
def register(
    subject: str,
    file: Path,
    kind: str | None,
    references: tuple[str, ...],
    normalize: bool,
    registry: str,
    as_json: bool,
) -> None:
    """Register a schema; one that is there already keeps its version.

    Example: onceward schemas register orders-value order.avsc
    """
    schema = read_schema(file, kind, references)
    found = with_registry(
        registry, lambda client: client.register(subject, schema, normalize=normalize)
    )
    if as_json:
        print_json({"subject": subject, "version": found.version, "id": found.id})
    else:
        version = "" if found.version is None else f" version {found.version},"
        click.echo(f"{subject}{version} id {found.id}")


@schemas.command()
@click.argument("subject")
@click.argument("old", type=click.IntRange(1))
@click.argument("new", type=click.IntRange(1), required=False)
@registry_option
@json_option
def diff(subject: str, old: int, new: int | None, registry: str, as_json: bool) -> None:
    """The lines in which two versions of a subject differ; the second is the newest by default.

    Example: onceward schemas diff orders-value 1 2
    """

    async def both(client: RegistryClient) -> tuple[Registered, Registered]:
        return await version_of(client, subject, old), await version_of(client, subject, new)

    left, right = with_registry(registry, both)
    lines = list(
        difflib.unified_diff(
            readable(left.schema).splitlines(),
            readable(right.schema).splitlines(),
            f"{subject} version {left.version}",
            f"{subject} version {right.version}",
            lineterm="",
        )
    )
    if as_json:
        print_json({"old": left.version, "new": right.version, "lines": lines})
    else:
        for line in lines:
            click.echo(line)
