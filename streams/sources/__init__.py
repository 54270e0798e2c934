"""Where records come from besides Kafka: every row becomes exactly one record.

``source`` explains how. Readers of single systems are imported when they are asked for, and with
them their libraries.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from .errors import SourceError, SourceUnavailable
from .rows import BadRow, Row, Rows
from .source import Reader, Source, Split

if TYPE_CHECKING:
    from .csv_files import CsvFiles
    from .http_poll import HttpPoll
    from .json_lines import JsonLines
    from .parquet_files import ParquetFiles
    from .query import Query

__all__ = [
    "BadRow",
    "CsvFiles",
    "HttpPoll",
    "JsonLines",
    "ParquetFiles",
    "Query",
    "Reader",
    "Row",
    "Rows",
    "Source",
    "SourceError",
    "SourceUnavailable",
    "Split",
]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        modules = {
            "CsvFiles": "csv_files",
            "HttpPoll": "http_poll",
            "JsonLines": "json_lines",
            "ParquetFiles": "parquet_files",
            "Query": "query",
        }
        if name not in modules:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f".{modules[name]}", __name__), name)
