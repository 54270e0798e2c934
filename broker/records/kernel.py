"""The per-record loops: the compiled extension where it was built, ``pure`` otherwise.

Both have the functions of ``Kernel``, take the same arguments and raise the same errors; tests hold
them equal. The environment variable ``ONCEWARD_PURE_PYTHON=1`` makes the extension refuse to load
(it looks itself), so this switch needs no parameter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from ..types import Buffer
from . import pure

Header = tuple[str, bytes | None]
Headers = Sequence[Header]
Decompress = Callable[[int, bytes], Buffer]
"""Compression id and compressed record section to plain record section; raises ``KafkaError``."""

Decoded = tuple[
    list[bytes | None],
    list[bytes | None],
    list[int],
    list[int],
    list[tuple[Header, ...]] | None,
    int,
]
"""Keys, values, offsets, timestamps, headers (None when no record has any) and next offset."""


class Kernel(Protocol):
    """What ``_codec`` and ``pure`` both provide. All arguments are positional."""

    def decode(
        self,
        buf: Buffer,
        start_offset: int,
        check_crcs: bool,
        keep_control: bool,
        decompress: Decompress,
        /,
    ) -> Decoded: ...

    def encode(
        self,
        keys: list[bytes | None],
        values: list[bytes | None],
        timestamps: int | list[int],
        headers: Sequence[Headers] | None,
        attributes: int,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        base_offset: int,
        /,
    ) -> bytes: ...

    def estimate_size(
        self,
        keys: list[bytes | None],
        values: list[bytes | None],
        headers: Sequence[Headers] | None,
        /,
    ) -> int: ...

    def chunk_ends(
        self,
        keys: list[bytes | None],
        values: list[bytes | None],
        timestamps: int | list[int],
        headers: Sequence[Headers] | None,
        max_bytes: int,
        /,
    ) -> list[int]: ...

    def partition_keys(self, keys: list[bytes | None], partitions: int, /) -> list[int]: ...

    def murmur2(self, key: bytes, /) -> int: ...

    def crc32c(self, buf: Buffer, value: int = 0, /) -> int: ...


def _select() -> tuple[Kernel, bool]:
    try:
        from . import _codec
    except ImportError:
        return pure, False
    return (_codec, True) if hasattr(_codec, "decode") else (pure, False)


kernel, COMPILED = _select()
