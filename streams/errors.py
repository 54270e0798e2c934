"""What the streams package raises. Every message names the thing it is about and what to do
next."""

from __future__ import annotations


class StreamsError(Exception):
    """Anything this package raises on purpose."""


class ConfigurationError(StreamsError):
    """A setting or declaration cannot give what it names; raised before anything is processed."""


class PartitionsMismatch(ConfigurationError):
    """Topics that must be co-partitioned, or a changelog and its source, differ in partitions."""


class SerializationError(StreamsError):
    """A key or value cannot be encoded as its topic says."""


class DecodeError(StreamsError):
    """Bytes of a key or value cannot be decoded as their topic says."""


class OutsideAgentError(StreamsError):
    """A table was written to by code that is not handling an event, so its partition is unknown."""


class NotRunningError(StreamsError):
    """The operation needs a running worker or a started client."""


class WorkerError(StreamsError):
    """The worker must stop; exit code 1."""


class AgentError(WorkerError):
    """An agent raised and the policy is ``stop``; ``__cause__`` is what it raised.

    ``topic``, ``partition`` and ``offset`` name the record that was being handled.
    """

    def __init__(self, agent: str, topic: str, partition: int, offset: int, reason: str) -> None:
        super().__init__(
            f"agent {agent!r} failed on {topic}-{partition} at offset {offset}: {reason}. "
            "Nothing from this record on was committed; fix the cause and start the worker again, "
            'or set on_agent_error="dead_letter"'
        )
        self.agent = agent
        self.topic = topic
        self.partition = partition
        self.offset = offset


class UndecodableRecord(WorkerError):
    """A record could not be decoded and the policy is ``stop``."""

    def __init__(self, topic: str, partition: int, offset: int, reason: str) -> None:
        super().__init__(
            f"the record of {topic}-{partition} at offset {offset} cannot be decoded: {reason}. "
            "Nothing from this record on was committed; correct the topic's types, "
            'or set on_decode_error="dead_letter"'
        )
        self.topic = topic
        self.partition = partition
        self.offset = offset
