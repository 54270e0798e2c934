"""Registries over real sockets, on a broker of ours."""

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest

from onceward.broker import Broker
from onceward.broker.client import Admin, Client, Consumer, NewTopic, TopicPartition
from onceward.registry.config import RegistryConfig
from onceward.registry.errors import NotLeader, RegistryError
from onceward.registry.http.auth import PasswordHash
from onceward.registry.schema_registry import SchemaRegistry
from onceward.registry.server import Registry, bound_socket
from onceward.registry.store import SchemaStore

TEXT = "application/vnd.schemaregistry.v1+json"


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    config = {"group.min.session.timeout.ms": 100}
    async with Broker(str(tmp_path / "data"), config=config) as running:
        yield running


def client_of(broker: Broker) -> Client:
    return Client(broker.bootstrap, clock=lambda: 1_700_000_000_000, rng=Random(1))


@asynccontextmanager
async def registry_on(broker: Broker, **settings: Any) -> AsyncIterator[Registry]:
    config = RegistryConfig(**{"port": 0, **settings})
    async with client_of(broker) as client, Registry(client, config) as registry:
        yield registry


async def ask(
    registry: Registry, method: str, path: str, body: Any = None, **options: Any
) -> tuple[int, Any]:
    async with httpx.AsyncClient(base_url=registry.url, **options) as http:
        headers = {"content-type": TEXT}
        answer = await http.request(method, path, json=body, headers=headers)
    return answer.status_code, answer.json()


def fixed(number: int) -> dict[str, str]:
    return {"schema": f'{{"type":"fixed","name":"F{number}","size":1}}'}


async def register(registry: Registry, subject: str, number: int) -> int:
    status, answer = await ask(registry, "POST", f"/subjects/{subject}/versions", fixed(number))
    assert status == 200, answer
    schema_id: int = answer["id"]
    return schema_id


async def test_a_restart_finds_everything_in_the_topic(broker: Broker) -> None:
    async with registry_on(broker) as registry:
        assert await register(registry, "a", 1) == 1
        await ask(registry, "PUT", "/config/a", {"compatibility": "NONE"})
        assert await register(registry, "a", 2) == 2
        await ask(registry, "DELETE", "/subjects/a/versions/1")
    async with registry_on(broker) as registry:
        assert await ask(registry, "GET", "/subjects/a/versions") == (200, [2])
        assert await ask(registry, "GET", "/subjects/a/versions?deleted=true") == (200, [1, 2])
        assert await ask(registry, "GET", "/config/a") == (200, {"compatibilityLevel": "NONE"})
        assert await register(registry, "b", 3) == 3


async def test_a_clean_stop_ends_the_topic_with_a_record(broker: Broker) -> None:
    async with registry_on(broker) as registry:
        await register(registry, "a", 1)
    async with client_of(broker) as client:
        consumer = Consumer(client)
        partition = TopicPartition("_schemas", 0)
        end = (await consumer.end_offsets([partition]))[partition]
        consumer.assign([partition])
        consumer.seek(partition, end - 1)
        await consumer.start()
        [batch] = await consumer.fetch(timeout_ms=5_000)
        assert batch.records.keys == [b'{"keytype":"NOOP","magic":0}']
        await consumer.stop()


async def test_the_topic_is_created_compacted_with_one_partition(broker: Broker) -> None:
    async with registry_on(broker), client_of(broker) as client:
        admin = Admin(client)
        [described] = (await admin.describe_topics(["_schemas"])).values()
        assert len(described.partitions) == 1
        assert (await admin.describe_configs("_schemas"))["cleanup.policy"].value == "compact"


@pytest.mark.parametrize(
    "topic",
    [
        NewTopic("_schemas", 2, 1, {"cleanup.policy": "compact"}),
        NewTopic("_schemas", 1, 1, {"cleanup.policy": "delete"}),
        NewTopic("_schemas", 1, 1, {"cleanup.policy": "compact,delete"}),
    ],
)
async def test_a_topic_that_would_lose_schemas_is_refused(broker: Broker, topic: NewTopic) -> None:
    async with client_of(broker) as client:
        assert await Admin(client).create_topics([topic]) == {"_schemas": None}
        with pytest.raises(RegistryError, match="_schemas"):
            async with Registry(client, RegistryConfig(port=0)):
                pass


async def test_what_others_wrote_badly_does_not_stop_the_start(broker: Broker) -> None:
    """https://github.com/Aiven-Open/karapace/issues/913"""
    async with registry_on(broker), client_of(broker) as client:
        from onceward.broker.client import Producer

        producer = Producer(client)
        key = b'{"keytype":"SCHEMA","subject":"odd","version":1,"magic":1}'
        text = b'syntax = \\"proto3\\"; message A { oneof b { optional string c = 1; } }'
        value = b'{"subject":"odd","version":1,"id":9,"schemaType":"PROTOBUF","schema":"%s"}' % text
        await producer.produce(
            "_schemas", 0, [b"junk", b'{"keytype":"LATER"}', key], [b"{", b"x", value], timestamps=1
        )
        await producer.close()
    async with registry_on(broker) as registry:
        assert registry.store.skipped == 2
        assert await ask(registry, "GET", "/subjects") == (200, ["odd"])
        _, found = await ask(registry, "GET", "/schemas/ids/9")
        assert found["schema"].startswith("syntax")
        status, answer = await ask(registry, "GET", "/schemas/ids/9?format=serialized")
        assert (status, answer["error_code"]) == (422, 42201)
        assert await register(registry, "a", 1) == 10


