"""The same as a hand-written loop: confluent-kafka, the same model, COPY, then the offsets.

At least once: rows since the last commit of offsets are there twice after a crash. Rebalances,
errors, bad rows, types other than this table's and a database that is away are left out.
"""

from __future__ import annotations

import os
import signal
from datetime import datetime
from decimal import Decimal
from typing import Any

import msgspec
import psycopg
from confluent_kafka import Consumer


class Payment(msgspec.Struct):
    id: int
    account: str
    amount: Decimal
    rate: float
    at: datetime
    late: bool
    country: str
    page: str
    quantity: int
    note: str


TYPES = ["int8", "text", "numeric", "float8", "timestamptz", "bool", "text", "text", "int8", "text"]


def main() -> None:
    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: stopping.append(number))
    settings: dict[str, Any] = {
        "bootstrap.servers": os.environ["ONCEWARD_BROKER"],
        "group.id": os.environ["BENCH_GROUP"],
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    consumer = Consumer(settings)
    consumer.subscribe(["bench-in"])
    decoder = msgspec.json.Decoder(Payment)
    with psycopg.connect(os.environ["BENCH_DATABASE"]) as connection:
        while not stopping:
            messages = consumer.consume(10_000, timeout=0.1)
            rows = [decoder.decode(message.value() or b"") for message in messages]
            if not rows:
                continue
            with connection.cursor().copy("COPY payments FROM STDIN (FORMAT BINARY)") as copy:
                copy.set_types(TYPES)
                for row in rows:
                    copy.write_row(msgspec.structs.astuple(row))
            connection.commit()
            consumer.commit(asynchronous=False)
    consumer.close()


main()
