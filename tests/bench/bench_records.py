"""Cost of the record batch codec in ns per record: compiled, pure and aiokafka's, side by side.

Run it as a script: ``python tests/bench/bench_records.py [records per batch] [rounds]``. The three
are timed in turn within each round, so a slow moment of the machine hits all of them; the table has
the best round of each and, after the slash, the median.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

from aiokafka.partitioner import murmur2 as aiokafka_murmur2
from aiokafka.record import MemoryRecords
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from onceward.broker.records import pure
from onceward.broker.records.compression import Compression, compress, decompress
from onceward.broker.records.kernel import COMPILED, Kernel, kernel
from onceward.broker.types import Buffer

NOW = 1_700_000_000_000
Blobs = list[bytes | None]
Timed = dict[str, Callable[[], object]]


def expand(compression: int, data: bytes) -> Buffer:
    return decompress(Compression(compression), data)


def aiokafka_decode(buf: bytes) -> list[tuple[bytes | None, bytes | None, int, int]]:
    memory = MemoryRecords(buf)
    out = []
    while memory.has_next():
        batch = memory.next_batch()
        assert batch.validate_crc()
        out += [(r.key, r.value, r.offset, r.timestamp) for r in batch]
    return out


def aiokafka_encode(keys: Blobs, values: Blobs) -> bytes:
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 30)
    append = builder.append
    for i in range(len(keys)):
        append(i, NOW, keys[i], values[i], [])
    return bytes(builder.build())


def aiokafka_partition(keys: list[bytes], partitions: int) -> list[int]:
    return [(aiokafka_murmur2(key) & 0x7FFFFFFF) % partitions for key in keys]


def subjects() -> dict[str, Kernel]:
    return {"compiled": kernel, "pure": pure} if COMPILED else {"pure": pure}


def cases(count: int) -> dict[str, Timed]:
    keys = [b"user-%06d" % (i % 5000) for i in range(count)]
    values = [b'{"id": %d, "user": "u%d", "amount": %d.5}' % (i, i % 99, i) for i in range(count)]
    values = [value.ljust(100) for value in values]
    blob_keys: Blobs = [*keys]
    blob_values: Blobs = [*values]
    times = [NOW + i for i in range(count)]
    plain = pure.encode(blob_keys, blob_values, NOW, None, 0, -1, -1, -1, 0)
    section = pure.encode(blob_keys, blob_values, NOW, [[("h", b"x")]] * count, 0, -1, -1, -1, 0)
    small = b"".join(
        pure.encode(blob_keys[i : i + 10], blob_values[i : i + 10], NOW, None, 0, -1, -1, -1, i)
        for i in range(0, count, 10)
    )
    table: dict[str, Timed] = {
        "decode, crc checked": {"aiokafka": lambda: aiokafka_decode(plain)},
        "decode, 10 per batch": {"aiokafka": lambda: aiokafka_decode(small)},
        "decode, a header each": {"aiokafka": lambda: aiokafka_decode(section)},
        "encode, one timestamp": {"aiokafka": lambda: aiokafka_encode(blob_keys, blob_values)},
        "encode, own timestamps": {},
        "partition_keys": {"aiokafka": lambda: aiokafka_partition(keys, 16)},
    }
    for name, k in subjects().items():
        for case, buf in (
            ("decode, crc checked", plain),
            ("decode, 10 per batch", small),
            ("decode, a header each", section),
        ):
            table[case][name] = lambda k=k, buf=buf: k.decode(buf, 0, True, False, expand)  # type: ignore[misc]
        for case, stamps in (("encode, one timestamp", NOW), ("encode, own timestamps", times)):
            table[case][name] = lambda k=k, stamps=stamps: k.encode(  # type: ignore[misc]
                blob_keys, blob_values, stamps, None, 0, -1, -1, -1, 0
            )
        table["partition_keys"][name] = lambda k=k: k.partition_keys(blob_keys, 16)  # type: ignore[misc]
    for codec in (Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD):
        packed = compress(codec, plain[61:])
        table[f"compress {codec.name.lower()}"] = {
            "both": lambda codec=codec: compress(codec, plain[61:])  # type: ignore[misc]
        }
        table[f"decompress {codec.name.lower()}"] = {
            "both": lambda codec=codec, packed=packed: decompress(codec, packed)  # type: ignore[misc]
        }
    return table


def measure(timed: Timed, count: int, rounds: int) -> dict[str, list[float]]:
    """ns per record of each subject, a figure per round."""
    figures: dict[str, list[float]] = {name: [] for name in timed}
    for _ in range(rounds):
        for name, function in timed.items():
            start = time.perf_counter_ns()
            function()
            figures[name].append((time.perf_counter_ns() - start) / count)
    return figures


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 51
    print(f"{count} records of 111 bytes, {rounds} rounds, ns per record: best / median")
    for case, timed in cases(count).items():
        cells = [
            f"{name} {min(numbers):7.0f} /{statistics.median(numbers):7.0f}"
            for name, numbers in sorted(measure(timed, count, rounds).items())
        ]
        print(f"{case:24}" + "   ".join(cells))


if __name__ == "__main__":
    main()
