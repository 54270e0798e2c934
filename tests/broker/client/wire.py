"""What the integration tests share: reading to the end, and a proxy that loses answers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Self

from onceward.broker.client import Client, Consumer, Isolation, TopicPartition
from onceward.broker.client.connection import Connection
from onceward.broker.protocol.api import ApiKey
from onceward.broker.protocol.frame import FrameDecoder

PATIENCE_S = 10.0


async def read_all(
    client: Client,
    topic: str,
    partitions: Sequence[int] = (0,),
    isolation: Isolation = "read_committed",
    *,
    settled: bool = True,
) -> list[bytes | None]:
    """Every value up to the end as ``isolation`` sees it, partition by partition.

    EndTxn is answered before the markers are written: ``settled`` waits until no transaction is
    open.
    """
    tps = [TopicPartition(topic, n) for n in partitions]
    consumer = Consumer(client, isolation=isolation)
    consumer.assign(tps)
    ends = await consumer.end_offsets(tps)
    async with asyncio.timeout(PATIENCE_S):
        while settled and ends != await consumer.end_offsets(tps, "read_uncommitted"):
            await asyncio.sleep(0.01)
            ends = await consumer.end_offsets(tps)
    values: dict[TopicPartition, list[bytes | None]] = {tp: [] for tp in tps}
    async with asyncio.timeout(PATIENCE_S):
        while any((consumer.position(tp) or 0) < ends[tp] for tp in tps):
            for batch in await consumer.fetch(timeout_ms=1_000):
                values[batch.tp] += batch.records.values
    await consumer.stop()
    return [value for tp in tps for value in values[tp]]


class Proxy:
    """Between a client, whose ``connect`` leads here whatever the address, and a one-node cluster.

    Requests of the api keys in ``drop`` are forwarded, and their answers are not. Those in ``hold``
    are kept until ``release`` sends them on, over the connection they came by.
    """

    def __init__(self, target: str) -> None:
        self._host, port = target.split(":")
        self._port = int(port)
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.drop: set[ApiKey] = set()
        self.dropped = 0
        self.hold: set[ApiKey] = set()
        self._held: list[tuple[asyncio.StreamWriter, bytes]] = []

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._on_client, "127.0.0.1", 0)
        return self

    async def connect(
        self, factory: Callable[[], Connection], host: str, port: int
    ) -> tuple[object, Connection]:
        """What ``Client`` takes as ``connect``."""
        assert self._server is not None
        address = self._server.sockets[0].getsockname()
        return await asyncio.get_running_loop().create_connection(factory, address[0], address[1])

    @property
    def held(self) -> int:
        return len(self._held)

    def release(self) -> None:
        """Send on what was held."""
        self.hold.clear()
        for writer, data in self._held:
            writer.write(data)
        self._held.clear()

    async def __aexit__(self, *exc: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _on_client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_connection(self._host, self._port)
        asked: dict[int, int] = {}
        for work in (
            self._pump(reader, up_writer, asked, requests=True),
            self._pump(up_reader, writer, asked, requests=False),
        ):
            task = asyncio.create_task(work)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pump(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        asked: dict[int, int],
        *,
        requests: bool,
    ) -> None:
        frames = FrameDecoder(1 << 30)
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                for frame in frames.feed(data):
                    whole = len(frame).to_bytes(4, "big") + frame
                    if requests:
                        key = int.from_bytes(frame[:2], "big")
                        asked[int.from_bytes(frame[4:8], "big")] = key
                        if key in self.hold:
                            self._held.append((writer, whole))
                            continue
                    elif asked.pop(int.from_bytes(frame[:4], "big"), None) in self.drop:
                        self.dropped += 1
                        continue
                    writer.write(whole)
        if not self._held:
            writer.close()
