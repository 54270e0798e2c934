"""The same as a Quix Streams app with its PostgreSQL sink: at least once, a checkpoint per 10,000
records (its default is one every 5 s, too coarse to measure)."""

from __future__ import annotations

import os

from quixstreams import Application
from quixstreams.sinks.community.postgresql import PostgreSQLSink

sink = PostgreSQLSink(
    host=os.environ["BENCH_HOST"],
    port=5432,
    dbname="postgres",
    user="postgres",
    password="",
    table_name="payments",
    include_metadata=False,
)
app = Application(
    broker_address=os.environ["ONCEWARD_BROKER"],
    consumer_group=os.environ["BENCH_GROUP"],
    auto_offset_reset="earliest",
    commit_every=10_000,
    loglevel="WARNING",
)
app.dataframe(app.topic("bench-in", value_deserializer="json")).sink(sink)
app.run()
