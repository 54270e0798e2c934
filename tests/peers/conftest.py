from __future__ import annotations

from collections.abc import Iterator

import pytest

from .kafka import JavaKafka, KafkaUnavailable


@pytest.fixture(scope="session")
def java_kafka() -> Iterator[JavaKafka]:
    """One Apache Kafka node for the whole session; tests use topics of their own."""
    try:
        kafka = JavaKafka()
    except KafkaUnavailable as reason:
        pytest.skip(str(reason))
    with kafka:
        yield kafka
