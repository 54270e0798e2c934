"""aiokafka's exceptions, and how the client's errors become them.

Every class is a ``KafkaError`` of this package too, so one ``except`` covers both interfaces.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...errors import ErrorCode
from ...errors import KafkaError as ClientError
from ..errors import ConnectionFailed, NoOffsetForPartition
from ..errors import ProducerFenced as ProducerFencedError


class ConsumerStoppedError(Exception):
    """The consumer was stopped, perhaps while this call was waiting."""


class IllegalOperation(Exception):
    """The call is not possible with this configuration or in this state."""


class KafkaError(ClientError, RuntimeError):
    """The root. ``errno`` is the protocol's error code, -1 where there is none."""

    errno = -1
    retriable = False
    invalid_metadata = False

    def __init__(self, *args: object) -> None:
        super().__init__(ErrorCode(self.errno), " ".join(map(str, args)) or None)
        self.args = args

    def __str__(self) -> str:
        text = " ".join(map(str, self.args))
        return f"{type(self).__name__}: {text}" if text else type(self).__name__


class IllegalStateError(KafkaError):
    """The call does not fit what the consumer or producer is doing."""


class IllegalArgumentError(KafkaError):
    pass


class NoBrokersAvailable(KafkaError):
    retriable = True


class NodeNotReadyError(KafkaError):
    retriable = True


class KafkaProtocolError(KafkaError):
    retriable = True


class Cancelled(KafkaError):
    retriable = True


class StaleMetadata(KafkaError):
    retriable = True


class UnrecognizedBrokerVersion(KafkaError):
    pass


class IncompatibleBrokerVersion(KafkaError):
    pass


class AuthenticationMethodNotSupported(KafkaError):
    pass


class AuthenticationFailedError(KafkaError):
    pass


class KafkaUnavailableError(KafkaError):
    pass


class KafkaTimeoutError(KafkaError):
    pass


class UnsupportedCodecError(KafkaError):
    pass


class KafkaConfigurationError(KafkaError):
    pass


class QuotaViolationError(KafkaError):
    pass


class RecordTooLargeError(KafkaError):
    pass


class ProducerClosed(KafkaError):
    pass


class CommitFailedError(KafkaError):
    """The group has rebalanced: the partitions may belong to somebody else now."""


class KafkaConnectionError(KafkaError):
    retriable = True
    invalid_metadata = True


class NoOffsetForPartitionError(KafkaError):
    """``auto_offset_reset="none"``, and the group has committed nothing."""


class ProducerFenced(KafkaError):
    """Another producer with this transactional id took over, or the transaction timed out."""

    errno = ErrorCode.PRODUCER_FENCED


