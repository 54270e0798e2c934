"""A store in RocksDB (rocksdict, raw mode): one database per table partition.

Data and checkpoint are written in one write batch, so a crash leaves both or neither. Keys are
prefixed with one byte so that the checkpoint can never be taken for a user's key.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import cast

from rocksdict import AccessType, BlockBasedOptions, Cache, Options, Rdict, WriteBatch

from ..errors import WorkerError

logger = logging.getLogger(__name__)

_DATA = b"d"
_DATA_END = b"e"
_CHECKPOINT = b"c"
_MEBIBYTE = 1024 * 1024


class RocksDBStore:
    """``Store`` in the directory ``path``. Opening it takes RocksDB's lock on the directory.

    Raises Exception of rocksdict when another process holds it.
    """

    def __init__(self, path: str, *, block_cache_mib: int = 8, write_buffer_mib: int = 8) -> None:
        self._path = path
        self._options = _options(block_cache_mib, write_buffer_mib)
        self._db: Rdict | None = Rdict(path, self._options, access_type=AccessType.read_write())
        saved = self._db.get(_CHECKPOINT)
        self._checkpoint = int(saved) if saved is not None else 0

    @property
    def checkpoint(self) -> int:
        return self._checkpoint

    def get(self, key: bytes) -> bytes | None:
        value: bytes | None = self._open().get(_DATA + key)
        return value

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        pairs = cast("Iterator[tuple[bytes, bytes]]", self._open().items(from_key=_DATA))
        for key, value in pairs:
            if not key.startswith(_DATA):
                return
            yield key[1:], value

    def write(self, changes: Iterable[tuple[bytes, bytes | None]], checkpoint: int) -> None:
        batch = WriteBatch(raw_mode=True)
        for key, value in changes:
            if value is None:
                batch.delete(_DATA + key)
            else:
                batch.put(_DATA + key, value)
        batch.put(_CHECKPOINT, b"%d" % checkpoint)
        database = self._open()
        try:
            database.write(batch)
        except Exception as error:  # rocksdict raises nothing more special
            raise WorkerError(
                f"the state store in {self._path} cannot be written: {error}. Nothing is lost, as "
                "what is committed is in its changelog: see to the disk and start the worker again"
            ) from error
        self._checkpoint = checkpoint

    def clear(self) -> None:
        """Delete every key and the checkpoint."""
        database = self._open()
        database.delete(_CHECKPOINT)
        database.delete_range(_DATA, _DATA_END)
        self._checkpoint = 0

    def close(self) -> None:
        database, self._db = self._db, None
        if database is None:
            return
        try:
            database.close()
        except Exception as error:  # noqa: BLE001 - as above; the changelog has everything
            logger.warning("the state store in %s did not end well: %s", self._path, error)

    def _open(self) -> Rdict:
        if self._db is None:
            raise RuntimeError(f"the store in {self._path} is closed")
        return self._db


def _options(block_cache_mib: int, write_buffer_mib: int) -> Options:
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_write_buffer_size(write_buffer_mib * _MEBIBYTE)
    options.set_max_write_buffer_number(2)
    options.set_max_open_files(64)
    options.set_keep_log_file_num(1)
    options.set_max_background_jobs(2)
    table = BlockBasedOptions()
    table.set_block_cache(Cache(block_cache_mib * _MEBIBYTE))
    table.set_bloom_filter(10, False)
    table.set_cache_index_and_filter_blocks(True)
    options.set_block_based_table_factory(table)
    return options
