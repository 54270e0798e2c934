"""The Kafka sink against a broker of its own: what arrives, who may write, what is refused."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from onceward.broker import Broker
from onceward.broker.client import (
    Admin,
    ConnectionFailed,
    ErrorCode,
    KafkaError,
    NeedsReset,
    ProducerFenced,
    TopicPartition,
    TransactionAborted,
    partition_keys,
)
from onceward.streams import ConfigurationError, Record
from onceward.streams.cli.main import main
from onceward.streams.sinks import (
    KafkaSink,
    SinkError,
    SinkFenced,
    SinkTimeout,
    SinkUnavailable,
    Strength,
)
from onceward.streams.sinks.effects import Batch, EffectId, Effects
from onceward.streams.sinks.kafka_positions import Kept
from onceward.streams.sinks.kafka_writer import TaskWriter
from onceward.streams.testing.unsynced import UnsyncedFileSystem

from .kafka_driven import TIMEOUT_S, TP, Driven, Seen, create, make_block, new_client, seen, values

LEFT, RIGHT = TopicPartition("left", 0), TopicPartition("right", 0)


@pytest.fixture
async def target(tmp_path: Path) -> AsyncIterator[str]:
    config = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": 50}
    async with Broker(
        tmp_path / "target", config=config, filesystem=UnsyncedFileSystem()
    ) as broker:
        yield broker.bootstrap


def sink(target: str, topic: str = "out", **options: Any) -> KafkaSink:
    options = {"partitions": 1, "timeout": TIMEOUT_S, **options}
    return KafkaSink(target, topic=topic, **options)


async def test_records_and_position_are_there_after_a_commit(target: str) -> None:
    async with Driven(sink(target)) as owner:
        await owner.write({"id": 1}, {"id": 2})
        await owner.write({"id": 3})
        assert await values(target, "out") == [b'{"id":1}', b'{"id":2}', b'{"id":3}']
    async with Driven(sink(target)) as heir:
        assert (heir.at(), heir.claims[TP].epoch) == (3, 2)


async def test_a_position_moves_without_records_too(target: str) -> None:
    async with Driven(sink(target)) as owner:
        await owner.commit(Batch("app", "", Effects().take()), {TP: 5})
        await owner.write({"id": 5})
        assert await sink(target).positions("app") == {TP: (6, 1, 1)}
    assert await values(target, "out") == [b'{"id":5}']


async def test_without_a_position_the_next_owner_begins_where_the_first_did(target: str) -> None:
    """Not at an end that has moved on meanwhile (``consumer_auto_offset_reset=latest``)."""
    async with Driven(sink(target)) as owner:
        await owner.take_over(position=7)
        assert owner.at() == 0


class Order(Record):
    id: int


async def test_a_record_keeps_key_timestamp_and_headers_of_the_one_behind_it(target: str) -> None:
    async with Driven(sink(target, value_type=Order)) as owner:
        await owner.write(Order(1), ("a", Order(2)), None, headers=(("trace", b"x"),))
    headers = (("trace", b"x"),)
    assert await seen(target, "out") == [
        Seen(0, b"r0", b'{"id":1}', 1000, headers),
        Seen(0, b"a", b'{"id":2}', 1001, headers),
        Seen(0, b"r2", None, 1002, headers),
    ]
    async with Driven(sink(target, headers=False, name="other", key_type=str)) as owner:
        await owner.write(b"raw", headers=headers)
    assert (await seen(target, "out"))[-1] == Seen(0, b"decoded", b"raw", 1000, ())


async def test_the_key_decides_the_partition_and_without_one_the_sources_number_does(
    target: str,
) -> None:
    keys: list[bytes | None] = [b"%d" % n for n in range(20)]
    async with Driven(sink(target, partitions=3), TopicPartition("orders", 4)) as owner:
        await owner.write(*((key, {"n": 1}) for key in keys))
        block = make_block(owner.tps[0], 20, 1)
        block.keys[0] = None
        effects = Effects()
        slot: Any = type("Slot", (), {"raw_key": None})
        effects.add(owner.sink.encode({"n": 2}, None, slot), block, 0, "etl")
        await owner.commit(Batch("app", "", effects.take()), {owner.tps[0]: 21})
    found = await seen(target, "out")
    places = {each.key: each.partition for each in found}
    assert places == {**dict(zip(keys, partition_keys(keys, 3), strict=True)), None: 4 % 3}


async def test_a_worker_that_lost_a_partition_writes_nothing_any_more(target: str) -> None:
    async with Driven(sink(target)) as zombie, Driven(sink(target)) as owner:
        await owner.write({"id": 1})
        with pytest.raises(SinkFenced):
            await zombie.write({"id": 1})
        with pytest.raises(SinkFenced, match="orders-0 belongs to another worker now"):
            await zombie.write({"id": 1})
        assert await values(target, "out") == [b'{"id":1}']
        await zombie.take_over()
        assert zombie.at() == 1
        await zombie.write({"id": 2})
    assert await values(target, "out") == [b'{"id":1}', b'{"id":2}']


async def test_a_transaction_left_open_is_ended_before_the_position_is_read(target: str) -> None:
    """The former owner has sent everything but the end of its transaction."""
    async with Driven(sink(target)) as zombie:
        await zombie.write({"id": 1})
        writer = zombie.sink._writers[TP]
        producer = writer._producer
        producer.begin()
        producer.send_batch("out", 0, [None], [b"never"], timestamps=1)
        await producer.flush()
        async with asyncio.timeout(TIMEOUT_S), Driven(sink(target)) as owner:
            assert owner.at() == 1
            await owner.write({"id": 2})
            assert await values(target, "out") == [b'{"id":1}', b'{"id":2}']
            with pytest.raises(SinkFenced):
                await zombie.sink._target.guarded(producer.commit())
    assert await values(target, "out") == [b'{"id":1}', b'{"id":2}']


async def test_an_open_transaction_of_another_task_is_waited_for_and_not_longer_than_it_lasts(
    target: str,
) -> None:
    """Its worker is dead, and nobody has taken over yet: it may have moved the position."""
    async with Driven(sink(target, timeout=0.5), LEFT) as dead:
        producer = dead.sink._writers[LEFT]._producer
        producer.begin()
        producer.send_batch("app-sink-positions", 0, [b"[]"], [b"0"], timestamps=1)
        await producer.flush()
        with pytest.raises(SinkTimeout, match=r"did not answer within 0\.2 s"):
            async with Driven(sink(target, timeout=0.2), RIGHT):
                pass
        async with Driven(sink(target), RIGHT) as owner:
            await owner.write({"id": 1})
        assert await values(target, "out") == [b'{"id":1}']


async def test_the_inputs_of_one_task_move_together_and_tasks_by_themselves(target: str) -> None:
    async with Driven(sink(target), LEFT, RIGHT) as owner:
        assert len({id(writer) for writer in owner.sink._writers.values()}) == 1
        await owner.write({"id": 1}, tp=RIGHT)
        await owner.write({"id": 2}, tp=LEFT)
    assert await KafkaSink(target, topic="out").positions("app") == {
        LEFT: (1, 1, 1),
        RIGHT: (1, 1, 1),
    }


async def test_an_input_that_moved_to_another_task_is_taken_from_whoever_had_it(
    target: str,
) -> None:
    """An older version of the app reads both topics in one task, under the name of the first."""
    async with Driven(sink(target), LEFT, RIGHT) as older, Driven(sink(target), RIGHT) as newer:
        with pytest.raises(SinkFenced):
            await older.write({"id": 1}, tp=RIGHT)
        await newer.write({"id": 1}, tp=RIGHT)
    assert await values(target, "out") == [b'{"id":1}']


async def test_someone_who_claims_in_between_is_noticed(
    target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under another name, so that taking over does not fence them."""
    async with Driven(sink(target), LEFT) as other, Driven(sink(target), RIGHT) as owner:
        stranger = other.sink._writers[LEFT]
        claim = TaskWriter.claim

        async def claim_late(self: TaskWriter, known: dict[TopicPartition, Kept]) -> None:
            await claim(stranger, {RIGHT: stranger.kept[LEFT]})
            await claim(self, known)

        monkeypatch.setattr(TaskWriter, "claim", claim_late)
        with pytest.raises(SinkUnavailable, match="right-0 is being taken over elsewhere"):
            await owner.take_over()


