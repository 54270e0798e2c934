"""Unmodified confluent-kafka (librdkafka) against a broker process."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from .broker_process import BrokerProcess

Unique = Callable[[str], str]
DEADLINE_S = 20.0


def create(broker: BrokerProcess, topic: str, partitions: int = 1) -> AdminClient:
    admin = AdminClient({"bootstrap.servers": broker.address})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(DEADLINE_S)
    return admin


def producer(broker: BrokerProcess, **config: Any) -> Producer:
    settings = {key.replace("_", "."): value for key, value in config.items()}
    return Producer({"bootstrap.servers": broker.address, "linger.ms": 1, **settings})


def consumer(broker: BrokerProcess, group: str, **config: Any) -> Consumer:
    settings = {key.replace("_", "."): value for key, value in config.items()}
    return Consumer(
        {
            "bootstrap.servers": broker.address,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 200,
            **settings,
        }
    )


def send(target: Producer, topic: str, values: list[bytes], partition: int | None = None) -> None:
    failed: list[Any] = []
    for value in values:
        where = {} if partition is None else {"partition": partition}
        target.produce(
            topic,
            value,
            on_delivery=lambda error, _: failed.append(error) if error else None,
            **where,
        )
    assert target.flush(DEADLINE_S) == 0
    assert failed == []


def read(source: Consumer, count: int) -> list[bytes]:
    """The next ``count`` values, in order per partition."""
    values: list[bytes] = []
    deadline = time.monotonic() + DEADLINE_S
    while len(values) < count and time.monotonic() < deadline:
        for message in source.consume(count - len(values), 0.2):
            assert message.error() is None
            values.append(message.value())
    return values


def drain(broker: BrokerProcess, topic: str, partition: int = 0) -> list[bytes]:
    """What a read_committed reader sees, up to the last stable offset."""
    source = consumer(broker, "drain", isolation_level="read_committed")
    where = TopicPartition(topic, partition, OFFSET_BEGINNING)
    source.assign([where])
    _, end = source.get_watermark_offsets(where, DEADLINE_S)
    values: list[bytes] = []
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        values += [message.value() for message in source.consume(1000, 0.1)]
        position = source.position([where])[0].offset
        if position >= end or end == 0:
            break
    source.close()
    return values


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_come_back_in_every_compression(
    shared_broker: BrokerProcess, unique: Unique, compression: str
) -> None:
    topic = unique("compressed")
    create(shared_broker, topic)
    sent = [b"%d %s" % (number, b"x" * 50) for number in range(300)]
    send(producer(shared_broker, compression_type=compression), topic, sent)
    source = consumer(shared_broker, topic)
    source.subscribe([topic])
    assert read(source, 300) == sent
    source.close()


def test_headers_keys_and_timestamps_are_kept(shared_broker: BrokerProcess, unique: Unique) -> None:
    topic = unique("kept")
    create(shared_broker, topic)
    out = producer(shared_broker)
    out.produce(topic, b"v", b"k", headers=[("h", b"1"), ("n", None)], timestamp=1_700_000_000_123)
    out.produce(topic, None, b"tombstone")
    assert out.flush(DEADLINE_S) == 0
    source = consumer(shared_broker, topic)
    source.subscribe([topic])
    first, second = source.consume(2, DEADLINE_S)
    assert (first.key(), first.value(), first.headers()) == (b"k", b"v", [("h", b"1"), ("n", None)])
    assert first.timestamp() == (1, 1_700_000_000_123)
    assert (second.key(), second.value()) == (b"tombstone", None)
    source.close()


def test_an_idempotent_producer_writes_each_record_once_and_in_order(
    shared_broker: BrokerProcess, unique: Unique
) -> None:
    topic = unique("idempotent")
    create(shared_broker, topic, 3)
    out = producer(shared_broker, enable_idempotence=True, batch_num_messages=50)
    for partition in range(3):
        send(out, topic, [b"%d" % number for number in range(1000)], partition)
    for partition in range(3):
        expected = [b"%d" % number for number in range(1000)]
        assert drain(shared_broker, topic, partition) == expected


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_group_goes_on_when_a_member_is_killed(
    shared_broker: BrokerProcess, unique: Unique, strategy: str
) -> None:
    topic, group = unique("group"), unique("group")
    create(shared_broker, topic, 6)
    options = {"partition_assignment_strategy": strategy, "session_timeout_ms": 1500}
    members = [consumer(shared_broker, group, **options) for _ in range(2)]
    for member in members:
        member.subscribe([topic])
    victim = subprocess.Popen(
        [
            sys.executable,
            str(Path(__file__).with_name("group_member.py")),
            shared_broker.address,
            group,
            topic,
            strategy,
        ],
        stdout=subprocess.PIPE,
    )
    try:
        assert victim.stdout is not None
        turn = time.monotonic() + DEADLINE_S
        while time.monotonic() < turn:
            [member.poll(0.05) for member in members]
            sizes = sorted(len(member.assignment()) for member in members)
            if sizes == [2, 2]:
                break
        assert sizes == [2, 2], "three members share six partitions"
        victim.send_signal(signal.SIGKILL)
        out = producer(shared_broker)
        sent = [b"%d" % number for number in range(60)]
        for number, value in enumerate(sent):
            out.produce(topic, value, partition=number % 6)
        out.flush(DEADLINE_S)
        received: set[bytes] = set()
        turn = time.monotonic() + DEADLINE_S
        while received != set(sent) and time.monotonic() < turn:
            for member in members:
                received |= {m.value() for m in member.consume(20, 0.05) if m.error() is None}
        assert received == set(sent)
        assert sorted(len(member.assignment()) for member in members) == [3, 3]
    finally:
        victim.kill()
        victim.wait(10)
        for member in members:
            member.close()


def test_transactions_move_records_and_offsets_together(
    shared_broker: BrokerProcess, unique: Unique
) -> None:
    source_topic, sink_topic, group = unique("in"), unique("out"), unique("etl")
    create(shared_broker, source_topic)
    create(shared_broker, sink_topic)
    send(producer(shared_broker), source_topic, [b"%d" % number for number in range(100)])
    source = consumer(shared_broker, group, isolation_level="read_committed")
    source.subscribe([source_topic])
    out = producer(shared_broker, transactional_id=unique("tx"))
    out.init_transactions(DEADLINE_S)
    done, attempt = 0, 0
    while done < 100:
        messages = source.consume(10, 1.0)
        if not messages:
            continue
        attempt += 1
        out.begin_transaction()
        for message in messages:
            out.produce(sink_topic, b"out " + message.value())
        position = source.position(source.assignment())
        out.send_offsets_to_transaction(position, source.consumer_group_metadata(), DEADLINE_S)
        if attempt % 3 == 0:
            out.abort_transaction(DEADLINE_S)
            first = messages[0]
            source.seek(TopicPartition(source_topic, 0, first.offset()))
            continue
        out.commit_transaction(DEADLINE_S)
        done += len(messages)
    committed = source.committed([TopicPartition(source_topic, 0)], DEADLINE_S)
    source.close()
    assert committed[0].offset == 100
    assert drain(shared_broker, sink_topic) == [b"out %d" % number for number in range(100)]


def test_a_second_producer_with_the_same_id_fences_the_first(
    shared_broker: BrokerProcess, unique: Unique
) -> None:
    topic, name = unique("fenced"), unique("tx")
    create(shared_broker, topic)
    first = producer(shared_broker, transactional_id=name)
    first.init_transactions(DEADLINE_S)
    first.begin_transaction()
    first.produce(topic, b"lost")
    first.flush(DEADLINE_S)
    second = producer(shared_broker, transactional_id=name)
    second.init_transactions(DEADLINE_S)
    with pytest.raises(KafkaException) as caught:
        first.commit_transaction(DEADLINE_S)
    assert caught.value.args[0].fatal()
    second.begin_transaction()
    second.produce(topic, b"kept")
    second.commit_transaction(DEADLINE_S)
    assert drain(shared_broker, topic) == [b"kept"]


def test_topics_groups_configs_and_offsets_are_administered(
    shared_broker: BrokerProcess, unique: Unique
) -> None:
    topic, group = unique("admin"), unique("admin")
    admin = create(shared_broker, topic, 2)
    admin.create_partitions([NewPartitions(topic, 4)])[topic].result(DEADLINE_S)
    assert len(admin.list_topics(topic, DEADLINE_S).topics[topic].partitions) == 4
    resource = ConfigResource(
        ResourceType.TOPIC,
        topic,
        incremental_configs=[
            ConfigEntry("retention.ms", "12345", incremental_operation=AlterConfigOpType.SET)
        ],
    )
    admin.incremental_alter_configs([resource])[resource].result(DEADLINE_S)
    asked = ConfigResource(ResourceType.TOPIC, topic)
    assert (
        admin.describe_configs([asked])[asked].result(DEADLINE_S)["retention.ms"].value == "12345"
    )
    send(producer(shared_broker), topic, [b"x"] * 5, 0)
    where = TopicPartition(topic, 0)
    listed = admin.list_offsets({where: OffsetSpec.latest()})[where].result(DEADLINE_S)
    assert listed.offset == 5
    request = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 3)])
    admin.alter_consumer_group_offsets([request])[group].result(DEADLINE_S)
    [offsets] = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    assert [tp.offset for tp in offsets.result(DEADLINE_S).topic_partitions] == [3]
    assert group in {g.group_id for g in admin.list_consumer_groups().result(DEADLINE_S).valid}
    [described] = admin.describe_consumer_groups([group]).values()
    assert described.result(DEADLINE_S).state.name == "EMPTY"
    admin.delete_consumer_groups([group])[group].result(DEADLINE_S)
    cluster = admin.describe_cluster().result(DEADLINE_S)
    assert [node.id for node in cluster.nodes] == [1]
    [deleted] = admin.delete_records([TopicPartition(topic, 0, 2)]).values()
    assert deleted.result(DEADLINE_S).low_watermark == 2
    admin.delete_topics([topic])[topic].result(DEADLINE_S)
    assert topic not in admin.list_topics(timeout=DEADLINE_S).topics


def test_a_killed_broker_comes_back_with_everything_it_acknowledged(
    own_broker: BrokerProcess,
) -> None:
    create(own_broker, "kept", 2)
    out = producer(own_broker, enable_idempotence=True)
    source = consumer(own_broker, "readers")
    source.subscribe(["kept"])
    send(out, "kept", [b"%d" % number for number in range(500)], 0)
    assert len(read(source, 300)) == 300
    source.commit(asynchronous=False)
    transactional = producer(own_broker, transactional_id="tx")
    transactional.init_transactions(DEADLINE_S)
    transactional.begin_transaction()
    transactional.produce("kept", b"committed", partition=1)
    transactional.commit_transaction(DEADLINE_S)
    transactional.begin_transaction()
    transactional.produce("kept", b"open", partition=1)
    transactional.flush(DEADLINE_S)
    own_broker.kill()
    own_broker.start()
    # The same clients go on: the producer keeps its sequences, the transaction its producer.
    send(out, "kept", [b"%d" % number for number in range(500, 600)], 0)
    transactional.produce("kept", b"after", partition=1)
    transactional.commit_transaction(DEADLINE_S)
    assert [tp.offset for tp in source.committed([TopicPartition("kept", 0)], DEADLINE_S)] == [300]
    source.close()
    assert drain(own_broker, "kept", 0) == [b"%d" % number for number in range(600)]
    assert drain(own_broker, "kept", 1) == [b"committed", b"open", b"after"]
