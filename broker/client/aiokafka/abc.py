"""The interface a program implements to hear of rebalances, under aiokafka's name."""

from __future__ import annotations

import abc
from typing import Any

from ...types import TopicPartition


class ConsumerRebalanceListener(abc.ABC):
    """Both methods may be plain functions or coroutines; the consumer waits for them.

    No records are handed out while they run. A method ``on_partitions_lost`` is called instead of
    ``on_partitions_revoked``, if there is one, when the membership was lost and somebody else may
    own the partitions already. What a listener raises is raised by the next call on the consumer.
    """

    @abc.abstractmethod
    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> Any:
        """Still owned while this runs: the last chance to commit. Not called by ``stop()``."""

    @abc.abstractmethod
    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> Any:
        """New partitions, before any record of them is handed out: seek here."""
