"""Where agents write besides Kafka: databases whose rows appear exactly once.

The port is ``Sink``; see ``sink`` for what an own one implements. Sinks of single systems are
imported when they are asked for, and with them their drivers.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from .effects import Batch, Effect, EffectId
from .errors import SinkError, SinkFenced, SinkTimeout, SinkUnavailable
from .rows import Deletion
from .sink import Sink, Strength, TransactionalSink

if TYPE_CHECKING:
    from .database import DatabaseSink
    from .duckdb import DuckDbSink
    from .files import FilesSink
    from .http import HttpSink
    from .kafka import KafkaSink
    from .memory import MemoryDatabase, MemorySink
    from .mysql import MySqlSink
    from .postgres import PostgresSink
    from .redis import RedisSink
    from .seen import SeenKeys, SqliteSeenKeys
    from .sqlite import SqliteSink

__all__ = [
    "Batch",
    "DatabaseSink",
    "Deletion",
    "DuckDbSink",
    "Effect",
    "EffectId",
    "FilesSink",
    "HttpSink",
    "KafkaSink",
    "MemoryDatabase",
    "MemorySink",
    "MySqlSink",
    "PostgresSink",
    "RedisSink",
    "SeenKeys",
    "Sink",
    "SinkError",
    "SinkFenced",
    "SinkTimeout",
    "SinkUnavailable",
    "SqliteSeenKeys",
    "SqliteSink",
    "Strength",
    "TransactionalSink",
]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        modules = {
            "DatabaseSink": "database",
            "DuckDbSink": "duckdb",
            "FilesSink": "files",
            "HttpSink": "http",
            "KafkaSink": "kafka",
            "MemoryDatabase": "memory",
            "MemorySink": "memory",
            "MySqlSink": "mysql",
            "PostgresSink": "postgres",
            "RedisSink": "redis",
            "SeenKeys": "seen",
            "SqliteSeenKeys": "seen",
            "SqliteSink": "sqlite",
        }
        if name not in modules:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f".{modules[name]}", __name__), name)
