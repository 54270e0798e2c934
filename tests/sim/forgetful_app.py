"""An app that is wrong: it counts in a global, which does not survive a crash."""

from __future__ import annotations

from onceward.streams import App, Stream

app = App("forgetful")
words = app.topic("words", key_type=str, value_type=str, partitions=2)
totals = app.topic("totals", key_type=str, value_type=int, partitions=2)
counts: dict[str, int] = {}


@app.agent(words)
async def count(stream: Stream[str]) -> None:
    async for word in stream:
        counts[word] = counts.get(word, 0) + 1
        await totals.send(key=word, value=counts[word])
