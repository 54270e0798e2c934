"""Rows in files of a directory or of S3: every row in exactly one file, whatever crashes.

How, is in ``files_local`` and ``files_objects``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from onceward.broker.client import TopicPartition

from ..errors import ConfigurationError
from .effects import Batch
from .files_disk import Disk
from .files_local import LocalFiles
from .files_objects import ObjectFiles
from .files_rows import PartitionBy, RowFiles
from .files_store import ObjectStore, S3Store
from .positions import Advance, Claim, Position, Start
from .sink import TransactionalSink
from .table import Mode, TableRows

_S3: Final = frozenset({"s3", "s3a"})


class FilesSink(TableRows, TransactionalSink):
    """Transactional: every row is in exactly one file.

    ``path`` is a local directory, or ``s3://bucket/path`` (extra ``s3``; ``storage_options`` are
    those of ``s3fs.S3FileSystem``: ``key``, ``secret``, ``endpoint_url`` and so on). ``format``
    ``jsonl``, ``csv`` (``columns``, or those of ``value_type``) or ``parquet`` (extra ``parquet``;
    ``schema``, a ``pyarrow.Schema``, or ``value_type``). ``partition_by`` names fields that become
    directories (``day=2026-01-01/``) and are left out of the files, or is a function from a row to
    a relative directory. ``name`` (default: the directory's) names the position: renaming it starts
    anew. ``timeout`` in seconds bounds a call.

    A commit adds one file per input partition and directory, ``app.sink.topic-partition-offset``
    with the offset of its first record; so files are as large as ``commit_interval``,
    ``batch_rows`` and ``batch_bytes`` make them. They are never changed. A file appears whole or
    not at all, several of one commit one after the other; names that begin with ``_`` are not data.

    A local directory is for the workers of one machine. Files may be taken away at any time; they
    and the positions are safe from power failures. The positions are compared and set in SQLite, so
    a worker that lost a partition cannot add files, while one that is stopped within a commit holds
    up the others until it goes on or ends. SQLite's locks must work there: no network file system.

    In S3 workers may be anywhere; they get, put, list and delete there. The store must heed
    If-Match and If-None-Match when it is written to, as S3 does: that is tried at the start.
    Workers wait for one another for a request each: give them a ``commit_interval`` of seconds. A
    file that was taken away comes back, under the same name, if its worker died in the moment
    between its appearance and the next request. In a bucket with versions a lifecycle rule should
    drop old ones below ``_onceward``.

    Raises ConfigurationError.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        format: str = "jsonl",
        partition_by: PartitionBy = (),
        columns: Sequence[str] | None = None,
        schema: Any = None,
        value_type: Any = None,
        name: str | None = None,
        on_error: str | None = None,
        timeout: float = 30.0,
        storage_options: Mapping[str, Any] | None = None,
        disk: Disk | None = None,
        store: ObjectStore | None = None,
    ) -> None:
        protocol, is_url, rest = str(path).partition("://")
        self.path = str(path).rstrip("/") if is_url else Path(path)
        last = str(path).rstrip("/").rpartition("/")[2] if is_url else Path(path).resolve().name
        super().__init__(name or last, mode=Mode.INSERT, on_error=on_error)
        if is_url and protocol not in _S3:
            raise ConfigurationError(
                f"sink {self.name!r}: files go to a local directory or to s3://, not to "
                f"{protocol}://, of whose writes it is not known how to make them conditional"
            )
        if storage_options is not None and not is_url:
            raise ConfigurationError(f"sink {self.name!r}: storage_options= is for s3://")
        self._rows = RowFiles(
            self.name, self.path, format, partition_by, columns, schema, value_type
        )
        self.takes = self._rows.format.takes
        self.place: LocalFiles | ObjectFiles
        if is_url:
            bucket, _, prefix = rest.rstrip("/").partition("/")
            if not bucket:
                raise ConfigurationError(f"sink {self.name!r}: {path} names no bucket")
            if store is None:
                store = S3Store(bucket, storage_options or {}, timeout)
            self.place = ObjectFiles(
                self.name, self.describe(), prefix, store, self.apply, timeout=timeout
            )
        else:
            self.place = LocalFiles(
                self.name,
                self.describe(),
                Path(path),
                self.apply,
                timeout=timeout,
                disk=Disk() if disk is None else disk,
            )

    def describe(self) -> str:
        return f"sink {self.name!r} ({self._rows.format.suffix} files in {self.path})"

    def adapt(self, value: Any) -> Any:
        return self._rows.format.adapt(value)

    async def start(self) -> None:
        await self.place.start()

    async def close(self) -> None:
        await self.place.close()

    async def take_over(
        self, app: str, starts: Mapping[TopicPartition, Start]
    ) -> dict[TopicPartition, Claim]:
        return await self.place.take_over(app, starts)

    async def positions(self, app: str) -> dict[TopicPartition, Position]:
        return await self.place.positions(app)

    async def commit(self, batch: Batch, advances: Sequence[Advance]) -> None:
        await self.place.commit(batch, advances)

    def apply(self, batch: Batch) -> None:
        """Add files to the commit that is open: ``batch.connection``."""
        for file in self._rows.of(batch):
            batch.connection.add(batch.app, file)