class BrokerResponseError(KafkaError):
    """A broker answered with an error code; ``message`` is its name."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.retriable = ErrorCode(cls.errno).retriable

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        self.message = self.code.name

    def __str__(self) -> str:
        return f"[Error {self.errno}] {super().__str__()}"


class NoError(BrokerResponseError):
    errno = ErrorCode.NONE


class UnknownError(BrokerResponseError):
    errno = ErrorCode.UNKNOWN_SERVER_ERROR


class OffsetOutOfRangeError(BrokerResponseError):
    errno = ErrorCode.OFFSET_OUT_OF_RANGE


class CorruptRecordException(BrokerResponseError):
    errno = ErrorCode.CORRUPT_MESSAGE


class UnknownTopicOrPartitionError(BrokerResponseError):
    errno = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    invalid_metadata = True


class InvalidFetchRequestError(BrokerResponseError):
    errno = ErrorCode.INVALID_FETCH_SIZE


class LeaderNotAvailableError(BrokerResponseError):
    errno = ErrorCode.LEADER_NOT_AVAILABLE
    invalid_metadata = True


class NotLeaderForPartitionError(BrokerResponseError):
    errno = ErrorCode.NOT_LEADER_OR_FOLLOWER
    invalid_metadata = True


class RequestTimedOutError(BrokerResponseError):
    errno = ErrorCode.REQUEST_TIMED_OUT


class BrokerNotAvailableError(BrokerResponseError):
    errno = ErrorCode.BROKER_NOT_AVAILABLE


class ReplicaNotAvailableError(BrokerResponseError):
    errno = ErrorCode.REPLICA_NOT_AVAILABLE


class MessageSizeTooLargeError(BrokerResponseError):
    errno = ErrorCode.MESSAGE_TOO_LARGE


class StaleControllerEpochError(BrokerResponseError):
    errno = ErrorCode.STALE_CONTROLLER_EPOCH


class OffsetMetadataTooLargeError(BrokerResponseError):
    errno = ErrorCode.OFFSET_METADATA_TOO_LARGE


class GroupLoadInProgressError(BrokerResponseError):
    errno = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


class GroupCoordinatorNotAvailableError(BrokerResponseError):
    errno = ErrorCode.COORDINATOR_NOT_AVAILABLE


class NotCoordinatorForGroupError(BrokerResponseError):
    errno = ErrorCode.NOT_COORDINATOR


class InvalidTopicError(BrokerResponseError):
    errno = ErrorCode.INVALID_TOPIC_EXCEPTION


class RecordListTooLargeError(BrokerResponseError):
    errno = ErrorCode.RECORD_LIST_TOO_LARGE


class NotEnoughReplicasError(BrokerResponseError):
    errno = ErrorCode.NOT_ENOUGH_REPLICAS


class NotEnoughReplicasAfterAppendError(BrokerResponseError):
    errno = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


class InvalidRequiredAcksError(BrokerResponseError):
    errno = ErrorCode.INVALID_REQUIRED_ACKS


class IllegalGenerationError(BrokerResponseError):
    errno = ErrorCode.ILLEGAL_GENERATION


class InconsistentGroupProtocolError(BrokerResponseError):
    errno = ErrorCode.INCONSISTENT_GROUP_PROTOCOL


class InvalidGroupIdError(BrokerResponseError):
    errno = ErrorCode.INVALID_GROUP_ID


class UnknownMemberIdError(BrokerResponseError):
    errno = ErrorCode.UNKNOWN_MEMBER_ID


class InvalidSessionTimeoutError(BrokerResponseError):
    errno = ErrorCode.INVALID_SESSION_TIMEOUT


class RebalanceInProgressError(BrokerResponseError):
    errno = ErrorCode.REBALANCE_IN_PROGRESS


class InvalidCommitOffsetSizeError(BrokerResponseError):
    errno = ErrorCode.INVALID_COMMIT_OFFSET_SIZE


class TopicAuthorizationFailedError(BrokerResponseError):
    errno = ErrorCode.TOPIC_AUTHORIZATION_FAILED


class GroupAuthorizationFailedError(BrokerResponseError):
    errno = ErrorCode.GROUP_AUTHORIZATION_FAILED


class ClusterAuthorizationFailedError(BrokerResponseError):
    errno = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


class InvalidTimestampError(BrokerResponseError):
    errno = ErrorCode.INVALID_TIMESTAMP


class UnsupportedSaslMechanismError(BrokerResponseError):
    errno = ErrorCode.UNSUPPORTED_SASL_MECHANISM


class IllegalSaslStateError(BrokerResponseError):
    errno = ErrorCode.ILLEGAL_SASL_STATE


class UnsupportedVersionError(BrokerResponseError):
    errno = ErrorCode.UNSUPPORTED_VERSION


class TopicAlreadyExistsError(BrokerResponseError):
    errno = ErrorCode.TOPIC_ALREADY_EXISTS


class InvalidPartitionsError(BrokerResponseError):
    errno = ErrorCode.INVALID_PARTITIONS


class InvalidReplicationFactorError(BrokerResponseError):
    errno = ErrorCode.INVALID_REPLICATION_FACTOR


class InvalidReplicationAssignmentError(BrokerResponseError):
    errno = ErrorCode.INVALID_REPLICA_ASSIGNMENT


class InvalidConfigurationError(BrokerResponseError):
    errno = ErrorCode.INVALID_CONFIG


class NotControllerError(BrokerResponseError):
    errno = ErrorCode.NOT_CONTROLLER


class InvalidRequestError(BrokerResponseError):
    errno = ErrorCode.INVALID_REQUEST


class UnsupportedForMessageFormatError(BrokerResponseError):
    errno = ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


class PolicyViolationError(BrokerResponseError):
    errno = ErrorCode.POLICY_VIOLATION


class OutOfOrderSequenceNumber(BrokerResponseError):
    errno = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


class DuplicateSequenceNumber(BrokerResponseError):
    errno = ErrorCode.DUPLICATE_SEQUENCE_NUMBER


class InvalidProducerEpoch(BrokerResponseError):
    errno = ErrorCode.INVALID_PRODUCER_EPOCH


class InvalidTxnState(BrokerResponseError):
    errno = ErrorCode.INVALID_TXN_STATE


class InvalidProducerIdMapping(BrokerResponseError):
    errno = ErrorCode.INVALID_PRODUCER_ID_MAPPING


class InvalidTransactionTimeout(BrokerResponseError):
    errno = ErrorCode.INVALID_TRANSACTION_TIMEOUT


class ConcurrentTransactions(BrokerResponseError):
    errno = ErrorCode.CONCURRENT_TRANSACTIONS


class TransactionCoordinatorFenced(BrokerResponseError):
    errno = ErrorCode.TRANSACTION_COORDINATOR_FENCED


class TransactionalIdAuthorizationFailed(BrokerResponseError):
    errno = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


class SecurityDisabled(BrokerResponseError):
    errno = ErrorCode.SECURITY_DISABLED


class OperationNotAttempted(BrokerResponseError):
    errno = ErrorCode.OPERATION_NOT_ATTEMPTED


class KafkaStorageError(BrokerResponseError):
    errno = ErrorCode.KAFKA_STORAGE_ERROR
    invalid_metadata = True


class LogDirNotFound(BrokerResponseError):
    errno = ErrorCode.LOG_DIR_NOT_FOUND


class SaslAuthenticationFailed(BrokerResponseError):
    errno = ErrorCode.SASL_AUTHENTICATION_FAILED


class UnknownProducerId(BrokerResponseError):
    errno = ErrorCode.UNKNOWN_PRODUCER_ID


class ReassignmentInProgress(BrokerResponseError):
    errno = ErrorCode.REASSIGNMENT_IN_PROGRESS


class NonEmptyGroup(BrokerResponseError):
    errno = ErrorCode.NON_EMPTY_GROUP


class GroupIdNotFound(BrokerResponseError):
    errno = ErrorCode.GROUP_ID_NOT_FOUND


class FetchSessionIdNotFound(BrokerResponseError):
    errno = ErrorCode.FETCH_SESSION_ID_NOT_FOUND


class InvalidFetchSessionEpoch(BrokerResponseError):
    errno = ErrorCode.INVALID_FETCH_SESSION_EPOCH


class ListenerNotFound(BrokerResponseError):
    errno = ErrorCode.LISTENER_NOT_FOUND


class UnsupportedCompressionType(BrokerResponseError):
    errno = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


class MemberIdRequired(BrokerResponseError):
    errno = ErrorCode.MEMBER_ID_REQUIRED


class GroupMaxSizeReached(BrokerResponseError):
    errno = ErrorCode.GROUP_MAX_SIZE_REACHED


class FencedInstanceId(BrokerResponseError):
    errno = ErrorCode.FENCED_INSTANCE_ID


class InvalidRecord(BrokerResponseError):
    errno = ErrorCode.INVALID_RECORD


class UnstableOffsetCommit(BrokerResponseError):
    errno = ErrorCode.UNSTABLE_OFFSET_COMMIT


class TransactionAbortable(BrokerResponseError):
    errno = ErrorCode.TRANSACTION_ABORTABLE


InvalidMessageError = CorruptRecordException
CoordinatorLoadInProgressError = GroupLoadInProgressError
CoordinatorNotAvailableError = GroupCoordinatorNotAvailableError
NotCoordinatorError = NotCoordinatorForGroupError


def _numbered() -> Iterator[tuple[int, type[BrokerResponseError]]]:
    for cls in BrokerResponseError.__subclasses__():
        yield cls.errno, cls


_BY_CODE: Mapping[int, type[BrokerResponseError]] = dict(_numbered())
_FENCED = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})


def for_code(code: int) -> type[BrokerResponseError]:
    """The class of an error code; ``UnknownError`` for one that has none."""
    return _BY_CODE.get(code, UnknownError)


def translated(error: ClientError) -> KafkaError:
    """The same error under aiokafka's name: a new instance each time, caused by ``error``."""
    made = _translated(error)
    made.__cause__ = error
    return made


def _translated(error: ClientError) -> KafkaError:
    text = str(error.message or "")
    if isinstance(error, KafkaError):
        return type(error)(*error.args)
    if isinstance(error, ProducerFencedError) or error.code in _FENCED:
        return ProducerFenced(text)
    if isinstance(error, NoOffsetForPartition):
        if error.reason == "no committed offset":
            return NoOffsetForPartitionError(text)
        return OffsetOutOfRangeError(text)
    if error.code == ErrorCode.NETWORK_EXCEPTION:
        return KafkaConnectionError(text)
    if isinstance(error, ConnectionFailed):
        return RequestTimedOutError(text)
    cls = for_code(error.code)
    if cls is UnknownError:
        text = f"{error.code.name}: {text}"
    return cls(text)
