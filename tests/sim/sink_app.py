"""An app that writes rows to a database, and counts them in a table."""

from __future__ import annotations

from collections.abc import AsyncIterator

from onceward.streams import App, Stream
from onceward.streams.sinks import MemorySink

app = App("rows-app")
words = app.topic("words", key_type=str, value_type=str, partitions=3)
counts = app.Table("counts", default=int, partitions=3)
rows = MemorySink("rows", mode="insert")


@app.agent(words, sink=[rows])
async def count(stream: Stream[str]) -> AsyncIterator[dict[str, object]]:
    async for word in stream:
        counts[word] += 1
        yield {"word": word, "count": counts[word]}
