"""Stream processing with decorated functions: every record takes effect exactly once."""

from typing import TYPE_CHECKING

from .agent import Agent
from .app import App
from .config import ErrorPolicy, ProcessingGuarantee
from .errors import (
    AgentError,
    ConfigurationError,
    DecodeError,
    NotRunningError,
    OutsideAgentError,
    PartitionsMismatch,
    StreamsError,
    UndecodableRecord,
    WorkerError,
)
from .event import Event, Message, current_event
from .options import missing
from .serde import Codec, Record
from .stream import Stream
from .table import Table
from .topic import Topic

__all__ = [
    "Agent",
    "AgentError",
    "App",
    "Codec",
    "ConfigurationError",
    "DecodeError",
    "ErrorPolicy",
    "Event",
    "Message",
    "NotRunningError",
    "OutsideAgentError",
    "PartitionsMismatch",
    "ProcessingGuarantee",
    "Record",
    "Stream",
    "StreamsError",
    "Table",
    "Topic",
    "UndecodableRecord",
    "WorkerError",
    "current_event",
]

if not TYPE_CHECKING:  # as in the classes

    def __getattr__(name: str) -> object:
        raise missing("onceward.streams", name)
