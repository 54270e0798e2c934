"""The Kafka client: what the engine, the command line and the aiokafka-compatible names run on.

One ``Client`` per process (connections, metadata, coordinators); ``Consumer``, ``Producer`` and
``Admin`` are built on it. Everything works batch by batch; time and randomness are parameters.
"""

from ..errors import ErrorCode, KafkaError
from ..records.codec import Records, estimate_size, partition_keys
from ..types import TopicPartition
from .admin import Admin
from .admin_types import (
    ClusterDescription,
    ClusterNode,
    ConfigEntry,
    GroupDescription,
    GroupListing,
    MemberDescription,
    NewTopic,
    PartitionDescription,
    TopicDescription,
    TransactionDescription,
    TransactionListing,
)
from .assignors import (
    Assignor,
    CooperativeStickyAssignor,
    RangeAssignor,
    RoundRobinAssignor,
    owners_of,
    withhold_owned,
)
from .cluster import Client, Coordinator
from .consumer import Consumer
from .errors import (
    ConnectionFailed,
    MemberFenced,
    NeedsReset,
    NoOffsetForPartition,
    ProducerFenced,
    TransactionAborted,
)
from .group import GroupMetadata
from .membership import RebalanceListener
from .offsets import Isolation, OffsetAndMetadata, OffsetAndTimestamp
from .positions import FetchedBatch
from .producer import Produced, Producer, ProducerState
from .subscription import MemberMetadata, decode_assignment, encode_assignment

__all__ = [
    "Admin",
    "Assignor",
    "Client",
    "ClusterDescription",
    "ClusterNode",
    "ConfigEntry",
    "ConnectionFailed",
    "Consumer",
    "CooperativeStickyAssignor",
    "Coordinator",
    "ErrorCode",
    "FetchedBatch",
    "GroupDescription",
    "GroupListing",
    "GroupMetadata",
    "Isolation",
    "KafkaError",
    "MemberDescription",
    "MemberFenced",
    "MemberMetadata",
    "NeedsReset",
    "NewTopic",
    "NoOffsetForPartition",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "PartitionDescription",
    "Produced",
    "Producer",
    "ProducerFenced",
    "ProducerState",
    "RangeAssignor",
    "RebalanceListener",
    "Records",
    "RoundRobinAssignor",
    "TopicDescription",
    "TopicPartition",
    "TransactionAborted",
    "TransactionDescription",
    "TransactionListing",
    "decode_assignment",
    "encode_assignment",
    "estimate_size",
    "owners_of",
    "partition_keys",
    "withhold_owned",
]
