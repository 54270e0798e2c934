"""Settings of topics and of the broker, as the wire shows them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from onceward.broker import Broker
from onceward.broker.errors import KafkaError
from onceward.broker.protocol.messages import (
    AlterConfigsRequest,
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
)
from onceward.broker.types import TopicPartition

from ..wire import Wire, connect
from .test_data import create

TOPIC, BROKER, LOGGER = 2, 4, 8
SET, DELETE, APPEND, SUBTRACT = range(4)


async def describe(wire: Wire, kind: int, name: str, keys: Any = None, version: int = 4) -> Any:
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=keys
    )
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True)
    return (await wire.call(request, version)).results[0]


async def setting(wire: Wire, key: str) -> tuple[str, int]:
    [config] = (await describe(wire, TOPIC, "t", [key])).configs
    return config.value, config.config_source


async def alter(wire: Wire, *changes: tuple[str, int, str | None], **fields: Any) -> Any:
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=fields.pop("kind", TOPIC),
        resource_name=fields.pop("name", "t"),
        configs=[
            IncrementalAlterConfigsRequest.AlterableConfig(
                name=key, config_operation=operation, value=value
            )
            for key, operation, value in changes
        ],
    )
    request = IncrementalAlterConfigsRequest(resources=[resource], **fields)
    return (await wire.call(request, 1)).responses[0]


@pytest.mark.parametrize("version", range(1, 5))
async def test_a_topic_has_every_setting_of_kafka(wire: Wire, version: int) -> None:
    await create(wire, retention_ms="5000")
    result = await describe(wire, TOPIC, "t", version=version)
    settings = {config.name: config for config in result.configs}
    assert {"cleanup.policy", "min.insync.replicas", "segment.bytes"} <= settings.keys()
    assert (settings["retention.ms"].value, settings["retention.ms"].config_source) == ("5000", 1)
    synonyms = [(s.name, s.value, s.source) for s in settings["retention.ms"].synonyms]
    assert synonyms == [("retention.ms", "5000", 1), ("log.retention.ms", "604800000", 5)]


async def test_the_broker_has_its_settings(tmp_path: Path) -> None:
    config = {"num.partitions": 3, "log.retention.hours": 1, "log.segment.bytes": 2048}
    async with Broker(str(tmp_path), config=config) as broker, await connect(broker) as wire:
        result = await describe(wire, BROKER, "1")
        settings = {c.name: (c.value, c.config_source, c.read_only) for c in result.configs}
        assert settings["num.partitions"] == ("3", 4, True)
        assert settings["log.retention.ms"] == ("3600000", 4, True)
        assert settings["group.max.size"][1] == 5
        assert settings["node.id"] == ("1", 4, True)
        assert settings["log.dirs"] == (str(tmp_path), 4, True)
        assert settings["advertised.listeners"] == (f"PLAINTEXT://{broker.bootstrap}", 4, True)
        await create(wire)
        assert await setting(wire, "retention.ms") == ("3600000", 4)
        log = broker.logs.get(TopicPartition("t", 0))
        assert log is not None
        assert (log.config.retention_ms, log.config.segment_bytes) == (3600000, 2048)
        assert (await describe(wire, BROKER, "7")).error_code == 42
        assert (await describe(wire, BROKER, "")).configs == []


async def test_what_has_no_settings_is_refused(wire: Wire) -> None:
    assert (await describe(wire, TOPIC, "missing")).error_code == 3
    assert (await describe(wire, LOGGER, "1")).error_code == 42


async def test_settings_change_one_by_one_and_reach_the_log(wire: Wire, broker: Broker) -> None:
    await create(wire, retention_ms="5000")
    outcome = await alter(
        wire,
        ("max.message.bytes", SET, "2000"),
        ("retention.ms", DELETE, None),
        ("cleanup.policy", APPEND, "compact"),
    )
    assert outcome.error_code == 0
    assert await setting(wire, "max.message.bytes") == ("2000", 1)
    assert await setting(wire, "retention.ms") == ("604800000", 5)
    assert await setting(wire, "cleanup.policy") == ("delete,compact", 1)
    log = broker.logs.get(TopicPartition("t", 0))
    assert log is not None
    assert log.config.max_message_bytes == 2000
    assert log.config.compacts
    await alter(wire, ("cleanup.policy", SUBTRACT, "delete"))
    assert await setting(wire, "cleanup.policy") == ("compact", 1)
    assert (await alter(wire, ("cleanup.policy", SUBTRACT, "compact"))).error_code == 0
    assert await setting(wire, "cleanup.policy") == ("", 1)
    assert not log.config.compacts
    assert not log.config.deletes


@pytest.mark.parametrize(
    ("change", "fields", "code"),
    [
        (("no.such.thing", SET, "1"), {}, 40),
        (("no.such.thing", DELETE, None), {}, 40),
        (("retention.ms", SET, "soon"), {}, 40),
        (("retention.ms", SET, None), {}, 40),
        (("retention.ms", APPEND, "1"), {}, 40),
        (("retention.ms", 9, "1"), {}, 42),
        (("retention.ms", SET, "1"), {"name": "missing"}, 3),
        (("num.partitions", SET, "1"), {"kind": BROKER, "name": "1"}, 42),
    ],
    ids=str,
)
async def test_impossible_changes_change_nothing(
    wire: Wire, change: tuple[str, int, str | None], fields: dict[str, Any], code: int
) -> None:
    await create(wire)
    outcome = await alter(wire, ("segment.ms", SET, "1000"), change, **fields)
    assert outcome.error_code == code
    assert outcome.error_message
    assert await setting(wire, "segment.ms") == ("604800000", 5)


async def test_a_broker_has_nothing_to_take_back(wire: Wire) -> None:
    changes = [
        ("leader.replication.throttled.rate", DELETE, None),
        ("num.partitions", DELETE, None),
    ]
    for name in ("1", ""):
        outcome = await alter(wire, *changes, kind=BROKER, name=name)
        assert (outcome.error_code, outcome.error_message) == (0, None)
    assert (await alter(wire, *changes, kind=BROKER, name="9")).error_code == 42
    more = ("num.partitions", SET, "2")
    assert (await alter(wire, changes[0], more, kind=BROKER, name="1")).error_code == 42


async def test_a_validated_change_is_not_made(wire: Wire) -> None:
    await create(wire)
    outcome = await alter(wire, ("segment.ms", SET, "1000"), validate_only=True)
    assert outcome.error_code == 0
    assert await setting(wire, "segment.ms") == ("604800000", 5)


async def test_the_older_call_replaces_everything(wire: Wire) -> None:
    await create(wire, retention_ms="5000")
    resource = AlterConfigsRequest.AlterConfigsResource(
        resource_type=TOPIC,
        resource_name="t",
        configs=[AlterConfigsRequest.AlterableConfig(name="segment.ms", value="1000")],
    )
    response = await wire.call(AlterConfigsRequest(resources=[resource]), 1)
    assert response.responses[0].error_code == 0
    assert await setting(wire, "segment.ms") == ("1000", 1)
    assert await setting(wire, "retention.ms") == ("604800000", 5)


async def test_settings_survive_a_restart(tmp_path: Path) -> None:
    async with Broker(str(tmp_path)) as broker, await connect(broker) as wire:
        await create(wire)
        await alter(wire, ("max.message.bytes", SET, "2000"))
    async with Broker(str(tmp_path)) as broker, await connect(broker) as wire:
        assert await setting(wire, "max.message.bytes") == ("2000", 1)
        log = broker.logs.get(TopicPartition("t", 0))
        assert log is not None
        assert log.config.max_message_bytes == 2000


@pytest.mark.parametrize(
    "config",
    [
        {"no.such.key": 1},
        {"num.partitions": "many"},
        {"num.partitions": 0},
        {"auto.create.topics.enable": "perhaps"},
        {"log.cleanup.policy": "shred"},
    ],
    ids=str,
)
def test_a_broker_does_not_begin_with_settings_that_make_no_sense(config: Any) -> None:
    with pytest.raises(KafkaError, match=next(iter(config)).replace(".", r"\.")):
        Broker(config=config)
