"""What the client raises besides a plain ``KafkaError``.

Every class is a ``KafkaError`` so that ``except KafkaError`` catches all expected failures; the
class says what the caller has to do, as KIP-1050 groups them: give up (``ProducerFenced``), abort
and run again (``TransactionAborted``), or ask what became of it (``NeedsReset``).
"""

from __future__ import annotations

from ..errors import ErrorCode, KafkaError
from ..types import TopicPartition


class ConnectionFailed(KafkaError):
    """No answer. ``sent`` tells whether the broker may have received and acted on the request."""

    def __init__(self, code: ErrorCode, message: str, *, sent: bool) -> None:
        super().__init__(code, message)
        self.sent = sent


class ProducerFenced(KafkaError):
    """Another producer with this transactional id took over: this instance can do nothing more."""


class TransactionAborted(KafkaError):
    """The transaction cannot be committed. Nothing of it is or will become visible.

    ``await producer.abort()`` must be called next, unless ``producer.state`` is already READY.
    """


class NeedsReset(KafkaError):
    """The outcome is unknown: the answer of EndTxn never came, or made no sense.

    ``await producer.reset()`` settles it on the cluster (KIP-360). Only committed offsets, read
    again with ``require_stable``, tell whether the transaction took effect.
    """


class NoOffsetForPartition(KafkaError):
    """``auto_offset_reset="none"`` and these partitions have no committed or no valid position."""

    def __init__(self, partitions: frozenset[TopicPartition], reason: str) -> None:
        names = ", ".join(str(tp) for tp in sorted(partitions))
        super().__init__(ErrorCode.OFFSET_OUT_OF_RANGE, f"{reason}: {names}")
        self.partitions = partitions
        self.reason = reason


class MemberFenced(KafkaError):
    """Another consumer joined with this ``group_instance_id``: this instance must stop."""


def kafka_error(code: int, message: str | None = None) -> KafkaError:
    """The error of a response field; an unknown code becomes -1 with its number as message."""
    try:
        return KafkaError(ErrorCode(code), message)
    except ValueError:
        known = f"error code {code}" + (f": {message}" if message else "")
        return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, known)
