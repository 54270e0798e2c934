from collections.abc import Sequence

from ..types import Buffer
from .kernel import Decoded, Decompress, Headers

def decode(
    buf: Buffer,
    start_offset: int,
    check_crcs: bool,
    keep_control: bool,
    decompress: Decompress,
    /,
) -> Decoded: ...
def encode(
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
    keys: list[bytes | None],
    values: list[bytes | None],
    headers: Sequence[Headers] | None,
    /,
) -> int: ...
def chunk_ends(
    keys: list[bytes | None],
    values: list[bytes | None],
    timestamps: int | list[int],
    headers: Sequence[Headers] | None,
    max_bytes: int,
    /,
) -> list[int]: ...
def partition_keys(keys: list[bytes | None], partitions: int, /) -> list[int]: ...
def murmur2(key: bytes, /) -> int: ...
def crc32c(buf: Buffer, value: int = 0, by_table: bool = False, /) -> int: ...
