"""A small app that keeps what it promises: words counted in a table."""

from __future__ import annotations

from onceward.streams import App, Stream

app = App("small-count", topic_partitions=3)
lines = app.topic("lines", value_type=str, partitions=3)
words = app.topic("words", key_type=str, value_type=str, partitions=2)
totals = app.topic("totals", key_type=str, value_type=int, partitions=2)
counts = app.Table("counts", default=int, partitions=2)


@app.agent(lines)
async def split(stream: Stream[str]) -> None:
    async for line in stream:
        for word in line.split():
            await words.send(key=word, value=word)


@app.agent(words)
async def count(stream: Stream[str]) -> None:
    async for word in stream:
        counts[word] += 1
        await totals.send(key=word, value=counts[word])
