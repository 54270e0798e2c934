"""Broker-only scenarios: hand-written clients in the place of workers, and no engine.

What the clients do is what ``copiers`` says: every record of ``given`` goes to ``copied``, exactly
once. Each of them is a member of one consumer group and has a transactional producer; now and then
it aborts what it did. Together with the idempotent producer that feeds and the read_committed
reader that follows, that is most of what a broker is for, at a fraction of an engine's cost.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from onceward.broker.client import (
    Admin,
    Client,
    Consumer,
    ErrorCode,
    FetchedBatch,
    KafkaError,
    NewTopic,
    OffsetAndMetadata,
    Producer,
    ProducerFenced,
    ProducerState,
)

from ..app import App
from ..stream import Stream
from .cluster import ADDRESS, SimCluster
from .scenario import Scenario
from .verification import AnomalyFound, Report, Verification

if TYPE_CHECKING:
    from .sim.host import Host

T = TypeVar("T")
GIVEN, COPIED = "given", "copied"
PARTITIONS = 2
CLIENTS = 2
RECORDS = 24
_REQUEST_TIMEOUT_MS = 2_000
_SESSION_TIMEOUT_MS = 1_500
_HEARTBEAT_MS = 300
_TRANSACTION_TIMEOUT_MS = 2_000
_FETCH_MS = 1_000
_RETRY_S = 0.05
_ABORT_P = 0.15
"""How often a transaction is aborted..."""
_LINGER_P = 0.2
"""...and how often another one is left open for a while, at most..."""
_LINGER_S = 0.1
_BROKER_CONFIG = {"group.min.session.timeout.ms": "500"}


def copiers() -> App:
    """What the clients do, as an app, which is never run."""
    app = App("copiers")
    given = app.topic(GIVEN, key_type=str, value_type=str, partitions=PARTITIONS)
    copied = app.topic(COPIED, key_type=str, value_type=str, partitions=PARTITIONS)

    @app.agent(given)
    async def copy(stream: Stream[str]) -> None:
        async for key, value in stream.items():
            await copied.send(key=key, value=value)

    return app


def simulate_broker(
    *,
    seeds: int = 100,
    seed: int | None = None,
    clients: int = CLIENTS,
    records: int = RECORDS,
    broker_config: dict[str, Any] | None = None,
    jobs: int | None = None,
    shrink: bool = True,
    keep_going: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Report:
    """Run the broker with plain and transactional clients under ``seeds`` fault plans.

    As ``simulate``, for the broker alone. Raises AnomalyFound at the first wrong run, or with
    ``keep_going`` after the last.
    """
    scenario = broker_scenario(clients=clients, records=records, broker_config=broker_config)

    def command(number: int) -> str:
        call = f"simulate_broker(seed={number}, seeds=1, clients={clients}, records={records})"
        program = f"from onceward.streams.testing import simulate_broker; {call}"
        return f"python -c {shlex.quote(program)}"

    verification = Verification(scenario, cluster=ClientCluster, jobs=jobs, command=command)
    first = 0 if seed is None else seed
    report = verification.run(
        range(first, first + seeds), shrink=shrink, keep_going=keep_going, progress=progress
    )
    if report.failures:
        raise AnomalyFound(report.failures[0])
    return report


def broker_scenario(
    *,
    clients: int = CLIENTS,
    records: int = RECORDS,
    broker_config: dict[str, Any] | None = None,
) -> Scenario:
    """For a ``Verification`` whose ``cluster`` is ``ClientCluster``."""
    config = {**_BROKER_CONFIG, **(broker_config or {})}
    return Scenario(copiers, workers=clients, records=records, broker_config=config)


class ClientCluster(SimCluster):
    """A cluster whose workers are ``Copier`` processes."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._copiers: dict[str, Copier] = {}

    @property
    def is_quiet(self) -> bool:
        """Every client runs, and none is in the middle of something."""
        copiers = self._copiers
        return all(
            host.alive and host.name in copiers and not copiers[host.name].busy
            for host in self.workers
        )

    async def _work(self, host: Host) -> None:
        copier = Copier(host, self.app.conf.id)
        self._copiers[host.name] = copier
        await copier.run()


