"""An app whose agent raises at some records."""

from __future__ import annotations

from onceward.streams import App, Stream

app = App("failing")
numbers = app.topic("numbers", key_type=str, value_type=int, partitions=1)
halves = app.topic("halves", key_type=str, value_type=float, partitions=1)


@app.agent(numbers)
async def halve(stream: Stream[int]) -> None:
    async for number in stream:
        await halves.send(key="half", value=number / (number % 5))
