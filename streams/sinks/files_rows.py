"""From rows to the content and names of files, wherever they are kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from onceward.broker.client import TopicPartition

from ..errors import ConfigurationError
from .effects import Batch
from .files_format import CsvFormat, Format, JsonLinesFormat, ParquetFormat
from .rows import Row, columns_of

PartitionBy = str | Sequence[str] | Callable[[Row], str]

HIDDEN: Final = "_onceward"
"""What is kept below the files and is none of them."""
_NO_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"


class NewFile(NamedTuple):
    """A whole file of rows of one input partition, the first of them of the record at
    ``offset``."""

    tp: TopicPartition
    offset: int
    directory: str
    suffix: str
    data: bytes

    def names(self, app: str, sink: str) -> Iterator[str]:
        """Relative to the root, the usual one first. There is a file at the same offset already if
        a position was set back by hand."""
        stem = f"{quote(app, '')}.{quote(sink, '')}.{self.tp}-{self.offset:020}"
        again = 1
        while True:
            number = "" if again == 1 else f"-{again}"
            yield str(PurePosixPath(self.directory, f"{stem}{number}.{self.suffix}"))
            again += 1


class RowFiles:
    """``root`` is where the files go, for messages; the rest is as ``FilesSink`` has it. Raises
    ConfigurationError."""

    def __init__(
        self,
        name: str,
        root: str | Path,
        format: str,
        partition_by: PartitionBy,
        columns: Sequence[str] | None,
        schema: Any,
        value_type: Any,
    ) -> None:
        self._root = root
        self._fields: tuple[str, ...] = ()
        self._directory: Callable[[Row], str] = self._by_fields
        if callable(partition_by):
            self._directory = partition_by
        else:
            self._fields = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)
        self.format = self._made_format(f"sink {name!r}", format, columns, schema, value_type)

    def _made_format(
        self, sink: str, format: str, columns: Sequence[str] | None, schema: Any, value_type: Any
    ) -> Format:
        if columns is not None and format != "csv":
            raise ConfigurationError(f"{sink}: columns= is for CSV files")
        if schema is not None and format != "parquet":
            raise ConfigurationError(f"{sink}: schema= is for Parquet files")
        if format == "jsonl":
            return JsonLinesFormat()
        if format == "csv":
            if columns is None and value_type is not None:
                declared = columns_of(value_type, str)
                columns = [column for column in declared if column not in self._fields]
            return CsvFormat(columns)
        if format == "parquet":
            if schema is None and value_type is None:
                raise ConfigurationError(
                    f"{sink}: Parquet files need schema= or value_type=, or every file would "
                    "have columns of its own"
                )
            return ParquetFormat(value_type if schema is None else schema, self._fields)
        raise ConfigurationError(f"{sink}: format must be jsonl, csv or parquet, not {format!r}")

    def of(self, batch: Batch) -> Iterator[NewFile]:
        """One per input partition and directory, in the order of their first rows. Refuses the
        rows that cannot be in a file."""
        for (tp, directory), indexes in self._places(batch).items():
            rows = [batch.values[index] for index in indexes]
            if self._fields:
                left_out = frozenset(self._fields)
                rows = [{k: v for k, v in row.items() if k not in left_out} for row in rows]
            encoded = self.format.encode(rows)
            for at, reason in encoded.bad:
                batch.refuse(indexes[at], reason)
            if len(encoded.bad) < len(rows):
                offset = batch.written.records[indexes[0]].offset
                yield NewFile(tp, offset, directory, self.format.suffix, encoded.data)
        batch.refused.sort()

    def _places(self, batch: Batch) -> dict[tuple[TopicPartition, str], list[int]]:
        """Indexes of effects by input partition and directory, in order."""
        places: dict[tuple[TopicPartition, str], list[int]] = {}
        for index, row in enumerate(batch.values):
            try:
                directory = self._checked(self._directory(row))
            except Exception as error:  # noqa: BLE001 - a user's function: its row is at fault
                batch.refuse(index, f"partition_by: {type(error).__name__}: {error}")
                continue
            place = (batch.written.records[index].block.tp, directory)
            places.setdefault(place, []).append(index)
        return places

    def _by_fields(self, row: Row) -> str:
        return "/".join(
            f"{field}={_NO_VALUE if (value := row.get(field)) is None else quote(str(value), '')}"
            for field in self._fields
        )

    def _checked(self, directory: str) -> str:
        """In one spelling."""
        path = PurePosixPath(directory)
        if path.is_absolute() or any(part in ("..", HIDDEN) for part in path.parts):
            raise ValueError(f"{directory!r} is not a directory below {self._root}")
        return str(path)
