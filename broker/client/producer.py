"""An idempotent or transactional producer that works batch by batch."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Mapping

from ..errors import ErrorCode, KafkaError
from ..records.codec import Compression
from ..types import TopicPartition
from .cluster import DEFAULT_LANE, Client
from .errors import NeedsReset, ProducerFenced, TransactionAborted
from .group import GroupMetadata
from .offsets import OffsetAndMetadata
from .outbox import Chunk, Headers, Outbox, ProducerIdAndEpoch
from .sender import Delivery, ProduceConfig, Produced
from .transaction import PRODUCE_VERSIONS, TransactionRequests, init_producer_id, is_fenced

__all__ = ["Headers", "Produced", "Producer", "ProducerState"]

LARGEST_EPOCH = 0x7FFF - 1
NOBODY = ProducerIdAndEpoch()


class ProducerState(enum.Enum):
    """Where a producer stands, and the methods each state allows besides ``close``.

    UNINITIALISED   transactional only: ``init_transactions``
    READY           transactional: ``begin``. Otherwise the only state: ``send_batch``, ``flush``
    IN_TRANSACTION  ``send_batch``, ``flush``, ``send_offsets``, ``commit``, ``abort``, ``reset``
    ABORTABLE       something failed and the transaction cannot be committed: ``abort``, ``reset``
    NEEDS_RESET     the outcome is unknown: ``reset``
    FENCED          nothing: another producer took over
    CLOSED          nothing
    """

    UNINITIALISED = "uninitialised"
    READY = "ready"
    IN_TRANSACTION = "in transaction"
    ABORTABLE = "abortable"
    NEEDS_RESET = "needs reset"
    FENCED = "fenced"
    CLOSED = "closed"


class Producer:
    """Buffers lists of records, sends them as record batches, and runs transactions.

    Without ``transactional_id`` it is idempotent unless told otherwise. All methods belong to one
    task, except that ``flush`` and ``send_offsets`` of one transaction may run side by side.
    Transactions use KIP-890 (version 2) where the cluster has finalised it, else version 1.
    """

    def __init__(
        self,
        client: Client,
        *,
        transactional_id: str | None = None,
        transaction_timeout_ms: int = 10_000,
        acks: int = -1,
        compression: str = "none",
        idempotent: bool = True,
        request_timeout_ms: int | None = None,
        delivery_timeout_ms: int = 120_000,
        max_batch_bytes: int = 1_000_000,
        max_transaction_version: int = 2,
        lane: str | None = None,
    ) -> None:
        """``max_transaction_version=1`` keeps to the older transactions everywhere. ``lane`` is one
        that several producers share for everything they ask; without it records go over the default
        lane and a transactional producer has one of its own.

        Raises ValueError for combinations that promise what they cannot keep."""
        if (idempotent or transactional_id is not None) and acks != -1:
            raise ValueError("an idempotent producer needs acks=-1")
        if transactional_id is not None and not idempotent:
            raise ValueError("a transactional producer is always idempotent")
        self._client = client
        self._transactional_id = transactional_id
        self._acks = acks
        self._idempotent = idempotent
        self._request_timeout_ms = request_timeout_ms or client.request_timeout_ms
        self._delivery_timeout = delivery_timeout_ms / 1000
        self._lane = DEFAULT_LANE if lane is None else lane
        self._outbox = Outbox(
            max_batch_bytes=max_batch_bytes, compression=Compression[compression.upper()]
        )
        self._flushing = asyncio.Lock()
        self._identity = NOBODY
        self._state = ProducerState.READY
        self._error: KafkaError | None = None
        self._transactions: TransactionRequests | None = None
        if transactional_id is not None:
            self._state = ProducerState.UNINITIALISED
            self._delivery_timeout = min(self._delivery_timeout, transaction_timeout_ms / 1000)
            self._transactions = TransactionRequests(
                client, transactional_id, transaction_timeout_ms, lane
            )
        self._may_use_v2 = max_transaction_version >= 2
        self._v2 = False
        self._begun_on_cluster = False
        self._sequences_uncertain = False
        self._partitions: set[TopicPartition] = set()
        self._groups: set[str] = set()
        self._offset_commits: set[asyncio.Task[None]] = set()

    # what it is

    @property
    def state(self) -> ProducerState:
        return self._state

    @property
    def needs_reset(self) -> bool:
        return self._state is ProducerState.NEEDS_RESET

    @property
    def transactional_id(self) -> str | None:
        return self._transactional_id

    @property
    def identity(self) -> ProducerIdAndEpoch:
        """Producer id and epoch of the present (or next) transaction; -1, -1 while unknown."""
        return self._identity

    @property
    def error(self) -> KafkaError | None:
        """What made the state ABORTABLE, NEEDS_RESET or FENCED."""
        return self._error

    # records

    def send_batch(
        self,
        topic: str,
        partition: int,
        keys: list[bytes | None],
        values: list[bytes | None],
        *,
        timestamps: int | list[int],
        headers: Headers | None = None,
    ) -> None:
        """Buffer parallel lists; they are neither copied nor sent before ``flush`` or ``commit``.

        ``timestamps`` in ms: one for all, or one per record. Raises ValueError when lengths differ;
        TransactionAborted, NeedsReset or ProducerFenced as the state is.
        """
        self._require_sendable()
        self._outbox.add(TopicPartition(topic, partition), Chunk(keys, values, timestamps, headers))

    async def flush(self) -> list[Produced]:
        """Send everything buffered and wait for every answer: one Produce per node and round.

        Retries the same batches, in order, for ``delivery_timeout_ms`` (in a transaction at most
        its timeout); getting a producer id counts. Raises the first error: in a transaction
        TransactionAborted or ProducerFenced, and ``commit`` is impossible from then on; otherwise
        KafkaError, and what failed is lost to the producer (its batches may still have been written
        when the error is a timeout).
        """
        async with self._flushing:
            self._require_sendable()
            return await self._flush(self._outbox)

    async def produce(
        self,
        topic: str,
        partition: int,
        keys: list[bytes | None],
        values: list[bytes | None],
        *,
        timestamps: int | list[int],
        headers: Headers | None = None,
    ) -> int:
        """Send these records now; returns the offset of the first. For tools: one call, one
        request.
        """
        tp = TopicPartition(topic, partition)
        async with self._flushing:
            self._require_sendable()
            self._outbox.add(tp, Chunk(keys, values, timestamps, headers))
            produced = await self._flush(self._outbox)
        return min(p.base_offset for p in produced if p.tp == tp)

    async def _flush(self, outbox: Outbox) -> list[Produced]:
        if not outbox:
            return []
        deadline = asyncio.get_running_loop().time() + self._delivery_timeout
        if self._idempotent and not self._identity.known:
            await self._init_idempotent(deadline)
        transactional = self._transactional_id is not None
        partitions = outbox.partitions
        self._sequences_uncertain = True
        try:
            encoded = outbox.encode(self._identity, transactional=transactional)
            if transactional:
                await self._add_partitions(partitions)
            delivery = Delivery(self._client, self._produce_config(), encoded)
            produced = await delivery.run(deadline)
        except (KafkaError, ValueError, TypeError) as error:
            self._on_flush_failed(error)
            raise AssertionError("unreachable") from error
        except asyncio.CancelledError:
            self._on_cancelled()
            raise
        self._sequences_uncertain = False
        return produced

    def _produce_config(self) -> ProduceConfig:
        minimum: int | None = None
        maximum: int | None = PRODUCE_VERSIONS[True][1]
        if self._transactional_id is not None:
            minimum, maximum = PRODUCE_VERSIONS[self._v2]
        return ProduceConfig(
            self._acks,
            self._request_timeout_ms,
            self._transactional_id,
            minimum,
            maximum,
            self._idempotent,
            first_goes_alone=self._idempotent and not self._v2,
            lane=self._lane,
        )

    async def _init_idempotent(self, deadline: float) -> None:
        """Part of the delivery: what it was for is lost when it fails, as the rest of a flush."""
        remaining_ms = int((deadline - asyncio.get_running_loop().time()) * 1000)
        try:
            self._identity = await init_producer_id(
                self._client, None, 0x7FFFFFFF, NOBODY, timeout_ms=remaining_ms
            )
        except (KafkaError, asyncio.CancelledError):
            self._outbox.drop()
            raise
        self._outbox.restart_sequences()

    def _on_flush_failed(self, error: KafkaError | ValueError | TypeError) -> None:
        """Always raises. A gap in the sequences must be left behind before more is sent."""
        if self._transactional_id is None:
            self._bump_epoch()
            raise error
        if isinstance(error, KafkaError):
            raise self._doomed(error)
        self._doomed(KafkaError(ErrorCode.INVALID_RECORD, str(error)))
        raise error

    def _on_cancelled(self) -> None:
        if self._transactional_id is None:
            self._bump_epoch()
        else:
            self._doomed(KafkaError(ErrorCode.OPERATION_NOT_ATTEMPTED, "the flush was cancelled"))

    def _bump_epoch(self) -> None:
        """KIP-360 for a producer without transactional id: the next epoch counts from 0 again."""
        self._outbox.restart_sequences()
        producer_id, epoch = self._identity
        if not self._identity.known or epoch >= LARGEST_EPOCH:
            self._identity = NOBODY
        else:
            self._identity = ProducerIdAndEpoch(producer_id, epoch + 1)

    # transactions

    async def init_transactions(self) -> None:
        """Get a producer id; aborts what an earlier instance left open and fences it.

        Waits for that abort, at most the transaction timeout. Raises KafkaError.
        """
        if self._state is not ProducerState.UNINITIALISED:
            raise ValueError(f"init_transactions is not allowed in state {self._state.value!r}")
        await self._init(NOBODY)

    def begin(self) -> None:
        """Start a transaction; nothing is sent for that."""
        if self._state is not ProducerState.READY or self._transactions is None:
            self._raise_state("begin")
        self._state = ProducerState.IN_TRANSACTION

    async def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata
    ) -> None:
        """Add consumed offsets to the transaction (KIP-447). May run side by side with ``flush``.

        Raises TransactionAborted, whose code is ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID or
        FENCED_INSTANCE_ID when the member does not own its partitions any more.
        """
        if self._state is not ProducerState.IN_TRANSACTION:
            self._raise_state("send_offsets")
        if not offsets:
            return
        task = asyncio.create_task(self._send_offsets(dict(offsets), group))
        self._offset_commits.add(task)
        # When the caller is cancelled the request still is on its way: commit() must know its
        # outcome.
        await asyncio.shield(task)
        self._offset_commits.discard(task)

    async def _send_offsets(
        self, offsets: dict[TopicPartition, OffsetAndMetadata], group: GroupMetadata
    ) -> None:
        requests = self._require_transactional()
        self._begun_on_cluster = True
        try:
            if not self._v2 and group.group_id not in self._groups:
                await requests.add_offsets(self._identity, group.group_id)
                self._groups.add(group.group_id)
            await requests.commit_offsets(self._identity, offsets, group, v2=self._v2)
        except KafkaError as error:
            raise self._doomed(error) from error

    async def _add_partitions(self, partitions: set[TopicPartition]) -> None:
        """Version 1 announces partitions; version 2 lets Produce do it."""
        self._begun_on_cluster = True
        new = partitions - self._partitions
        if new and not self._v2:
            await self._require_transactional().add_partitions(self._identity, new)
        self._partitions |= new

    async def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None,
        group: GroupMetadata | None = None,
    ) -> None:
        """Flush, add ``offsets`` (side by side), wait for everything, then EndTxn.

        Raises TransactionAborted (``abort`` next), NeedsReset (``reset`` next: the transaction may
        have been committed), ProducerFenced (a fenced producer cannot know the outcome either).
        """
        if self._state is not ProducerState.IN_TRANSACTION:
            self._raise_state("commit")
        parts = [self.flush()]
        if offsets:
            if group is None:
                raise ValueError("offsets are committed for a group")
            parts.append(self.send_offsets(offsets, group))  # type: ignore[arg-type]
        results = await asyncio.gather(*parts, *self._offset_commits, return_exceptions=True)
        self._offset_commits.clear()
        for result in results:
            if isinstance(result, BaseException):
                raise result
        if self._state is not ProducerState.IN_TRANSACTION:
            self._raise_state("commit")
        await self._end(committed=True)

    async def abort(self) -> None:
        """Drop what is buffered and abort; nothing of the transaction becomes visible.

        Raises NeedsReset when the abort could not be confirmed, ProducerFenced.
        """
        if self._state not in (ProducerState.IN_TRANSACTION, ProducerState.ABORTABLE):
            self._raise_state("abort")
        self._drop()
        await self._end(committed=False)

    async def reset(self) -> None:
        """Settle an unknown outcome: InitProducerId with what we know (KIP-360).

        Afterwards no transaction of this producer is open: the last one was either committed, which
        only the committed offsets tell, or aborted. Raises ProducerFenced, or KafkaError when the
        cluster cannot be reached (then call it again).
        """
        requests = self._require_transactional()
        if self._state in (ProducerState.FENCED, ProducerState.CLOSED, ProducerState.UNINITIALISED):
            self._raise_state("reset")
        self._drop()
        self._state = ProducerState.NEEDS_RESET
        if not self._v2:
            # Version 1 would answer an open transaction of our own epoch with an abort that bumps
            # the epoch, and then take us for a zombie: so end it by its name first.
            try:
                await requests.end(self._identity, committed=False, v2=False)
            except KafkaError as error:
                if is_fenced(error):
                    raise self._fenced(error) from error
        try:
            await self._init(self._identity)
        except KafkaError as error:
            if is_fenced(error):
                raise self._fenced(error) from error
            self._error = error
            raise

    async def _init(self, current: ProducerIdAndEpoch) -> None:
        requests = self._require_transactional()
        self._identity = await requests.init(current)
        self._v2 = self._may_use_v2 and self._client.transaction_version >= 2
        self._outbox.restart_sequences()
        self._on_ended()

    async def _end(self, *, committed: bool) -> None:
        requests = self._require_transactional()
        if not self._begun_on_cluster:
            self._on_ended()
            return
        try:
            identity = await requests.end(self._identity, committed=committed, v2=self._v2)
        except KafkaError as error:
            await self._on_end_failed(error, committed=committed)
            return
        except asyncio.CancelledError:
            self._state = ProducerState.NEEDS_RESET
            self._error = KafkaError(ErrorCode.REQUEST_TIMED_OUT, "EndTxn was cancelled")
            raise
        if identity != self._identity:
            self._identity = identity
            self._outbox.restart_sequences()
        elif self._sequences_uncertain:
            # Version 1 keeps the epoch, and we do not know what the partitions have seen of it.
            await self.reset()
        self._on_ended()

    async def _on_end_failed(self, error: KafkaError, *, committed: bool) -> None:
        if is_fenced(error):
            raise self._fenced(error) from error
        if error.code == ErrorCode.TRANSACTION_ABORTABLE and committed:
            raise self._doomed(error) from error
        self._state = ProducerState.NEEDS_RESET
        self._error = error
        if not committed and error.code in _NOTHING_TO_ABORT:
            await self.reset()
            return
        outcome = "commit" if committed else "abort"
        raise NeedsReset(error.code, f"the {outcome} was not confirmed: {error.message}") from error

    def _on_ended(self) -> None:
        self._state = ProducerState.READY
        self._error = None
        self._begun_on_cluster = False
        self._sequences_uncertain = False
        self._partitions.clear()
        self._groups.clear()

    def _drop(self) -> None:
        self._outbox.drop()
        for task in self._offset_commits:
            task.cancel()
        self._offset_commits.clear()

    # states

    def _require_transactional(self) -> TransactionRequests:
        if self._transactions is None:
            raise ValueError("this producer has no transactional_id")
        return self._transactions

    def _require_sendable(self) -> None:
        if self._transactions is None and self._state is ProducerState.READY:
            return
        if self._state is not ProducerState.IN_TRANSACTION:
            self._raise_state("sending")

    def _doomed(self, error: KafkaError) -> KafkaError:
        """The transaction cannot be committed any more; returns what to raise."""
        if error.code == ErrorCode.PRODUCER_FENCED:
            return self._fenced(error)
        if self._state is ProducerState.IN_TRANSACTION:
            self._state = ProducerState.ABORTABLE
            self._error = error
        return TransactionAborted(error.code, error.message)

    def _fenced(self, error: KafkaError) -> ProducerFenced:
        self._state = ProducerState.FENCED
        message = f"{self._transactional_id!r} was taken over: {error.message}"
        fenced = ProducerFenced(error.code, message)
        self._error = fenced
        return fenced

    def _raise_state(self, what: str) -> None:
        cause = self._error
        code = cause.code if cause is not None else ErrorCode.INVALID_TXN_STATE
        message = f"{what} is not possible: {cause}" if cause else f"{what} is not possible"
        if self._state is ProducerState.ABORTABLE:
            raise TransactionAborted(code, message) from cause
        if self._state is ProducerState.NEEDS_RESET:
            raise NeedsReset(code, message) from cause
        if self._state is ProducerState.FENCED:
            raise ProducerFenced(code, message) from cause
        raise ValueError(f"{what} is not allowed in state {self._state.value!r}")

    async def close(self) -> None:
        """Drop what is buffered; an open transaction is left to ``abort`` before, or to its
        timeout.
        """
        self._drop()
        if self._transactions is not None:
            self._transactions.close()
        self._state = ProducerState.CLOSED


_NOTHING_TO_ABORT = frozenset(
    {
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    }
)
"""The abort is not for the coordinator's state of things: InitProducerId puts both on one page."""
