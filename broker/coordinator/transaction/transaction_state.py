"""The states of a transactional id and the moves between them.

A *pending* transition as Kafka keeps it (written to the log, not yet acknowledged) does not exist
here. A record is replayed in the same synchronous step that appended it, so a request always meets
the newest written state, and its reply waits until that state is committed. What Kafka answers
while the completion of a transaction is under way is what the two Prepare states answer.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from ...errors import ErrorCode


class TransactionState(enum.IntEnum):
    """State of one transactional id; the values are those in ``__transaction_state``.

    Below, "retry" is a version 2 EndTxn with the epoch before the last bump, "current" one with the
    stored epoch; any other epoch gets PRODUCER_FENCED (90) in every state that looks at it.
    """

    EMPTY = 0
    """No transaction yet under this producer id and epoch.

    InitProducerId: bumps the epoch -> EMPTY. Add: -> ONGOING. EndTxn v1: 48. EndTxn v2: abort
    current -> PREPARE_ABORT, commit current 48, retry 90. Idle too long: the id is forgotten.
    """

    ONGOING = 1
    """Partitions are in the transaction and may hold its records.

    InitProducerId: -> PREPARE_ABORT under a bumped epoch and 51. Add: stays here. EndTxn current:
    -> PREPARE_COMMIT or PREPARE_ABORT, retry 90. Timeout: -> PREPARE_ABORT under a bumped epoch.
    """

    PREPARE_COMMIT = 2
    """The outcome is commit, whatever happens from here on; markers are being written.

    InitProducerId, Add, EndTxn v2: 51. EndTxn v1: commit 51, abort 48. All markers written:
    -> COMPLETE_COMMIT. After a restart the markers are written again with the stored epoch.
    """

    PREPARE_ABORT = 3
    """The outcome is abort; markers are being written.

    InitProducerId, Add, EndTxn v2: 51. EndTxn v1: abort 51, commit 48. All markers written:
    -> COMPLETE_ABORT.
    """

    COMPLETE_COMMIT = 4
    """The last transaction is committed and every marker is written.

    InitProducerId: -> EMPTY. Add: -> ONGOING. EndTxn v1: commit 0 (a retry), abort 48. EndTxn v2:
    commit retry 0, abort retry 48, abort current -> PREPARE_ABORT, commit current 48.
    Idle too long: the id is forgotten.
    """

    COMPLETE_ABORT = 5
    """The last transaction is aborted and every marker is written.

    InitProducerId: -> EMPTY. Add: -> ONGOING. EndTxn v1: abort 0 (a retry), commit 48. EndTxn v2:
    abort retry 0, commit retry 90 (the coordinator aborted first, KAFKA-20785), abort current
    -> PREPARE_ABORT, commit current 48. Idle too long: the id is forgotten.
    """

    DEAD = 6
    """Kafka's name for an id being forgotten. Never entered: a tombstone removes the id at once."""

    PREPARE_EPOCH_FENCE = 7
    """Kafka's in-memory step before a fencing abort. Never entered: fencing is one record here."""

    @property
    def title(self) -> str:
        """Kafka's name in DescribeTransactions and ListTransactions."""
        return self.name.title().replace("_", "")

    @property
    def is_prepared(self) -> bool:
        """The outcome is decided and its markers are being written."""
        return self in _PREPARED

    @property
    def is_idle(self) -> bool:
        """No transaction is open: a new one may start, and the id may be forgotten when unused."""
        return self in _IDLE


_PREPARED = frozenset({TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT})
_IDLE = frozenset(
    {
        TransactionState.EMPTY,
        TransactionState.COMPLETE_COMMIT,
        TransactionState.COMPLETE_ABORT,
    }
)

LEGAL_PREDECESSORS: Mapping[TransactionState, frozenset[TransactionState]] = {
    TransactionState.EMPTY: _IDLE,
    TransactionState.ONGOING: _IDLE | {TransactionState.ONGOING},
    TransactionState.PREPARE_COMMIT: frozenset({TransactionState.ONGOING}),
    # From an idle state only under version 2, where an empty transaction may be aborted.
    TransactionState.PREPARE_ABORT: _IDLE | {TransactionState.ONGOING},
    TransactionState.COMPLETE_COMMIT: frozenset({TransactionState.PREPARE_COMMIT}),
    TransactionState.COMPLETE_ABORT: frozenset({TransactionState.PREPARE_ABORT}),
    TransactionState.DEAD: frozenset(),
    TransactionState.PREPARE_EPOCH_FENCE: frozenset(),
}
"""State -> the states it may be entered from. Checked on every move."""


class Identity(enum.Enum):
    """How the (producer id, epoch) of a request stands to the stored one."""

    CURRENT = enum.auto()
    RETRY = enum.auto()
    """The pair the client held before the last bump, which was its own (version 2 only)."""
    FENCED = enum.auto()
    """The same producer id with any other epoch."""
    UNKNOWN = enum.auto()
    """Another producer id."""


_NONE = ErrorCode.NONE
_INVALID_STATE = ErrorCode.INVALID_TXN_STATE
_BUSY = ErrorCode.CONCURRENT_TRANSACTIONS
_FENCED = ErrorCode.PRODUCER_FENCED

END_TXN_V1: Mapping[tuple[TransactionState, bool], ErrorCode] = {
    (TransactionState.EMPTY, True): _INVALID_STATE,
    (TransactionState.EMPTY, False): _INVALID_STATE,
    (TransactionState.PREPARE_COMMIT, True): _BUSY,
    (TransactionState.PREPARE_COMMIT, False): _INVALID_STATE,
    (TransactionState.PREPARE_ABORT, True): _INVALID_STATE,
    (TransactionState.PREPARE_ABORT, False): _BUSY,
    (TransactionState.COMPLETE_COMMIT, True): _NONE,
    (TransactionState.COMPLETE_COMMIT, False): _INVALID_STATE,
    (TransactionState.COMPLETE_ABORT, True): _INVALID_STATE,
    (TransactionState.COMPLETE_ABORT, False): _NONE,
}
"""(state, commit?) -> the answer to EndTxn v0-4 with the current epoch; what is absent moves."""

END_TXN_V2: Mapping[tuple[TransactionState, bool, Identity], ErrorCode] = {
    (TransactionState.EMPTY, True, Identity.CURRENT): _INVALID_STATE,
    (TransactionState.EMPTY, True, Identity.RETRY): _FENCED,
    (TransactionState.EMPTY, False, Identity.RETRY): _FENCED,
    (TransactionState.ONGOING, True, Identity.RETRY): _FENCED,
    (TransactionState.ONGOING, False, Identity.RETRY): _FENCED,
    (TransactionState.COMPLETE_COMMIT, True, Identity.CURRENT): _INVALID_STATE,
    (TransactionState.COMPLETE_COMMIT, True, Identity.RETRY): _NONE,
    (TransactionState.COMPLETE_COMMIT, False, Identity.RETRY): _INVALID_STATE,
    (TransactionState.COMPLETE_ABORT, True, Identity.CURRENT): _INVALID_STATE,
    (TransactionState.COMPLETE_ABORT, True, Identity.RETRY): _FENCED,
    (TransactionState.COMPLETE_ABORT, False, Identity.RETRY): _NONE,
}
"""(state, commit?, identity) -> the answer to EndTxn v5; what is absent moves. The Prepare states
answer 51 before the identity is looked at: across an epoch overflow the client already holds a
producer id that only the Complete record will make current (KAFKA-18660)."""
