"""The settings of a broker: which it takes, which it ignores and which it refuses."""

from __future__ import annotations

import logging

import pytest

from onceward.broker.config import BrokerConfig
from onceward.broker.errors import ErrorCode, KafkaError

PLAIN = {
    "process.roles": "broker,controller",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "advertised.listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL",
}


def refusal(given: dict[str, str]) -> str:
    with pytest.raises(KafkaError) as caught:
        BrokerConfig(given)
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    return str(caught.value)


def test_settings_kafka_has_and_we_do_not_are_named_in_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    unused = {
        "ssl.keystore.location": "/etc/kafka/keystore.jks",
        "ssl.keystore.password": "secret",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config": "secret;",
        "num.replica.fetchers": "1",
        "group.share.max.size": "200",
        "super.users": "User:admin",
    }
    with caplog.at_level(logging.WARNING):
        config = BrokerConfig({**PLAIN, **unused, "num.partitions": "3"})
    [record] = caplog.records
    assert all(name in record.getMessage() for name in unused)
    assert "secret" not in record.getMessage()
    assert config.int("num.partitions") == 3
    assert not unused.keys() & config.given.keys()


def test_without_such_settings_nothing_is_said(caplog: pytest.LogCaptureFixture) -> None:
    BrokerConfig({**PLAIN, "authorizer.class.name": ""})
    assert caplog.records == []


@pytest.mark.parametrize("name", ["ssl.keystore.locaton", "num.partition", "ssl", "sasl.", ""])
def test_a_setting_nobody_knows_is_an_error(name: str) -> None:
    assert f"Unknown broker configuration {name}" in refusal({name: "1"})


@pytest.mark.parametrize("setting", ["listeners", "advertised.listeners"])
@pytest.mark.parametrize(
    ("listener", "protocols", "needed"),
    [
        ("SSL://:9093", "", "SSL"),
        ("PLAINTEXT://:9092,SASL_SSL://:9094", "", "SASL_SSL"),
        ("sasl_plaintext://:9092", "", "SASL_PLAINTEXT"),
        ("INTERNAL://:9092", "INTERNAL:SASL_SSL,CONTROLLER:PLAINTEXT", "SASL_SSL"),
        ("PLAINTEXT://:9092", "PLAINTEXT:SSL", "SSL"),
        ("NOT_IN_THE_MAP://:9092", "INTERNAL:PLAINTEXT", "NOT_IN_THE_MAP"),
    ],
)
def test_a_listener_with_tls_or_sasl_is_refused(
    setting: str, listener: str, protocols: str, needed: str
) -> None:
    message = refusal({setting: listener, "listener.security.protocol.map": protocols})
    assert f"{setting} has " in message
    assert f"which needs {needed}: this broker speaks PLAINTEXT only" in message


@pytest.mark.parametrize(
    "given",
    [
        {"listeners": "localhost:9092"},
        {"advertised.listeners": "[::1]:9092"},
        {"listeners": "plaintext://:9092"},
        {"listeners": "EXT://:9092", "listener.security.protocol.map": "ext:plaintext"},
        {
            "listeners": "CONTROLLER://:9093, PLAINTEXT://:9092",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:SSL",
        },
    ],
    ids=str,
)
def test_a_listener_without_them_is_fine_and_that_of_controllers_is_not_ours(
    given: dict[str, str],
) -> None:
    assert BrokerConfig(given).given == given


def test_an_authorizer_is_refused() -> None:
    name = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    assert "no access control" in refusal({"authorizer.class.name": name})
