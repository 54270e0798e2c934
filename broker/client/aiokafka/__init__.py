"""The client under aiokafka's class and method names, for programs written against aiokafka.

``from onceward.broker.client.aiokafka import AIOKafkaProducer, AIOKafkaConsumer`` instead of
``from aiokafka import ...``; ``errors``, ``structs`` and ``abc`` are modules here as there.

On purpose different: an error is raised where aiokafka loses it. A record that could not be sent
makes the commit of its transaction fail, after which an abort is possible; a coordinator that is
loading is waited for instead of reading from ``auto_offset_reset``; ``committed`` of a
``read_committed`` consumer waits for undecided transactions; ``send_offsets_to_transaction`` also
takes ``consumer.group_metadata()``, with which the broker refuses outdated consumers.

Not here: TLS, SASL, the admin client (see ``onceward.broker.client.Admin``), the eager sticky
assignor and assignors of the program's own. What is asked for and missing raises ValueError.
"""

from ..group import GroupMetadata
from . import abc, errors, structs
from .abc import ConsumerRebalanceListener
from .batches import BatchBuilder
from .consumer import AIOKafkaConsumer
from .errors import ConsumerStoppedError, IllegalOperation
from .options import ConfigurationError, ConsumerOptions, ProducerOptions
from .producer import AIOKafkaProducer, DefaultPartitioner, TransactionContext
from .structs import (
    ConsumerRecord,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    RecordMetadata,
    TopicPartition,
)

__all__ = [
    "AIOKafkaConsumer",
    "AIOKafkaProducer",
    "BatchBuilder",
    "ConfigurationError",
    "ConsumerOptions",
    "ConsumerRebalanceListener",
    "ConsumerRecord",
    "ConsumerStoppedError",
    "DefaultPartitioner",
    "GroupMetadata",
    "IllegalOperation",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "ProducerOptions",
    "RecordMetadata",
    "TopicPartition",
    "TransactionContext",
    "abc",
    "errors",
    "structs",
]