# what is refused


async def test_what_is_too_large_is_named_and_stops_the_worker(target: str) -> None:
    await create(target, "small", max_message_bytes="1000")
    async with Driven(sink(target, "small")) as owner:
        with pytest.raises(SinkError) as caught:
            await owner.write(b"a", b"x" * 2000, b"b")
        assert re.search(
            r"written for orders-0 at offset 1: a record of 2\d\d\d bytes, the limit is 1000\. "
            r"Nothing of its task was written",
            str(caught.value),
        )
        assert await values(target, "small") == []


async def test_the_rest_lands_and_what_was_refused_is_known_to_the_heir(target: str) -> None:
    await create(target, "small", max_message_bytes="1000")
    async with Driven(sink(target, "small")) as owner:
        batch = await owner.write(b"a", b"x" * 2000, *[b"b" * 300] * 9, dead_letters=True)
        assert [refusal.at for refusal in batch.refused] == [1]
        assert await values(target, "small") == [b"a", *[b"b" * 300] * 9]
    async with Driven(sink(target, "small")) as heir:
        await heir.take_over(committed=0)
        (refused,) = heir.claims[TP].refused.items()
        assert refused[0] == EffectId("orders", 0, 1, "etl", 0)
        assert "the limit is 1000" in refused[1]
        await heir.take_over(committed=2)
        assert heir.claims[TP].refused == {}
        await heir.write(b"c", dead_letters=True)
        await heir.take_over(committed=0)
        assert heir.claims[TP].refused == {}, "the dead letter topic has it for certain"


