"""The broker as a whole: start, stop, what survives, and when it stops itself."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from onceward.broker import Broker, BrokerFailed
from onceward.broker.metadata import ClusterMetadata
from onceward.broker.protocol.messages import MetadataRequest, OffsetForLeaderEpochRequest
from onceward.broker.storage.filesystem import File, LockHeldError, OsFile, OsFileSystem
from onceward.broker.types import TopicPartition

from .handlers.test_data import batch, create, fetch, fetch_request, produce, values
from .wire import connect


async def test_it_serves_between_start_and_stop_and_frees_its_address(tmp_path: Path) -> None:
    async with Broker(str(tmp_path)) as broker:
        async with await connect(broker) as wire:
            assert (await wire.call(MetadataRequest(topics=[]), 9)).controller_id == 1
        address = broker.bootstrap
    with pytest.raises(OSError):
        await asyncio.open_connection(*address.split(":"))
    async with Broker(str(tmp_path), listen=address) as broker:
        assert broker.bootstrap == address


async def test_without_a_directory_it_leaves_nothing_behind() -> None:
    async with Broker() as broker:
        directory = Path(str(broker.data_dir))
        assert directory.is_dir()
    assert not directory.exists()


async def test_the_directory_may_be_a_path(tmp_path: Path) -> None:
    async with Broker(data_dir=tmp_path / "data") as broker:
        assert broker.data_dir == str(tmp_path / "data")
    assert (tmp_path / "data").is_dir()


async def test_two_brokers_cannot_share_a_directory(tmp_path: Path) -> None:
    async with Broker(str(tmp_path)):
        with pytest.raises(LockHeldError):
            await Broker(str(tmp_path)).start()
    async with Broker(str(tmp_path)):
        pass


async def test_a_start_that_fails_lets_go_of_everything(tmp_path: Path) -> None:
    async with Broker() as other:
        with pytest.raises(OSError, match="address"):
            await Broker(str(tmp_path), listen=other.bootstrap).start()
    async with Broker(str(tmp_path)):
        pass


async def test_topics_records_and_identity_survive_a_restart(tmp_path: Path) -> None:
    async with Broker(str(tmp_path)) as broker, await connect(broker) as wire:
        topic_id = await create(wire, partitions=2)
        await produce(wire, batch(b"kept"))
        cluster_id = broker.metadata.cluster_id
    async with Broker(str(tmp_path)) as broker, await connect(broker) as wire:
        assert values(await fetch(wire, 0)) == [b"kept"]
        assert broker.metadata.topics["t"].id == topic_id
        assert broker.metadata.cluster_id == cluster_id
        assert broker.metadata.leader_epoch == 1


async def test_what_a_dead_broker_had_acknowledged_is_there(tmp_path: Path) -> None:
    """The directory is copied under the running broker: what a SIGKILL would leave."""
    async with Broker(str(tmp_path / "a")) as broker, await connect(broker) as wire:
        await create(wire)
        for number in range(20):
            await produce(wire, batch(b"%d" % number))
        shutil.copytree(tmp_path / "a", tmp_path / "b")
    async with Broker(str(tmp_path / "b")) as broker, await connect(broker) as wire:
        assert values(await fetch(wire, 0)) == [b"%d" % number for number in range(20)]


async def test_directories_of_an_unfinished_change_are_put_right(tmp_path: Path) -> None:
    async with Broker(str(tmp_path)) as broker, await connect(broker) as wire:
        await create(wire, "deleted")
        await produce(wire, batch(b"old"), topic="deleted")
        await create(wire, "created")
    document = json.loads((tmp_path / "metadata.json").read_text())
    del document["topics"]["deleted"]
    (tmp_path / "metadata.json").write_text(json.dumps(document))
    shutil.rmtree(tmp_path / "created-0")
    async with Broker(str(tmp_path)) as broker, await connect(broker) as wire:
        assert values(await fetch(wire, 0, topic="created")) == []
        await create(wire, "deleted")
        assert values(await fetch(wire, 0, topic="deleted")) == []


async def test_logs_without_metadata_are_not_touched(tmp_path: Path) -> None:
    async with Broker(str(tmp_path)) as broker, await connect(broker) as wire:
        await create(wire)
    (tmp_path / "metadata.json").unlink()
    with pytest.raises(ValueError, match="no metadata"):
        await Broker(str(tmp_path)).start()
    assert (tmp_path / "t-0").is_dir()


async def test_stopping_answers_what_was_received(tmp_path: Path) -> None:
    broker = Broker(str(tmp_path))
    await broker.start()
    async with await connect(broker) as wire:
        await create(wire)
        polling = wire.send(fetch_request(0, max_wait_ms=60_000), 11)
        await asyncio.sleep(0.05)
        async with asyncio.timeout(5):
            await broker.stop()
        assert values((await wire.receive(polling)).responses[0].partitions[0]) == []
    await broker.stop()
    await broker.wait_stopped()


class FailingFile(OsFile):
    async def fsync(self) -> None:
        if self.filesystem.broken:
            raise OSError(5, "input/output error")
        await super().fsync()

    @property
    def filesystem(self) -> FailingFileSystem:
        assert isinstance(self._filesystem, FailingFileSystem)
        return self._filesystem


class FailingFileSystem(OsFileSystem):
    """A disk whose syncs fail from some moment on."""

    broken = False

    def open(self, path: str, *, create: bool = False) -> Any:
        file: File = super().open(path, create=create)
        file.__class__ = FailingFile
        return file


async def test_a_failed_sync_stops_the_broker_and_acknowledges_nothing(tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as executor:
        disk = FailingFileSystem(executor)
        broker = Broker(str(tmp_path), filesystem=disk)
        await broker.start()
        async with await connect(broker) as wire:
            await create(wire)
            await produce(wire, batch(b"safe"))
            disk.broken = True
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await produce(wire, batch(b"not safe"))
            with pytest.raises(BrokerFailed, match="input/output"):
                async with asyncio.timeout(5):
                    await broker.wait_stopped()
        assert not (tmp_path / "clean-shutdown").exists()
    async with Broker(str(tmp_path)) as again, await connect(again) as wire:
        assert values(await fetch(wire, 0))[0] == b"safe"


async def test_a_stop_whose_sync_fails_is_not_clean(tmp_path: Path) -> None:
    """What could not be synced must not look durable only because a second sync succeeds."""
    with ThreadPoolExecutor(1) as executor:
        disk = FailingFileSystem(executor)
        broker = Broker(str(tmp_path), filesystem=disk)
        await broker.start()
        async with await connect(broker) as wire:
            await create(wire)
            disk.broken = True
            log = broker.logs.get(TopicPartition("t", 0))
            assert log is not None
            log.append(batch(b"not safe"), now_ms=1_700_000_000_000)
            await broker.stop()
        with pytest.raises(BrokerFailed, match="input/output"):
            broker.raise_failure()
        assert not (tmp_path / "clean-shutdown").exists()
        assert (tmp_path / "failed-sync").exists()
    async with Broker(str(tmp_path)) as again, await connect(again) as wire:
        assert values(await fetch(wire, 0)) == [b"not safe"]
        assert not (tmp_path / "failed-sync").exists()


async def test_a_bug_where_state_changes_stops_the_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = Broker(str(tmp_path))
    await broker.start()
    async with await connect(broker) as wire:
        await create(wire)
        log = broker.logs.get(TopicPartition("t", 0))
        monkeypatch.setattr(type(log), "append", lambda *_, **__: 1 / 0)
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await produce(wire, batch(b"x"))
        with pytest.raises(BrokerFailed, match="division"):
            async with asyncio.timeout(5):
                await broker.wait_stopped()


async def test_a_bug_in_a_lookup_ends_one_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Broker(str(tmp_path)) as broker:
        async with await connect(broker) as wire:
            await create(wire)
            log = broker.logs.get(TopicPartition("t", 0))
            monkeypatch.setattr(type(log), "end_offset_for_epoch", lambda *_: 1 / 0)
            partition = OffsetForLeaderEpochRequest.OffsetForLeaderPartition(leader_epoch=0)
            topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic(
                topic="t", partitions=[partition]
            )
            wire.send(OffsetForLeaderEpochRequest(topics=[topic]), 4)
            assert await wire.closed_by_peer()
        async with await connect(broker) as wire:
            assert (await wire.call(MetadataRequest(topics=[]), 9)).controller_id == 1


async def test_clients_are_given_the_advertised_address(tmp_path: Path) -> None:
    config = {"advertised.listeners": "PLAINTEXT://kafka.example:19092"}
    async with Broker(str(tmp_path), config=config) as broker:
        assert broker.bootstrap.startswith("127.0.0.1:")  # where it can be reached from here
        async with await connect(broker) as wire:
            (node,) = (await wire.call(MetadataRequest(topics=[]), 9)).brokers
        assert (node.host, node.port) == ("kafka.example", 19092)


class RecordingFileSystem(OsFileSystem):
    """Counts the atomic writes of the metadata document."""

    writes: Sequence[str] = ()

    def write_atomic(self, path: str, data: Any) -> None:
        self.writes = [*self.writes, path]
        super().write_atomic(path, data)


def test_metadata_refuses_a_format_it_does_not_know(tmp_path: Path) -> None:
    import random

    path = tmp_path / "metadata.json"
    path.write_text('{"version": 99}')
    with pytest.raises(ValueError, match="99"):
        ClusterMetadata(OsFileSystem(), str(path), random.Random(1), node_id=1)


def test_several_topics_are_one_write(tmp_path: Path) -> None:
    import random

    disk = RecordingFileSystem()
    metadata = ClusterMetadata(disk, str(tmp_path / "m"), random.Random(1), node_id=1)
    before = len(disk.writes)
    metadata.add_topics([metadata.new_topic(name, 1, {}) for name in "abc"])
    assert len(disk.writes) == before + 1
    again = ClusterMetadata(disk, str(tmp_path / "m"), random.Random(2), node_id=1)
    assert list(again.topics) == ["a", "b", "c"]
    assert again.cluster_id == metadata.cluster_id
