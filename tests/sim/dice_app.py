"""An app whose output is a matter of chance: nothing can be said about it."""

from __future__ import annotations

import random

from onceward.streams import App, Stream

app = App("dice")
words = app.topic("words", key_type=str, value_type=str, partitions=1)
thrown = app.topic("thrown", key_type=str, value_type=float, partitions=1)


@app.agent(words)
async def throw(stream: Stream[str]) -> None:
    async for _ in stream:
        await thrown.send(key=str(random.random()), value=random.random())