async def test_more_may_be_refused_than_one_record_tells(target: str) -> None:
    await create(target, "small", max_message_bytes="1000")
    async with Driven(sink(target, "small")) as owner:
        batch = await owner.write(*[b"x" * 2000] * 450, b"a", dead_letters=True)
        assert len(batch.refused) == 450
        await owner.take_over(committed=0)
        assert len(owner.claims[TP].refused) == 450


async def test_what_only_the_broker_can_judge_is_searched_for(target: str) -> None:
    """A timestamp too far in the future."""
    await create(target, "strict", message_timestamp_after_max_ms="1000")
    soon = 10**13
    async with Driven(sink(target, "strict")) as owner:
        effects = Effects()
        block = make_block(TP, 0, 20)
        block.timestamps[3] = block.timestamps[17] = soon
        for index in range(20):
            slot: Any = type("Slot", (), {"raw_key": None})
            effects.add(owner.sink.encode(b"%d" % index, None, slot), block, index, "etl")
        written = effects.take()
        with pytest.raises(SinkError, match=r"orders-0 at offset 3: INVALID_TIMESTAMP"):
            await owner.commit(Batch("app", "", written), {TP: 20})
        assert await values(target, "strict") == []
        await owner.take_over()
        batch = Batch("app", "", written, dead_letters=True)
        await owner.commit(batch, {TP: 20})
    assert [refusal.at for refusal in batch.refused] == [3, 17]
    assert await values(target, "strict") == [b"%d" % n for n in range(20) if n not in (3, 17)]


async def test_a_compacted_topic_takes_no_record_without_a_key(target: str) -> None:
    await create(target, "latest", cleanup_policy="compact")
    async with Driven(sink(target, "latest")) as owner:
        block, effects = make_block(TP, 0, 1), Effects()
        slot: Any = type("Slot", (), {"raw_key": None})
        effects.add(owner.sink.encode({"n": 2}, None, slot), block, 0, "etl")
        with pytest.raises(SinkError, match="no key, and the topic is compacted"):
            await owner.commit(Batch("app", "", effects.take()), {TP: 1})


async def test_a_limit_that_was_lowered_is_learnt(target: str) -> None:
    async with Driven(sink(target)) as owner, new_client(target) as client:
        await owner.write(b"a" * 900)
        await Admin(client).alter_configs("out", {"max.message.bytes": "1000"})
        with pytest.raises(SinkUnavailable, match="MESSAGE_TOO_LARGE"):
            await owner.write(*[b"b" * 300] * 9)
        await owner.take_over()
        await owner.write(*[b"b" * 300] * 9)
        assert len(await values(target, "out")) == 10


# what is wrong


