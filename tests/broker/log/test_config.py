import pytest

from onceward.broker.errors import ErrorCode, KafkaError
from onceward.broker.log.config import LogConfig


def test_kafka_names_are_parsed_over_defaults():
    defaults = LogConfig(retention_ms=5)
    config = LogConfig.parse(
        {"cleanup.policy": "compact, delete", "segment.bytes": "2048", "flush.ms": "1"}, defaults
    )
    assert (config.compacts, config.deletes) == (True, True)
    assert (config.segment_bytes, config.retention_ms) == (2048, 5)
    assert LogConfig.parse({"retention.ms": None}, defaults) == defaults


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("no.such.thing", "1"),
        ("retention.ms", "soon"),
        ("retention.ms", "-2"),
        ("segment.bytes", "10"),
        ("segment.bytes", str(1 << 63)),
        ("cleanup.policy", "forget"),
        ("message.timestamp.type", "Now"),
    ],
)
def test_what_kafka_would_refuse_is_refused(name, value):
    with pytest.raises(KafkaError) as caught:
        LogConfig.parse({name: value})
    assert caught.value.code is ErrorCode.INVALID_CONFIG


def test_a_description_can_be_parsed_again():
    config = LogConfig(segment_ms=77, cleanup_policy=frozenset({"compact", "delete"}))
    described = config.describe()
    assert described["cleanup.policy"] == "compact,delete"
    assert LogConfig.parse(dict(described)) == config
