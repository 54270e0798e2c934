"""Parquet files, row group by row group; needs pyarrow (``pip install 'onceward[parquet]'``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..errors import ConfigurationError
from .errors import SourceError
from .files import Files, Place
from .filesystem import InputFile
from .models import typed_rows
from .rows import Rows
from .source import Split


class ParquetFiles(Files):
    """Parquet files; see ``files`` for ``pattern`` and ``watch``.

    Rows are dicts by column, or of the topic's ``value_type``. ``columns``: only these are read.
    ``batch``: rows at once. Raises ConfigurationError.
    """

    may_grow = False
    counts_bytes = False

    def __init__(
        self,
        pattern: str | Path,
        *,
        columns: list[str] | None = None,
        batch: int = 5_000,
        watch: float | None = 1.0,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(pattern, watch=watch, storage_options=storage_options)
        if batch < 1:
            raise ConfigurationError("ParquetFiles: batch must be at least 1")
        self.columns = columns
        self.batch = batch
        try:
            import pyarrow  # type: ignore[import-untyped,import-not-found,unused-ignore]
            from pyarrow import parquet  # type: ignore[import-untyped,import-not-found,unused-ignore]
        except ImportError:
            raise ConfigurationError(
                "ParquetFiles needs pyarrow: pip install 'onceward[parquet]'"
            ) from None
        self._parquet: Any = parquet
        self._invalid: Any = (pyarrow.ArrowException, OSError)

    def chunks(self, file: InputFile, place: Place, split: Split) -> Iterator[tuple[Rows, Place]]:
        """Places count rows."""
        try:
            yield from self._chunks(file, place.offset, split)
        except self._invalid as error:
            raise SourceError(f"{file.path} cannot be read as Parquet: {error}") from error

    def _chunks(self, file: InputFile, done: int, split: Split) -> Iterator[tuple[Rows, Place]]:
        opened = self._parquet.ParquetFile(file.descriptor)
        missing = set(self.columns or ()) - set(opened.schema_arrow.names)
        if missing:
            raise SourceError(f"{file.path} has no column {', '.join(sorted(missing))}")
        start = 0
        for number in range(opened.num_row_groups):
            size = opened.metadata.row_group(number).num_rows
            if start + size > done:
                at = start
                for batch in opened.iter_batches(self.batch, [number], self.columns):
                    skipped = min(max(done - at, 0), len(batch))
                    first = at + skipped
                    at += len(batch)
                    if skipped < len(batch):
                        found = batch.slice(skipped).to_pylist()
                        rows = typed_rows(split.topic, found, None, _place(file.path, first))
                        yield rows, Place(at, at)
            start += size


def _place(path: str, first: int) -> Any:
    return lambda index: f"{path} row {first + index + 1}"