async def test_a_topic_that_is_not_there_is_created_or_named(target: str) -> None:
    with pytest.raises(SinkError, match=r"there is no topic 'out', .* give partitions"):
        await sink(target, partitions=None).start()
    async with Driven(sink(target, partitions=3, config={"retention.ms": "5000"})):
        pass
    async with new_client(target) as client:
        found = await Admin(client).describe_topics(["out", "app-sink-positions"])
        assert [len(topic.partitions) for topic in found.values()] == [3, 1]
        configs = await Admin(client).describe_configs("app-sink-positions")
        assert configs["cleanup.policy"].value == "compact"
        assert (await Admin(client).describe_configs("out"))["retention.ms"].value == "5000"


async def test_positions_that_would_be_forgotten_are_not_kept(target: str) -> None:
    await create(target, "places")
    with pytest.raises(SinkError, match="topic 'places' would forget positions"):
        async with Driven(sink(target, positions="places")):
            pass


async def test_a_cluster_that_is_not_there_is_unavailable(target: str) -> None:
    with pytest.raises(SinkUnavailable, match=r"sink 'out' \(topic out at 127.0.0.1:1\): .*cannot"):
        await sink("127.0.0.1:1", timeout=0.3).start()


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, "2 of 3"), SinkUnavailable),
        (ConnectionFailed(ErrorCode.NETWORK_EXCEPTION, "lost", sent=True), SinkUnavailable),
        (NeedsReset(ErrorCode.REQUEST_TIMED_OUT, "no answer"), SinkUnavailable),
        (ProducerFenced(ErrorCode.PRODUCER_FENCED, "taken over"), SinkFenced),
        (TransactionAborted(ErrorCode.INVALID_PRODUCER_EPOCH, "old"), SinkFenced),
        (TransactionAborted(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "no"), SinkError),
        (KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "no"), SinkError),
        (KafkaError(ErrorCode.UNSUPPORTED_VERSION, "no INIT_PRODUCER_ID"), SinkError),
        (KafkaError(ErrorCode.INVALID_TRANSACTION_TIMEOUT, "too long"), SinkError),
        (TransactionAborted(ErrorCode.MESSAGE_TOO_LARGE, "no"), SinkError),  # limit not known
    ],
)
async def test_what_the_cluster_says_is_told_with_the_sinks_name(
    error: KafkaError, verdict: type[Exception]
) -> None:
    async def ask() -> None:
        raise error

    with pytest.raises(
        verdict, match=rf"sink 'out' \(topic out at a:1\): .*{error.message}"
    ) as told:
        await sink("a:1")._target.guarded(ask())
    assert type(told.value) is verdict


async def test_a_position_is_told_without_a_worker(target: str) -> None:
    with pytest.raises(SinkError, match="nothing was written there yet"):
        await sink(target).positions("app")
    async with Driven(sink(target)) as owner:
        await owner.write({"id": 1}, {"id": 2})
        assert await sink(target).positions("app") == {TP: (2, 1, 2)}
        shared = sink(target, positions="app-sink-positions")
        assert await shared.positions("other-app-in-the-same-topic") == {}
    assert sink(target, name="another").strength is Strength.TRANSACTIONAL


APP = """
from onceward.streams import App
from onceward.streams.sinks import KafkaSink

app = App("app", broker={target!r})
out = KafkaSink({target!r}, topic="out")

@app.agent(app.topic("orders"), sink=[out])
async def etl(stream):
    async for order in stream:
        yield order
"""


async def test_the_command_line_shows_where_it_is(
    target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await create(target, "orders")
    source = tmp_path / "kafka_status_app.py"
    source.write_text(APP.format(target=target))
    asked = ["sinks", "status", f"{source}:app", "--json"]
    assert await asyncio.to_thread(main, asked) == 1
    assert "nothing was written there yet" in capsys.readouterr().err
    async with Driven(sink(target)) as owner:
        await owner.write({"id": 1}, {"id": 2})
        assert await asyncio.to_thread(main, asked) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["sink"], row["position"], row["epoch"], row["effects"]) == ("out", 2, 1, 2)
    assert row["strength"] == "transactional"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bootstrap": "nowhere"}, "sink 'out': 'nowhere' is not host:port"),
        ({"partitions": 0}, "partitions must be at least 1"),
        ({"timeout": 0}, "timeout must be more than 0"),
        ({"compression": "rar"}, "compression must be one of none, gzip"),
        ({"value_serializer": "xml"}, "serializer 'xml' is unknown"),
    ],
)
def test_what_makes_no_sense_is_said(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        KafkaSink(**{"bootstrap": "a:1", "topic": "out", **options})
