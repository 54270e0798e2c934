"""Stream processing with decorated functions: every record takes effect exactly once.

Names are imported when they are used: the pytest plugin and the command line live in here, and most
runs of them need no engine.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
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
    from .serde import Codec, Record
    from .stream import Stream
    from .table import Table
    from .topic import Topic

_HOMES: Final = {
    "Agent": "agent",
    "AgentError": "errors",
    "App": "app",
    "Codec": "serde",
    "ConfigurationError": "errors",
    "DecodeError": "errors",
    "ErrorPolicy": "config",
    "Event": "event",
    "Message": "event",
    "NotRunningError": "errors",
    "OutsideAgentError": "errors",
    "PartitionsMismatch": "errors",
    "ProcessingGuarantee": "config",
    "Record": "serde",
    "Stream": "stream",
    "StreamsError": "errors",
    "Table": "table",
    "Topic": "topic",
    "UndecodableRecord": "errors",
    "WorkerError": "errors",
    "current_event": "event",
}

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

if not TYPE_CHECKING:  # a type checker must go on finding misspelt names

    def __getattr__(name: str) -> object:
        home = _HOMES.get(name)
        if home is None:
            from .options import missing

            raise missing("onceward.streams", name)
        found = getattr(importlib.import_module(f".{home}", __name__), name)
        globals()[name] = found
        return found