class Copier:
    """Consume, transform, produce: the loop of Kafka's documentation, on our client library.

    ``busy`` while a transaction may be open.
    """

    def __init__(self, host: Host, group: str) -> None:
        self.busy = False
        self._rng = host.rng()
        self._wall_ms = host.wall_ms
        self._client = Client(
            ADDRESS,
            client_id=host.name,
            request_timeout_ms=_REQUEST_TIMEOUT_MS,
            clock=host.wall_ms,
            rng=self._rng,
        )
        self._producer = Producer(
            self._client,
            transactional_id=host.name,
            transaction_timeout_ms=_TRANSACTION_TIMEOUT_MS,
        )
        self._consumer = Consumer(
            self._client,
            group_id=group,
            session_timeout_ms=_SESSION_TIMEOUT_MS,
            heartbeat_interval_ms=_HEARTBEAT_MS,
            rebalance_timeout_ms=_SESSION_TIMEOUT_MS,
        )

    async def run(self) -> None:
        """Until the process dies. Raises ProducerFenced: somebody took us for dead."""
        await _patiently(self._client.start)
        await _patiently(self._create_topics)
        await _patiently(self._producer.init_transactions)
        self._consumer.subscribe([GIVEN])
        await self._consumer.start()
        while True:
            batches = await _patiently(lambda: self._consumer.fetch(timeout_ms=_FETCH_MS))
            if batches:
                self.busy = True
                await self._copy(batches)
                self.busy = False

    async def _create_topics(self) -> None:
        topics = [NewTopic(name, PARTITIONS) for name in (GIVEN, COPIED)]
        errors = await Admin(self._client).create_topics(topics)
        for error in errors.values():
            if error is not None and error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise error

    async def _copy(self, batches: Sequence[FetchedBatch]) -> None:
        """One transaction. When it fails, for whatever reason, back to what is committed."""
        producer = self._producer
        try:
            producer.begin()
            for batch in batches:
                if batch.records.offsets:
                    producer.send_batch(
                        COPIED,
                        batch.tp.partition,
                        batch.records.keys,
                        batch.records.values,
                        timestamps=batch.records.timestamps,
                    )
            fate = self._rng.random()
            if fate < _ABORT_P + _LINGER_P:  # its records are there, and may not be seen yet
                await producer.flush()
                await asyncio.sleep(self._rng.random() * _LINGER_S)
            if fate < _ABORT_P:
                await producer.abort()
                await self._rewind()
            else:
                ends = {batch.tp: OffsetAndMetadata(batch.records.next_offset) for batch in batches}
                await producer.commit(ends, self._consumer.group_metadata)
        except ProducerFenced:
            raise
        except KafkaError:
            await _patiently(self._settle)
            await self._rewind()

    async def _settle(self) -> None:
        """No transaction of ours is open afterwards."""
        if self._producer.state in (ProducerState.IN_TRANSACTION, ProducerState.ABORTABLE):
            await self._producer.abort()
        if self._producer.state is ProducerState.NEEDS_RESET:
            await self._producer.reset()

    async def _rewind(self) -> None:
        owned = self._consumer.assignment
        committed = await _patiently(lambda: self._consumer.committed(owned))
        for tp in owned & self._consumer.assignment:
            self._consumer.seek(tp, _offset(committed[tp]))


def _offset(committed: OffsetAndMetadata | None) -> int:
    return 0 if committed is None else committed.offset


async def _patiently(attempt: Callable[[], Awaitable[T]]) -> T:
    """Again until it works: the broker may be away. Raises ProducerFenced."""
    while True:
        try:
            return await attempt()
        except ProducerFenced:
            raise
        except KafkaError:
            await asyncio.sleep(_RETRY_S)
