"""``onceward schemas`` and ``onceward registry`` as they are typed."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from click.testing import CliRunner, Result

from onceward.broker import Broker
from onceward.broker.client import Client
from onceward.registry.config import RegistryConfig
from onceward.registry.server import Registry
from onceward.streams.cli.main import cli
from onceward.streams.cli.registry import read_accounts

ONE = '{"type":"record","name":"R","fields":[]}'
TWO = '{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}'


@pytest.fixture
async def registry(tmp_path: Path) -> AsyncIterator[Registry]:
    async with (
        Broker(str(tmp_path / "data")) as broker,
        Client(broker.bootstrap, clock=lambda: 1, rng=Random(1)) as client,
        Registry(client, RegistryConfig(port=0)) as running,
    ):
        yield running


async def typed(registry: Registry, *arguments: str) -> Result:
    command = ["schemas", *arguments, "--registry", registry.url]
    return await asyncio.to_thread(CliRunner().invoke, cli, command)


async def printed(registry: Registry, *arguments: str) -> Any:
    result = await typed(registry, *arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


async def test_a_schema_from_file_to_diff(registry: Registry, tmp_path: Path) -> None:
    one, two = tmp_path / "one.avsc", tmp_path / "two.avsc"
    one.write_text(ONE)
    two.write_text(TWO)
    found = await printed(registry, "register", "a/b", str(one))
    assert found == {"subject": "a/b", "version": 1, "id": 1}
    refused = await typed(registry, "check", "a/b", str(two))
    assert (refused.exit_code, refused.stdout.splitlines()[-1]) == (1, "not compatible")
    assert "READER_FIELD_MISSING_DEFAULT_VALUE" in refused.stdout
    refused = await typed(registry, "register", "a/b", str(two))
    assert refused.exit_code == 1 and "40901" in refused.stderr
    two.write_text(TWO.replace('"int"', '"int","default":0'))
    assert (await typed(registry, "check", "a/b", str(two))).exit_code == 0
    await printed(registry, "register", "a/b", str(two))
    lines = (await printed(registry, "diff", "a/b", "1"))["lines"]
    assert '+      "name": "a",' in lines
    assert (await printed(registry, "show", "a/b", "1"))["schema"] == ONE
    assert (await printed(registry, "show", "--id", "1"))["schema"] == ONE
    assert await printed(registry, "list") == [
        {"subject": "a/b", "versions": 2, "latest": 2, "id": 2, "schemaType": "AVRO"}
    ]
    table = (await typed(registry, "list")).stdout.splitlines()
    assert table[0].split() == ["SUBJECT", "TYPE", "VERSIONS", "LATEST", "ID"]


async def test_references_are_given_by_name(registry: Registry, tmp_path: Path) -> None:
    base, user = tmp_path / "base.proto", tmp_path / "user.proto"
    base.write_text('syntax = "proto3"; package p; message A {}')
    user.write_text('syntax = "proto3"; import "base.proto"; message B { p.A a = 1; }')
    await printed(registry, "register", "base", str(base))
    refused = await typed(registry, "register", "user", str(user))
    assert "42201" in refused.stderr
    arguments = ("register", "user", str(user), "--reference", "base.proto=base:-1")
    assert (await printed(registry, *arguments))["id"] == 2
    wrong = await typed(registry, "register", "user", str(user), "--reference", "base")
    assert wrong.exit_code == 2


async def test_what_is_not_there_is_said_in_one_sentence(
    registry: Registry, tmp_path: Path
) -> None:
    result = await typed(registry, "show", "nope")
    assert result.exit_code == 1
    assert result.stderr == "Error: Subject 'nope' not found. (error 40401)\n"
    unknown = tmp_path / "schema.txt"
    unknown.write_text("x")
    assert "--type" in (await typed(registry, "register", "a", str(unknown))).stderr
    assert (await typed(registry, "show")).exit_code == 2


def test_without_the_extra_the_registry_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "starlette.requests", None)
    for name in ("application", "forwarding"):
        monkeypatch.delitem(sys.modules, f"onceward.registry.http.{name}", raising=False)
    monkeypatch.delitem(sys.modules, "onceward.registry.server", raising=False)
    result = CliRunner().invoke(cli, ["registry"])
    assert result.exit_code == 1
    assert "pip install 'onceward[registry]'" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [["--listen", "8081"], ["--listen", "a:b"], ["--compatibility", "SOME"], ["--user", "ann"]],
)
def test_wrong_options_are_usage_errors(arguments: list[str]) -> None:
    assert CliRunner().invoke(cli, ["registry", *arguments]).exit_code == 2


def test_users_come_from_a_file_and_from_options(tmp_path: Path) -> None:
    assert read_accounts(("ann:a:b",), None)["ann"].matches("a:b")
    file = tmp_path / "users"
    file.write_text(f"bob:{read_accounts(('x:secret',), None)['x']}\n")
    assert read_accounts((), file)["bob"].matches("secret")
    file.write_text("bob:plain\n")
    result = CliRunner().invoke(cli, ["registry", "--users", str(file)])
    assert result.exit_code == 1 and "line 1" in result.stderr


async def test_a_broker_brings_a_registry_along(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "onceward.streams.cli", "broker", "--listen", "127.0.0.1:0",
        "--data", str(tmp_path / "data"), "--registry", "127.0.0.1:0",
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        async with asyncio.timeout(30):
            first = (await process.stdout.readline()).decode()
            second = (await process.stdout.readline()).decode()
        assert first.startswith("onceward broker ready on ")
        assert second.startswith("onceward registry ready on ")
        command = ["schemas", "list", "--json", "--registry", second.split()[-1]]
        result = await asyncio.to_thread(CliRunner().invoke, cli, command)
        assert json.loads(result.stdout) == []
    finally:
        process.terminate()
        assert await asyncio.wait_for(process.wait(), 20) == 0


def test_a_broker_with_a_registry_is_never_idle_and_says_so() -> None:
    arguments = ["broker", "--registry", "127.0.0.1:0", "--exit-when-idle", "5"]
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 2
    assert "the registry is a client that stays connected" in result.stderr
