"""The app under fire that writes to a sink: every number as a row that no unique key protects, and
a total per key. What the rows must be says the source alone."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator

from onceward.streams import App, Record, Stream, sinks


class Number(Record):
    number: int


class Row(Record):
    """``count`` is how many of its key came up to it."""

    number: int
    key: str
    count: int


class Total(Record):
    key: str
    total: int


def pair(kind: str, at: str) -> tuple[sinks.Sink, sinks.Sink]:
    """For rows and for totals; ``at`` is a path, an address or a DSN."""
    match kind:
        case "sqlite" | "duckdb" | "postgres" | "mysql":
            names = {"sqlite": "SqliteSink", "duckdb": "DuckDbSink", "postgres": "PostgresSink"}
            table = getattr(sinks, names.get(kind, "MySqlSink"))
            return (
                table(at, table="rows", mode="insert", value_type=Row, create=True),
                table(at, table="totals", key="key", value_type=Total, create=True),
            )
        case "jsonl" | "parquet":
            return (
                sinks.FilesSink(f"{at}/rows", format=kind, value_type=Row),
                sinks.FilesSink(f"{at}/totals", format=kind, value_type=Total),
            )
        case "s3":
            options = {"key": "testing", "secret": "testing", "endpoint_url": at}
            return (
                sinks.FilesSink("s3://fire/rows", storage_options=options),
                sinks.FilesSink("s3://fire/totals", storage_options=options),
            )
        case "http":
            return (
                sinks.HttpSink(f"{at}/rows", batch="jsonl", key_field="id", name="rows"),
                sinks.HttpSink(f"{at}/totals", batch="jsonl", key_field="id", name="totals"),
            )
        case "redis":
            return (
                sinks.RedisSink(at, prefix="rows", kind="list"),
                sinks.RedisSink(at, prefix="total:", key="key"),
            )
        case "kafka":
            return (
                sinks.KafkaSink(at, topic="rows", value_type=Row, partitions=6),
                sinks.KafkaSink(at, topic="totals", value_type=Total, partitions=6),
            )
    raise ValueError(f"no sink {kind!r}")


app = App(
    "sink-under-fire",
    commit_interval=float(os.environ.get("SINK_UNDER_FIRE_INTERVAL", "0.05")),
    store="memory://",
    broker_session_timeout=1.5,
)
source = app.topic("rows-in", key_type=str, value_type=Number, partitions=6)
counts = app.Table("row-counts", key_type=str, value_type=int, default=int, partitions=6)
rows, totals = pair(
    os.environ.get("SINK_UNDER_FIRE", "sqlite"), os.environ.get("SINK_UNDER_FIRE_AT", "rows.db")
)


@app.agent(source, sink=[rows])
async def etl(stream: Stream[Number]) -> AsyncIterator[Row]:
    async for key, value in stream.items():
        counts[key] += 1
        await totals.write(Total(key, counts[key]))
        yield Row(value.number, key, counts[key])