async def test_a_follower_forwards_writes_and_has_read_them_when_it_answers(
    broker: Broker,
) -> None:
    async with registry_on(broker) as leader, registry_on(broker, eligible=False) as follower:
        for number in range(1, 6):
            assert await register(follower, "a%2Fb", number) == number
            await ask(follower, "PUT", "/config/a%2Fb", {"compatibility": "NONE"})
            path = "/subjects/a%2Fb/versions"
            expected = (200, list(range(1, number + 1)))
            assert await ask(follower, "GET", path) == await ask(leader, "GET", path) == expected
        status, answer = await ask(follower, "POST", "/subjects/x/versions", {"schema": "{"})
        assert (status, answer["error_code"]) == (422, 42201)


async def test_what_the_leader_wrote_is_there_for_readers_of_a_follower(broker: Broker) -> None:
    async with registry_on(broker) as leader, registry_on(broker, eligible=False) as follower:
        for number in range(1, 21):
            schema_id = await register(leader, f"s{number}", number)
            status, _ = await ask(follower, "GET", f"/schemas/ids/{schema_id}")
            assert status == 200


async def test_when_the_leader_goes_the_other_writes(broker: Broker) -> None:
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(registry_on(broker))
        async with AsyncExitStack() as second_stack:
            second = await second_stack.enter_async_context(registry_on(broker))
            assert await register(second, "a", 1) == 1
            await first.stop()
            assert await register(second, "b", 2) == 2
            third = await second_stack.enter_async_context(registry_on(broker))
            assert await register(third, "c", 3) == 3


async def test_without_anybody_who_may_write_writes_are_refused(broker: Broker) -> None:
    settings = {"eligible": False, "leader_timeout": 0.2, "write_patience": 0.2}
    async with registry_on(broker, **settings) as follower:
        status, answer = await ask(follower, "POST", "/subjects/a/versions", fixed(1))
        assert (status, answer["error_code"]) == (500, 50004)
        assert await ask(follower, "GET", "/subjects") == (200, [])


async def test_a_deposed_leader_cannot_write_and_the_next_has_read_everything(
    broker: Broker,
) -> None:
    machines = SchemaRegistry(), SchemaRegistry()
    async with client_of(broker) as one, client_of(broker) as two:
        old, new = (
            SchemaStore(client, machine.replay)
            for client, machine in zip((one, two), machines, strict=True)
        )
        await old.start()
        await new.start()
        await old.lead()
        await old.write([(b'{"keytype":"SCHEMA","subject":"a","version":1,"magic":1}',
                          b'{"subject":"a","version":1,"id":1,"schema":"1"}')])  # fmt: skip
        await new.lead()
        assert machines[1].state.highest_id(".") == 1
        with pytest.raises(NotLeader):
            await old.write([(b'{"keytype":"SCHEMA","subject":"b","version":1,"magic":1}',
                              b'{"subject":"b","version":1,"id":2,"schema":"2"}')])  # fmt: skip
        await new.write([(b'{"keytype":"SCHEMA","subject":"c","version":1,"magic":1}',
                          b'{"subject":"c","version":1,"id":2,"schema":"3"}')])  # fmt: skip
        await old.catch_up()
        for machine in machines:
            assert sorted(machine.state.subjects) == ["a", "c"]
        await old.stop()
        await new.stop()


async def test_confluents_client_and_serializers_take_it_for_their_own(broker: Broker) -> None:
    async with registry_on(broker) as registry:
        from .confluent_use import use_everything

        await asyncio.to_thread(use_everything, registry.url)


def certificate(folder: Path) -> tuple[str, str]:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    key, cert = folder / "key.pem", folder / "cert.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         "-nodes", "-days", "1", "-subj", "/CN=localhost", "-addext",
         "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)],
        check=True, capture_output=True,
    )  # fmt: skip
    return str(cert), str(key)


async def test_tls_and_passwords_hold_between_instances_too(broker: Broker, tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    users = {"ann": PasswordHash.of("secret", b"0123456789abcdef")}
    secure = {"certificate": cert, "key": key, "authority": cert, "users": users}
    trusted = {"verify": ssl.create_default_context(cafile=cert)}
    known = {**trusted, "auth": ("ann", "secret")}
    async with (
        registry_on(broker, **secure) as leader,
        registry_on(broker, **secure, eligible=False) as follower,
    ):
        assert leader.url.startswith("https://")
        body = fixed(1)
        for registry in (leader, follower):
            status, _ = await ask(registry, "POST", "/subjects/a/versions", body, **trusted)
            assert status == 401
            status, answer = await ask(registry, "POST", "/subjects/a/versions", body, **known)
            assert (status, answer["id"]) == (200, 1)


def test_answers_do_not_wait_for_an_acknowledgement() -> None:
    """Head and body are two writes: with Nagle's delay the body came 40 ms after the head."""
    with (
        bound_socket("127.0.0.1", 0) as listener,
        socket.create_connection(listener.getsockname()),
    ):
        listener.settimeout(5)
        connection, _ = listener.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
