"""One producer of the client and the batches that wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from ...errors import KafkaError as ClientError
from ...types import TopicPartition
from ..producer import Producer
from .batches import BatchBuilder, Header
from .errors import KafkaError, KafkaTimeoutError, ProducerClosed, translated
from .signal import Signal
from .structs import RecordMetadata

SentFuture = asyncio.Future[RecordMetadata | None]


class Lane:
    """Fills one batch per partition while the one before is on its way.

    A transaction is one lane. Otherwise each partition has a lane, so that no partition waits for
    another and the outcome of every batch is known by itself.
    """

    def __init__(
        self,
        producer: Producer,
        *,
        linger_ms: int,
        new_batch: Callable[[], BatchBuilder],
        admit: Callable[[], None],
    ) -> None:
        """``admit`` raises when records may not be taken at the moment."""
        self.producer = producer
        self._admit = admit
        self._linger = linger_ms / 1000
        self._new_batch = new_batch
        self._waiting: dict[TopicPartition, BatchBuilder] = {}
        self._sending: Mapping[TopicPartition, BatchBuilder] = {}
        self._filled = asyncio.Event()
        self._hurry = asyncio.Event()
        self._taken = Signal()
        self._begun_at = 0.0
        self._task = asyncio.create_task(self._run())

    # filling

    async def add(
        self,
        tp: TopicPartition,
        record: tuple[bytes | None, bytes | None, int | None, tuple[Header, ...], int],
        timeout: float,
    ) -> SentFuture:
        """Wait until the record fits into the batch that is being filled, then return its future.

        ``record`` is key, value, timestamp, headers, size. Raises KafkaTimeoutError after
        ``timeout`` seconds.
        """
        deadline = asyncio.get_running_loop().time() + timeout
        while True:
            self._admit()
            batch = self._waiting.get(tp)
            if batch is None:
                batch = self._new_batch()
                self._wait_for_sending(tp, batch)
            index = batch.add(*record)
            if index is not None:
                return batch.future_of(index)
            await self._room(deadline)

    async def submit(self, tp: TopicPartition, batch: BatchBuilder, timeout: float) -> SentFuture:
        """Queue a batch that somebody filled, once none waits. Raises KafkaTimeoutError."""
        deadline = asyncio.get_running_loop().time() + timeout
        while tp in self._waiting:
            await self._room(deadline)
        self._admit()
        self._wait_for_sending(tp, batch)
        return batch.future()

    def _wait_for_sending(self, tp: TopicPartition, batch: BatchBuilder) -> None:
        if not self._waiting:
            self._begun_at = asyncio.get_running_loop().time()
        self._waiting[tp] = batch
        self._filled.set()

    async def _room(self, deadline: float) -> None:
        self._hurry.set()
        remaining = deadline - asyncio.get_running_loop().time()
        if remaining <= 0:
            raise KafkaTimeoutError("the records before were not sent in time")
        await self._taken.wait(remaining)

    # sending

    async def _run(self) -> None:
        while True:
            await self._filled.wait()
            await self._wait_for_more()
            self._sending, self._waiting = self._waiting, {}
            self._filled.clear()
            self._hurry.clear()
            self._taken.notify()
            await self._send(self._sending)
            self._sending = {}

    async def _wait_for_more(self) -> None:
        remaining = self._begun_at + self._linger - asyncio.get_running_loop().time()
        if self._linger and remaining > 0:
            try:
                async with asyncio.timeout(remaining):
                    await self._hurry.wait()
            except TimeoutError:
                pass

    async def _send(self, batches: Mapping[TopicPartition, BatchBuilder]) -> None:
        try:
            for tp, batch in batches.items():
                batch.close()
                self.producer.send_batch(
                    tp.topic,
                    tp.partition,
                    batch.keys,
                    batch.values,
                    timestamps=batch.timestamps,
                    headers=batch.headers,
                )
            produced = await self.producer.flush()
            for tp, batch in batches.items():
                batch.deliver(tp, [part for part in produced if part.tp == tp])
        except ClientError as error:
            self._fail(batches, translated(error))
        finally:
            # Nobody waits for ever, whatever ended this.
            self._fail(batches, ProducerClosed("the producer was stopped"))

    def _fail(self, batches: Mapping[TopicPartition, BatchBuilder], error: KafkaError) -> None:
        for batch in batches.values():
            if not batch.settled.is_set():
                batch.fail(error)

    async def drain(self) -> None:
        """Send what waits without lingering; returns when everything there is now is settled."""
        batches = [*self._sending.values(), *self._waiting.values()]
        self._hurry.set()
        for batch in batches:
            await batch.settled.wait()
        if not self._waiting:
            self._hurry.clear()

    async def close(self) -> None:
        """``drain`` first: what is not settled now fails with ProducerClosed."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._fail(self._waiting, ProducerClosed("the producer was stopped"))
        await self.producer.close()
