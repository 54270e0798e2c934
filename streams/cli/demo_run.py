"""One run of the demo: feed payments, kill what the plan says, read what came out."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from onceward.broker.client import (
    Admin,
    Client,
    Consumer,
    NewTopic,
    Producer,
    TopicPartition,
    partition_keys,
)

from .demo_judge import Ledger, Verdict
from .demo_pipeline import PARTITIONS, SERVICE_S, Payment, Receipt
from .processes import BrokerProcess, WorkerPool
from .session import fail, new_client, wall_clock

ACCOUNTS = 50
WORKERS = 2
# Four partitions, a millisecond per payment each: the workers keep up, but are never idle for long.
PAYMENTS_PER_S = int(0.6 * PARTITIONS / SERVICE_S)
FEED_INTERVAL_S = 0.02
DRAIN_TIMEOUT_S = 60.0
PIPELINE = "onceward.streams.cli.demo_pipeline:app"


@dataclass(slots=True)
class Plan:
    """What a run does, drawn from the seed before it starts: payments, and kills by progress."""

    payments: list[Payment]
    worker_kills: list[tuple[int, int]]  # after so many payments sent, this worker
    broker_kills: list[int]

    @classmethod
    def draw(cls, seed: int, records: int, kills: int, broker_kills: int) -> Plan:
        rng = random.Random(seed)
        payments = [
            Payment(number, f"account-{rng.randrange(ACCOUNTS)}", rng.randrange(1, 100))
            for number in range(records)
        ]

        def moment() -> int:
            return rng.randrange(records // 10, max(records * 9 // 10, records // 10 + 1))

        return cls(
            payments,
            sorted((moment(), rng.randrange(WORKERS)) for _ in range(kills)),
            sorted(moment() for _ in range(broker_kills)),
        )


async def run_all(
    plan: Plan, verdicts: list[Verdict], work: Path, refresh: Callable[[], None]
) -> None:
    """The plan under each guarantee, one after the other, on one broker. Raises KafkaError."""
    broker = BrokerProcess(work / "broker", work / "broker.log")
    await broker.start()
    try:
        for verdict in verdicts:
            await Run(plan, verdict, broker, work, refresh).run()
    finally:
        await broker.stop()


class Run:
    """One guarantee: its feeder, its reader and its killer, all in this process."""

    def __init__(
        self,
        plan: Plan,
        verdict: Verdict,
        broker: BrokerProcess,
        work: Path,
        refresh: Callable[[], None],
    ) -> None:
        self.plan = plan
        self.verdict = verdict
        self.broker = broker
        self.refresh = refresh
        self.ledger = Ledger()
        self.source = f"payments-{verdict.semantics}"
        self.target = f"receipts-{verdict.semantics}"
        self.group = f"demo-{verdict.semantics}"
        self.log = work / f"{verdict.semantics}.log"
        self.pool = WorkerPool(
            PIPELINE,
            workers=WORKERS,
            broker=broker.address,
            datadir=work / verdict.semantics,
            log=self.log,
            env={**os.environ, "ONCEWARD_DEMO_GUARANTEE": verdict.semantics},
        )

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        begin = loop.time()
        async with new_client(self.broker.address, client_id="onceward-demo") as client:
            topics = [NewTopic(name, PARTITIONS) for name in (self.source, self.target)]
            await Admin(client).create_topics(topics)
            await self.pool.start()
            reader = asyncio.create_task(self._read(client))
            try:
                await self._feed(client)
                await self._drained(client)
            finally:
                await self.pool.stop()
                ends = await self._ends(client, self.target)
                await self._caught_up(reader, ends)
        self.verdict.seconds = loop.time() - begin
        self._judge()

    async def _feed(self, client: Client) -> None:
        """Send the payments at a steady rate; kill when as many were sent as the plan says."""
        producer = Producer(client)
        loop = asyncio.get_running_loop()
        worker_kills, broker_kills = list(self.plan.worker_kills), list(self.plan.broker_kills)
        encode = msgspec.json.Encoder().encode
        payments, sent, begin = self.plan.payments, 0, loop.time()
        while sent < len(payments):
            due = int((loop.time() - begin) * PAYMENTS_PER_S) + 1
            block = payments[sent:due]
            for partition, part in self._by_partition(block).items():
                keys: list[bytes | None] = [payment.account.encode() for payment in part]
                values: list[bytes | None] = [encode(payment) for payment in part]
                producer.send_batch(self.source, partition, keys, values, timestamps=wall_clock())
            await producer.flush()
            for payment in block:
                self.ledger.paid(payment.account, payment.amount)
            sent += len(block)
            while worker_kills and worker_kills[0][0] <= sent:
                self.pool.kill(worker_kills.pop(0)[1])
                self.verdict.worker_kills += 1
            while broker_kills and broker_kills[0] <= sent:
                broker_kills.pop(0)
                await self.broker.kill()
                await self.broker.start()
                self.verdict.broker_kills += 1
            self._judge()
            self._check_workers()
            await asyncio.sleep(FEED_INTERVAL_S)
        await producer.close()

    @staticmethod
    def _by_partition(block: list[Payment]) -> dict[int, list[Payment]]:
        parts: dict[int, list[Payment]] = {}
        numbers = partition_keys([payment.account.encode() for payment in block], PARTITIONS)
        for payment, partition in zip(block, numbers, strict=True):
            parts.setdefault(partition, []).append(payment)
        return parts

    async def _drained(self, client: Client) -> None:
        """Until the group has committed the whole input; gives up after DRAIN_TIMEOUT_S."""
        admin, loop = Admin(client), asyncio.get_running_loop()
        ends = await self._ends(client, self.source)
        deadline = loop.time() + DRAIN_TIMEOUT_S
        while loop.time() < deadline:
            committed = await admin.list_group_offsets(self.group)
            if all(tp in committed and committed[tp].offset >= end for tp, end in ends.items()):
                return
            self._judge()
            self._check_workers()
            await asyncio.sleep(0.1)

    def _check_workers(self) -> None:
        """Raises click.ClickException: a worker that stops on an error is not restarted."""
        if self.pool.ended:
            raise fail(f"a worker ended by itself; its last words are in {self.log}")

    async def _ends(self, client: Client, topic: str) -> dict[TopicPartition, int]:
        tps = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
        return await Consumer(client).end_offsets(tps, "read_committed")

    async def _read(self, client: Client) -> None:
        """Read the output as any read_committed consumer does, until cancelled."""
        consumer = Consumer(client, isolation="read_committed")
        self.consumer = consumer
        tps = [TopicPartition(self.target, partition) for partition in range(PARTITIONS)]
        consumer.assign(tps)
        for tp in tps:
            consumer.seek(tp, 0)
        await consumer.start()
        decode = msgspec.json.Decoder(Receipt).decode
        try:
            while True:
                for batch in await consumer.fetch(timeout_ms=200):
                    for value in batch.records.values:
                        assert value is not None
                        receipt = decode(value)
                        self.ledger.receipt(receipt.id, receipt.account, receipt.balance)
        finally:
            await consumer.stop()

    async def _caught_up(self, reader: asyncio.Task[None], ends: dict[TopicPartition, int]) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + DRAIN_TIMEOUT_S
        while loop.time() < deadline and not reader.done():
            if all((self.consumer.position(tp) or 0) >= end for tp, end in ends.items()):
                break
            await asyncio.sleep(0.02)
        reader.cancel()
        try:
            await reader
        except asyncio.CancelledError:
            pass

    def _judge(self) -> None:
        self.ledger.judge(self.verdict)
        self.refresh()
